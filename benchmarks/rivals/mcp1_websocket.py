"""Rival: mcp 1.30.0's WebSocket server on uvicorn with uvloop, as its documentation puts it.

One async echo tool of its FastMCP, structured output off (its least work).
"""

import socket

import uvicorn
import uvloop
from _port import tell
from mcp.server.fastmcp import FastMCP
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

server = FastMCP("bench", log_level="ERROR")


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    return text


async def connect(websocket: WebSocket) -> None:
    low = server._mcp_server
    async with websocket_server(websocket.scope, websocket.receive, websocket.send) as streams:
        await low.run(*streams, low.create_initialization_options())


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    tell(listener.getsockname()[1])
    app = Starlette(routes=[WebSocketRoute("/", connect)])
    config = uvicorn.Config(app, log_level="critical", ws_per_message_deflate=False, lifespan="off")
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)
    uvloop.run(main())
