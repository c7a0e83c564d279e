"""Hosts that go on without the store, in one process: what they are told, and what they make of
it. Hosts that are processes are in test_partitions.py."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from lab import raw
from lab.session import Lab, served
from lab.store import LISTS_FOR_SCRIPTS, MakeServer, StoreServer, free_port

from wirespeed.cluster import Cluster, SessionHosts
from wirespeed.cluster.clients import Script
from wirespeed.cluster.presence import RENEWAL, Presence, member_of
from wirespeed.errors import StoreUnavailable

BASE = "test:{hosts}:"
URL = "http://127.0.0.1:9"  # of a host that does not answer
OTHER = member_of("c", URL)


class Told:
    """Connections to hosts that all say the same."""

    def __init__(self, text: bytes | None) -> None:
        self._text = text

    def to(self, url: str, name: str) -> Told:
        return self

    def open(self) -> None:
        """It is."""

    async def ask(self, question: bytes, seconds: float) -> bytes | None:
        return self._text

    async def close(self, but: Any) -> None:
        """It stays open."""


def host(name: str, cluster: Cluster, text: bytes | None = None) -> Presence:
    """A host that others do not reach, and that all others tell the same."""
    options: dict[str, Any] = {"on_over": int, "on_data_lost": int, "without_store": 600}
    found = Presence(cluster, BASE, f"http://{name}:1", Told(text), **options)  # type: ignore[arg-type]
    found.begin(name)
    return found


@pytest.mark.parametrize(
    ("text", "goes_on"),
    [
        (b"down 5000", True),
        (b"told 5000", False),
        (b"up 5000", False),
        (None, False),
        *[(one, False) for one in (b"", b"down", b"down 5 5", b"down x", b"down -1", b"\xff 5")],
    ],
)
async def test_what_another_host_says(
    new_store_server: MakeServer, text: bytes | None, goes_on: bool
) -> None:
    """What cannot be read is as no answer."""
    store = new_store_server()
    clusters = [store.cluster() for _ in "ab"]
    hosts = [host(name, one, text) for name, one in zip("ab", clusters, strict=True)]
    one = hosts[0]
    async with clusters[0], clusters[1]:
        for each in (*hosts, one):
            await each.renew()
        store.kill()
        with pytest.raises(StoreUnavailable):
            await one.renew()
        assert await one.go_on() is (text == b"up 5000")
        assert one.is_cut_off is goes_on


async def test_an_entry_that_ends(store_server: StoreServer) -> None:
    """The host looks again at that time."""
    store_server.ask("HSET", f"{BASE}hosts", "", "1 data")  # which are old
    async with store_server.cluster() as cluster:
        one = host("a", cluster)
        await host("b", cluster).renew()
        assert await one.renew() == RENEWAL
        due = RENEWAL
        while due == RENEWAL:  # it has ended before the host looked
            ends = round(time.time() * 1000) + 700
            entry = f"{ends} 60000 1 1 1 i http://c:1"
            store_server.ask("HSET", f"{BASE}hosts", member_of("c", "http://c:1"), entry)
            due = await one.renew()
        assert set(one.hosts) == {"b", "c"}
        while "c" in one.hosts:
            await asyncio.sleep(due)
            due = await one.renew()


class Slow(Cluster):
    """A question for the hosts is half a second under way to the store. When it comes there,
    another host has an entry that soon ends.

    Attributes:
        server: The store.
        answers: Of the store, since then.
    """

    server: StoreServer | None = None
    answers: list[list[Any]]

    async def run(self, script: Script, base: str, *args: Any) -> Any:
        if self.server is None or "{sessions1:" not in base:
            return await super().run(script, base, *args)
        if not self.answers:
            await asyncio.sleep(0.5)
            ends = round(time.time() * 1000) + 400
            self.server.ask("HSET", f"{base}hosts", OTHER, f"{ends} 60000 1 1 1 i {URL}")
        self.answers.append(await super().run(script, base, *args))
        return self.answers[-1]


async def test_a_host_does_not_look_too_early(store_server: StoreServer) -> None:
    """The time until the end of an entry is that of the answer."""
    cluster = Slow(store_server.url, store_timeout=20.0)
    hosts = SessionHosts(cluster, "lab", "http://127.0.0.1:1", secret=b"s" * 16)
    async with served(Lab(), directory=hosts, name="a"):
        cluster.answers, cluster.server = [], store_server
        while len(cluster.answers) < 2:
            await asyncio.sleep(0.01)
    living = [OTHER.encode() in answer for answer in cluster.answers]
    assert living[:2] == [True, False]


async def test_a_store_whose_answers_cannot_be_read(
    new_store_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The host asks again, and is known to the others once it gets an answer."""
    port = free_port()
    wrong = new_store_server(*LISTS_FOR_SCRIPTS, port=port)
    hosts = SessionHosts(wrong.cluster(), "lab", "http://127.0.0.1:1", secret=b"s" * 16)
    async with served(Lab(), directory=hosts, name="a") as client:
        refused = await client.post(raw.initialize(0, "2025-11-25"))
        assert refused.status == 503
        wrong.kill()
        right = new_store_server(port=port)
        while not hosts.lease.lasts:
            await asyncio.sleep(0.05)
        await client.open()
        assert client.fields["mcp_session_id"]
        right.kill()
        new_store_server(*LISTS_FOR_SCRIPTS, port=port)
        while hosts.lease.lasts:
            await asyncio.sleep(0.05)
        assert (await client.post(raw.request(1, "ping"))).status == 503
        opening = await client.another().post(raw.initialize(0, "2025-11-25"))
        assert opening.status == 503
    assert "this host is not known to the others: " in caplog.text


def test_it_goes_from_one_loop_to_the_next(store_server: StoreServer) -> None:
    """A host renews its entry there, too."""
    hosts = SessionHosts(store_server.cluster(), "lab", "http://127.0.0.1:1", secret=b"s" * 16)

    async def known() -> None:
        while not store_server.ask("KEYS", "*{sessions1:*hosts"):
            await asyncio.sleep(0.05)

    async def serve() -> None:
        async with served(Lab(), directory=hosts, name="a") as client:
            await client.open()
            for _ in range(2):
                store_server.ask("FLUSHALL")
                await known()

    for _ in range(2):
        asyncio.run(serve())
