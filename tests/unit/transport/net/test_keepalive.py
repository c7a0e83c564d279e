"""Keepers of connections by a clock of the test: no test here waits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from wirespeed.core import Limits, Session
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint
from wirespeed.transport.net.keepalive import KeepAlive, WatchedConnection


class Clock:
    """The part of an event loop that a KeepAlive uses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due = (0.0, lambda: None)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Clock:
        self.due = (self.now + delay, call)
        return self

    def cancel(self) -> None:
        self.due = (float("inf"), lambda: None)

    def advance(self, seconds: float) -> None:
        """The loop runs its timers in time."""
        until = self.now + seconds
        while self.due[0] <= until:
            self.now = max(self.now, self.due[0])
            self.due[1]()
        self.now = until


class Ours(Endpoint):
    def __init__(self) -> None:
        self.wire = self.session = Session(limits=Limits(output_high=1000, output_low=1))

    def on_data(self) -> None:
        pass


async def test_a_slow_reader_that_reads_a_little_stays() -> None:
    """Also after the loop was busy for longer than a reader may take."""
    clock: Any = Clock()
    keeper = KeepAlive(
        clock, ping_interval=None, ping_timeout=1.0, slow_reader_timeout=1.0, close_timeout=1.0
    )
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.closing(keeper):
        for sock in (ours, theirs):
            sock.setblocking(False)
        endpoint = Ours()
        link = FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno())
        keeper.watch(WatchedConnection(endpoint, None))

        async def read_some() -> None:
            before = endpoint.session.bytes_out
            theirs.recv(1 << 20)
            while endpoint.session.bytes_out == before:
                await asyncio.sleep(0)

        for _ in range(1000):
            endpoint.session.send_notification("notifications/message", b"x" * 10_000)
        link.flush()
        for _ in range(5):
            clock.advance(0.9)
            await read_some()
        clock.advance(0.3)  # the last bytes were noticed
        clock.now += 5.0  # nothing runs meanwhile
        clock.advance(0.22)  # every connection is looked at once
        await read_some()
        clock.advance(0.9)
        assert endpoint.link is link
        assert len(endpoint.session.outbox) > 1000
        clock.advance(1.0)
        assert endpoint.link is None
