"""A server and a client together, and what a type checker sees of each call: read, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, assert_type

import msgspec

import wirespeed
from wirespeed import (
    Client,
    ClientGroup,
    Context,
    Depends,
    HeaderParam,
    Limits,
    Server,
    Stdio,
    SyncClient,
    User,
    core,
    types,
)
from wirespeed.config import ServerConfig, Servers, load
from wirespeed.errors import ToolError
from wirespeed.litemcp import LiteClient, LiteServer, SyncLiteClient
from wirespeed.types import (
    Accept,
    AcceptedElicitation,
    CallToolResult,
    CancelledElicitation,
    DeclinedElicitation,
    Elicited,
    ElicitRequest,
    Event,
    GetPromptResult,
    InboundRequest,
    InputRequired,
    ListResourcesResult,
    Notice,
    Overflowed,
    Prompt,
    PromptEntry,
    PromptInfo,
    PromptMessage,
    PromptRef,
    PromptsChanged,
    ReadResourceResult,
    Reply,
    Resource,
    ResourceEntry,
    ResourceInfo,
    ResourcesChanged,
    ResourceTemplate,
    ResourceUpdated,
    Resumed,
    Root,
    RootsChange,
    Sampled,
    SampleParams,
    SampleResult,
    SubscriptionFilter,
    TemplateEntry,
    Tool,
    ToolEntry,
    ToolInfo,
    ToolsChanged,
)

server = Server("typing", version="1.0.0", limits=Limits(max_depth=32))


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def query(sql: str, region: Annotated[str, HeaderParam("Region")] = "us") -> str:
    assert_type(HeaderParam("Region").name, str)
    return f"{sql} in {region}"


@server.tool(title="Shout", inline=True, timeout=1.5)
def shout(text: str, ctx: Context) -> str:
    assert_type(ctx.request_id, int | str)
    assert_type(ctx.protocol_version, str)
    assert_type(ctx.client_info, dict[str, Any] | None)
    assert_type(ctx.cancelled, bool)
    assert_type(ctx.progress(1, total=2), Awaitable[None])
    assert_type(ctx.user, User | None)
    assert_type(ctx.peer, str | None)
    assert_type(ctx.headers["X-Tea"], str)
    assert_type(ctx.state, dict[str, Any])
    assert_type(ctx.session_state, dict[str, Any])
    assert_type(ctx.session_id, str)
    assert_type(ctx.server, Server)
    return text.upper()


@server.tool
async def own_features(ctx: Context) -> str:
    assert_type(await ctx.read_resource("a://b"), ReadResourceResult)
    assert_type(await ctx.get_prompt("p", {"n": 1}), GetPromptResult)
    raise ToolError("no such thing")


@server.add_middleware
async def replacing(request: InboundRequest, call_next: Any) -> Reply | None:
    assert_type(request.replace(arguments={"a": 1}, name="x", meta={"x/y": 1}), InboundRequest)
    assert_type(request.decode(), dict[str, Any])
    assert_type(request.decode(Row), Row)
    assert_type(request.arguments, dict[str, Any])
    assert_type(request.user, User | None)
    assert_type(request.state, dict[str, Any])
    request.replace(method="x")  # type: ignore[call-arg]
    reply: Reply | None = await call_next(request)
    return reply


class Row(msgspec.Struct):
    n: int


def sees(user: User | None, entry: ToolEntry | PromptEntry | ResourceEntry | TemplateEntry) -> bool:
    return user is not None and "read" in user.scopes


async def sees_later(user: User | None, entry: Any) -> bool:
    return True


Server("typing", filter=sees, mask_errors=True)
Server("typing", filter=sees_later)  # type: ignore[arg-type]
Server("typing", mask_errors="yes")  # type: ignore[arg-type]
Server("typing", cache_scope="shared")  # type: ignore[arg-type]


@server.tool("double", inline=True)
def twice(n: int) -> int:
    return 2 * n


Server("typing", threads=8, extra="ignore", coerce=True)
Server("typing", extra="allow")  # type: ignore[arg-type]


@server.tool(extra="ignore", coerce=True)
def lax(n: int) -> int:
    return n


server.add_tool(lax, name="closed", extra="allow")  # type: ignore[arg-type]


async def decorators_keep_the_signature() -> None:
    assert_type(await add(1, 2), int)
    assert_type(twice(2), int)
    await add("1", 2)  # type: ignore[arg-type]
    shout("a")  # type: ignore[call-arg]


def registering() -> None:
    assert_type(server.add_tool(print, name="p"), Tool)
    assert_type(server.tool_raw("raw", {"type": "object"}, lambda arguments: b"{}"), Tool)
    assert_type(server.run(), None)
    server.tool(tilte="?")  # type: ignore[call-overload]


def row_of(ctx: Context) -> int:
    return 1


async def word_of() -> str:
    return "word"


async def seats() -> AsyncIterator[list[int]]:
    yield [1]


@asynccontextmanager
async def hall() -> AsyncIterator[range]:
    yield range(9)


def what_depends_provides(wrong: str = Depends(row_of)) -> None:  # type: ignore[assignment]
    assert_type(Depends(row_of), int)
    assert_type(Depends(word_of, scope="server"), str)
    assert_type(Depends(seats), list[int])
    assert_type(Depends(hall), range)
    assert_type(Depends(Limits), Limits)


@server.tool
async def dependent(
    word: str, row: int = Depends(row_of), text: Annotated[str, Depends(word_of)] = ""
) -> str:
    return word * row


class Seat(msgspec.Struct):
    row: int


@server.tool
async def handlers_ask(ctx: Context) -> str | InputRequired:
    assert_type(await ctx.elicit("Which seat?", Seat), Elicited[Seat])
    assert_type((await ctx.elicit("Which seat?", Seat)).content, Seat | None)
    assert_type(await ctx.elicit("How many?", int), Elicited[int])
    assert_type(await ctx.elicit("?", {"type": "object"}), Elicited[dict[str, Any]])
    assert_type(await ctx.elicit("Sure?"), Elicited[None])
    paid = await ctx.elicit_url("Pay", "https://a.example")
    assert_type(paid, Elicited[None])
    assert_type(paid.accepted, bool)
    assert_type(paid.action, Literal["accept", "decline", "cancel"])
    assert_type(await ctx.sample("Hi", max_tokens=9), Sampled)
    assert_type(await ctx.elicit("Sure?", on_progress=ctx.progress), Elicited[None])
    assert_type(await ctx.roots(), list[Root])
    await ctx.sample("Hi")  # type: ignore[call-arg]
    return InputRequired({"seat": ElicitRequest("Which seat?", Seat)}, state=[1])


@server.tool
async def answers_narrow(ctx: Context) -> str:
    answer = await ctx.elicit("Which seat?", Seat)
    if answer:
        assert_type(answer, AcceptedElicitation[Seat])
        assert_type(answer.content, Seat)
    else:
        assert_type(answer, DeclinedElicitation | CancelledElicitation)
        assert_type(answer.content, None)
    if answer.action == "accept":
        assert_type(answer.content, Seat)
    elif answer.action == "decline":
        assert_type(answer, DeclinedElicitation)
    else:
        assert_type(answer, CancelledElicitation)
    match answer:
        case AcceptedElicitation(content=seat):
            assert_type(seat, Seat)
        case DeclinedElicitation():
            assert_type(answer, DeclinedElicitation)
        case CancelledElicitation():
            return "no exception"
    if not answer:
        return answer.action
    assert_type(answer.as_form(Seat), Seat)
    return str(answer.content.row)


@server.on_roots_changed
async def roots_changed(change: RootsChange) -> int:
    assert_type(await change.roots(timeout=1), list[Root])
    assert_type(change.connection_id, int)
    return 1


@server.on_roots_changed  # type: ignore[type-var]
async def takes_something_else(change: Context) -> None: ...


@server.resource("users://{user_id}", mime_type="text/plain", ttl_ms=1000)
async def user(user_id: int) -> str:
    return str(user_id)


@server.prompt(title="Greet")
def greet(name: str, times: int = 1) -> list[PromptMessage]:
    return [PromptMessage("user", f"Greet {name}")] * times


@server.completion(greet, "name", timeout=1, max_concurrency=2, queue=3)
def names(value: str) -> list[str]:
    return [value]


async def features_keep_the_signature(change: RootsChange) -> None:
    assert_type(await user(5), str)
    assert_type(greet("Ann", times=2), list[PromptMessage])
    assert_type(names("A"), list[str])
    assert_type(await roots_changed(change), int)
    await user("5")  # type: ignore[arg-type]
    PromptMessage("system", "x")  # type: ignore[arg-type]


def registering_features() -> None:
    assert_type(server.add_resource("a://b", b"x"), Resource | ResourceTemplate)
    assert_type(server.add_folder("docs://", "docs"), ResourceTemplate)
    assert_type(server.add_prompt(greet, name="other"), Prompt)
    server.prompt(nmae="?")  # type: ignore[call-overload]
    server.completion(greet)  # type: ignore[call-overload]
    server.resource("a://b", tilte="?")  # type: ignore[call-arg]
    server.remove_resource("a://b")
    server.resource_updated("a://b")


async def asking() -> None:
    async with Client(Stdio("server", ["--flag"], env={"A": "b"}), era="modern") as client:
        assert_type(client, Client)
        assert_type(await client.list_tools(), list[ToolInfo])
        async for tool in client.iter_tools():
            assert_type(tool, ToolInfo)
        result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=5)
        assert_type(result, CallToolResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(result.raise_for_error(), CallToolResult)
        assert_type(await client.call_tool("add", {"a": 1}, type=int, timeout=5), int)
        assert_type(await client.call_tool("seats", type=list[Seat]), list[Seat])
        await client.call_tool("add", [1, 2])  # type: ignore[call-overload]
        await client.call_tool("add", type=int, tiemout=5)  # type: ignore[call-overload]
    Client(server, era="old")  # type: ignore[arg-type]


def asking_without_a_loop() -> None:
    SyncClient(server, on_elict=print)  # type: ignore[call-arg]
    with SyncClient(server) as client:
        assert_type(client, SyncClient)
        assert_type(client.list_prompts(), list[PromptInfo])
        for resource in client.iter_resources(timeout=1):
            assert_type(resource, ResourceInfo)
        assert_type(client.call_tool("add", {"a": 1}, timeout=5), CallToolResult)
        assert_type(client.call_tool("add", {"a": 1}, type=int), int)
        assert_type(client.read_resource("file:///x"), ReadResourceResult)
        client.read_resource(1)  # type: ignore[arg-type]
        client.get_prompt("p", argument={})  # type: ignore[call-arg]
        with client.subscribe(tools=True) as events:
            for event in events:
                assert_type(event, Event)


async def answering() -> None:
    async def on_elicit(request: types.ElicitParams) -> Accept:
        assert_type(request.schema, dict[str, Any])
        assert_type(request.url, str)
        return Accept({"name": "x"})

    def on_sample(request: SampleParams) -> SampleResult:
        return SampleResult(content="x", model="m")

    options = Client(
        server, on_elicit=on_elicit, on_sample=on_sample, roots=["/srv"], validate=True
    )
    assert_type(await options.add_root("/home"), bool)
    Client(server, on_sample=on_elicit)  # type: ignore[arg-type]
    Client(server, validate="yes")  # type: ignore[arg-type]
    SampleResult("x", "m")  # type: ignore[call-arg]


async def features() -> None:
    async with Client(server, on_resource_updated=print, cache=False) as client:
        assert_type(await client.list_resources(), list[ResourceInfo])
        assert_type(await client.list_resources_page(), ListResourcesResult)
        async for prompt in client.iter_prompts():
            assert_type(prompt, PromptInfo)
        read = await client.read_resource("file:///x", meta={"traceparent": "…"})
        assert_type(read.contents[0].text, str | None)
        assert_type(read.data, bytes)
        assert_type(await client.read_template("file:///{x}", x="y"), ReadResourceResult)
        [message] = (await client.get_prompt("p")).messages
        assert_type(message.role, Literal["user", "assistant"])
        if isinstance(message.content, types.Text):
            assert_type(message.content.text, str)
        completion = await client.complete(PromptRef("p"), "argument", "va")
        assert_type(completion.values, list[str])
        async with client.subscribe(tools=True, uris=["file:///x"]) as events:
            assert_type(events.honoured, SubscriptionFilter | None)
            async for event in events:
                match event:
                    case ResourceUpdated(uri=uri):
                        assert_type(uri, str)
                    case ToolsChanged() | Resumed():
                        pass
                    case _:
                        assert_type(event, PromptsChanged | ResourcesChanged | Overflowed | Notice)


async def configuring() -> None:
    assert_type(load("servers.json"), Servers)
    assert_type(load("servers.json")["a"], ServerConfig)
    async with load("servers.json").clients(at_once=2) as many:
        assert_type(many, ClientGroup)
        assert_type(many["a"], Client)
        assert_type(await many.list_tools(), list[ToolInfo])


def engine() -> None:
    level: str = core.simd_level()
    assert level
    assert_type(core.parse(b"{}"), core.Message)
    assert_type(wirespeed.get_include(), str)
    session = core.Session(limits=Limits(), role="client")
    session.receive_data(b"{}\n")
    session.receive_eof()


async def targets_and_urls() -> None:
    far = wirespeed.WebSocket("wss://tools.example/mcp", token="t", headers={"X-Tenant": "a"})
    assert_type(far.where, str)
    async with Client(far) as client:
        assert_type(await client.call_tool("add", {"a": 1, "b": 2}), CallToolResult)
    streamable = wirespeed.Http("https://tools.example/mcp", token="t", sse=False, restart=0)
    async with Client(streamable), Client("http://h/mcp", token="t", headers={"X-Tenant": "a"}):
        assert_type(streamable.max_connections, int)
    async with Client(wirespeed.Socket("unix:tools.sock")):
        pass
    await server.serve("ws://127.0.0.1:0/mcp", token="t", max_connections=10)
    await server.serve("ws://127.0.0.1:0/mcp", workers=2)  # type: ignore[call-arg]
    server.run("ws://127.0.0.1:0/mcp", hosts=["a"], workers=2, on_listening=print)
    server.run("ws://127.0.0.1:0/mcp", tokn="t")  # type: ignore[call-arg]
    wirespeed.run("ws://127.0.0.1:0", server, token=3)  # type: ignore[arg-type]
    lite.run("ws://127.0.0.1:0/mcp", tokn="t")  # type: ignore[call-arg]
    SyncLiteClient(lite, timeout=1, strct=True)  # type: ignore[call-arg]
    await wirespeed.serve("ws://127.0.0.1:0", {"/mcp": server, "/convert": lite})
    await wirespeed.serve("ws://127.0.0.1:0", {"/mcp": far})  # type: ignore[dict-item]
    await wirespeed.serve("unix:a.sock", "server")  # type: ignore[arg-type]


lite = LiteServer()


@lite.tool
async def convert(value: float, unit: str, to: str) -> float:
    return value


async def lite_calls() -> None:
    async with LiteClient("ws://127.0.0.1:8765/convert") as client:
        assert_type(await client.prompt(), str)
        assert_type((await client.call("1", "mi", "km")).error, bool)


def misspelled_names_are_errors() -> None:
    print(wirespeed.Clinet)  # type: ignore[attr-defined]
    print(types.ToolReslt)  # type: ignore[attr-defined]
    print(wirespeed.errors.WirespeedError, wirespeed.config.load)
