"""A host that says that it does not have a session loses it to the host that asked, unless it has
adopted the session since."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab import raw
from lab.session import Lab, served
from lab.store import StoreServer

from wirespeed.cluster import Cluster, SessionHosts
from wirespeed.cluster.clients import Script
from wirespeed.cluster.records import SessionRecord

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


async def test_a_lease_that_is_over_while_a_host_adopts(store_server: StoreServer) -> None:
    """Another host may have adopted the session since, so this one does so once more."""
    late = Late(store_server.url, store_timeout=60.0)
    async with host(store_server, "a", late) as (a, id):
        late.server = store_server
        record = await a.find(id, None)
        assert isinstance(record, SessionRecord) and record.epoch == 2
        assert a.has(id)


async def test_a_lease_that_is_over_while_a_session_is_made_again(
    store_server: StoreServer,
) -> None:
    """The host gives the session up, which another host may have by now, and adopts it anew for
    the next request."""
    async with served(
        Lab(),
        directory=SessionHosts(store_server.cluster(), "lab", "http://127.0.0.1:1", secret=SECRET),
        name="a",
    ) as client:
        await client.open()
        debug = raw.request(1, "logging/setLevel", {"level": "debug"})
        assert (await client.post(debug)).status == 200
        fields = client.fields
    lab, begun, gate = Lab(), asyncio.Event(), asyncio.Event()

    @lab.server.add_middleware
    async def wait(request: Any, call_next: Any) -> Any:
        if request.method == "logging/setLevel":
            begun.set()
            await gate.wait()
        return await call_next(request)

    hosts = SessionHosts(
        Cluster(store_server.url, store_timeout=60.0), "lab", "http://127.0.0.1:1", secret=SECRET
    )
    async with served(lab, directory=hosts, name="b") as client:
        client.fields = fields
        call = asyncio.create_task(client.call("echo", text="x"))
        await begun.wait()
        store_server.ask("CLIENT", "PAUSE", 4500, "ALL")
        while hosts.lease.lasts:
            await asyncio.sleep(0.05)
        while not hosts.lease.lasts:
            await asyncio.sleep(0.05)
        gate.set()
        assert (await call).status == 503
        assert not hosts.has(str(fields["mcp_session_id"]))
        assert (await client.call("echo", text="x")).status == 200
        assert hosts.has(str(fields["mcp_session_id"]))
