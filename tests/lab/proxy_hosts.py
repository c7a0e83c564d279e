"""Hosts of one proxy, each ``wirespeed proxy`` with its file, and what clients ask them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from lab.hosts import Ways, acquainted
from lab.process import free_port
from lab.raw import FOREVER, surroundings
from lab.store import SECONDS, StoreServer

SECRET = "only for tests: 16 bytes or more"

SERVER = """
import asyncio, os, sys
from wirespeed import Context, Server

server = Server("tea")
sold = 0

@server.tool
async def who(ctx: Context, steps: int = 0) -> str:
    for step in range(steps):
        await ctx.progress(step)
    return str(os.getpid())

@server.tool
async def sell(ctx: Context) -> str:
    server.resource_updated("stock://tea")
    return "sold"

@server.tool
async def wait(ctx: Context, seconds: float) -> str:
    await ctx.progress(0)
    await asyncio.sleep(seconds)
    return "waited"

@server.tool
async def confirm(ctx: Context) -> str:
    answer = await ctx.elicit("really?", bool)
    return str(answer.content)

@server.tool(task="optional", task_after=0)
async def brew(ctx: Context) -> str:
    await asyncio.sleep(0.1)
    return "tea"

@server.resource("stock://tea")
async def stock() -> str:
    return "tea"

server.run(*sys.argv[1:])
"""


def tea(folder: Path, isolation: str = "shared", **options: Any) -> dict[str, Any]:
    """The entry of `SERVER` in the file of a proxy. ``options``: Further keys of its ``proxy``."""
    target = {"command": sys.executable, "args": [str(folder / "tea.py")]}
    return {**target, "proxy": {"isolation": isolation, **options}}


class ProxyHost:
    """A proxy that runs.

    Args:
        inside: The command that runs another one on the host's machine.
        words: Of the command line.

    Attributes:
        name: With which the ids of its sessions begin.
        log: What it has written to stderr.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        port: int,
        config: dict[str, Any],
        *words: str,
        inside: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.port = port
        self.file = folder / f"{name}.json"
        self.log = folder / f"{name}.log"
        self.write(config)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*inside, sys.executable, "-m", "wirespeed", "proxy", "--log-level", "info"),
                    *("--config", str(self.file), *words),
                ],
                env=surroundings(),
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def write(self, config: dict[str, Any]) -> None:
        """Write its file."""
        self.file.write_text(json.dumps(config))

    async def until_said(self, text: str, n: int = 1) -> None:
        """Wait until it has written a text so often."""
        async with asyncio.timeout(FOREVER):
            while self.log.read_text().count(text) < n:
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, FOREVER)


class ProxyHosts(Ways):
    """The hosts of one proxy, by their names.

    Args:
        folder: For their files.
        servers: The servers behind them; by default the one of `SERVER`, shared.
        store: The store that they share; None: they share none, or that of the ``cluster``.
        meet: Whether a start waits until the hosts know each other.
        options: Keys of the file's ``proxy``. A ``cluster`` has a long ``storeTimeout`` unless they
            say another one: a slow machine is no loss of the store.
    """

    def __init__(
        self,
        folder: Path,
        servers: dict[str, Any] | None = None,
        *,
        store: StoreServer | None = None,
        meet: bool = True,
        **options: Any,
    ) -> None:
        super().__init__({})
        self._meet = meet
        self.folder = folder
        (folder / "tea.py").write_text(SERVER)
        self.servers = servers or {"tea": tea(folder)}
        self.options = options
        if store is not None:
            options["cluster"] = {"url": store.url, **options.get("cluster", {})}
        self.hosts: dict[str, ProxyHost] = {}

    def config(self, name: str, port: int) -> dict[str, Any]:
        """The file of a host."""
        own = {"name": name, "listen": [f"http://127.0.0.1:{port}/mcp"], "readyWithin": 20}
        options = {**self.options}
        if "cluster" in options:
            url = f"http://127.0.0.1:{port}"
            common = {"secret": SECRET, "hostUrl": url, "storeTimeout": SECONDS}
            options["cluster"] = common | options["cluster"]
        return {"mcpServers": self.servers, "proxy": {**own, **options}}

    async def start(self, *names: str, words: tuple[str, ...] = ()) -> None:
        """Start hosts, and wait until they serve."""
        for name in names:
            port = self.ports.setdefault(name, free_port())
            config = self.config(name, port)
            self.hosts[name] = ProxyHost(self.folder, name, port, config, *words)
        for name in names:
            await self.hosts[name].until_said("serving ")
        if "cluster" in self.options and self._meet:
            await acquainted(self.options["cluster"]["url"])

    async def kill(self, name: str) -> None:
        """End all processes of a host."""
        host = self.hosts.pop(name)
        os.killpg(host.process.pid, signal.SIGKILL)
        await host.ended()

    async def end(self) -> None:
        self.close()
        for host in self.hosts.values():
            host.signal(signal.SIGCONT)
            host.signal(signal.SIGTERM)
        for host in self.hosts.values():
            await host.ended()


@contextlib.asynccontextmanager
async def proxies(folder: Path, *names: str, **options: Any) -> AsyncIterator[ProxyHosts]:
    """Hosts of one proxy meanwhile. Options are those of `ProxyHosts`, and the ``words`` of the
    command line."""
    words = options.pop("words", ())
    hosts = ProxyHosts(folder, **options)
    try:
        await hosts.start(*names, words=words)
        yield hosts
    finally:
        await hosts.end()


def two_of(kind: str, store: StoreServer) -> tuple[str, dict[str, Any]]:
    """The names and options of `proxies` for two ``workers`` of a host, or for two ``hosts``."""
    if kind == "workers":
        return "a", {"words": ("--workers", "2")}
    return "ab", {"store": store, "cluster": {"hosts": 2}}


async def _until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(FOREVER):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.02)
    raise AssertionError("the server has ended")


@contextlib.asynccontextmanager
async def elsewhere(script: Path) -> AsyncIterator[str]:
    """A server that listens at a URL, which is its argument, meanwhile."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    process = subprocess.Popen(
        [sys.executable, str(script), url], env=surroundings(), stderr=subprocess.DEVNULL
    )
    try:
        await _until_it_listens(port, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
