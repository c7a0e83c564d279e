"""The tools of our_server.py on mcp 2.

    python python2_server.py [--legacy VERSION]

With --legacy it is the only version that initialize negotiates.
"""

import json
import sys
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import runner
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server: MCPServer[Any] = MCPServer(
    "interop", version="1.2.3", instructions="Call the tools.", log_level="WARNING"
)
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
        types.ImageContent(type="image", data="iVBORw0K", mime_type="image/png"),
        types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
        types.ResourceLink(
            type="resource_link", uri="file:///link.txt", name="link", mime_type="text/plain"
        ),
        types.EmbeddedResource(
            type="resource",
            resource=types.TextResourceContents(
                uri="file:///a.txt", mime_type="text/plain", text="inside"
            ),
        ),
        types.EmbeddedResource(
            type="resource",
            resource=types.BlobResourceContents(uri="file:///b.bin", blob="AAECAw=="),
        ),
    ]


@server.tool(structured_output=False)
async def fail() -> str:
    """Fail."""
    raise ToolError("boom")  # the words of other exceptions are not shown


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
            await ctx.request_context.session.send_log_message(
                level, {"said": level}, "chatter", related_request_id=ctx.request_context.request_id
            )
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
    if ctx.request_context.session.protocol_version < "2026":
        await ctx.request_context.session.send_tool_list_changed()
    else:
        await ctx.notify_tools_changed()
    return name


@server.tool(structured_output=False)
async def whoami(ctx: Context) -> str:
    """Tell what the client said of itself."""
    session = ctx.request_context.session
    said = session.client_params
    return json.dumps(
        {
            "client": said.client_info.name if said is not None else None,
            "version": session.protocol_version,
        }
    )


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask the client something, and then what it cannot answer (legacy)."""
    session = ctx.request_context.session
    await session.send_ping()
    try:
        await session.list_roots()
    except MCPError as exc:
        return str(exc.code)
    return "answered"


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    global least
    least = levels.index(params.level)
    return types.EmptyResult()


server._lowlevel_server.add_request_handler(
    "logging/setLevel", types.SetLevelRequestParams, set_level
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--legacy"]:
        # no public switch: what it negotiates is in these names
        runner.HANDSHAKE_PROTOCOL_VERSIONS = (sys.argv[2],)
        runner.LATEST_HANDSHAKE_VERSION = sys.argv[2]
    server.run()
