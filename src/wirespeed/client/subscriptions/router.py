"""The routing of a server's change notifications to the subscriptions that asked for them.

In 2026-07-28 every subscription is a ``subscriptions/listen`` of its own, and its notifications
carry the id of that request (basic/patterns/subscriptions). In older revisions notifications go to
the whole connection, and each resource has its own request (server/resources, "Subscriptions"):
subscriptions share those requests, and each receives the changes of its own filter.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.cache import ResponseCache
from wirespeed.client.requests.send import Sender, any_result, encode
from wirespeed.client.subscriptions.resource_subscriptions import ResourceSubscriptions
from wirespeed.client.subscriptions.subscription import (
    CHANGES,
    Event,
    ListenRoute,
    Notice,
    ResourceUpdated,
    Subscriber,
    SubscriptionFilter,
)
from wirespeed.client.timeouts import Timeout
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    NotHonoured,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID, offers
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection

__all__ = ["SubscriptionRouter"]

logger = logging.getLogger("wirespeed.client")

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
_TAG = "params._meta." + META_SUBSCRIPTION_ID

# Before a listen whose stream broke is sent again.
_BACKOFF = Backoff(0.1, 30.0, jitter=True)


class _Updated(msgspec.Struct):
    uri: str


_updated = msgspec.json.Decoder(_Updated).decode


class SubscriptionRouter:
    """All subscriptions of one client, over all its connections."""

    def __init__(self, sender: Sender, cache: ResponseCache | None) -> None:
        self._sender = sender
        self._cache = cache
        self._modern = False
        self._subscribers: list[Subscriber] = []
        self._routes: dict[int, ListenRoute] = {}
        self.legacy = ResourceSubscriptions(sender)
        self._quiet = RateLimitedLog(logger)
        # called with every other notification of a legacy server
        self.other: Callable[[Message], None] | None = None

    def add(self, subscriber: Subscriber) -> None:
        """Deliver changes to a subscriber, and ask for them over each new connection."""
        self._subscribers.append(subscriber)

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self, subscriber: Subscriber, timeout: Timeout) -> None:
        """Ask for the changes that a subscriber wants, and wait for the acknowledgement."""
        sender = self._sender
        loop = asyncio.get_running_loop()
        until = loop.time() + sender.seconds(timeout)
        connection, _ = await sender.ready(LISTEN, sender.seconds(timeout))
        self._subscribers.append(subscriber)
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                if sender.agreed.revision.modern:
                    subscriber.waiting = loop.create_future()
                    self._listen(connection, subscriber)
                    await subscriber.waiting
                else:
                    subscriber.acknowledge(await self._subscribe(subscriber))
                if subscriber not in self._subscribers:
                    raise ConnectionClosed("the client was closed")
        except TimeoutError as exc:
            self.close(subscriber)
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout("the server did not acknowledge the subscription in time") from None
        except BaseException:
            self.close(subscriber)
            raise

    def seconds(self, timeout: Timeout) -> float:
        """Return a ``timeout`` in seconds."""
        return self._sender.seconds(timeout)

    def listen(self, subscriber: Subscriber) -> None:
        """Subscribe again after the server ended a subscription, unless the connection is lost."""
        live = self._sender.life.live
        if self._modern and subscriber.route is None and live is not None and live.usable:
            try:
                self._listen(live, subscriber)
            except WirespeedError as exc:
                self._ended(subscriber, exc, False)

    def close(self, subscriber: Subscriber) -> None:
        """End a subscription. Does not wait for the server."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        route, subscriber.route = subscriber.route, None
        if route is not None:
            self._routes.pop(route.waiter.id, None)
            if not route.waiter.future.done():
                route.connection.abandon(route.waiter)
                route.waiter.future.cancel()
        for uri in self.legacy.of(subscriber):
            self._sender.life.spawn(self.legacy.let_go(uri, subscriber))

    def end(self, exc: BaseException) -> None:
        """The connection has ended, and the client does not reconnect by itself."""
        self.legacy.lost()
        for subscriber in list(self._subscribers):
            self._drop(subscriber)
            subscriber.fail(exc)
            subscriber.parted(exc)

    def forget(self) -> None:
        """The client is closed: forget all subscriptions."""
        self._subscribers.clear()
        self._routes.clear()
        self.legacy.clear()

    @property
    def waits(self) -> bool:
        """Whether a `Subscription` is open, which needs the next connection at once."""
        return any(not subscriber.lasting for subscriber in self._subscribers)

    def _drop(self, subscriber: Subscriber) -> None:
        subscriber.route = None
        if not subscriber.lasting and subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            self.legacy.drop(subscriber)

    def _ended(self, subscriber: Subscriber, exc: BaseException | None, acknowledged: bool) -> None:
        self._drop(subscriber)
        subscriber.fail(exc or NotHonoured("the server ended the subscription at once"))
        subscriber.ended(exc, acknowledged)

    # -- 2026-07-28 ------------------------------------------------------------------------------

    def _listen(self, connection: ClientConnection, subscriber: Subscriber) -> None:
        waiter = connection.request(
            LISTEN,
            encode({"notifications": subscriber.wanted.wire()}),
            any_result,
            meta=subscriber.members,
            tasks="taskIds" in subscriber.wanted.more,
        )
        route = subscriber.route = ListenRoute(subscriber, connection, waiter)
        self._routes[waiter.id] = route
        waiter.future.add_done_callback(lambda future: self._over(route, future))

    def _over(self, route: ListenRoute, future: asyncio.Future[Any]) -> None:
        """Called when a listen is answered: its subscription has ended."""
        if future.cancelled():
            return
        exc = future.exception()
        if isinstance(exc, ConnectionClosed | TransportError) and not route.connection.usable:
            return  # the lifecycle decides whether to connect again
        if route.subscriber.route is route:
            self._routes.pop(route.waiter.id, None)
            if isinstance(exc, TransportError) and self._again_soon(route.subscriber, exc):
                return
            self._ended(route.subscriber, exc, route.acknowledged)

    def _again_soon(self, subscriber: Subscriber, exc: TransportError) -> bool:
        """Subscribe again later, after the stream of a subscription broke and the connection did
        not (HTTP). False: the subscription has not begun, or was tried often enough."""
        restarts = self._sender.life.restarts
        if (
            subscriber.honoured is None
            or not restarts
            or (subscriber.breaks >= restarts and not subscriber.lasting)
        ):
            return False
        pause = _BACKOFF.pause(subscriber.breaks)
        subscriber.route = None
        subscriber.breaks += 1
        subscriber.missed = True
        self._quiet.log(logging.WARNING, "%s; the client subscribes again", exc)
        self._sender.life.spawn(self._listen_later(subscriber, pause))
        return True

    async def _listen_later(self, subscriber: Subscriber, pause: float) -> None:
        await asyncio.sleep(pause)
        if subscriber in self._subscribers:
            self.listen(subscriber)

    # -- older revisions -------------------------------------------------------------------------

    async def _subscribe(self, subscriber: Subscriber) -> SubscriptionFilter:
        """Send resources/subscribe for each URI. Returns the filter that the legacy server
        honours."""
        capabilities = self._sender.agreed.capabilities
        if offers(capabilities, "resources", "subscribe"):
            asked = (self._want(uri, subscriber) for uri in subscriber.wanted.uris)
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                if outcome is not None:
                    raise outcome
        return _legacy_filter(subscriber.wanted, capabilities, set(self.legacy.of(subscriber)))

    async def _want(self, uri: str, subscriber: Subscriber) -> None:
        try:
            await self.legacy.take(uri, subscriber, None, subscriber.meta)
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
            refused.update(*(self.legacy.of(subscriber) for subscriber in feeds))
        for subscriber in feeds:
            if subscriber in self._subscribers:
                held = set(self.legacy.of(subscriber)) - refused
                subscriber.acknowledge(_legacy_filter(subscriber.wanted, capabilities, held))

    def _opened(self) -> list[Subscriber]:
        """The subscribers that a new legacy connection takes over from the previous connection."""
        return [
            subscriber
            for subscriber in self._subscribers
            if subscriber.honoured is not None or subscriber.waiting is not None
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
            for subscriber in self._opened():
                subscriber.route = None  # set if the previous server was a modern one
                for uri in subscriber.wanted.uris:
                    self.legacy.want(uri, subscriber)
            if self.legacy or self._opened():
                self._sender.life.spawn(self._again(connection, capabilities))
            return
        self.legacy.clear()
        for subscriber in list(self._subscribers):
            if subscriber.wanted:
                try:
                    self._listen(connection, subscriber)
                except WirespeedError as exc:
                    self._ended(subscriber, exc, False)

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
            if self._sender.notices:
                self._notice(message, method)
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

    def _id_of(self, message: Message) -> int | None:
        """The id of the request that a notification belongs to. It must have the JSON type of the
        id that was sent."""
        tag = message.lease(_TAG)
        try:
            id = None if tag is None else msgspec.json.decode(tag)
        except msgspec.DecodeError:
            return None
        return id if type(id) is int else None

    def _route_of(self, message: Message) -> ListenRoute | None:
        """Return the listen that a notification belongs to."""
        id = self._id_of(message)
        route = None if id is None else self._routes.get(id)
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
            route.subscriber.acknowledge(SubscriptionFilter.of(params.get("notifications")))

    def _notice(self, message: Message, method: str) -> None:
        if message.lease(_TAG) is None:
            return
        id = self._id_of(message)
        on_notice = None if id is None else self._sender.notices.get(id)
        route = None if on_notice is not None else self._route_of(message)
        if on_notice is None and (route is None or not route.subscriber.wanted.more):
            return
        params = self._params(message)
        if params is None:
            return
        if isinstance(meta := params.get("_meta"), dict):
            del meta[META_SUBSCRIPTION_ID]
            if not meta:
                del params["_meta"]
        if on_notice is not None:
            on_notice(method, params)
        elif route is not None:
            route.subscriber.deliver(Notice(method, params))

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
            wanted = () if route is None else route.subscriber.wanted.uris
            covering = () if route is None else route.subscriber.wanted.covers(event.uri)
            self._cache.updated((event.uri, *(covering or wanted)))
        if route is not None and route.subscriber.wanted.wants(event):
            route.subscriber.deliver(event)

    def _all(self, event: Event) -> None:
        """Deliver an event to all subscribers that asked for it."""
        if isinstance(event, ResourceUpdated) and self._cache is not None:
            self._cache.updated((event.uri,))
        concerned = [subscriber for subscriber in self._subscribers if subscriber.concerns(event)]
        if not concerned and isinstance(event, ResourceUpdated):
            # the URI may name a part of a resource, and not begin with the URI of that resource
            concerned = [subscriber for subscriber in self._subscribers if subscriber.lasting]
        for subscriber in concerned:
            subscriber.deliver(event)


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
