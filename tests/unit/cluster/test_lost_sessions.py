"""A host that says that it does not have a session loses it to the host that asked, unless it has
adopted the session since, or adopts it now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.hosts import Visitor, Ways
from lab.http import Peer, message, serving
from lab.session import Lab, served
from lab.store import StoreServer, free_port
from lab.wording import raises

from wirespeed import HttpOptions, HttpRequest, Server, User
from wirespeed.cluster import Cluster, SessionHosts
from wirespeed.cluster.clients import Script
from wirespeed.cluster.records import SessionRecord
from wirespeed.errors import StoreUnavailable

pytestmark = pytest.mark.compiled

SECRET = b"s" * 16


class Late(Cluster):
    """After it has taken a session, the store stands still for longer than a lease, once.

    Attributes:
        server: The store; None: it goes on.
    """

    server: StoreServer | None = None

    async def run(self, script: Script, base: str, *args: Any) -> Any:
        found = await super().run(script, base, *args)
        server = self.server
        if server is not None and len(args) == 3:
            self.server = None
            server.ask("CLIENT", "PAUSE", 4500, "ALL")
            await asyncio.sleep(6)
        return found


@contextlib.asynccontextmanager
async def host(
    server: StoreServer, name: str, cluster: Cluster | None = None
) -> AsyncIterator[tuple[SessionHosts, str]]:
    """A host, and the id of a session there."""
    url = f"http://127.0.0.1:{1 + (name == 'b')}"  # nothing is passed on here
    hosts = SessionHosts(cluster or server.cluster(), "lab", url, secret=SECRET)
    async with served(Lab(), directory=hosts, name=name) as client:
        await client.open()
        yield hosts, client.fields["mcp_session_id"]


async def test_what_a_host_says_is_about_one_epoch(store_server: StoreServer) -> None:
    async with host(store_server, "a") as (a, id), host(store_server, "b") as (b, _):
        while (url := b.host_of(id, None)) is None:
            await asyncio.sleep(0.01)
        assert a.has(id) and not b.has(id)
        asked = b.owner_of(id, url)
        assert asked[1] == -1  # no record was read
        assert await b.find(id, None, asked) is True
        asked = b.owner_of(id, url)
        assert asked[1] == 0
        taken = await b.find(id, None, asked)
        assert isinstance(taken, SessionRecord) and taken.epoch == 1
        assert b.has(id)
        assert await a.find(id, None, (taken.owner, 0)) is True  # said before `b` had it


async def test_a_store_that_lost_its_data(store_server: StoreServer) -> None:
    """The owner of a session writes its record again. Until then no other host says that the
    session is lost, not even the host that the session's id names."""
    async with host(store_server, "a") as (a, id), host(store_server, "b") as (b, _):
        while (url := b.host_of(id, None)) is None:
            await asyncio.sleep(0.01)
        assert await b.find(id, None, b.owner_of(id, url)) is True
        assert isinstance(await b.find(id, None, b.owner_of(id, url)), SessionRecord)
        assert await a.find(id, None) is True
        store_server.ask("FLUSHALL")
        with raises(StoreUnavailable):
            await a.find(id, None)


async def test_a_lease_that_is_over_while_a_host_adopts(store_server: StoreServer) -> None:
    """Another host may have adopted the session since, so this one does so once more."""
    late = Late(store_server.url, store_timeout=60.0)
    async with host(store_server, "a", late) as (a, id):
        late.server = store_server
        a.own.dropped(id)
        record = await a.find(id, None)
        assert isinstance(record, SessionRecord) and record.epoch == 2
        assert a.has(id)


async def test_a_session_that_was_adopted_meanwhile(store_server: StoreServer) -> None:
    """Another request of the session was earlier."""
    async with host(store_server, "a") as (a, id):
        a.own.dropped(id)
        assert isinstance(await a.find(id, None), SessionRecord)
        assert await a.find(id, None) is True
        assert a.has(id)


async def test_a_session_of_another_path(store_server: StoreServer) -> None:
    """It is not there, as on one host."""
    hosts = SessionHosts(store_server.cluster(), "lab", "http://127.0.0.1:1", secret=SECRET)
    beside = Server("beside", "1")
    async with served(Lab(), beside=beside, directory=hosts, name="a") as client:
        await client.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        peer = Peer(client.port, reader, writer)
        found = await peer.ask(path="/beside", body=message("ping", {}, 1), **client.fields)
        assert found.status == 404
        assert (await client.call("echo", text="x")).status == 200
        peer.close()


class SlowLab(Lab):
    """A server to whose client's log level a gate opens, also where a session is made again."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

        @self.server.add_middleware
        async def wait(request: Any, call_next: Any) -> Any:
            if request.method == "logging/setLevel":
                self.begun.set()
                await self.gate("level").wait()
            return await call_next(request)


def who(request: HttpRequest) -> User | bool:
    return User(request.token) if request.token else False


@contextlib.asynccontextmanager
async def living(
    ways: Ways, name: str, cluster: Cluster, lab: Lab | None = None
) -> AsyncIterator[SessionHosts]:
    """A host that others reach."""
    port = ways.ports[name] = free_port()
    url = f"http://127.0.0.1:{port}"
    hosts = SessionHosts(cluster, "lab", url, secret=SECRET)
    http = HttpOptions(directory=hosts, name=name)
    server = (lab or Lab()).server
    async with serving(server, url=f"{url}/mcp", http=http, authenticate=who):
        yield hosts


async def left_behind(ways: Ways, server: StoreServer) -> tuple[Visitor, str]:
    """A client with a session whose host is gone, and which has a log level."""
    anne = Visitor(ways, "anne")
    async with living(ways, "a", server.cluster()):
        id = await anne.initialize("a")
        assert (await anne.request("a", "logging/setLevel", level="debug")).status == 200
    return anne, id


async def test_another_host_asks_for_a_session_that_is_made_again(
    store_server: StoreServer,
) -> None:
    """A request of the session's client is held. One of somebody else gets 503: the session may be
    there, and the host that asks must not adopt it."""
    ways, lab, cluster = Ways({}), SlowLab(), store_server.cluster()
    anne, id = await left_behind(ways, store_server)
    bob = Visitor(ways, "bob")
    bob.fields["mcp_session_id"] = id
    async with living(ways, "b", cluster, lab) as b, living(ways, "c", cluster) as c:
        while c.host_of("b.0.", None) is None:
            await asyncio.sleep(0.01)
        calls = [asyncio.create_task(anne.call("b", "echo", text="x"))]
        await lab.begun.wait()
        calls.append(asyncio.create_task(anne.call("c", "echo", text="x")))
        while c.host_of(id, None) is None:
            await asyncio.sleep(0.01)
        assert (await bob.call("c", "echo", text="x")).status == 503
        assert b.has(id) and not c.has(id)
        assert not any(call.done() for call in calls)
        lab.gate("level").set()
        assert [(await call).status for call in calls] == [200, 200]
        assert (await bob.call("c", "echo", text="x")).status == 404
        assert b.has(id) and not c.has(id)
    ways.close()


async def test_a_lease_that_is_over_while_a_session_is_made_again(
    store_server: StoreServer,
) -> None:
    """The host gives the session up, which another host may have by now, and adopts it anew for
    the next request."""
    ways, lab = Ways({}), SlowLab()
    anne, id = await left_behind(ways, store_server)
    cluster = Cluster(store_server.url, store_timeout=60.0)
    async with living(ways, "b", cluster, lab) as b:
        call = asyncio.create_task(anne.call("b", "echo", text="x"))
        await lab.begun.wait()
        store_server.ask("CLIENT", "PAUSE", 4500, "ALL")
        while b.lease.lasts:
            await asyncio.sleep(0.05)
        while not b.lease.lasts:
            await asyncio.sleep(0.05)
        lab.gate("level").set()
        assert (await call).status == 503
        assert not b.has(id)
        assert (await anne.call("b", "echo", text="x")).status == 200
        assert b.has(id)
    ways.close()


async def test_a_host_that_ends_while_a_session_is_made_again(store_server: StoreServer) -> None:
    """Another host adopts the session then."""
    ways, lab = Ways({}), SlowLab()
    anne, _ = await left_behind(ways, store_server)
    async with living(ways, "c", store_server.cluster()):
        async with living(ways, "b", store_server.cluster(), lab):
            call = asyncio.create_task(anne.call("b", "echo", text="x"))
            await lab.begun.wait()
        assert (await call).status == 503
        assert await anne.answer("c", "echo", text="x") == "x"
    ways.close()
