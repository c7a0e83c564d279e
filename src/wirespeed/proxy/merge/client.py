"""A client of a merged endpoint, and what the servers say to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wirespeed._core.envelope import parse
from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.merging import KINDS, LISTED, Kind
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    LOG_LEVELS,
    offers,
)
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import DeferredRequest
from wirespeed.proxy.merge.catalog import (
    CatalogKey,
    discover_result,
    envelope_of,
    initialize_result,
)
from wirespeed.proxy.merge.member import Hello, Member, Offer
from wirespeed.proxy.merge.single_server_requests import BY_URI, NAMED, MergedRequests
from wirespeed.proxy.merge.skills import MergedSkills
from wirespeed.proxy.own_requests import modern_version, params_of, unsupported
from wirespeed.proxy.translation.subscriptions import ListenRequests, Updates
from wirespeed.proxy.upstream import ServerLost
from wirespeed.skills.model import GET, LIST, READ_DIRECTORY

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.access.grants import PrincipalGrant
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.merge.catalog import MergedCatalog
    from wirespeed.proxy.merge.lists import MergedList
    from wirespeed.proxy.merge.merged import Merged
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream

# Servers come and go, so the endpoint itself tells of changes.
_OFFERED = {name: {"listChanged": True, "subscribe": True} for name in LISTED}
# Seconds until a server that was lost is subscribed at again.
_DELAY = 1.0
_CHANGED = {
    name: b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}' % name.encode()
    for name in LISTED
}

Params = dict[str, Any]
Answer: TypeAlias = "Callable[[Message, Params, bool], Coroutine[Any, Any, Any]]"


class MergedClient:
    """One client of a merged endpoint. For its servers it is an `UpstreamOwner`.

    It is joined to a server when it uses it first. Over HTTP its requests of 2026-07-28 may be of
    different principals. Each sees the servers that it may use, and nothing of the others.

    Attributes:
        lists: Merged lists that are of this client alone.
        is_closed: Whether it has left.
        meta: ``_meta`` of its last request of 2026-07-28 for a list.
        catalog: What was known to answer its last request for a list; None: there was none.
        downstream: Its connection.
    """

    def __init__(self, merged: Merged, downstream: Downstream) -> None:
        self.lists: dict[str, MergedList] = {}
        self.is_closed = False
        self.meta: Params = {}
        self.catalog: MergedCatalog | None = None
        self.merged = merged
        self.downstream = downstream
        self.members: dict[str, Member] = {}
        self._catalogs: dict[MergedCatalog, None] = {}
        self._hello: Params | None = None  # what it said in `initialize`
        self._greeted = False
        self._told: frozenset[str] = frozenset()  # the capabilities of which it knows
        self._initialized = False
        self._level: str | None = None
        self._works: set[DeferredRequest] = set()
        self._subscriptions: Subscriptions | None = None
        self._requests = MergedRequests(self)
        self._skills = MergedSkills(self)
        self._methods: dict[str, Answer] = {
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            LIST: self._skills.listed,
            **dict.fromkeys(KINDS, self._list),
        }

    def close(self) -> None:
        """The client has left."""
        self.is_closed = True
        if self._subscriptions is not None:
            self._subscriptions.end()
        for work in self._works:
            work.task.cancel()
        for member in self.members.values():
            member.close()
        for catalog in self._catalogs:
            catalog.leave(self)

    def replace(self, offers: list[Offer]) -> None:
        """The configuration has changed: other servers, or other names for their tools."""
        by_name = {one.service.name: one for one in offers}
        for name, member in list(self.members.items()):
            offer = by_name.get(name)
            if offer is not None and member.offer.service is offer.service:
                member.offer = offer
            else:
                del self.members[name]
                member.leave(None if offer is None else self.member(offer))
        self.lists.clear()
        self._skills.forget()
        for capability in LISTED:
            self.tell_change(capability)

    # -- its servers -----------------------------------------------------------------------------

    @property
    def _grant(self) -> PrincipalGrant | None:
        """The grant of the client; None: it may use everything. Others were refused before."""
        access = self.merged.access
        return None if access is None else access.of(self.downstream.principal)

    @property
    def offers(self) -> list[Offer]:
        """The servers that the client may use."""
        return [one for one in self.merged.offers if self.sees(one)]

    def sees(self, offer: Offer) -> bool:
        if self.downstream.shared and offer.service.assignment.refuses_lanes:
            return False
        if self.merged.access is None:
            return True
        grant = self._grant
        return grant is not None and grant.may_use(offer.service.name)

    @property
    def shows(self) -> Callable[[str], bool] | None:
        """Whether the client sees a tool; None: it sees all."""
        grant = self._grant
        return None if grant is None else grant.shows

    def member(self, offer: Offer) -> Member:
        """Return the client's connection to a server, which it has from now on."""
        found = self.members.get(offer.service.name)
        if found is None:
            found = self.members[offer.service.name] = Member(offer, self.downstream, self)
            found.level = self._level
        return found

    def joined(self, name: str) -> Member | None:
        """Return the client's connection to a server, if there is one."""
        found = self.members.get(name)
        return None if found is None or found.upstream is None else found

    async def ready(self, member: Member) -> Member:
        """Return a server, after a new handshake if its connection was lost. WirespeedError: it is
        not there."""
        member = member.now
        if self._hello is not None:
            await member.greet(self._hello, initialized=self._initialized)
        member.now.connect()
        return member.now

    def catalog_of(self, message: Message, modern: bool) -> MergedCatalog:
        """Return what is known of the servers, for clients like this one. ProtocolError: the
        envelope of the request is incomplete."""
        if modern:
            version, offered, self.meta = envelope_of(message)
        else:
            assert self._hello is not None
            version, offered = self._hello["protocolVersion"], self._hello.get("capabilities", {})
        sees_user = any(one.service.sees_users for one in self.merged.offers)
        principal = self.downstream.principal if sees_user else None
        key = CatalogKey.of(
            self._grant, self.downstream.shared, modern, version, offered, principal
        )
        self.catalog = self.merged.catalog(key, self.downstream.loop, self.meta)
        self._catalogs[self.catalog] = None
        return self.catalog

    # -- requests --------------------------------------------------------------------------------

    def route(self, message: Message) -> None:
        """Answer a request, or pass it on to its server, now or later."""
        method = message.method or ""
        modern = modern_version(message) is not None
        if not modern and method == "ping":
            self.answer(message, {})
        elif not modern and method == "initialize":
            self._initialize(message)
        elif not modern and self._hello is None:
            self.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        elif method in NAMED:
            self._requests.pass_by_name(message, NAMED[method], modern)
        elif method in (GET, READ_DIRECTORY) or (
            method == "resources/read" and self._skills.may_have(message.text("params.uri"))
        ):
            self.start(message, self._skills.pass_on(message, modern))
        elif method in BY_URI and not (modern and method != "resources/read"):
            self._requests.pass_by_uri(message, modern)
        elif method == "completion/complete":
            self.start(message, self._requests.complete(message, modern))
        elif method.startswith("tasks/"):
            self.start(message, self._requests.pass_of_task(message, modern))
        elif method == "subscriptions/listen" and modern:
            self.start(message, self._subscribe(message))
        elif (function := self._methods.get(method)) is not None:
            self.start(message, self._answered_by(function, message, modern))
        elif (extension := self.merged.extensions.of_request(method)) is not None:
            self.start(message, self._requests.pass_of_extension(message, extension, modern))
        else:
            self.refuse(message, codes.METHOD_NOT_FOUND, f"Method not found: {method}")

    def start(self, message: Message, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Answer a request later. What the work raises is the answer."""
        task = DeferredRequest(self.downstream, message, work, self._works).task
        task.add_done_callback(partial(self._count, message.method))
        return task

    def _count(self, method: str | None, done: asyncio.Task[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            code = getattr(error, "code", codes.SERVER_LOST)
            self.downstream.service.meter.refused(method, code)

    async def _answered_by(self, function: Answer, message: Message, modern: bool) -> None:
        self.answer(message, await function(message, params_of(message), modern))

    def answer(self, message: Message, result: Any) -> None:
        text = result if isinstance(result, bytes) else msgspec.json.encode(result)
        self.downstream.answer(message, text)

    def refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        self.downstream.service.meter.refused(message.method, code)
        self.downstream.refuse(message, code, text, data)

    # -- handshakes ------------------------------------------------------------------------------

    def _initialize(self, message: Message) -> None:
        params = params_of(message)
        if not isinstance(params.get("protocolVersion"), str):
            self.refuse(message, codes.INVALID_PARAMS, "protocolVersion must be a string")
        elif self._hello is not None:
            self.refuse(message, codes.INVALID_REQUEST, "the connection is initialized already")
        else:
            if params["protocolVersion"] not in LEGACY_VERSIONS:
                params["protocolVersion"] = LATEST_LEGACY
            self._hello = params
            self.downstream.pause()  # what follows waits for the servers
            self.start(message, self._greet(message, params)).add_done_callback(self._begin)

    async def _greet(self, message: Message, params: Params) -> None:
        """Answer ``initialize`` with what the servers say that are ready."""
        hellos = await self.meet(self.catalog_of(message, modern=False))
        if not hellos:
            raise ServerLost("none of the servers is there")
        version = params["protocolVersion"]
        is_whole = len(hellos) == len(self.offers)
        answer = initialize_result(version, hellos, self.merged.extensions, is_whole=is_whole)
        self._told = frozenset(answer["capabilities"])
        self.downstream.speak(version)
        self.answer(message, answer)
        self._greeted = True

    def _begin(self, greeting: asyncio.Task[None]) -> None:
        """Let the requests go on. A client that was not greeted may try it again."""
        if not self._greeted:
            self._hello = None
        self.downstream.release()

    async def meet(self, catalog: MergedCatalog) -> dict[str, Hello]:
        """Return what the servers say of themselves that are ready."""
        while True:
            found = await catalog.meet(self)
            if not catalog.is_over:  # else the configuration has changed meanwhile
                return found
            catalog = self.merged.renewed(catalog)

    async def _discover(self, message: Message, params: Params, modern: bool) -> Params:
        """Join what all servers say. Those that do not serve clients of 2026-07-28 are left out. If
        all are, the client learns what to do."""
        if not modern:
            raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: server/discover")
        refusals: list[RemoteError] = []
        for service in (one.service for one in self.merged.offers):
            if self.downstream.shared and (reason := service.assignment.refuses_lanes):
                self.merged.complain(service.name, "entries", reason, of_lanes=True)
                code, text, data = unsupported(
                    self.downstream.service.legacy_versions, LATEST_MODERN
                )
                refusals.append(RemoteError(code, f"{text}; {service.name}: {reason}", data))
        catalog = self.catalog_of(message, modern)
        hellos = await self.meet(catalog)
        if not hellos:
            of_servers = (catalog.refusal(one.service.name) for one in self.offers)
            refusals += [one for one in of_servers if one is not None]
            if refusals:
                raise refusals[0]
            raise ServerLost("none of the servers is there")
        is_whole = len(hellos) == len(self.offers)
        return discover_result(hellos, self.merged.extensions, is_whole=is_whole)

    # -- lists -----------------------------------------------------------------------------------

    async def _list(self, message: Message, params: Params, modern: bool) -> bytes:
        """Answer with one page of a merged list."""
        kind = KINDS[message.method or ""]
        cursor = params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(codes.INVALID_PARAMS, "cursor must be a string")
        catalog = self.catalog_of(message, modern)
        merged = None if cursor is None else self.list_of(kind, catalog)
        if merged is None:
            merged = await self.merge(kind, catalog)
        return merged.page(cursor, self.merged.page_size, modern)

    def list_of(self, kind: Kind, catalog: MergedCatalog) -> MergedList | None:
        """Return the list that the client got last; None: it has changed since."""
        return self.lists.get(kind.method) or catalog.list_of(kind)

    async def merge(self, kind: Kind, catalog: MergedCatalog) -> MergedList:
        """Return what the servers list that are ready."""
        while True:
            found = await catalog.list(kind, self)
            if not catalog.is_over:
                return found
            catalog = self.merged.renewed(catalog)

    async def _subscribe(self, message: Message) -> None:
        """Tell the client of changes."""
        await self.meet(self.catalog_of(message, modern=True))
        if self._subscriptions is None:
            self._subscriptions = Subscriptions(self, self.downstream)
            self.downstream.bind(Binding.to_merged(self.merged, self._subscriptions.end))
        if self.downstream.is_open(message):
            self._subscriptions.add(message)

    async def joined_to(self, offer: Offer, modern: bool) -> tuple[Member, Upstream]:
        """Return a server for a request of the client."""
        member = self.member(offer)
        if not modern:
            member = await self.ready(member)
        member.use()
        return member, member.connect()

    async def read_any(self, message: Message, uri: str, modern: bool) -> None:
        """Pass a read on to the server that lists a resource, or else to the first that has it."""
        await self._requests.find(message, uri, modern)

    async def _set_level(self, message: Message, params: Params, modern: bool) -> Params:
        """Tell the log level to all servers that the client has. Others get it when they come."""

        async def tell(member: Member) -> None:
            if member.hello is not None and "logging" in member.hello["capabilities"]:
                await member.ask("logging/setLevel", params)

        if modern:
            raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: logging/setLevel")
        level = params.get("level")
        if level not in LOG_LEVELS:
            raise ProtocolError(codes.INVALID_PARAMS, f"level is one of {', '.join(LOG_LEVELS)}")
        self._level = level
        members = list(self.members.values())
        for member in members:
            member.level = level
        ended = await asyncio.gather(*map(tell, members), return_exceptions=True)
        errors = [one for one in ended if isinstance(one, BaseException)]
        if errors and len(errors) == len(ended):
            raise errors[0]
        return {}

    # -- what the servers say --------------------------------------------------------------------

    async def opened(self, upstream: Upstream) -> None:
        """Not called: a server of the proxy opens no connection here."""

    def failed(self) -> None:
        """The service of each server counts its failures."""

    def again(self, asker: Side, message: Message) -> bool:
        """The service of a server sends it again."""
        return False

    def down(self, reason: str | None) -> None:
        """Not called."""

    def _member_of(self, upstream: Upstream) -> Member | None:
        return next((one for one in self.members.values() if one.upstream is upstream), None)

    def closed(self, upstream: Upstream) -> None:
        """A server is gone for this client: what it had is shown no more."""
        member = self._member_of(upstream)
        if member is None:
            return
        hello = member.hello
        member.lost(f"the server {member.name} is not there")
        self.lists.clear()
        for catalog in self._catalogs:
            catalog.lost(member)
        if hello is not None:
            for capability in LISTED:
                if capability in hello["capabilities"]:
                    self.tell_change(capability)

    async def offer_of(self, uri: str) -> Offer | None:
        """Return the server that lists a resource; None: none does."""
        return None if self.catalog is None else await self._requests.offer_of(uri, self.catalog)

    def forget(self, catalog: MergedCatalog) -> None:
        """Another catalog has taken the place of one."""
        self._catalogs.pop(catalog, None)

    def came(self, name: str) -> None:
        """A server is ready that was not before."""
        if self._subscriptions is not None:
            for offer in self.offers:
                if offer.service.name == name:
                    self._subscriptions.follow(offer)

    def tell_change(self, capability: str) -> None:
        """Tell the client that a list has changed."""
        if self.downstream.link is None or self.downstream.draining:
            return
        if self._greeted and capability in self._told:
            self.downstream.session.send_notification(f"notifications/{capability}/list_changed")
            self.downstream.link.wrote()
        if self._subscriptions is not None:
            self._subscriptions.said(parse(_CHANGED[capability]))

    def server_asks(self, upstream: Upstream, message: Message) -> Side | None:
        """Ask the client. What the server hears may make it another one than that of others."""
        member = self._member_of(upstream)
        if member is not None:
            member.use()
        return self.downstream

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Pass a notification on. Lists that have changed are asked for again."""
        member = self._member_of(upstream)
        if member is None:
            return
        self._note_change(member, message.method or "")
        # a reload may have taken the server from the client
        is_ready = self._greeted or self._hello is None  # a client of 2026-07-28 is not greeted
        if is_ready and self.sees(member.offer):
            if message.method == "notifications/message":
                upstream.pass_on(message, self.downstream)
            else:
                upstream.pass_notification(message, self.downstream)

    def heard(self, member: Member, message: Message) -> None:
        """A server of 2026-07-28 has told of a change."""
        self._note_change(member, message.method or "")
        if self._subscriptions is not None and self.sees(member.offer):
            self._subscriptions.said(message)

    def _note_change(self, member: Member, method: str) -> None:
        if not method.endswith("/list_changed"):
            return
        capability = method.split("/")[1]
        member.forget(capability)
        for kind in KINDS.values():
            if kind.capability == capability:
                self.lists.pop(kind.method, None)
        if member.is_shared:
            self.merged.changed(member.name, capability)

    def said(self, message: Message) -> None:
        """Tell the servers what the client says of itself, or to an extension."""
        extension = self.merged.extensions.of_notification(message.method or "")
        if extension is not None:
            self._requests.tell_extension(message, extension, self._hello is None)
            return
        if message.method == "notifications/initialized":
            self._initialized = True
        for member in self.members.values():
            if member.upstream is not None and member.hello is not None:
                member.is_used |= message.method != "notifications/initialized"
                self.downstream.pass_notification(message, member.upstream)


class _Heard(Updates):
    """The changes that one server tells of."""

    hear: Callable[[Message], None]

    def said(self, message: Message) -> None:
        """Take a change."""
        self.hear(message)


class Subscriptions:
    """The subscriptions of one client of 2026-07-28. Each server that tells of changes has one of
    the proxy."""

    def __init__(self, client: MergedClient, downstream: Downstream) -> None:
        self._client = client
        self._downstream = downstream
        self._listening = ListenRequests(downstream, self, _OFFERED)
        self._following: dict[str, asyncio.Task[None]] = {}
        self._heard: dict[str, asyncio.Future[_Heard]] = {}

    def add(self, message: Message) -> None:
        """Subscribe. ProtocolError: the request is wrong, or one too many."""
        self._listening.add(message)
        for offer in self._client.offers:
            self.follow(offer)

    def end(self) -> None:
        """The client is to leave."""
        self._listening.end()
        for task in self._following.values():
            task.cancel()

    def said(self, message: Message) -> None:
        """Tell of a change."""
        self._listening.said(message)

    # -- the servers -----------------------------------------------------------------------------

    def follow(self, offer: Offer, *, always: bool = False) -> None:
        """Hear of the changes of a server, if it tells of any. ``always``: of a resource."""
        name = offer.service.name
        catalog = self._client.catalog
        hello = None if catalog is None else catalog.hello(name)
        if name in self._following or hello is None:
            return
        offered = hello["capabilities"]
        if always or any(offers(offered, one, "listChanged") for one in LISTED):
            self._heard[name] = self._downstream.loop.create_future()
            self._following[name] = asyncio.ensure_future(self._follow(offer, offered))

    async def _follow(self, offer: Offer, offered: dict[str, Any]) -> None:
        name = offer.service.name
        uris: list[str] = []
        try:
            while offer in self._client.offers:
                with contextlib.suppress(WirespeedError):
                    member = self._client.member(offer)
                    upstream = member.connect()
                    heard = _Heard(self._downstream, upstream, offered, lambda: self._client.meta)
                    heard.hear = partial(self._client.heard, member)
                    heard.start()
                    try:
                        for uri in uris:
                            await heard.subscribe(uri)
                        self._heard[name].set_result(heard)
                        await asyncio.shield(upstream.closed)
                    finally:
                        heard.stop()
                        uris = heard.uris
                    self._heard[name] = self._downstream.loop.create_future()
                await asyncio.sleep(_DELAY)
        finally:
            self._following.pop(name, None)
            self._heard.pop(name).cancel()

    # -- as a `ListenServer` ---------------------------------------------------------------------

    @property
    def link(self) -> object:
        """None: the client has left."""
        return self._downstream.link

    def ask(self, method: str, params: dict[str, Any]) -> asyncio.Future[Any]:
        """Subscribe at the server that has a resource, or end that."""
        return asyncio.ensure_future(self._ask(method, params["uri"]))

    async def _ask(self, method: str, uri: str) -> None:
        offer = await self._client.offer_of(uri)
        if offer is None:
            raise RemoteError(codes.INVALID_PARAMS, "Resource not found", {"uri": uri})
        self.follow(offer, always=True)
        heard = self._heard.get(offer.service.name)
        if heard is None:
            raise ServerLost(f"the server {offer.service.name} is not there")
        try:
            async with asyncio.timeout(offer.patience):
                updates = await asyncio.shield(heard)
        except TimeoutError:
            raise ServerLost(f"the server {offer.service.name} is not there") from None
        if method == "resources/subscribe":
            await updates.subscribe(uri)
        else:
            await updates.unsubscribe(uri)
