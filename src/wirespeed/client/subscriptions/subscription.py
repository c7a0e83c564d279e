"""Subscriptions to changes: see `Client.subscribe`."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Self

from wirespeed._exports import set_public_home
from wirespeed.client.requests.send import Meta
from wirespeed.client.subscriptions.events import (
    Event,
    Notice,
    Overflowed,
    Resumed,
    SubscriptionFilter,
)
from wirespeed.client.subscriptions.router import Subscriber, SubscriptionRouter
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, seconds_of, shown
from wirespeed.errors import CallTimeout, WirespeedError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Subscription"]


class Subscription:
    """A subscription to changes, as an asynchronous iterator of `Event`: see `Client.subscribe`.

    ``async with`` begins the subscription, and waits for the server's acknowledgement; ``honoured``
    then lists the changes that the server will report. RemoteError: the server has no
    subscriptions, or refuses this one. A subscription is used once.

    Events wait until they are fetched. An event that equals a waiting event is not added. At
    ``max_events`` waiting events, one `Overflowed` replaces all of them.

    The iterator ends when the server ends the subscription in order. Otherwise the iterator raises
    the error that ended the subscription: ConnectionClosed for a closed client, ChildExited or
    ConnectionLost for a lost link. A client that connects again, or starts the server again,
    subscribes again, and the iterator continues with `Resumed`.
    """

    def __init__(
        self,
        router: SubscriptionRouter,
        wanted: SubscriptionFilter,
        max_events: int = 1000,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> None:
        if max_events < 1:
            raise ValueError("max_events must be at least 1")
        self._router = router
        self._timeout = timeout
        self._inlet = _Inlet(wanted, meta, max_events)

    def __repr__(self) -> str:
        return f"<Subscription {self._inlet.state}: {self.wanted.wire()}>"

    @property
    def wanted(self) -> SubscriptionFilter:
        """The filter of the subscription."""
        return self._inlet.wanted

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """The part of the filter that the server reports; None before the acknowledgement."""
        return self._inlet.honoured

    async def __aenter__(self) -> Self:
        inlet = self._inlet
        if inlet.state != "new":
            raise RuntimeError("a subscription is used once: call subscribe() again")
        inlet.state = "opening"
        try:
            await self._router.open(inlet, self._timeout)
        except BaseException as exc:
            inlet.over(exc if isinstance(exc, WirespeedError) else None)
            raise
        if inlet.state == "opening":
            inlet.state = "open"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription. Events that wait can still be fetched."""
        self._router.close(self._inlet)
        self._inlet.over(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, timeout: float | None = None) -> Event | None:
        """Return the next event; None at the end. CallTimeout: no event arrived within *timeout*
        seconds; with 0 or below, no event waits. A timeout loses no event."""
        inlet = self._inlet
        limit = seconds_of(timeout, None)
        if inlet.state == "new":
            raise RuntimeError('a subscription begins with "async with"')
        try:
            async with asyncio.timeout(None if limit == math.inf else limit):
                while not inlet.events and inlet.state != "over":
                    inlet.wake.clear()
                    await inlet.wake.wait()
        except TimeoutError:
            text = f"nothing changed within {shown(limit)}" if limit > 0 else "no event waits"
            raise CallTimeout(text) from None
        if inlet.events:
            return inlet.events.pop(next(iter(inlet.events)))
        if inlet.error is not None:
            raise type(inlet.error)(*inlet.error.args)
        return None


class _Inlet(Subscriber):
    """The waiting events of one subscription."""

    def __init__(self, wanted: SubscriptionFilter, meta: Meta | None, max_events: int) -> None:
        super().__init__(wanted, meta)
        self.events: dict[object, Event] = {}  # in order, equal events once
        self.wake = asyncio.Event()
        self.state = "new"
        self.error: BaseException | None = None
        self._max_events = max_events

    def deliver(self, event: Event) -> None:
        if self.state == "over":
            return
        key = object() if isinstance(event, Notice) else event
        if key not in self.events and len(self.events) >= self._max_events:
            self.events.clear()
            key = event = Overflowed()
        self.events[key] = event
        self.wake.set()

    def resumed(self) -> None:
        self.deliver(Resumed())

    def ended(self, exc: BaseException | None, acknowledged: bool) -> None:
        self.over(exc)

    def parted(self, exc: BaseException) -> None:
        self.over(exc)

    def over(self, exc: BaseException | None) -> None:
        """No further event arrives. ``exc``: the error that ended the subscription, or None."""
        if self.state != "over":
            self.state = "over"
            self.error = exc
        self.wake.set()


set_public_home(globals())
