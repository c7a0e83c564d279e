"""One link of a LiteMCP client: requests out, answers matched by their ids."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.frames import FrameStream
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse
from wirespeed.litemcp.envelope import BadMessage, id_of
from wirespeed.litemcp.messages import IOBasic
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.limits import Limits

logger = logging.getLogger("wirespeed.litemcp")

MAX_LOGGED_FAULTS = 100
SHOWN = 200  # bytes of a bad message that is shown

# Ids are the powers of a generator of the prime 2**31 - 1, from a random one on: each number from 1
# to 2**31 - 2 comes once before any comes again, and none needs to be remembered.
PRIME = 2**31 - 1
GENERATOR = 48271

_message = msgspec.json.Decoder(IOBasic).decode


class Owner(Protocol):
    """What a connection tells its client."""

    def lost(self, connection: LiteClientConnection, reason: str) -> None:
        """The link is of no more use, for this reason. May be said more than once."""


class _Waiter:
    __slots__ = ("decode", "future", "id", "kind", "seconds", "timer", "what")

    def __init__(
        self,
        id: int,
        what: str,
        kind: str,
        decode: Callable[[IOBasic], Any],
        future: asyncio.Future[Any],
    ) -> None:
        self.id = id
        self.what = what
        self.kind = kind  # of the answer
        self.decode = decode
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.seconds = 0.0


class LiteClientConnection(Endpoint):
    """A connection of a `wirespeed.litemcp.LiteClient`. ``released`` is called once its link is
    gone."""

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
        self.faults = 0  # frames that were no answer to anything
        self.answers = 0
        self.noise: bytes | None = None  # the first frame that was no message
        self._limits = limits
        self._last_id = random.SystemRandom().randrange(1, PRIME)
        self._waiting: dict[int, _Waiter] = {}
        self._room: list[asyncio.Future[None]] = []

    # -- requests --------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether a request has to wait: the server reads too slowly, or owes too many answers."""
        return (
            len(self.wire.outbox) >= self._limits.output_high
            or len(self._waiting) >= self._limits.max_outstanding
        )

    def wait_for_room(self) -> asyncio.Future[None]:
        """A future that is done when it is worth to look at `full` again."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._room.append(waiter)
        return waiter

    def request(
        self,
        what: str,
        head: bytes,
        tail: bytes,
        kind: str,
        decode: Callable[[IOBasic], Any],
        seconds: float | None,
    ) -> asyncio.Future[Any]:
        """Send a request: ``head``, an id, ``tail``. The future gets what ``decode`` makes of the
        answer, which must be of type ``kind``. If it is cancelled, the answer will be dropped."""
        self._last_id = number = self._last_id * GENERATOR % PRIME
        future: asyncio.Future[Any] = self.loop.create_future()
        waiter = _Waiter(number, what, kind, decode, future)
        self.stream.send(b"%b%d%b" % (head, number, tail))
        self._waiting[number] = waiter
        if seconds is not None:
            waiter.seconds = seconds
            waiter.timer = self.loop.call_later(seconds, self._expire, waiter)
        future.add_done_callback(lambda _: self._forget(waiter))
        if self.link is not None:
            self.link.wrote()
        return future

    def _expire(self, waiter: _Waiter) -> None:
        waiter.timer = None
        if not waiter.future.done():
            waiter.future.set_exception(
                CallTimeout(f"{waiter.what} was not answered within {waiter.seconds:g} s")
            )

    def _forget(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._waiting.pop(waiter.id, None)
        if self._room:
            self._release_room()

    def _release_room(self) -> None:
        room, self._room = self._room, []
        for waiter in room:
            if not waiter.done():
                waiter.set_result(None)

    # -- answers ---------------------------------------------------------------------------------

    def on_data(self) -> None:
        """Work through what has come."""
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
                self._fault(f"no message of LiteMCP ({exc})", frame)
            else:
                self._receive(message, raw_id, frame)

    def _receive(self, message: IOBasic, raw_id: bytes, frame: Lease) -> None:
        waiter = self._waiting.get(int(raw_id)) if len(raw_id) <= 10 else None
        if waiter is None or waiter.future.done():
            # an answer that came too late, or to nothing
            logger.debug("nothing waits for an answer with id %s", raw_id[:40].decode())
            self.answers += 1
            return
        self.answers += 1
        if message.type != waiter.kind:
            waiter.future.set_exception(
                InvalidResponse(
                    f"{waiter.what} was answered by {message.type!r} instead of {waiter.kind!r}"
                )
            )
            return
        try:
            waiter.future.set_result(waiter.decode(message))
        except InvalidResponse as exc:
            waiter.future.set_exception(exc)

    def _fault(self, reason: str, frame: Lease | None) -> None:
        self.faults += 1
        text = b"" if frame is None else bytes(memoryview(frame)[:SHOWN])
        if self.noise is None:
            self.noise = text
        if self.faults <= MAX_LOGGED_FAULTS:
            logger.warning("skipped what is no message (%s): %r", reason, text)

    # -- the end ---------------------------------------------------------------------------------

    def on_eof(self) -> None:
        """The server says no more."""
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
        """Everything that waits fails with this; so will what comes later."""
        if self.lost_error is None:
            self.lost_error = exc
        for waiter in list(self._waiting.values()):
            if not waiter.future.done():
                waiter.future.set_exception(self.error())
        self._release_room()

    def error(self) -> BaseException:
        """What a call fails with now: a new exception for each, with the same text."""
        exc = self.lost_error
        if exc is None:
            return ConnectionClosed("the link to the server is closed")
        return type(exc)(*exc.args)
