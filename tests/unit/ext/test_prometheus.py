"""The metrics of servers and clients, as a scrape shows them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from lab.wording import raises
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wirespeed import Client, Server
from wirespeed.errors import CallTimeout, ProtocolError, RemoteError
from wirespeed.ext.prometheus import MAX_NAMES, instrument
from wirespeed.limits import Limits
from wirespeed.server.middleware.inbound import InboundRequest, Reply
from wirespeed.server.requests.observer import Observer, Series
from wirespeed.server.tools.results import RawResult

pytestmark = pytest.mark.smoke


async def pass_on(request: InboundRequest, call_next: Any) -> Any:
    return await call_next(request)


class Lab:
    """A server with its registry, and what a scrape of it says."""

    def __init__(self, *, middleware: bool = False, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.server = server = Server("lab", **options)
        self.started = asyncio.Event()
        self.go = asyncio.Event()

        @server.tool
        async def echo(text: str) -> str:
            return text

        @server.tool(inline=True)
        def fails() -> str:
            raise ValueError("no luck")

        @server.tool
        async def refuses() -> str:
            raise ProtocolError(-5, "no")

        @server.tool
        async def wait() -> str:
            self.started.set()
            await self.go.wait()
            return "done"

        @server.tool(timeout=0.01)
        async def late() -> str:
            await asyncio.Event().wait()
            return "never"

        @server.prompt
        async def hello() -> str:
            return "hello"

        instrument(server, registry=self.registry)
        if middleware:
            server.add_middleware(pass_on)

    def samples(self) -> dict[tuple[str, ...], float]:
        """By name and the values of the labels in their order, without ``peer``."""
        return samples(self.registry)

    def get(self, name: str, *labels: str) -> float:
        return self.samples().get((f"wirespeed_server_{name}", *labels), 0)


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "peer"}
            found[(sample.name, *(labels[key] for key in sorted(labels)))] = sample.value
    return found


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
MIDDLEWARE = pytest.mark.parametrize("middleware", [False, True], ids=["bare", "middleware"])
DURATION = "request_duration_seconds_count"


@ERAS
@MIDDLEWARE
async def test_requests_are_counted_by_method_and_tool(era: Any, middleware: bool) -> None:
    lab = Lab(middleware=middleware)
    async with Client(lab.server, era=era, cache=False) as client:
        for _ in range(3):
            await client.call_tool("echo", {"text": "x"})
        await client.call_tool("fails")
        await client.call_tool("echo", {"text": 5})
        await client.call_tool("late")
        await client.list_tools()
        await client.get_prompt("hello")
        with pytest.raises(RemoteError):
            await client.call_tool("refuses")
        for name in ("ghost", "phantom"):
            with pytest.raises(RemoteError):
                await client.call_tool(name)
        for method in ("no/such", "neither/this"):
            with pytest.raises(RemoteError):
                await client.request(method)

    first = "server/discover" if era == "modern" else "initialize"
    counts = {key[1:]: value for key, value in lab.samples().items() if key[0].endswith(DURATION)}
    # of 2025-11-25 on, arguments that do not fit are a result
    assert counts == {
        (first, ""): 1,
        ("tools/call", "echo"): 4,
        ("tools/call", "fails"): 1,
        ("tools/call", "late"): 1,
        ("tools/call", "refuses"): 1,
        ("tools/call", "unknown"): 2,
        ("tools/list", ""): 1,
        ("prompts/get", ""): 1,
        ("unknown", ""): 2,
    }
    errors = {key[1:]: value for key, value in lab.samples().items() if "request_errors" in key[0]}
    assert errors == {
        ("-5", "tools/call", "refuses"): 1,
        ("-32602", "tools/call", "unknown"): 2,
        ("-32601", "unknown", ""): 2,
    }
    for name in ("echo", "fails", "late"):
        assert lab.get("tool_failures_total", name) == 1
    assert lab.get("tool_failures_total", "refuses") == 0


@MIDDLEWARE
async def test_a_raw_result_that_says_is_error_is_a_failure(middleware: bool) -> None:
    lab = Lab(middleware=middleware)

    @lab.server.tool(inline=True)
    def raw() -> Any:
        return RawResult(b'{"content":[],"isError":true}')

    async with Client(lab.server, era="legacy") as client:
        assert (await client.call_tool("raw")).is_error
    assert lab.get("tool_failures_total", "raw") == 1


async def test_durations_are_in_their_buckets() -> None:
    lab = Lab()
    async with Client(lab.server) as client:
        await client.call_tool("late")  # 10 ms at least
    found = lab.samples()
    buckets = {
        float(key[1]): value
        for key, value in found.items()
        if key[0] == "wirespeed_server_request_duration_seconds_bucket" and key[3] == "late"
    }
    assert buckets[0.005] == 0
    assert buckets[float("inf")] == 1
    assert lab.get("request_duration_seconds_sum", "tools/call", "late") >= 0.009


@MIDDLEWARE
async def test_what_is_under_way_and_what_is_cancelled(middleware: bool) -> None:
    lab = Lab(middleware=middleware)
    async with Client(lab.server) as client:
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await lab.started.wait()
        assert lab.get("requests_in_flight") == 1
        assert lab.get("connections") == 1
        calling.cancel()
        while lab.get("request_errors_total", "cancelled", "tools/call", "wait") != 1:
            await asyncio.sleep(0)
        assert lab.get("requests_in_flight") == 0
    assert lab.get("connections") == 0
    assert lab.get("connections_made_total") == 1


async def test_bytes_and_messages_outlive_their_connections() -> None:
    lab = Lab()
    totals = []
    for _ in range(2):
        async with Client(lab.server) as client:
            await client.call_tool("echo", {"text": "x" * 1000})
        totals.append(
            [
                lab.get(f"{name}_total")
                for name in ("received_bytes", "sent_bytes", "received_messages")
            ]
        )
    first, second = totals
    assert first[0] > 1000
    assert first[1] > 1000
    assert second[2] == 2 * first[2]
    assert all(b > a for a, b in zip(first, second, strict=True))


async def test_limits_that_were_reached() -> None:
    lab = Lab(limits=Limits(max_in_flight=1, max_waiting=2))
    async with Client(lab.server) as client:
        calls = [asyncio.ensure_future(client.call_tool("wait")) for _ in range(4)]
        while lab.get("connections_paused") != 1:
            await asyncio.sleep(0)
        assert lab.get("requests_waiting") >= 1
        assert lab.get("requests_in_flight") == 1
        lab.go.set()
        await asyncio.gather(*calls)
        assert lab.get("connections_paused") == 0
        assert lab.get("limits_reached_total", "notifications_dropped") == 0


async def test_a_reply_of_the_middleware_counts_as_what_it_says() -> None:
    lab = Lab()

    @lab.server.add_middleware
    async def answer(request: InboundRequest, call_next: Any) -> Any:
        if request.name == "echo":
            return Reply.result({"content": [], "isError": True})
        if request.name == "wait":
            raise ProtocolError(-77, "no")
        return await call_next(request)

    async with Client(lab.server) as client:
        await client.call_tool("echo")
        with pytest.raises(RemoteError):
            await client.call_tool("wait")
    assert lab.get("tool_failures_total", "echo") == 1
    assert lab.get("request_errors_total", "-77", "tools/call", "wait") == 1


@ERAS
async def test_a_clients_metrics(era: Any) -> None:
    lab = Lab()
    registry = CollectorRegistry()
    client = Client(lab.server, era=era)
    instrument(client, registry=registry, peer="lab")
    async with client:
        await client.call_tool("echo", {"text": "x"})
        await client.call_tool("fails")
        with pytest.raises(RemoteError):
            await client.call_tool("refuses")
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.01)
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        await client.list_tools()
        found = samples(registry)
    name = "wirespeed_client_request_duration_seconds_count"
    assert found[name, "tools/call", "echo"] == 1
    assert found[name, "tools/call", "wait"] == 2
    assert found[name, "tools/list", ""] == 1
    name = "wirespeed_client_request_errors_total"
    assert found[name, "-5", "tools/call", "refuses"] == 1
    assert found[name, "timeout", "tools/call", "wait"] == 1
    assert found[name, "cancelled", "tools/call", "wait"] == 1
    assert found["wirespeed_client_tool_failures_total", "fails"] == 1
    assert found["wirespeed_client_connections",] == 1
    assert found["wirespeed_client_sent_bytes_total",] > 0
    assert samples(registry)["wirespeed_client_connections",] == 0


async def test_a_client_tells_no_more_than_so_many_tools_apart() -> None:
    registry = CollectorRegistry()
    client = Client(Server("empty"))
    instrument(client, registry=registry)
    async with client:
        for i in range(MAX_NAMES + 2):
            with pytest.raises(RemoteError):
                await client.call_tool(f"tool-{i}")
    name = "wirespeed_client_request_duration_seconds_count"
    found = samples(registry)
    assert found[name, "tools/call", "other"] == 2
    assert len([key for key in found if key[0] == name]) == MAX_NAMES + 1


def test_several_in_one_registry_and_removal() -> None:
    registry = CollectorRegistry()
    first = instrument(Server("a"), registry=registry)
    instrument(Server("b"), registry=registry)
    with raises(ValueError):
        instrument(Server("a"), registry=registry)
    instrument(Server("a"), registry=registry, peer="another")
    assert b'peer="a"' in generate_latest(registry)
    first.remove()
    first.remove()
    assert b'peer="a"' not in generate_latest(registry)
    assert b'peer="b"' in generate_latest(registry)


def test_buckets_must_rise() -> None:
    with raises(ValueError):
        instrument(Server("a"), registry=CollectorRegistry(), buckets=[1, 1])
    with raises(ValueError):
        Observer(range(1, 34))
    series = Series("m", "n", (1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 9.0):
        series.add(seconds)
    assert series.buckets == [2, 3, 4]


def test_series_are_bounded() -> None:
    observer = Observer()
    for i in range(2500):
        observer.of("m", str(i)).add(0.0)
    assert len(observer.series) == 2001
    assert observer.of("m", "other").buckets[-1] == 500


def test_nothing_is_loaded_unless_it_is_used() -> None:
    program = (
        "import sys, wirespeed, asyncio\n"
        "server = wirespeed.Server('x')\n"
        "wirespeed.Client(server)\n"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('prometheus_client', 'opentelemetry') or m.startswith('wirespeed.ext')"
        " or m.startswith('wirespeed.server.middleware.chain')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
