"""How what a server tells of changes finds who wants it.

In 2026-07-28 every subscription is a ``subscriptions/listen`` of its own, and what comes carries
the id of that request (basic/patterns/subscriptions). Before, notifications go to the whole
connection, and resources are subscribed to one by one (server/resources, "Subscriptions"):
subscriptions share those requests, and each gets what it asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.cache import ResponseCache
from wirespeed.client.calls import Calls, Meta, any_result, encode, meta_text
from wirespeed.client.events import (
    CHANGES,
    Event,
    Notice,
    ResourceUpdated,
    SubscriptionFilter,
)
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    LocalError,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection import ClientConnection, Waiter

__all__ = ["Feed", "Hub", "NotHonoured"]

logger = logging.getLogger("wirespeed.client")

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
_TAG = "params._meta." + META_SUBSCRIPTION_ID


class NotHonoured(LocalError):
    """A server does not tell about what was subscribed to."""


class Feed:
    """Somebody who is told of changes.

    Attributes:
        wanted: What it asked for.
        meta: What the requests for it carry besides.
        honoured: What the server tells of that; None before it said so.
        route: Its subscriptions/listen, where there is one.
        held: The URIs that it is subscribed to one by one (legacy).
    """

    def __init__(self, wanted: SubscriptionFilter, meta: Meta | None = None) -> None:
        self.wanted = wanted
        self.meta = meta
        self.members = None if meta is None else meta_text(meta)
        self.honoured: SubscriptionFilter | None = None
        self.route: _Route | None = None
        self.held: list[str] = []
        self.waiting: asyncio.Future[None] | None = None  # whoever waits until it is acknowledged

    lasting = False  # stays when the server ends its subscription, for the next connection

    def deliver(self, event: Event) -> None:
        """Something changed."""
        raise NotImplementedError

    def concerns(self, event: Event) -> bool:
        """Whether an event that a legacy server told to everyone is for this one."""
        if isinstance(event, ResourceUpdated):
            return bool(self.wanted.covers(event.uri))
        return self.wanted.wants(event)

    def resumed(self) -> None:
        """Acknowledged by another connection than before."""

    def ended(self, exc: BaseException | None) -> None:
        """Nothing more will come: the server said so (None), or why."""

    def acknowledge(self, honoured: SubscriptionFilter) -> None:
        again = self.honoured is not None
        self.honoured = honoured
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)
        if again:
            self.resumed()

    def end(self, exc: BaseException | None) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(
                exc or NotHonoured("the server ended the subscription at once")
            )
        self.ended(exc)


class _Route:
    """One subscriptions/listen that is open."""

    __slots__ = ("acknowledged", "connection", "feed", "waiter")

    def __init__(self, feed: Feed, connection: ClientConnection, waiter: Waiter) -> None:
        self.feed = feed
        self.connection = connection
        self.waiter = waiter
        self.acknowledged = False


class _Held:
    """A resource that the connection is subscribed to (legacy), for ``count`` who want it."""

    __slots__ = ("count", "lock", "on")

    def __init__(self) -> None:
        self.count = 0
        self.on = False
        self.lock = asyncio.Lock()  # so that requests about it go out one after another


class _Updated(msgspec.Struct):
    uri: str


_updated = msgspec.json.Decoder(_Updated).decode


class Hub:
    """All subscriptions of one client, over all its connections."""

    def __init__(self, calls: Calls, cache: ResponseCache | None) -> None:
        self._calls = calls
        self._cache = cache
        self._modern = False
        self._feeds: list[Feed] = []
        self._routes: dict[int, _Route] = {}
        self._held: dict[str, _Held] = {}
        self.other: Callable[[Message], None] | None = None  # gets what is none of ours (legacy)

    def add(self, feed: Feed) -> None:
        """Tell a feed what comes, and ask for it whenever a connection is made."""
        self._feeds.append(feed)

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self, feed: Feed, timeout: float | None) -> None:
        """Ask for what a feed wants, and wait until the server said what it gets."""
        calls = self._calls
        loop = asyncio.get_running_loop()
        until = loop.time() + calls._seconds(timeout)
        connection, _ = await calls._ready(LISTEN, calls._seconds(timeout))
        feed.waiting = loop.create_future()
        self._feeds.append(feed)
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                if calls._agreed.revision.modern:
                    self._listen(connection, feed)
                    await feed.waiting
                else:
                    feed.acknowledge(await self._subscribe(feed))
        except TimeoutError as exc:
            self.close(feed)
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout("the server did not acknowledge the subscription in time") from None
        except BaseException:
            self.close(feed)
            raise

    def close(self, feed: Feed) -> None:
        """Tell the server that a feed wants nothing more. Does not wait for it."""
        if feed in self._feeds:
            self._feeds.remove(feed)
        route, feed.route = feed.route, None
        if route is not None:
            self._routes.pop(route.waiter.id, None)
            if not route.waiter.future.done():
                route.connection.abandon(route.waiter)
                route.waiter.future.cancel()
        held, feed.held = feed.held, []
        for uri in held:
            self._calls._life.spawn(self._let_go(uri))

    def end(self, exc: BaseException) -> None:
        """There is no connection, and there will be none by itself."""
        for feed in list(self._feeds):
            self._drop(feed, exc)

    def forget(self) -> None:
        """The client is closed: another connection has nothing to do with what was before."""
        self._routes.clear()
        self._held.clear()

    @property
    def waits(self) -> bool:
        """Whether somebody waits for changes, and not only as long as there is a connection."""
        return any(not feed.lasting for feed in self._feeds)

    def _drop(self, feed: Feed, exc: BaseException | None) -> None:
        feed.route = None
        if not feed.lasting and feed in self._feeds:
            self._feeds.remove(feed)
        feed.end(exc)

    # -- 2026-07-28 ------------------------------------------------------------------------------

    def _listen(self, connection: ClientConnection, feed: Feed) -> None:
        waiter = connection.request(
            LISTEN, encode({"notifications": feed.wanted.wire()}), any_result, meta=feed.members
        )
        route = feed.route = _Route(feed, connection, waiter)
        self._routes[waiter.id] = route
        waiter.future.add_done_callback(lambda future: self._over(route, future))

    def _over(self, route: _Route, future: asyncio.Future[Any]) -> None:
        """A listen is answered: that is its end."""
        if future.cancelled():
            return
        exc = future.exception()
        if isinstance(exc, ConnectionClosed | TransportError):
            return  # what becomes of it now is the lifecycle's to say
        if route.feed.route is route:
            self._routes.pop(route.waiter.id, None)
            self._drop(route.feed, exc)

    # -- before ----------------------------------------------------------------------------------

    async def _subscribe(self, feed: Feed) -> SubscriptionFilter:
        """What a legacy server says that it tells; resources/subscribe for each URI."""
        capabilities = self._calls._agreed.capabilities
        uris: tuple[str, ...] = ()
        if _declares(capabilities, "resources", "subscribe"):
            asked = (self._want(uri, feed) for uri in feed.wanted.uris)
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                if outcome is not None:
                    raise outcome
            uris = tuple(feed.held)
        return _legacy_filter(feed.wanted, capabilities, uris)

    async def _want(self, uri: str, feed: Feed) -> None:
        try:
            await self.take(uri, None, feed.meta)
        except RemoteError as exc:
            logger.warning("the server does not tell when %s changes: %s", uri, exc)
        else:
            feed.held.append(uri)

    async def take(self, uri: str, timeout: float | None, meta: Meta | None = None) -> None:
        """Subscribe to a resource, unless somebody is (legacy)."""
        held = self._held.setdefault(uri, _Held())
        held.count += 1
        try:
            async with held.lock:
                if not held.on:
                    await self._ask("resources/subscribe", uri, timeout, meta)
                    held.on = True
        except BaseException:
            held.count -= 1
            self._forget(uri, held)
            raise

    async def give(self, uri: str, timeout: float | None, meta: Meta | None = None) -> None:
        """Take back `take`: the last one unsubscribes."""
        held = self._held.get(uri)
        if held is None:
            return
        held.count -= 1
        async with held.lock:
            if held.count == 0 and held.on:
                held.on = False
                try:
                    await self._ask("resources/unsubscribe", uri, timeout, meta)
                finally:
                    self._forget(uri, held)

    def _forget(self, uri: str, held: _Held) -> None:
        if held.count == 0 and not held.on and self._held.get(uri) is held:
            del self._held[uri]

    def _ask(
        self, method: str, uri: str, timeout: float | None, meta: Meta | None
    ) -> Awaitable[Any]:
        body = encode({"uri": uri})
        return self._calls._call(method, body, any_result, timeout, None, meta)

    async def _let_go(self, uri: str) -> None:
        try:
            await self.give(uri, -1.0)
        except WirespeedError as exc:
            logger.debug("resources/unsubscribe of %s: %s", uri, exc)

    async def _again(self, connection: ClientConnection, capabilities: dict[str, Any]) -> None:
        """Subscribe to everything over a new legacy connection."""
        refused: set[str] = set()
        for uri, held in list(self._held.items()):
            async with held.lock:
                if held.on or not held.count:
                    continue
                try:
                    await connection.request(
                        "resources/subscribe",
                        encode({"uri": uri}),
                        any_result,
                        timeout=self._calls._seconds(-1.0),
                    ).future
                    held.on = True
                except (RemoteError, InvalidResponse, CallTimeout) as exc:
                    logger.warning("the server tells no more when %s changes: %s", uri, exc)
                    refused.add(uri)
        for feed in list(self._feeds):
            if feed.honoured is not None:
                uris = tuple(uri for uri in feed.held if uri not in refused)
                feed.acknowledge(_legacy_filter(feed.wanted, capabilities, uris))

    # -- for the client --------------------------------------------------------------------------

    def started(
        self, connection: ClientConnection, modern: bool, capabilities: dict[str, Any]
    ) -> None:
        """A connection was made: ask it for all that is wanted (2026-07-28
        basic/patterns/subscriptions: the server keeps nothing over connections)."""
        self._modern = modern
        self._routes.clear()
        for held in self._held.values():
            held.on = False
        if not modern:
            if self._held or any(feed.honoured is not None for feed in self._feeds):
                self._calls._life.spawn(self._again(connection, capabilities))
            return
        for feed in list(self._feeds):
            if feed.wanted:
                try:
                    self._listen(connection, feed)
                except WirespeedError as exc:
                    self._drop(feed, exc)

    def notified(self, message: Message) -> None:
        """A notification came in."""
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
                logger.warning("%s of the server is not valid: %s", method, exc)
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
        """The listen that a message belongs to: its id, in the type that it was sent in."""
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
        route.acknowledged = True
        raw = message.params
        params: dict[str, Any] = {} if raw is None else any_result(raw)
        route.feed.acknowledge(SubscriptionFilter.of(params.get("notifications")))

    def _notice(self, message: Message, method: str) -> None:
        if message.lease(_TAG) is None:
            return
        route = self._route_of(message)
        if route is None or not route.feed.wanted.more:
            return
        raw = message.params
        params: dict[str, Any] = {} if raw is None else any_result(raw)
        if isinstance(meta := params.get("_meta"), dict):
            del meta[META_SUBSCRIPTION_ID]
            if not meta:
                del params["_meta"]
        route.feed.deliver(Notice(method, params))

    def _tagged(self, message: Message, event: Event) -> None:
        """To the one whose listen it belongs to; there is a copy for each."""
        route = self._route_of(message)
        if isinstance(event, ResourceUpdated) and self._cache is not None:
            # a part of something that does not show in its URI makes all that was asked for stale
            wanted = () if route is None else route.feed.wanted.uris
            covering = () if route is None else route.feed.wanted.covers(event.uri)
            self._cache.updated((event.uri, *(covering or wanted)))
        if route is not None and route.feed.wanted.wants(event):
            route.feed.deliver(event)

    def _all(self, event: Event) -> None:
        """To everyone who asked for it."""
        if isinstance(event, ResourceUpdated) and self._cache is not None:
            self._cache.updated((event.uri,))
        concerned = [feed for feed in self._feeds if feed.concerns(event)]
        if not concerned and isinstance(event, ResourceUpdated):
            # parts of a resource need not show in their URI, and subscriptions may be the user's
            concerned = [feed for feed in self._feeds if feed.lasting]
        for feed in concerned:
            feed.deliver(event)


def _declares(capabilities: dict[str, Any], feature: str, what: str) -> bool:
    declared = capabilities.get(feature)
    return isinstance(declared, dict) and declared.get(what) is True


def _legacy_filter(
    wanted: SubscriptionFilter, capabilities: dict[str, Any], uris: tuple[str, ...]
) -> SubscriptionFilter:
    """What of a filter a legacy server declared to tell."""
    return SubscriptionFilter(
        tools=wanted.tools and _declares(capabilities, "tools", "listChanged"),
        prompts=wanted.prompts and _declares(capabilities, "prompts", "listChanged"),
        resources=wanted.resources and _declares(capabilities, "resources", "listChanged"),
        uris=uris,
    )
