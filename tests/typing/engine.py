"""The core and the transports, LiteMCP, metrics and traces: read by type checkers, never run."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, assert_type

import wirespeed
from wirespeed import (
    Client,
    Http,
    HttpOptions,
    ProcessLimits,
    Server,
    Stdio,
    ToolSearch,
    core,
    transport,
)
from wirespeed.core import (
    ABI,
    POINTS,
    FrameStream,
    Lease,
    Limits,
    LineFramer,
    MemoryReply,
    Message,
    MessageReader,
    MessageStream,
    ReplyRoute,
    Session,
    WebSocketFramer,
)
from wirespeed.ext import otel, prometheus
from wirespeed.litemcp import (
    CallResult,
    Content,
    LiteClient,
    LiteServer,
    Parameter,
    Response,
    SyncLiteClient,
    Tool,
    VersionTuple,
    bridge,
)
from wirespeed.litemcp import run as run_lite
from wirespeed.litemcp import serve as serve_lite
from wirespeed.proxy import (
    AdminConfig,
    AuditConfig,
    AuthorizationConfig,
    BackendConfig,
    BreakerConfig,
    Changes,
    ClusterConfig,
    FlowConfig,
    HealthConfig,
    HookCall,
    HookConfig,
    HookRefusal,
    IdentityConfig,
    IntrospectionConfig,
    ListenConfig,
    Mirror,
    PrincipalConfig,
    Proxy,
    ProxyConfig,
    RateConfig,
    RecycleConfig,
    Reloads,
    RetryConfig,
    ToolRules,
    ToolsConfig,
)
from wirespeed.transport import (
    Child,
    Connection,
    Endpoint,
    FdLink,
    FileLink,
    Link,
    MemoryLink,
    Peer,
    Running,
    Service,
    TaskPool,
    claimed,
    close_pool,
    non_blocking,
    open_pool,
    pair,
    pollable,
)


def versions() -> None:
    assert_type(wirespeed.__version__, str)
    assert_type(ABI, int)
    assert_type(POINTS, tuple[str, ...])
    assert_type(core.simd_level(), Literal["scalar", "sse2", "avx2", "avx512", "neon"])


def messages(data: bytes) -> None:
    message = core.parse(data)
    assert_type(message, Message)
    assert_type(message.params, Lease | None)
    assert_type(message.id, int | str | None)
    reader = MessageReader(limits=Limits(), framer=LineFramer(2**20))
    reader.receive_data(data)
    for message in reader:
        assert_type(
            message.kind,
            Literal["request", "notification", "result", "error", "batch", "invalid"],
        )
        if message.params is not None:
            assert_type(bytes(message.params), bytes)
            assert_type(message.params.copy(), bytes)
            assert_type(memoryview(message.params), memoryview)
    stream = MessageStream(reads_always=True)
    stream.send(b'{"jsonrpc":"2.0","method":"a"}')
    for chunk in stream.data_to_send():
        reader.receive_data(chunk)
    frames = FrameStream(WebSocketFramer("server", max_message=2**20))
    for frame in frames:
        assert_type(frame, Lease | None)


def bodies(session: Session, body: bytes) -> None:
    def answered(reply: MemoryReply) -> None:
        assert_type(reply.data, bytes | None)

    reply = MemoryReply(on_done=answered)
    route: ReplyRoute = reply
    session.receive_message(body, route)
    for message in session:
        session.send_notification("notifications/message", b"{}", about=message)
    session.cancel_route(reply)


class Answers(Endpoint):
    def __init__(self) -> None:
        self.wire = self.session = Session()

    def on_data(self) -> None:
        for message in self.session:
            if message.kind == "request":
                self.session.send_result(message, b"{}")

    def on_lost(self, exc: BaseException | None) -> None:
        assert_type(self.link, Link | None)


async def links(service: Service) -> None:
    loop = asyncio.get_running_loop()
    one, other = pair(loop, Answers(), Answers())
    assert_type(one, MemoryLink)
    other.start()
    with claimed() as (read_fd, write_fd), non_blocking(read_fd, write_fd):
        kind = FdLink if pollable(read_fd) else FileLink
        link: Link = kind(loop, Answers(), read_fd, write_fd)
        link.start()
        link.flush_now()
    pool = open_pool(loop)
    assert_type(pool, TaskPool)

    def ended(result: Any, exc: BaseException | None) -> None: ...

    assert_type(pool.start(asyncio.sleep(1), ended), Running | None)
    connection: Connection = service.connect(
        lambda endpoint: MemoryLink(loop, endpoint), loop=loop, pool=pool
    )
    assert_type(connection.peer, Peer | None)
    connection.drain()
    await close_pool(pool)
    child = await Child.launch(Stdio("server"))
    assert_type(child.returncode, int | None)
    assert_type(transport.Child, type[Child])


lite = LiteServer("Calculator")


@lite.tool
async def add(a: float, b: float = 1) -> Response:
    return Response([Content("number", str(a + b))])


async def lite_calls() -> None:
    assert_type(lite.info, Tool)
    async with LiteClient(lite) as client:
        info = await client.info()
        assert_type(info.parameters, list[Parameter])
        assert_type(info.version, VersionTuple)
        assert_type(await client.call(2, b=3), CallResult)
        await bridge.as_mcp_tool(Server("bridge"), client, optional=["b"])
    async with Client(Server("bridge")) as front:
        assert_type(await bridge.as_lite_server(front, "area"), LiteServer)
    async with LiteClient(Http("https://h/add", token="t"), both_headers=True) as far:
        assert_type(await far.invoke(["2"], {"b": 3}, timeout=1), CallResult)
    with SyncLiteClient("http://127.0.0.1:8765/add", headers={"X-Tenant": "a"}) as blocking:
        assert_type(blocking.call("1").content, list[Content])
    await serve_lite("ws://127.0.0.1:0", {"/add": lite}, token="t")
    await serve_lite("http://127.0.0.1:0", lite, http=HttpOptions(idle_timeout=180))
    run_lite("ws://127.0.0.1:0", lite, workers=2)
    lite.asgi("/add", token="t")
    lite.asgi(ssl=None)  # type: ignore[call-arg]


def instrumented() -> None:
    server = Server("metrics")
    metrics = prometheus.instrument(server, peer="metrics")
    assert_type(metrics, prometheus.Instrumentation)
    metrics.remove()
    otel.instrument(Client(server))


async def proxied() -> None:
    async def check(call: HookCall) -> dict[str, Any] | None:
        assert_type(call.tool, str)
        assert_type(call.principal, str | None)
        if not call.arguments:
            raise HookRefusal("it needs arguments")
        return {**call.arguments, "safe": True}

    tools = ToolsConfig(allow=("get_*",), rename={"get_time": "time"})
    flow = FlowConfig(max_in_flight=8, max_in_flight_per_client=2, tools={"crawl_*": 1})
    assert_type(flow.is_on, bool)
    backend = BackendConfig(
        target=Stdio("server", user="tools", limits=ProcessLimits(memory=1 << 30)),
        name="tools",
        isolation="shared",
        tools=tools,
        flow=flow,
        health=HealthConfig(interval=30, timeout=5),
        recycle=RecycleConfig(max_age=3600, max_requests=10_000, max_memory=1 << 30),
        retry=RetryConfig(tools=("get_*",), trust_annotations=True),
        breaker=BreakerConfig(failures=3, pause=5),
        request_timeout=60,
        idle_timeout=600,
        ask=True,
        lite=("get_time",),
        tool_search=ToolSearch(visible=("get_time",)),
        hooks=(HookConfig(tools=("get_*",), function=check, on_failure="pass"),),
        cache_lists=False,
    )
    bank = BackendConfig(
        target=Http("https://bank.example.com/mcp"),
        identity=IdentityConfig(type="header", file="/run/keys/{principal}"),
    )
    assert_type(backend.lite_paths, dict[str, str])
    config = ProxyConfig(
        backends=(backend, bank),
        listen=("ws://127.0.0.1:0/mcp",),
        shutdown_grace=1.0,
        rate=RateConfig(requests=10, burst=20),
        slow_client_timeout=10,
        admin=AdminConfig(listen="http://127.0.0.1:0", token="t"),
        audit=AuditConfig(to="stderr", events=("call", "session")),
    )
    proxy = Proxy(config)
    assert_type(proxy.config.backends[0].isolation, Literal["auto", "session", "shared", "pool"])
    await proxy.serve(on_listening=lambda urls: print(*urls))
    changes = await proxy.reload(config)
    assert_type(changes, Changes)
    assert_type(changes.added, tuple[str, ...])
    assert_type(proxy.reloads, Reloads)
    assert_type(proxy.reloads.ok, int)
    proxy.reopen_logs()
    asked = IntrospectionConfig(url="https://auth.example/introspect", token="t")
    auth = AuthorizationConfig(
        resource="https://tools.example", issuers=("https://auth.example",), introspection=asked
    )
    anne = PrincipalConfig(name="anne", subject="a", tools=ToolRules(deny=("delete_*",)))
    assert_type(anne.may_use("tools"), bool)
    listen = ListenConfig(url="http://127.0.0.1:0/mcp", access_log="json")
    ProxyConfig(backends=(backend,), listen=(listen,), principals=(anne,), auth=auth)
    cluster = ClusterConfig(url="redis://store", secret="0123456789abcdef", on_store_loss="refuse")
    ProxyConfig(backends=(backend,), listen=(), cluster=cluster)
    mirror = Mirror(Stdio("server"), name="far", era="legacy")
    assert_type(mirror.server, Server)
    Server("near").mount("far", mirror.server)
