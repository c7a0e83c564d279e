"""A relay between two sockets: order, back-pressure, and the ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wirespeed import Limits
from wirespeed.transport.net.relay import Relay
from wirespeed.transport.net.sockets import SocketStream, start

HIGH = 100_000  # bytes that may wait at each end
BUFFERED = 4_000_000  # more than the system keeps in the buffers of two sockets, and HIGH


class Place:
    """A relay, the socket of a client and that of a process that answers."""

    def __init__(self, **more: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.client, outer = socket.socketpair()
        self.answerer, self.inner = socket.socketpair()
        for sock in (self.client, outer, self.answerer, self.inner):
            sock.setblocking(False)
        for sock in (outer, self.inner):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.stream = SocketStream(self.loop, outer)
        self.relay = Relay(
            Limits(output_high=HIGH, output_low=HIGH // 2),
            loop=self.loop,
            fd=self.inner.fileno(),
            **{"patience": 30.0, "grace": 30.0, **more},
        )
        link = self.stream.make_link(self.relay)
        self.relay.closed.add_done_callback(self.release)
        self.relay.start()
        start(link, b"")

    def release(self, _: object) -> None:
        self.stream.close()
        self.inner.close()

    async def over(self) -> BaseException | None:
        async with asyncio.timeout(20):
            return await self.relay.closed

    async def flood(self, sock: socket.socket) -> int:
        """Send zeros until none are taken."""
        n, quiet = 0, 0
        while quiet < 20:
            try:
                n += sock.send(bytes(65536))
                quiet = 0
            except BlockingIOError:
                quiet += 1
                await asyncio.sleep(0.01)
            assert n < BUFFERED
            await asyncio.sleep(0)
        return n

    async def read(self, sock: socket.socket, n: int) -> bytes:
        """Read n bytes, or all before the end of the stream."""
        data = bytearray()
        async with asyncio.timeout(20):
            while len(data) < n and (more := await self.loop.sock_recv(sock, n - len(data))):
                data += more
        return bytes(data)


@contextlib.asynccontextmanager
async def relaying(**more: Any) -> AsyncIterator[Place]:
    place = Place(**more)
    try:
        yield place
    finally:
        place.relay.abort()
        place.client.close()
        place.answerer.close()


async def test_both_ways_at_once() -> None:
    texts = [random.Random(seed).randbytes(3_000_000) for seed in (1, 2)]
    async with relaying() as place:
        ends = (place.client, place.answerer)
        *_, there, back = await asyncio.gather(
            *(place.loop.sock_sendall(end, text) for end, text in zip(ends, texts, strict=True)),
            place.read(place.answerer, len(texts[0])),
            place.read(place.client, len(texts[1])),
        )
        assert [there, back] == texts


@pytest.mark.parametrize("from_client", [True, False])
async def test_a_reader_that_is_slow_slows_the_sender(from_client: bool) -> None:
    async with relaying() as place:
        ends = (place.client, place.answerer)
        sender, reader = ends if from_client else ends[::-1]
        n = await place.flood(sender)
        assert len(await place.read(reader, n)) == n
        sender.send(b"end")  # it goes on
        assert await place.read(reader, 3) == b"end"


async def test_a_slow_client_reads_all_that_was_answered() -> None:
    async with relaying() as place:
        n = await place.flood(place.answerer)
        place.answerer.close()
        await asyncio.sleep(2.5)  # longer than a closed peer is waited for
        assert len(await place.read(place.client, 2 * n)) == n
        place.client.close()
        assert await place.over() is None


async def test_a_client_that_does_not_read_its_last_bytes() -> None:
    async with relaying(patience=0.2) as place:
        await place.loop.sock_sendall(place.answerer, bytes(HIGH // 2))
        place.answerer.close()
        assert await place.over() is None


async def test_what_a_client_sent_before_it_left_arrives() -> None:
    async with relaying() as place:
        n = await place.flood(place.client)
        place.client.close()
        assert len(await place.read(place.answerer, 2 * n)) == n
        place.answerer.close()
        assert await place.over() is None


async def test_the_client_has_left_and_the_other_end_takes_nothing() -> None:
    async with relaying() as place:
        await place.loop.sock_sendall(place.client, bytes(HIGH // 2))
        place.client.close()
        assert await place.over() is None


async def test_what_is_answered_to_a_client_that_left() -> None:
    async with relaying() as place:
        place.client.close()
        with pytest.raises(OSError):
            while True:
                await place.loop.sock_sendall(place.answerer, bytes(65536))
        place.answerer.close()
        await place.over()


async def test_draining_ends_after_the_time_of_grace() -> None:
    async with relaying(grace=0.3) as place:
        place.relay.drain()
        await place.loop.sock_sendall(place.answerer, b"still")
        assert await place.read(place.client, 5) == b"still"
        assert place.relay.draining
        assert await place.over() is None
        assert await place.read(place.client, 1) == b""


async def test_nothing_of_a_relay_stays() -> None:
    place = Place()
    await place.loop.sock_sendall(place.client, bytes(1000))
    await place.read(place.answerer, 1000)
    place.client.close()
    place.answerer.close()
    await place.over()
    await asyncio.sleep(0)  # the loop forgets the callback that woke this
    gone = weakref.ref(place.relay.closed)
    gc.collect()
    gc.disable()
    try:
        del place.relay
        assert gone() is None  # without the collector
    finally:
        gc.enable()
