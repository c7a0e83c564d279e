"""Hosts that share a store, each a process of this machine (``children/host.py``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from lab.http import LEGACY, Peer, Response, call, message
from lab.process import free_port
from lab.raw import CHILDREN, FOREVER, surroundings
from lab.store import StoreServer

from wirespeed.cluster.presence import member_of

TOKENS = {"anne": "a" * 20, "bob": "b" * 20}
ADOPTED_IN = FOREVER  # seconds; four on a machine that is not busy


class Host:
    """A host that runs.

    Args:
        inside: The command that runs another one on the host's machine.
        program: A file of ``children``.
        options: Of the program.

    Attributes:
        name: With which the ids of its sessions begin.
        log: What it has written to stderr.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        store: str,
        *,
        inside: Sequence[str] = (),
        program: str = "host.py",
        **options: Any,
    ) -> None:
        self.name = name
        self.port = options.pop("port", None) or free_port()
        self.log = folder / f"{name}.log"
        given = {"name": name, "port": self.port, "store": store, **options}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*inside, sys.executable, str(CHILDREN / program), json.dumps(given)],
                env=surroundings(),
                stdout=subprocess.PIPE,
                stderr=log,
            )

    async def ready(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            try:
                line = await asyncio.wait_for(asyncio.to_thread(said.readline), FOREVER)
            except BaseException:
                self.process.kill()  # else the thread reads on, and the pipe cannot be closed
                raise
        assert line == b"ready\n", self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait)


class Ways:
    """The ways to hosts, by their names."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports
        self._peers: list[Peer] = []

    async def connect(self, host: str) -> Peer:
        """A connection to a host."""
        port = self.ports[host]
        peer = Peer(port, *await asyncio.open_connection("127.0.0.1", port))
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class Deployment(Ways):
    """Hosts with one store, which are processes."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__({})
        self.folder = folder
        self.store = store
        self.hosts: dict[str, Host] = {}

    async def start(self, *names: str, **options: Any) -> None:
        """Start hosts, and wait until they know each other."""
        for name in names:
            self._begin(name, name, options)
        for name in names:
            await self.hosts[name].ready()
        await self.know_each_other()

    async def begin(self, key: str, name: str, **options: Any) -> None:
        """Start a host with a name, which has another key here."""
        self._begin(key, name, options)
        await self.hosts[key].ready()

    def _begin(self, key: str, name: str, options: dict[str, Any]) -> None:
        given = {"store": self.store, **options}
        self.hosts[key] = Host(self.folder, name, **given)
        self.ports[key] = self.hosts[key].port

    async def know_each_other(self) -> None:
        await acquainted(self.store)

    async def kill(self, name: str) -> None:
        await self.hosts.pop(name).kill()

    async def end(self) -> None:
        self.close()
        for host in self.hosts.values():
            host.signal(signal.SIGCONT)
            await host.kill()


async def acquainted(url: str) -> None:
    """Wait until each host of the sessions in a store has read which others live."""
    from redis import Redis

    with Redis.from_url(url, decode_responses=True, protocol=2) as store:
        while True:
            seen = {
                entry.split()[2] == store.hget(key.removesuffix("hosts") + "views", "newest")
                for key in store.keys("*{sessions1:*hosts")
                for member, entry in store.hgetall(key).items()
                if member
            }
            if False not in seen:
                return
            await asyncio.sleep(0.05)


class Visitor:
    """A client with a session, each of whose requests has a connection of its own, to any host."""

    def __init__(self, ways: Ways, token: str | None = None) -> None:
        self._ways = ways
        self.fields: dict[str, str] = {"mcp_protocol_version": LEGACY}
        if token is not None:
            self.fields["authorization"] = f"Bearer {token}"
        self._ids = 0

    async def send(self, host: str, method: str = "POST", **more: Any) -> Peer:
        peer = await self._ways.connect(host)
        peer.send(method, **(self.fields | more))
        return peer

    async def ask(self, host: str, method: str = "POST", **more: Any) -> Response:
        peer = await self.send(host, method, **more)
        try:
            return await peer.response()
        finally:
            peer.close()

    async def initialize(self, host: str) -> str:
        peer = await self._ways.connect(host)
        response = await peer.initialize(**self.fields)
        peer.close()
        self.fields["mcp_session_id"] = response.headers["mcp-session-id"]
        return self.fields["mcp_session_id"]

    async def request(self, host: str, method: str, **params: Any) -> Response:
        self._ids += 1
        return await self.ask(host, body=message(method, params, self._ids))

    async def call(self, host: str, tool: str, **arguments: Any) -> Response:
        self._ids += 1
        body = call(tool, arguments, self._ids, _meta={"progressToken": self._ids})
        return await self.ask(host, body=body)

    async def answer(self, host: str, tool: str, **arguments: Any) -> str:
        """The text of a tool, which a host answers within the time for an adoption. Until then
        it may say that it cannot."""
        until = time.monotonic() + ADOPTED_IN
        while True:
            response = await self.call(host, tool, **arguments)
            if response.status == 200:
                last = (response.messages if response.is_stream else [response.json])[-1]
                if "result" in last:
                    text: str = last["result"]["content"][0]["text"]
                    return text
                assert last["error"]["code"] == -31006, last  # its host was lost
            else:
                assert response.status in (502, 503), (response.status, response.body)
            assert time.monotonic() < until, response.body
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def deployed(
    folder: Path, store: str, *names: str, **options: Any
) -> AsyncIterator[Deployment]:
    """Hosts meanwhile."""
    deployment = Deployment(folder, store)
    try:
        await deployment.start(*names, **options)
        yield deployment
    finally:
        await deployment.end()


async def join(store: StoreServer, hosts: Ways, url: str, name: str = "x") -> Visitor:
    """Let the hosts know of another one. Returns a client that has a session there."""
    (key,) = store.ask("KEYS", "*{sessions1:*hosts")
    life = round(time.time() * 1000) + 60_000
    store.ask("HSET", key, member_of(name, url), f"{life} 60000 1 1 1 i {url}")
    store.ask("PEXPIRE", key, 60_000)
    await asyncio.sleep(1.5)  # they have read of it
    one = Visitor(hosts)
    one.fields["mcp_session_id"] = f"{name}.0." + "A" * 32
    return one
