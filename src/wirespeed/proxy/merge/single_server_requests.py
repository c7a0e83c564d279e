"""Requests of a client of a merged endpoint that one server gets: that of the tool, the prompt, the
resource, the task or the extension that they are about."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.merging import KINDS, Kind, owner_of
from wirespeed.peer.http.headers import copy_of
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_LEGACY, LATEST_MODERN, REVISIONS
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.merge.extensions import offered_tasks
from wirespeed.proxy.merge.skill_uris import is_of_skills, settings_of
from wirespeed.proxy.own_requests import params_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.http.head import HttpHead
    from wirespeed.protocol.header_values import ParamField
    from wirespeed.proxy.merge.catalog import MergedCatalog
    from wirespeed.proxy.merge.client import MergedClient, Params
    from wirespeed.proxy.merge.lists import MergedList
    from wirespeed.proxy.merge.member import Member, Offer
    from wirespeed.proxy.upstream import Upstream
    from wirespeed.server.extensions import Extension

# Methods whose `params.name` is edited, and the list that the name is of.
NAMED = {"tools/call": KINDS["tools/list"], "prompts/get": KINDS["prompts/list"]}
# Methods of a resource: the server that has it gets them.
BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
# The lists of what has a URI.
_LISTS = KINDS["resources/list"], KINDS["resources/templates/list"]

Fields: TypeAlias = "tuple[ParamField, ...]"


class MergedRequests:
    """The requests of one client that are passed on, and the choice of their server."""

    def __init__(self, client: MergedClient) -> None:
        self._client = client
        self._telling: set[asyncio.Task[None]] = set()

    # -- by the name of a tool or a prompt -------------------------------------------------------

    def pass_by_name(self, message: Message, kind: Kind, modern: bool) -> None:
        """Pass a request on with the name that the server knows."""
        client = self._client
        shown = message.text("params.name")
        if shown is None:
            client.refuse(message, codes.INVALID_PARAMS, "params.name must be a string")
            return
        found = self._candidates(kind, shown)
        head = None
        if modern and kind.name == "tools" and not client.downstream.is_expanded(message):
            head = client.downstream.head_of(message)
        if len(found) == 1:
            offer, real = found[0]
            member = client.joined(offer.service.name)
            if member is not None:
                fields: Fields | None = ()
                if head is not None:
                    fields = offer.service.mirrored.fields(client.downstream, real)
                if fields is not None and (modern or member.hello is not None):
                    self._pass_named(message, member, shown, real, head, fields)
                    return
        elif not found:
            self._unknown(message, kind, shown)
            return
        head = None if head is None else copy_of(head)
        client.start(message, self._choose(message, kind, shown, modern, head))

    def _candidates(self, kind: Kind, shown: str) -> list[tuple[Offer, str]]:
        found = self._client.merged.owners(kind.name, shown)
        if self._client.merged.access is None and not self._client.downstream.shared:
            return found
        return [one for one in found if self._client.sees(one[0])]

    async def _owner_of_name(
        self, message: Message, kind: Kind, shown: str, modern: bool
    ) -> tuple[Offer | None, str]:
        """Return whose a name is, and what the server calls it. The lists tell if the names of
        several servers may be so."""
        found = self._candidates(kind, shown)
        if len(found) > 1:
            catalog = self._client.catalog_of(message, modern)
            merged = self._client.list_of(kind, catalog)
            if merged is None or shown not in merged.owners:
                merged = await self._client.merge(kind, catalog)
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
            known = mirrored.fields(self._client.downstream, real)
            fields = (
                await mirrored.learned(self._client.downstream, real) if known is None else known
            )
        member = self._client.member(offer)
        if not modern:
            member = await self._client.ready(member)
        self._pass_named(message, member, shown, real, head, fields)

    def _pass_named(
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
            self._client.downstream, message, head, fields
        ):
            return
        upstream = member.connect()
        member.use()
        name = None if real == shown else msgspec.json.encode(real)
        self._client.downstream.pass_request(message, upstream, name)

    def _unknown(self, message: Message, kind: Kind, shown: str) -> None:
        text = f"Unknown {kind.name[:-1]}: {shown[:200]}"
        self._client.refuse(message, codes.INVALID_PARAMS, text)

    # -- by the URI of a resource -----------------------------------------------------------------

    def pass_by_uri(self, message: Message, modern: bool) -> None:
        """Pass a request on to the server that has the resource."""
        uri = message.text("params.uri")
        if uri is None:
            self._client.refuse(message, codes.INVALID_PARAMS, "params.uri must be a string")
            return
        # where clients come one by one, the last list may be of another one's
        catalog = None if self._client.downstream.shared else self._client.catalog
        if catalog is not None and catalog.is_modern is modern and not catalog.is_over:
            offer = self._owner(uri, *(self._client.list_of(one, catalog) for one in _LISTS))
            member = None if offer is None else self._client.joined(offer.service.name)
            if member is not None and (modern or member.hello is not None):
                member.use()
                self._pass_to_owner(message, member, member.connect(), uri)
                return
        self._client.start(message, self.find(message, uri, modern))

    def _owner(self, uri: str, *lists: MergedList | None) -> Offer | None:
        owner = owner_of(uri, *(None if one is None else one.owners for one in lists))
        return next((one for one in self._client.offers if one.service.name == owner), None)

    async def offer_of(self, uri: str, catalog: MergedCatalog) -> Offer | None:
        """Return the server that has a resource, after a look at the lists; None: none lists it."""
        found = [self._client.list_of(one, catalog) for one in _LISTS]
        for n, kind in enumerate(_LISTS):
            found[n] = found[n] or await self._client.merge(kind, catalog)
        return self._owner(uri, *found)

    async def find(self, message: Message, uri: str, modern: bool) -> None:
        """Pass a request on to the server that has a resource."""
        catalog = self._client.catalog_of(message, modern)
        offer = await self.offer_of(uri, catalog)
        if offer is not None:
            self._pass_to_owner(message, *await self._client.joined_to(offer, modern), uri)
        elif message.method == "resources/read":
            self._client.answer(message, await self._read_anywhere(message, uri, catalog))
        else:
            raise self.not_found(uri, modern)

    async def _read_anywhere(self, message: Message, uri: str, catalog: MergedCatalog) -> Params:
        """Read a resource that no server lists: the first that has it answers."""
        error: WirespeedError | None = None
        params = _without_token(params_of(message))
        hellos = await self._client.meet(catalog)
        for offer in self._client.offers:
            hello = hellos.get(offer.service.name)
            if hello is None or "resources" not in hello["capabilities"]:
                continue
            if is_of_skills(uri) and settings_of(hello["capabilities"]) is not None:
                error = error or self.not_found(uri, catalog.is_modern)  # nor its server
                continue
            try:
                member, _ = await self._client.joined_to(offer, catalog.is_modern)
                return await member.ask("resources/read", params)
            except WirespeedError as exc:
                error = error or exc
        raise error or RemoteError(codes.METHOD_NOT_FOUND, "no server has resources", None)

    def not_found(self, uri: str, modern: bool) -> RemoteError:
        """Return the error for a resource that no server has."""
        revision = REVISIONS[LATEST_MODERN if modern else LATEST_LEGACY]
        return RemoteError(revision.resource_not_found, "Resource not found", {"uri": uri})

    def _pass_to_owner(self, message: Message, owner: Member, upstream: Upstream, uri: str) -> None:
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

        self._client.downstream.pass_request(
            message, upstream, after=None if method == "resources/read" else after
        )

    # -- completions, tasks and extensions --------------------------------------------------------

    async def complete(self, message: Message, modern: bool) -> None:
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
            _, upstream = await self._client.joined_to(offer, modern)
            params["ref"] = {**ref, "name": real}
            text = {"jsonrpc": "2.0", "id": 0, "method": message.method, "params": params}
            self._client.downstream.pass_request(message, upstream, text=msgspec.json.encode(text))
        elif isinstance(uri, str):
            offer = await self.offer_of(uri, self._client.catalog_of(message, modern))
            if offer is None:
                raise self.not_found(uri, modern)
            _, upstream = await self._client.joined_to(offer, modern)
            self._client.downstream.pass_request(message, upstream)
        else:
            self._client.refuse(message, codes.INVALID_PARAMS, "params.ref names nothing")

    async def pass_of_task(self, message: Message, modern: bool) -> None:
        """Pass a request about a task on, where a single server has tasks."""
        hellos = await self._client.meet(self._client.catalog_of(message, modern))
        found = [name for name, one in hellos.items() if offered_tasks(one["capabilities"], modern)]
        await self._pass_to(message, found[0] if len(found) == 1 else None, modern)

    async def pass_of_extension(self, message: Message, extension: Extension, modern: bool) -> None:
        """Pass a request of an extension on, if the client was shown the extension."""
        client = self._client
        hellos = await client.meet(client.catalog_of(message, modern))
        server = client.merged.extensions.server_of(extension, hellos, modern)
        await self._pass_to(message, server, modern)

    def tell_extension(self, message: Message, extension: Extension, modern: bool) -> None:
        """Pass a notification on to the server that has an extension, as far as is known now."""
        catalog = self._client.catalog
        known = {
            one.service.name: None if catalog is None else catalog.hello(one.service.name)
            for one in self._client.offers
        }
        hellos = {name: hello for name, hello in known.items() if hello is not None}
        server = self._client.merged.extensions.server_of(extension, hellos, modern)
        for offer in self._client.offers:
            if offer.service.name == server:
                task = asyncio.ensure_future(self._tell(message, offer, modern))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def _tell(self, message: Message, offer: Offer, modern: bool) -> None:
        with contextlib.suppress(WirespeedError):  # the server is not there
            _, upstream = await self._client.joined_to(offer, modern)
            self._client.downstream.pass_notification(message, upstream)

    async def _pass_to(self, message: Message, server: str | None, modern: bool) -> None:
        """Pass a request on to a server by its name. ProtocolError -32601: there is none."""
        for offer in self._client.offers:
            if offer.service.name == server:
                _, upstream = await self._client.joined_to(offer, modern)
                self._client.downstream.pass_request(message, upstream)
                return
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {message.method}")


def _without_token(params: Params) -> Params:
    """Return the params of a request that the proxy asks itself."""
    meta = params.get("_meta")
    if isinstance(meta, dict):
        meta = {name: value for name, value in meta.items() if name != "progressToken"}
        return {**params, "_meta": meta}
    return params
