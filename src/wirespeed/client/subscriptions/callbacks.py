"""The callbacks of a client: log messages, changed lists, changed resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.cache import ResponseCache
from wirespeed.client.callback_queue import CallbackQueue, finish, start
from wirespeed.client.connection.lifecycle import NOT_OPEN
from wirespeed.client.extensions import ClientExtensions
from wirespeed.client.requests.send import Meta, any_result, encode
from wirespeed.client.results.features import LogMessage
from wirespeed.client.subscriptions.resource_subscriptions import turn
from wirespeed.client.subscriptions.router import SubscriptionRouter
from wirespeed.client.subscriptions.subscription import (
    Event,
    ResourceUpdated,
    Subscriber,
    SubscriptionFilter,
    kind_of,
)
from wirespeed.client.timeouts import CLIENT_DEFAULT, DELAYS, Delays, Timeout
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    NotHonoured,
    RemoteError,
    TransportError,
)
from wirespeed.protocol.revisions import offers
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection, Waiter
    from wirespeed.client.connection.handshake import Agreement, Identity
    from wirespeed.client.connection.lifecycle import Lifecycle

logger = logging.getLogger("wirespeed.client")

_log = msgspec.json.Decoder(LogMessage).decode

Callback = Callable[[Any], object]


# How many times in a row the client subscribes again when the server ends the callbacks'
# subscription, and asks again for a changed list where that fails.
LISTENS = 10
FETCHES = 5
# Seconds between two requests for a list that keeps changing, doubled each time.
_FIRST_GAP = 0.05
_LONGEST_GAP = 5.0


class ListWatch:
    """One callback that receives a list whenever the list changes."""

    def __init__(
        self,
        callbacks: ChangeCallbacks,
        kind: str,
        callback: Callback,
        fetch: Callable[[], Awaitable[list[Any]]],
    ) -> None:
        self._callbacks = callbacks
        self._kind = kind
        self._callback = callback
        self._fetch = fetch
        self._stale = False
        self._fetching: asyncio.Future[None] | None = None
        self._gap = 0.0
        self._next_at = -math.inf  # the loop's time before which no further request is sent

    def changed(self) -> None:
        """Fetch the new list.

        Only one request runs at a time, so that lists arrive in order; changes that arrive
        meanwhile cause one further request. The gap between two requests grows while changes keep
        coming: a server may announce a change with each list.
        """
        self._stale = True
        if self._fetching is None or self._fetching.done():
            self._fetching = self._callbacks.life.spawn(self._work())

    async def _work(self) -> None:
        failed = 0
        now = asyncio.get_running_loop().time
        while self._stale:
            if (pause := self._next_at - now()) > 0:
                await asyncio.sleep(pause)
            began = now()
            quiet = began - self._next_at > max(self._gap, _FIRST_GAP)
            self._gap = 0.0 if quiet else min(max(_FIRST_GAP, 2 * self._gap), _LONGEST_GAP)
            self._stale = False
            crashes = self._callbacks.life.crashes
            try:
                items = await self._fetch()
            except (ConnectionClosed, TransportError):
                return  # the next connection fetches all lists again
            except Exception as exc:
                failed += 1
                logger.warning("the list of %s changed, but cannot be fetched: %s", self._kind, exc)
                if failed < FETCHES:
                    self._stale = True
                    await asyncio.sleep(self._callbacks.delays.fetches.pause(failed - 1))
                continue
            failed = 0
            self._next_at = now() + self._gap
            # only the user's own requests show that the server works and reset the count
            self._callbacks.life.crashes = crashes
            await self._tell(items)

    async def _tell(self, items: list[Any]) -> None:
        name = f"on_{self._kind}_changed"
        outcome = start(self._callback, (items,), name)
        if outcome is not None:
            await finish(outcome, name)


class Consumers(msgspec.Struct, kw_only=True):
    """The callbacks of a client, and the functions that fetch the lists for them."""

    on_log: Callback | None = None
    on_resource_updated: Callback | None = None
    lists: dict[str, tuple[Callback | None, Callable[[], Awaitable[list[Any]]]]] = {}


class ChangeCallbacks:
    """The callbacks of one client, and the host of its lifecycle.

    All callbacks share one subscription. In 2026-07-28 it is one subscriptions/listen, whose filter
    names the changes that have a callback. A new listen replaces it when `hold` or `release`
    changes the resources.
    """

    life: Lifecycle

    def __init__(
        self,
        router: SubscriptionRouter,
        cache: ResponseCache | None,
        identity: Identity,
        consumers: Consumers,
        handshake_timeout: float,
        delays: Delays = DELAYS,
        extensions: ClientExtensions | None = None,
    ) -> None:
        self.delays = delays
        self._extensions = ClientExtensions(()) if extensions is None else extensions
        self._router = router
        self._cache = cache
        self._identity = identity
        self._handshake_timeout = handshake_timeout
        self._on_log = self._callback(consumers.on_log, "on_log")
        self._on_updated = self._callback(
            consumers.on_resource_updated, "on_resource_updated", once=True
        )
        self.watches = {
            kind: ListWatch(self, kind, callback, fetch)
            for kind, (callback, fetch) in consumers.lists.items()
            if callback is not None
        }
        self._uris: dict[str, None] = {}  # subscribed, in order
        self._asked: dict[str, None] = {}  # requested, but not subscribed yet
        self._lock = asyncio.Lock()
        self._quiet = RateLimitedLog(logger)
        self.current = _Shared(self, self._wanted(()))
        router.add(self.current)

    def _callback(
        self, function: Callback | None, name: str, *, once: bool = False
    ) -> CallbackQueue | None:
        if function is None:
            return None
        return CallbackQueue(function, name, lambda work: self.life.spawn(work), once=once)

    # -- for the lifecycle -----------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether the client wants notifications even while no request is under way."""
        return bool(self.watches or self._uris or self._router.waits)

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done. ``again``: changes since the previous connection may have been
        missed."""
        if self._cache is not None:
            self._cache.clear()
        self._extensions.started(agreement.capabilities)
        self._router.started(connection, agreement.revision.modern, agreement.capabilities)
        if not agreement.revision.modern and self._identity.log_level is not None:
            self._set_level(connection, agreement, self._identity.log_level)
        self.current.missed = False
        if again:
            self.fetch_again()

    def fetch_again(self) -> None:
        """Changes may have been missed: fetch everything again."""
        if self._cache is not None:
            self._cache.clear()
        for watch in self.watches.values():
            watch.changed()
        for uri in self._uris:
            self.updated(uri)

    def _set_level(self, connection: ClientConnection, agreement: Agreement, level: str) -> None:
        if "logging" not in agreement.capabilities:
            logger.warning("the server does not declare logging, so log_level has no effect")
            return
        waiter = connection.request(
            "logging/setLevel",
            encode({"level": level}),
            any_result,
            timeout=self._handshake_timeout,
        )
        self.life.spawn(self._level_set(waiter, level))

    async def _level_set(self, waiter: Waiter, level: str) -> None:
        """Wait for the answer to logging/setLevel. The server remains usable without an answer."""
        try:
            await waiter.future
        except (RemoteError, CallTimeout, InvalidResponse) as exc:
            logger.warning("the server did not set the log level %s: %s", level, exc)
        except (ConnectionClosed, TransportError):
            pass  # requests that need the connection raise the error

    def notified(self, message: Message) -> None:
        """The server sent a notification that does not belong to a call."""
        if message.method == "notifications/message":
            if self._on_log is not None:
                self._log(message, self._on_log)
        else:
            self._extensions.heard(message)
            self._router.notified(message)

    def parted(self, exc: BaseException) -> None:
        """The link is lost. Only the next request makes a new link."""
        self._router.end(exc)

    def closed(self, exc: BaseException) -> None:
        """The client is closed: forget all subscriptions."""
        self._router.end(exc)
        for callback in (self._on_log, self._on_updated):
            if callback is not None:
                callback.forget()
        self._uris.clear()
        self._asked.clear()
        self._lock = asyncio.Lock()
        self.current = _Shared(self, self._wanted(()))
        self._router.forget()
        self._router.add(self.current)

    # -- delivery --------------------------------------------------------------------------------

    def _log(self, message: Message, on_log: CallbackQueue) -> None:
        params = message.params
        try:
            entry = _log(b"" if params is None else params)
        except msgspec.DecodeError as exc:
            self._quiet.log(logging.WARNING, "a log message of the server is not valid: %s", exc)
            return
        on_log(entry)

    def updated(self, uri: str) -> None:
        """A resource changed."""
        if self._on_updated is not None:
            self._on_updated(uri)

    # -- resources that are subscribed to --------------------------------------------------------

    async def hold(
        self,
        uri: str,
        modern: bool,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> None:
        """Subscribe to changes of a resource."""
        if not modern:
            await self._hold_legacy(uri, timeout, meta)
            return
        self._asked[uri] = None
        try:
            async with self._turn(timeout) as timeout:
                if uri not in self._heard():
                    wanted = self._wanted((*self._uris, *self._asked))
                    await self._replace(wanted, timeout, meta, uri)
                    self._uris.update(dict.fromkeys(self._heard()))
        finally:
            self._asked.pop(uri, None)

    async def _hold_legacy(self, uri: str, timeout: Timeout, meta: Meta | None) -> None:
        agreement = self.life.agreement
        if agreement is None:
            raise ConnectionClosed(NOT_OPEN)
        if not offers(agreement.capabilities, "resources", "subscribe"):
            raise NotHonoured(
                f"the server does not report changes of {uri}: it has not declared "
                "resources.subscribe"
            )
        await self._router.legacy.take(uri, self.current, timeout, meta)
        self._uris[uri] = None
        self.current.wanted = self._wanted(self._uris)

    async def release(
        self,
        uri: str,
        modern: bool,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> None:
        """Undo `hold`. Nothing changes if that fails."""
        if uri not in self._uris:
            return
        if not modern:
            await self._router.legacy.give(uri, self.current, timeout, meta)
            self._uris.pop(uri, None)
            self.current.wanted = self._wanted(self._uris)
            return
        async with self._turn(timeout) as timeout:
            if uri in self._uris:
                rest = [other for other in self._uris if other != uri]
                await self._replace(self._wanted(rest), timeout, meta)
                self._uris.pop(uri, None)

    @contextlib.asynccontextmanager
    async def _turn(self, timeout: Timeout) -> AsyncIterator[float | None]:
        """Hold the lock of the shared filter. Yields the seconds that are left."""
        lock = self._lock
        async with turn(lock, self._router.seconds(timeout)) as left:
            if lock is not self._lock:
                raise ConnectionClosed("the client was closed")
            yield left

    def _wanted(self, uris: Iterable[str]) -> SubscriptionFilter:
        return SubscriptionFilter(
            tools="tools" in self.watches,
            prompts="prompts" in self.watches,
            resources="resources" in self.watches,
            uris=tuple(dict.fromkeys(uris)),
        )

    def _heard(self) -> list[str]:
        """The resources that the present subscriptions/listen reports."""
        honoured = self.current.honoured
        if honoured is None or self.current.route is None:
            return []
        told = set(honoured.uris)
        return [uri for uri in self.current.wanted.uris if uri in told]

    async def _replace(
        self,
        wanted: SubscriptionFilter,
        timeout: Timeout,
        meta: Meta | None,
        uri: str | None = None,
    ) -> None:
        """Replace the subscriptions/listen by one with another filter. The old listen is read until
        the new one is acknowledged, so that no change is missed or delivered twice."""
        old = self.current
        new = _Shared(self, wanted, meta)
        if not wanted:
            self.current = new
            self._router.add(new)
            self._router.close(old)
            return
        try:
            await self._router.open(new, timeout)
            if uri is not None and uri not in self._heard():
                raise NotHonoured(f"the server does not report changes of {uri}")
        except BaseException:
            if self.current is new:
                self.current = old
            self._router.close(new)
            raise
        self._router.close(old)
        if old.missed:
            self.fetch_again()

    async def listen_again(self, subscriber: _Shared, pause: float) -> None:
        """The server ended the shared subscription: subscribe again after a pause."""
        await asyncio.sleep(pause)
        async with self._lock:  # not while a new listen replaces this one
            if self.current is subscriber:
                self._router.listen(subscriber)


class _Shared(Subscriber):
    """The subscription that all callbacks share."""

    lasting = True

    def __init__(
        self, callbacks: ChangeCallbacks, wanted: SubscriptionFilter, meta: Meta | None = None
    ) -> None:
        super().__init__(wanted, meta)
        self._callbacks = callbacks
        self._ends = 0  # in a row
        self._since = 0.0  # the loop's time of the acknowledgement
        self.missed = False  # whether changes may have been missed after the server ended it

    def acknowledge(self, honoured: SubscriptionFilter) -> None:
        before = self.honoured
        super().acknowledge(honoured)
        self._since = asyncio.get_running_loop().time()
        if before is None:
            self._callbacks.current = self
        agreement = self._callbacks.life.agreement
        for kind in ("tools", "prompts", "resources"):
            told = getattr(self.wanted if before is None else before, kind)
            if told and not getattr(honoured, kind):
                # a server without the list has nothing to report
                lists = agreement is None or kind in agreement.capabilities
                level = logging.WARNING if lists else logging.DEBUG
                logger.log(level, "the server does not report changes of its list of %s", kind)
        if before is not None and self.route is not None:
            told, telling = set(before.uris), set(honoured.uris)
            for uri in self.wanted.uris:
                if uri in told and uri not in telling:
                    logger.warning("the server no longer reports changes of %s", uri)

    def deliver(self, event: Event) -> None:
        if self._callbacks.current is not self:
            return
        if isinstance(event, ResourceUpdated):
            self._callbacks.updated(event.uri)
            return
        watch = self._callbacks.watches.get(kind_of(event) or "")
        if watch is not None and self._callbacks.life.agreement is not None:
            watch.changed()

    def resumed(self) -> None:
        if self.missed:
            self.missed = False
            self._callbacks.fetch_again()

    def ended(self, exc: BaseException | None, acknowledged: bool) -> None:
        callbacks = self._callbacks
        if callbacks.current is not self or isinstance(exc, ConnectionClosed | TransportError):
            return  # the next connection subscribes again
        if not acknowledged and not self._ends:
            reason = exc or "it ended the subscription"
            logger.warning("the server does not report changes: %s", reason)
            return
        self.missed = True
        if (
            acknowledged
            and asyncio.get_running_loop().time() - self._since >= callbacks.delays.listened
        ):
            self._ends = 0
        if self._ends == LISTENS:
            self._ends = 0
            logger.warning(
                "the server no longer reports changes: %s",
                exc or f"it ended the subscription {LISTENS} times",
            )
            return
        if exc is None:
            logger.info("the server ended the subscription of the callbacks")
        else:
            logger.warning("the server ended the subscription of the callbacks: %s", exc)
        pause = callbacks.delays.listens.pause(self._ends)
        self._ends += 1
        callbacks.life.spawn(callbacks.listen_again(self, pause))
