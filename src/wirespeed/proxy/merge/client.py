"""A client of a merged endpoint, and what the servers say to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    LOG_LEVELS,
    REVISIONS,
)
from wirespeed.proxy.eras import modern_version, params_of, unsupported
from wirespeed.proxy.failures import ServerLost
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.merge import discovery
from wirespeed.proxy.merge.lists import KINDS, Kind, Listing, merge
from wirespeed.proxy.merge.lists import Merged as MergedList
from wirespeed.proxy.merge.member import Member, text_of
from wirespeed.proxy.merge.owners import owner_of
from wirespeed.proxy.ongoing import Work
from wirespeed.server.http.headers import copy_of
from wirespeed.server.pagination import page_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.http.head import HttpHead
    from wirespeed.protocol.header_values import ParamField
    from wirespeed.proxy.access.grants import Grant
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.merge.merged import Merged, Offer
    from wirespeed.proxy.side import Side

# Methods whose `params.name` is edited, and the list that the name is of.
_NAMED = {"tools/call": KINDS["tools/list"], "prompts/get": KINDS["prompts/list"]}

# Methods of a resource: the server that has it gets them.
_BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_RESOURCES, _TEMPLATES = KINDS["resources/list"], KINDS["resources/templates/list"]

Params = dict[str, Any]
Fields: TypeAlias = "tuple[ParamField, ...]"


class MergedClient:
    """One client of a merged endpoint. For its servers it is an `Owner`.

    Over HTTP its requests of 2026-07-28 may be of different principals. Each sees the servers that
    it may use, and nothing of the others.

    Attributes:
        members: The servers, in the order of the configuration.
    """

    def __init__(self, merged: Merged, front: Front) -> None:
        self.members: list[Member] = []
        self._merged = merged
        self._front = front
        self._hello: Params | None = None  # what it said in `initialize`
        self._greeted = False
        self._told: frozenset[str] = frozenset()  # the capabilities of which it knows
        self._initialized = False
        self._lists: dict[tuple[str, Grant | None], MergedList] = {}
        self._works: set[Work] = set()
        self._methods: dict[str, Callable[[Message, Params, bool], Coroutine[Any, Any, Any]]] = {
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            **dict.fromkeys(KINDS, self._list),
        }

    def close(self) -> None:
        """The client has left."""
        for work in self._works:
            work.task.cancel()
        for member in self.members:
            member.close()

    def replace(self, services: list[Offer]) -> None:
        """The configuration has changed: other servers, or other names for their tools."""
        before = {member.name: member for member in self.members}
        members = []
        for service, names, patience in services:
            member = before.get(service.name)
            if member is not None and member.service is service:
                member.names = names
            else:
                member = Member(service, names, patience, self._front, self)
            members.append(member)
        self.members = members
        for name, member in before.items():
            successor = next((one for one in members if one.name == name), None)
            if successor is not member:
                member.leave(successor)
        self._lists.clear()
        if self._greeted:
            for capability in ("tools", "prompts", "resources"):
                if capability in self._told:
                    self._tell_change(capability)

    @property
    def _grant(self) -> Grant | None:
        """What the client may use; None: everything. Others were refused before."""
        access = self._merged.access
        return None if access is None else access.of(self._front.principal)

    @property
    def _visible(self) -> list[Member]:
        """The servers that the client may use."""
        members = self.members
        if self._front.shared:
            members = [one for one in members if not one.service.assignment.refuses_lanes]
        grant = self._grant
        if grant is None:
            return members if self._merged.access is None else []
        return [one for one in members if grant.may_use(one.name)]

    # -- requests --------------------------------------------------------------------------------

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was or will be answered."""
        method = message.method or ""
        modern = modern_version(message) is not None
        if not modern:
            if method == "ping":
                self._answer(message, {})
                return None
            if method == "initialize":
                self._initialize(message)
                return None
            if self._hello is None:
                self._refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
                return None
        if method in _NAMED:
            return self._named(message, _NAMED[method], modern)
        if method in _BY_URI:
            self._by_uri(message, modern)
            return None
        if method == "completion/complete":
            self._start(message, self._complete(message, modern))
            return None
        if method.startswith("tasks/"):
            return self._of_the_only_one(message)
        function = self._methods.get(method)
        if function is None:
            self._refuse(message, codes.METHOD_NOT_FOUND, f"Method not found: {method}")
        else:
            self._start(message, self._answered_by(function, message, modern))
        return None

    def _start(self, message: Message, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Answer a request later. What the work raises is the answer."""
        return Work(self._front, message, work, self._works).task

    async def _answered_by(
        self,
        function: Callable[[Message, Params, bool], Coroutine[Any, Any, Any]],
        message: Message,
        modern: bool,
    ) -> None:
        self._answer(message, await function(message, params_of(message), modern))

    def _answer(self, message: Message, result: Any) -> None:
        self._front.answer(message, msgspec.json.encode(result))

    def _refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        self._front.refuse(message, code, text, data)

    # -- handshakes ------------------------------------------------------------------------------

    def _initialize(self, message: Message) -> None:
        params = params_of(message)
        if not isinstance(params.get("protocolVersion"), str):
            self._refuse(message, codes.INVALID_PARAMS, "protocolVersion must be a string")
        elif self._hello is not None:
            self._refuse(message, codes.INVALID_REQUEST, "the connection is initialized already")
        else:
            if params["protocolVersion"] not in LEGACY_VERSIONS:
                params["protocolVersion"] = LATEST_LEGACY
            self._hello = params
            self._front.session.pauses_requests = True  # what follows waits for the servers
            self._start(message, self._greet(message, params)).add_done_callback(self._begin)

    async def _greet(self, message: Message, params: Params) -> None:
        """Answer ``initialize`` when all servers have answered, or failed."""
        found = await self._each(lambda one: one.greet(params, initialized=False), "entries")
        if not found:
            raise ServerLost("none of the servers is there")
        hellos = {one.name: one.hello for one in found if one.hello is not None}
        version = params["protocolVersion"]
        answer = discovery.initialized(version, hellos)
        self._told = frozenset(answer["capabilities"])
        self._answer(message, answer)
        self._front.speak(version)
        self._greeted = True

    def _begin(self, greeting: asyncio.Task[None]) -> None:
        """Let the requests go on. A client that was not greeted may try it again."""
        if not self._greeted:
            self._hello = None
        self._front.release()

    async def _discover(self, message: Message, params: Params, modern: bool) -> Params:
        """Join what all servers say. Those that do not serve clients of 2026-07-28 are left out. If
        all are, the client learns what to do."""
        refusals: list[RemoteError] = []

        async def ask(member: Member) -> Params:
            try:
                hello = await member.ask("server/discover", params)
            except RemoteError as exc:
                if exc.code not in codes.UNAVAILABLE:
                    refusals.append(exc)
                raise
            return discovery.checked(member.name, hello)

        for member in self.members:
            if self._front.shared and (reason := member.service.assignment.refuses_lanes):
                self._merged.complain(member.name, "entries", reason, of_lanes=True)
                code, text, data = unsupported(self._front.service.legacy_versions, LATEST_MODERN)
                refusals.append(RemoteError(code, f"{text}; {member.name}: {reason}", data))
        found = await self._each(ask, "entries")
        if not found and refusals:
            raise refusals[0]
        if not found:
            raise ServerLost("none of the servers is there")
        return discovery.discovered({one.name: hello for one, hello in found.items()})

    async def _each(
        self, function: Callable[[Member], Coroutine[Any, Any, Any]], what: str
    ) -> dict[Member, Any]:
        """Call a function for each server. Those that fail are logged and left out."""
        members: list[Member] | None = None
        while members != self._visible:  # again if the configuration has changed meanwhile
            members = self._visible
            ended = await asyncio.gather(*map(function, members), return_exceptions=True)
        assert members is not None
        found = {}
        for member, one in zip(members, ended, strict=True):
            if isinstance(one, Exception):
                self._merged.complain(member.name, what, text_of(one))
            elif isinstance(one, BaseException):
                raise one
            else:
                self._merged.complain(member.name, what, None)
                found[member] = one
        return found

    async def _ready(self, member: Member) -> Backend:
        """Return the connection of a server, after a new handshake if it was lost."""
        member = member.now
        if self._hello is not None:
            await member.greet(self._hello, initialized=self._initialized)
        return member.connect()

    # -- lists -----------------------------------------------------------------------------------

    async def _list(self, message: Message, params: Params, modern: bool) -> Params:
        """Answer with one page of a merged list."""
        kind = KINDS[message.method or ""]
        cursor = params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(codes.INVALID_PARAMS, "cursor must be a string")
        merged = self._list_of(kind)
        if cursor is None or merged is None:
            merged = await self._merge(kind, params.get("_meta") if modern else None)
        page = page_of(list(merged.entries.items()), cursor, self._merged.page_size)
        result: Params = {kind.name: page.entries}
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        return {**result, **merged.rest} if modern else result

    async def _merge(self, kind: Kind, meta: Params | None) -> MergedList:
        """Ask for the list of each server, and put them together."""
        if meta is not None:
            meta = _without_token({"_meta": meta})["_meta"]

        async def ask(member: Member) -> Listing:
            if meta is None:
                await self._ready(member)
            return await member.list(kind, meta)

        grant = self._grant
        found = await self._each(ask, kind.name)
        merged = self._lists[kind.method, grant] = merge(kind, found)
        if grant is not None and kind.name == "tools":
            merged.entries = {
                name: entry for name, entry in merged.entries.items() if grant.shows(name)
            }
        self._merged.collisions += merged.collisions
        merged.rest = discovery.modern(
            {"ttlMs": one.ttl, "cacheScope": one.scope} for one in found.values()
        )
        return merged

    # -- requests that name a tool or a prompt ---------------------------------------------------

    def _named(self, message: Message, kind: Kind, modern: bool) -> Side | None:
        """Pass a request on with the name that the server knows."""
        shown = message.text("params.name")
        if shown is None:
            self._refuse(message, codes.INVALID_PARAMS, "params.name must be a string")
            return None
        found = self._candidates(kind, shown)
        head = self._front.head if modern and kind.name == "tools" else None
        if len(found) == 1:
            member, real = found[0]
            fields: Fields | None = ()
            if head is not None:
                fields = member.service.mirrored.fields(self._front, real)
            ready = member.backend is not None and (modern or member.hello is not None)
            if ready and fields is not None:
                self._pass(message, member, shown, real, head, fields)
                return None
        head = None if head is None else copy_of(head)
        self._start(message, self._choose(message, kind, shown, modern, head))
        return None

    async def _owner_of_name(
        self, message: Message, kind: Kind, shown: str, modern: bool
    ) -> tuple[Member | None, str]:
        """Return whose a name is, and what the server calls it. The lists tell if the names of
        several servers may be so."""
        found = self._candidates(kind, shown)
        if len(found) > 1:
            merged = self._list_of(kind)
            if merged is None or shown not in merged.owners:
                merged = await self._merge(kind, _meta(message) if modern else None)
            found = [one for one in found if one[0] is merged.owners.get(shown)]
        return found[0] if found else (None, "")

    def _candidates(self, kind: Kind, shown: str) -> list[tuple[Member, str]]:
        return [
            (member, real)
            for member in self._visible
            if (real := member.names.real(kind.name, shown)) is not None
        ]

    async def _choose(
        self, message: Message, kind: Kind, shown: str, modern: bool, head: HttpHead | None
    ) -> None:
        owner, real = await self._owner_of_name(message, kind, shown, modern)
        if owner is None:
            self._unknown(message, kind, shown)
            return
        fields: Fields = ()
        if head is not None:
            mirrored = owner.service.mirrored
            known = mirrored.fields(self._front, real)
            fields = await mirrored.learned(self._front, real) if known is None else known
        if not modern:
            await self._ready(owner)
        self._pass(message, owner, shown, real, head, fields)

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
        if head is not None and not member.service.mirrored.agrees(
            self._front, message, head, fields
        ):
            return
        backend = member.connect()
        name = None if real == shown else msgspec.json.encode(real)
        self._front.pass_request(message, backend, name)

    def _unknown(self, message: Message, kind: Kind, shown: str) -> None:
        self._refuse(message, codes.INVALID_PARAMS, f"Unknown {kind.name[:-1]}: {shown[:200]}")

    # -- resources, completions, tasks -----------------------------------------------------------

    def _by_uri(self, message: Message, modern: bool) -> None:
        """Pass a request on to the server that has the resource."""
        uri = message.text("params.uri")
        if uri is None:
            self._refuse(message, codes.INVALID_PARAMS, "params.uri must be a string")
            return
        owner = self._owner(uri)
        if owner is None or owner.backend is None or (owner.hello is None and not modern):
            self._start(message, self._find(message, uri, modern))
        else:
            self._pass_by_uri(message, owner, owner.backend, uri)

    def _owner(self, uri: str) -> Member | None:
        return owner_of(uri, self._list_of(_RESOURCES), self._list_of(_TEMPLATES))

    def _list_of(self, kind: Kind) -> MergedList | None:
        return self._lists.get((kind.method, self._grant))

    async def _load_owners(self, modern: bool, message: Message) -> None:
        meta = _meta(message) if modern else None
        for kind in (_RESOURCES, _TEMPLATES):
            if self._list_of(kind) is None:
                await self._merge(kind, meta)

    async def _find(self, message: Message, uri: str, modern: bool) -> None:
        """Pass a request on to the server that has a resource, after a look at the lists."""
        await self._load_owners(modern, message)
        owner = self._owner(uri)
        if owner is not None:
            backend = owner.connect() if modern else await self._ready(owner)
            self._pass_by_uri(message, owner, backend, uri)
        elif message.method == "resources/read":
            self._answer(message, await self._read_anywhere(message))
        else:
            raise self._not_found(uri, modern)

    async def _read_anywhere(self, message: Message) -> Params:
        """Read a resource that no server lists: the first that has it answers."""
        error: WirespeedError | None = None
        params = _without_token(params_of(message))
        for member in self._visible:
            if member.has("resources"):
                try:
                    return await member.ask("resources/read", params)
                except WirespeedError as exc:
                    error = error or exc
        raise error or RemoteError(codes.METHOD_NOT_FOUND, "no server has resources", None)

    def _not_found(self, uri: str, modern: bool) -> RemoteError:
        revision = REVISIONS[LATEST_MODERN if modern else LATEST_LEGACY]
        return RemoteError(revision.resource_not_found, "Resource not found", {"uri": uri})

    def _pass_by_uri(self, message: Message, owner: Member, backend: Backend, uri: str) -> None:
        """Pass a request on, and note a subscription that the server accepts: it is to know that
        after a loss, too."""
        method = message.method

        def after(answer: Message) -> Message:
            if answer.error is not None:
                return answer
            if method == "resources/unsubscribe":
                owner.uris.discard(uri)
            elif len(owner.uris) < MAX_SUBSCRIPTIONS:
                owner.uris.add(uri)
            return answer

        self._front.pass_request(
            message, backend, after=None if method == "resources/read" else after
        )

    async def _complete(self, message: Message, modern: bool) -> None:
        """Pass a completion on to the server of its prompt or resource."""
        params = params_of(message)
        ref = params.get("ref")
        ref = ref if isinstance(ref, dict) else {}
        name, uri = ref.get("name"), ref.get("uri")
        if isinstance(name, str):
            owner, real = await self._owner_of_name(message, KINDS["prompts/list"], name, modern)
            if owner is None:
                self._unknown(message, KINDS["prompts/list"], name)
                return
            backend = owner.connect() if modern else await self._ready(owner)
            params["ref"] = {**ref, "name": real}
            text = {"jsonrpc": "2.0", "id": 0, "method": message.method, "params": params}
            self._front.pass_request(message, backend, text=msgspec.json.encode(text))
        elif isinstance(uri, str):
            await self._load_owners(modern, message)
            owner = self._owner(uri)
            if owner is None:
                raise self._not_found(uri, modern)
            backend = owner.connect() if modern else await self._ready(owner)
            self._front.pass_request(message, backend)
        else:
            self._refuse(message, codes.INVALID_PARAMS, "params.ref names nothing")

    def _of_the_only_one(self, message: Message) -> Side | None:
        """Pass a request about a task on, where a single server has tasks."""
        found = [
            member
            for member in self._visible
            if member.hello is not None and "tasks" in member.hello["capabilities"]
        ]
        if len(found) == 1 and found[0].backend is not None:
            return found[0].backend
        self._refuse(message, codes.METHOD_NOT_FOUND, f"Method not found: {message.method}")
        return None

    async def _set_level(self, message: Message, params: Params, modern: bool) -> Params:
        """Tell the log level to all servers that have one."""

        async def tell(member: Member) -> None:
            if member.has("logging"):
                await self._ready(member)
                await member.ask("logging/setLevel", params)
                member.level = params.get("level")

        if modern:
            raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: logging/setLevel")
        if params.get("level") not in LOG_LEVELS:
            raise ProtocolError(codes.INVALID_PARAMS, f"level is one of {', '.join(LOG_LEVELS)}")
        ended = await asyncio.gather(*map(tell, self._visible), return_exceptions=True)
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

    def closed(self, backend: Backend) -> None:
        """A server is gone for this client: what it had is shown no more."""
        for member in self.members:
            if member.backend is backend:
                hello = member.hello
                member.lost(f"the server {member.name} is not there")
                if hello is not None and self._greeted:
                    for capability in ("tools", "prompts", "resources"):
                        if capability in hello["capabilities"]:
                            self._tell_change(capability)

    def _tell_change(self, capability: str) -> None:
        if self._front.link is not None and not self._front.draining:
            self._front.session.send_notification(f"notifications/{capability}/list_changed")
            self._front.link.wrote()

    def server_asks(self, backend: Backend, message: Message) -> Side | None:
        """Ask the client."""
        return self._front

    def server_said(self, backend: Backend, message: Message) -> None:
        """Pass a notification on. Lists that have changed are asked for again."""
        method = message.method or ""
        if method.endswith("/list_changed"):
            for member in self.members:
                if member.backend is backend:
                    member.forget(method.split("/")[1])
            for kind in KINDS.values():
                if kind.capability == method.split("/")[1]:
                    for key in [one for one in self._lists if one[0] == kind.method]:
                        del self._lists[key]
        # a reload may have taken the server from the client
        if self._greeted and any(one.backend is backend for one in self._visible):
            backend.pass_notification(message, self._front)

    def said(self, message: Message) -> None:
        """Tell the servers what the client says of itself."""
        if message.method == "notifications/initialized":
            self._initialized = True
        for member in self.members:
            if member.backend is not None and member.hello is not None:
                self._front.pass_notification(message, member.backend)


def _meta(message: Message) -> Params:
    meta: Params = params_of(message).get("_meta", {})
    return meta


def _without_token(params: Params) -> Params:
    """The params of a request that the proxy asks itself."""
    meta = params.get("_meta")
    if isinstance(meta, dict):
        meta = {name: value for name, value in meta.items() if name != "progressToken"}
        return {**params, "_meta": meta}
    return params
