"""An echo server with FastMCP.

fastmcp_server.py stdio SETTING TOOLS
fastmcp_server.py http SETTING TOOLS PORT
fastmcp_server.py sse SETTING TOOLS PORT

SETTING is documented or fastest. TOOLS is the number of tools beside echo.
"""

import sys

from fastmcp import FastMCP
from fastmcp.tools import Tool

kind, setting, tools = sys.argv[1:4]
fastest = setting == "fastest"
server = FastMCP("echo")


async def echo(text: str) -> str:
    """Return the text."""
    return text


# Without a schema of its output a tool answers with the text alone.
options = {"output_schema": None} if fastest else {}
server.add_tool(Tool.from_function(echo, **options))
for n in range(1, int(tools) + 1):
    described = f"Tool number {n}: returns the text that it is given."
    server.add_tool(Tool.from_function(echo, name=f"tool_{n}", description=described, **options))

if kind == "stdio":
    if fastest:
        import uvloop

        uvloop.run(server.run_stdio_async(show_banner=False, log_level="ERROR"))
    else:
        server.run()
elif fastest:
    import uvicorn

    # With sessions: without them each request has a server of its own, which is slower.
    if kind == "sse":
        app = server.http_app(path="/sse", transport="sse")
    else:
        app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[4]), log_level="error", access_log=False,
        loop="uvloop", http="httptools",
    )  # fmt: skip
else:
    path = "/sse" if kind == "sse" else "/mcp"
    server.run(transport=kind, host="127.0.0.1", port=int(sys.argv[4]), path=path)
