"""What `features.py` describes, on mcp 2's MCPServer.

    python python2_features_server.py [--legacy VERSION]

With --legacy it is the only version that initialize negotiates.
"""

import json
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import runner
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.resources import TextResource

ABSENT = {"pagination": "MCPServer lists everything on one page"}
TASKS = {
    True: "no tasks of its own; written on its interface for extensions, as a test does, they work",
    False: "no tasks of 2025-11-25",
}
ICON = types.Icon(src="https://example.com/add.png", mime_type="image/png", sizes=["48x48"])
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

server: MCPServer[Any] = MCPServer(
    "features", version="1.2.3", instructions="Try every feature.", log_level="WARNING"
)
low = server._lowlevel_server
cancelled: list[str] = []
subscribed: set[str] = set()
least = 0


def modern(ctx: Context) -> bool:
    return ctx.request_context.session.protocol_version > "2026"


# -- tools -----------------------------------------------------------------------------------------


@server.tool(structured_output=False)
async def absent(ctx: Context) -> str:
    """Tell which features this SDK does not have."""
    return json.dumps(ABSENT | {"tasks": TASKS[modern(ctx)]})


@server.tool(
    title="Adder",
    annotations=types.ToolAnnotations(title="Add up", read_only_hint=True, destructive_hint=False),
    icons=[ICON],
    meta={"example.com/kind": "sum"},
)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
async def fail() -> str:
    """Fail."""
    raise ToolError("boom")


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
        if modern(ctx) or LEVELS.index(level) >= least:
            await ctx.request_context.session.send_log_message(
                level, {"said": level}, "chatter", related_request_id=ctx.request_context.request_id
            )
    return "said"


@server.tool(structured_output=False)
async def wait(ctx: Context) -> str:
    """Report progress once, then wait to be cancelled."""
    await ctx.report_progress(1)
    try:
        await anyio.sleep(30)
    except anyio.get_cancelled_exc_class():
        cancelled.append("wait")
        raise
    return "waited"


@server.tool(structured_output=False)
async def noticed() -> str:
    """Tell what was cancelled."""
    return json.dumps(cancelled)


@server.tool(structured_output=False)
async def grow(kind: str, ctx: Context) -> str:
    """Add a tool, a prompt or a resource, and tell."""
    session = ctx.request_context.session

    async def late() -> str:
        return "late"

    if kind == "tools":
        server.add_tool(late, name="late", structured_output=False)
        await (ctx.notify_tools_changed() if modern(ctx) else session.send_tool_list_changed())
    elif kind == "prompts":
        server.prompt(name="late")(late)
        await (ctx.notify_prompts_changed() if modern(ctx) else session.send_prompt_list_changed())
    else:
        server.add_resource(TextResource(uri="text://late", name="late", text="late"))
        await (
            ctx.notify_resources_changed() if modern(ctx) else session.send_resource_list_changed()
        )
    return kind


@server.tool(structured_output=False)
async def touch(uri: str, ctx: Context) -> str:
    """Tell that a resource was updated."""
    if modern(ctx):
        await ctx.notify_resource_updated(uri)
    elif uri in subscribed:
        await ctx.request_context.session.send_resource_updated(uri)
    return uri


@server.tool(structured_output=False)
async def meta(ctx: Context) -> types.CallToolResult:
    """Give back a member of the request's _meta, and one of its own."""
    sent = ctx.request_context.meta or {}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=str(sent.get("example.com/trace")))],
        _meta={"example.com/answer": 42},
    )


async def ask(ctx: Context, request: Any) -> Any:
    """The client's answer; an InputRequiredResult to be returned when it is not there yet."""
    if not modern(ctx):
        session = ctx.request_context.session
        params = request.params
        if isinstance(request, types.CreateMessageRequest):
            return await session.create_message(
                messages=params.messages, max_tokens=params.max_tokens, tools=params.tools
            )
        if isinstance(request, types.ListRootsRequest):
            return await session.list_roots()
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(params.message, params.url, "e-1")
        return await session.elicit_form(params.message, params.requested_schema)
    if ctx.input_responses and "key" in ctx.input_responses:
        return ctx.input_responses["key"]
    return types.InputRequiredResult(input_requests={"key": request}, request_state="round one")


@server.tool(structured_output=False)
async def ask_form(ctx: Context) -> Any:
    """Ask for a name and an age."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name"},
            "age": {"type": "integer", "minimum": 0},
        },
        "required": ["name", "age"],
    }
    answer = await ask(
        ctx,
        types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
        ),
    )
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return json.dumps({"action": answer.action, "content": answer.content})


@server.tool(structured_output=False)
async def ask_url(ctx: Context) -> Any:
    """Have a page opened."""
    more = {} if modern(ctx) else {"elicitation_id": "e-1"}
    answer = await ask(
        ctx,
        types.ElicitRequest(
            params=types.ElicitRequestURLParams(
                message="Sign in.", url="https://example.com/sign-in", **more
            )
        ),
    )
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return json.dumps({"action": answer.action})


def question(**more: Any) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text="Capital of France?")
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=content)], max_tokens=50, **more
        )
    )


@server.tool(structured_output=False)
async def ask_sample(ctx: Context) -> Any:
    """Ask the model."""
    answer = await ask(ctx, question())
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return json.dumps({"model": answer.model, "text": answer.content.text})


@server.tool(structured_output=False)
async def ask_sample_tools(ctx: Context) -> Any:
    """Ask the model, which may use a tool."""
    tool = types.Tool(name="look_up", input_schema={"type": "object"})
    answer = await ask(ctx, question(tools=[tool]))
    if isinstance(answer, types.InputRequiredResult):
        return answer
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return json.dumps([[block.type, block.name, block.input] for block in blocks])


@server.tool(structured_output=False)
async def ask_roots(ctx: Context) -> Any:
    """Ask for the roots."""
    answer = await ask(ctx, types.ListRootsRequest())
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return json.dumps([[str(root.uri), root.name] for root in answer.roots])


# -- resources -------------------------------------------------------------------------------------


@server.resource("text://hello", name="hello", title="Hello", mime_type="text/plain")
def hello() -> str:
    """A greeting."""
    return "Hello."


@server.resource("blob://bytes", name="bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    """Four bytes."""
    return b"\0\1\2\3"


@server.resource("item://{id}", name="item", mime_type="text/plain")
def item(id: str) -> str:
    """An item."""
    if not id.isdigit():
        raise ResourceNotFoundError(f"no item {id}")
    return f"item {id}"


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    global least
    least = LEVELS.index(params.level)
    return types.EmptyResult()


# MCPServer has no words for these
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


# -- prompts and completion ------------------------------------------------------------------------


@server.prompt(title="Greeting")
def greet(name: str, tone: str = "warm") -> list[UserMessage]:
    """Greet somebody."""
    return [UserMessage(f"Greet {name}, tone {tone}.")]


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> types.Completion | None:
    if isinstance(ref, types.PromptReference) and ref.name == "greet":
        if argument.name == "name":
            names = [name for name in ("Ada", "Alan", "Bob") if name.startswith(argument.value)]
            return types.Completion(values=names, total=len(names), has_more=False)
        known = (context.arguments or {}) if context is not None else {}
        return types.Completion(values=[f"{argument.value} for {known.get('name')}"])
    if isinstance(ref, types.ResourceTemplateReference) and ref.uri == "item://{id}":
        return types.Completion(values=[argument.value + "0", argument.value + "1"])
    raise MCPError(code=-32602, message="unknown reference")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--legacy"]:
        # no public switch: what it negotiates is in these names
        runner.HANDSHAKE_PROTOCOL_VERSIONS = (sys.argv[2],)
        runner.LATEST_HANDSHAKE_VERSION = sys.argv[2]
    server.run()
