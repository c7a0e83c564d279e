"""The requests of a LiteMCP client that wait for their answers, over every transport."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.litemcp.messages import IOBasic
    from wirespeed.transport.http.client_connection import HttpCall

# Ids are the powers of a generator modulo the prime 2**31 - 1, from a random start: each number
# from 1 to 2**31 - 2 appears once before any repeats, so used ids need not be remembered.
PRIME = 2**31 - 1
GENERATOR = 48271


class Waiter:
    """A request that waits for its answer.

    Attributes:
        id: Its id.
        what: The request in errors.
        kind: The type that the answer must have.
        decode: Reads the answer.
        call: The request of HTTP; None over a stream.
    """

    __slots__ = ("call", "decode", "future", "id", "kind", "seconds", "timer", "what")

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
        self.kind = kind
        self.decode = decode
        self.future = future
        self.seconds = seconds
        self.timer: asyncio.TimerHandle | None = None
        self.call: HttpCall | None = None

    def answered(self, message: IOBasic) -> None:
        """Set the result: what `decode` returns, or its InvalidResponse."""
        try:
            self.future.set_result(self.decode(message))
        except InvalidResponse as exc:
            self.future.set_exception(exc)


class Requests:
    """The requests to one server. Subclasses define `_send`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.loop = loop
        self.lost_error: BaseException | None = None
        self.exit_note = ""  # added to the error of a request without an answer
        self.gone = False  # sending has ended, though the link may still be open
        self.answers = 0
        self._limits = limits
        self._last_id = random.SystemRandom().randrange(1, PRIME)
        self._waiting: dict[int, Waiter] = {}
        self._room: deque[asyncio.Future[None]] = deque()

    @property
    def usable(self) -> bool:
        """Whether requests can be sent, now or as soon as there is room (`full`)."""
        return not self.gone

    @property
    def n_outstanding(self) -> int:
        """The number of requests that wait for their answers."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a request has to wait, because too many answers are outstanding."""
        return len(self._waiting) >= self._limits.max_outstanding

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
        self, what: str, call: bytes | None, decode: Callable[[IOBasic], Any], seconds: float
    ) -> Waiter:
        """Send a request: ``call``, the JSON of a ToolCall; without it, the question for the tool.
        Returns its waiter.

        The waiter's future gets what ``decode`` returns for the answer. Its errors are CallTimeout
        after ``seconds``, InvalidResponse if the answer is of another type, and the error of a lost
        link. A caller that needs the answer no longer calls `forget`.
        """
        self._last_id = number = self._last_id * GENERATOR % PRIME
        kind = "info" if call is None else "result"
        waiter = Waiter(number, what, kind, decode, self.loop.create_future(), seconds)
        self._waiting[number] = waiter
        if seconds != math.inf:
            waiter.timer = self.loop.call_later(seconds, self._expire, waiter)
        try:
            self._send(waiter, call)
        except BaseException:
            self.forget(waiter)
            raise
        return waiter

    def _send(self, waiter: Waiter, call: bytes | None) -> None:
        """Send a request, or raise the error of a link that is gone."""
        raise NotImplementedError

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
        if self._take(waiter.id) is not None and waiter.call is not None:
            waiter.call.abort()

    def _take(self, id: int) -> Waiter | None:
        """Return the request with an id, which waits no longer."""
        waiter = self._waiting.pop(id, None)
        if waiter is not None:
            if waiter.timer is not None:
                waiter.timer.cancel()
            if self._room:
                self._release_one()
        return waiter

    def _release_one(self) -> None:
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _release_room(self) -> None:
        for _ in range(len(self._room)):
            self._release_one()

    # -- the end ---------------------------------------------------------------------------------

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
