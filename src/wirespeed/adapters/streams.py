"""Streams of an SDK on a link: one end of a connection, and the base of the pair of streams by
which a program reads and writes it. Both generations of the official SDK use such pairs."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, WouldBlock

from wirespeed.adapters.seams import missing
from wirespeed.core import MessageStream
from wirespeed.limits import Limits
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer

# Messages that the program has not taken yet: reading stops at the first number, and goes on at
# the second.
MOST_UNREAD = 128
FEWEST_UNREAD = 32
# Messages that a sender writes without waiting before it lets other tasks run.
TURN = 16


class StreamEnd(Endpoint):
    """One end of a connection: messages that were read, and the queue of those to write.

    Args:
        role: "server" or "client". A client reads on while its own output waits.
        framer: The framing of the stream; one message a line by default.
    """

    def __init__(
        self, role: str, *, framer: Framer | None = None, limits: Limits | None = None
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.stream = MessageStream(
            limits=self.limits, framer=framer, reads_always=role == "client"
        )
        self.wire = self.stream
        self.loop = asyncio.get_running_loop()
        self.unread: deque[Message] = deque()
        self.read_closed = self.write_closed = False
        self._over = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None
        self._sent = 0

    # -- events of the link ------------------------------------------------------------------

    def on_data(self) -> None:
        self.unread.extend(self.stream)
        self.were_read()

    def were_read(self) -> None:
        """Take note of new messages, which the program has not taken yet."""
        if len(self.unread) >= MOST_UNREAD:
            self.stream.paused = True
        if self.unread:
            self.wake()

    def on_eof(self) -> None:
        self._over = True
        self.wake()

    def on_lost(self, exc: BaseException | None) -> None:
        self.on_eof()
        self.on_drained()

    def on_drained(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def wake(self) -> None:
        """Wake the tasks that wait for a message."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    @property
    def awaited(self) -> bool:
        """Whether a task waits for a message."""
        return bool(self._waiting)

    # -- for the streams -----------------------------------------------------------------------

    def pop(self) -> Message:
        """Return the next message. WouldBlock: there is none yet. EndOfStream: none will come."""
        if self.read_closed:
            raise ClosedResourceError
        if not self.unread:
            raise EndOfStream if self._over else WouldBlock
        message = self.unread.popleft()
        if self.stream.paused and len(self.unread) <= FEWEST_UNREAD:
            self.stream.paused = False
            if self.link is not None:
                self.link.pump()
        return message

    async def receive(self) -> Message:
        """Wait for the next message. EndOfStream: the peer sends no more."""
        while True:
            try:
                return self.pop()
            except WouldBlock:
                pass
            waiter = self.loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    def put(self, data: bytes | tuple[bytes, ...]) -> None:
        """Queue a message as JSON text. WouldBlock if the peer has not read what was queued."""
        if self.write_closed:
            raise ClosedResourceError
        link = self.link
        if link is None:
            raise BrokenResourceError
        if self.stream.outbox.size >= self.limits.output_high:
            raise WouldBlock
        self.stream.send(data)
        link.wrote()

    async def send(self, data: bytes | tuple[bytes, ...]) -> None:
        """Queue a message, once the peer reads."""
        self._sent += 1
        if self._sent % TURN == 0:
            await asyncio.sleep(0)
        while True:
            try:
                return self.put(data)
            except WouldBlock:
                await self.drained()

    async def drained(self) -> None:
        """Wait until the peer has read a good part of the output, or is gone."""
        if self._room is None or self._room.done():
            self._room = self.loop.create_future()
        await asyncio.shield(self._room)


class HalfStream:
    """The base of the two streams over an end. A subclass defines `close`."""

    adapter: ClassVar[str]  # its `uninstall` brings back the members that the stream lacks

    def close(self) -> None:
        """Use the stream no more."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Use the stream no more."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise missing(self.adapter, self, name)


class ReadingStream(HalfStream):
    """The base of streams whose items can be iterated over."""

    async def receive(self) -> Any:
        """Return the next item. EndOfStream: none will come."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None
