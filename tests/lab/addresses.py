"""A server at several addresses: in this process, each behind a gate that can fail, or in processes
of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

from lab.gateway import Gateway
from lab.process import free_port
from lab.proxy import delayed, until

from wirespeed import Client, Http, Server, Socket, WebSocket, serve
from wirespeed.config import ServerUrl
from wirespeed.proxy import BackendConfig, BreakerConfig, HealthConfig
from wirespeed.proxy.isolation.address_pool import AddressPool
from wirespeed.server.context import Context

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\n\r\nbusy"
)


class Place:
    """One address.

    Attributes:
        url: What clients connect to.
        name: What its tools answer.
        seen: The calls and reads that it had.
        go: Whether its calls are answered.

    Args:
        ip, port: Where clients connect to; 0: any port.
        hosts: What the Host header may be, where it is not this address.
    """

    def __init__(
        self,
        name: str,
        scheme: str = "http",
        *,
        ip: str = "127.0.0.1",
        port: int = 0,
        hosts: list[str] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.scheme = scheme
        self.url = ""
        self.ip = ip
        self.port = port
        self._hosts = hosts
        self.seen: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.go.set()
        self.server = Server(name, version="1", **options)
        self._busy = self._silent = False
        self._open: set[asyncio.StreamWriter] = set()
        self._gate: asyncio.Server | None = None
        self._behind = 0

        @self.server.tool
        async def who(seconds: float = 0) -> str:
            self.seen["who"] += 1
            await asyncio.sleep(seconds)
            await self.go.wait()
            return name

        @self.server.tool(annotations={"readOnlyHint": True})
        async def look() -> str:
            self.seen["look"] += 1
            await self.go.wait()
            return name

        @self.server.tool
        async def session(ctx: Context) -> str:
            return f"{name} {ctx.session_id}"

        @self.server.tool
        async def work(ctx: Context) -> str:
            await ctx.progress(1, 2)
            return name

        @self.server.tool
        async def host(ctx: Context) -> str:
            return ctx.headers.get("host", "")

        @self.server.tool
        async def user(ctx: Context) -> str:
            return ctx.headers.get("x-user", "")

        @self.server.resource("lab://name")
        async def read() -> str:
            self.seen["read"] += 1
            await self.go.wait()
            return name

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Place]:
        """Serve meanwhile, behind a gate that lets everything pass."""
        found: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        path = "" if self.scheme == "tcp" else "/mcp"
        task = asyncio.ensure_future(
            serve(
                f"{self.scheme}://127.0.0.1:0{path}",
                self.server,
                hosts=self._hosts,
                on_listening=found.set_result,
            )
        )
        await asyncio.wait((task, found), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        self._behind = int(found.result()[0].split(":")[2].removesuffix("/mcp"))
        await self.open()
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        self.url = f"{self.scheme}://{host}:{self.port}{path}"
        try:
            yield self
        finally:
            self.go.set()
            await self.close()
            task.cancel()
            await asyncio.wait((task,))

    async def open(self) -> None:
        """Accept connections, at the port that it had before."""
        self._gate = await asyncio.start_server(self._accepted, self.ip, self.port)
        self.port = self._gate.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse connections, and break those that are open."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._break()

    def busy(self, is_busy: bool = True) -> None:
        """Answer each request with 503 from now on, or no more."""
        self._busy = is_busy
        self._break()

    def freeze(self, is_silent: bool = True, *, breaks: bool = True) -> None:
        """Pass nothing on from now on, or again. ``breaks``: Whether what was open is broken."""
        self._silent = is_silent
        if not is_silent and breaks:
            self._break()

    def _break(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self._busy:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(BUSY)
                await writer.drain()
                return
            there, here = await asyncio.open_connection("127.0.0.1", self._behind)
            self._open.add(here)
            try:
                passing = [
                    asyncio.ensure_future(self._pass(reader, here)),
                    asyncio.ensure_future(self._pass(there, writer)),
                ]
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                for task in passing:
                    task.cancel()
                await asyncio.wait(passing)
            finally:
                self._open.discard(here)
                here.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                while self._silent:
                    await asyncio.sleep(0.01)
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def places(
    names: str = "abc", scheme: str = "http", **options: Any
) -> AsyncIterator[list[Place]]:
    """Addresses with these names, of one letter each. Options are those of `Server`."""
    async with contextlib.AsyncExitStack() as stack:
        found = [Place(name, scheme, **options) for name in names]
        for one in found:
            await stack.enter_async_context(one.serving())
        yield found


def backend(
    places: Iterable[Any],
    *urls: ServerUrl,
    asks: float = 0.5,
    answers: float = 1.5,
    **options: Any,
) -> BackendConfig:
    """The server at these addresses. Faults are noticed and forgotten soon. ``urls``: Those of the
    addresses, if they have weights. ``asks``: Seconds of silence after which one is asked; a test
    that counts where requests go has no questions of the proxy among them. ``answers``: Seconds
    after which one that does not answer gets no requests, as may be on a busy machine."""
    given = urls or tuple(ServerUrl(place.url) for place in places)
    first = given[0].url
    kind = Http if first.startswith("http") else WebSocket if first.startswith("ws") else Socket
    fields: dict[str, Any] = {
        "target": kind(first),
        "urls": given,
        "name": "s",
        "isolation": "pool",
        "breaker": BreakerConfig(failures=2, pause=0.3),
    }
    address = HealthConfig(interval=asks, timeout=answers)
    return delayed(BackendConfig(**{**fields, **options}), slow_start=0.2, address=address)


def pool_of(gate: Gateway) -> Any:
    """The pool of the addresses; None: it is not there yet."""
    found: Any = gate.proxy.services["s"].assignment
    return found if isinstance(found, AddressPool) else found._pool


async def pool_in(gate: Gateway) -> Any:
    """The pool of the addresses, once it is there."""
    await until(lambda: pool_of(gate) is not None)
    return pool_of(gate)


async def all_up(gate: Gateway, n: int = 3) -> None:
    """Wait until n addresses get requests, with their whole weights."""
    pool = pool_of(gate)
    await until(lambda: sum(one.takes_all for one in pool.modern) == n)
    await until(
        lambda: all(
            one.address.share.weight == one.address.url.weight
            for one in pool.modern
            if one.takes_all
        )
    )


async def called(client: Client, n: int, tool: str = "who") -> Counter[str]:
    """Make n calls, one after another. Return the names of the servers that answered."""
    found: Counter[str] = Counter()
    for _ in range(n):
        found[(await client.call_tool(tool)).text] += 1
    return found


PROGRAM = """
import os
from wirespeed import Server

server = Server("child", version="1")

@server.tool
async def who() -> int:
    return os.getpid()

@server.resource("lab://name")
async def read() -> str:
    return str(os.getpid())
"""


class Child:
    """An address whose server is a process.

    Args:
        script: A file with a server, such as `PROGRAM`.
    """

    def __init__(self, script: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}/mcp"
        self._script = script
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process. Returns when it listens."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wirespeed", "serve", self._script, "--on", self.url),
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        await self._process.stderr.readuntil(b"serving")

    async def run(self) -> None:
        """Keep a process running: one that has ended is started again. It is killed at the end."""
        try:
            while True:
                await self.start()
                assert self._process is not None
                await self._process.communicate()
        finally:
            await self.end()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    async def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()
