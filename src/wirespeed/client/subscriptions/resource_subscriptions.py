"""Resources that a legacy connection is subscribed to (server/resources, "Subscriptions").

All subscribers share one subscription to a resource: the first one subscribes, the last one
unsubscribes. The subscriptions outlive connections: each new connection subscribes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any

from wirespeed.client.requests.send import Meta, Sender, any_result, encode
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    RemoteError,
    WirespeedError,
)

if TYPE_CHECKING:
    from wirespeed.client.connection.connection import ClientConnection

__all__ = ["ResourceSubscriptions", "turn"]

logger = logging.getLogger("wirespeed.client")


@contextlib.asynccontextmanager
async def turn(lock: asyncio.Lock, seconds: float) -> AsyncIterator[float | None]:
    """Hold the lock. Yields the rest of the time limit, as a ``timeout``. CallTimeout: the lock was
    not free in time."""
    if seconds == math.inf:
        async with lock:
            yield None
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    try:
        async with asyncio.timeout_at(until):
            await lock.acquire()
    except TimeoutError:
        raise CallTimeout("other subscriptions were under way for longer than the limit") from None
    try:
        yield max(0.0, until - loop.time())
    finally:
        lock.release()


class _ResourceSubscription:
    """One resource and its subscribers."""

    __slots__ = ("lock", "on", "users", "wanted")

    def __init__(self) -> None:
        self.wanted: set[object] = set()
        self.on = False  # whether the connection is subscribed to the resource
        self.lock = asyncio.Lock()  # orders the requests about the resource
        self.users = 0  # subscribers that wait for the lock


class ResourceSubscriptions:
    """The resource subscriptions of one client."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._subscribed: dict[str, _ResourceSubscription] = {}

    def __len__(self) -> int:
        return len(self._subscribed)

    def of(self, owner: object) -> tuple[str, ...]:
        """The resources of a subscriber."""
        return tuple(uri for uri, hold in self._subscribed.items() if owner in hold.wanted)

    async def take(
        self, uri: str, owner: object, timeout: Timeout, meta: Meta | None = None
    ) -> None:
        """Subscribe to a resource, unless the connection is subscribed. An error of the request is
        raised; the subscriber then does not have the resource."""
        hold = self._subscribed.setdefault(uri, _ResourceSubscription())
        hold.users += 1
        try:
            async with turn(hold.lock, self._sender.seconds(timeout)) as timeout:
                self._check(uri, hold)
                if not hold.on:
                    await self._ask("resources/subscribe", uri, timeout, meta)
                    self._check(uri, hold)
                    hold.on = True
                hold.wanted.add(owner)
        finally:
            hold.users -= 1
            self._forget(uri, hold)

    async def give(
        self, uri: str, owner: object, timeout: Timeout, meta: Meta | None = None
    ) -> None:
        """Undo `take`. An error of the request is raised; nothing then changes."""
        hold = self._subscribed.get(uri)
        if hold is None:
            return
        async with turn(hold.lock, self._sender.seconds(timeout)) as timeout:
            if self._subscribed.get(uri) is not hold:
                return  # another caller unsubscribed, or `clear` was called
            if hold.on and hold.wanted == {owner}:
                await self._ask("resources/unsubscribe", uri, timeout, meta)
                hold.on = False
            hold.wanted.discard(owner)
            self._forget(uri, hold)

    async def let_go(self, uri: str, owner: object) -> None:
        """Undo `take` for a subscriber that has ended. An error of the request is logged."""
        hold = self._subscribed.get(uri)
        if hold is None:
            return
        async with hold.lock:
            last = hold.on and hold.wanted == {owner} and self._subscribed.get(uri) is hold
            hold.wanted.discard(owner)
            hold.on = hold.on and not last
            try:
                if last:
                    await self._ask("resources/unsubscribe", uri, CLIENT_DEFAULT, None)
            except WirespeedError as exc:
                logger.debug("resources/unsubscribe of %s: %s", uri, exc)
            finally:
                self._forget(uri, hold)

    def drop(self, owner: object) -> None:
        """Forget a subscriber without a request: the connection is lost."""
        for uri, hold in list(self._subscribed.items()):
            hold.wanted.discard(owner)
            self._forget(uri, hold)

    def want(self, uri: str, owner: object) -> None:
        """Mark a resource: the next `again` subscribes to it."""
        self._subscribed.setdefault(uri, _ResourceSubscription()).wanted.add(owner)

    def lost(self) -> None:
        """The connection is lost, and its subscriptions have ended."""
        for uri, hold in list(self._subscribed.items()):
            hold.on = False
            self._forget(uri, hold)

    def clear(self) -> None:
        """Forget all subscriptions: the client is closed, or the new server is a modern one."""
        self._subscribed.clear()

    async def again(self, connection: ClientConnection) -> set[str]:
        """Subscribe to all resources over a new connection. Returns the URIs that the server
        refuses."""
        refused: set[str] = set()
        for uri, hold in list(self._subscribed.items()):
            async with hold.lock:
                if hold.on or not hold.wanted:
                    continue
                try:
                    await connection.request(
                        "resources/subscribe",
                        encode({"uri": uri}),
                        any_result,
                        timeout=self._sender.seconds(CLIENT_DEFAULT),
                    ).future
                    hold.on = True
                except (RemoteError, InvalidResponse, CallTimeout) as exc:
                    logger.warning("the server no longer reports changes of %s: %s", uri, exc)
                    refused.add(uri)
        return refused

    def _check(self, uri: str, hold: _ResourceSubscription) -> None:
        if self._subscribed.get(uri) is not hold:
            raise ConnectionClosed("the connection was replaced meanwhile")

    def _forget(self, uri: str, hold: _ResourceSubscription) -> None:
        if not hold.wanted and not hold.on and not hold.users and self._subscribed.get(uri) is hold:
            del self._subscribed[uri]

    def _ask(self, method: str, uri: str, timeout: Timeout, meta: Meta | None) -> Awaitable[Any]:
        body = encode({"uri": uri})
        return self._sender.send(method, body, any_result, timeout, meta=meta)
