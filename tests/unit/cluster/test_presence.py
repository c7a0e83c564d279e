"""Hosts that go on without the store, in one process: what they are told, and what they make of
it. Hosts that are processes are in test_partitions.py."""

from __future__ import annotations

from typing import Any

import pytest
from lab.store import MakeServer

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
