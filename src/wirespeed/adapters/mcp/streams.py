"""The streams of stdio under `install`: the SDK makes one dispatcher of both, and a program that
uses them itself gets messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from wirespeed.core import MessageStream
from wirespeed.limits import Limits
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from wirespeed.transport.link import Link

# Messages that were read and that nobody has taken: reading stops at the first number, and goes on
# at the second.
MOST_UNREAD = 128
FEWEST_UNREAD = 32
OUTPUT_HIGH = Limits().output_high


class StreamEnd(Endpoint):
    """One end of a connection whose messages a program reads and writes."""

    def __init__(self) -> None:
        self.stream = self.wire = MessageStream(reads_always=True)
        self.loop = asyncio.get_running_loop()
        self.unread: deque[SessionMessage | Exception] = deque()
        self.over = False
        self._waiting: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def on_data(self) -> None:
        for message in self.stream:
            try:
                found = jsonrpc_message_adapter.validate_json(
                    bytes(message.raw or b""), by_name=False
                )
                self.unread.append(SessionMessage(found))
            except ValueError as exc:
                self.unread.append(exc)
        if len(self.unread) >= MOST_UNREAD:
            self.stream.paused = True
        self._wake()

    def on_eof(self) -> None:
        self.over = True
        self._wake()

    def on_lost(self, exc: BaseException | None) -> None:
        self.on_eof()
        self.on_drained()

    def on_drained(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message; an exception stands for a line that is not a message. EndOfStream: the
        peer sends no more."""
        while not self.unread:
            if self.over:
                raise EndOfStream
            if self._waiting is None or self._waiting.done():
                self._waiting = self.loop.create_future()
            await asyncio.shield(self._waiting)
        found = self.unread.popleft()
        if self.stream.paused and len(self.unread) <= FEWEST_UNREAD:
            self.stream.paused = False
            if self.link is not None:
                self.link.pump()
        return found

    async def send(self, item: SessionMessage) -> None:
        """Send a message, and wait while the peer does not read."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        while self.link is not None and self.stream.outbox.size >= OUTPUT_HIGH:
            if self._room is None or self._room.done():
                self._room = self.loop.create_future()
            await asyncio.shield(self._room)
        if self.link is None:
            raise BrokenResourceError
        self.stream.send(text.encode())
        self.link.wrote()
        await asyncio.sleep(0)


class StdioStreams:
    """The pair of streams of `stdio_server` or `stdio_client`, over one link.

    Args:
        role: "server" or "client".
        make_link: Makes the link of an endpoint.
        missing: Makes the error of an attribute that the streams do not have.
    """

    def __init__(
        self,
        role: str,
        make_link: Callable[[Any], Link],
        missing: Callable[[object, str], AttributeError],
    ) -> None:
        self.role = role
        self.missing = missing
        self._make_link = make_link
        self._taken = False
        self._end: StreamEnd | None = None
        self.link: Link | None = None
        self.read, self.write = ReadStream(self), WriteStream(self)

    def take(self) -> Callable[[Any], Link]:
        """Take the link for a dispatcher. RuntimeError: the streams are in use."""
        if self._taken or self._end is not None:
            raise RuntimeError("the streams of this transport are in use already")
        self._taken = True
        return self.make_link

    def make_link(self, endpoint: Any) -> Link:
        """Make the link, which the caller starts."""
        self.link = self._make_link(endpoint)
        return self.link

    @property
    def is_free(self) -> bool:
        """Whether nobody uses the streams."""
        return not self._taken and self._end is None

    def end(self) -> StreamEnd:
        """The end for a program that uses the streams itself."""
        if self._taken:
            raise ClosedResourceError
        if self._end is None:
            self._end = StreamEnd()
            self.make_link(self._end).start()
        return self._end


class _Half:
    """The base of both streams."""

    def __init__(self, streams: StdioStreams) -> None:
        self.streams = streams
        self.closed = False

    def close(self) -> None:
        """Use the stream no more."""
        self.closed = True

    async def aclose(self) -> None:
        """Use the stream no more."""
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
        streams = self.__dict__.get("streams")
        if streams is None or name.startswith("__") or name == "last_context":
            raise AttributeError(name)
        raise streams.missing(self, name)


class ReadStream(_Half):
    """The messages of the peer."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        if self.closed:
            raise ClosedResourceError
        return await self.streams.end().receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class WriteStream(_Half):
    """Messages to the peer."""

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        if self.closed:
            raise ClosedResourceError
        await self.streams.end().send(item)


def streams_of(read_stream: object, write_stream: object) -> StdioStreams | None:
    """The pair that two streams are, if nobody uses it; None for other streams."""
    if type(read_stream) is not ReadStream or type(write_stream) is not WriteStream:
        return None
    streams = read_stream.streams
    return streams if streams is write_stream.streams and streams.is_free else None
