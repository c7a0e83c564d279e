"""A tap of HTTP: each connection of a client gets one to the server, and its requests and responses
pass one after another. What opens a WebSocket becomes one.

The heads pass as they are, but for the target and Host of a request, which are those of the server,
and for offers that would hide messages: Accept-Encoding, and extensions of WebSocket. A response
passes as it arrives. Messages are the bodies of JSON and the events of a stream.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from wirespeed._core.envelope import parse
from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.streams import FrameStream
from wirespeed.bench.tap import MAX_MESSAGE, READ_SIZE, Cut, Held, StreamSink, WebSocketCodec
from wirespeed.bench.tap_net import close, join
from wirespeed.transport.http.sse import EventReader

if TYPE_CHECKING:
    from wirespeed._core.framing.http.head import HttpHead
    from wirespeed.bench.tap import Lane, Tap
    from wirespeed.bench.tap_file import From
    from wirespeed.bench.tap_net import Streams, TappedServer
    from wirespeed.transport.address import Address

# Bytes of the body of a request, which passes when it is whole.
_MAX_REQUEST = 64 * 1024 * 1024
_MAX_HEAD = 65535
# Bytes that are read from a client behind a request that is not answered yet.
_MAX_AHEAD = 65536
# Seconds for which a response that never comes is held.
_HELD = 600.0
_MOST_SESSIONS = 65536

_UNWANTED = ("host", "expect", "accept-encoding", "sec-websocket-extensions")
_BODY_FIELDS = ("transfer-encoding", "content-length")
_UNREACHABLE = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_batch = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class HttpTap:
    """The state that all connections of a listener share.

    Args:
        tap: The treatment of messages.
        address: Where clients connect.
        server: The server.
    """

    def __init__(self, tap: Tap, address: Address, server: TappedServer) -> None:
        self.tap = tap
        self.address = address
        self.server = server
        self._numbers: dict[str, int] = {}  # of clients, by their sessions
        self._lanes: dict[tuple[From, int], Lane] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        streams = await self.server.connect()
        if streams is None:
            await reader.read(READ_SIZE)  # what is unread would destroy the answer
            writer.write(_UNREACHABLE)
            return
        await _TappedConnection(self, reader, writer, streams).run()

    def number_of(self, session: str | None) -> int | None:
        """Return the number of a client with a session, or None."""
        return None if session is None else self._numbers.get(session)

    def remember(self, session: str, number: int) -> None:
        """Remember whose a session is."""
        if len(self._numbers) >= _MOST_SESSIONS:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[session] = number

    def lane(self, sender: From, number: int) -> Lane:
        """Return one direction of a client, whose faults go on from one connection to the next."""
        if (found := self._lanes.get((sender, number))) is None:
            if len(self._lanes) >= _MOST_SESSIONS:
                del self._lanes[next(iter(self._lanes))]
            found = self._lanes[sender, number] = self.tap.lane(sender, number)
        return found

    def head_of(self, request: _TappedRequest) -> bytes:
        """Return the head of a request, for the server."""
        own, to = self.address, self.server.address
        path = to.path if request.path == own.path else request.path
        query = "&".join(filter(None, (to.query, request.query)))
        lines = [f"{request.method} {path}{'?' if query else ''}{query} HTTP/1.1"]
        lines.append(f"Host: {to.authority}")
        drop = _UNWANTED if request.body is None else _UNWANTED + _BODY_FIELDS
        lines += [f"{name}: {value}" for name, value in request.fields if name.lower() not in drop]
        if request.body is not None:
            lines.append(f"Content-Length: {len(request.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass
class _TappedRequest:
    """A request of a client. ``body`` is None where it has none."""

    method: str
    path: str
    query: str
    fields: list[tuple[str, str]]
    body: bytes | None = None

    def field(self, name: str) -> str | None:
        """Return the value of a header field, or None."""
        return _field(self.fields, name)


def _field(fields: list[tuple[str, str]], name: str) -> str | None:
    return next((value for key, value in fields if key.lower() == name), None)


class _TappedConnection:
    """One connection of a client, and that to the server."""

    def __init__(
        self,
        shared: HttpTap,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        streams: Streams,
    ) -> None:
        self._shared = shared
        self._tap = shared.tap
        self._writer = writer
        self._to_server = streams[1]
        self._client = _Reads(reader)
        self._server = _Reads(streams[0])
        self._requests = HttpFramer(
            "server", max_body=_MAX_REQUEST, max_head=_MAX_HEAD, max_target=_MAX_HEAD, heads=True
        )
        self._asked = FrameStream(self._requests)
        self._responses = HttpFramer("client", max_body=MAX_MESSAGE, max_head=_MAX_HEAD, heads=True)
        self._answered = FrameStream(self._responses)
        self._number: int | None = None
        self._initialized = False
        self._switched = False
        self._others: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Pass requests and responses until one of the two ends."""
        try:
            while (request := await self._next_request()) is not None:
                number = self._number_of(request)
                if not await self._exchange(request, number):
                    break
                if self._switched:
                    await join(
                        self._tap,
                        number,
                        (_Behind(self._requests.take_rest(), self._client), self._writer),
                        (_Behind(self._responses.take_rest(), self._server), self._to_server),
                        WebSocketCodec("server"),
                        WebSocketCodec("client"),
                    )
                    break
        finally:
            # what cannot wait comes first: a second cancellation may end the waits
            for task in self._others:
                task.cancel()
            self._client.cancel()
            self._server.cancel()
            await close(self._to_server)
            if self._others:
                await asyncio.wait(self._others)

    # -- requests --------------------------------------------------------------------------------

    async def _next_request(self) -> _TappedRequest | None:
        """Return the next request; None: none will come."""
        framer = self._requests
        request = None
        has_body = False
        while True:
            for frame in self._asked:
                if request is not None:
                    request.body = bytes(frame or b"") if has_body else None
                    return request
                head = framer.head
                has_body = head.chunked or head.length > 0
                request = _TappedRequest(head.method, head.path, head.query or "", head.fields)
            if framer.awaits_continue:
                framer.send_continue()
                self._writer.write(b"".join(self._asked.data_to_send()))
            if framer.failure is not None:
                self._writer.write(
                    b"HTTP/1.1 %d \r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    % framer.failure[0]
                )
            if framer.ended:
                return None
            reads = self._client.begin(), self._server.begin()
            await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            if not reads[0].done():
                return None  # the server closes an idle connection
            if not (data := self._client.take()):
                return None
            self._asked.receive_data(data)

    def _number_of(self, request: _TappedRequest) -> int:
        """The number of the client: of its session, or of the connection."""
        found = self._shared.number_of(request.field("mcp-session-id"))
        found = found or self._shared.number_of(f"{request.path}?{request.query}")
        if found is not None:
            return found
        begins = parse(request.body or b"").method == "initialize"
        if self._number is None or (begins and self._initialized):
            self._number = self._tap.connection()
        self._initialized = self._initialized or begins
        return self._number

    async def _exchange(self, request: _TappedRequest, number: int) -> bool:
        """Pass a request and its response. Whether the connection goes on."""
        data = self._shared.head_of(request) + (request.body or b"")
        if request.body is not None and is_message(request.body):
            self._tap.note("client", number, [request.body])
            if self._tap.faults is not None:
                fate, seconds = self._shared.lane("client", number).fate()
                await asyncio.sleep(seconds)
                if fate == "drop":
                    await asyncio.wait((self._client.begin(),), timeout=_HELD)
                    return False
                if fate == "cut":
                    self._to_server.write(data[: -len(request.body) // 2])
                    raise Cut
                if fate == "duplicate" and (streams := await self._shared.server.connect()):
                    streams[1].write(data)
                    task = asyncio.ensure_future(_read_response(request.method, streams))
                    self._others.add(task)
        self._to_server.write(data)
        await self._to_server.drain()
        ahead = 0
        passing = asyncio.ensure_future(self._pass_response(request.method, number))
        try:
            while not passing.done():
                waits: set[asyncio.Future[Any]] = {passing}
                if ahead < _MAX_AHEAD:
                    waits.add(self._client.begin())
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if passing.done() or ahead >= _MAX_AHEAD:
                    continue
                if not (more := self._client.take()):
                    return False  # the client has left
                ahead += len(more)
                self._asked.receive_data(more)
            return passing.result()
        finally:
            passing.cancel()
            await asyncio.wait((passing,))

    # -- responses -------------------------------------------------------------------------------

    async def _pass_response(self, method: str, number: int) -> bool:
        """Pass the response of the server. Whether the connection goes on."""
        framer = self._responses
        framer.expect(method)
        response: _TappedResponse | None = None
        eof = False
        try:
            while True:
                for frame in self._answered:
                    if framer.part == "piece":
                        assert response is not None
                        await response.piece(bytes(frame or b""))
                    elif framer.part == "end":
                        assert response is not None
                        await response.end()
                        return not framer.ended
                    elif framer.part == "head":
                        head = framer.head
                        response = _TappedResponse(self._shared, number, head, self._writer)
                        if head.status == 101:
                            self._switched = True
                        else:
                            framer.take_pieces()
                        await response.begin()
                    else:  # behind the head of a WebSocket
                        assert response is not None
                        await response.end()
                        return True
                if framer.failure is not None or framer.ended or eof:
                    raise ConnectionResetError("the response of the server is not whole")
                await asyncio.wait((self._server.begin(),))
                if data := self._server.take():
                    self._answered.receive_data(data)
                else:
                    eof = True
                    self._answered.receive_eof()
        finally:
            if response is not None:
                await response.stop()


async def _read_response(method: str, streams: Streams) -> None:
    """Read a response that nobody gets, and close the connection."""
    framer = HttpFramer("client", max_body=MAX_MESSAGE, max_head=_MAX_HEAD, heads=True)
    framer.expect(method)
    stream = FrameStream(framer)
    try:
        while framer.part != "end" and (data := await streams[0].read(READ_SIZE)):
            stream.receive_data(data)
            for _ in stream:
                if framer.part == "head":
                    framer.take_pieces()
    except OSError:
        pass  # nobody waits for it
    finally:
        await close(streams[1])


class _TappedResponse:
    """A response that passes as it arrives; with faults, as whole messages."""

    def __init__(
        self, shared: HttpTap, number: int, head: HttpHead, writer: asyncio.StreamWriter
    ) -> None:
        self._shared = shared
        self._tap = shared.tap
        self._number = number
        self._chunked = head.chunked
        self._sink = StreamSink(writer)
        fields = head.fields
        if (session := _field(fields, "mcp-session-id")) is not None:
            shared.remember(session, number)
        kind = (_field(fields, "content-type") or "application/json").lower()
        self._events: EventReader | None = None
        if kind.startswith("text/event-stream"):
            self._events = EventReader(max_event=MAX_MESSAGE)
        self._collects = kind.startswith("application/json")
        self._head = head.raw
        self._rest = bytearray()  # of a body of JSON; with faults, of an event
        self._held: Held | None = None
        self._sending: asyncio.Future[None] | None = None
        if self._tap.faults is not None:
            self._held = Held(self._sink)
            self._sending = asyncio.ensure_future(self._held.run())

    async def begin(self) -> None:
        """Pass the head, unless it waits for the fate of its body."""
        if self._held is None or not self._collects:
            await self._send(b"")

    async def piece(self, data: bytes) -> None:
        """Pass a part of the body."""
        if self._events is None:
            if self._collects:
                self._rest += data
                if len(self._rest) <= MAX_MESSAGE:
                    if self._held is None:
                        await self._send(self._framed(data))
                    return
                self._collects = False
                if self._held is not None:
                    data = bytes(self._rest)
                self._rest.clear()
            await self._send(self._framed(data))
            return
        if self._held is None:
            self._note(data)
            await self._send(self._framed(data))
            return
        searched = max(0, len(self._rest) - 3)
        self._rest += data
        while (end := _EVENT_END.search(self._rest, searched)) is not None:
            event = bytes(self._rest[: end.end()])
            del self._rest[: end.end()]
            searched = 0
            if self._note(event):
                await self._meet(self._framed(event))
            else:
                await self._send(self._framed(event))
        if len(self._rest) > MAX_MESSAGE:
            await self._send(self._framed(bytes(self._rest)))
            self._rest.clear()

    async def end(self) -> None:
        """Pass the end of the body."""
        body = bytes(self._rest)
        last = b"0\r\n\r\n" if self._chunked else b""
        if self._collects and is_message(body):
            self._tap.note("server", self._number, [body])
            if self._held is not None:
                head, self._head = self._head, b""
                await self._meet(head + self._framed(body) + last)
                await self._flush()
                return
        if self._held is not None:
            last = self._framed(body) + last
        await self._send(last)
        await self._flush()

    async def stop(self) -> None:
        """Send nothing more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data

    async def _send(self, data: bytes) -> None:
        """Pass bytes, behind the head."""
        data, self._head = self._head + data, b""
        if not data:
            return
        if self._held is not None:
            await self._held.put(data, 0.0)
        else:
            await self._sink.send(data)

    async def _meet(self, data: bytes) -> None:
        """Let one message meet the faults."""
        assert self._held is not None
        lane = self._shared.lane("server", self._number)
        if self._events is not None:
            if not await lane.meet(data, self._held):
                await self._flush()  # which raises
            return
        fate, seconds = lane.fate(once=True)
        if fate == "drop":
            await asyncio.sleep(_HELD)  # or until the client leaves
            raise Cut
        cut = fate == "cut"
        await self._held.put(data[: len(data) // 2] if cut else data, seconds, last=cut)

    async def _flush(self) -> None:
        if self._held is not None and self._sending is not None:
            self._held.end()
            await self._sending

    def _note(self, data: bytes) -> bool:
        """Write the events down that end in a part of a stream. Whether there are messages."""
        assert self._events is not None
        found = []
        for event, text, _, _ in self._events.feed(data):
            body = bytes(text)
            if event == "endpoint":  # of HTTP+SSE: where this client posts
                url = urlsplit(body.decode("utf-8", "replace").strip())
                self._shared.remember(f"{url.path}?{url.query}", self._number)
            elif is_message(body):
                found.append(body)
        self._tap.note("server", self._number, found)
        return bool(found)


class _Reads:
    """The reads of one stream, each of which may be waited for together with other things."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._reading: asyncio.Future[bytes] | None = None

    def begin(self) -> asyncio.Future[bytes]:
        """Return the read that is under way, or a new one."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(READ_SIZE))
        return self._reading

    def take(self) -> bytes:
        """Return what was read: nothing at the end. OSError: the connection broke."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        return reading.result()

    def cancel(self) -> None:
        """Read nothing more."""
        if self._reading is not None:
            self._reading.cancel()


class _Behind:
    """The bytes of a stream behind the HTTP: a `ByteSource`."""

    def __init__(self, first: bytes, reads: _Reads) -> None:
        self._first = first
        self._reads = reads

    async def read(self, n: int, /) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        await asyncio.wait((self._reads.begin(),))
        return self._reads.take()


def is_message(data: bytes) -> bool:
    """Whether a text is a message, or a batch. An answer of an authorization server, which may be
    full of secrets, is not one."""
    first = data.lstrip()[:1]
    if first == b"[":
        try:
            batch = _batch(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        return bool(batch) and all("jsonrpc" in one for one in batch)
    return first == b"{" and parse(data).kind != "invalid"
