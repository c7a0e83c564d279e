"""The connections of a LiteMCP client, one after another: each sends requests, and matches answers
to them by id."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._core.streams import FrameStream
from wirespeed.client.connection import channels
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.client.http.answers import status_error
from wirespeed.client.targets import RECONNECTS, Http, Socket, WebSocket
from wirespeed.client.timeouts import DELAYS, Delays
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse
from wirespeed.litemcp.envelope import BadMessage, check_json, id_of
from wirespeed.litemcp.messages import VERSION, IOBasic
from wirespeed.peer.connection import AskingConnection

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.client.connection.channels import Channel
    from wirespeed.limits import Limits
    from wirespeed.transport.headers import Headers
    from wirespeed.transport.http.client_connection import HttpCall

__all__ = ["LiteLife", "LiteRequests"]

logger = logging.getLogger("wirespeed.litemcp")

MAX_LOGGED_FAULTS = 100
SHOWN = 200  # bytes of a bad message in a log line

PROBE_TIMEOUT = 60.0  # seconds; longer than any caller waits for the answer

_GET = b'{"version":%b,"id":%%d,"type":"get","data":{}}' % msgspec.json.encode(VERSION)
_CALL = b'{"version":%b,"id":%%d,"type":"call","data":%%b}' % msgspec.json.encode(VERSION)

_OWN_VERSION = msgspec.Raw(msgspec.json.encode(VERSION))
_ACCEPT = ("Accept", "application/json")
_TYPE = ("Content-Type", "application/json")
_TOKEN = "; Http(token=…) takes the server's token"

_message = msgspec.json.Decoder(IOBasic).decode

# Ids are the powers of a generator modulo the prime 2**31 - 1, from a random start: each number
# from 1 to 2**31 - 2 appears once before any repeats, so used ids need not be remembered.
PRIME = 2**31 - 1
GENERATOR = 48271


class LiteRequest:
    """A request that waits for its answer. Each event but the first call of `answered` for a future
    is the last one.

    Attributes:
        id: Its id, once it is sent.
        what: The request in errors.
        kind: The type that the answer must have.
        call: The request of HTTP; None over a stream.
        broke: Whether its connection broke after the server may have got it. Of HTTP.
    """

    __slots__ = ("broke", "call", "id", "kind", "timer", "what")

    def __init__(self, what: str, kind: str) -> None:
        self.id = 0
        self.what = what
        self.kind = kind
        self.timer: asyncio.TimerHandle | None = None
        self.call: HttpCall | None = None
        self.broke = False

    def answered(self, message: IOBasic) -> None:
        """An answer of the right type arrived."""
        raise NotImplementedError

    def expired(self, note: str) -> None:
        """The time of the request is over. ``note``: further facts for an error."""
        raise NotImplementedError

    def failed(self, exc: BaseException) -> None:
        """No answer will come, or it is not one."""
        raise NotImplementedError


class LiteWaiter(LiteRequest):
    """A request whose answer resolves a future: with what ``decode`` returns, or its
    InvalidResponse."""

    __slots__ = ("decode", "future", "seconds")

    def __init__(
        self,
        what: str,
        kind: str,
        decode: Callable[[IOBasic], Any],
        future: asyncio.Future[Any],
        seconds: float,
    ) -> None:
        super().__init__(what, kind)
        self.decode = decode
        self.future = future
        self.seconds = seconds

    def answered(self, message: IOBasic) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self.decode(message))
        except InvalidResponse as exc:
            self.future.set_exception(exc)

    def expired(self, note: str) -> None:
        text = f"{self.what} was not answered within {self.seconds:g} s{note}"
        self.failed(CallTimeout(text))

    def failed(self, exc: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(exc)


class LiteRequests(AskingConnection):
    """The requests to one server. Subclasses define `_send`."""

    closed_text = ended_text = "the link to the server is closed"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        owner: LiteLife | None = None,
        released: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(loop, owner, released)
        self.answers = 0
        self._limits = limits
        self._last_id = random.SystemRandom().randrange(1, PRIME)
        self._waiting: dict[int, LiteRequest] = {}
        self._on_stray: Callable[[int | None], object] | None = None

    @property
    def n_outstanding(self) -> int:
        """The number of requests that wait for their answers."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a request has to wait: too many answers are outstanding."""
        return len(self._waiting) >= self._limits.max_outstanding

    def request(
        self, what: str, call: bytes | None, decode: Callable[[IOBasic], Any], seconds: float
    ) -> LiteWaiter:
        """Send a request: ``call``, the JSON of a ToolCall; without it, the question for the tool.
        Returns its waiter.

        The waiter's future gets what ``decode`` returns for the answer. Its errors are CallTimeout
        after ``seconds``, InvalidResponse if the answer is of another type, and the error of a lost
        link. A caller that needs the answer no longer calls `forget`.
        """
        kind = "info" if call is None else "result"
        waiter = LiteWaiter(what, kind, decode, self.loop.create_future(), seconds)
        self.ask(waiter, call, seconds)
        return waiter

    def ask(self, request: LiteRequest, call: bytes | None, seconds: float) -> None:
        """Send a request, which gets its events from then on."""
        self._last_id = request.id = self._last_id * GENERATOR % PRIME
        self._waiting[request.id] = request
        if seconds != math.inf:
            request.timer = self.loop.call_later(seconds, self._expire, request)
        try:
            self._send(request, call)
        except BaseException:
            self.forget(request)
            raise

    def _send(self, request: LiteRequest, call: bytes | None) -> None:
        """Send a request, or raise the error of a link that is gone."""
        raise NotImplementedError

    def _expire(self, request: LiteRequest) -> None:
        self.forget(request)
        request.expired(self.exit_note)

    def measure(self, on_stray: Callable[[int | None], object] | None) -> None:
        """Hide nothing of the server: a function gets the id of each answer to no request that
        waits, and None for what is not a message. None ends it."""
        self._on_stray = on_stray

    def forget(self, request: LiteRequest) -> None:
        """Forget a request: a later answer is dropped."""
        if self._take(request.id) is not None and request.call is not None:
            request.call.abort()

    def _take(self, id: int) -> LiteRequest | None:
        """Return the request with an id, which waits no longer."""
        waiter = self._waiting.pop(id, None)
        if waiter is not None:
            if waiter.timer is not None:
                waiter.timer.cancel()
            self.on_drained()
        return waiter

    def fail_requests(self) -> None:
        """Fail the requests that wait."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if waiter.timer is not None:
                waiter.timer.cancel()
            waiter.failed(self.error())


# -- streams ---------------------------------------------------------------------------------------


class LiteClientConnection(LiteRequests):
    """A connection of a `wirespeed.litemcp.LiteClient`. ``released`` is called after its link is
    closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        owner: LiteLife,
        framer: Framer,
        released: Callable[[], None],
    ) -> None:
        super().__init__(loop, limits, owner, released)
        self.wire = self.stream = FrameStream(framer, limits=limits)
        self.faults = 0  # frames that are not messages
        self.noise: bytes | None = None  # the first frame that was not a message

    # -- requests --------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether a request has to wait: too much output is queued, or too many answers are
        outstanding."""
        return self.link is not None and (
            super().full or len(self.wire.outbox) >= self._limits.output_high
        )

    def _send(self, request: LiteRequest, call: bytes | None) -> None:
        if self.link is None or self.draining:
            raise self.error()
        self.stream.send(_GET % request.id if call is None else _CALL % (request.id, call))
        self.link.wrote()

    def probe(self) -> asyncio.Future[Any] | None:
        """Send a request that every server answers. Returns the future of the answer; None if the
        link is closed."""
        if self.link is None:
            return None
        return self.request("get", None, lambda message: None, PROBE_TIMEOUT).future

    # -- answers ---------------------------------------------------------------------------------

    def on_data(self) -> None:
        """Handle the messages of the input."""
        stream = self.stream
        for frame in stream:
            if frame is None:
                self._fault(f"longer than the limit of {self._limits.max_message} bytes", None)
                continue
            try:
                raw_id = id_of(stream, frame, self._limits.max_depth)
                message = _message(frame)
            except BadMessage as exc:
                self._fault(str(exc), frame)
            except (msgspec.DecodeError, RecursionError) as exc:
                self._fault(f"not a message of LiteMCP ({exc})", frame)
            else:
                self._receive(message, raw_id)

    def _receive(self, message: IOBasic, raw_id: bytes) -> None:
        self.answers += 1
        # ids of this client have at most 10 digits, and a very long integer is slow to parse
        number = int(raw_id) if len(raw_id) <= 10 else -1
        waiter = self._take(number)
        if waiter is None:  # a late answer, or an answer without a request
            logger.debug("no request waits for an answer with id %s", raw_id[:40].decode())
            if self._on_stray is not None:
                self._on_stray(number)
        elif message.type == waiter.kind:
            waiter.answered(message)
        else:
            text = f"{waiter.what} was answered by {message.type!r} instead of {waiter.kind!r}"
            waiter.failed(InvalidResponse(text))

    def _fault(self, reason: str, frame: Lease | None) -> None:
        self.faults += 1
        text = b"" if frame is None else bytes(memoryview(frame)[:SHOWN])
        if self.noise is None:
            self.noise = text
        if self._on_stray is not None:
            self._on_stray(None)
        if self.faults <= MAX_LOGGED_FAULTS:
            logger.warning("skipped a line that is not a message (%s): %r", reason, text)


# -- HTTP ------------------------------------------------------------------------------------------


class HttpRequests(LiteRequests):
    """The requests to one server over HTTP, and the channel to it: GET for the tool, POST for a
    call (LiteMCP, transmission/http). Nothing is sent before the first
    request. TransportError: the proxy of the environment is not valid."""

    def __init__(self, target: Http, limits: Limits) -> None:
        from wirespeed._core.framing.http.writer import field_lines
        from wirespeed.client.connection.network_channels import pools_to

        loop = asyncio.get_running_loop()
        super().__init__(loop, limits)
        self.target = target
        self.max_depth = limits.max_depth
        self._pool = pools_to(target, loop, limits)(target.max_connections)
        fields = [*target.request_headers().items(), _ACCEPT]
        self._get_fields = field_lines(fields)
        self._post_fields = field_lines([*fields, _TYPE])

    @property
    def usable(self) -> bool:
        """Whether requests can be sent, now or as soon as there is room (`full`)."""
        return not self.draining

    def _send(self, request: LiteRequest, call: bytes | None) -> None:
        method = "GET" if call is None else "POST"
        fields = self._get_fields if call is None else self._post_fields
        place, answer = self.target.address.target, _Answer(self, request)
        request.call = self._pool.request(method, place, fields, call, answer)

    def ended(self, answer: _Answer, exc: BaseException | None) -> None:
        """The response is whole, or an error is known."""
        waiter = self._take(answer.waiter.id)
        if waiter is None:
            return
        if exc is None:
            self.answers += 1
            exc = self._fault(answer)
        if exc is not None:
            waiter.failed(exc)
        else:
            # the envelope that HTTP leaves out
            waiter.answered(IOBasic(waiter.kind, _OWN_VERSION, data=msgspec.Raw(answer.body)))

    def _fault(self, answer: _Answer) -> Exception | None:
        """Return why a response is not an answer; None: it is."""
        what, status = answer.waiter.what, answer.status
        if status != 200:
            note = _TOKEN if status in (401, 403) and self.target.token is None else ""
            return status_error(
                self.target.where,
                what,
                status,
                answer.headers,
                answer.body,
                secrets=self.target.secrets(),
                note=note,
            )
        try:
            check_json(answer.body, self.max_depth)
        except BadMessage as exc:
            return InvalidResponse(f"{self.target.where} answered {what} with a body that is {exc}")
        return None

    # -- the channel -----------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Nothing is queued."""

    def released(self) -> None:
        """There is no link."""

    async def failure(self, reason: str) -> ConnectionClosed:
        """Return the error of a link that is gone."""
        return ConnectionClosed(reason)

    async def close(self, *, hurry: bool = False) -> None:
        """End all requests, and close all connections, which waits for nothing."""
        await self._pool.close()


class _Answer:
    """The receiver of one response; see `wirespeed.transport.http.pool.Receiver`."""

    __slots__ = ("body", "headers", "requests", "status", "waiter")

    headers: Headers

    def __init__(self, requests: HttpRequests, waiter: LiteRequest) -> None:
        self.requests = requests
        self.waiter = waiter
        self.status = 0
        self.body = b""

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        self.status, self.headers = status, headers
        if streaming:
            where, what = self.requests.target.where, self.waiter.what
            exc = InvalidResponse(f"{where} answered {what} with a stream of events")
            self.requests.ended(self, exc)
            if self.waiter.call is not None:
                self.waiter.call.abort()

    def on_body(self, data: Any) -> None:
        self.body = bytes(data).removeprefix(BOM_UTF8)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        """No event is received."""

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        self.waiter.broke = sent and exc is not None
        self.requests.ended(self, exc)


# -- one link after another ------------------------------------------------------------------------


class _Host:
    """A host that ignores all events: a LiteMCP server sends answers only."""

    listens = False

    def parted(self, exc: BaseException) -> None:
        """The link is lost."""


class LiteLife(Lifecycle):
    """The links to one target, one after another. ``on_link`` is called before each new link.
    ``host`` hears when one is lost for good."""

    def __init__(
        self,
        target: Any,
        limits: Limits,
        strict: bool,
        on_link: Callable[[], None],
        host: Any = None,
        delays: Delays = DELAYS,
    ) -> None:
        host = _Host() if host is None else host
        identity: Any = None
        super().__init__(
            *(target, "auto", identity, limits, host),
            handshake_timeout=0.0,
            probe_timeout=0.0,
            delays=delays,
        )
        self._lenient = not strict
        self._on_link = on_link

    async def _start(self) -> None:
        try:
            await self._connect()
        except BaseException:
            await self._drop("the client could not be opened")
            raise
        self.live = self._connection  # set by `join`
        self._live_since = asyncio.get_running_loop().time()

    async def _connect(self) -> None:
        self._channel = self._connection = None
        self._on_link()
        if isinstance(self.target, Http):
            requests: Any = HttpRequests(self.target, self._limits)
            self._channel = self._connection = requests
            return
        channel = channel_for(self.target, self._delays)

        def join(framer: Framer | None) -> Any:
            if framer is None:
                framer = BlankLineFramer(self._limits.max_message, lenient=self._lenient)
            made: Any = LiteClientConnection(
                asyncio.get_running_loop(), self._limits, self, framer, channel.released
            )
            self._connection = made
            return made

        self._channel = channel
        await channel.open(join, self._limits)

    def lost(self, connection: Any, reason: str) -> None:
        """The link is lost. The number of crashes starts at 0 again if the server has answered."""
        if connection.answers and self._gone is not connection:
            self.crashes = 0
        super().lost(connection, reason)

    def _with_noise(self, connection: Any, reason: str) -> str:
        if connection.noise is None or connection.answers:
            return reason
        return f"{reason} (the server wrote a line that is not a message: {connection.noise!r})"

    @property
    def restarts(self) -> int:
        """The most consecutive times that a lost link is made again. The default for WebSocket and
        `Socket` is `RECONNECTS`, because LiteMCP connections have no state."""
        restart = getattr(self.target, "restart", 0)
        if restart is None and isinstance(self.target, WebSocket | Socket):
            return RECONNECTS
        return int(restart or 0)


def channel_for(target: Any, delays: Delays = DELAYS) -> Channel:
    """Return a new channel to the target, for one link: those of MCP clients, with other rules for
    WebSocket."""
    from wirespeed.litemcp.server import LiteServer

    if isinstance(target, LiteServer):
        server: Any = target
        return channels.MemoryChannel(server)
    if isinstance(target, WebSocket):
        from wirespeed.client.connection.network_channels import WebSocketChannel

        channel = WebSocketChannel(target, delays)
        channel.subprotocols = ()  # LiteMCP has none
        return channel
    return channels.channel_for(target, delays)
