"""The streams of stdio under `install`: the SDK makes one dispatcher of both, and a program that
uses them itself gets messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from wirespeed.adapters.streams import HalfStream, ReadingStream, StreamEnd

if TYPE_CHECKING:
    from wirespeed.transport.link import Link


class StdioStreams:
    """The pair of streams of `stdio_server` or `stdio_client`, over one link.

    Args:
        role: "server" or "client".
        make_link: Makes the link of an endpoint.
    """

    def __init__(self, role: str, make_link: Callable[[Any], Link]) -> None:
        self.role = role
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
            self._end = StreamEnd(self.role)
            self.make_link(self._end).start()
        return self._end


class ReadStream(ReadingStream):
    """The messages of the peer; an exception stands for a line that is not a message."""

    adapter = "wirespeed.adapters.mcp"

    def __init__(self, streams: StdioStreams) -> None:
        self.streams = streams
        self.closed = False

    def close(self) -> None:
        self.closed = True

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        if self.closed:
            raise ClosedResourceError
        message = await self.streams.end().receive()
        try:
            text = bytes(message.raw or b"")
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as exc:
            return exc


class WriteStream(HalfStream):
    """Messages to the peer."""

    adapter = "wirespeed.adapters.mcp"

    def __init__(self, streams: StdioStreams) -> None:
        self.streams = streams
        self.closed = False

    def close(self) -> None:
        self.closed = True

    async def send(self, item: SessionMessage) -> None:
        """Send a message, once the peer reads."""
        if self.closed:
            raise ClosedResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self.streams.end().send(text.encode())


def streams_of(read_stream: object, write_stream: object) -> StdioStreams | None:
    """The pair that two streams are, if nobody uses it; None for other streams."""
    if type(read_stream) is not ReadStream or type(write_stream) is not WriteStream:
        return None
    streams = read_stream.streams
    return streams if streams is write_stream.streams and streams.is_free else None
