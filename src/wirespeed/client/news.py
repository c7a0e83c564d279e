"""What a client tells those who asked to be told: logs, lists that changed, resources that did."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.cache import ResponseCache
from wirespeed.client.calls import Meta, any_result, encode
from wirespeed.client.events import Event, ResourceUpdated, SubscriptionFilter, kind_of
from wirespeed.client.hub import Feed, Hub, NotHonoured
from wirespeed.client.results import LogMessage
from wirespeed.errors import ConnectionClosed, RemoteError, TransportError

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection import ClientConnection
    from wirespeed.client.handshake import Agreement, Identity
    from wirespeed.client.lifecycle import Lifecycle

logger = logging.getLogger("wirespeed.client")

_log = msgspec.json.Decoder(LogMessage).decode

Callback = Callable[[Any], object]


class Watch:
    """Somebody who gets a list anew whenever it changes."""

    def __init__(
        self, news: News, callback: Callback, fetch: Callable[[], Awaitable[list[Any]]]
    ) -> None:
        self._news = news
        self._callback = callback
        self._fetch = fetch
        self._stale = False
        self._fetching: asyncio.Future[None] | None = None

    def changed(self) -> None:
        """Get the new list: one request at a time, so that lists come in order, and once for
        changes in a row."""
        self._stale = True
        if self._fetching is None or self._fetching.done():
            self._fetching = self._news.life.spawn(self._work())

    async def _work(self) -> None:
        while self._stale:
            self._stale = False
            crashes = self._news.life.crashes
            items = await self._fetch()
            # only what the user asks for proves the server well
            self._news.life.crashes = crashes
            self._news.call(self._callback, items)


class Consumers(msgspec.Struct, kw_only=True):
    """The callbacks of a client, and how lists are got for them."""

    on_log: Callback | None = None
    on_resource_updated: Callback | None = None
    lists: dict[str, tuple[Callback | None, Callable[[], Awaitable[list[Any]]]]] = {}


class News:
    """The consumers of one client, and what its lifecycle tells the rest of it.

    Consumers of changes share one subscription (2026-07-28: one subscriptions/listen, which asks
    for what has a consumer; when that changes, a new one takes the place of the old one).
    """

    life: Lifecycle

    def __init__(
        self,
        hub: Hub,
        cache: ResponseCache | None,
        identity: Identity,
        consumers: Consumers,
        handshake_timeout: float,
    ) -> None:
        self._hub = hub
        self._cache = cache
        self._identity = identity
        self._handshake_timeout = handshake_timeout
        self._on_log = consumers.on_log
        self.on_resource_updated = consumers.on_resource_updated
        self.watches = {
            kind: Watch(self, callback, fetch)
            for kind, (callback, fetch) in consumers.lists.items()
            if callback is not None
        }
        self._uris: dict[str, None] = {}  # subscribed to, in order
        self._asked: dict[str, None] = {}  # about to be
        self._lock = asyncio.Lock()
        self.current = _Shared(self, self._wanted())
        hub.add(self.current)

    # -- for the lifecycle -----------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether somebody wants to know what changes, even while nothing is called."""
        return bool(self.watches or self._uris or self._hub.waits)

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done. ``again``: nobody told what changed since the one before."""
        if self._cache is not None:
            self._cache.clear()
        self._hub.started(connection, agreement.revision.modern, agreement.capabilities)
        if not agreement.revision.modern and self._identity.log_level is not None:
            await self._set_level(connection, agreement, self._identity.log_level)
        if again:
            for watch in self.watches.values():
                watch.changed()
            for uri in self._uris:
                self.updated(uri)

    async def _set_level(
        self, connection: ClientConnection, agreement: Agreement, level: str
    ) -> None:
        if "logging" not in agreement.capabilities:
            logger.warning("the server has no logging, so log_level does nothing")
            return
        waiter = connection.request(
            "logging/setLevel",
            encode({"level": level}),
            any_result,
            timeout=self._handshake_timeout,
        )
        try:
            await waiter.future
        except RemoteError as exc:
            logger.warning("the server refuses the log level %s: %s", level, exc)

    def notified(self, message: Message) -> None:
        """A notification came in that is not about a call."""
        if message.method == "notifications/message":
            if self._on_log is not None:
                self._log(message, self._on_log)
        else:
            self._hub.notified(message)

    def parted(self, exc: BaseException) -> None:
        """The link is lost, and is not made again unless somebody asks for it."""
        self._hub.end(exc)

    def closed(self, exc: BaseException) -> None:
        """The client is closed, and everything that it was to be told about is forgotten."""
        self._hub.end(exc)
        self._hub.forget()
        self._uris.clear()
        self._asked.clear()
        self._lock = asyncio.Lock()
        self.current.wanted = self._wanted()
        self.current.honoured = None

    # -- telling ---------------------------------------------------------------------------------

    def _log(self, message: Message, on_log: Callback) -> None:
        params = message.params
        try:
            entry = _log(b"" if params is None else params)
        except msgspec.DecodeError as exc:
            logger.warning("a log message of the server is not valid: %s", exc)
            return
        self.call(on_log, entry)

    def updated(self, uri: str) -> None:
        """A resource changed."""
        if self.on_resource_updated is not None:
            self.call(self.on_resource_updated, uri)

    def call(self, callback: Callback, value: Any) -> None:
        """Call somebody back; what they raise is logged."""
        try:
            outcome = callback(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            logger.exception("a callback of the client failed")
        else:
            self.life.spawn_outcome(outcome)

    # -- resources that are subscribed to --------------------------------------------------------

    async def hold(self, uri: str, modern: bool, timeout: float | None, meta: Meta | None) -> None:
        """Be told when a resource changes."""
        if uri in self._uris:
            return
        if not modern:
            await self._hub.take(uri, timeout, meta)
            if uri in self._uris:  # by another call, meanwhile
                await self._hub.give(uri, timeout)
            self._uris[uri] = None
            self.current.wanted = self._wanted()
            return
        self._asked[uri] = None
        try:
            async with self._lock:
                if uri not in self._uris:
                    wanted = self._wanted(*self._uris, *self._asked)
                    await self._replace(wanted, timeout, meta, uri)
                    self._uris.update(dict.fromkeys(self._told()))
        finally:
            self._asked.pop(uri, None)

    async def release(
        self, uri: str, modern: bool, timeout: float | None, meta: Meta | None
    ) -> None:
        """Be told no more."""
        if uri not in self._uris:
            return
        if not modern:
            del self._uris[uri]
            self.current.wanted = self._wanted()
            await self._hub.give(uri, timeout, meta)
            return
        async with self._lock:
            if self._uris.pop(uri, 0) is None:
                await self._replace(self._wanted(), timeout, meta)

    def _wanted(self, *uris: str) -> SubscriptionFilter:
        return SubscriptionFilter(
            tools="tools" in self.watches,
            prompts="prompts" in self.watches,
            resources="resources" in self.watches,
            uris=tuple(dict.fromkeys(uris or self._uris)),
        )

    def _told(self) -> tuple[str, ...]:
        honoured = self.current.honoured
        return () if honoured is None else honoured.uris

    async def _replace(
        self,
        wanted: SubscriptionFilter,
        timeout: float | None,
        meta: Meta | None,
        uri: str | None = None,
    ) -> None:
        """Listen for something else: the new one is heard from its acknowledgement on, and the old
        one until then, so that nothing is missed and nothing comes twice."""
        old = self.current
        new = _Shared(self, wanted, meta)
        if not wanted:
            self.current = new
            self._hub.add(new)
        else:
            await self._hub.open(new, timeout)
            if uri is not None and uri not in self._told():
                self.current = old
                self._hub.close(new)
                raise NotHonoured(f"the server does not tell when {uri} changes")
        self._hub.close(old)


class _Shared(Feed):
    """What all consumers want."""

    lasting = True

    def __init__(self, news: News, wanted: SubscriptionFilter, meta: Meta | None = None) -> None:
        super().__init__(wanted, meta)
        self._news = news

    def acknowledge(self, honoured: SubscriptionFilter) -> None:
        first = self.honoured is None
        super().acknowledge(honoured)
        if first:
            self._news.current = self
            for kind in ("tools", "prompts", "resources"):
                if getattr(self.wanted, kind) and not getattr(honoured, kind):
                    logger.warning("the server does not tell when its %s change", kind)

    def deliver(self, event: Event) -> None:
        if self._news.current is not self:
            return
        if isinstance(event, ResourceUpdated):
            self._news.updated(event.uri)
            return
        watch = self._news.watches.get(kind_of(event) or "")
        if watch is not None and self._news.life.agreement is not None:
            watch.changed()

    def ended(self, exc: BaseException | None) -> None:
        if exc is None or self._news.current is not self:
            return  # a graceful end needs no word
        if not isinstance(exc, ConnectionClosed | TransportError):
            logger.warning("the server does not tell what changes: %s", exc)
