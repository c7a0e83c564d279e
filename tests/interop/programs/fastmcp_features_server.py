"""What `features.py` describes, on FastMCP.

python fastmcp_features_server.py
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.resources import TextResource
from fastmcp.tools.base import ToolResult
from fastmcp_tasks import TasksExtension

ABSENT = {"resource_updated": "no subscriptions of resources"}
ABSENT_IN_LEGACY = {"tasks": "fastmcp-tasks has those of 2026-07-28 only"}
NO_LISTEN = dict.fromkeys(
    ("tools_changed", "prompts_changed", "resources_changed"), "no subscriptions/listen"
)
ICON = types.Icon(src="https://example.com/add.png", mime_type="image/png", sizes=["48x48"])

server = FastMCP("features", version="1.2.3", instructions="Try every feature.", list_page_size=5)
server.add_extension(TasksExtension())
cancelled: list[str] = []


def modern(ctx: Context) -> bool:
    return ctx.session.protocol_version > "2026"


# -- tools -----------------------------------------------------------------------------------------


@server.tool(output_schema=None)
async def absent(ctx: Context) -> str:
    """Tell which features this SDK does not have."""
    return json.dumps(ABSENT | (NO_LISTEN if modern(ctx) else ABSENT_IN_LEGACY))


@server.tool(
    title="Adder",
    annotations=types.ToolAnnotations(title="Add up", read_only_hint=True, destructive_hint=False),
    icons=[ICON],
    meta={"example.com/kind": "sum"},
)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(output_schema=None)
async def fail() -> str:
    """Fail."""
    raise ToolError("boom")


@server.tool(output_schema=None)
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for i in range(1, n + 1):
        await ctx.report_progress(i, n, f"step {i}")
    return str(n)


@server.tool(output_schema=None)
async def chatter(ctx: Context) -> str:
    """Log at four levels."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log("chatter", level=level, logger_name="chatter", extra={"said": level})
    return "said"


@server.tool(output_schema=None)
async def wait(ctx: Context) -> str:
    """Report progress once, then wait to be cancelled."""
    await ctx.report_progress(1)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "waited"


@server.tool(output_schema=None)
async def noticed() -> str:
    """Tell what was cancelled."""
    return json.dumps(cancelled)


@server.tool(output_schema=None)
async def grow(kind: str, ctx: Context) -> str:
    """Add a tool, a prompt or a resource, and tell."""

    async def late() -> str:
        return "late"

    if kind == "tools":
        server.tool(late, name="late")
        await ctx.send_notification(types.ToolListChangedNotification())
    elif kind == "prompts":
        server.prompt(late, name="late")
        await ctx.send_notification(types.PromptListChangedNotification())
    else:
        server.add_resource(TextResource(uri="text://late", name="late", text="late"))
        await ctx.send_notification(types.ResourceListChangedNotification())
    return kind


@server.tool(output_schema=None)
async def meta(ctx: Context) -> ToolResult:
    """Give back a member of the request's _meta, and one of its own."""
    assert ctx.request_context is not None
    sent = ctx.request_context.meta or {}
    return ToolResult(content=str(sent.get("example.com/trace")), meta={"example.com/answer": 42})


@server.tool(output_schema=None, task=True)
async def slow() -> str:
    """Work on as a task."""
    await asyncio.sleep(0.05)
    return "done"


@dataclass
class Person:
    name: str
    age: int


async def ask(ctx: Context, request: Any) -> Any:
    """The client's answer; an InputRequiredResult to be returned when it is not there yet."""
    if not modern(ctx):
        params = request.params
        if isinstance(request, types.CreateMessageRequest):
            return await ctx.session.create_message(
                messages=params.messages, max_tokens=params.max_tokens, tools=params.tools
            )
        if isinstance(request, types.ListRootsRequest):
            return await ctx.session.list_roots()
        return await ctx.session.elicit_url(params.message, params.url, "e-1")
    if ctx.input_responses and "key" in ctx.input_responses:
        return ctx.input_responses["key"]
    return types.InputRequiredResult(input_requests={"key": request}, request_state="round one")


@server.tool(output_schema=None)
async def ask_form(ctx: Context) -> Any:
    """Ask for a name and an age."""
    if not modern(ctx):
        result = await ctx.elicit("Who are you?", Person)
        content = {"name": result.data.name, "age": result.data.age}
        return json.dumps({"action": result.action, "content": content})
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


@server.tool(output_schema=None)
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


@server.tool(output_schema=None)
async def ask_sample(ctx: Context) -> Any:
    """Ask the model."""
    answer = await ask(ctx, question())
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return json.dumps({"model": answer.model, "text": answer.content.text})


@server.tool(output_schema=None)
async def ask_sample_tools(ctx: Context) -> Any:
    """Ask the model, which may use a tool."""
    tool = types.Tool(name="look_up", input_schema={"type": "object"})
    answer = await ask(ctx, question(tools=[tool]))
    if isinstance(answer, types.InputRequiredResult):
        return answer
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return json.dumps([[block.type, block.name, block.input] for block in blocks])


@server.tool(output_schema=None)
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
    return f"item {id}"


# -- prompts and completion ------------------------------------------------------------------------


@server.prompt(title="Greeting")
def greet(name: str, tone: str = "warm") -> list[Message]:
    """Greet somebody."""
    return [Message(f"Greet {name}, tone {tone}.")]


@server.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str] | None:
    if isinstance(ref, types.PromptReference) and ref.name == "greet":
        if argument.name == "name":
            return [name for name in ("Ada", "Alan", "Bob") if name.startswith(argument.value)]
        known = (context.arguments or {}) if context is not None else {}
        return [f"{argument.value} for {known.get('name')}"]
    if isinstance(ref, types.ResourceTemplateReference) and ref.uri == "item://{id}":
        return [argument.value + "0", argument.value + "1"]
    return None


if __name__ == "__main__":
    server.run(show_banner=False)
