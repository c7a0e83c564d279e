"""Requests of a client of a merged endpoint that name a resource: its server gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_LEGACY, LATEST_MODERN, REVISIONS
from wirespeed.proxy.eras import params_of
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.merge.lists import KINDS
from wirespeed.proxy.merge.owners import owner_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.merge.catalog import Catalog
    from wirespeed.proxy.merge.client import MergedClient, Params
    from wirespeed.proxy.merge.lists import Merged as MergedList
    from wirespeed.proxy.merge.member import Member
    from wirespeed.proxy.merge.merged import Offer

_LISTS = KINDS["resources/list"], KINDS["resources/templates/list"]


class Resources:
    """See the module."""

    def __init__(self, client: MergedClient) -> None:
        self._client = client

    def pass_on(self, message: Message, modern: bool) -> None:
        """Pass a request on to the server that has the resource."""
        uri = message.text("params.uri")
        if uri is None:
            self._client.refuse(message, codes.INVALID_PARAMS, "params.uri must be a string")
            return
        # where clients come one by one, the last list may be of another one's
        catalog = None if self._client.front.shared else self._client.catalog
        if catalog is not None and catalog.is_modern is modern and not catalog.is_over:
            offer = self._owner(uri, *(self._client.list_of(one, catalog) for one in _LISTS))
            member = None if offer is None else self._client.joined(offer)
            if member is not None and (modern or member.hello is not None):
                member.is_used = True
                self._pass_by_uri(message, member, member.connect(), uri)
                return
        self._client.start(message, self._find(message, uri, modern))

    def _owner(self, uri: str, *lists: MergedList | None) -> Offer | None:
        owner = owner_of(uri, *lists)
        return next((one for one in self._client.offers if one.service.name == owner), None)

    async def offer_of(self, uri: str, catalog: Catalog) -> Offer | None:
        """Return the server that has a resource, after a look at the lists; None: none lists it."""
        found = [self._client.list_of(one, catalog) for one in _LISTS]
        for n, kind in enumerate(_LISTS):
            found[n] = found[n] or await self._client.merge(kind, catalog)
        return self._owner(uri, *found)

    async def _find(self, message: Message, uri: str, modern: bool) -> None:
        """Pass a request on to the server that has a resource."""
        catalog = self._client.catalog_of(message, modern)
        offer = await self.offer_of(uri, catalog)
        if offer is not None:
            self._pass_by_uri(message, *await self._client.joined_to(offer, modern), uri)
        elif message.method == "resources/read":
            self._client.answer(message, await self._read_anywhere(message, catalog))
        else:
            raise self.not_found(uri, modern)

    async def _read_anywhere(self, message: Message, catalog: Catalog) -> Params:
        """Read a resource that no server lists: the first that has it answers."""
        error: WirespeedError | None = None
        params = _without_token(params_of(message))
        hellos = await self._client.meet(catalog)
        for offer in self._client.offers:
            hello = hellos.get(offer.service.name)
            if hello is None or "resources" not in hello["capabilities"]:
                continue
            try:
                member, _ = await self._client.joined_to(offer, catalog.is_modern)
                return await member.ask("resources/read", params)
            except WirespeedError as exc:
                error = error or exc
        raise error or RemoteError(codes.METHOD_NOT_FOUND, "no server has resources", None)

    def not_found(self, uri: str, modern: bool) -> RemoteError:
        """The error for a resource that no server has."""
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

        self._client.front.pass_request(
            message, backend, after=None if method == "resources/read" else after
        )


def _without_token(params: Params) -> Params:
    """The params of a request that the proxy asks itself."""
    meta = params.get("_meta")
    if isinstance(meta, dict):
        meta = {name: value for name, value in meta.items() if name != "progressToken"}
        return {**params, "_meta": meta}
    return params
