"""How many requests a server gets at once, and what becomes of the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.http_front import Front, hello
from lab.proxy import MODERN, Lab, Raw, call, until

from wirespeed.errors import ConfigError
from wirespeed.proxy import BackendConfig, FlowConfig, Proxy, ProxyConfig, RateConfig
from wirespeed.proxy.file import load
from wirespeed.proxy.flow.rates import Rates, host_of
from wirespeed.transport.token_buckets import MAX_OWNERS, TokenBuckets

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

# Answers a call when there is a file with the name that the call gives.
HOLDING = """
import json, os, select, sys

log = open(sys.argv[1], "a", buffering=1)
folder = sys.argv[1] + ".free"
modern = os.environ.get("VERSIONS") == "2026-07-28"
held, data = {}, b""

def answer(i, **result):
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": i, "result": result}).encode() + b"\\n")

while True:
    if select.select([0], [], [], 0.005)[0]:
        new = os.read(0, 65536)
        if not new:
            break
        *lines, data = (data + new).split(b"\\n")
        for line in lines:
            m = json.loads(line)
            if m["method"] == "initialize" and not modern:
                answer(m["id"], protocolVersion="2025-11-25", capabilities={"tools": {}},
                       serverInfo={"name": "b", "version": "1"})
            elif m["method"] == "server/discover" and modern:
                answer(m["id"], resultType="complete", supportedVersions=["2026-07-28"],
                       capabilities={"tools": {}}, ttlMs=0, cacheScope="private")
            elif m["method"] == "tools/call":
                log.write(m["params"]["arguments"]["as"] + "\\n")
                held[m["params"]["arguments"]["as"]] = m["id"]
            elif m["method"] == "notifications/cancelled":
                log.write("cancel\\n")
            elif m["method"] == "exit":
                os._exit(3)
            elif "id" in m:
                answer(m["id"])
    for name in os.listdir(folder):
        if name == "exit":
            os.unlink(f"{folder}/{name}")
            os._exit(3)
        if name in held:
            os.unlink(f"{folder}/{name}")
            answer(held.pop(name), content=[])
"""


class HoldingLab(Lab):
    """A server that holds calls until they are to be answered."""

    def __init__(self, folder: Path, isolation: str = "shared", **flow: Any) -> None:
        options = {key: flow.pop(key) for key in ("versions", "rate", "size") if key in flow}
        era = "modern" if options.get("versions") == MODERN else "legacy"
        super().__init__(folder, isolation, era=era, **options)
        self.use(FlowConfig(**flow))
        (folder / "backend.py").write_text(HOLDING)
        self.seen.touch()
        self.free_folder = folder / "seen.free"
        self.free_folder.mkdir()

    def use(self, flow: FlowConfig) -> None:
        fields = {name: getattr(self.backend, name) for name in ("target", "name", "isolation")}
        fields |= {"era": self.backend.era, "size": self.backend.size, "flow": flow}
        config = self.proxy.config
        self.proxy = Proxy(
            ProxyConfig(backends=(BackendConfig(**fields),), listen=config.listen, rate=config.rate)
        )

    @property
    def backend(self) -> BackendConfig:
        return self.proxy.config.backends[0]

    @property
    def flow(self) -> Any:
        return next(iter(self.proxy.services.values())).flow

    @property
    def counts(self) -> tuple[int, int]:
        """Requests in flight, and those that wait."""
        return self.flow.n_in_flight, self.flow.n_queued

    def free(self, *names: str) -> None:
        for name in names:
            (self.free_folder / name).touch()

    def order(self) -> list[str]:
        return self.seen.read_text().split()

    async def until_seen(self, *names: str) -> None:
        await until(lambda: len(self.order()) >= len(names))
        assert self.order() == list(names)

    async def done(self) -> None:
        """Nothing is left behind."""
        await until(lambda: self.counts == (0, 0) and self.flow.n_clients == 0)
        assert self.flow.n_queued_bytes == 0


async def send(client: Raw, *names: str, tool: str = "hold", **more: Any) -> None:
    await client.send(*(call(name, tool, **{"as": name}, **more) for name in names))


KINDS = [
    ("shared", "2025-11-25", ""),
    ("session", "2025-11-25", ""),
    ("pool", "2025-11-25", ""),
    ("shared", MODERN, MODERN),
    ("pool", MODERN, MODERN),
    ("session", MODERN, MODERN),
]


@pytest.mark.parametrize(("isolation", "version", "versions"), KINDS)
async def test_clients_take_turns_at_the_limit(
    tmp_path: Path, isolation: str, version: str, versions: str
) -> None:
    """One request at a time for all processes of a server, the clients by turns."""
    lab = HoldingLab(tmp_path, isolation, versions=versions, max_in_flight=1)
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        await until(lambda: isolation != "session" or all(f.across for f in lab.fronts))
        await send(one, "a1")
        await lab.until_seen("a1")
        await send(one, "a2", "a3", "a4")
        await until(lambda: lab.counts == (1, 3))
        await send(two, "b1", "b2")
        await until(lambda: lab.counts == (1, 5))
        order = ["a1", "a2", "b1", "a3", "b2", "a4"]
        for i, name in enumerate(order):
            await lab.until_seen(*order[: i + 1])
            lab.free(name)
        assert [(await one.recv())["id"] for _ in range(4)] == ["a1", "a2", "a3", "a4"]
        assert [(await two.recv())["id"] for _ in range(2)] == ["b1", "b2"]
        await lab.done()
        assert lab.flow.n_refused == 0


async def test_the_limit_of_each_client(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, max_in_flight=3, max_in_flight_per_client=1)
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await send(one, "a1", "a2", "a3")
        await lab.until_seen("a1")
        await send(two, "b1", "b2")
        await lab.until_seen("a1", "b1")  # another client does not wait for the first
        assert lab.counts == (2, 3)
        lab.free("b1")
        await lab.until_seen("a1", "b1", "b2")
        lab.free("a1")
        await lab.until_seen("a1", "b1", "b2", "a2")
        lab.free("a2", "a3", "b2")
        for client, n in ((one, 3), (two, 2)):
            for _ in range(n):
                assert "result" in await client.recv()
        await lab.done()


async def test_limits_of_tools(tmp_path: Path) -> None:
    """The first glob that matches counts. What waits for one tool is in no other's way."""
    lab = HoldingLab(tmp_path, tools={"slow_one": 1, "slow_*": 2})
    async with lab.serving():
        client = await lab.connect()
        await send(client, "x1", "x2", "x3", tool="slow_x")
        await send(client, "one1", "one2", tool="slow_one")
        await send(client, "quick", tool="quick")
        await client.send({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
        assert (await client.recv())["id"] == "list"
        await lab.until_seen("x1", "x2", "one1", "quick")
        assert lab.counts == (4, 2)
        lab.free("one1")
        assert (await client.recv())["id"] == "one1"
        await lab.until_seen("x1", "x2", "one1", "quick", "one2")
        lab.free("x2")
        assert (await client.recv())["id"] == "x2"
        await lab.until_seen("x1", "x2", "one1", "quick", "one2", "x3")
        lab.free("x1", "x3", "one2", "quick")
        assert {(await client.recv())["id"] for _ in range(4)} == {"x1", "x3", "one2", "quick"}
        # names of tools that nobody has, as long as there are more of them than are remembered
        for i in range(1500):
            await send(client, f"f{i}", tool=f"slow_{i}")
            lab.free(f"f{i}")
            assert (await client.recv())["id"] == f"f{i}"
        no_name = {"jsonrpc": "2.0", "method": "tools/call", "params": {"arguments": {"as": "x"}}}
        lab.free("x")
        assert (await client.ask({"id": 7, **no_name}))["id"] == 7
        await lab.done()


async def test_a_full_queue_answers_at_once(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, max_in_flight=1, max_queued=2, max_queued_bytes=3000)
    async with lab.serving():
        client = await lab.connect()
        await send(client, "a1", "a2", "a3", "a4")
        answer = await client.recv()
        error = {"code": -31000, "message": "too many requests wait for b"}
        assert (answer["id"], answer["error"]) == ("a4", error)
        lab.free("a1")
        assert (await client.recv())["id"] == "a1"
        await until(lambda: lab.counts == (1, 1))
        await send(client, "big", fill="x" * 3000)
        assert (await client.recv())["error"] == error
        await send(client, "a5")
        await until(lambda: lab.counts == (1, 2))
        assert lab.flow.n_refused == 2
        lab.free("a2", "a3", "a5")
        assert [(await client.recv())["id"] for _ in range(3)] == ["a2", "a3", "a5"]
        await lab.done()


async def test_a_client_does_not_fill_the_queue(tmp_path: Path) -> None:
    """The newest requests of the client of which most waits are refused for others."""
    lab = HoldingLab(tmp_path, max_in_flight=1, max_queued=4, max_queued_bytes=4000)
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await send(one, "a1", "a2", "a3", "a4", "a5")
        await until(lambda: lab.counts == (1, 4))
        await send(two, "b1")
        assert (await one.recv())["id"] == "a5"
        await send(two, "b2")
        assert (await one.recv())["id"] == "a4"
        await send(two, "b3")  # each has two
        assert (await two.recv())["id"] == "b3"
        assert lab.counts == (1, 4)
        await send(one, "a6", fill="x" * 3800)  # more than its part of the bytes
        assert (await one.recv())["id"] == "a6"
        assert lab.counts == (1, 4) and lab.flow.n_refused == 4
        lab.free("a1", "a2", "a3", "b1", "b2")
        assert [(await one.recv())["id"] for _ in range(3)] == ["a1", "a2", "a3"]
        assert [(await two.recv())["id"] for _ in range(2)] == ["b1", "b2"]
        await lab.done()


async def test_bytes_of_a_client_do_not_fill_the_queue(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, max_in_flight=1, max_queued_bytes=10_000)
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await send(one, "a1")
        await lab.until_seen("a1")
        await send(one, "a2", "a3", "a4", fill="x" * 3000)
        await until(lambda: lab.counts == (1, 3))
        await send(two, "b1", fill="x" * 3000)
        assert (await one.recv())["id"] == "a4"
        await send(two, "b2", fill="x" * 3000)  # it would have as much as the other one has
        assert (await two.recv())["id"] == "b2"
        lab.free("a1", "a2", "a3", "b1")
        assert [(await one.recv())["id"] for _ in range(3)] == ["a1", "a2", "a3"]
        assert (await two.recv())["id"] == "b1"
        await lab.done()


async def test_a_client_whose_last_request_is_refused_for_others_is_forgotten(
    tmp_path: Path,
) -> None:
    lab = HoldingLab(tmp_path, max_in_flight=1, max_queued_bytes=4000)
    async with lab.serving():
        one, two, three = [await lab.connect() for _ in range(3)]
        await send(one, "a1")
        await lab.until_seen("a1")
        await send(two, "b1", fill="x" * 3500)
        await until(lambda: lab.counts == (1, 1))
        await send(three, "c1", fill="x" * 1000)
        assert (await two.recv())["id"] == "b1"
        assert lab.counts == (1, 1) and lab.flow.n_clients == 2
        lab.free("a1", "c1")
        assert (await one.recv())["id"] == "a1" and (await three.recv())["id"] == "c1"
        await lab.done()


async def test_no_queue_at_all(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, max_in_flight_per_client=1, max_queued=0)
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await send(one, "a1", "a2")
        assert (await one.recv())["error"]["code"] == -31000
        await send(two, "b1")
        await lab.until_seen("a1", "b1")
        lab.free("a1", "b1")
        assert (await one.recv())["id"] == "a1" and (await two.recv())["id"] == "b1"
        await lab.done()


def cancelled(id: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": id},
    }


async def test_cancellations(tmp_path: Path) -> None:
    """What waits leaves the queue, and the server does not see it. What is in flight makes room."""
    lab = HoldingLab(tmp_path, max_in_flight=1)
    async with lab.serving():
        client = await lab.connect()
        await send(client, "a1", "a2", "a3")
        await until(lambda: lab.counts == (1, 2))
        await client.send(cancelled("a2"))
        await until(lambda: lab.counts == (1, 1))
        await send(client, "a2")  # the id is free again
        await until(lambda: lab.counts == (1, 2))
        await client.send(cancelled("a1"))
        await lab.until_seen("a1", "cancel", "a3")
        lab.free("a3", "a2")
        assert [(await client.recv())["id"] for _ in range(2)] == ["a3", "a2"]
        assert lab.order() == ["a1", "cancel", "a3", "a2"]
        await lab.done()


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_a_client_that_leaves(tmp_path: Path, isolation: str) -> None:
    """Its requests leave the queue, and those in flight make room."""
    lab = HoldingLab(tmp_path, isolation, max_in_flight=2)
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await send(one, "a1", "a2", "a3", "a4")
        await until(lambda: lab.counts == (2, 2) and len(lab.order()) == 2)
        await send(two, "b1", "b2")
        await until(lambda: lab.counts == (2, 4))
        for front in list(lab.fronts):
            if front.session.counters["requests_in_flight"] == 4:
                front.abort()
        await until(lambda: lab.counts == (2, 0))
        lab.free("b1", "b2")
        assert {(await two.recv())["id"] for _ in range(2)} == {"b1", "b2"}
        assert not {"a3", "a4"} & set(lab.order())
        await lab.done()


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_server_that_ends(tmp_path: Path, version: str) -> None:
    """Each request has one outcome, and none counts any more."""
    versions = MODERN if version == MODERN else ""
    lab = HoldingLab(tmp_path, max_in_flight=1, versions=versions)
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        await send(one, "a1", "a2")
        await lab.until_seen("a1")
        await send(two, "b1")
        await until(lambda: lab.counts == (1, 2))
        lab.free("exit")
        first = await one.recv()
        assert (first["id"], first["error"]["code"]) == ("a1", -31004)
        lab.free("a2", "b1")
        for client, name in ((one, "a2"), (two, "b1")):
            answer = await client.recv()
            assert answer["id"] == name
            assert "result" in answer  # of the next server
        await lab.done()


async def test_a_turn_survives_the_end_of_a_process(tmp_path: Path) -> None:
    """A request that waits for a process of a pool goes to another one when that has ended, at its
    turn, while there is no room because of the other clients."""
    limits: dict[str, Any] = {"tools": {"slow": 2}}
    lab = HoldingLab(tmp_path, "pool", versions=MODERN, size=2, **limits)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        await send(one, "quick", "more", tool="quick")  # the second one starts a second process
        await lab.until_seen("quick", "more")
        await until(lambda: all(process.upstream for process in lab.assignment.modern))
        _, second = [supervisor.status.pid for supervisor in lab.assignment.supervisors]
        lab.free("more")
        assert (await one.recv())["id"] == "more"
        await send(one, "a1", tool="slow")  # to the second process, which has less to do
        await lab.until_seen("quick", "more", "a1")
        await send(two, "b1", tool="slow")  # to the first one
        await lab.until_seen("quick", "more", "a1", "b1")
        await send(one, "a2", tool="slow")  # waits for the second one
        await until(lambda: lab.counts == (3, 1))
        lab.free("quick")
        assert (await one.recv())["id"] == "quick"
        await send(two, "b2", "b3", "b4", tool="slow")  # wait for the first one
        await until(lambda: lab.counts == (2, 4))
        os.kill(second, signal.SIGKILL)
        answer = await one.recv()
        assert (answer["id"], answer["error"]["code"]) == ("a1", -31004)
        await lab.until_seen("quick", "more", "a1", "b1", "a2")
        lab.free("b1", "b2", "b3", "b4", "a2")
        assert (await one.recv())["id"] == "a2"
        assert {(await two.recv())["id"] for _ in range(4)} == {"b1", "b2", "b3", "b4"}
        await lab.done()


async def test_the_order_of_a_client_survives_the_end_of_its_server(tmp_path: Path) -> None:
    """What it sends when the next server is there does not pass what has waited."""
    lab = HoldingLab(tmp_path, max_in_flight=1)
    async with lab.serving():
        client = await lab.connect()
        await send(client, "a1", "a2", "a3")
        await lab.until_seen("a1")
        await until(lambda: lab.counts == (1, 2))
        lab.free("exit")
        assert (await client.recv())["error"]["code"] == -31004
        await send(client, "a4")
        for name in ("a2", "a3", "a4"):
            await until(lambda name=name: lab.order()[-1] == name)
            lab.free(name)
            assert (await client.recv())["id"] == name
        assert lab.order() == ["a1", "a2", "a3", "a4"]
        await lab.done()


async def test_subscriptions_do_not_count(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, versions=MODERN, max_in_flight=1)
    async with lab.serving():
        client = await lab.connect(MODERN)
        listen = {"method": "subscriptions/listen", "params": {"notifications": {}}}
        await client.send({"jsonrpc": "2.0", "id": "l", **listen})
        assert (await client.recv())["id"] == "l"
        await send(client, "a1")
        lab.free("a1")
        assert (await client.recv())["id"] == "a1"
        await lab.done()


# -- over HTTP ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def over_http(lab: HoldingLab) -> AsyncIterator[Front]:
    config = lab.proxy.config
    lab.proxy = Proxy(
        ProxyConfig(backends=config.backends, listen=("http://127.0.0.1:0/mcp",), rate=config.rate)
    )
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        lab.proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    try:
        yield Front(lab, await listening)
    finally:
        task.cancel()
        await asyncio.wait((task,))


def modern(id: Any, tool: str, **arguments: Any) -> tuple[bytes, tuple[str, ...]]:
    body = Raw.text_of(Raw(None, None, MODERN), call(id, tool, **arguments))  # type: ignore[arg-type]
    fields = f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {tool}"
    return body.encode(), fields


async def test_statuses_in_sessions(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, max_in_flight=1, max_queued=0)
    async with over_http(lab) as front:
        session = f"Mcp-Session-Id: {await front.initialize()}"
        first = asyncio.ensure_future(front.post(call(1, "hold", **{"as": "a"}), session))
        await lab.until_seen("a")
        status, _, body = await front.post(call(2, "hold", **{"as": "b"}), session)
        assert (status, body["error"]["code"]) == (503, -31000)
        lab.free("a")
        assert (await first)[0] == 200
        await lab.done()


async def test_a_client_without_a_session_is_its_address(tmp_path: Path) -> None:
    """The requests of 2026-07-28 come one by one: those from one address are of one client."""
    lab = HoldingLab(tmp_path, versions=MODERN, max_in_flight_per_client=1, max_queued=1)
    async with over_http(lab) as front:
        posts = []
        for name in ("a", "b"):
            body, fields = modern(1, "hold", **{"as": name})
            posts.append(asyncio.ensure_future(front.post(body, *fields)))
            await until(lambda name=name: lab.counts == (1, name == "b"))
        body, fields = modern(1, "hold", **{"as": "c"})
        status, _, answer = await front.post(body, *fields)
        assert (status, answer["error"]["code"]) == (503, -31000)
        lab.free("a", "b")
        assert [one[0] for one in await asyncio.gather(*posts)] == [200, 200]
        assert lab.order() == ["a", "b"]
        await lab.done()


# -- rates -------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket() -> None:
    clock = Clock()
    rates = Rates(
        RateConfig(requests=2, burst=3),
        {b"vip": RateConfig(requests=100)},
        TokenBuckets(clock).delay,
    )
    assert [rates.delay_of("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.delay_of("b") == 0
    clock.now += 0.4
    assert rates.delay_of("a") == pytest.approx(0.1)
    clock.now += 0.1
    assert [rates.delay_of("a"), rates.delay_of("a")] == [0, 0.5]
    clock.now += 60
    assert [rates.delay_of("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert [rates.delay_of(b"vip") for _ in range(101)].count(0) == 100
    assert rates.delay_of(b"another") == 0
    unused = TokenBuckets(clock)
    unlimited = Rates(None, {b"slow": RateConfig(requests=1)}, unused.delay)
    assert [unlimited.delay_of("a") for _ in range(5)] == [0] * 5 and len(unused) == 0
    assert [unlimited.delay_of(b"slow") for _ in range(2)] == [0, 1]


def test_a_rate_holds_over_time() -> None:
    """Whenever a client comes, it has no more than the burst and the rate since then."""
    clock = Clock()
    rates = Rates(RateConfig(requests=10, burst=5), ask=TokenBuckets(clock).delay)
    passed = 0
    for i in range(10_000):
        clock.now += (i * 7919 % 13) / 1000
        passed += rates.delay_of("a") == 0
        assert passed <= 5 + 10 * (clock.now - 1000) + 1e-6
    assert passed >= 10 * (clock.now - 1000) * 0.98


def test_forgotten_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.transport.token_buckets.MAX_OWNERS", 3)
    assert MAX_OWNERS == 65536
    clock = Clock()
    buckets = TokenBuckets(clock)
    rates = Rates(RateConfig(requests=1), ask=buckets.delay)
    for key in "abc":
        assert rates.delay_of(key) == 0
    assert rates.delay_of("a") == 1  # it is remembered for longer than b now
    assert rates.delay_of("d") == 0 and len(buckets) == 3
    assert rates.delay_of("a") == 1
    assert rates.delay_of("b") == 0


def test_hosts() -> None:
    assert [host_of(one) for one in ("1.2.3.4:80", "[::1]:80", "::1", "1.2.3.4", "unix")] == [
        "1.2.3.4",
        "::1",
        "::1",
        "1.2.3.4",
        "unix",
    ]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_requests_beyond_a_rate(tmp_path: Path, version: str) -> None:
    versions = MODERN if version == MODERN else ""
    lab = HoldingLab(tmp_path, versions=versions, rate=RateConfig(requests=4, burst=3))
    assert lab.flow is None
    clock = Clock()
    rates = lab.proxy.rates = Rates(RateConfig(requests=4, burst=3), ask=TokenBuckets(clock).delay)
    for service in lab.proxy.services.values():
        service.rates = rates
    lab.free(*"abcde")
    async with lab.serving():
        client = await lab.connect(version)  # `initialize` is a request, too
        first = await lab.connect(version) if version == MODERN else None
        if first is not None:
            await send(first, "a")
            assert (await first.recv())["id"] == "a"
        await send(client, "b", "c")
        assert [(await client.recv())["id"] for _ in range(2)] == ["b", "c"]
        await send(client, "d")
        answer = await client.recv()
        assert answer["id"] == "d"
        assert answer["error"] == {
            "code": -31000,
            "message": "too many requests: the limit is a rate",
            "data": {"retryAfterMs": 250},
        }
        if version != MODERN:
            assert "result" in await client.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        clock.now += 0.25
        await send(client, "e")
        assert (await client.recv())["id"] == "e"
        assert sum(front.n_over_rate for front in lab.fronts) == 1


async def test_requests_beyond_a_rate_over_http(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, rate=RateConfig(requests=0.1, burst=2))
    async with over_http(lab) as front:
        session = f"Mcp-Session-Id: {await front.initialize()}"
        lab.free("a")
        assert (await front.post(call(1, "hold", **{"as": "a"}), session))[0] == 200
        status, fields, body = await front.post(call(2, "hold", **{"as": "b"}), session)
        assert (status, body["error"]["code"]) == (429, -31000)
        assert 9000 < body["error"]["data"]["retryAfterMs"] <= 10_000
        assert fields["retry-after"] == "10"
        # a further session is of the same address
        status, fields, body = await front.post(hello())
        assert (status, fields["retry-after"]) == (429, "10")
        assert json.dumps(body).count("rate") == 1


async def test_the_rate_counts_once_at_an_endpoint_of_several_servers(tmp_path: Path) -> None:
    lab = HoldingLab(tmp_path, rate=RateConfig(requests=0.001, burst=4))
    config = lab.proxy.config
    other = BackendConfig(target=lab.backend.target, name="c", isolation="shared", era="legacy")
    lab.proxy = Proxy(
        ProxyConfig(backends=(lab.backend, other), listen=config.listen, rate=config.rate)
    )
    lab.free("a", "b", "c")
    async with lab.serving():
        client = await lab.connect(None)
        await client.initialize()
        await send(client, "a", tool="b_hold")
        assert (await client.recv())["id"] == "a"
        await send(client, "b", tool="b_hold")
        assert (await client.recv())["id"] == "b"
        await send(client, "c", tool="b_hold")
        assert (await client.recv())["id"] == "c"
        await send(client, "d", tool="b_hold")
        assert (await client.recv())["error"]["message"].startswith("too many requests")


# -- configurations ----------------------------------------------------------------------------


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    text = """
[mcpServers.search]
command = "s"
[mcpServers.search.proxy.flow]
maxInFlight = 16
maxInFlightPerClient = 4
tools = { "crawl_*" = 2 }
maxQueued = 0
maxQueuedBytes = 5
[proxy]
rate = { requests = 20 }
slowClientTimeout = 10
"""
    path.write_text(text)
    config = load(path)
    assert config.backends[0].flow == FlowConfig(
        max_in_flight=16,
        max_in_flight_per_client=4,
        tools={"crawl_*": 2},
        max_queued=0,
        max_queued_bytes=5,
    )
    assert config.rate == RateConfig(requests=20, burst=20)
    assert config.slow_client_timeout == 10
    for old, new, place in (
        ("maxInFlight = 16", "maxInFlight = 0", "mcpServers.search.proxy.flow.maxInFlight"),
        ("requests = 20", "burst = 3", "proxy.rate"),
        ("maxQueued = 0", "queue = 0", "mcpServers.search.proxy.flow"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=re.escape(place)):
            load(path)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FlowConfig(max_in_flight=0), "at least 1"),
        (lambda: FlowConfig(tools={"a": 0}), "at least 1"),
        (lambda: FlowConfig(max_queued=-1), "negative"),
        (lambda: RateConfig(requests=0), "above 0"),
        (lambda: RateConfig(requests=1, burst=-1), "at least 1"),
    ],
)
def test_values_that_are_wrong(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
    assert RateConfig(requests=0.5).burst == 1 and RateConfig(requests=7.9).burst == 7
    assert not FlowConfig().is_on and FlowConfig(tools={"a": 1}).is_on
