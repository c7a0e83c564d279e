"""Output of a link that is held (`Link.hold`): what leaves before it, when the rest does, and what
the rest counts for."""

from __future__ import annotations

import asyncio
import socket
from typing import Self

import pytest

from wirespeed.core import FrameStream, Limits, LineFramer
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link
from wirespeed.transport.memory import pair

pytestmark = pytest.mark.compiled

LONG = b"L" * 20_000  # is referred to, not copied


class Writer(Endpoint):
    """Writes lines, and counts what it is told."""

    def __init__(self) -> None:
        self.wire = self.stream = FrameStream(
            LineFramer(100_000), limits=Limits(output_high=10_000, output_low=1000)
        )
        self.read: list[bytes] = []
        self.n_drained = self.n_lost = 0

    def on_data(self) -> None:
        for frame in self.stream:
            self.read.append(bytes(frame))

    def on_drained(self) -> None:
        self.n_drained += 1

    def on_lost(self, exc: BaseException | None) -> None:
        self.n_lost += 1

    def write(self, *lines: bytes) -> None:
        for line in lines:
            self.stream.send(line)
        if self.link is not None:
            self.link.wrote()

    @property
    def queued(self) -> int:
        return len(self.wire.outbox)


class Ends:
    """A writer with a link to what a test reads."""

    def __init__(self, kind: str) -> None:
        self.writer = Writer()
        self.other = Writer()
        loop = asyncio.get_running_loop()
        self.sockets = socket.socketpair() if kind == "fd" else ()
        for end in self.sockets:
            end.setblocking(False)
        if kind == "memory":
            self.links = pair(loop, self.writer, self.other)
        else:
            self.links = tuple(
                FdLink(loop, endpoint, end.fileno(), end.fileno())
                for endpoint, end in zip((self.writer, self.other), self.sockets, strict=True)
            )
        for link in self.links:
            link.start()

    @property
    def link(self) -> Link:
        assert self.writer.link is not None
        return self.writer.link

    async def settled(self) -> list[bytes]:
        """What has arrived, after some turns of the loop."""
        for _ in range(10):
            await asyncio.sleep(0.001)
        return self.other.read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for link in self.links:
            if link.endpoint.link is link:
                link.close()
        for end in self.sockets:
            end.close()


kinds = pytest.mark.parametrize("kind", ["fd", "memory"])


@kinds
async def test_what_was_queued_before_leaves(kind: str) -> None:
    with Ends(kind) as ends:
        ends.writer.write(b"1", LONG, b"2")
        hold = ends.link.hold(ends.writer.queued, 60)
        ends.writer.write(b"3", LONG, b"4")
        before = [b"1", LONG, b"2"]
        assert await ends.settled() == before
        assert ends.writer.queued == len(LONG) + 5 and not ends.link.idle
        hold.end()
        assert await ends.settled() == [*before, b"3", LONG, b"4"]
        assert not ends.writer.queued
        hold.end()
        ends.writer.write(b"5")
        assert (await ends.settled())[-1] == b"5"


@kinds
async def test_a_hold_within_a_long_piece(kind: str) -> None:
    """The bytes before it leave, and the rest of the piece does not."""
    with Ends(kind) as ends:
        ends.writer.write(LONG, b"1")
        hold = ends.link.hold(100, 60)
        assert await ends.settled() == []
        assert ends.writer.queued == len(LONG) + 3 - 100
        hold.end()
        assert await ends.settled() == [LONG, b"1"]


@kinds
async def test_holds_end_in_any_order(kind: str) -> None:
    with Ends(kind) as ends:
        holds = []
        for line in (b"0", b"1", b"2", b"3"):
            holds.append(ends.link.hold(ends.writer.queued, 60))
            ends.writer.write(line)
        assert await ends.settled() == []
        holds[1].end()
        assert await ends.settled() == []
        holds[0].end()
        assert await ends.settled() == [b"0", b"1"]
        holds[3].end()
        assert await ends.settled() == [b"0", b"1"]
        holds[2].end()
        assert await ends.settled() == [b"0", b"1", b"2", b"3"]


@kinds
async def test_a_hold_ends_by_itself(kind: str) -> None:
    with Ends(kind) as ends:
        hold = ends.link.hold(0, 0.001)
        ends.writer.write(b"1")
        async with asyncio.timeout(10):
            while hold.link is not None:
                await asyncio.sleep(0.001)
        assert await ends.settled() == [b"1"]


@kinds
async def test_what_is_held_counts_as_queued(kind: str) -> None:
    with Ends(kind) as ends:
        hold = ends.link.hold(0, 60)
        ends.writer.write(LONG)
        await ends.settled()
        assert not ends.writer.wire.want_read and not ends.writer.n_drained
        hold.end()
        assert await ends.settled() == [LONG]
        assert ends.writer.wire.want_read and ends.writer.n_drained == 1


@kinds
async def test_a_link_that_is_closed_meanwhile(kind: str) -> None:
    with Ends(kind) as ends:
        first, second = ends.link.hold(0, 0.002), ends.link.hold(0, 60)
        ends.writer.write(b"1")
        ends.link.close()
        assert first.link is second.link is None
        first.end()
        second.end()
        await asyncio.sleep(0.01)
        assert ends.writer.n_lost == 1


async def test_a_link_ends_in_order_behind_a_hold() -> None:
    with Ends("fd") as ends:
        hold = ends.link.hold(0, 60)
        ends.writer.write(b"1")
        ends.link.end()
        assert await ends.settled() == [] and not ends.writer.n_lost
        hold.end()
        assert await ends.settled() == [b"1"]
        assert ends.writer.n_lost == 1
