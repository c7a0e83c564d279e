"""The tools of our_server.py on mcp 1.

python python1_server.py [--legacy VERSION] [--tasks | --ws | --http | --sse]

With --ws it listens for WebSockets, with --http for HTTP, with --sse for HTTP+SSE, and prints the
URL.
"""

import sys
import warnings
from typing import Any

import anyio
import mcp.server.session
import mcp.types as types
import tools
from mcp import McpError
from mcp.server.fastmcp import Context, FastMCP

server: FastMCP[Any] = FastMCP("interop", instructions="Call the tools.", log_level="WARNING")
inner = server._mcp_server
inner.version = "1.2.3"


class Python1(tools.Sdk):
    server, context, types, errors = server, Context, types, McpError

    def whoami(self, ctx: Any) -> Any:
        said = ctx.session.client_params
        return {"client": said.clientInfo.name if said is not None else None}

    async def grow(self, ctx: Any, kind: str, name: str, late: Any) -> None:
        server.add_tool(late, name=name, description="Came late.", structured_output=False)
        await ctx.session.send_tool_list_changed()


def tasks() -> None:
    """Have tools that are only called as tasks of 2025-11-25: what `test_tasks.py` describes."""
    inner.experimental.enable_tasks()
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    def text(value: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=value)])

    @inner.list_tools()
    async def list_tools() -> list[types.Tool]:
        required = types.ToolExecution(taskSupport=types.TASK_REQUIRED)
        return [
            types.Tool(name=name, inputSchema={"type": "object"}, execution=required)
            for name in ("slow", "endless", "ask")
        ]

    @inner.call_tool()
    async def call_tool(name: str, arguments: dict[str, Any]) -> types.CreateTaskResult:
        async def work(task: Any) -> types.CallToolResult:
            if name == "ask":
                answer = await task.elicit(message="Who are you?", requestedSchema=form)
                return text(f"{answer.action} {(answer.content or {}).get('name')}")
            await anyio.sleep(30 if name == "endless" else 0.05)
            return text("done")

        return await inner.request_context.experimental.run_task(work)


sdk = Python1()
if "--tasks" in sys.argv:
    tasks()
else:
    tools.calls(sdk)


@inner.set_logging_level()
async def set_level(level: types.LoggingLevel) -> None:
    sdk.least = tools.LEVELS.index(level)


def websockets() -> Any:
    """An application whose endpoint is for WebSockets."""
    from mcp.server.websocket import websocket_server
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket

    async def endpoint(websocket: WebSocket) -> None:
        async with websocket_server(websocket.scope, websocket.receive, websocket._send) as streams:
            await inner.run(streams[0], streams[1], inner.create_initialization_options())

    warnings.simplefilter("ignore", DeprecationWarning)
    return Starlette(routes=[WebSocketRoute("/mcp", endpoint)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--legacy"]:
        # no public switch: what it negotiates is in these names
        mcp.server.session.SUPPORTED_PROTOCOL_VERSIONS = [sys.argv[2]]
        types.LATEST_PROTOCOL_VERSION = sys.argv[2]
    if "--ws" in sys.argv:
        tools.listen(websockets(), "ws")
    elif "--http" in sys.argv:
        tools.listen(server.streamable_http_app())
    elif "--sse" in sys.argv:
        tools.listen(server.sse_app(), path="/sse")
    else:
        server.run()
