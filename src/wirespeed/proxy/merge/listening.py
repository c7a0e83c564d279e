"""``subscriptions/listen`` of clients of a merged endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.failures import ServerLost
from wirespeed.proxy.translation.subscriptions import ListenRequests, Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.merge.client import MergedClient
    from wirespeed.proxy.merge.merged import Offer

_LISTS = ("tools", "prompts", "resources")
# Servers come and go, so the endpoint itself tells of changes.
_OFFERED = {name: {"listChanged": True, "subscribe": True} for name in _LISTS}
# Seconds until a server that was lost is subscribed at again.
_DELAY = 1.0


class _Heard(Updates):
    """What one server tells."""

    def __init__(
        self,
        hear: Callable[[Message], None],
        front: Front,
        backend: Backend,
        offered: dict[str, Any],
        meta: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__(front, backend, offered, meta)
        self._hear = hear

    def said(self, message: Message) -> None:
        """Take a change."""
        self._hear(message)


class Subscriptions:
    """The subscriptions of one client of 2026-07-28. Each server that tells of changes has one of
    the proxy."""

    def __init__(self, client: MergedClient, front: Front) -> None:
        self._client = client
        self._front = front
        self._listening = ListenRequests(front, self, _OFFERED)
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
        if always or any(offered.get(one, {}).get("listChanged") is True for one in _LISTS):
            self._heard[name] = self._front.loop.create_future()
            self._following[name] = asyncio.ensure_future(self._follow(offer, offered))

    async def _follow(self, offer: Offer, offered: dict[str, Any]) -> None:
        name = offer.service.name
        uris: list[str] = []
        try:
            while offer in self._client.offers:
                with contextlib.suppress(WirespeedError):
                    member = self._client.member(offer)
                    backend = member.connect()
                    hear = partial(self._client.heard, member)
                    heard = _Heard(hear, self._front, backend, offered, lambda: self._client.meta)
                    heard.start()
                    try:
                        for uri in uris:
                            await heard.subscribe(uri)
                        self._heard[name].set_result(heard)
                        await asyncio.shield(backend.lost)
                    finally:
                        heard.stop()
                        uris = heard.uris
                    self._heard[name] = self._front.loop.create_future()
                await asyncio.sleep(_DELAY)
        finally:
            self._following.pop(name, None)
            self._heard.pop(name).cancel()

    # -- as a `ListenServer` ---------------------------------------------------------------------

    @property
    def link(self) -> object:
        """None: the client has left."""
        return self._front.link

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
