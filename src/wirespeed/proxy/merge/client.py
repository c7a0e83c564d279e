"""A client of a merged endpoint, and what the servers say to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wirespeed._core.envelope import parse
from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    LOG_LEVELS,
)
from wirespeed.proxy.eras import modern_version, params_of, unsupported
from wirespeed.proxy.failures import ServerLost
from wirespeed.proxy.merge import discovery
from wirespeed.proxy.merge.catalog import CatalogKey, envelope_of
from wirespeed.proxy.merge.lists import KINDS, Kind
from wirespeed.proxy.merge.lists import Merged as MergedList
from wirespeed.proxy.merge.member import Member
from wirespeed.proxy.merge.resources import Resources
from wirespeed.proxy.ongoing import Work
from wirespeed.server.http.headers import copy_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.http.head import HttpHead
    from wirespeed.protocol.header_values import ParamField
    from wirespeed.proxy.access.grants import Grant
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.merge.catalog import Catalog, Hello
    from wirespeed.proxy.merge.listening import Subscriptions
    from wirespeed.proxy.merge.merged import Merged, Offer
    from wirespeed.proxy.side import Side

# Methods whose `params.name` is edited, and the list that the name is of.
_NAMED = {"tools/call": KINDS["tools/list"], "prompts/get": KINDS["prompts/list"]}

# Methods of a resource: the server that has it gets them.
_BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_LISTS = ("tools", "prompts", "resources")
_CHANGED = {
    name: b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}' % name.encode()
    for name in _LISTS
}

Params = dict[str, Any]
Fields: TypeAlias = "tuple[ParamField, ...]"


class MergedClient:
    """One client of a merged endpoint. For its servers it is an `Owner`.

    It is joined to a server when it uses it first. Over HTTP its requests of 2026-07-28 may be of
    different principals. Each sees the servers that it may use, and nothing of the others.

    Attributes:
        lists: Merged lists that are of this client alone.
        is_closed: Whether it has left.
        meta: ``_meta`` of its last request of 2026-07-28 for a list.
        catalog: What was known to answer its last request for a list; None: there was none.
        front: Its connection.
    """

    def __init__(self, merged: Merged, front: Front) -> None:
        self.lists: dict[str, MergedList] = {}
        self.is_closed = False
        self.meta: Params = {}
        self.catalog: Catalog | None = None
        self._merged = merged
        self.front = front
        self._members: dict[str, Member] = {}
        self._catalogs: dict[Catalog, None] = {}
        self._hello: Params | None = None  # what it said in `initialize`
        self._greeted = False
        self._told: frozenset[str] = frozenset()  # the capabilities of which it knows
        self._initialized = False
        self._level: str | None = None
        self._works: set[Work] = set()
        self._subscriptions: Subscriptions | None = None
        self._resources = Resources(self)
        self._methods: dict[str, Callable[[Message, Params, bool], Coroutine[Any, Any, Any]]] = {
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            **dict.fromkeys(KINDS, self._list),
        }

    def close(self) -> None:
        """The client has left."""
        self.is_closed = True
        if self._subscriptions is not None:
            self._subscriptions.end()
        for work in self._works:
            work.task.cancel()
        for member in self._members.values():
            member.close()
        for catalog in self._catalogs:
            catalog.leave(self)

    def replace(self, offers: list[Offer]) -> None:
        """The configuration has changed: other servers, or other names for their tools."""
        by_name = {one.service.name: one for one in offers}
        for name, member in list(self._members.items()):
            offer = by_name.get(name)
            if offer is not None and member.offer.service is offer.service:
                member.offer = offer
            else:
                del self._members[name]
                member.leave(None if offer is None else self.member(offer))
        self.lists.clear()
        for capability in _LISTS:
            self.tell_change(capability)

    # -- its servers -----------------------------------------------------------------------------

    @property
    def _grant(self) -> Grant | None:
        """What the client may use; None: everything. Others were refused before."""
        access = self._merged.access
        return None if access is None else access.of(self.front.principal)

    @property
    def offers(self) -> list[Offer]:
        """The servers that the client may use."""
        return [one for one in self._merged.offers if self._sees(one)]

    def _sees(self, offer: Offer) -> bool:
        if self.front.shared and offer.service.assignment.refuses_lanes:
            return False
        if self._merged.access is None:
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
        found = self._members.get(offer.service.name)
        if found is None:
            found = self._members[offer.service.name] = Member(offer, self.front, self)
            found.level = self._level
        return found

    def joined(self, offer: Offer) -> Member | None:
        """Return the client's connection to a server, if there is one."""
        found = self._members.get(offer.service.name)
        return None if found is None or found.backend is None else found

    def has_joined(self, name: str) -> bool:
        """Whether the client has a connection to a server."""
        found = self._members.get(name)
        return found is not None and found.backend is not None

    async def ready(self, member: Member) -> Member:
        """Return a server, after a new handshake if its connection was lost. WirespeedError: it is
        not there."""
        member = member.now
        if self._hello is not None:
            await member.greet(self._hello, initialized=self._initialized)
        member.now.connect()
        return member.now

    def catalog_of(self, message: Message, modern: bool) -> Catalog:
        """Return what is known of the servers, for clients like this one. ProtocolError: the
        envelope of the request is incomplete."""
        if modern:
            version, offered, self.meta = envelope_of(message)
        else:
            assert self._hello is not None
            version, offered = self._hello["protocolVersion"], self._hello.get("capabilities", {})
        key = CatalogKey.of(self._grant, self.front.shared, modern, version, offered)
        self.catalog = self._merged.catalog(key, self.front.loop, self.meta)
        self._catalogs[self.catalog] = None
        return self.catalog

    # -- requests --------------------------------------------------------------------------------

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was or will be answered."""
        method = message.method or ""
        modern = modern_version(message) is not None
        if not modern:
            if method == "ping":
                self.answer(message, {})
                return None
            if method == "initialize":
                self._initialize(message)
                return None
            if self._hello is None:
                self.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
                return None
        if method in _NAMED:
            return self._named(message, _NAMED[method], modern)
        if method in _BY_URI and not (modern and method != "resources/read"):
            self._resources.pass_on(message, modern)
        elif method == "completion/complete":
            self.start(message, self._complete(message, modern))
        elif method.startswith("tasks/"):
            self.start(message, self._pass_to_the_only_one(message, modern))
        elif method == "subscriptions/listen" and modern:
            self.start(message, self._subscribe(message))
        elif (function := self._methods.get(method)) is not None:
            self.start(message, self._answered_by(function, message, modern))
        else:
            self.refuse(message, codes.METHOD_NOT_FOUND, f"Method not found: {method}")
        return None

    def start(self, message: Message, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Answer a request later. What the work raises is the answer."""
        task = Work(self.front, message, work, self._works).task
        task.add_done_callback(partial(self._count, message.method))
        return task

    def _count(self, method: str | None, done: asyncio.Task[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            code = getattr(error, "code", codes.SERVER_LOST)
            self.front.service.meter.refused(method, code)

    async def _answered_by(
        self,
        function: Callable[[Message, Params, bool], Coroutine[Any, Any, Any]],
        message: Message,
        modern: bool,
    ) -> None:
        self.answer(message, await function(message, params_of(message), modern))

    def answer(self, message: Message, result: Any) -> None:
        text = result if isinstance(result, bytes) else msgspec.json.encode(result)
        self.front.answer(message, text)

    def refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        self.front.service.meter.refused(message.method, code)
        self.front.refuse(message, code, text, data)

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
            self.front.session.pauses_requests = True  # what follows waits for the servers
            self.start(message, self._greet(message, params)).add_done_callback(self._begin)

    async def _greet(self, message: Message, params: Params) -> None:
        """Answer ``initialize`` with what the servers say that are ready."""
        hellos = await self.meet(self.catalog_of(message, modern=False))
        if not hellos:
            raise ServerLost("none of the servers is there")
        version = params["protocolVersion"]
        is_whole = len(hellos) == len(self.offers)
        answer = discovery.initialized(version, hellos, is_whole=is_whole)
        self._told = frozenset(answer["capabilities"])
        self.answer(message, answer)
        self.front.speak(version)
        self._greeted = True

    def _begin(self, greeting: asyncio.Task[None]) -> None:
        """Let the requests go on. A client that was not greeted may try it again."""
        if not self._greeted:
            self._hello = None
        self.front.release()

    async def meet(self, catalog: Catalog) -> dict[str, Hello]:
        """Return what the servers say of themselves that are ready."""
        while True:
            found = await catalog.meet(self)
            if not catalog.is_over:  # else the configuration has changed meanwhile
                return found
            catalog = self._merged.renewed(catalog)

    async def _discover(self, message: Message, params: Params, modern: bool) -> Params:
        """Join what all servers say. Those that do not serve clients of 2026-07-28 are left out. If
        all are, the client learns what to do."""
        if not modern:
            raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: server/discover")
        refusals: list[RemoteError] = []
        for service in (one.service for one in self._merged.offers):
            if self.front.shared and (reason := service.assignment.refuses_lanes):
                self._merged.complain(service.name, "entries", reason, of_lanes=True)
                code, text, data = unsupported(self.front.service.legacy_versions, LATEST_MODERN)
                refusals.append(RemoteError(code, f"{text}; {service.name}: {reason}", data))
        catalog = self.catalog_of(message, modern)
        hellos = await self.meet(catalog)
        if not hellos:
            of_servers = (catalog.refusal(one.service.name) for one in self.offers)
            refusals += [one for one in of_servers if one is not None]
            if refusals:
                raise refusals[0]
            raise ServerLost("none of the servers is there")
        return discovery.discovered(hellos, is_whole=len(hellos) == len(self.offers))

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
        return merged.page(cursor, self._merged.page_size, modern)

    def list_of(self, kind: Kind, catalog: Catalog) -> MergedList | None:
        """The list that the client got last; None: it has changed since."""
        return self.lists.get(kind.method) or catalog.list_of(kind)

    async def merge(self, kind: Kind, catalog: Catalog) -> MergedList:
        """Return what the servers list that are ready."""
        while True:
            found = await catalog.list(kind, self)
            if not catalog.is_over:
                return found
            catalog = self._merged.renewed(catalog)

    async def _subscribe(self, message: Message) -> None:
        """Tell the client of changes."""
        await self.meet(self.catalog_of(message, modern=True))
        if self._subscriptions is None:
            from wirespeed.proxy.merge.listening import Subscriptions

            self._subscriptions = Subscriptions(self, self.front)
            self.front.on_drain = self._subscriptions.end
        if self.front.is_open(message):
            self._subscriptions.add(message)

    # -- requests that name a tool or a prompt ---------------------------------------------------

    def _named(self, message: Message, kind: Kind, modern: bool) -> Side | None:
        """Pass a request on with the name that the server knows."""
        shown = message.text("params.name")
        if shown is None:
            self.refuse(message, codes.INVALID_PARAMS, "params.name must be a string")
            return None
        found = self._candidates(kind, shown)
        head = self.front.head if modern and kind.name == "tools" else None
        if len(found) == 1:
            offer, real = found[0]
            member = self._members.get(offer.service.name)
            if member is not None and member.backend is not None:
                fields: Fields | None = ()
                if head is not None:
                    fields = offer.service.mirrored.fields(self.front, real)
                if fields is not None and (modern or member.hello is not None):
                    self._pass(message, member, shown, real, head, fields)
                    return None
        elif not found:
            self._unknown(message, kind, shown)
            return None
        head = None if head is None else copy_of(head)
        self.start(message, self._choose(message, kind, shown, modern, head))
        return None

    def _candidates(self, kind: Kind, shown: str) -> list[tuple[Offer, str]]:
        found = self._merged.owners(kind.name, shown)
        if self._merged.access is None and not self.front.shared:
            return found
        return [one for one in found if self._sees(one[0])]

    async def _owner_of_name(
        self, message: Message, kind: Kind, shown: str, modern: bool
    ) -> tuple[Offer | None, str]:
        """Return whose a name is, and what the server calls it. The lists tell if the names of
        several servers may be so."""
        found = self._candidates(kind, shown)
        if len(found) > 1:
            catalog = self.catalog_of(message, modern)
            merged = self.list_of(kind, catalog)
            if merged is None or shown not in merged.owners:
                merged = await self.merge(kind, catalog)
            owner = merged.owners.get(shown)
            found = [one for one in found if one[0].service.name == owner]
        return found[0] if found else (None, "")

    async def _choose(
        self, message: Message, kind: Kind, shown: str, modern: bool, head: HttpHead | None
    ) -> None:
        offer, real = await self._owner_of_name(message, kind, shown, modern)
        if offer is None:
            self._unknown(message, kind, shown)
            return
        fields: Fields = ()
        if head is not None:
            mirrored = offer.service.mirrored
            known = mirrored.fields(self.front, real)
            fields = await mirrored.learned(self.front, real) if known is None else known
        member = self.member(offer)
        if not modern:
            member = await self.ready(member)
        self._pass(message, member, shown, real, head, fields)

    def _pass(
        self,
        message: Message,
        member: Member,
        shown: str,
        real: str,
        head: HttpHead | None,
        fields: Fields,
    ) -> None:
        """Pass a request on, if it says what the fields of its HTTP request say."""
        if head is not None and not member.offer.service.mirrored.agrees(
            self.front, message, head, fields
        ):
            return
        backend = member.connect()
        member.is_used = True
        name = None if real == shown else msgspec.json.encode(real)
        self.front.pass_request(message, backend, name)

    def _unknown(self, message: Message, kind: Kind, shown: str) -> None:
        self.refuse(message, codes.INVALID_PARAMS, f"Unknown {kind.name[:-1]}: {shown[:200]}")

    # -- resources, completions, tasks -----------------------------------------------------------

    async def joined_to(self, offer: Offer, modern: bool) -> tuple[Member, Backend]:
        """Return a server for a request of the client."""
        member = self.member(offer)
        if not modern:
            member = await self.ready(member)
        member.is_used = True
        return member, member.connect()

    async def _complete(self, message: Message, modern: bool) -> None:
        """Pass a completion on to the server of its prompt or resource."""
        params = params_of(message)
        ref = params.get("ref")
        ref = ref if isinstance(ref, dict) else {}
        name, uri = ref.get("name"), ref.get("uri")
        if isinstance(name, str):
            offer, real = await self._owner_of_name(message, KINDS["prompts/list"], name, modern)
            if offer is None:
                self._unknown(message, KINDS["prompts/list"], name)
                return
            _, backend = await self.joined_to(offer, modern)
            params["ref"] = {**ref, "name": real}
            text = {"jsonrpc": "2.0", "id": 0, "method": message.method, "params": params}
            self.front.pass_request(message, backend, text=msgspec.json.encode(text))
        elif isinstance(uri, str):
            offer = await self._resources.offer_of(uri, self.catalog_of(message, modern))
            if offer is None:
                raise self._resources.not_found(uri, modern)
            _, backend = await self.joined_to(offer, modern)
            self.front.pass_request(message, backend)
        else:
            self.refuse(message, codes.INVALID_PARAMS, "params.ref names nothing")

    async def _pass_to_the_only_one(self, message: Message, modern: bool) -> None:
        """Pass a request about a task on, where a single server has tasks."""
        hellos = await self.meet(self.catalog_of(message, modern))
        found = []
        for offer in self.offers:
            offered = hellos.get(offer.service.name, {"capabilities": {}})["capabilities"]
            if modern:
                offered, name = offered.get("extensions"), TASKS_EXTENSION
            else:
                name = "tasks"
            if isinstance(offered, dict) and name in offered:
                found.append(offer)
        if len(found) != 1:
            text = f"Method not found: {message.method}"
            raise ProtocolError(codes.METHOD_NOT_FOUND, text)
        _, backend = await self.joined_to(found[0], modern)
        self.front.pass_request(message, backend)

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
        members = list(self._members.values())
        for member in members:
            member.level = level
        ended = await asyncio.gather(*map(tell, members), return_exceptions=True)
        errors = [one for one in ended if isinstance(one, BaseException)]
        if errors and len(errors) == len(ended):
            raise errors[0]
        return {}

    # -- what the servers say --------------------------------------------------------------------

    async def opened(self, backend: Backend) -> None:
        """Not called: a server of the proxy opens no connection here."""

    def failed(self) -> None:
        """The service of each server counts its failures."""

    def again(self, asker: Side, message: Message) -> bool:
        """The service of a server sends it again."""
        return False

    def down(self, reason: str | None) -> None:
        """Not called."""

    def _member_of(self, backend: Backend) -> Member | None:
        return next((one for one in self._members.values() if one.backend is backend), None)

    def closed(self, backend: Backend) -> None:
        """A server is gone for this client: what it had is shown no more."""
        member = self._member_of(backend)
        if member is None:
            return
        hello = member.hello
        member.lost(f"the server {member.name} is not there")
        self.lists.clear()
        for catalog in self._catalogs:
            catalog.lost(member)
        if hello is not None:
            for capability in _LISTS:
                if capability in hello["capabilities"]:
                    self.tell_change(capability)

    async def offer_of(self, uri: str) -> Offer | None:
        """Return the server that lists a resource; None: none does."""
        return None if self.catalog is None else await self._resources.offer_of(uri, self.catalog)

    def forget(self, catalog: Catalog) -> None:
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
        if self.front.link is None or self.front.draining:
            return
        if self._greeted and capability in self._told:
            self.front.session.send_notification(f"notifications/{capability}/list_changed")
            self.front.link.wrote()
        if self._subscriptions is not None:
            self._subscriptions.said(parse(_CHANGED[capability]))

    def server_asks(self, backend: Backend, message: Message) -> Side | None:
        """Ask the client. What the server hears may make it another one than that of others."""
        member = self._member_of(backend)
        if member is not None:
            member.is_used = True
        return self.front

    def server_said(self, backend: Backend, message: Message) -> None:
        """Pass a notification on. Lists that have changed are asked for again."""
        member = self._member_of(backend)
        if member is None:
            return
        self._note_change(member, message.method or "")
        # a reload may have taken the server from the client
        is_ready = self._greeted or self._hello is None  # a client of 2026-07-28 is not greeted
        if is_ready and self._sees(member.offer):
            if message.method == "notifications/message":
                backend.pass_on(message, self.front)
            else:
                backend.pass_notification(message, self.front)

    def heard(self, member: Member, message: Message) -> None:
        """A server of 2026-07-28 has told of a change."""
        self._note_change(member, message.method or "")
        if self._subscriptions is not None and self._sees(member.offer):
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
            self._merged.changed(member.name, capability)

    def said(self, message: Message) -> None:
        """Tell the servers what the client says of itself."""
        if message.method == "notifications/initialized":
            self._initialized = True
        for member in self._members.values():
            if member.backend is not None and member.hello is not None:
                member.is_used |= message.method != "notifications/initialized"
                self.front.pass_notification(message, member.backend)
