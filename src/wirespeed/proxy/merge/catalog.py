"""Discovery results and lists of the servers of a merged endpoint, for all clients of one kind.

Clients are of one kind if they may see the same, speak the same revision, and can do the same. A
server is asked over the connection of the first client that needs it. The others are not joined to
it for that.

What a server says to one client holds for the others where they share the server, and where no
client has changed the state of its own server yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, TransportError, WirespeedError
from wirespeed.merging import KINDS, LISTED, Kind, joined_instructions
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    MODERN_VERSIONS,
)
from wirespeed.proxy.merge.lists import MergedList, ServerListing, merge, modern
from wirespeed.proxy.merge.member import Hello, Member, checked, text_of
from wirespeed.proxy.merge.skill_uris import settings_of
from wirespeed.proxy.own_requests import own_info, params_of, unsupported
from wirespeed.proxy.upstream import ServerLost
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.access.grants import PrincipalGrant
    from wirespeed.proxy.merge.client import MergedClient
    from wirespeed.proxy.merge.extensions import MergedExtensions
    from wirespeed.proxy.merge.member import Offer
    from wirespeed.proxy.merge.merged import Merged
    from wirespeed.proxy.merge.skills import SkillListing

logger = logging.getLogger("wirespeed.proxy")

# Seconds for which the words of a server that is one client's are those of another one's, and for
# which a list is kept that took longer than clients wait.
_FRESH = 60.0
# Until a server that failed is tried again.
_BACKOFF = Backoff(1.0, 30.0)
# What of a client's capabilities a server may look at before it says what it has.
_LOOKED_AT = ("sampling", "elicitation", "roots", "tasks", "extensions")

# What need not be known of a server but that it has it.
_PLAIN = ("logging", "completions")
# What stands in ``_meta`` of requests that the proxy makes for all clients of a kind.
_ENVELOPE = (META_PROTOCOL_VERSION, META_CLIENT_CAPABILITIES, META_CLIENT_INFO)

_NOTHING: Hello = {"capabilities": {}}


class CatalogKey(NamedTuple):
    """Clients of one kind.

    Attributes:
        grant: What they may use; None: everything.
        is_shared: Whether their requests come one by one.
        is_modern: Whether they are of 2026-07-28.
        version: Their revision.
        capabilities: What they can do, as text.
        principal: The clients' principal, if a server sees principals; else None.
    """

    grant: PrincipalGrant | None
    is_shared: bool
    is_modern: bool
    version: str
    capabilities: bytes
    principal: bytes | None

    @classmethod
    def of(
        cls,
        grant: PrincipalGrant | None,
        is_shared: bool,
        is_modern: bool,
        version: str,
        offered: Any,
        principal: bytes | None,
    ) -> Self:
        """Make the key of clients with these capabilities."""
        offered = offered if isinstance(offered, dict) else {}
        looked_at = [offered.get(name) for name in _LOOKED_AT]
        text = msgspec.json.encode(looked_at, order="sorted")
        return cls(grant, is_shared, is_modern, version, text, principal)


def envelope_of(message: Message) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the revision of a request of 2026-07-28, what its client can do, and ``_meta`` for
    requests of the proxy in its place. ProtocolError: the envelope is incomplete."""
    meta = params_of(message).get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    version, offered = meta.get(META_PROTOCOL_VERSION), meta.get(META_CLIENT_CAPABILITIES)
    if not isinstance(version, str) or not isinstance(offered, dict):
        raise ProtocolError(codes.INVALID_PARAMS, "the envelope of the request is incomplete")
    if version not in MODERN_VERSIONS:
        raise ProtocolError(*unsupported(MODERN_VERSIONS, version))
    dropped = ("progressToken", META_LOG_LEVEL)
    return version, offered, {name: one for name, one in meta.items() if name not in dropped}


@dataclass(slots=True)
class _Kept:
    """The words of a server: who heard them, and how long they hold."""

    value: Any
    member: Member
    until: float


class _Attempt:
    """The handshake with a server, tried again until it succeeds or all clients have left.

    Attributes:
        began: When clients have begun to wait for it.
        first: Done when the first attempt has ended, well or not.
        is_late: Whether a client got an answer without the server.
        error: Why the server is not there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.began = loop.time()
        self.first: asyncio.Future[None] = loop.create_future()
        self.is_late = False
        self.error: WirespeedError | None = None
        self.task: asyncio.Task[None] | None = None

    def settle(self, error: WirespeedError | None) -> None:
        self.error = error
        if not self.first.done():
            self.first.set_result(None)


class _Asking:
    """A list that a server is asked for.

    Attributes:
        listing: Its answer; None while there is none.
        is_late: Whether a client got a list without it.
    """

    task: asyncio.Task[None]

    def __init__(self, began: float) -> None:
        self.began = began
        self.listing: ServerListing | None = None
        self.is_late = False


class MergedCatalog:
    """The words and lists of the servers for clients of one kind: see the module.

    Attributes:
        key: Its clients.
        is_modern: Whether these are of 2026-07-28.
        envelope: The envelope of one of them. It goes with the requests that the proxy makes for
            all of them.
        clients: Those that use it.
        skills: The skills of servers that may be kept for all clients, by server.
        is_over: Whether a new catalog has taken its place.
    """

    def __init__(
        self,
        merged: Merged,
        key: CatalogKey,
        loop: asyncio.AbstractEventLoop,
        envelope: dict[str, Any],
    ) -> None:
        self.key = key
        self.is_modern = key.is_modern
        self.envelope = {name: envelope[name] for name in _ENVELOPE if name in envelope}
        self.clients: dict[MergedClient, None] = {}
        self.is_over = False
        self._merged = merged
        self.loop = loop
        self._refusals: dict[str, tuple[float, RemoteError]] = {}
        self._hellos: dict[str, _Kept] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._listings: dict[tuple[str, str], _Kept] = {}
        self._asking: dict[tuple[str, str, Member | None], _Asking] = {}
        self._lists: dict[str, MergedList] = {}
        self.skills: dict[str, SkillListing] = {}  # by server

    def leave(self, client: MergedClient) -> None:
        """A client has left."""
        self.clients.pop(client, None)
        if not self.clients:
            self._stop()

    def close(self) -> None:
        """The configuration has changed: another one takes its place."""
        self.is_over = True
        self._stop()
        self.retire()

    def retire(self) -> None:
        """Clients that come get another one."""
        for client in self.clients:
            client.forget(self)

    def _stop(self) -> None:
        for attempt in self._attempts.values():
            if attempt.task is not None:
                attempt.task.cancel()
        for asking in self._asking.values():
            asking.task.cancel()

    # -- what servers say of themselves ----------------------------------------------------------

    def hello(self, name: str) -> Hello | None:
        """Return what a server says of itself; None: it is not known now."""
        kept = self._hellos.get(name)
        if kept is not None and kept.until < self.loop.time():
            del self._hellos[name]
            return None
        return None if kept is None else kept.value

    def refusal(self, name: str) -> RemoteError | None:
        """Return why a server does not speak the revision of these clients; None: it does, as far
        as is known."""
        until, error = self._refusals.get(name, (0.0, None))
        return error if self.loop.time() < until else None

    async def meet(self, client: MergedClient) -> dict[str, Hello]:
        """Return what the servers of a client say of themselves, by their names in order. Those
        that are not ready in time are missing; clients are told when they come. If none is ready,
        the first one is waited for."""
        self.clients[client] = None
        missing = [
            self._attempt(offer)
            for offer in client.offers
            if self.refusal(offer.service.name) is None and self.hello(offer.service.name) is None
        ]
        await self._wait([(one.first, one.began) for one in missing])
        while True:
            found = {
                offer.service.name: hello
                for offer in client.offers
                if (hello := self.hello(offer.service.name)) is not None
            }
            pending = [one.first for one in missing if not one.first.done()]
            if found or not pending:
                break
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for one in missing:
            one.is_late = True
        return found

    async def _wait(self, futures: list[tuple[asyncio.Future[Any], float]]) -> None:
        """Wait for futures, each with the time at which it began, as long as clients wait."""
        pending = {one: began for one, began in futures if not one.done()}
        if pending:
            left = max(pending.values()) + self._merged.ready_within - self.loop.time()
            await asyncio.wait(pending, timeout=max(left, 0.0))

    def _attempt(self, offer: Offer) -> _Attempt:
        name = offer.service.name
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = self._attempts[name] = _Attempt(self.loop)
            attempt.task = asyncio.ensure_future(self._meet(offer, attempt))
        return attempt

    async def _meet(self, offer: Offer, attempt: _Attempt) -> None:
        """Shake hands with a server until it succeeds."""
        name, n = offer.service.name, 0
        try:
            while (client := self._client_of(offer)) is not None:
                try:
                    hello, member = await self._greet(client, offer)
                except RemoteError as exc:
                    attempt.settle(exc)
                    self._merged.complain(name, "entries", text_of(exc))
                    if exc.code == codes.UNSUPPORTED_PROTOCOL_VERSION:
                        self._refusals[name] = self.loop.time() + _FRESH, exc
                        return
                except WirespeedError as exc:
                    if client.is_closed and self._client_of(offer) is not None:
                        continue  # it has left, others wait
                    attempt.settle(exc)
                    self._merged.complain(name, "entries", text_of(exc))
                except Exception as exc:
                    logger.exception("internal error of the proxy at the server %s", name)
                    attempt.settle(ServerLost(text_of(exc)))
                else:
                    self._merged.complain(name, "entries", None)
                    self._keep_hello(name, hello, member)
                    if attempt.is_late:
                        self._came(name, hello)
                    return
                await asyncio.sleep(_BACKOFF.pause(n))
                n += 1
        finally:
            attempt.settle(attempt.error)
            if self._attempts.get(name) is attempt:
                del self._attempts[name]

    def _client_of(self, offer: Offer) -> MergedClient | None:
        """Return a client that may use a server: one that has it already, or else any."""
        found = [one for one in self.clients if not one.is_closed and offer in one.offers]
        joined = (one for one in found if one.joined(offer.service.name) is not None)
        return next(joined, found[0] if found else None)

    async def _greet(self, client: MergedClient, offer: Offer) -> tuple[Hello, Member]:
        member = client.member(offer)
        if not self.is_modern:
            member = await client.ready(member)
            assert member.hello is not None
            return member.hello, member
        hello = await member.ask("server/discover", {"_meta": self.envelope})
        return checked(member.name, hello), member

    def _keep_hello(self, name: str, hello: Hello, member: Member) -> None:
        self._hellos[name] = _Kept(hello, member, self._until(member))

    def _until(self, member: Member) -> float:
        """Return how long the words of a server hold. Those who share it are told of changes."""
        return math.inf if member.is_of_several else self.loop.time() + _FRESH

    def _came(self, name: str, hello: Hello) -> None:
        """A server is ready that clients have not seen."""
        for client in list(self.clients):
            client.came(name)
            for capability in LISTED:
                if capability in hello["capabilities"]:
                    client.tell_change(capability)

    # -- lists -----------------------------------------------------------------------------------

    def list_of(self, kind: Kind) -> MergedList | None:
        """Return the list that clients got last; None: it has changed, or nobody has asked."""
        return self._lists.get(kind.method)

    async def list(self, kind: Kind, client: MergedClient) -> MergedList:
        """Return the merged list of a client's servers. Those that do not answer in time are
        missing; clients are told when their entries are there."""
        hellos = await self.meet(client)
        offers = [
            offer
            for offer in client.offers
            if kind.capability in hellos.get(offer.service.name, _NOTHING)["capabilities"]
        ]
        found: dict[str, ServerListing] = {}
        asked: dict[str, _Asking] = {}
        is_own = False
        for offer in offers:
            name, member = offer.service.name, client.joined(offer.service.name)
            own = member if member is not None and not member.is_shared else None
            is_own |= own is not None
            kept = self._listings.get((kind.method, name)) if own is None else None
            if kept is not None and self.loop.time() < kept.until:
                found[name] = kept.value
            else:
                asked[name] = self._ask(kind, offer, client, own)
        await self._wait([(one.task, one.began) for one in asked.values()])
        for name, asking in asked.items():
            listing = asking.listing
            if not asking.task.done():
                asking.is_late = True
                if (kept := self._listings.get((kind.method, name))) is not None:
                    listing = kept.value
            if listing is not None:
                found[name] = listing
        names = {one.service.name: one.names for one in offers if one.service.name in found}
        is_whole = len(hellos) == len(client.offers) and len(found) == len(offers)
        in_order = {name: found[name] for name in names}
        lists = client.lists if is_own else self._lists
        merged = lists.get(kind.method)
        if merged is None or not merged.is_of(tuple(in_order.values()), is_whole):
            with_skills = [
                name for name in in_order if settings_of(hellos[name]["capabilities"]) is not None
            ]
            merged = lists[kind.method] = merge(
                kind, in_order, names, client.shows, is_whole, with_skills
            )
            self._merged.collisions += merged.collisions
        return merged

    def _ask(self, kind: Kind, offer: Offer, client: MergedClient, own: Member | None) -> _Asking:
        """Ask a server for a list, once for all who wait. ``own``: Of the client alone."""
        key = kind.method, offer.service.name, own
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = _Asking(self.loop.time())
            asking.task = asyncio.ensure_future(self._list(kind, offer, client, key, asking))
        return asking

    async def _list(
        self, kind: Kind, offer: Offer, client: MergedClient, key: Any, asking: _Asking
    ) -> None:
        name = offer.service.name
        try:
            while True:
                try:
                    member = client.member(offer)
                    if not self.is_modern:
                        member = await client.ready(member)
                    kept = self._listings.get((kind.method, name)) if key[2] is None else None
                    listing = await member.list(
                        kind,
                        self.envelope if self.is_modern else None,
                        None if kept is None else kept.value,
                    )
                    break
                except TransportError:
                    other = self._client_of(offer)
                    if not client.is_closed or other is None:
                        raise
                    client = other  # who asked for it has left, others wait
        except Exception as exc:
            if not isinstance(exc, WirespeedError):
                logger.exception("internal error of the proxy at the server %s", name)
            self._merged.complain(name, kind.name, text_of(exc))
            return
        finally:
            is_current = self._asking.get(key) is asking
            if is_current:
                del self._asking[key]
        self._merged.complain(name, kind.name, None)
        self._merged.leave_out(name, kind.name, listing.faults)
        asking.listing = listing
        now = self.loop.time()
        if asking.is_late:
            listing.until = max(listing.until, now + _FRESH)
        if key[2] is None and is_current and member.is_shared:
            until = listing.until if member.is_of_several else max(listing.until, now + _FRESH)
            self._listings[kind.method, name] = _Kept(listing, member, until)
        if asking.is_late:
            for one in list(self.clients) if key[2] is None else [client]:
                one.tell_change(kind.capability)

    # -- changes ---------------------------------------------------------------------------------

    def changed(self, name: str, capability: str) -> None:
        """The lists of a server have changed. Clients that are not joined to it are told, if they
        can have seen the earlier ones."""
        was_known = False
        for kind in KINDS.values():
            if kind.capability != capability:
                continue
            was_known |= self._listings.pop((kind.method, name), None) is not None
            self._asking.pop((kind.method, name, None), None)
            self._lists.pop(kind.method, None)
        if was_known:
            for client in list(self.clients):
                if client.joined(name) is None:
                    client.tell_change(capability)

    def lost(self, member: Member) -> None:
        """A connection is gone that told of changes."""
        for found in (self._hellos, self._listings):
            for key, kept in list(found.items()):
                if kept.member is member and kept.until == math.inf:
                    del found[key]  # type: ignore[arg-type]


# -- what the servers say of themselves, as one ----------------------------------------------------


def capabilities(
    hellos: Iterable[Hello], extensions: dict[str, Any], *, is_whole: bool
) -> dict[str, Any]:
    """Return what the endpoint can do: what a server can, as far as its requests can be told apart.
    Tasks are missing if several servers have them: their ids do not say whose they are.

    ``extensions``: As of `MergedExtensions.declared`. ``is_whole``: Whether no server is missing.
    One that comes later may have any list.
    """
    found = [hello["capabilities"] for hello in hellos]
    union: dict[str, Any] = {}
    for name in LISTED:
        having = [one[name] for one in found if name in one]
        if having or not is_whole:
            union[name] = {"listChanged": True}  # servers come and go
        if any(one.get("subscribe") is True for one in having):
            union[name]["subscribe"] = True
    for name in _PLAIN:
        if any(name in one for one in found):
            union[name] = {}
    having = [one["tasks"] for one in found if "tasks" in one]
    if len(having) == 1:
        union["tasks"] = having[0]
    if extensions:
        union["extensions"] = extensions
    return union


def instructions(hellos: dict[str, Hello]) -> dict[str, str]:
    """Return the servers' instructions below their names, as a member of the result."""
    texts = {name: hello.get("instructions") for name, hello in hellos.items()}
    joined = joined_instructions(
        {name: text for name, text in texts.items() if isinstance(text, str)}
    )
    return {} if joined is None else {"instructions": joined}


def initialize_result(
    version: str, hellos: dict[str, Hello], extensions: MergedExtensions, *, is_whole: bool
) -> Hello:
    """Return the result of ``initialize``. ``is_whole``: Whether no server is missing."""
    declared = extensions.declared(hellos, modern=False)
    return {
        "protocolVersion": version,
        "capabilities": capabilities(hellos.values(), declared, is_whole=is_whole),
        "serverInfo": own_info(),
        **instructions(hellos),
    }


def discover_result(
    hellos: dict[str, Hello], extensions: MergedExtensions, *, is_whole: bool
) -> Hello:
    """Return the result of ``server/discover``. ``is_whole``: Whether no server is missing."""
    declared = extensions.declared(hellos, modern=True)
    first, *others = (hello.get("supportedVersions", []) for hello in hellos.values())
    return {
        "supportedVersions": [v for v in first if all(v in other for other in others)],
        "capabilities": capabilities(hellos.values(), declared, is_whole=is_whole),
        **instructions(hellos),
        **modern([*hellos.values(), *([] if is_whole else [{}])]),
    }
