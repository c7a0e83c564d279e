"""A server of a merged endpoint, as one client has it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from wirespeed.errors import InvalidResponse, RemoteError, TransportError, WirespeedError
from wirespeed.merging import Kind
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import offers, understood
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.merge.lists import ServerListing, ttl_of
from wirespeed.proxy.own_requests import pages
from wirespeed.proxy.upstream import ServerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from wirespeed.proxy.access.header_params import HeaderParams
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.assignment import Assignment
    from wirespeed.proxy.merge.lists import ShownNames
    from wirespeed.proxy.upstream import Upstream, UpstreamOwner

# What a server says of itself, in the result of `initialize` or `server/discover`.
Hello = dict[str, Any]


class MergedService(Protocol):
    """The service of a server that is behind the endpoint."""

    name: str
    mirrored: HeaderParams
    assignment: Assignment

    @property
    def sees_users(self) -> bool:
        """Whether the server knows principals (`identity`)."""

    async def hold(self) -> None:
        """Start the server, if nobody else holds it."""

    async def release(self, held: None) -> None:
        """End the server, if nobody else holds it."""

    def join(self, owner: UpstreamOwner, client: Downstream) -> tuple[Upstream, Downstream]:
        """Return both ends of one more connection."""


class Offer(NamedTuple):
    """A server of the endpoint: its service, its names, the seconds that it has to answer, and
    those in which it is not tried again after it failed; whether its lists are kept by digests."""

    service: MergedService
    names: ShownNames
    patience: float
    retry: float
    digests: bool = False


class Member:
    """A client's connection to one server, from its first use on: the server's service has one
    client more.

    Attributes:
        offer: The server.
        upstream: The connection; None while there is none.
        hello: What it said of itself, of a client of a legacy era; None before its handshake.
        is_used: Whether a request of the client was passed on over the connection.
    """

    def __init__(self, offer: Offer, downstream: Downstream, owner: UpstreamOwner) -> None:
        self.offer = offer
        self.name = offer.service.name
        self.upstream: Upstream | None = None
        self.hello: dict[str, Any] | None = None
        self.level: str | None = None
        self.uris: set[str] = set()
        self.is_used = False
        self._client = downstream
        self._owner = owner
        self._inner: Downstream | None = None
        self._listings: dict[str, ServerListing] = {}
        self._asking: dict[str, asyncio.Future[Any]] = {}
        self._failed: tuple[float, str] | None = None
        self._n_changes = 0
        self._next: Member | None = None

    @property
    def now(self) -> Member:
        """The server of this name after changes of the configuration."""
        return self if self._next is None else self._next.now

    @property
    def is_shared(self) -> bool:
        """Whether what the server says holds for other clients as well: they share it, or it has
        heard nothing of this one yet."""
        return not self.is_used or self.is_of_several

    @property
    def is_of_several(self) -> bool:
        """Whether other clients have the same server."""
        return self._inner is not None and self._inner.router.is_shared

    def leave(self, successor: Member | None) -> None:
        """The configuration has another server of this name, or none. Requests in flight are
        answered."""
        if self._inner is not None:
            self._inner.drain()
        if successor is None:
            self._failed = math.inf, f"the server {self.name} was removed"
            self.upstream = None
        else:
            self._next = successor
            successor.level, successor.uris = self.level, self.uris

    def connect(self) -> Upstream:
        """Return the connection. TransportError: it failed a moment ago."""
        if self._next is not None:
            return self.now.connect()
        if self.upstream is not None:
            return self.upstream
        if self._failed is not None:
            at, text = self._failed
            if self._client.loop.time() < at + self.offer.retry:
                raise ServerLost(text)
        upstream, self._inner = self.offer.service.join(self._owner, self._client)
        upstream.bind(Binding.to_client(self._client))
        self.upstream = upstream
        self.is_used = False
        return upstream

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self.upstream = self._inner = self.hello = None
        self._listings.clear()
        self._failed = self._client.loop.time(), reason

    def close(self) -> None:
        """The client has left: what it had asked is cancelled."""
        for asking in self._asking.values():
            asking.cancel()
        if self.upstream is not None:
            self.upstream.abort()

    async def greet(self, params: dict[str, Any], *, initialized: bool) -> None:
        """Shake hands as the client did, and bring the server to the state that the client knows.

        ``initialized``: Whether the client has said that it is.
        """
        while (member := self.now).hello is None:
            await member._once("initialize", partial(member._greet, params, initialized))

    async def _greet(self, params: dict[str, Any], initialized: bool) -> None:
        if self._next is not None:
            return
        upstream = self.connect()
        try:
            hello = checked(self.name, await self.ask("initialize", params))
        except (InvalidResponse, TransportError) as exc:
            if self.upstream is upstream:  # the next handshake needs another connection
                upstream.abort()
                self.lost(text_of(exc))
            raise
        if self._next is not None:
            return
        if self.upstream is not upstream:
            raise ServerLost(f"the server {self.name} is not there")
        self.hello = hello
        if initialized:
            upstream.tell("notifications/initialized")
        if self.level is not None and "logging" in hello["capabilities"]:
            await self._restore("logging/setLevel", {"level": self.level})
        for uri in list(self.uris):  # clients go on meanwhile
            await self._restore("resources/subscribe", {"uri": uri})

    def use(self) -> None:
        """The server hears of the client."""
        if not self.is_used:
            self.is_used = True
            if not self.is_of_several:
                self._client.state_changed()

    async def _restore(self, method: str, params: dict[str, Any]) -> None:
        self.use()
        with contextlib.suppress(RemoteError, InvalidResponse):
            await self.ask(method, params)

    async def ask(self, method: str, params: object) -> dict[str, Any]:
        """Ask the server something. RemoteError, TransportError or InvalidResponse: it did not give
        a result. The server's service limits the time of ``initialize``, which counts from the
        start of the server."""
        greets = method == "initialize"  # it must not be cancelled
        try:
            async with asyncio.timeout(None if greets else self.offer.patience):
                result = await self.connect().ask(method, params, cancels=not greets)
        except TimeoutError:
            raise ServerLost(f"the server {self.name} did not answer {method} in time") from None
        if not isinstance(result, dict):
            raise InvalidResponse(f"the answer of {self.name} to {method} is not an object")
        return result

    async def list(
        self, kind: Kind, meta: dict[str, Any] | None, known: ServerListing | None = None
    ) -> ServerListing:
        """Return what the server lists, asked for once for all who wait. RemoteError,
        TransportError, InvalidResponse: it does not.

        ``meta``: ``_meta`` of a client of a modern era. ``known``: What it listed before.
        """
        if self._client.shared:
            # Of the clients that come one by one, each has the list of its kind (`MergedCatalog`).
            return await self._list(kind, meta, known)
        listing = self._listings.get(kind.method)
        if listing is not None and self._client.loop.time() < listing.until:
            return listing
        found: ServerListing = await self._once(
            kind.method, partial(self._list, kind, meta, known or listing)
        )
        return found

    async def _once(self, method: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Wait for what somebody has begun to ask, or begin it. TransportError: the client has
        left."""
        asking = self._asking.get(method)
        if asking is None:
            asking = self._asking[method] = asyncio.ensure_future(work())
            asking.add_done_callback(partial(self._asked, method))
        await asyncio.wait((asking,))
        if asking.cancelled():
            raise ServerLost(f"the server {self.name} is not there")
        return asking.result()

    def _asked(self, method: str, asking: asyncio.Future[Any]) -> None:
        if self._asking.get(method) is asking:
            del self._asking[method]
        if not asking.cancelled():
            asking.exception()  # for those who do not wait any more

    async def _list(
        self, kind: Kind, meta: dict[str, Any] | None, known: ServerListing | None
    ) -> ServerListing:
        digest = known.digest if known is not None and self.offer.digests else None
        params: dict[str, Any] = {} if meta is None else {"_meta": meta}
        n_changes = self._n_changes
        try:
            listed = await pages(
                self.ask, kind.method, params, self._client.service.limits.max_message, digest
            )
        except RemoteError as exc:
            if exc.code != codes.METHOD_NOT_FOUND:
                raise
            listed = []
        same = digest is not None and listed and listed[0].get("digest") == digest
        found = known if known is not None and same else ServerListing()
        if found is not known:
            found.take(kind, listed)
        now = self._client.loop.time()
        found.ttl = min(map(ttl_of, listed), default=0)
        public = listed and all(page.get("cacheScope") == "public" for page in listed)
        found.scope = "public" if public else "private"
        found.until = now + found.ttl / 1000 if meta is not None else self._until_changed(kind)
        if n_changes == self._n_changes:
            self._listings[kind.method] = found
        return found

    def _until_changed(self, kind: Kind) -> float:
        """A server that tells of changes is asked again after one, any other each time."""
        if self.hello is None:
            return 0.0
        told = offers(self.hello["capabilities"], kind.capability, "listChanged")
        return math.inf if told else 0.0

    def forget(self, capability: str) -> None:
        """The lists of a capability have changed. What is being asked may be old already."""
        self._n_changes += 1
        for found in (self._listings, self._asking):
            for method in [one for one in found if one.split("/")[0] == capability]:
                del found[method]


def text_of(error: BaseException) -> str:
    """Return the first line of an error; all of one that is not foreseen."""
    return str(error).partition("\n")[0] if isinstance(error, WirespeedError) else repr(error)


def checked(name: str, hello: Hello) -> Hello:
    """Return what a server says of itself, with its capabilities. InvalidResponse: these are not
    objects, or its versions are not a list.

    ``name``: The server's.
    """
    found = hello.get("capabilities") or {}
    if isinstance(found, dict):
        found = understood(found)
    hello["capabilities"] = found
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidResponse(f"the capabilities of {name} are not objects")
    if not isinstance(hello.get("supportedVersions", []), list):
        raise InvalidResponse(f"the versions of {name} are not a list")
    return hello
