"""The hosts, their store and their balancer: each host a server, or a proxy with a server of its
own behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from clients import ANY
from lab import netns
from lab.hosts import Host
from lab.nginx import NGINX
from lab.process import free_port
from lab.proxy_hosts import SECRET, ProxyHost
from lab.raw import CHILDREN, FOREVER
from seen import LIFETIME
from stores import KINDS

NAMES = ("a", "b", "c")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "several-hosts.md"


class AnyHost(Protocol):
    """A host that runs: a `Host` or a `HostOfProxy`."""

    process: subprocess.Popen[bytes]

    async def ready(self) -> None: ...

    def signal(self, number: signal.Signals) -> None: ...

    async def kill(self) -> None: ...


class HostOfProxy(ProxyHost):
    """A proxy.

    Args:
        config: Its file.
        place: Where it listens.
        server: The server behind it; None: it starts processes.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        config: dict[str, Any],
        place: tuple[str, int],
        server: Host | None,
        inside: Sequence[str],
    ) -> None:
        super().__init__(folder, name, place[1], config, inside=inside)
        self._place = place
        self._server = server

    async def ready(self) -> None:
        async with asyncio.timeout(FOREVER):
            while not await self._is_ready():
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*self._place)
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n" % self._place[0].encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
        return False

    def signal(self, number: signal.Signals) -> None:
        super().signal(number)
        if self._server is not None and number in (signal.SIGSTOP, signal.SIGCONT):
            self._server.signal(number)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.ended()
        await self.end_server()

    async def end_server(self) -> None:
        if self._server is not None:
            await self._server.kill()


class Deployment:
    """The hosts, their store and their balancer.

    Args:
        folder: For their files.
        links: Whether each host is a machine of its own.
        store: A key of `stores.KINDS`.
        program: ``server`` or ``proxy``.
        isolation: Of the server behind the proxy.
        options: Of the hosts.
    """

    def __init__(
        self,
        folder: Path,
        links: bool,
        chance: random.Random,
        *,
        store: str,
        program: str,
        isolation: str,
        drain_delay: float,
    ) -> None:
        self.folder = folder
        self._program = program
        self._isolation = isolation
        self._drain_delay = drain_delay
        self.machines: dict[str, netns.Machine] = {}
        self.places = {name: ("127.0.0.1", free_port()) for name in (*NAMES, ANY)}
        self.hosts: dict[str, AnyHost] = {}
        if links:
            netns.lay_cables()
            self.machines = {
                name: netns.Machine(name, number)
                for number, name in enumerate((*NAMES, "store"), 1)
            }
            for name in NAMES:
                self.places[name] = self.machines[name].addresses["lan"], 8000
        self._server_ports = {name: 9000 if links else free_port() for name in NAMES}
        own = folder / "store"
        own.mkdir()
        self.store = KINDS[store](own, self.machines.get("store"), chance)

    async def start(self, *names: str) -> None:
        for name in names:
            old = self.hosts.get(name)
            if isinstance(old, HostOfProxy):
                await old.end_server()
            start = self._start_proxy if self._program == "proxy" else self._start_server
            self.hosts[name] = await start(name, self._inside(name))
        for name in names:
            await self.hosts[name].ready()

    def _inside(self, name: str) -> Sequence[str]:
        return self.machines[name].inside if self.machines else ()

    def _given(self, name: str) -> dict[str, Any]:
        """The arguments of each server."""
        return {"journal": str(self.folder / f"{name}.journal"), "lifetime": LIFETIME}

    async def _start_server(self, name: str, inside: Sequence[str]) -> Host:
        address, port = self.places[name]
        return Host(
            *(self.folder, name, self.store.url),
            inside=inside,
            program="chaos_host.py",
            address=address,
            port=port,
            drain_delay=self._drain_delay,
            sse_keepalive=2.0,
            **self._given(name),
        )

    async def _start_proxy(self, name: str, inside: Sequence[str]) -> HostOfProxy:
        given = self._given(name)
        server = None
        behind: dict[str, Any] = {"proxy": {"isolation": self._isolation}}
        if self._isolation == "pool":
            words = [str(CHILDREN / "chaos_host.py"), json.dumps({"name": name, **given})]
            behind |= {"command": sys.executable, "args": words}
        else:
            at = {"port": self._server_ports[name], "address": "127.0.0.1", "inside": inside}
            server = Host(self.folder, name, "", program="chaos_host.py", **at, **given)
            await server.ready()
            behind["url"] = f"http://127.0.0.1:{server.port}/mcp"
            behind["proxy"]["ask"] = True
        url = "http://{}:{}".format(*self.places[name])
        cluster = {"url": self.store.url, "secret": SECRET, "hostUrl": url, "hosts": len(NAMES)}
        proxy: dict[str, Any] = {
            "name": name,
            "listen": [{"url": f"{url}/mcp", "sessionIdle": LIFETIME}],
            "cluster": cluster,
        }
        if self._drain_delay:
            proxy["drainDelay"] = self._drain_delay
        config = {"mcpServers": {"shop": behind}, "proxy": proxy}
        return HostOfProxy(self.folder, name, config, self.places[name], server, inside)

    def balance(self, program: str) -> subprocess.Popen[bytes]:
        """A balancer with the file of the page."""
        title = {"haproxy": "any.cfg", "nginx": "any.conf"}[program]
        block = rf'^```\w+ title="{title}"\n(.*?)^```$'
        found = re.search(block, PAGE.read_text(), re.MULTILINE | re.DOTALL)
        assert found is not None
        text = found[1]
        for name, place in (("127.0.0.1:8080", ANY), *((f"{n}.example:8000", n) for n in NAMES)):
            text = text.replace(name, ":".join(map(str, self.places[place])))
        file = self.folder / title
        if program == "haproxy":
            command = ["haproxy", "-db", "-f", str(file)]
        else:
            text = NGINX.format(user="user root;", folder=self.folder, file=text)
            command = ["nginx", "-p", str(self.folder), "-c", str(file)]
        file.write_text(text)
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def keys_of_clients(self) -> list[str]:
        """The keys of the store, but those of the hosts themselves."""
        own = ("{sessions", "{changes")
        return [key for key in self.store.all_keys() if not any(one in key for one in own)]

    def memory(self) -> dict[str, int]:
        """KiB of each host."""
        found = {}
        for name, host in self.hosts.items():
            status = Path(f"/proc/{host.process.pid}/status").read_text()
            resident = re.search(r"VmRSS:\s+(\d+)", status)
            assert resident is not None
            found[name] = int(resident[1])
        return found

    async def end(self) -> None:
        for host in self.hosts.values():
            host.signal(signal.SIGCONT)
            await host.kill()
        self.store.end()
        for machine in self.machines.values():
            machine.end()
