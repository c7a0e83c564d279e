"""Rival: mcp 2.3.0's own server, one async echo tool, structured output off (its least work)."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench", version="1", log_level="ERROR")


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    return text


if __name__ == "__main__":
    server.run()
