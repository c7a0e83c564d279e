"""Being told of changes: what `Client.subscribe` gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from wirespeed.client.calls import Meta
from wirespeed.client.events import Event, Notice, Overflowed, Resumed, SubscriptionFilter
from wirespeed.client.hub import Feed, Hub
from wirespeed.errors import CallTimeout, WirespeedError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Subscription"]


class Subscription(Feed):
    """What changed, as an asynchronous iterator of `Event`: see `Client.subscribe`.

    It begins with ``async with``, which waits until the server acknowledged it; ``honoured`` then
    says what of it the server tells. RemoteError there: the server has no subscriptions, or refuses
    this one. A subscription is used once.

    Events wait until they are fetched. One that is equal to one that waits already is not added:
    "the list changed" twice in a row says no more than once. At ``max_events`` they are all
    replaced by one `Overflowed`.

    The iterator ends when the server ends the subscription in order, and raises what ended it
    otherwise: ConnectionClosed when the client is closed, ChildExited or ConnectionLost for a link
    that is lost. A client that connects again, or starts the server again, subscribes again, and
    the iterator goes on with `Resumed`.
    """

    def __init__(
        self,
        hub: Hub,
        wanted: SubscriptionFilter,
        max_events: int,
        timeout: float | None,
        meta: Meta | None = None,
    ) -> None:
        if max_events < 1:
            raise ValueError("max_events must be at least 1")
        super().__init__(wanted, meta)
        self._hub = hub
        self._max_events = max_events
        self._timeout = timeout
        self._events: dict[object, Event] = {}  # in order; equal ones once
        self._wake = asyncio.Event()
        self._state = "new"
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Subscription {self._state}: {self.wanted.wire()}>"

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("a subscription is used once: make another one")
        self._state = "opening"
        try:
            await self._hub.open(self, self._timeout)
        except BaseException as exc:
            self.ended(exc if isinstance(exc, WirespeedError) else None)
            raise
        if self._state == "opening":
            self._state = "open"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it: nothing more comes. What waits can still be fetched."""
        self._hub.close(self)
        self.ended(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event; None at the end. CallTimeout: there is none within so many seconds, and
        nothing is lost."""
        if self._state == "new":
            raise RuntimeError('a subscription begins with "async with"')
        try:
            async with asyncio.timeout(timeout):
                while not self._events and self._state != "over":
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            raise CallTimeout("nothing changed within the time limit") from None
        if self._events:
            return self._events.pop(next(iter(self._events)))
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        return None

    # -- for the hub -----------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        if self._state == "over":
            return
        key = object() if isinstance(event, Notice) else event
        if key not in self._events and len(self._events) >= self._max_events:
            self._events.clear()
            key = event = Overflowed()
        self._events[key] = event
        self._wake.set()

    def resumed(self) -> None:
        self.deliver(Resumed())

    def ended(self, exc: BaseException | None) -> None:
        if self._state != "over":
            self._state = "over"
            self._error = exc
        self._wake.set()
