"""One connection of a LiteMCP client: sends requests, and matches answers to them by id."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.frames import FrameStream
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse
from wirespeed.litemcp.envelope import BadMessage, id_of
from wirespeed.litemcp.messages import VERSION, IOBasic
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.limits import Limits

logger = logging.getLogger("wirespeed.litemcp")

MAX_LOGGED_FAULTS = 100
SHOWN = 200  # bytes of a bad message in a log line

# Ids are the powers of a generator modulo the prime 2**31 - 1, from a random start: each number
# from 1 to 2**31 - 2 appears once before any repeats, so used ids need not be remembered.
PRIME = 2**31 - 1
GENERATOR = 48271

HEAD = b'{"version":%b,"id":' % msgspec.json.encode(VERSION)
GET = b',"type":"get","data":{}}'
PROBE_TIMEOUT = 60.0  # seconds; longer than any caller waits for the answer

_message = msgspec.json.Decoder(IOBasic).decode


class Owner(Protocol):
    """What a connection needs of its owner."""

    def lost(self, connection: LiteClientConnection, reason: str) -> None:
        """The link is lost, for the given reason. May be called more than once."""


class Waiter:
    """A request that waits for its answer."""

    __slots__ = ("decode", "future", "id", "kind", "seconds", "timer", "what")

    def __init__(
        self,
        id: int,
        what: str,
        kind: str,
        decode: Callable[[IOBasic], Any],
        future: asyncio.Future[Any],
        seconds: float,
    ) -> None:
        self.id = id
        self.what = what
        self.kind = kind  # the type that the answer must have
        self.decode = decode
        self.future = future
        self.seconds = seconds
        self.timer: asyncio.TimerHandle | None = None


class LiteClientConnection(Endpoint):
    """A connection of a `wirespeed.litemcp.LiteClient`. ``released`` is called after its link is
    closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        owner: Owner,
        framer: Framer,
        released: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.owner = owner
        self.released = released
        self.wire = self.stream = FrameStream(framer, limits=limits)
        self.lost_error: BaseException | None = None
        self.exit_note = ""  # added to the error of a request without an answer
        self.gone = False  # sending has ended, though the link may still be open
        self.faults = 0  # frames that are not messages
        self.answers = 0
        self.noise: bytes | None = None  # the first frame that was not a message
        self._limits = limits
        self._last_id = random.SystemRandom().randrange(1, PRIME)
        self._waiting: dict[int, Waiter] = {}
        self._room: deque[asyncio.Future[None]] = deque()

    # -- requests --------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the link can take requests, now or as soon as it is not `full`."""
        return self.link is not None and not self.gone

    @property
    def n_outstanding(self) -> int:
        """The number of requests that wait for their answers."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a request has to wait: too much output is queued, or too many answers are
        outstanding."""
        return (
            len(self.wire.outbox) >= self._limits.output_high
            or len(self._waiting) >= self._limits.max_outstanding
        )

    async def wait_for_room(self) -> None:
        """Wait until `full` may have changed."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._room.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release_one()  # wake the next waiter instead
            raise

    def request(
        self,
        what: str,
        head: bytes,
        tail: bytes,
        kind: str,
        decode: Callable[[IOBasic], Any],
        seconds: float,
    ) -> Waiter:
        """Send a request: ``head``, a new id, ``tail``. Returns its waiter.

        The waiter's future gets what ``decode`` returns for the answer. Its errors are CallTimeout
        after ``seconds``, InvalidResponse if the answer is not of type ``kind``, and the error of a
        lost link. A caller that needs the answer no longer calls `forget`.
        """
        if self.link is None or self.gone:
            raise self.error()
        self._last_id = number = self._last_id * GENERATOR % PRIME
        waiter = Waiter(number, what, kind, decode, self.loop.create_future(), seconds)
        self.stream.send(b"%b%d%b" % (head, number, tail))
        self._waiting[number] = waiter
        if seconds != math.inf:
            waiter.timer = self.loop.call_later(seconds, self._expire, waiter)
        self.link.wrote()
        return waiter

    def probe(self) -> asyncio.Future[Any] | None:
        """Send a request that every server answers. Returns the future of the answer; None if the
        link is closed."""
        if self.link is None:
            return None
        return self.request("get", HEAD, GET, "info", lambda message: None, PROBE_TIMEOUT).future

    def _expire(self, waiter: Waiter) -> None:
        self.forget(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(
                CallTimeout(
                    f"{waiter.what} was not answered within {waiter.seconds:g} s{self.exit_note}"
                )
            )

    def forget(self, waiter: Waiter) -> None:
        """Forget a request: a later answer is dropped."""
        if self._waiting.pop(waiter.id, None) is not None:
            self._settle(waiter)

    def _settle(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        if self._room:
            self._release_one()

    def _release_one(self) -> None:
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _release_room(self) -> None:
        for _ in range(len(self._room)):
            self._release_one()

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
        waiter = self._waiting.pop(int(raw_id), None) if len(raw_id) <= 10 else None
        if waiter is None:  # a late answer, or an answer without a request
            logger.debug("no request waits for an answer with id %s", raw_id[:40].decode())
            return
        self._settle(waiter)
        future = waiter.future
        if future.done():
            return
        if message.type != waiter.kind:
            future.set_exception(
                InvalidResponse(
                    f"{waiter.what} was answered by {message.type!r} instead of {waiter.kind!r}"
                )
            )
            return
        try:
            future.set_result(waiter.decode(message))
        except InvalidResponse as exc:
            future.set_exception(exc)

    def _fault(self, reason: str, frame: Lease | None) -> None:
        self.faults += 1
        text = b"" if frame is None else bytes(memoryview(frame)[:SHOWN])
        if self.noise is None:
            self.noise = text
        if self.faults <= MAX_LOGGED_FAULTS:
            logger.warning("skipped a line that is not a message (%s): %r", reason, text)

    # -- the end ---------------------------------------------------------------------------------

    def on_eof(self) -> None:
        """The server has closed its output."""
        self.owner.lost(self, "the server closed its output")

    def on_lost(self, exc: BaseException | None) -> None:
        """The link is gone."""
        self._release_room()
        self.released()
        reason = "the link to the server is closed"
        self.owner.lost(self, reason if exc is None else f"the link to the server broke ({exc})")

    def on_drained(self) -> None:
        """The server reads again."""
        self._release_room()

    def fail(self, exc: BaseException) -> None:
        """Fail all waiting requests and all later requests with an error."""
        self.gone = True
        if self.lost_error is None:
            self.lost_error = exc
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if waiter.timer is not None:
                waiter.timer.cancel()
            if not waiter.future.done():
                waiter.future.set_exception(self.error())
        self._release_room()

    def error(self) -> BaseException:
        """Return the error of a call: a new exception for each call, with the same text."""
        exc = self.lost_error
        if exc is None:
            return ConnectionClosed("the link to the server is closed")
        return type(exc)(*exc.args)
