"""What the servers in Python offer, once: the tools of `our_server.py`, and what `features.py`
describes. A program brings an `Sdk`, which says how one SDK does each thing.
"""

import json
import signal
import socket
from typing import Any, Literal

import anyio
from pydantic import BaseModel

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "age": {"type": "integer", "minimum": 0},
    },
    "required": ["name", "age"],
}


def listen(app: Any, scheme: str = "http", path: str = "/mcp") -> None:
    """Serve an ASGI application under uvicorn, and print its URL."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    # uvicorn ends in order and then raises the signal again
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run([listener])


class Person(BaseModel):
    name: str
    age: int
    colour: Literal["red", "green"]
    tags: list[str]


class Sdk:
    """A server of an SDK.

    A program adds `server`, `context` (the class of contexts), `types`, `errors` (an error of the
    protocol), `message` (the class of a prompt's messages) and, for calls `whoami`, for features
    `absent`, `form` and `message`.
    """

    server: Any
    context: Any
    types: Any
    errors: Any
    failure: type[Exception] = ValueError
    least = 0

    def plain(self, function: Any) -> Any:
        """Register a tool without structured output."""
        return self.server.tool(structured_output=False)(function)

    def session(self, ctx: Any) -> Any:
        return ctx.request_context.session

    def modern(self, ctx: Any) -> bool:
        return self.session(ctx).protocol_version > "2026"

    async def log(self, ctx: Any, level: Any) -> None:
        if LEVELS.index(level) >= self.least:
            await self.session(ctx).send_log_message(
                level, {"said": level}, "chatter", related_request_id=ctx.request_context.request_id
            )

    async def grow(self, ctx: Any, kind: str, name: str, late: Any) -> None:
        """Add a tool, a prompt or a resource, and tell."""
        raise NotImplementedError


def common(sdk: Any) -> None:
    """Register the tools that both kinds of servers have."""
    cancelled: list[str] = []

    @sdk.plain
    async def fail() -> str:
        """Fail."""
        raise sdk.failure("boom")

    @sdk.plain
    async def count(n: int, ctx: sdk.context) -> str:
        """Report progress n times."""
        for i in range(1, n + 1):
            await ctx.report_progress(i, n, f"step {i}")
        return str(n)

    @sdk.plain
    async def chatter(ctx: sdk.context) -> str:
        """Log at four levels."""
        for level in ("debug", "info", "warning", "error"):
            await sdk.log(ctx, level)
        return "said"

    @sdk.plain
    async def wait(ctx: sdk.context, tag: str = "wait") -> str:
        """Report progress once, then wait to be cancelled."""
        await ctx.report_progress(1)
        try:
            await anyio.sleep(30)
        except anyio.get_cancelled_exc_class():
            cancelled.append(tag)
            raise
        return "waited"

    @sdk.plain
    async def noticed() -> str:
        """Tell which waits were cancelled."""
        return json.dumps(cancelled)


async def late() -> str:
    """Come late."""
    return "late"


def calls(sdk: Any) -> None:
    """Register the tools of `our_server.py`."""
    common(sdk)
    types = sdk.types

    @sdk.server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @sdk.plain
    async def echo(text: str, ms: int = 0) -> str:
        """Give the text back, after some milliseconds."""
        await anyio.sleep(ms / 1000)
        return text

    @sdk.server.tool()
    async def person(
        name: str,
        age: int = 30,
        colour: Literal["red", "green"] = "red",
        tags: list[str] | None = None,
    ) -> Person:
        """Make a person."""
        return Person(name=name, age=age, colour=colour, tags=tags or [])

    @sdk.plain
    async def blocks() -> list[Any]:
        """Give one block of each kind."""
        text = types.TextResourceContents(uri="file:///a.txt", mimeType="text/plain", text="inside")
        blob = types.BlobResourceContents(uri="file:///b.bin", blob="AAECAw==")
        link = {"uri": "file:///link.txt", "name": "link", "mimeType": "text/plain"}
        return [
            types.TextContent(type="text", text="text"),
            types.ImageContent(type="image", data="iVBORw0K", mimeType="image/png"),
            types.AudioContent(type="audio", data="UklGRg==", mimeType="audio/wav"),
            types.ResourceLink(type="resource_link", **link),
            types.EmbeddedResource(type="resource", resource=text),
            types.EmbeddedResource(type="resource", resource=blob),
        ]

    @sdk.plain
    async def grow(name: str, ctx: sdk.context) -> str:
        """Add a tool."""
        await sdk.grow(ctx, "tools", name, late)
        return name

    @sdk.plain
    async def whoami(ctx: sdk.context) -> str:
        """Tell what the client said of itself."""
        return json.dumps(sdk.whoami(ctx))

    @sdk.plain
    async def ask(ctx: sdk.context) -> str:
        """Ask the client something, and then what it cannot answer (legacy)."""
        await sdk.session(ctx).send_ping()
        try:
            await sdk.session(ctx).list_roots()
        except sdk.errors as exc:
            return str(exc.error.code)
        return "answered"


def features(sdk: Any) -> None:
    """Register what `features.py` describes, but `meta`, `touch`, `slow` and completion."""
    common(sdk)
    types = sdk.types

    @sdk.plain
    async def absent(ctx: sdk.context) -> str:
        """Tell which features this SDK does not have."""
        return json.dumps(sdk.absent(ctx))

    @sdk.server.tool(
        title="Adder",
        annotations=types.ToolAnnotations(
            title="Add up", read_only_hint=True, destructive_hint=False
        ),
        icons=[
            types.Icon(src="https://example.com/add.png", mime_type="image/png", sizes=["48x48"])
        ],
        meta={"example.com/kind": "sum"},
    )
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @sdk.plain
    async def grow(kind: str, ctx: sdk.context) -> str:
        """Add a tool, a prompt or a resource, and tell."""
        await sdk.grow(ctx, kind, "late", late)
        return kind

    async def ask(ctx: Any, request: Any) -> Any:
        """The client's answer; an InputRequiredResult to be returned when it is not there yet."""
        params, session = request.params, sdk.session(ctx)
        if sdk.modern(ctx):
            if ctx.input_responses and "key" in ctx.input_responses:
                return ctx.input_responses["key"]
            return types.InputRequiredResult(
                input_requests={"key": request}, request_state="round one"
            )
        if isinstance(request, types.CreateMessageRequest):
            return await session.create_message(
                messages=params.messages, max_tokens=params.max_tokens, tools=params.tools
            )
        if isinstance(request, types.ListRootsRequest):
            return await session.list_roots()
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(params.message, params.url, "e-1")
        return await sdk.form(ctx, params)

    def asking(name: str, description: str, question: Any, told: Any) -> None:
        """Register a tool that asks, and tells what it was answered."""

        async def run(ctx: sdk.context) -> Any:
            answer = await ask(ctx, question(ctx))
            if isinstance(answer, types.InputRequiredResult):
                return answer
            return json.dumps(told(answer))

        run.__name__, run.__doc__ = name, description
        sdk.plain(run)

    def form(ctx: Any) -> Any:
        params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        return types.ElicitRequest(params=params)

    def url(ctx: Any) -> Any:
        more = {} if sdk.modern(ctx) else {"elicitation_id": "e-1"}
        params = types.ElicitRequestURLParams(
            message="Sign in.", url="https://example.com/sign-in", **more
        )
        return types.ElicitRequest(params=params)

    def sampling(**more: Any) -> Any:
        content = types.TextContent(type="text", text="Capital of France?")
        messages = [types.SamplingMessage(role="user", content=content)]
        params = types.CreateMessageRequestParams(messages=messages, max_tokens=50, **more)
        return types.CreateMessageRequest(params=params)

    def uses(answer: Any) -> Any:
        blocks = answer.content if isinstance(answer.content, list) else [answer.content]
        return [[block.type, block.name, block.input] for block in blocks]

    look_up = types.Tool(name="look_up", input_schema={"type": "object"})
    asking(
        "ask_form",
        "Ask for a name and an age.",
        form,
        lambda answer: {"action": answer.action, "content": answer.content},
    )
    asking("ask_url", "Have a page opened.", url, lambda answer: {"action": answer.action})
    asking(
        "ask_sample",
        "Ask the model.",
        lambda ctx: sampling(),
        lambda answer: {"model": answer.model, "text": answer.content.text},
    )
    asking(
        "ask_sample_tools",
        "Ask the model, which may use a tool.",
        lambda ctx: sampling(tools=[look_up]),
        uses,
    )
    asking(
        "ask_roots",
        "Ask for the roots.",
        lambda ctx: types.ListRootsRequest(),
        lambda answer: [[str(root.uri), root.name] for root in answer.roots],
    )

    @sdk.server.resource("text://hello", name="hello", title="Hello", mime_type="text/plain")
    def hello() -> str:
        """A greeting."""
        return "Hello."

    @sdk.server.resource("blob://bytes", name="bytes", mime_type="application/octet-stream")
    def some_bytes() -> bytes:
        """Four bytes."""
        return b"\0\1\2\3"

    @sdk.server.resource("item://{id}", name="item", mime_type="text/plain")
    def item(id: str) -> str:
        """An item."""
        return f"item {id}"

    @sdk.server.prompt(title="Greeting")
    def greet(name: str, tone: str = "warm") -> list[sdk.message]:
        """Greet somebody."""
        return [sdk.message(f"Greet {name}, tone {tone}.")]


def completed(types: Any, ref: Any, argument: Any, context: Any) -> list[str] | None:
    """The values of a completion; None for what cannot be completed."""
    if isinstance(ref, types.PromptReference) and ref.name == "greet":
        if argument.name == "name":
            return [name for name in ("Ada", "Alan", "Bob") if name.startswith(argument.value)]
        known = (context.arguments or {}) if context is not None else {}
        return [f"{argument.value} for {known.get('name')}"]
    if isinstance(ref, types.ResourceTemplateReference) and ref.uri == "item://{id}":
        return [argument.value + "0", argument.value + "1"]
    return None
