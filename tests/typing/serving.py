"""A server, and the values that its functions take and return: read by type checkers, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, assert_type

import msgspec

from wirespeed import (
    Context,
    EventStore,
    Extension,
    HttpOptions,
    HttpRequest,
    HttpResponse,
    ListenOptions,
    MemoryEventStore,
    Refusal,
    Server,
    SQLiteEventStore,
    User,
)
from wirespeed.cluster import (
    Cluster,
    RedisEventStore,
    RedisTaskStore,
    RedisTokenBuckets,
    SessionHosts,
)
from wirespeed.core import Lease
from wirespeed.middleware import CacheResults, LimitRate, LimitResponses, Retry, Timing
from wirespeed.skills import Skill, SkillCatalog, SkillEntry, SkillLimits, SkillResource
from wirespeed.tasks import (
    MemoryTaskStore,
    Page,
    SQLiteTaskStore,
    Task,
    TaskLimit,
    TaskStateError,
    TaskStatus,
    TaskStore,
)
from wirespeed.types import (
    Annotations,
    App,
    AppCsp,
    AppPermission,
    AsgiApp,
    AskMiddleware,
    AskNext,
    Audio,
    CallNext,
    Completion,
    Email,
    EmbeddedResource,
    Entry,
    ExtensionResult,
    Icon,
    Image,
    InboundRequest,
    InputRequired,
    Middleware,
    ModelHint,
    ModelPreferences,
    NotificationHook,
    PromptMessage,
    PromptResult,
    RawResult,
    Reply,
    ResourceContents,
    ResourceLink,
    ResourceResult,
    Root,
    RootsRequest,
    Sampled,
    SampleRequest,
    SamplingMessage,
    SeenNotification,
    ServerRequest,
    SkillSource,
    Text,
    ToolAnnotations,
    ToolChoice,
    ToolEntry,
    ToolResult,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
    Uri,
    titles,
)


def readable(user: User | None, entry: Entry) -> bool:
    assert_type(entry.meta, Mapping[str, Any] | None)
    return user is not None or not isinstance(entry, ToolEntry)


server = Server("office", filter=readable)


# -- middleware ------------------------------------------------------------------------------------


@server.add_middleware
async def timed(request: InboundRequest, call_next: CallNext) -> Reply | None:
    reply = await call_next(request)
    assert_type(reply, Reply | None)
    return reply


@server.add_middleware
async def never_none(request: InboundRequest, call_next: CallNext) -> Reply:
    reply = await call_next(request)
    assert reply is not None
    assert_type(reply.data, bytes)
    return Reply.result({"content": []})


server.add_middleware(Timing(slow=1.0))
server.add_middleware(LimitRate(10, burst=20, by=lambda request: request.peer))
server.add_middleware(CacheResults(60, tools=["search"], resources=True))
server.add_middleware(LimitResponses(100_000, cut=True))
server.add_middleware(Retry(["search"], when=lambda failure: isinstance(failure, Reply)))


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def kinds(block: Text | Image) -> str:
    if block.type == "text":
        assert_type(block, Text)
        return block.text
    assert_type(block, Image)
    return block.mime_type


@server.add_ask_middleware
async def questioned(question: ServerRequest, call_next: AskNext) -> bytes:
    assert_type(question.params, bytes | None)
    return await call_next(question)


MIDDLEWARE: list[Middleware] = [timed, never_none]
ASKED: list[AskMiddleware] = [questioned]


async def decorated_middleware_keeps_its_type(request: InboundRequest, next: CallNext) -> None:
    assert_type(await never_none(request, next), Reply)
    server.add_middleware(questioned)  # type: ignore[type-var]


# -- results ---------------------------------------------------------------------------------------


@server.tool
async def blocks() -> ToolResult:
    seen = Annotations(audience=["user"], priority=0.5)
    icon = Icon("https://office.example/icon.png", "image/png", ["48x48"], "dark")
    return ToolResult(
        content=[
            "a text",
            Text(text="another", annotations=seen),
            Image(b"...", "image/png"),
            Audio(b"...", "audio/wav"),
            EmbeddedResource(resource=ResourceContents("office://plan", text="A plan")),
            ResourceLink(uri="office://plan", name="plan", icons=[icon]),
            UnknownContent({"type": "hologram"}),
        ],
        structured_content={"rooms": 4},
        meta={"office.example/floor": 2},
    )


def raw(arguments: Lease, ctx: Context) -> RawResult:
    assert_type(bytes(arguments), bytes)
    assert_type(ctx.request_id, int | str)
    return RawResult(b'{"content":[]}')


server.tool_raw("raw", {"type": "object"}, raw, context=True)
server.tool_raw("size", {"type": "object"}, lambda arguments: len(arguments))
server.tool_raw("wrong", {"type": "object"}, server)  # type: ignore[arg-type]


@server.resource("office://{room}")
async def room(room: str) -> ResourceResult:
    contents = [ResourceContents(f"office://{room}", blob=b"...")]
    return ResourceResult(contents=contents, ttl_ms=1000, cache_scope="public")


@server.prompt
def welcome(name: str) -> PromptResult:
    return PromptResult(messages=[PromptMessage("user", Text(text=f"Welcome {name}"))])


@server.completion(welcome, "name")
async def names(value: str) -> Completion:
    return Completion([value], total=1, has_more=False)


# -- questions -------------------------------------------------------------------------------------


class Booking(msgspec.Struct):
    mail: Email
    site: Uri
    size: Annotated[Literal["s", "m"], titles({"s": "Small", "m": "Medium"})] = "m"


@server.tool
async def samples(ctx: Context) -> str | InputRequired:
    booking = await ctx.elicit("Which room?", Booking)
    if booking:
        assert_type(booking.content.mail, str)
    conversation = [
        SamplingMessage("user", Text(text="How many rooms?")),
        SamplingMessage("assistant", [ToolUseContent("1", "rooms", {})]),
        SamplingMessage("user", [ToolResultContent("1", [Text(text="4")])]),
    ]
    wishes = ModelPreferences([ModelHint("small")], speed_priority=0.9)
    said = await ctx.sample(conversation, max_tokens=9, model_preferences=wishes)
    assert_type(said, Sampled)
    assert_type(said.text, str)
    for block in said.blocks:
        if isinstance(block, ToolUseContent):
            assert_type(block.input, dict[str, Any])
    assert_type(ToolChoice("auto").mode, Literal["auto", "required", "none"] | None)
    assert_type((await ctx.roots())[0], Root)
    return InputRequired(
        {"roots": RootsRequest(), "greeting": SampleRequest("Greet me", max_tokens=9)}
    )


# -- extensions, tasks -----------------------------------------------------------------------------


async def weigh(params: dict[str, Any], ctx: Context) -> ExtensionResult:
    return ExtensionResult("office.example/weight", {"grams": params["grams"]})


async def around(request: InboundRequest, call_next: CallNext) -> Reply | None:
    return await call_next(request)


def seen(notification: SeenNotification) -> None:
    assert_type(notification.decode(), dict[str, Any])


hook: NotificationHook = seen
camera: AppPermission = "camera"
clock = App(
    "ui://clock/page.html", "<p>", csp=AppCsp(connect=("https://a.example",)), permissions=(camera,)
)
assert_type(clock.policy, str)
server.add_app(clock)
scales = Extension(
    "office.example/scales",
    requests={"scales/weigh": weigh},
    client_requests={"scales/unit": lambda params: {"unit": "g"}},
    middleware=around,
    on_notification=hook,
    revision="2026-09",
    understands=[None],
    depends=["office.example/shelf"],
    eras=("legacy", "modern"),
    codes=[-31900],
)
assert_type(server.add_extension(scales), Extension)


async def unit(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    scales.notify(ctx, "notifications/scales/asked")
    return await scales.ask(ctx, "scales/unit", timeout=5)


class Shelf(SkillCatalog):
    prefix = "shelf://"

    async def entries(self) -> list[SkillEntry]:
        file = SkillResource("shelf://a/SKILL.md", "sha256:", 3)
        return [SkillEntry("shelf://a/SKILL.md", {"name": "a"}, (file,))]

    async def entry(self, uri: str) -> SkillEntry | None:
        return None

    async def read(self, uri: str) -> bytes | None:
        return b""


refunds = Skill("refunds", "Refunds.", {"SKILL.md": "…", "a.bin": b""}, fields={"license": "MIT"})
source = server.add_skills("skills", path="acme", limits=SkillLimits(files=10), scopes=["read"])
assert_type(source, SkillSource)
assert_type(source.reload(), bool)
assert_type(source.skills, Mapping[str, SkillEntry])
server.add_skills([refunds, Skill.from_folder("a"), Skill.from_package("office", "a")])
server.add_skills(Shelf(), timeout=3)
server.add_skills("skills", ttl=3)  # type: ignore[call-arg]


@server.tool
async def settings(ctx: Context) -> str:
    assert_type(scales.settings_of(ctx), dict[str, Any] | None)
    return ""


async def stores(store: TaskStore) -> None:
    server.use_tasks(MemoryTaskStore(max_tasks=10))
    server.use_tasks(SQLiteTaskStore("tasks.db", max_bytes=1_000_000))
    async with Cluster("redis://store", prefix="p", store_timeout=1) as cluster:
        Server("s", cluster=cluster, state_secret=b"x" * 16)
        Server("s", cluster="redis://store", state_secret=b"x" * 16)
        Server("s", cluster=1)  # type: ignore[arg-type]
        assert_type(cluster.state, Literal["idle", "connecting", "up", "down"])
        assert_type(cluster.up_for, float)
        assert_type(cluster.n_losses, int)
        server.use_tasks(RedisTaskStore(cluster, "s", secret=b"x" * 16, max_tasks=10))
        buckets = RedisTokenBuckets(cluster, "s", secret=b"x" * 16, on_store_loss="refuse")
        server.add_middleware(LimitRate(10, buckets=buckets))
        assert_type(await buckets.delay("anne", 10, 1), float)
    server.use_tasks("tasks.db")  # type: ignore[arg-type]
    page = await store.page(b"owner")
    assert_type(page, Page)
    for task in page.tasks:
        assert_type(task, Task)
        assert_type(task.status, TaskStatus)
    assert_type(await store.get("id"), Task | None)
    try:
        await store.update("id", lambda task: task.cancelled("done", 0))
    except TaskStateError:
        pass
    except TaskLimit as full:
        raise SystemExit(1) from full


# -- listening -------------------------------------------------------------------------------------


async def authenticate(request: HttpRequest) -> User | Refusal:
    assert_type(request.token, str | None)
    assert_type(request.headers["Origin"], str)
    if request.token is None:
        return Refusal(401, "no token")
    return User("ann", scopes=["read"], data={"team": 1})


async def version(request: HttpRequest) -> HttpResponse:
    assert_type(request.body, bytes)
    return HttpResponse(200, b"1.0", {"ETag": '"1.0"'}, "text/plain")


async def no_response(request: HttpRequest) -> str:
    return request.method


HTTP = HttpOptions(
    name="east",
    stateless=True,
    event_store=MemoryEventStore(),
    trusted_proxies=["10.0.0.0/8"],
    access_log="json",
    routes={"/version": version},
)
HttpOptions(routes={"/version": no_response})  # type: ignore[dict-item]


async def mounted() -> None:
    app = server.asgi(token="s3cret", http=HTTP)
    assert_type(app, AsgiApp)
    async with app.lifespan():
        server.asgi("/mcp", backlog=3)  # type: ignore[call-arg]


async def listening() -> None:
    options = ListenOptions(authenticate=authenticate, hosts=["office.example"], http=HTTP)
    await server.serve("ws://127.0.0.1:0/mcp", options=options, on_listening=print)
    await server.serve("ws://127.0.0.1:0/mcp", authenticate=listening)  # type: ignore[arg-type]


class LogOfEvents:
    """A store whose methods are of both kinds."""

    async def append(self, stream: str, n: int, data: bytes) -> None: ...

    def after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        return None

    async def forget(self, stream: str) -> None: ...

    def close(self) -> None: ...


@server.tool
async def long_call(ctx: Context) -> str:
    assert_type(ctx.close_stream(retry=0.5), bool)
    return ""


event_stores: list[EventStore] = [
    MemoryEventStore(max_bytes=1_000_000),
    SQLiteEventStore("events.db", max_age=60, max_stream_events=100),
    RedisEventStore(Cluster("redis://store"), "s", max_age=60),
    LogOfEvents(),
    server,  # type: ignore[list-item]
]
hosts = SessionHosts(
    Cluster("redis://store"), "s", "https://10.0.0.5:8443", secret=b"x" * 16, without_store=60
)
on_any_host = HttpOptions(directory=hosts)


async def hold(server: Server) -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def held(server: Server) -> AsyncIterator[int]:
    yield 1


Server("held", lifespan=hold)
Server("held", lifespan=held)
Server("held", lifespan=authenticate)  # type: ignore[arg-type]
