"""The tools of our_server.py on mcp 1.

python python1_server.py [--legacy VERSION] [--ws]

With --ws it listens for WebSockets and prints the URL.
"""

import json
import signal
import socket
import sys
import warnings
from typing import Any, Literal

import anyio
import mcp.server.session
import mcp.types as types
from mcp import McpError
from mcp.server.fastmcp import Context, FastMCP
from pydantic import AnyUrl, BaseModel

server: FastMCP[Any] = FastMCP("interop", instructions="Call the tools.", log_level="WARNING")
server._mcp_server.version = "1.2.3"
levels = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
least = 0
cancelled: list[str] = []


class Person(BaseModel):
    name: str
    age: int
    colour: Literal["red", "green"]
    tags: list[str]


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
async def echo(text: str, ms: int = 0) -> str:
    """Give the text back, after some milliseconds."""
    await anyio.sleep(ms / 1000)
    return text


@server.tool()
async def person(
    name: str, age: int = 30, colour: Literal["red", "green"] = "red", tags: list[str] | None = None
) -> Person:
    """Make a person."""
    return Person(name=name, age=age, colour=colour, tags=tags or [])


@server.tool(structured_output=False)
async def blocks() -> list[Any]:
    """Give one block of each kind."""
    return [
        types.TextContent(type="text", text="text"),
        types.ImageContent(type="image", data="iVBORw0K", mimeType="image/png"),
        types.AudioContent(type="audio", data="UklGRg==", mimeType="audio/wav"),
        types.ResourceLink(
            type="resource_link", uri=AnyUrl("file:///link.txt"), name="link", mimeType="text/plain"
        ),
        types.EmbeddedResource(
            type="resource",
            resource=types.TextResourceContents(
                uri=AnyUrl("file:///a.txt"), mimeType="text/plain", text="inside"
            ),
        ),
        types.EmbeddedResource(
            type="resource",
            resource=types.BlobResourceContents(uri=AnyUrl("file:///b.bin"), blob="AAECAw=="),
        ),
    ]


@server.tool(structured_output=False)
async def fail() -> str:
    """Fail."""
    raise ValueError("boom")


@server.tool(structured_output=False)
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for i in range(1, n + 1):
        await ctx.report_progress(i, n, f"step {i}")
    return str(n)


@server.tool(structured_output=False)
async def chatter(ctx: Context) -> str:
    """Log at four levels."""
    for level in ("debug", "info", "warning", "error"):
        if levels.index(level) >= least:
            await ctx.session.send_log_message(level, {"said": level}, "chatter")
    return "said"


@server.tool(structured_output=False)
async def wait(tag: str, ctx: Context) -> str:
    """Report progress once, then wait to be cancelled."""
    await ctx.report_progress(1)
    try:
        await anyio.sleep(30)
    except anyio.get_cancelled_exc_class():
        cancelled.append(tag)
        raise
    return "waited"


@server.tool(structured_output=False)
async def noticed() -> str:
    """Tell which waits were cancelled."""
    return json.dumps(cancelled)


@server.tool(structured_output=False)
async def grow(name: str, ctx: Context) -> str:
    """Add a tool."""

    async def late() -> str:
        return "late"

    server.add_tool(late, name=name, description="Came late.", structured_output=False)
    await ctx.session.send_tool_list_changed()
    return name


@server.tool(structured_output=False)
async def whoami(ctx: Context) -> str:
    """Tell what the client said of itself."""
    said = ctx.session.client_params
    return json.dumps({"client": said.clientInfo.name if said is not None else None})


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask the client something, and then what it cannot answer (legacy)."""
    session = ctx.request_context.session
    await session.send_ping()
    try:
        await session.list_roots()
    except McpError as exc:
        return str(exc.error.code)
    return "answered"


@server._mcp_server.set_logging_level()
async def set_level(level: types.LoggingLevel) -> None:
    global least
    least = levels.index(level)


def listen() -> None:
    """Serve one session after the other, or many at once, under uvicorn."""
    import uvicorn
    from mcp.server.websocket import websocket_server
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket

    async def endpoint(websocket: WebSocket) -> None:
        inner = server._mcp_server
        async with websocket_server(websocket.scope, websocket.receive, websocket._send) as streams:
            await inner.run(streams[0], streams[1], inner.create_initialization_options())

    warnings.simplefilter("ignore", DeprecationWarning)
    app = Starlette(routes=[WebSocketRoute("/mcp", endpoint)])
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ws://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # uvicorn ends in order and then raises the signal again
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run([listener])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--legacy"]:
        # no public switch: what it negotiates is in these names
        mcp.server.session.SUPPORTED_PROTOCOL_VERSIONS = [sys.argv[2]]
        types.LATEST_PROTOCOL_VERSION = sys.argv[2]
    if "--ws" in sys.argv:
        listen()
    else:
        server.run()
