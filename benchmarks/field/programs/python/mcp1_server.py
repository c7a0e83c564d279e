"""An echo server with the Python SDK 1.x.

mcp1_server.py stdio SETTING TOOLS
mcp1_server.py http SETTING TOOLS PORT
mcp1_server.py websocket SETTING TOOLS PORT
mcp1_server.py sse SETTING TOOLS PORT

SETTING is documented or fastest. TOOLS is the number of tools beside echo.
"""

import sys
from typing import Any

from mcp.server.fastmcp import FastMCP

kind, setting, tools = sys.argv[1:4]
port = int(sys.argv[4]) if len(sys.argv) > 4 else 0
fastest = setting == "fastest"
# With sessions: without them each request has a server of its own, which is slower.
http: dict[str, Any] = {"json_response": True} if fastest else {}
level: Any = "ERROR" if fastest else "INFO"
server = FastMCP("echo", host="127.0.0.1", port=port, log_level=level, **http)
# Structured output would send the text twice.
options: dict[str, Any] = {"structured_output": False} if fastest else {}


async def echo(text: str) -> str:
    """Return the text."""
    return text


server.add_tool(echo, **options)
for n in range(1, int(tools) + 1):
    described = f"Tool number {n}: returns the text that it is given."
    server.add_tool(echo, name=f"tool_{n}", description=described, **options)


async def websocket(scope: Any, receive: Any, send: Any) -> None:
    """Serve each connection, as the SDK's WebSocket transport is documented."""
    from mcp.server.websocket import websocket_server

    if scope["type"] != "websocket":
        return
    async with websocket_server(scope, receive, send) as (read, write):
        low = server._mcp_server
        await low.run(read, write, low.create_initialization_options())


def serve(app: Any) -> None:
    """Serve an application as fast as uvicorn can."""
    import uvicorn

    uvicorn.run(
        app, host="127.0.0.1", port=port, log_level="error", access_log=False,
        loop="uvloop" if fastest else "auto", http="httptools" if fastest else "auto",
    )  # fmt: skip


if kind == "stdio":
    if fastest:
        import uvloop

        uvloop.run(server.run_stdio_async())
    else:
        server.run()
elif kind == "websocket":
    serve(websocket)
elif fastest:
    serve(server.sse_app() if kind == "sse" else server.streamable_http_app())
else:
    server.run("sse" if kind == "sse" else "streamable-http")
