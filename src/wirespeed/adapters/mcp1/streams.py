"""The streams of `mcp` 1.x on a link: a pair that carries `SessionMessage` as the memory streams of
anyio do, and the end of a connection below them, which sessions use themselves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, WouldBlock
from mcp.types import JSONRPCError, JSONRPCResponse

from wirespeed.adapters.mcp1.envelopes import decode, encode, session_message
from wirespeed.adapters.seams import missing
from wirespeed.core import MessageStream
from wirespeed.limits import Limits
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer

# Messages that were read and that nobody has taken: reading stops at the first number, and goes on
# at the second.
MOST_UNREAD = 128
FEWEST_UNREAD = 32
# Messages after which a sender that waits for nothing lets other tasks run.
TURN = 16


class ConnectionEnd(Endpoint):
    """One end of a connection: what has been read, and room for what is written.

    Args:
        role: "server" or "client". A client reads on while its own output waits.
        framer: How messages lie in the stream; one a line by default.
    """

    def __init__(
        self,
        role: str,
        *,
        framer: Framer | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.stream = MessageStream(
            limits=self.limits, framer=framer, reads_always=role == "client"
        )
        self.wire = self.stream
        self.loop = asyncio.get_running_loop()
        self.unread: deque[Message] = deque()
        # A session on the adapter takes a response at once, if its loop waits for messages.
        self.take_response: Callable[[Message], bool] | None = None
        self.lost: asyncio.Future[BaseException | None] = self.loop.create_future()
        self.n_open = 0  # requests that were taken and have no answer
        self.read_closed = self.write_closed = False
        self._over = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None
        self._sent = 0

    # -- events of the link ------------------------------------------------------------------

    def on_data(self) -> None:
        unread, take = self.unread, self.take_response
        for message in self.stream:
            if take is not None and not unread and self._waiting and take(message):
                continue
            unread.append(message)
        if len(unread) >= MOST_UNREAD:
            self.stream.paused = True
        if unread:
            self._wake()

    def on_eof(self) -> None:
        self._over = True
        self._wake()

    def on_lost(self, exc: BaseException | None) -> None:
        self._over = True
        self._wake()
        self.on_drained()
        if not self.lost.done():
            self.lost.set_result(exc)

    def on_drained(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # -- for streams and sessions --------------------------------------------------------------

    def pop(self) -> Message:
        """The next message. WouldBlock if none is there, EndOfStream if none will come."""
        if self.read_closed:
            raise ClosedResourceError
        if not self.unread:
            raise EndOfStream if self._over else WouldBlock
        message = self.unread.popleft()
        if message.kind == "request":
            self.n_open += 1
        if self.stream.paused and len(self.unread) <= FEWEST_UNREAD:
            self.stream.paused = False
            if self.link is not None:
                self.link.pump()
        return message

    async def receive(self) -> Message:
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

    def answer(self, data: bytes | tuple[bytes, ...]) -> None:
        """Queue an answer. It goes beyond the bound of `put`: the requests that were read are one
        for it."""
        if self.write_closed:
            raise ClosedResourceError
        if self.link is None:
            raise BrokenResourceError
        self.n_open -= 1
        self.stream.send(data)
        self.link.wrote()

    async def send(self, data: bytes | tuple[bytes, ...]) -> None:
        self._sent += 1
        if self._sent % TURN == 0:
            await asyncio.sleep(0)
        while True:
            try:
                return self.put(data)
            except WouldBlock:
                if self._room is None or self._room.done():
                    self._room = self.loop.create_future()
                await asyncio.shield(self._room)

    def close_reading(self) -> None:
        self.read_closed = True
        self.unread.clear()
        self.stream.paused = True
        self._wake()
        self._end_if_closed()

    def close_writing(self) -> None:
        self.write_closed = True
        if self.link is not None:
            self.link.flush()
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """Close the link when both streams are closed; one with output is left to its owner."""
        if self.read_closed and self.write_closed and self.link is not None and self.link.idle:
            self.link.end()

    def streams(self) -> tuple[ReadStream, WriteStream]:
        return ReadStream(self), WriteStream(self)


class _Half:
    """The base of both streams of a connection."""

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def close(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
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
        raise missing("wirespeed.adapters.mcp1", self, name)


class ReadStream(_Half):
    """The messages of the peer; an exception stands for input that is not a message."""

    def receive_nowait(self) -> SessionMessage | Exception:
        return session_message(decode(self.end.pop()))

    async def receive(self) -> SessionMessage | Exception:
        return session_message(decode(await self.end.receive()))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self.end.close_reading()


class WriteStream(_Half):
    """Messages to the peer."""

    def send_nowait(self, item: SessionMessage) -> None:
        if isinstance(item.message.root, JSONRPCResponse | JSONRPCError):
            self.end.answer(encode(item))
        else:
            self.end.put(encode(item))

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message.root, JSONRPCResponse | JSONRPCError):
            self.end.answer(encode(item))
        else:
            await self.end.send(encode(item))

    def close(self) -> None:
        self.end.close_writing()
