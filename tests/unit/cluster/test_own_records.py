"""The records of the sessions of one process: when they are written, and what is written later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
from lab.raw import FOREVER
from lab.session import Lab, served
from lab.store import SECONDS, MakeServer, StoreServer
from lab.wording import raises

from wirespeed import Context, HttpOptions
from wirespeed.cluster import Cluster, SessionHosts
from wirespeed.cluster.clients import Script
from wirespeed.cluster.records import OwnRecords, SessionState
from wirespeed.errors import ProtocolError, StoreUnavailable


class Held(Cluster):
    """Records that are written wait at a gate before they leave.

    Attributes:
        gate: Is open at first.
        held: Some wait.
        n_lost: So many of the next ones fail: the store is away.
        written: The messages and values that the store has taken.
    """

    def __init__(self, server: StoreServer) -> None:
        super().__init__(server.url, store_timeout=SECONDS)
        self.gate, self.held = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.n_lost = 0
        self.written: list[tuple[tuple[bytes, ...], bytes]] = []

    async def run(self, script: Script, base: str, *args: Any) -> Any:
        if "{session1:" not in base or len(args) != 4:
            return await super().run(script, base, *args)
        if not self.gate.is_set():
            self.held.set()
            await self.gate.wait()
        if self.n_lost:
            self.n_lost -= 1
            raise StoreUnavailable
        found = await super().run(script, base, *args)
        state = msgspec.msgpack.decode(args[2], type=SessionState)
        self.written.append((state.messages, state.kept))
        return found


def own_of(cluster: Cluster) -> OwnRecords:
    return SessionHosts(cluster, "lab", "http://127.0.0.1:1", secret=b"s" * 16).own


class Endpoint:
    """Sessions that live, and that nobody uses.

    Attributes:
        texts: The states of sessions, by id.
    """

    options = HttpOptions()

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}

    def change(self, own: OwnRecords, id: str, text: bytes) -> None:
        """The state of a session changes."""
        self.texts[id] = text
        open = SimpleNamespace(link=self)
        session: Any = SimpleNamespace(id=id, principal=None, streams_name=id, connection=open)
        own.changed(self, session)

    def used_since(self, when: float) -> list[Any]:
        return []

    def state_of(self, session: Any) -> tuple[bytes, ...]:
        return (self.texts[session.id],)

    def kept_of(self, session: Any) -> bytes:
        return b""

    def drop_session(self, session: Any) -> None:
        raise AssertionError(session)

    def drop_sessions(self) -> None:
        raise AssertionError


async def test_what_changes_while_records_are_written(store_server: StoreServer) -> None:
    """It is due at once, and is written then."""
    endpoint = Endpoint()
    async with Held(store_server) as cluster:
        own = own_of(cluster)
        endpoint.change(own, "one", b"1")
        await own.due(FOREVER)
        cluster.gate.clear()
        writing = asyncio.create_task(own.write([endpoint]))
        await cluster.held.wait()
        endpoint.change(own, "one", b"2")
        endpoint.change(own, "two", b"3")
        cluster.gate.set()
        await writing
        async with asyncio.timeout(FOREVER):
            await own.due(2 * FOREVER)
        await own.write([endpoint])
        await own.write([endpoint])
        assert cluster.written == [((text,), b"") for text in (b"1", b"2", b"3")]


async def test_what_the_store_refuses_is_written_later(new_store_server: MakeServer) -> None:
    """So is what the store takes as little in the same round trip, for another reason."""
    server, endpoint = new_store_server(), Endpoint()
    async with Held(server) as cluster:
        own = own_of(cluster)
        endpoint.change(own, "one", b"1")
        await own.write([endpoint])
        (key,) = server.ask("KEYS", "*record")
        server.ask("DEL", key)
        server.ask("SET", key, "of somebody else")
        server.ask("CONFIG", "SET", "maxmemory", 1)
        endpoint.change(own, "one", b"2")
        endpoint.change(own, "two", b"3")
        with raises(ProtocolError, code=-32603):
            await own.write([endpoint])
        server.ask("DEL", key)
        server.ask("CONFIG", "SET", "maxmemory", 0)
        await own.write([endpoint])
        assert cluster.written == [((text,), b"") for text in (b"1", b"2", b"3")]


async def test_a_session_that_ends_while_its_record_is_written(store_server: StoreServer) -> None:
    """The store is lost in between. When it is back, it has no record of the session."""
    lab = Lab()

    @lab.server.tool
    async def remember(ctx: Context) -> str:
        ctx.session_state["n"] = ctx.session_state.get("n", 0) + 1
        return "yes"

    cluster = Held(store_server)
    hosts = SessionHosts(cluster, "lab", "http://127.0.0.1:1", secret=b"s" * 16)
    async with served(lab, directory=hosts, name="a") as client:
        await client.open()
        other = client.another()
        await other.open()
        cluster.gate.clear()
        await client.call("remember")
        await cluster.held.wait()
        assert (await client.request("DELETE")).status == 204
        cluster.n_lost = 1
        cluster.gate.set()
        n = len(cluster.written)
        await other.call("remember")
        while len(cluster.written) == n:
            await asyncio.sleep(0.01)
        assert (await client.call("remember")).status == 404
        assert len(store_server.ask("KEYS", "*{session1:*record")) == 1
