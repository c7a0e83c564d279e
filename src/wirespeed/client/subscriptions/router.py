"""Routes the change notifications of a server to the subscriptions that asked for them.

In 2026-07-28 every subscription is a ``subscriptions/listen`` of its own, and its notifications
carry the id of that request (basic/patterns/subscriptions). In older revisions notifications go to
the whole connection, and each resource has its own request (server/resources, "Subscriptions"):
subscriptions share those requests, and each receives the changes of its own filter.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.cache import ResponseCache
from wirespeed.client.requests.send import Meta, Sender, any_result, encode, meta_text
from wirespeed.client.subscriptions.events import (
    CHANGES,
    Event,
    Notice,
    ResourceUpdated,
    SubscriptionFilter,
)
from wirespeed.client.subscriptions.resource_subscriptions import ResourceSubscriptions
from wirespeed.client.timeouts import Timeout
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    NotHonoured,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol.capabilities import offers
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection, Waiter

__all__ = ["Subscriber", "SubscriptionRouter"]

logger = logging.getLogger("wirespeed.client")

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
_TAG = "params._meta." + META_SUBSCRIPTION_ID

# The longest pause before a listen whose stream broke is sent again, in seconds, doubled for each
# further break in a row; and its maximum.
_FIRST_PAUSE = 0.1
_MAX_PAUSE = 30.0


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
        self.route: _Route | None = None
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


class _Route:
    """An open subscriptions/listen."""

    __slots__ = ("acknowledged", "connection", "feed", "waiter")

    def __init__(self, feed: Subscriber, connection: ClientConnection, waiter: Waiter) -> None:
        self.feed = feed
        self.connection = connection
        self.waiter = waiter
        self.acknowledged = False


class _Updated(msgspec.Struct):
    uri: str


_updated = msgspec.json.Decoder(_Updated).decode


class SubscriptionRouter:
    """All subscriptions of one client, over all its connections."""

    def __init__(self, sender: Sender, cache: ResponseCache | None) -> None:
        self._sender = sender
        self._cache = cache
        self._modern = False
        self._feeds: list[Subscriber] = []
        self._routes: dict[int, _Route] = {}
        self.legacy = ResourceSubscriptions(sender)
        self._quiet = RateLimitedLog(logger)
        # called with every other notification of a legacy server
        self.other: Callable[[Message], None] | None = None

    def add(self, feed: Subscriber) -> None:
        """Deliver changes to a subscriber, and ask for them over each new connection."""
        self._feeds.append(feed)

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self, feed: Subscriber, timeout: Timeout) -> None:
        """Ask for the changes that a subscriber wants, and wait for the acknowledgement."""
        sender = self._sender
        loop = asyncio.get_running_loop()
        until = loop.time() + sender.seconds(timeout)
        connection, _ = await sender.ready(LISTEN, sender.seconds(timeout))
        self._feeds.append(feed)
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                if sender.agreed.revision.modern:
                    feed.waiting = loop.create_future()
                    self._listen(connection, feed)
                    await feed.waiting
                else:
                    feed.acknowledge(await self._subscribe(feed))
                if feed not in self._feeds:
                    raise ConnectionClosed("the client was closed")
        except TimeoutError as exc:
            self.close(feed)
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout("the server did not acknowledge the subscription in time") from None
        except BaseException:
            self.close(feed)
            raise

    def seconds(self, timeout: Timeout) -> float:
        """Return a ``timeout`` in seconds."""
        return self._sender.seconds(timeout)

    def listen(self, feed: Subscriber) -> None:
        """Subscribe again after the server ended a subscription, unless the connection is lost."""
        live = self._sender.life.live
        if self._modern and feed.route is None and live is not None and live.usable:
            try:
                self._listen(live, feed)
            except WirespeedError as exc:
                self._ended(feed, exc, False)

    def close(self, feed: Subscriber) -> None:
        """End a subscription. Does not wait for the server."""
        if feed in self._feeds:
            self._feeds.remove(feed)
        route, feed.route = feed.route, None
        if route is not None:
            self._routes.pop(route.waiter.id, None)
            if not route.waiter.future.done():
                route.connection.abandon(route.waiter)
                route.waiter.future.cancel()
        for uri in self.legacy.of(feed):
            self._sender.life.spawn(self.legacy.let_go(uri, feed))

    def end(self, exc: BaseException) -> None:
        """The connection has ended, and the client does not reconnect by itself."""
        self.legacy.lost()
        for feed in list(self._feeds):
            self._drop(feed)
            feed.fail(exc)
            feed.parted(exc)

    def forget(self) -> None:
        """The client is closed: forget all subscriptions."""
        self._feeds.clear()
        self._routes.clear()
        self.legacy.clear()

    @property
    def waits(self) -> bool:
        """Whether a `Subscription` is open, which needs the next connection at once."""
        return any(not feed.lasting for feed in self._feeds)

    def _drop(self, feed: Subscriber) -> None:
        feed.route = None
        if not feed.lasting and feed in self._feeds:
            self._feeds.remove(feed)
            self.legacy.drop(feed)

    def _ended(self, feed: Subscriber, exc: BaseException | None, acknowledged: bool) -> None:
        self._drop(feed)
        feed.fail(exc or NotHonoured("the server ended the subscription at once"))
        feed.ended(exc, acknowledged)

    # -- 2026-07-28 ------------------------------------------------------------------------------

    def _listen(self, connection: ClientConnection, feed: Subscriber) -> None:
        waiter = connection.request(
            LISTEN,
            encode({"notifications": feed.wanted.wire()}),
            any_result,
            meta=feed.members,
            tasks="taskIds" in feed.wanted.more,
        )
        route = feed.route = _Route(feed, connection, waiter)
        self._routes[waiter.id] = route
        waiter.future.add_done_callback(lambda future: self._over(route, future))

    def _over(self, route: _Route, future: asyncio.Future[Any]) -> None:
        """Called when a listen is answered: its subscription has ended."""
        if future.cancelled():
            return
        exc = future.exception()
        if isinstance(exc, ConnectionClosed | TransportError) and not route.connection.usable:
            return  # the lifecycle decides whether to connect again
        if route.feed.route is route:
            self._routes.pop(route.waiter.id, None)
            if isinstance(exc, TransportError) and self._again_soon(route.feed, exc):
                return
            self._ended(route.feed, exc, route.acknowledged)

    def _again_soon(self, feed: Subscriber, exc: TransportError) -> bool:
        """Subscribe again later, after the stream of a subscription broke and the connection did
        not (HTTP). False: the subscription has not begun, or was tried often enough."""
        restarts = self._sender.life.restarts
        if feed.honoured is None or not restarts or (feed.breaks >= restarts and not feed.lasting):
            return False
        longest = min(_FIRST_PAUSE * 2.0**feed.breaks, _MAX_PAUSE)
        feed.route = None
        feed.breaks += 1
        feed.missed = True
        self._quiet.log(logging.WARNING, "%s; the client subscribes again", exc)
        self._sender.life.spawn(self._listen_later(feed, random.uniform(longest / 2, longest)))
        return True

    async def _listen_later(self, feed: Subscriber, pause: float) -> None:
        await asyncio.sleep(pause)
        if feed in self._feeds:
            self.listen(feed)

    # -- older revisions -------------------------------------------------------------------------

    async def _subscribe(self, feed: Subscriber) -> SubscriptionFilter:
        """Send resources/subscribe for each URI. Returns the filter that the legacy server
        honours."""
        capabilities = self._sender.agreed.capabilities
        if offers(capabilities, "resources", "subscribe"):
            asked = (self._want(uri, feed) for uri in feed.wanted.uris)
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                if outcome is not None:
                    raise outcome
        return _legacy_filter(feed.wanted, capabilities, set(self.legacy.of(feed)))

    async def _want(self, uri: str, feed: Subscriber) -> None:
        try:
            await self.legacy.take(uri, feed, None, feed.meta)
        except RemoteError as exc:
            logger.warning("the server does not report changes of %s: %s", uri, exc)

    async def _again(self, connection: ClientConnection, capabilities: dict[str, Any]) -> None:
        """Subscribe to all resources over a new legacy connection."""
        refused: set[str] = set()
        feeds = self._opened()
        if offers(capabilities, "resources", "subscribe"):
            refused = await self.legacy.again(connection)
        elif self.legacy:
            logger.warning("the server no longer reports changes of resources")
            refused.update(*(self.legacy.of(feed) for feed in feeds))
        for feed in feeds:
            if feed in self._feeds:
                held = set(self.legacy.of(feed)) - refused
                feed.acknowledge(_legacy_filter(feed.wanted, capabilities, held))

    def _opened(self) -> list[Subscriber]:
        """The subscribers that a new legacy connection takes over from the previous connection."""
        return [
            feed for feed in self._feeds if feed.honoured is not None or feed.waiting is not None
        ]

    # -- for the client --------------------------------------------------------------------------

    def started(
        self, connection: ClientConnection, modern: bool, capabilities: dict[str, Any]
    ) -> None:
        """A connection was made: subscribe again (2026-07-28 basic/patterns/subscriptions: a
        server keeps no subscription from one connection to the next)."""
        self._modern = modern
        self._routes.clear()
        if not modern:
            self.legacy.lost()
            for feed in self._opened():
                feed.route = None  # set if the previous server was a modern one
                for uri in feed.wanted.uris:
                    self.legacy.want(uri, feed)
            if self.legacy or self._opened():
                self._sender.life.spawn(self._again(connection, capabilities))
            return
        self.legacy.clear()
        for feed in list(self._feeds):
            if feed.wanted:
                try:
                    self._listen(connection, feed)
                except WirespeedError as exc:
                    self._ended(feed, exc, False)

    def notified(self, message: Message) -> None:
        """Route a notification."""
        method = message.method or ""
        change = CHANGES.get(method)
        if change is not None:
            if self._cache is not None:
                self._cache.changed(change[0])
            event: Event = change[1]
        elif method == UPDATED:
            raw = message.params
            try:
                event = ResourceUpdated(_updated(b"{}" if raw is None else raw).uri)
            except msgspec.DecodeError as exc:
                self._not_valid(method, exc)
                return
        elif not self._modern:
            if self.other is not None:
                self.other(message)
            return
        elif method == ACKNOWLEDGED:
            self._acknowledged(message)
            return
        else:
            self._notice(message, method)
            return
        if self._modern:
            self._tagged(message, event)
        else:
            self._all(event)

    def _route_of(self, message: Message) -> _Route | None:
        """Return the listen that a notification belongs to. The id must have the JSON type of the
        id that was sent."""
        tag = message.lease(_TAG)
        try:
            id = None if tag is None else msgspec.json.decode(tag)
        except msgspec.DecodeError:
            id = None
        route = self._routes.get(id) if type(id) is int else None
        if route is None:
            logger.debug("%s belongs to no subscription", message.method)
        return route

    def _acknowledged(self, message: Message) -> None:
        route = self._route_of(message)
        if route is None or route.acknowledged:
            return
        params = self._params(message)
        if params is not None:
            route.acknowledged = True
            route.feed.acknowledge(SubscriptionFilter.of(params.get("notifications")))

    def _notice(self, message: Message, method: str) -> None:
        if message.lease(_TAG) is None:
            return
        route = self._route_of(message)
        if route is None or not route.feed.wanted.more:
            return
        params = self._params(message)
        if params is None:
            return
        if isinstance(meta := params.get("_meta"), dict):
            del meta[META_SUBSCRIPTION_ID]
            if not meta:
                del params["_meta"]
        route.feed.deliver(Notice(method, params))

    def _params(self, message: Message) -> dict[str, Any] | None:
        raw = message.params
        try:
            return {} if raw is None else any_result(raw)
        except (msgspec.DecodeError, ValueError) as exc:  # ValueError: an integer is too long
            self._not_valid(message.method, exc)
            return None

    def _not_valid(self, method: str | None, exc: Exception) -> None:
        self._quiet.log(
            logging.WARNING, "notification %.100s of the server is not valid: %s", method, exc
        )

    def _tagged(self, message: Message, event: Event) -> None:
        """Deliver an event to the subscriber of its listen. The server notifies each listen."""
        route = self._route_of(message)
        if isinstance(event, ResourceUpdated) and self._cache is not None:
            # the URI may name a part of any requested resource: all of them become stale
            wanted = () if route is None else route.feed.wanted.uris
            covering = () if route is None else route.feed.wanted.covers(event.uri)
            self._cache.updated((event.uri, *(covering or wanted)))
        if route is not None and route.feed.wanted.wants(event):
            route.feed.deliver(event)

    def _all(self, event: Event) -> None:
        """Deliver an event to all subscribers that asked for it."""
        if isinstance(event, ResourceUpdated) and self._cache is not None:
            self._cache.updated((event.uri,))
        concerned = [feed for feed in self._feeds if feed.concerns(event)]
        if not concerned and isinstance(event, ResourceUpdated):
            # the URI may name a part of a resource, and not begin with the URI of that resource
            concerned = [feed for feed in self._feeds if feed.lasting]
        for feed in concerned:
            feed.deliver(event)


def _legacy_filter(
    wanted: SubscriptionFilter, capabilities: dict[str, Any], held: set[str]
) -> SubscriptionFilter:
    """The part of a filter that a legacy server reports."""
    return SubscriptionFilter(
        tools=wanted.tools and offers(capabilities, "tools", "listChanged"),
        prompts=wanted.prompts and offers(capabilities, "prompts", "listChanged"),
        resources=wanted.resources and offers(capabilities, "resources", "listChanged"),
        uris=tuple(uri for uri in wanted.uris if uri in held),
    )
