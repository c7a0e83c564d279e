"""Traces of servers and clients, as the SDK's exporters get them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises
from opentelemetry import baggage, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from wirespeed import Client, Context, Server, SyncClient
from wirespeed.errors import CallTimeout, ProtocolError, RemoteError
from wirespeed.ext import otel
from wirespeed.server.middleware.inbound import InboundRequest
from wirespeed.transport.link import Link
from wirespeed.transport.taskpool_choice import open_pool

PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0x00F067AA0BA902B7
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class Watching(SpanProcessor):
    """Writes to spans where they begin."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span.set_attribute("seen.at.start", True)


class Lab:
    """A traced server, and the spans of it."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider() if provider is None else provider
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.server = server = Server("lab")
        self.started = asyncio.Event()
        self.contexts: list[Any] = []

        @server.tool
        async def echo(text: str) -> str:
            self.contexts.append(trace.get_current_span().get_span_context())
            return text

        @server.tool
        async def below() -> str:
            await asyncio.sleep(0)
            with self.provider.get_tracer("mine").start_as_current_span("child"):
                await asyncio.sleep(0)
            return baggage.get_baggage("user") or "nobody"  # type: ignore[return-value]

        @server.tool(inline=True)
        def fails() -> str:
            raise ValueError("no luck")

        @server.tool
        def threaded() -> str:
            self.contexts.append(trace.get_current_span().get_span_context())
            return "x"

        @server.tool
        async def refuses() -> str:
            raise ProtocolError(-5, "will not")

        @server.tool
        async def wait() -> str:
            self.started.set()
            await asyncio.Event().wait()
            return "never"

        @server.prompt
        async def hello() -> str:
            return "hello"

        @server.resource("config://app")
        async def config() -> str:
            return "x"

        otel.instrument(server, tracer_provider=self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str, kind: SpanKind = SpanKind.SERVER) -> Any:
        (span,) = [span for span in self.spans if span.name == name and span.kind == kind]
        return span


@pytest.fixture
def lab() -> Lab:
    return Lab()


# -- what spans say -------------------------------------------------------------------------------


@ERAS
async def test_a_span_of_each_request(lab: Lab, era: Any) -> None:
    async with Client(lab.server, era=era, cache=False) as client:
        await client.call_tool("echo", {"text": "x"})
        await client.get_prompt("hello")
        await client.read_resource("config://app")
        await client.list_tools()
        version = client.protocol_version
    common = {"mcp.protocol.version": version}
    expected = {
        "tools/call echo": {
            "gen_ai.tool.name": "echo",
            "gen_ai.operation.name": "execute_tool",
            "mcp.method.name": "tools/call",
        },
        "prompts/get hello": {
            "gen_ai.prompt.name": "hello",
            "mcp.method.name": "prompts/get",
        },
        "resources/read": {
            "mcp.resource.uri": "config://app",
            "mcp.method.name": "resources/read",
        },
        "tools/list": {"mcp.method.name": "tools/list"},
    }
    for name, own in expected.items():
        span = lab.one(name)
        found = dict(span.attributes)
        assert found.pop("jsonrpc.request.id").isdecimal()
        assert found == common | own
        assert span.status.status_code == StatusCode.UNSET
        assert span.start_time <= span.end_time
        assert span.parent is None
        assert span.context.is_valid
        assert span.instrumentation_scope.name == "wirespeed"
        assert span.resource.attributes["telemetry.sdk.language"] == "python"
        assert json.loads(span.to_json())["name"] == name
    first = "server/discover" if era == "modern" else "initialize"
    assert lab.one(first).status.status_code == StatusCode.UNSET
    assert len({span.context.trace_id for span in lab.spans}) == 5


@ERAS
async def test_errors_are_in_status_and_attributes(lab: Lab, era: Any) -> None:
    async with Client(lab.server, era=era) as client:
        await client.call_tool("fails")
        with pytest.raises(RemoteError):
            await client.call_tool("refuses")
        with pytest.raises(RemoteError):
            await client.call_tool("ghost")
        with pytest.raises(RemoteError):
            await client.request("no/such")
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await lab.started.wait()
        calling.cancel()
        while len([span for span in lab.spans if span.name == "tools/call wait"]) < 1:
            await asyncio.sleep(0)

    def failed(name: str) -> tuple[Any, ...]:
        span = lab.one(name)
        assert span.status.status_code == StatusCode.ERROR
        found = span.attributes
        return (
            found["error.type"],
            found.get("rpc.response.status_code"),
            span.status.description,
        )

    assert failed("tools/call fails") == ("tool_error", None, None)
    assert failed("tools/call refuses") == ("-5", "-5", "will not")
    # what the server does not have makes no name of a span
    assert failed("tools/call") == ("-32602", "-32602", "Unknown tool: ghost")
    assert lab.one("tools/call").attributes["gen_ai.tool.name"] == "ghost"
    assert failed("no/such")[0] == "-32601"
    assert failed("tools/call wait") == ("cancelled", None, None)


async def test_what_a_client_sends_is_bounded(lab: Lab) -> None:
    async with Client(lab.server) as client:
        with pytest.raises(RemoteError):
            await client.call_tool("x" * 10_000)
    span = lab.one("tools/call")
    assert len(span.attributes["gen_ai.tool.name"]) == 1024
    assert len(span.status.description) <= 1024


class Wire(Link):
    """Nobody at the other end."""

    def flush(self) -> None:
        pass

    def update_reading(self) -> None:
        pass

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


def send(lab: Lab, id: Any, method: str, params: dict[str, Any]) -> None:
    """A request as no client of ours sends it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = open_pool(loop)
        connection = lab.server.service.connect(lambda end: Wire(loop, end), loop=loop, pool=pool)
        prefix = "io.modelcontextprotocol/"
        meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params | {"_meta": meta}}
        connection.wire.receive_data(json.dumps(message).encode() + b"\n")
        connection.on_data()
        while not lab.spans:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize("tool", ["echo", "threaded"])
def test_a_handler_that_begins_one_turn_later_has_its_span(lab: Lab, tool: str) -> None:
    """For a request that comes while a task is current, as behind a WebSocket's handshake."""
    send(lab, 1, "tools/call", {"name": tool, "arguments": {"text": "x"} if tool == "echo" else {}})
    (seen,) = lab.contexts
    assert seen.span_id == lab.one(f"tools/call {tool}").context.span_id


def test_what_a_span_is_of_follows_from_its_method(lab: Lab) -> None:
    send(lab, 1, "resources/read", {"uri": "config://app", "name": "pen"})
    assert lab.one("resources/read").attributes["mcp.resource.uri"] == "config://app"


@pytest.mark.parametrize("tool", ["echo", "fails", "below", "wait"])
async def test_tools_are_told_apart_whatever_came_before(lab: Lab, tool: str) -> None:
    """Names of one length, one after the other, and again."""
    names = [tool[:-1] + letter for letter in "abcd"]
    for name in names:
        lab.server.add_tool(lambda: "x", name=name, inline=True)
    async with Client(lab.server) as client:
        for name in names * 2:
            await client.call_tool(name)
    called = [span for span in lab.spans if span.name.startswith("tools/call")]
    assert [span.attributes["gen_ai.tool.name"] for span in called] == names * 2
    assert [span.name for span in called] == [f"tools/call {name}" for name in names * 2]


@pytest.mark.parametrize("id", [0, 7, 10**17, 10**18, 10**30, -5, "seven", "7", "\u00e9"])
def test_the_id_is_that_of_the_request(lab: Lab, id: Any) -> None:
    send(lab, id, "tools/call", {"name": "echo", "arguments": {"text": "x"}})
    assert lab.one("tools/call echo").attributes["jsonrpc.request.id"] == str(id)


# -- parents --------------------------------------------------------------------------------------


@ERAS
async def test_the_parent_comes_in_meta(lab: Lab, era: Any) -> None:
    async with Client(lab.server, era=era) as client:
        meta = {"traceparent": PARENT, "tracestate": "rojo=1,congo=2", "baggage": "user=alice"}
        result = await client.call_tool("below", meta=meta)
        assert result.content[0].text == "alice"
    span, child = lab.one("tools/call below"), lab.one("child", SpanKind.INTERNAL)
    assert span.parent.is_remote
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert span.context.trace_id == child.context.trace_id == TRACE_ID
    assert span.context.trace_state.to_header() == "rojo=1,congo=2"
    assert child.parent.span_id == span.context.span_id


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "garbage",
        PARENT[:-1],
        PARENT + "-x",
        PARENT.upper(),
        PARENT.replace("00-0a", "ff-0a"),
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT.replace("-00f", "_00f"),
        "é" * 55,
        7,
        None,
        {"traceparent": PARENT},
    ],
)
async def test_a_parent_that_is_none_is_ignored(lab: Lab, bad: Any) -> None:
    async with Client(lab.server) as client:
        await client.call_tool("echo", {"text": "x"}, meta={"traceparent": bad})
    span = lab.one("tools/call echo")
    assert span.parent is None
    assert span.context.trace_id not in (0, TRACE_ID)


async def test_a_parent_deeper_within_meta_is_none(lab: Lab) -> None:
    async with Client(lab.server) as client:
        meta = {"com.example/x": {"traceparent": PARENT, "baggage": "user=eve"}}
        result = await client.call_tool("below", meta=meta)
        assert result.content[0].text == "nobody"
    assert lab.one("tools/call below").parent is None


async def test_a_version_to_come_may_be_longer(lab: Lab) -> None:
    async with Client(lab.server) as client:
        longer = "01" + PARENT[2:] + "-more"
        await client.call_tool("echo", {"text": "x"}, meta={"traceparent": longer})
    assert lab.one("tools/call echo").context.trace_id == TRACE_ID


@pytest.mark.parametrize("tool", ["echo", "threaded"])
async def test_the_span_is_the_current_one_in_handlers(lab: Lab, tool: str) -> None:
    arguments = {"text": "x"} if tool == "echo" else None
    async with Client(lab.server) as client:
        for _ in range(2):
            await client.call_tool(tool, arguments)
    ids = [span.context.span_id for span in lab.spans if span.name == f"tools/call {tool}"]
    assert [context.span_id for context in lab.contexts] == ids
    assert not trace.get_current_span().get_span_context().is_valid


async def test_middleware_is_within_the_span(lab: Lab) -> None:
    seen: list[int] = []

    @lab.server.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().span_id)
        try:
            return await call_next(request)
        finally:
            seen.append(trace.get_current_span().get_span_context().span_id)

    async with Client(lab.server) as client:
        del seen[:]
        await client.call_tool("below")
        with pytest.raises(RemoteError):
            await client.call_tool("ghost")
    span, ghost = lab.one("tools/call below"), lab.one("tools/call")
    assert seen == [span.context.span_id] * 2 + [ghost.context.span_id] * 2
    assert ghost.attributes["error.type"] == "-32602"


# -- what a handler does with its span ------------------------------------------------------------


async def test_a_handler_adds_to_its_span(lab: Lab) -> None:
    spans: list[Any] = []

    @lab.server.tool
    async def adds() -> str:
        span = trace.get_current_span()
        assert isinstance(span, trace.Span)
        assert span.is_recording()
        other = trace.SpanContext(1, 2, True)
        with trace.use_span(span, end_on_exit=True):
            span.set_attribute("one", 1)
            span.set_attributes({"two": 2, "three": [1, 2]})
            span.add_event("happened", {"how": "well"})
            span.add_link(other, {"why": "because"})
            span.record_exception(LookupError("lost"))
            span.set_status(StatusCode.OK)
            span.update_name("renamed")
        await asyncio.sleep(0)
        spans.append(span)
        return "x"

    async with Client(lab.server) as client:
        await client.call_tool("adds")
    span = lab.one("renamed")
    assert span.attributes["one"] == 1
    assert span.attributes["three"] == (1, 2)
    assert [event.name for event in span.events] == ["happened", "exception"]
    assert span.events[1].attributes["exception.type"] == "LookupError"
    assert span.events[1].attributes["exception.message"] == "lost"
    assert span.links[0].context.span_id == 2
    assert span.status.status_code == StatusCode.OK
    assert not spans[0].is_recording()
    spans[0].set_attribute("late", 1)  # changes nothing
    assert "late" not in lab.one("renamed").attributes


async def test_a_span_goes_when_it_was_exported() -> None:
    """Though tasks of the pool, which are kept, began with its request."""
    lab = Lab()
    spans: list[Any] = []
    go = asyncio.Event()

    @lab.server.tool
    async def together() -> str:
        spans.append(weakref.ref(trace.get_current_span()))
        if len(spans) == 5:
            go.set()
        await go.wait()
        return "x"

    async with Client(lab.server) as client:
        await asyncio.gather(*(client.call_tool("together") for _ in range(5)))
        await client.ping()
        lab.exporter.clear()
        gc.collect()
        assert [span() for span in spans] == [None] * 5


async def test_a_span_that_is_dropped_has_ids_alone() -> None:
    lab = Lab(TracerProvider(sampler=ALWAYS_OFF))
    spans: list[Any] = []

    @lab.server.tool
    async def keeps() -> str:
        span: Any = trace.get_current_span()
        span.set_attribute("one", 1)
        span.add_event("happened")
        span.add_link(trace.SpanContext(1, 2, True))
        span.set_status(StatusCode.ERROR)
        span.update_name("other")
        spans.append(span)
        return "x"

    async with Client(lab.server) as client:
        await client.call_tool("keeps")
    (span,) = spans
    assert isinstance(span, trace.Span)
    assert not isinstance(span, ReadableSpan)
    assert span.get_span_context().is_valid
    assert not span.get_span_context().trace_flags.sampled
    assert not span.is_recording()


async def test_handlers_that_go_on_have_contexts_of_their_own(lab: Lab) -> None:
    """What one sets in its first step is not there for the next, nor in its middleware."""
    seen: list[Any] = []
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @lab.server.tool
    async def sets(text: str) -> str:
        seen.append(variable.get())
        variable.set(text)
        own = trace.get_current_span().get_span_context().span_id
        below = asyncio.ensure_future(asyncio.to_thread(trace.get_current_span))
        await asyncio.sleep(0)
        assert trace.get_current_span().get_span_context().span_id == own
        assert (await below).get_span_context().span_id == own
        return variable.get()

    async with Client(lab.server) as client:
        asked = [client.call_tool("sets", {"text": str(n)}) for n in range(4)]
        results = await asyncio.gather(*asked)
    assert [result.content[0].text for result in results] == ["0", "1", "2", "3"]
    assert seen == ["unset"] * 4


# -- samplers -------------------------------------------------------------------------------------


class Picky(Sampler):
    """Keeps echo alone, and says so."""

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *rest: Any) -> Any:
        kept = name == "tools/call echo"
        decision = Decision.RECORD_AND_SAMPLE if kept else Decision.DROP
        return SamplingResult(decision, {"picked": name} if kept else None)

    def get_description(self) -> str:
        return "picky"


@every(
    ("sampler", "root", "below_sampled", "below_unsampled"),
    [
        (ALWAYS_ON, True, True, True),
        (ALWAYS_OFF, False, False, False),
        (ParentBased(ALWAYS_ON), True, True, False),
        (ParentBased(ALWAYS_OFF), False, True, False),
        (TraceIdRatioBased(0.0), False, False, False),
        (TraceIdRatioBased(1.0), True, True, True),
        (ParentBased(TraceIdRatioBased(0.0)), False, True, False),
        (Picky(), True, True, True),
    ],
    ids=lambda value: value.get_description() if isinstance(value, Sampler) else None,
)
async def test_samplers_decide_as_they_would(
    sampler: Sampler, root: bool, below_sampled: bool, below_unsampled: bool
) -> None:
    for parent, kept in (
        (None, root),
        (PARENT, below_sampled),
        (PARENT[:-1] + "0", below_unsampled),
    ):
        lab = Lab(TracerProvider(sampler=sampler))
        async with Client(lab.server) as client:
            meta = None if parent is None else {"traceparent": parent}
            await client.call_tool("echo", {"text": "x"}, meta=meta)
        found = [span for span in lab.spans if span.name == "tools/call echo"]
        assert len(found) == kept, parent
        (context,) = lab.contexts
        assert context.is_valid
        assert context.trace_flags.sampled is kept
        if parent is not None:
            assert context.trace_id == TRACE_ID
        if isinstance(sampler, Picky):
            assert found[0].attributes["picked"] == "tools/call echo"  # type: ignore[index]
            assert len(lab.spans) == 1


async def test_what_is_not_sampled_is_so_below_too() -> None:
    lab = Lab(TracerProvider(sampler=ParentBased(ALWAYS_OFF)))
    async with Client(lab.server) as client:
        await client.call_tool("below")
    assert lab.spans == []


# -- processors -----------------------------------------------------------------------------------


class Keeping(SpanExporter):
    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.batches.append(list(spans))
        return SpanExportResult.SUCCESS


def traced(provider: TracerProvider) -> Server:
    server = Server("lab")
    server.add_tool(lambda: "x", name="quick", inline=True)
    otel.instrument(server, tracer_provider=provider)
    return server


async def test_after_the_providers_shutdown_nothing_fails(caplog: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Keeping()))
    server = traced(provider)
    provider.shutdown()
    async with Client(server) as client:
        result = await client.call_tool("quick")
        assert result.content[0].text == "x"
    await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_processor_that_fails_fails_nothing_else(caplog: Any) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise LookupError("mine")

    lab = Lab()
    lab.provider.add_span_processor(Broken())
    async with Client(lab.server) as client:
        result = await client.call_tool("echo", {"text": "x"})
        assert result.content[0].text == "x"
    assert lab.one("tools/call echo")
    assert "a span processor failed" in caplog.text


async def test_a_sampler_that_fails_costs_the_span_alone(caplog: Any) -> None:
    class Broken(Picky):
        def should_sample(self, *args: Any) -> Any:
            raise LookupError("mine")

    lab = Lab(TracerProvider(sampler=Broken()))
    async with Client(lab.server) as client:
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"
    assert lab.spans == []
    assert "a span cannot be made" in caplog.text


async def test_a_processor_that_comes_later_sees_spans_begin() -> None:
    lab = Lab()
    async with Client(lab.server) as client:
        await client.call_tool("echo", {"text": "x"})
        assert "seen.at.start" not in lab.one("tools/call echo").attributes
        lab.exporter.clear()
        lab.provider.add_span_processor(Watching())
        await client.call_tool("echo", {"text": "x"})
        assert lab.one("tools/call echo").attributes["seen.at.start"] is True


# -- clients --------------------------------------------------------------------------------------


@ERAS
async def test_a_clients_span_is_the_parent_of_the_servers(lab: Lab, era: Any) -> None:
    client = Client(lab.server, era=era)
    otel.instrument(client, tracer_provider=lab.provider)
    tracer = lab.provider.get_tracer("mine")
    async with client:
        with tracer.start_as_current_span("agent") as agent:
            await client.call_tool("below")
            await client.call_tool("fails")
            with pytest.raises(RemoteError):
                await client.call_tool("refuses")
            with pytest.raises(CallTimeout):
                await client.call_tool("wait", timeout=0.01)
    ours = lab.one("tools/call below", SpanKind.CLIENT)
    theirs = lab.one("tools/call below")
    child = lab.one("child", SpanKind.INTERNAL)
    assert ours.parent.span_id == agent.get_span_context().span_id
    assert theirs.parent.span_id == ours.context.span_id
    assert child.parent.span_id == theirs.context.span_id
    assert ours.attributes["gen_ai.tool.name"] == "below"
    assert ours.status.status_code == StatusCode.UNSET
    failed = lab.one("tools/call fails", SpanKind.CLIENT)
    assert failed.attributes["error.type"] == "tool_error"
    refused = lab.one("tools/call refuses", SpanKind.CLIENT)
    assert refused.attributes["rpc.response.status_code"] == "-5"
    assert refused.status.description == "will not"
    late = lab.one("tools/call wait", SpanKind.CLIENT)
    assert late.attributes["error.type"] == "timeout"
    assert late.events == ()


def test_a_blocking_client(lab: Lab) -> None:
    client = SyncClient(lab.server)
    otel.instrument(client, tracer_provider=lab.provider)
    with client:
        client.call_tool("echo", {"text": "x"})
    ours = lab.one("tools/call echo", SpanKind.CLIENT)
    assert lab.one("tools/call echo").parent.span_id == ours.context.span_id


async def test_questions_to_a_legacy_client(lab: Lab) -> None:
    asked: list[Any] = []

    @lab.server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", None)
        return answer.action

    @lab.server.add_ask_middleware
    async def look(question: Any, call_next: Any) -> bytes:
        asked.append(json.loads(question.params))
        return await call_next(question)

    async def decline(request: Any) -> str:
        return "decline"

    async with Client(lab.server, era="legacy", on_elicit=decline) as client:
        await client.call_tool("ask")
    span = lab.one("elicitation/create", SpanKind.CLIENT)
    assert span.parent.span_id == lab.one("tools/call ask").context.span_id
    parent = asked[0]["_meta"]["traceparent"]
    assert re.fullmatch(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-0.", parent)


# -- set-up ---------------------------------------------------------------------------------------


def test_a_server_is_traced_once() -> None:
    lab = Lab()
    with raises(ValueError):
        otel.instrument(lab.server, tracer_provider=lab.provider)


async def test_a_provider_that_does_nothing() -> None:
    server = Server("noop")
    contexts: list[Any] = []

    @server.tool
    async def look() -> str:
        contexts.append(trace.get_current_span().get_span_context())
        return "x"

    otel.instrument(server, tracer_provider=trace.NoOpTracerProvider())
    async with Client(server) as client:
        await client.call_tool("look", meta={"traceparent": PARENT})
        await client.call_tool("look")
    assert contexts[0].trace_id == TRACE_ID  # passes through


@pytest.fixture
def other_propagator() -> Iterator[None]:
    class Reversed(propagate.textmap.TextMapPropagator):
        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            if "reversed" not in carrier:
                return context
            ids = carrier["reversed"].split("/")
            parent = trace.SpanContext(int(ids[1]), int(ids[0]), True, trace.TraceFlags(1))
            return trace.set_span_in_context(trace.NonRecordingSpan(parent), context)

        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            pass

        @property
        def fields(self) -> set[str]:
            return {"reversed"}

    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Reversed())
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("other_propagator")
async def test_other_propagators_are_asked() -> None:
    lab = Lab()
    async with Client(lab.server) as client:
        meta = {"reversed": "7/9", "traceparent": PARENT}
        await client.call_tool("echo", {"text": "x"}, meta=meta)
    span = lab.one("tools/call echo")
    assert (span.parent.span_id, span.context.trace_id) == (7, 9)
