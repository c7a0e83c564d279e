"""What our_server.py offers, or with --features what `features.py` describes, on mcp 2's MCPServer.

    python python2_server.py [--features | --tasks] [--legacy VERSION] [--http | --sse]

With --legacy it is the only version that initialize negotiates. With --http it listens for HTTP and
prints the URL.
"""

import asyncio
import itertools
import sys
from typing import Any

import mcp_types as types
import tools
from mcp import MCPError
from mcp.server import runner
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.resources import TextResource

ABSENT = {"pagination": "MCPServer lists everything on one page"}
TASKS = {
    True: "no tasks of its own; written on its interface for extensions, as a test does, they work",
    False: "no tasks of 2025-11-25",
}
STAMP = "2026-07-28T00:00:00Z"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Who are you?", "mode": "form", "requestedSchema": FORM},
}


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class Tasks(Extension):
    """The tasks of 2026-07-28, which mcp 2 has not: what `test_tasks.py` describes."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.shown: dict[str, dict[str, Any]] = {}
        self.work: dict[str, asyncio.Future[None]] = {}
        self.numbers = itertools.count(1)

    def methods(self) -> list[MethodBinding]:
        modern = frozenset({"2026-07-28"})
        return [
            MethodBinding("tasks/get", TaskParams, self.get, modern),
            MethodBinding("tasks/update", UpdateParams, self.update, modern),
            MethodBinding("tasks/cancel", TaskParams, self.cancel, modern),
        ]

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        task = {
            "taskId": f"task-{next(self.numbers)}",
            "status": "working",
            "createdAt": STAMP,
            "lastUpdatedAt": STAMP,
            "ttlMs": 60000,
            "pollIntervalMs": 20,
        }
        self.shown[task["taskId"]] = task
        if params.name == "ask":
            task |= {"status": "input_required", "inputRequests": {"name": QUESTION}}
            return {**task, "status": "working", "resultType": "task"}

        async def work() -> None:
            await asyncio.sleep(30 if params.name == "endless" else 0.05)
            self.end(task, "done")

        self.work[task["taskId"]] = asyncio.ensure_future(work())
        return {**task, "resultType": "task"}

    def end(self, task: dict[str, Any], text: str) -> None:
        task.pop("inputRequests", None)
        content = [{"type": "text", "text": text}]
        task |= {
            "status": "completed",
            "result": {"content": content, "resultType": "complete"},
        }

    def find(self, task_id: str) -> dict[str, Any]:
        if task_id not in self.shown:
            raise MCPError(-32602, "Unknown task")
        return self.shown[task_id]

    async def get(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        return {**self.find(params.task_id), "resultType": "complete"}

    async def update(self, ctx: Any, params: UpdateParams) -> dict[str, Any]:
        answer = params.input_responses["name"]
        text = f"{answer['action']} {(answer.get('content') or {}).get('name')}"
        self.end(self.find(params.task_id), text)
        return {"resultType": "complete"}

    async def cancel(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        self.find(params.task_id)["status"] = "cancelled"
        self.work[params.task_id].cancel()
        return {"resultType": "complete"}


FEATURES = "--features" in sys.argv
AS_TASKS = "--tasks" in sys.argv
server: MCPServer[Any] = MCPServer(
    "features" if FEATURES else "interop",
    version="1.2.3",
    instructions="Try every feature." if FEATURES else "Call the tools.",
    log_level="WARNING",
    extensions=[Tasks()] if AS_TASKS else [],
)
low = server._lowlevel_server
subscribed: set[str] = set()


class Python2(tools.Sdk):
    server, context, types, errors, message = server, Context, types, MCPError, UserMessage
    failure = ToolError  # the words of other exceptions are not shown

    def whoami(self, ctx: Any) -> Any:
        session = self.session(ctx)
        said = session.client_params
        name = said.client_info.name if said is not None else None
        return {"client": name, "version": session.protocol_version}

    def absent(self, ctx: Any) -> Any:
        return ABSENT | {"tasks": TASKS[self.modern(ctx)]}

    async def form(self, ctx: Any, params: Any) -> Any:
        return await self.session(ctx).elicit_form(params.message, params.requested_schema)

    async def grow(self, ctx: Any, kind: str, name: str, late: Any) -> None:
        if kind == "tools":
            server.add_tool(late, name=name, description="Came late.", structured_output=False)
        elif kind == "prompts":
            server.prompt(name=name)(late)
        else:
            server.add_resource(TextResource(uri="text://late", name=name, text="late"))
        if self.modern(ctx):
            await getattr(ctx, f"notify_{kind}_changed")()
        else:
            await getattr(self.session(ctx), f"send_{kind[:-1]}_list_changed")()


sdk = Python2()
if AS_TASKS:
    for name in ("slow", "endless", "ask"):
        server.add_tool(lambda: None, name=name, description="A task")
elif FEATURES:
    tools.features(sdk)
else:
    tools.calls(sdk)


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    sdk.least = tools.LEVELS.index(params.level)
    return types.EmptyResult()


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


async def touch(uri: str, ctx: Context) -> str:
    """Tell that a resource was updated."""
    if sdk.modern(ctx):
        await ctx.notify_resource_updated(uri)
    elif uri in subscribed:
        await sdk.session(ctx).send_resource_updated(uri)
    return uri


async def meta(ctx: Context) -> types.CallToolResult:
    """Give back a member of the request's _meta, and one of its own."""
    sent = ctx.request_context.meta or {}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=str(sent.get("example.com/trace")))],
        _meta={"example.com/answer": 42},
    )


async def complete(ref: Any, argument: Any, context: Any) -> types.Completion | None:
    values = tools.completed(types, ref, argument, context)
    if values is None:
        raise MCPError(code=-32602, message="unknown reference")
    return types.Completion(values=values, total=len(values), has_more=False)


# MCPServer has no words for these
low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
if FEATURES:
    sdk.plain(touch)
    sdk.plain(meta)
    server.completion()(complete)
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


if __name__ == "__main__":
    if "--legacy" in sys.argv:
        # no public switch: what it negotiates is in these names
        version = sys.argv[sys.argv.index("--legacy") + 1]
        runner.HANDSHAKE_PROTOCOL_VERSIONS = (version,)
        runner.LATEST_HANDSHAKE_VERSION = version
    if "--http" in sys.argv:
        tools.listen(server.streamable_http_app(max_request_body_size=1 << 23))
    elif "--sse" in sys.argv:
        tools.listen(server.sse_app(), path="/sse")
    else:
        server.run()
