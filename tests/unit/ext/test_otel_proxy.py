"""Traces of the proxy: its spans, and the context that servers behind it get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.unit.proxy.merge_lab import MergeLab
from tests.unit.proxy.proxy_lab import MODERN, Lab, call
from wirespeed import Client
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
        with pytest.raises(ValueError, match="is traced already"):
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
