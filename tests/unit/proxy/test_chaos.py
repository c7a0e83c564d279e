"""Many clients over WebSocket and HTTP, in both eras, while servers are killed under them, and the
configuration changes: a server is started anew, shown otherwise, added or removed. One server has
several addresses.

No answer reaches another client, each request has one outcome, and nothing is left at the end. The
audit log says of each call what its client saw: each tool is called once, by a name of its own.
Each client is a principal: else those of 2026-07-28 over HTTP are one client of a server's limits.
``WIRESPEED_CHAOS_SECONDS`` and ``WIRESPEED_CHAOS_CLIENTS`` say how long and how many; the defaults
are for every run of the suite. A run of more than 300 s needs ``-o faulthandler_timeout=0``, and
``-p no:logging``, because pytest keeps what is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from lab.addresses import Child
from lab.proxy import ENVELOPE, MODERN
from lab.raw import surroundings
from msgspec.structs import replace as replaced

from wirespeed import Client, Http, Stdio, WebSocket
from wirespeed.auth import hash_token
from wirespeed.errors import CallTimeout, RemoteError, WirespeedError
from wirespeed.litemcp import LiteClient
from wirespeed.protocol import codes
from wirespeed.proxy import (
    AuditConfig,
    BackendConfig,
    FlowConfig,
    PrincipalConfig,
    Proxy,
    ProxyConfig,
)

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

SECONDS = float(os.environ.get("WIRESPEED_CHAOS_SECONDS", "10"))
N_CLIENTS = int(os.environ.get("WIRESPEED_CHAOS_CLIENTS", "60"))
# Of one client: the seconds that a request may take. It covers restarts of the server.
PATIENCE = 60.0
RELOADS = 2.5  # seconds between two of them
# Resident memory that a run may add to what a shorter one before it has left behind: what the
# allocators keep of a busier moment. With 200 clients, 60 s after 8 s add 4 MiB.
MAX_GROWTH = 16 * 1024 * 1024

AUDIT = "audit.log"
# The server of each client, by its number. The last one is not there all of the time.
NAMES = ("one", "two", "three", "far", "one", "two", "three", "four", "five")

SERVER = """
import asyncio, os
from wirespeed import Context, Server

server = Server("chaos")

@server.add_middleware
async def by_any_name(request, call_next):
    if request.method == "tools/call":
        request = request.replace(name="echo")
    return await call_next(request)

@server.tool
async def echo(nonce: str, pause: float, size: int, ctx: Context) -> dict[str, object]:
    await ctx.progress(1, 2, nonce)
    if pause:
        await asyncio.sleep(pause)
    return {"nonce": nonce, "pid": os.getpid(), "fill": "x" * size}
"""


def token(name: str) -> str:
    """The token of a client."""
    return f"{name:->40}"


def target_of(url: str, n: int) -> Http | WebSocket:
    """The target of a client. Where there are fewer places than clients, no call waits for one."""
    if url.startswith("ws"):
        return WebSocket(url, token=token(str(n)))
    return Http(url, token=token(str(n)), restart=not url.endswith("/four"))


class Audited:
    """What the audit log says of each call, beside what its client saw.

    Attributes:
        lite: The answers that clients of LiteMCP got, by the name of the principal.
        compared: How many calls were compared.
        wrong: Where both differ.
    """

    def __init__(self, file: Path) -> None:
        self.lite: Counter[str] = Counter()
        self.compared = 0
        self.wrong: list[str] = []
        self._file, self._old = file, file.with_suffix(".1")
        self._lite_ok: Counter[str] = Counter()
        self._seen: dict[str, str | int] = {}
        self._noted: dict[str, dict[str, Any]] = {}
        # A call that its client gave up has any outcome in the log, or no line.
        self._given_up: dict[str, float] = {}

    def saw(self, call: str, outcome: str | int | None) -> None:
        """A client has seen the outcome of a call: "ok", the code of an error, or None if it has
        given up."""
        line = self._noted.pop(call, None)
        if line is not None:
            self._compare(call, outcome, line)
        elif outcome is None:
            self._given_up[call] = monotonic()
        else:
            self._seen[call] = outcome

    def turn(self, proxy: Proxy) -> None:
        """Read a file that is complete, or begin a new one."""
        if not self._old.exists():
            self._file.rename(self._old)
            proxy.reopen_logs()
        elif self._file.exists():
            self._read(self._old)
        while self._given_up:
            call, at = next(iter(self._given_up.items()))
            if monotonic() - at < 2 * PATIENCE:
                break
            del self._given_up[call]

    def end(self) -> None:
        """Compare what is left: the log has ended."""
        for file in (self._old, self._file):
            if file.exists():
                self._read(file)
        self.wrong += [f"{call} {outcome}: no line" for call, outcome in self._seen.items()]
        self.wrong += [f"no client has made {line}" for line in self._noted.values()]
        for name, n in self.lite.items():
            if self._lite_ok[name] < n:
                self.wrong.append(f"{name}: {n} answers, but {self._lite_ok[name]} lines")

    def _read(self, file: Path) -> None:
        for text in file.read_text().splitlines():
            line = json.loads(text)
            if "dropped" in line:
                self.wrong.append(text)
            elif line["event"] == "call":
                self._take(line)
        file.unlink()

    def _take(self, line: dict[str, Any]) -> None:
        who, call = line["principal"], line["tool"]
        if call == "echo":
            self._lite_ok[who] += line["outcome"] == "ok"
        elif call in self._seen:
            self._compare(call, self._seen.pop(call), line)
        elif call in self._given_up:
            del self._given_up[call]
            self._compare(call, None, line)
        else:
            if call in self._noted:
                self.wrong.append(f"twice: {line}")
            self._noted[call] = line

    def _compare(self, call: str, outcome: str | int | None, line: dict[str, Any]) -> None:
        self.compared += 1
        n = int(call.partition("/")[0])
        said = line.get("code") or line["outcome"]
        if (line["principal"], line["server"]) != (str(n), NAMES[n % len(NAMES)]):
            self.wrong.append(f"{call} of another client: {line}")
        if outcome is not None and said != outcome:
            self.wrong.append(f"{call} {outcome}: {line}")


class Chaos:
    """What the clients saw.

    ``enough``: What has to happen for the test to mean something. On a busy machine it takes more
    than ``seconds``, but at most `PATIENCE` more.
    """

    def __init__(self, seed: int, seconds: float, audited: Audited, **enough: int) -> None:
        self.audited = audited
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.pids: set[int] = set()
        self.wrong: list[str] = []
        self.enough = Counter(enough)
        self.until = asyncio.get_running_loop().time() + seconds

    @property
    def is_over(self) -> bool:
        late = asyncio.get_running_loop().time() - self.until
        return late >= PATIENCE or (late >= 0 and self.enough <= self.outcomes)

    async def client(self, n: int, url: str, era: Any) -> None:
        """Come and go, until the end."""
        while not self.is_over:
            try:
                async with Client(target_of(url, n), era=era) as client:
                    for _ in range(self.random.randrange(1, 6)):
                        nonces = [f"{n}/{k}/{self.random.random()}" for k in range(8)]
                        await asyncio.gather(*(self.ask(client, nonce) for nonce in nonces))
                    if self.random.random() < 0.3:  # leave with requests in flight
                        nonce = f"{n}/left/{self.random.random()}"
                        left = asyncio.ensure_future(self.ask(client, nonce, pause=5.0))
                        await asyncio.sleep(0.02)
                        left.cancel()
                        await asyncio.wait((left,))
            except WirespeedError as exc:
                self.outcomes[f"handshake {getattr(exc, 'code', type(exc).__name__)}"] += 1
                await asyncio.sleep(0.1)  # its server may be one that is not there now

    async def ask(self, client: Client, nonce: str, pause: float | None = None) -> None:
        """One request, which has one outcome."""
        if pause is None:
            pause = self.random.choice((0.0, 0.0, 0.01, 0.05))
        size = self.random.choice((0, 10, 1000, 100_000))
        cancels = self.random.random() < 0.1
        heard: list[str] = []
        seen: str | int | None = None
        try:
            answer = await client.call_tool(
                nonce,
                {"nonce": nonce, "pause": pause, "size": size},
                timeout=0.005 if cancels else PATIENCE,
                on_progress=lambda done, total, text: heard.append(str(text)),
            )
        except CallTimeout:
            self.outcomes["cancelled" if cancels else "no outcome"] += 1
        except RemoteError as exc:
            if exc.code != codes.SHUTTING_DOWN:  # answered before it is looked at
                seen = exc.code
            self.outcomes[str(exc.code)] += 1
        except WirespeedError as exc:
            self.outcomes[type(exc).__name__] += 1
        else:
            seen = "ok"
            self.outcomes["answered"] += 1
            got = answer.structured_content or {}
            if got.get("nonce") != nonce or len(str(got.get("fill"))) != size:
                self.wrong.append(f"{nonce} got {got.get('nonce')}")
            self.pids.add(int(got["pid"]))
        finally:  # a client that leaves cancels it
            self.audited.saw(nonce, seen)
        if any(text != nonce for text in heard):
            self.wrong.append(f"{nonce} heard {heard}")

    async def lite_client(self, n: int, url: str) -> None:
        """The same for a client of LiteMCP, whose tool has one name."""
        while not self.is_over:
            try:
                async with LiteClient(url, token=token(f"lite{n}"), timeout=PATIENCE) as client:
                    for k in range(self.random.randrange(1, 6)):
                        nonce = f"lite {n}/{k}/{self.random.random()}"
                        answer = await client.call(nonce, 0.01, 10)
                        self.outcomes["lite error" if answer.error else "lite answered"] += 1
                        self.audited.lite[f"lite{n}"] += not answer.error
                        if not answer.error and nonce not in answer.text:
                            self.wrong.append(f"{nonce} got {answer.text}")
            except CallTimeout:
                self.outcomes["no outcome"] += 1
            except WirespeedError as exc:
                self.outcomes[f"lite {type(exc).__name__}"] += 1

    async def killer(self) -> None:
        """Kill two servers each second."""
        while not self.is_over:
            await asyncio.sleep(0.5)
            alive = sorted(self.pids & children())
            if alive:
                with contextlib.suppress(ProcessLookupError):  # it has ended a moment ago
                    os.kill(self.random.choice(alive), signal.SIGKILL)
                    self.outcomes["kills"] += 1

    async def reloader(self, proxy: Proxy) -> None:
        """Start a server anew, show another one otherwise, and add or remove a third one, in each
        reload."""
        loop = asyncio.get_running_loop()
        due = loop.time() + RELOADS
        while due < self.until:
            await asyncio.sleep(due - loop.time())
            due += RELOADS
            self.outcomes["reloads"] += 1
            mark = str(self.outcomes["reloads"])
            one, two, three, four, far, *fifth = proxy.config.backends
            assert isinstance(one.target, Stdio)
            target = replaced(one.target, env={**(one.target.env or {}), "MARK": mark})
            backends = [replace(one, target=target), replace(two, prefix=f"{mark}_"), three, four]
            backends.append(replace(far, urls=(*far.urls[1:], far.urls[0])))
            if not fifth:
                backends.append(replace(three, name="five", isolation="shared", size=1))
            changes = await proxy.reload(replace(proxy.config, backends=tuple(backends)))
            assert (changes.changed, changes.shown) == (("one",), ("two",))
            assert changes.addressed == ("far",)
            assert (changes.added or changes.removed) == ("five",)

    async def auditor(self, proxy: Proxy) -> None:
        """Compare the audit log with what the clients saw, and begin a new file each second."""
        while not self.is_over:
            await asyncio.sleep(1.0)
            self.audited.turn(proxy)

    async def slow_reader(self, http: str) -> None:
        """Ask for long answers, read none of them, and leave."""
        host, port = http.removeprefix("http://").split(":")
        arguments = {"nonce": "slow", "pause": 0, "size": 100_000}
        call = {"name": "echo", "arguments": arguments, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        head = (
            f"POST /servers/two HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"Authorization: Bearer {token('slow')}\r\n"
            f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n\r\n"
        )
        while not self.is_over:
            _, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(20 * (head + body).encode())
            await asyncio.sleep(self.random.uniform(0.2, 1.0))
            writer.transport.abort()
            self.outcomes["slow readers"] += 1


@contextlib.asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[tuple[str, str, Proxy]]:
    script = folder / "server.py"
    script.write_text(f"{SERVER}\nserver.run()\n")
    served = folder / "served.py"
    served.write_text(SERVER)
    addresses = [Child(str(served)) for _ in range(3)]
    keeping = [asyncio.ensure_future(one.run()) for one in addresses]
    target = Stdio(sys.executable, [str(script)], env=surroundings())
    backends = (
        BackendConfig(target=target, name="one", isolation="shared", lite=("echo",)),
        BackendConfig(
            target=target,
            name="two",
            isolation="shared",
            flow=FlowConfig(max_in_flight=16, max_in_flight_per_client=12, tools={"e*": 12}),
        ),
        # clients of legacy eras are translated
        BackendConfig(target=target, name="three", isolation="pool", size=2, era="modern"),
        BackendConfig(
            target=target, name="four", isolation="session", max_clients=4, lite=("echo",)
        ),
        BackendConfig(
            target=Http(addresses[0].url), urls=tuple(one.url for one in addresses), name="far"
        ),
    )
    found: list[str] = []
    ready = asyncio.Event()

    def on_listening(urls: Any) -> None:
        found.append(urls[0].rpartition("/")[0] if not urls[0].endswith("/mcp") else urls[0][:-4])
        if len(found) == 2:
            ready.set()

    listen = ("ws://127.0.0.1:0/mcp", "http://127.0.0.1:0/mcp")
    names = (*map(str, range(N_CLIENTS)), *(f"lite{n}" for n in range(4)), "slow")
    principals = tuple(
        PrincipalConfig(name=name, token_sha256=hash_token(token(name)).removeprefix("sha256:"))
        for name in names
    )
    audit = AuditConfig(to=str(folder / AUDIT), events=("call", "session", "reload"))
    proxy = Proxy(ProxyConfig(backends=backends, listen=listen, principals=principals, audit=audit))
    serving = asyncio.ensure_future(proxy.serve(on_listening=on_listening))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    found.sort(reverse=True)  # ws: before http:
    try:
        yield found[0], found[1], proxy
    finally:
        serving.cancel()
        for task in keeping:
            task.cancel()
        await asyncio.wait((serving, *keeping))


def children() -> set[int]:
    """The child processes of this process, but for those that have ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(stat.parent.name))
    return found


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """pytest keeps each record of a log, with the exception in it, its frames and all that these
    hold: some KiB for each of thousands, which are no memory of the proxy."""
    logger, nowhere = logging.getLogger("wirespeed"), logging.NullHandler()
    logger.addHandler(nowhere)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(nowhere)


def test_chaos(tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with unheard(), asyncio.Runner(loop_factory=loop_factory) as runner:  # longer than other tests
        runner.run(run_chaos(tmp_path))


def resident() -> int:
    """The bytes of memory of this process, without what its allocator can give back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run_chaos(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    failed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failed.append(what))
    n_children, n_tasks = children(), len(asyncio.all_tasks())
    n_open = len(os.listdir("/proc/self/fd"))
    await spell(tmp_path, Chaos(seed, min(SECONDS, 8.0), Audited(tmp_path / AUDIT)))
    before = resident()
    enough = {"answered": 5 * N_CLIENTS, "lite answered": 6, "kills": int(SECONDS / 2)}
    chaos = Chaos(seed + 1, SECONDS, Audited(tmp_path / AUDIT), **enough)
    await spell(tmp_path, chaos)
    assert not failed
    assert chaos.enough <= chaos.outcomes
    assert chaos.outcomes["reloads"] >= int(SECONDS / RELOADS) - 2
    growth = resident() - before
    print(f"growth: {growth / 1024 / 1024:.1f} MiB")
    assert growth < MAX_GROWTH
    assert children() == n_children
    assert len(asyncio.all_tasks()) == n_tasks
    # uvloop keeps a few descriptors that it has opened once
    assert len(os.listdir("/proc/self/fd")) <= n_open + 5


async def spell(folder: Path, chaos: Chaos) -> None:
    async with proxied(folder) as (ws, http, proxy):
        tasks = [
            asyncio.ensure_future(
                chaos.client(
                    n,
                    f"{ws if n % 2 else http}/servers/{NAMES[n % len(NAMES)]}",
                    # over HTTP, a server for each client has clients of legacy eras only
                    "legacy" if NAMES[n % len(NAMES)] == "four" or n % 3 == 0 else "modern",
                )
            )
            for n in range(N_CLIENTS)
        ]
        others = (
            chaos.killer(),
            chaos.reloader(proxy),
            chaos.auditor(proxy),
            *(chaos.slow_reader(http) for _ in range(3)),
            *(
                chaos.lite_client(n, f"{url}/lite/{name}/echo")
                for n, (url, name) in enumerate(product((ws, http), ("one", "four")))
            ),
        )
        await asyncio.gather(*tasks, *others)
        flow: Any = proxy.services["two"].flow
        async with asyncio.timeout(20):  # what the slow readers have left is cancelled
            while (flow.n_in_flight, flow.n_queued, flow.n_queued_bytes, flow.n_clients) != (
                (0, 0, 0, 0)
            ):
                await asyncio.sleep(0.05)
    audited = chaos.audited
    audited.end()
    print(dict(chaos.outcomes), f"{audited.compared} calls are in the audit log")
    assert not chaos.wrong
    assert not audited.wrong, audited.wrong[:20]
    assert audited.compared >= chaos.outcomes["answered"]
    assert chaos.outcomes["no outcome"] == 0
