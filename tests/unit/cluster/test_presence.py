"""Hosts that go on without the store, in one process: what they are told, and what they make of
it. Hosts that are processes are in test_partitions.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import raw
from lab.session import Lab, served
from lab.store import LISTS_FOR_SCRIPTS, MakeServer, free_port

from wirespeed.cluster import SessionHosts
from wirespeed.cluster.presence import Presence
from wirespeed.errors import StoreUnavailable


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
    hosts, clusters = [], [store.cluster() for _ in "ab"]
    for name, cluster in zip("ab", clusters, strict=True):
        url = f"http://{name}:1"
        options: dict[str, Any] = {"on_over": int, "on_data_lost": int, "without_store": 600}
        host = Presence(cluster, "test:{hosts}:", url, Told(text), **options)  # type: ignore[arg-type]
        host.begin(name)
        hosts.append(host)
    one = hosts[0]
    async with clusters[0], clusters[1]:
        for host in (*hosts, one):
            await host.renew()
        store.kill()
        with pytest.raises(StoreUnavailable):
            await one.renew()
        assert await one.go_on() is (text == b"up 5000")
        assert one.is_cut_off is goes_on


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
        new_store_server(port=port)
        while not hosts.lease.lasts:
            await asyncio.sleep(0.05)
        await client.open()
        assert client.fields["mcp_session_id"]
    assert "this host is not known to the others: " in caplog.text
