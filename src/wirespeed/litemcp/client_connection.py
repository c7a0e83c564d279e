"""One connection of a LiteMCP client: sends requests, and matches answers to them by id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.streams import FrameStream
from wirespeed.errors import InvalidResponse
from wirespeed.litemcp.envelope import BadMessage, id_of
from wirespeed.litemcp.messages import VERSION, IOBasic
from wirespeed.litemcp.requests import Requests, Waiter
from wirespeed.transport.link import Endpoint

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.limits import Limits

logger = logging.getLogger("wirespeed.litemcp")

MAX_LOGGED_FAULTS = 100
SHOWN = 200  # bytes of a bad message in a log line

PROBE_TIMEOUT = 60.0  # seconds; longer than any caller waits for the answer

_GET = b'{"version":%b,"id":%%d,"type":"get","data":{}}' % msgspec.json.encode(VERSION)
_CALL = b'{"version":%b,"id":%%d,"type":"call","data":%%b}' % msgspec.json.encode(VERSION)

_message = msgspec.json.Decoder(IOBasic).decode


class Owner(Protocol):
    """What a connection needs of its owner."""

    def lost(self, connection: LiteClientConnection, reason: str) -> None:
        """The link is lost, for the given reason. May be called more than once."""


class LiteClientConnection(Requests, Endpoint):
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
        super().__init__(loop, limits)
        self.owner = owner
        self.released = released
        self.wire = self.stream = FrameStream(framer, limits=limits)
        self.faults = 0  # frames that are not messages
        self.noise: bytes | None = None  # the first frame that was not a message

    # -- requests --------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the link can take requests, now or as soon as it is not `full`."""
        return self.link is not None and not self.gone

    @property
    def full(self) -> bool:
        """Whether a request has to wait: too much output is queued, or too many answers are
        outstanding."""
        limits = self._limits
        return (
            len(self.wire.outbox) >= limits.output_high
            or len(self._waiting) >= limits.max_outstanding
        )

    def _send(self, waiter: Waiter, call: bytes | None) -> None:
        if self.link is None or self.gone:
            raise self.error()
        self.stream.send(_GET % waiter.id if call is None else _CALL % (waiter.id, call))
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
        waiter = self._take(int(raw_id)) if len(raw_id) <= 10 else None
        if waiter is None:  # a late answer, or an answer without a request
            logger.debug("no request waits for an answer with id %s", raw_id[:40].decode())
        elif waiter.future.done():
            pass
        elif message.type == waiter.kind:
            waiter.answered(message)
        else:
            waiter.future.set_exception(
                InvalidResponse(
                    f"{waiter.what} was answered by {message.type!r} instead of {waiter.kind!r}"
                )
            )

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
