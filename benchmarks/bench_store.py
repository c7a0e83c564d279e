"""The cost of the store of several hosts: the figures of `docs/explanation/capacity.md`.

``operations``: for each operation of a host, the processor time of the store and of the host, how
many a second one store does, and the bytes that stay. Twenty are asked at once, as a busy host
does.

``sessions``: many sessions that do nothing, opened at two hosts: the memory of the store and of
the hosts, and the time until all records are written. Then one host is killed and started again:
its start, and the first requests of a thousand of its sessions, which it adopts.

``calls``: calls of a session at its host, and the same passed on by the other host, one and some
at a time; and the same load on one host and on two. The processor time of the hosts.

``rates``: three hosts of the proxy get more requests of one client than its rate allows, evenly
spread: how many pass, of how many may.

Needs a ``redis-server`` (or $WIRESPEED_REDIS), and Linux. ``python benchmarks/bench_store.py
[operations|sessions|calls|rates] [--sessions N] [--json FILE]``.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from statistics import median
from typing import Any

from bench_footprint import resident
from redis import Redis

from wirespeed import HttpOptions, Server
from wirespeed.cluster import Cluster, RedisEventStore, RedisTaskStore, RedisTokenBuckets
from wirespeed.cluster.nonces import RedisSingleUse
from wirespeed.cluster.presence import Presence
from wirespeed.cluster.records import SessionRecord, SessionRecords, SessionState
from wirespeed.tasks.model import Task, new_task_id
from wirespeed.transport.http.members import MemberProofs
from wirespeed.transport.net.host_links import HostLinks

SECRET = b"of a benchmark only"
AT_ONCE = 20
N = 20_000  # operations of a kind
ROUNDS = 5
HOSTS = (3, 10, 30, 100, 300)
CONNECTIONS = 32
RESUMED = 1_000
CALLS = 40_000  # of one measurement
OFFERED = 5_000  # requests a second
RATE = 4_000  # of them that may pass
BURST = 4_000  # a second of it: what no client asks for in time is not lost
RATE_SECONDS = 10

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}},
    "clientInfo": {"name": "example-client", "version": "1.0.0"},
}
MESSAGES = tuple(
    json.dumps({"jsonrpc": "2.0", **one}).encode()
    for one in (
        {"id": 0, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
    )
)
LEGACY = "MCP-Protocol-Version: 2025-11-25\r\n"
MODERN = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: who\r\n"
MODERN_CALL = {
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "who",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


class Store:
    """A store of this machine, which keeps nothing on disk."""

    def __init__(self) -> None:
        program = os.environ.get("WIRESPEED_REDIS") or shutil.which("redis-server")
        if program is None:
            sys.exit("there is no redis-server")
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                *("--dir", self._folder.name),
            ],
            stdout=subprocess.DEVNULL,
        )
        self.client = Redis(port=self.port)
        until = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                break
            except Exception:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def seconds(self) -> float:
        """The processor time of the thread that runs commands."""
        found: Any = self.client.info("cpu")
        return sum(float(found[f"used_cpu_{one}_main_thread"]) for one in ("user", "sys"))

    @property
    def used(self) -> int:
        """The bytes of the data."""
        found: Any = self.client.info("memory")
        return int(found["used_memory"])

    @property
    def resident(self) -> int:
        return resident(self._process.pid)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- operations ------------------------------------------------------------------------------------


async def measured(
    store: Store, operation: Callable[[int], Awaitable[Any]], n: int = N
) -> dict[str, float]:
    """Run an operation n times, some at once."""
    numbers = iter(range(n))

    async def work() -> None:
        for i in numbers:
            await operation(i)

    used, seconds, own, began = store.used, store.seconds, own_seconds(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    elapsed = time.perf_counter() - began
    taken = store.seconds - seconds
    return {
        "store_us": round(taken / n * 1e6, 2),
        "host_us": round((own_seconds() - own) / n * 1e6, 2),
        "a_second": round(n / taken),
        "here_a_second": round(n / elapsed),
        "bytes": round((store.used - used) / n),
    }


async def operations(store: Store) -> dict[str, dict[str, float]]:
    """Return the medians of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        store.client.flushall()
        rounds.append(await one_round(store))
    return {
        name: {key: median(one[name][key] for one in rounds) for key in figures}
        for name, figures in rounds[0].items()
    }


async def one_round(store: Store) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    cluster = Cluster(store.url, store_timeout=30.0)

    async def take(name: str, operation: Callable[[int], Awaitable[Any]], n: int = N) -> None:
        found[name] = await measured(store, operation, n)
        print(f"{name:32} {found[name]}", file=sys.stderr)

    async with cluster:
        records = SessionRecords(cluster, "mill", b"k" * 32)
        await records.find("none")
        record = SessionRecord("a@00000000.0", 0, SessionState(1, b"w" * 32, "s" * 22, MESSAGES))
        ids = [f"a.0.{i:032x}" for i in range(N)]
        await take("session: write", lambda i: records.save(ids[i], record, 2250.0))
        await take("session: renew", lambda i: records.save(ids[i], record, 2250.0))
        await take("session: find", lambda i: records.find(ids[i]))
        await take("session: take over", lambda i: records.take(ids[i], record, "b@00000000.0"))
        store.client.flushall()
        links = HostLinks(MemberProofs(b"k" * 32), far=True)
        for n in HOSTS:
            base = cluster.base("sessions", f"mill{n}")
            hosts = [
                Presence(
                    *(cluster, base, f"http://10.0.{i // 250}.{i % 250}:8000"),
                    links,
                    without_store=60.0,
                    on_over=lambda: None,
                    on_data_lost=lambda: None,
                )
                for i in range(n)
            ]
            for i, one in enumerate(hosts):
                one.begin(f"host{i}")
                await one.renew()

            def renew(i: int, hosts: list[Presence] = hosts) -> Awaitable[None]:
                return hosts[i % len(hosts)].renew()

            await take(f"entry of a host, of {n}", renew, max(2 * n, 2000))
        store.client.flushall()
        events = RedisEventStore(cluster, "mill", max_bytes=1 << 40)
        for size in (200, 2000):

            def append(i: int, size: int = size) -> Awaitable[None]:
                return events.append(f"{size}-{i % 2000}", i // 2000 + 1, b"x" * size)

            await take(f"event of {size} bytes", append)
        store.client.flushall()
        once = RedisSingleUse(cluster, "mill")
        await take("single use", lambda i: once.use("state", i.to_bytes(16, "big"), 600))
        store.client.flushall()
        buckets = RedisTokenBuckets(cluster, "mill", secret=SECRET)
        await take("token of a rate", lambda i: buckets.delay(f"user{i}", 0.001, 10))
        store.client.flushall()
        tasks = RedisTaskStore(cluster, "mill", secret=SECRET, max_tasks=10**9)
        await tasks.open()
        owners = [tasks.owner_of(b"%d" % i) for i in range(N)]
        made = [
            Task(id=new_task_id(), owner=owners[i], created=1000, updated=1000) for i in range(N)
        ]
        await take("task: create", lambda i: tasks.create(made[i]))
        await take("task: read", lambda i: tasks.get(made[i].id))
        await tasks.close()
    return found


# -- sessions --------------------------------------------------------------------------------------


def host(name: str, port: int, store: str) -> None:
    """Be a host. It writes a line when it listens."""
    server = Server("mill", cluster=store, state_secret=SECRET)

    @server.tool
    async def who() -> str:
        return name

    options = HttpOptions(
        name=name,
        host_url=f"http://127.0.0.1:{port}",
        response="json",
        max_sessions=1_000_000,
        max_sessions_per_principal=1_000_000,
        session_ttl=7200,
    )

    def listening(urls: tuple[str, ...]) -> None:
        print("ready", flush=True)

    server.run(f"http://127.0.0.1:{port}/mcp", http=options, on_listening=listening)


class Host:
    """A host that runs."""

    def __init__(self, name: str, port: int, store: str) -> None:
        self.port = port
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, __file__, "host", name, str(port), store],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.started = time.perf_counter() - began

    @property
    def resident(self) -> int:
        return resident(self.process.pid)

    @property
    def seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Connection:
    """A connection of HTTP, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(
        self, message: dict[str, Any], session: str = "", fields: str = LEGACY
    ) -> tuple[int, str, bytes]:
        """Return the status, the session's id and the body."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{fields}"
        )
        if session:
            head += f"Mcp-Session-Id: {session}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        text = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = text.split("\r\n")
        pairs = (line.partition(": ") for line in lines if line)
        said = {name.lower(): value for name, _, value in pairs}
        found = await self._reader.readexactly(int(said.get("content-length", 0)))
        return int(status.split()[1]), said.get("mcp-session-id", ""), found

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connections(port: int, n: int) -> AsyncIterator[list[Connection]]:
    made = [Connection(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(n)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


async def opened(port: int, n: int) -> list[str]:
    """Open n sessions. Return their ids. A host that is too busy to hear of the store in time
    answers 503, and the client asks again."""
    found: list[str] = []
    numbers = iter(range(n))

    async def post(connection: Connection, message: dict[str, Any], session: str = "") -> str:
        while True:
            status, opened, _ = await connection.post(message, session)
            if status in (200, 202):
                return opened
            assert status == 503, status
            await asyncio.sleep(0.1)

    async def work(connection: Connection) -> None:
        for _ in numbers:
            hello = {"id": 0, "method": "initialize", "params": HELLO}
            session = await post(connection, hello)
            await post(connection, {"method": "notifications/initialized"}, session)
            found.append(session)

    async with connections(port, CONNECTIONS) as made:
        await asyncio.gather(*map(work, made))
    return found


async def called(port: int, sessions: list[str]) -> dict[str, float]:
    """Call a tool once in each session."""
    left = iter(sessions)
    times: list[float] = []

    async def work(connection: Connection) -> None:
        for session in left:
            began = time.perf_counter()
            call = {"id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
            status, _, body = await connection.post(call, session)
            assert status == 200 and b'"text"' in body, (status, body)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with connections(port, 8) as made:
        await asyncio.gather(*map(work, made))
    elapsed = time.perf_counter() - began
    times.sort()
    return {
        "seconds": round(elapsed, 3),
        "p50_ms": round(times[len(times) // 2] * 1e3, 2),
        "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 2),
    }


async def sessions(store: Store, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {"sessions": n}
    hosts = [Host(name, free_port(), store.url) for name in "ab"]
    try:
        await opened(hosts[0].port, 2000)  # pools are full then
        await opened(hosts[1].port, 2000)
        await asyncio.sleep(3)
        used, in_store = [one.resident for one in hosts], store.used
        own = [one.seconds for one in hosts]
        taken, began = store.seconds, time.perf_counter()
        ids = await asyncio.gather(*(opened(one.port, n // 2) for one in hosts))
        found["opened_seconds"] = round(time.perf_counter() - began, 1)
        while store.client.dbsize() < n + 4000:
            await asyncio.sleep(0.05)
        found["written_seconds"] = round(time.perf_counter() - began, 1)
        found["opened_host_us"] = [
            round((one.seconds - before) / (n // 2) * 1e6)
            for one, before in zip(hosts, own, strict=True)
        ]
        found["opened_store_us"] = round((store.seconds - taken) / n * 1e6, 1)
        await asyncio.sleep(3)
        found["store_bytes"] = round((store.used - in_store) / n)
        found["store_resident_mib"] = round(store.resident / 2**20)
        found["host_bytes"] = [
            round((one.resident - before) / (n // 2))
            for one, before in zip(hosts, used, strict=True)
        ]
        found["host_resident_mib"] = [round(one.resident / 2**20) for one in hosts]
        taken, own, began = store.seconds, [one.seconds for one in hosts], time.perf_counter()
        await asyncio.sleep(10)
        elapsed = time.perf_counter() - began
        found["idle_store_percent"] = round((store.seconds - taken) / elapsed * 100, 2)
        found["idle_host_percent"] = [
            round((one.seconds - before) / elapsed * 100, 2)
            for one, before in zip(hosts, own, strict=True)
        ]
        port = hosts[0].port
        hosts[0].end(signal.SIGKILL)
        hosts[0] = Host("a", port, store.url)
        found["restart_seconds"] = round(hosts[0].started, 2)
        found["restart_resident_mib"] = round(hosts[0].resident / 2**20)
        await asyncio.sleep(1)
        some = random.sample(ids[0], RESUMED)
        for name in ("first", "second"):
            before, taken = hosts[0].seconds, store.seconds
            times = await called(port, some)
            times["host_us"] = round((hosts[0].seconds - before) / RESUMED * 1e6)
            times["store_us"] = round((store.seconds - taken) / RESUMED * 1e6, 1)
            found[f"{name}_calls"] = times
    finally:
        for one in hosts:
            one.end(signal.SIGKILL)
    return found


# -- calls -----------------------------------------------------------------------------------------


async def calls_of(hosts: list[Host], ports: list[int], ids: list[str]) -> dict[str, float]:
    """Call a tool in sessions, each by a connection of its own to one of some ports, all at once.
    Return microseconds of a call: of each host, of both, and the median of the client."""
    before, times = [one.seconds for one in hosts], list[float]()
    call = {"id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}

    async def work(connection: Connection, session: str) -> None:
        for _ in range(CALLS // len(ids)):
            began = time.perf_counter()
            status, _, body = await connection.post(call, session)
            assert status == 200 and b'"text"' in body, (status, body)
            times.append(time.perf_counter() - began)

    async with AsyncExitStack() as stack:
        made = []
        for i in range(len(ids)):
            made += await stack.enter_async_context(connections(ports[i % len(ports)], 1))
        await asyncio.gather(*map(work, made, ids))
    own = [(one.seconds - was) / len(times) * 1e6 for one, was in zip(hosts, before, strict=True)]
    return {"own": own[0], "other": own[1], "both": sum(own), "p50": median(times) * 1e6}


async def calls(store: Store) -> dict[str, Any]:
    """Return the medians of some rounds, in which all take turns."""
    hosts = [Host(name, free_port(), store.url) for name in "ab"]
    one, two = (host.port for host in hosts)
    rounds: list[dict[str, dict[str, float]]] = []
    try:
        await asyncio.sleep(2)  # they know each other
        ids = await asyncio.gather(*(opened(port, 128) for port in (one, two)))
        mixed = [session for pair in zip(*ids, strict=True) for session in pair]
        for _ in range(ROUNDS):
            found = {}
            for n in (1, 16):
                found[f"at its host, {n} at a time"] = await calls_of(hosts, [one], ids[0][:n])
                found[f"passed on, {n} at a time"] = await calls_of(hosts, [two], ids[0][:n])
            for n in (32, 128):
                found[f"one host, {n} at a time"] = await calls_of(hosts, [one], ids[0][:n])
                found[f"two hosts, {n} at a time"] = await calls_of(hosts, [one, two], mixed[:n])
            rounds.append(found)
    finally:
        for host_ in hosts:
            host_.end(signal.SIGKILL)
    medians: dict[str, Any] = {
        name: {key: round(median(one[name][key] for one in rounds), 1) for key in figures}
        for name, figures in rounds[0].items()
    }
    names = list(medians)
    for name, other in zip(names[::2], names[1::2], strict=True):
        factors = sorted(one[other]["both"] / one[name]["both"] for one in rounds)
        medians[other]["factor"] = [
            round(one, 2) for one in (median(factors), *factors[:: len(factors) - 1])
        ]
    return medians


# -- rates -----------------------------------------------------------------------------------------


def tool() -> None:
    """Be the server behind a proxy."""
    server = Server("mill")

    @server.tool
    async def who() -> str:
        return "mill"

    server.run()


@contextmanager
def proxies(store: str, names: str) -> Iterator[list[int]]:
    """Hosts of one proxy, each with the server: their ports."""
    ports = [free_port() for _ in names]
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, port in zip(names, ports, strict=True):
                own = {
                    "name": name,
                    "listen": [f"http://127.0.0.1:{port}/mcp"],
                    "rate": {"requests": RATE, "burst": BURST},
                    "cluster": {"url": store, "secret": SECRET.decode(), "hosts": len(names)},
                }
                server = {"command": sys.executable, "args": [__file__, "tool"]}
                file = os.path.join(folder, name)
                with open(file, "w") as text:
                    json.dump({"mcpServers": {"mill": server}, "proxy": own}, text)
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "wirespeed", "proxy", "--config", file],
                        stdin=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
            yield ports
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


async def passed(ports: list[int]) -> dict[str, float]:
    """Send requests evenly, to one port after another. Return how many had passed at the end, and
    how many may have."""
    numbers = iter(range(OFFERED * RATE_SECONDS))
    statuses: Counter[int] = Counter()

    async def work(connection: Connection, began: float) -> None:
        for i in numbers:
            await asyncio.sleep(began + i / OFFERED - time.perf_counter())
            statuses[(await connection.post(MODERN_CALL, fields=MODERN))[0]] += 1

    async with AsyncExitStack() as stack:
        made = []
        for port in CONNECTIONS * ports:
            made += await stack.enter_async_context(connections(port, 1))
        began = time.perf_counter()
        await asyncio.gather(*(work(one, began) for one in made))
        elapsed = time.perf_counter() - began
    assert statuses.keys() <= {200, 429}, statuses
    may = BURST + RATE * elapsed
    return {
        "offered_a_second": round(statuses.total() / elapsed),
        "passed": statuses[200],
        "may_pass": round(may),
        "off_percent": round((statuses[200] / may - 1) * 100, 2),
    }


async def rates(store: Store) -> list[dict[str, float]]:
    """Return what each of some rounds has found."""
    with proxies(store.url, "abc") as ports:
        await ready(ports)
        found = []
        for _ in range(ROUNDS):
            found.append(await passed(ports))
            await asyncio.sleep(2)  # the burst is there again
    return found


async def ready(ports: list[int]) -> None:
    """Wait until hosts answer."""
    for port in ports:
        until = time.monotonic() + 20
        while True:
            with suppress(OSError):
                async with connections(port, 1) as (one,):
                    if (await one.post(MODERN_CALL, fields=MODERN))[0] == 200:
                        break
            assert time.monotonic() < until
            await asyncio.sleep(0.1)


def main() -> None:
    logging.getLogger("wirespeed").setLevel(logging.ERROR)  # hosts that are renewed late
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("operations", "sessions", "calls", "rates"))
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name, measure in (
        ("operations", operations),
        ("sessions", lambda store: sessions(store, given.sessions)),
        ("calls", calls),
        ("rates", rates),
    ):
        if given.part in (None, name):
            store = Store()
            try:
                found["redis"] = store.client.info("server")["redis_version"]
                found[name] = asyncio.run(measure(store))
            finally:
                store.end()
    text = json.dumps(found, indent=2)
    print(text)
    if given.json:
        with open(given.json, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        host(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["tool"]:
        tool()
    else:
        main()
