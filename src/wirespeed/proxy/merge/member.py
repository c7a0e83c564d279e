"""One server of a merged endpoint, as one client has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from wirespeed.errors import RemoteError, TransportError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.merge.discovery import ttl_of
from wirespeed.proxy.merge.lists import MAX_PAGES, Kind, Listing

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Backend, Owner
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.merge.names import Names
    from wirespeed.proxy.service import ProxyService

logger = logging.getLogger("wirespeed.proxy")

# Seconds in which a server that failed is not tried again.
_RETRY = 1.0


class Member:
    """A client's connection to one server: the server's service has one client more.

    Args:
        patience: Seconds that the server has for an answer to the proxy.

    Attributes:
        service: What serves it.
        names: What clients call its tools and prompts.
        backend: The connection; None while there is none.
        hello: What it said of itself, of a client of a legacy era; None before its handshake.
    """

    def __init__(
        self, service: ProxyService, names: Names, patience: float, front: Front, owner: Owner
    ) -> None:
        self.name = service.name
        self.service = service
        self.names = names
        self.backend: Backend | None = None
        self.hello: dict[str, Any] | None = None
        self.level: str | None = None
        self.uris: set[str] = set()
        self._patience = patience
        self._client = front
        self._owner = owner
        self._inner: Front | None = None
        self._listings: dict[str, Listing] = {}
        self._asking: dict[str, asyncio.Future[Any]] = {}
        self._failed: tuple[float, str] | None = None
        self._n_changes = 0
        self._next: Member | None = None

    @property
    def now(self) -> Member:
        """The server of this name after changes of the configuration."""
        return self if self._next is None else self._next.now

    def leave(self, successor: Member | None) -> None:
        """The configuration has another server, or none: the requests in flight are answered."""
        if self._inner is not None:
            self._inner.drain()
        if successor is None:
            self._failed = math.inf, f"the server {self.name} was removed"
            self.backend = None
        else:
            self._next = successor
            successor.level, successor.uris = self.level, self.uris

    def connect(self) -> Backend:
        """Return the connection. TransportError: it failed a moment ago."""
        if self._next is not None:
            return self.now.connect()
        if self.backend is not None:
            return self.backend
        if self._failed is not None:
            at, text = self._failed
            if self._client.loop.time() < at + _RETRY:
                raise TransportError(text)
        backend, self._inner = self.service.join(self._owner, self._client)
        backend.admits_legacy = backend.admits_modern = True
        backend.across, self.backend = self._client, backend
        return backend

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self.backend = self._inner = self.hello = None
        self._listings.clear()
        self._failed = self._client.loop.time(), reason

    def close(self) -> None:
        """The client has left: what it had asked is cancelled."""
        if self.backend is not None:
            self.backend.abort()

    async def greet(self, params: dict[str, Any], *, initialized: bool) -> None:
        """Shake hands as the client did, and bring the server to the state that the client knows.

        ``initialized``: Whether the client has said that it is.
        """
        if self._next is not None:
            await self.now.greet(params, initialized=initialized)
            return
        if self.hello is not None:
            return
        hello = await self.ask("initialize", params)
        backend = self.connect()
        self.hello = hello
        if initialized:
            backend.tell("notifications/initialized")
        if self.level is not None:
            await self._restore("logging/setLevel", {"level": self.level})
        for uri in self.uris:
            await self._restore("resources/subscribe", {"uri": uri})

    async def _restore(self, method: str, params: dict[str, Any]) -> None:
        with contextlib.suppress(RemoteError):
            await self.ask(method, params)

    def has(self, capability: str) -> bool:
        """Whether the server may have this capability."""
        return self.hello is None or capability in self.hello.get("capabilities", {})

    async def ask(self, method: str, params: object) -> dict[str, Any]:
        """Ask the server something. RemoteError or TransportError: it did not give a result."""
        try:
            async with asyncio.timeout(self._patience):
                result = await self.connect().ask(method, params)
        except TimeoutError:
            raise TransportError(
                f"the server {self.name} did not answer {method} in time"
            ) from None
        if not isinstance(result, dict):
            raise RemoteError(codes.INTERNAL_ERROR, "the result is not an object", None)
        return result

    async def list(self, kind: Kind, meta: dict[str, Any] | None) -> Listing:
        """Return what the server lists, asked for once for all who wait. RemoteError,
        TransportError: it does not.

        ``meta``: ``_meta`` of a client of a modern era.
        """
        listing = self._listings.get(kind.method)
        if listing is not None and self._client.loop.time() < listing.until:
            return listing
        asking = self._asking.get(kind.method)
        if asking is None:
            asking = self._asking[kind.method] = asyncio.ensure_future(self._list(kind, meta))
            asking.add_done_callback(lambda done: self._asking.pop(kind.method, None))
        found: Listing = await asyncio.shield(asking)
        return found

    async def _list(self, kind: Kind, meta: dict[str, Any] | None) -> Listing:
        found = Listing([])
        if not self.has(kind.capability):
            return found
        params: dict[str, Any] = {} if meta is None else {"_meta": meta}
        ttls, scopes = [], set()
        n_changes = self._n_changes
        for _ in range(MAX_PAGES):
            try:
                page = await self.ask(kind.method, params)
            except RemoteError as exc:
                if exc.code != codes.METHOD_NOT_FOUND:
                    raise
                break
            entries = page.get(kind.name)
            found.entries += [one for one in entries or () if isinstance(one, dict)]
            ttls.append(ttl_of(page))
            scopes.add(page.get("cacheScope"))
            cursor = page.get("nextCursor")
            if cursor is None or cursor == params.get("cursor"):
                break
            params["cursor"] = cursor
        now = self._client.loop.time()
        found.ttl = min(ttls, default=0)
        found.scope = "public" if scopes == {"public"} else "private"
        found.until = now + found.ttl / 1000 if meta is not None else self._until_changed(kind)
        if n_changes == self._n_changes:
            self._listings[kind.method] = found
        return found

    def _until_changed(self, kind: Kind) -> float:
        """A server that tells of changes is asked again after one, any other each time."""
        assert self.hello is not None
        told = self.hello.get("capabilities", {}).get(kind.capability) or {}
        return float("inf") if told.get("listChanged") is True else 0.0

    def forget(self, capability: str) -> None:
        """The lists of a capability have changed."""
        self._n_changes += 1
        for method in [one for one in self._listings if one.split("/")[0] == capability]:
            del self._listings[method]


def text_of(error: WirespeedError) -> str:
    """The first line of an error."""
    return str(error).partition("\n")[0]
