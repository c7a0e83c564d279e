"""The streams of `mcp` 1.x on a link: a pair that carries `SessionMessage` as the memory streams of
anyio do, and the end of a connection below them, which sessions use themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio import BrokenResourceError, ClosedResourceError
from mcp.types import JSONRPCError, JSONRPCResponse

from wirespeed.adapters.mcp1.envelopes import decode, encode, session_message
from wirespeed.adapters.streams import HalfStream, ReadingStream, StreamEnd

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits

# Times `Limits.output_high`: the most bytes of a client's answers that its server has not read.
MOST_ANSWERED = 4


class ConnectionEnd(StreamEnd):
    """One end of a connection of sessions and streams.

    Args:
        role: "server" or "client". A client reads on while its own output waits.
        framer: How messages lie in the stream; one a line by default.
    """

    def __init__(
        self, role: str, *, framer: Framer | None = None, limits: Limits | None = None
    ) -> None:
        super().__init__(role, framer=framer, limits=limits)
        # A session on the adapter takes a response at once, if its loop waits for messages.
        self.take_response: Callable[[Message], bool] | None = None
        self.lost: asyncio.Future[BaseException | None] = self.loop.create_future()
        self.bounds_answers = role == "client"
        self.n_open = 0  # requests without an answer

    def on_data(self) -> None:
        unread, take = self.unread, self.take_response
        for message in self.stream:
            if take is not None and not unread and self.awaited and take(message):
                continue
            unread.append(message)
        self.were_read()

    def on_lost(self, exc: BaseException | None) -> None:
        super().on_lost(exc)
        if not self.lost.done():
            self.lost.set_result(exc)

    def pop(self) -> Message:
        message = super().pop()
        if message.kind == "request":
            self.n_open += 1
        return message

    async def reply(self, data: bytes | tuple[bytes, ...]) -> None:
        """Queue an answer. A client waits until the server has read most of the earlier ones,
        because it goes on reading meanwhile."""
        most = MOST_ANSWERED * self.limits.output_high
        while self.bounds_answers and self.link is not None and self.stream.outbox.size >= most:
            await self.drained()
        self.answer(data)

    def answer(self, data: bytes | tuple[bytes, ...]) -> None:
        """Queue an answer without a bound: the number of requests that were read bounds it."""
        if self.write_closed:
            raise ClosedResourceError
        if self.link is None:
            raise BrokenResourceError
        self.n_open -= 1
        self.stream.send(data)
        self.link.wrote()

    def close_reading(self) -> None:
        self.read_closed = True
        self.unread.clear()
        self.stream.paused = True
        self.wake()
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


class ReadStream(ReadingStream):
    """The messages of the peer; an exception stands for input that is not a message."""

    adapter = "wirespeed.adapters.mcp1"

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def receive_nowait(self) -> SessionMessage | Exception:
        return session_message(decode(self.end.pop()))

    async def receive(self) -> SessionMessage | Exception:
        return session_message(decode(await self.end.receive()))

    def close(self) -> None:
        self.end.close_reading()


class WriteStream(HalfStream):
    """Messages to the peer."""

    adapter = "wirespeed.adapters.mcp1"

    def __init__(self, end: ConnectionEnd) -> None:
        self.end = end

    def send_nowait(self, item: SessionMessage) -> None:
        if isinstance(item.message.root, JSONRPCResponse | JSONRPCError):
            self.end.answer(encode(item))
        else:
            self.end.put(encode(item))

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message.root, JSONRPCResponse | JSONRPCError):
            await self.end.reply(encode(item))
        else:
            await self.end.send(encode(item))

    def close(self) -> None:
        self.end.close_writing()
