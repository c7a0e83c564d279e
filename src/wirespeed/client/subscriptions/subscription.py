"""Subscriptions to changes: the changes as `Event` values, the filter of a subscription, and its
receiver.

Sources: basic/patterns/subscriptions of 2026-07-28; server/tools, /prompts and /resources ("List
Changed Notification", "Subscriptions") of the earlier revisions.
"""

import asyncio
import math
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.client.cache import belongs
from wirespeed.client.requests.send import Meta, meta_text
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, seconds_of, shown
from wirespeed.errors import CallTimeout, WirespeedError

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed.client.connection.connection import ClientConnection, Waiter

__all__ = [
    "CHANGES",
    "FIELDS",
    "Event",
    "ListenRoute",
    "Notice",
    "Overflowed",
    "PromptsChanged",
    "ResourceUpdated",
    "ResourcesChanged",
    "Resumed",
    "Subscriber",
    "Subscription",
    "SubscriptionFilter",
    "ToolsChanged",
    "kind_of",
]


class ToolsChanged(msgspec.Struct, frozen=True):
    """The list of tools changed."""


class PromptsChanged(msgspec.Struct, frozen=True):
    """The list of prompts changed."""


class ResourcesChanged(msgspec.Struct, frozen=True):
    """The list of resources, or of resource templates, changed."""


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource changed. ``uri`` may name a part of the subscribed resource."""

    uri: str


class Resumed(msgspec.Struct, frozen=True):
    """The connection was lost, and the client subscribed again over the next connection. Changes in
    between are not reported: fetch the data again."""


class Overflowed(msgspec.Struct, frozen=True):
    """More than ``max_events`` events waited, and were dropped: fetch the data again."""


class Notice(msgspec.Struct, frozen=True):
    """A notification of an extension: its method, and its params without the id of the
    subscription in ``_meta``."""

    method: str
    params: dict[str, Any]


Event: TypeAlias = (
    ToolsChanged
    | PromptsChanged
    | ResourcesChanged
    | ResourceUpdated
    | Resumed
    | Overflowed
    | Notice
)

# By method: the name of the list in the cache and in the filter, and the event.
CHANGES: dict[str, tuple[str, Event]] = {
    "notifications/tools/list_changed": ("tools", ToolsChanged()),
    "notifications/prompts/list_changed": ("prompts", PromptsChanged()),
    "notifications/resources/list_changed": ("resources", ResourcesChanged()),
}
_KINDS = {ToolsChanged: "tools", PromptsChanged: "prompts", ResourcesChanged: "resources"}
_FIELDS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
_URIS = "resourceSubscriptions"
# The members of the filter in the specification.
FIELDS = frozenset({*_FIELDS.values(), _URIS})


class SubscriptionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a subscription requests, or that a server reports.

    Attributes:
        tools, prompts, resources: Changes of these lists.
        uris: The resources whose changes are reported.
        more: Further members, of extensions, in their wire form.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    more: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return self.tools or self.prompts or self.resources or bool(self.uris or self.more)

    def wire(self) -> dict[str, Any]:
        """``notifications`` of subscriptions/listen."""
        members = {field: True for kind, field in _FIELDS.items() if getattr(self, kind)}
        uris = {_URIS: list(self.uris)} if self.uris else {}
        return {**members, **uris, **self.more}

    @classmethod
    def of(cls, wire: Any) -> "SubscriptionFilter":
        """Read a filter from its wire form. Members that are not valid are left out."""
        members = dict(wire) if isinstance(wire, dict) else {}
        kinds = {kind: members.pop(field, None) is True for kind, field in _FIELDS.items()}
        uris = members.pop(_URIS, None)
        return cls(
            **kinds,
            uris=tuple(u for u in uris if isinstance(u, str)) if isinstance(uris, list) else (),
            more=members,
        )

    def wants(self, event: Event) -> bool:
        """Whether the filter includes the kind of an event."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            return bool(getattr(self, kind))
        return bool(self.uris if isinstance(event, ResourceUpdated) else self.more)

    def covers(self, uri: str) -> list[str]:
        """Return the URIs of the filter that name a resource, or contain it by their path."""
        return [mine for mine in self.uris if belongs(uri, mine)]


def kind_of(event: Event) -> str | None:
    """The changed list of an event: "tools", "prompts" or "resources"."""
    return _KINDS.get(type(event))


# -- receivers -------------------------------------------------------------------------------------


class Subscriber:
    """A receiver of changes.

    Attributes:
        wanted: The filter of the subscriber.
        meta: Further members of ``_meta`` of the subscriber's requests.
        honoured: The part of the filter that the server reports; None before the acknowledgement.
        route: The subscriber's subscriptions/listen, or None.
        breaks: How often in a row the stream of the subscriptions/listen broke.
        missed: Whether changes may have been missed.
    """

    lasting = False  # whether the subscriber outlives its subscription
    missed = False

    def __init__(self, wanted: SubscriptionFilter, meta: Meta | None = None) -> None:
        self.wanted = wanted
        self.meta = meta
        self.members = None if meta is None else meta_text(meta)
        self.honoured: SubscriptionFilter | None = None
        self.route: ListenRoute | None = None
        self.breaks = 0
        self.waiting: asyncio.Future[None] | None = None  # for the acknowledgement

    def deliver(self, event: Event) -> None:
        """Receive an event."""
        raise NotImplementedError

    def concerns(self, event: Event) -> bool:
        """Whether an event of a legacy server, which names no subscription, concerns this
        subscriber."""
        if isinstance(event, ResourceUpdated):
            return bool(self.wanted.covers(event.uri))
        return self.wanted.wants(event)

    def resumed(self) -> None:
        """The subscription was acknowledged again, after a new connection or after its end."""

    def ended(self, exc: BaseException | None, acknowledged: bool) -> None:
        """The server ended the subscription. ``exc``: the error; None for an end in order.
        ``acknowledged``: the server had acknowledged the subscription."""

    def parted(self, exc: BaseException) -> None:
        """The connection has ended, and the client does not reconnect by itself."""

    def acknowledge(self, honoured: SubscriptionFilter) -> None:
        """The server acknowledged the subscription."""
        again = self.honoured is not None
        self.honoured = honoured
        self.breaks = 0
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)
        if again:
            self.resumed()

    def fail(self, exc: BaseException) -> None:
        """The acknowledgement will not arrive."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(exc)


class ListenRoute:
    """An open subscriptions/listen."""

    __slots__ = ("acknowledged", "connection", "subscriber", "waiter")

    def __init__(
        self, subscriber: Subscriber, connection: "ClientConnection", waiter: "Waiter"
    ) -> None:
        self.subscriber = subscriber
        self.connection = connection
        self.waiter = waiter
        self.acknowledged = False


class SubscriptionRoutes(Protocol):
    """The router of a client, for its subscriptions."""

    async def open(self, subscriber: Subscriber, timeout: Timeout) -> None:
        """Ask for the changes that a subscriber wants, and wait for the acknowledgement."""

    def close(self, subscriber: Subscriber) -> None:
        """End a subscription. Does not wait for the server."""


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
        router: SubscriptionRoutes,
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
        traceback: "TracebackType | None",
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


set_public_home(globals())
