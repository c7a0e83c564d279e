"""Traces of the proxy: its spans, and the context that servers behind it get."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab
from lab.proxy import MODERN, Lab, call
from lab.reload import ReloadLab, server
from lab.wording import raises
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from wirespeed import Client, Http
from wirespeed.ext import otel
from wirespeed.protocol.codes import SERVER_LOST

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0x00F067AA0BA902B7


class Traces:
    """The spans of a proxy."""

    def __init__(self, proxy: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        otel.instrument(proxy, tracer_provider=provider)

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())


def traceparent(span: Any) -> str:
    it = span.context
    return f"00-{it.trace_id:032x}-{it.span_id:016x}-{it.trace_flags:02x}"


@pytest.mark.parametrize("isolation", ["session", "shared", "pool"])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_server_gets_the_context_of_the_span(
    tmp_path: Path, isolation: str, version: str
) -> None:
    lab = Lab(tmp_path, isolation, versions=MODERN if version == MODERN else "")
    traces = Traces(lab.proxy)
    async with lab.serving():
        client = await lab.connect(version)
        traces.exporter.clear()
        given = call(1, "echo", nonce="é" * 9)
        given["params"]["_meta"] = {
            "progressToken": "t",
            "traceparent": PARENT,
            "tracestate": "a=b",
            "other": 12345678901234567890123,
        }
        await client.send(given)
        assert (await client.recv())["params"]["progressToken"] == "t"
        assert (await client.recv())["id"] == 1
        plain = call(2, "echo", nonce="x" * 100_000)
        await client.ask(plain)
        first, second = lab.read("tools/call")
    one, two = (span for span in traces.spans if span.name == "tools/call")
    assert one.kind == SpanKind.SERVER
    assert (one.context.trace_id, one.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert one.attributes["gen_ai.tool.name"] == "echo"
    assert one.attributes["peer.service"] == "b"
    assert one.attributes["jsonrpc.request.id"] == "1"
    meta = first["params"]["_meta"]
    assert meta["traceparent"] == traceparent(one)
    assert meta["tracestate"] == "a=b"
    assert meta["other"] == 12345678901234567890123
    assert meta["progressToken"] == first["id"]
    assert first["params"]["arguments"] == given["params"]["arguments"]
    assert two.parent is None
    assert second["params"]["_meta"]["traceparent"] == traceparent(two)
    assert second["params"]["arguments"] == plain["params"]["arguments"]


@pytest.mark.parametrize(
    "params", ["", ',"params":{}', ',"params": { }', ',"params":{"a": 1}', ',"params":{"_meta":{}}']
)
async def test_a_context_where_there_was_none(tmp_path: Path, params: str) -> None:
    lab = Lab(tmp_path, "session")
    traces = Traces(lab.proxy)
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask(f'{{"jsonrpc":"2.0","id":7,"method":"tools/list"{params}}}')
        assert answer["id"] == 7
        (seen,) = lab.read("tools/list")
    (span,) = (one for one in traces.spans if one.name == "tools/list")
    meta = seen["params"].pop("_meta")
    assert meta == {"traceparent": traceparent(span)}
    assert seen["params"] == (
        {"a": 1} if "a" in params.replace("params", "").replace("meta", "") else {}
    )


async def test_how_requests_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    traces = Traces(lab.proxy)
    async with lab.serving():
        client = await lab.connect()
        text = '{"jsonrpc":"2.0","id":"$id","error":{"code":-32055,"message":"no"}}'
        await client.ask(call(1, "fail", text=text))
        await client.send(call(2, "hold", token="t", **{"as": "x"}))
        await client.recv()
        await client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        )
        await client.ask(call(3, "crash"))
    spans = [span for span in traces.spans if span.name == "tools/call"]
    assert [span.attributes["error.type"] for span in spans] == [
        "-32055", "cancelled", str(SERVER_LOST)
    ]  # fmt: skip
    assert all(span.status.status_code == StatusCode.ERROR for span in spans)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_several_servers_behind_one_endpoint(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend(name, isolation="shared") for name in ("a", "b")]
    async with lab.serving():
        traces = Traces(lab.proxy)
        with raises(ValueError):
            otel.instrument(lab.proxy)
        async with Client(lab.url, era=era) as client:
            for name in ("a_who", "b_who"):
                await client.call_tool(name, {"nonce": "1"}, meta={"traceparent": PARENT})
    spans = [span for span in traces.spans if span.name == "tools/call"]
    assert [span.attributes["peer.service"] for span in spans] == ["a", "b"]
    assert {span.context.trace_id for span in spans} == {TRACE_ID}


async def test_without_a_tracer_a_context_passes_untouched(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        given = call(1, "echo")
        given["params"]["_meta"] = {"traceparent": PARENT, "tracestate": "x", "baggage": "k=v"}
        await client.ask(given)
        (seen,) = lab.read("tools/call")
    assert json.dumps(seen["params"]) == json.dumps(given["params"])


# -- header fields --------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def behind_http(folder: Path, era: str, *names: str) -> AsyncIterator[tuple[ReloadLab, str]]:
    versions = MODERN if era == "modern" else ""
    servers = [server(folder, name, versions=versions) for name in names or ("b",)]
    lab = ReloadLab(folder, *servers, listen=("http://127.0.0.1:0/mcp",))
    async with lab.serving():
        yield lab, lab.urls[0][0]


def seen(folder: Path, name: str = "b") -> list[Any]:
    """``_meta`` of the calls that a server has read."""
    lines = map(json.loads, (folder / f"seen-{name}").read_text().splitlines())
    return [one["params"].get("_meta", {}) for one in lines if one.get("method") == "tools/call"]


def context_of(meta: Any) -> dict[str, Any]:
    return {name: meta[name] for name in ("traceparent", "tracestate") if name in meta}


async def called(
    url: str, era: Any, fields: dict[str, str], tool: str = "echo", **options: Any
) -> None:
    async with Client(Http(url, headers=fields), era=era) as client:
        await client.call_tool(tool, {}, **options)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_gets_the_context_of_header_fields(tmp_path: Path, era: str) -> None:
    async with behind_http(tmp_path, era) as (_, url):
        fields = {"traceparent": PARENT, "TraceState": "a=1,b=2"}
        await called(url, era, fields)
        await called(url, era, fields, meta={"mine": 1})
    first, second = seen(tmp_path)
    assert context_of(first) == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert context_of(second) == context_of(first) and second["mine"] == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_several_servers_get_the_context_of_header_fields(tmp_path: Path, era: str) -> None:
    async with behind_http(tmp_path, era, "a", "b") as (_, url):
        await called(url, era, {"traceparent": PARENT}, "a_echo")
    assert [context_of(one) for one in seen(tmp_path, "a")] == [{"traceparent": PARENT}]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_meta_goes_before_header_fields(tmp_path: Path, era: str) -> None:
    other = PARENT.replace("0af", "1bf")
    async with behind_http(tmp_path, era) as (_, url):
        fields = {"traceparent": PARENT, "tracestate": "a=1"}
        await called(url, era, fields, meta={"traceparent": other})
    assert [context_of(one) for one in seen(tmp_path)] == [{"traceparent": other}]


@pytest.mark.parametrize(
    "field",
    [
        "x",
        PARENT[:-1],
        PARENT + "x",
        PARENT.upper(),
        PARENT.replace("00-", "ff-", 1),
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
    ],
)
async def test_a_field_that_is_no_context_is_ignored(tmp_path: Path, field: str) -> None:
    async with behind_http(tmp_path, "modern") as (_, url):
        await called(url, "modern", {"traceparent": field, "tracestate": "a=1"})
    assert [context_of(one) for one in seen(tmp_path)] == [{}]


async def test_a_long_tracestate_is_left_out(tmp_path: Path) -> None:
    async with behind_http(tmp_path, "modern") as (_, url):
        await called(url, "modern", {"traceparent": PARENT, "tracestate": "a=" + "1" * 5000})
    assert [context_of(one) for one in seen(tmp_path)] == [{"traceparent": PARENT}]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_span_is_a_child_of_that_of_header_fields(tmp_path: Path, era: str) -> None:
    async with behind_http(tmp_path, era) as (lab, url):
        traces = Traces(lab.proxy)
        await called(url, era, {"traceparent": PARENT})
    (span,) = [one for one in traces.spans if one.name.startswith("tools/call")]
    assert (span.context.trace_id, span.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert [one["traceparent"] for one in seen(tmp_path)] == [traceparent(span)]
