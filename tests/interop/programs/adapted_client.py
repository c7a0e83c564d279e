"""A client that somebody published: it lists the tools of a server on stdio, calls `add`, and
prints what it saw as JSON.

python adapted_client.py NAME COMMAND [ARGUMENT …]    (NAME: langchain, openai, adk or pydantic)
"""

import asyncio
import json
import sys
from typing import Any

ARGUMENTS = {"a": 2, "b": 3}
SECONDS = 60.0  # for the start of a server, on a machine that has other work


async def langchain(command: str, args: list[str]) -> Any:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    server = {"transport": "stdio", "command": command, "args": args}
    tools = await MultiServerMCPClient({"it": server}).get_tools()
    add = next(tool for tool in tools if tool.name == "add")
    answer = await add.ainvoke({"type": "tool_call", "id": "1", "name": "add", "args": ARGUMENTS})
    return [[tool.name, tool.description] for tool in tools], [
        block["text"] for block in answer.content
    ]


async def openai(command: str, args: list[str]) -> Any:
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio({"command": command, "args": args}) as server:
        tools = await server.list_tools()
        answer = await server.call_tool("add", ARGUMENTS)
    return [[tool.name, tool.description] for tool in tools], answer.content[0].text


async def adk(command: str, args: list[str]) -> Any:
    from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
    from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
    from mcp import StdioServerParameters

    parameters = StdioServerParameters(command=command, args=args)
    connection = StdioConnectionParams(server_params=parameters, timeout=SECONDS)
    toolset = McpToolset(connection_params=connection)
    tools = await toolset.get_tools()
    session = await toolset._mcp_session_manager.create_session()
    answer = await session.call_tool("add", ARGUMENTS)
    await toolset.close()
    return [[tool.name, tool.description] for tool in tools], answer.content[0].text


async def pydantic(command: str, args: list[str]) -> Any:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    transport = StdioTransport(command, args)
    async with MCPToolset(transport, init_timeout=SECONDS) as toolset:
        tools = await toolset.list_tools()
        answer = await toolset.direct_call_tool("add", ARGUMENTS)
    return [[tool.name, tool.description] for tool in tools], str(answer)


if __name__ == "__main__":
    name, command, *args = sys.argv[1:]
    tools, answer = asyncio.run(globals()[name](command, args))
    print(json.dumps({"tools": tools, "answer": answer}))
