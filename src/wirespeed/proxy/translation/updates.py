"""What a client of a legacy era hears of changes, by one subscription at a server of 2026-07-28."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.eras import params_of
from wirespeed.proxy.failures import ServerLost
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.ongoing import Ongoing
from wirespeed.proxy.translation.results import encode, members_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front

_FLAGS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
# Seconds before a subscription that the server has ended is asked for again, doubled each time.
_DELAY = 0.5
_MAX_DELAY = 30.0


class Updates:
    """One client's subscription. When the client wants other resources, it is exchanged for
    another, and ends when that is acknowledged: no change is lost.

    Args:
        offered: The server's capabilities.
        meta: Returns the envelope of the client.
    """

    def __init__(
        self,
        front: Front,
        backend: Backend,
        offered: dict[str, Any],
        meta: Callable[[], dict[str, Any]],
    ) -> None:
        self._front = front
        self._backend = backend
        self._meta = meta
        config = front.service.config
        self._patience: float | None = None
        if config is not None and config.request_timeout is not None:
            # the server may have to start first
            self._patience = config.start_timeout + config.request_timeout
        self._lists = {
            flag: True
            for kind, flag in _FLAGS.items()
            if isinstance(offered.get(kind), dict) and offered[kind].get("listChanged") is True
        }
        self._uris: dict[str, None] = {}
        self._listen: _Listen | None = None
        self._lock = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None

    @property
    def uris(self) -> list[str]:
        """The resources that it hears of."""
        return list(self._uris)

    def start(self) -> None:
        """Hear of changed lists, if the server tells of any."""
        if self._lists:
            self._again = asyncio.ensure_future(self._renew(0.0))

    def stop(self) -> None:
        """The client or the server has left."""
        if self._again is not None:
            self._again.cancel()
        self._end(self._listen)
        self._listen = None

    async def subscribe(self, uri: str) -> None:
        """Hear of a resource, too. ProtocolError or another WirespeedError: the server does not
        take it."""
        if uri in self._uris:
            return
        if len(self._uris) >= MAX_SUBSCRIPTIONS:
            raise ProtocolError(codes.OVERLOADED, "too many subscriptions")
        self._uris[uri] = None
        taken: set[str] = set()
        try:
            taken = await self._exchange()
        finally:
            if uri not in taken:
                self._uris.pop(uri, None)
        if uri not in taken:
            raise ProtocolError(
                codes.INVALID_PARAMS, "the server does not tell of changes of this resource"
            )

    async def unsubscribe(self, uri: str) -> None:
        """Hear of a resource no longer."""
        if uri in self._uris:
            del self._uris[uri]
            await self._exchange()

    async def _exchange(self) -> set[str]:
        """Subscribe anew. Returns the resources that the server takes."""
        async with self._lock:
            taken: set[str] = set()
            new: _Listen | None = None
            wanted: dict[str, Any] = dict(self._lists)
            if self._uris:
                wanted["resourceSubscriptions"] = list(self._uris)
            if wanted:
                new = _Listen(self, self._front.loop)
                new.send(self._backend, {"notifications": wanted, "_meta": self._meta()})
                try:
                    async with asyncio.timeout(self._patience):
                        taken = await new.taken
                except TimeoutError:
                    self._end(new)
                    raise ProtocolError(
                        codes.REQUEST_TIMEOUT, f"no answer within {self._patience:g} s"
                    ) from None
                except BaseException:  # the client has cancelled its request, too
                    self._end(new)
                    raise
            self._end(self._listen)
            self._listen = new
            return taken

    def _end(self, listen: _Listen | None) -> None:
        if listen is not None and self._backend.awaits(listen.id):
            self._backend.session.forget(listen.id)
            self._backend.cancel(listen.id, "other subscriptions follow")

    def ended(self, listen: _Listen, *, at_once: bool) -> None:
        """A subscription has ended: ask for it again. ``at_once``: The server is lost. The request
        waits for the next process, which gets it before all others."""
        if listen is self._listen:
            self._listen = None
            self._again = asyncio.ensure_future(self._renew(0.0 if at_once else _DELAY))

    async def _renew(self, delay: float) -> None:
        while self._backend.link is not None:
            await asyncio.sleep(delay)
            try:
                await self._exchange()
                return
            except WirespeedError:
                delay = min(max(2 * delay, _DELAY), _MAX_DELAY)

    def said(self, message: Message) -> None:
        """Show the client a change, as its revision has it."""
        params = members_of(message.params)
        meta = members_of(params.pop("_meta", None))
        meta.pop(META_SUBSCRIPTION_ID, None)
        if meta:
            params["_meta"] = msgspec.Raw(encode(meta))
        self._front.say(message.method or "", encode(params))


class _Listen(Ongoing):
    """A subscription at the server.

    Attributes:
        taken: The resources that the server has acknowledged.
    """

    def __init__(self, updates: Updates, loop: asyncio.AbstractEventLoop) -> None:
        self.taken: asyncio.Future[set[str]] = loop.create_future()
        self.id = 0
        self._updates = updates

    def send(self, backend: Backend, params: dict[str, Any]) -> None:
        """Ask for it."""
        if backend.link is None:
            raise ServerLost("the server is not there")
        self.id = backend.session.send_request("subscriptions/listen", encode(params), token=self)
        backend.link.wrote()

    def notified(self, message: Message) -> None:
        """Take its first notification, or a change."""
        if message.method != "notifications/subscriptions/acknowledged":
            if message.method != "notifications/cancelled":  # the answer follows
                self._updates.said(message)
        elif not self.taken.done():
            honoured = params_of(message).get("notifications")
            uris = honoured.get("resourceSubscriptions") if isinstance(honoured, dict) else None
            uris = uris if isinstance(uris, list) else []
            self.taken.set_result({uri for uri in uris if isinstance(uri, str)})

    def answered(self, message: Message | None) -> None:
        """Take its end."""
        if self.taken.done():
            refusal = None if message is None or message.error is None else message.error
            is_lost = refusal is not None and remote_error(refusal).code == codes.SERVER_LOST
            self._updates.ended(self, at_once=is_lost)
        elif message is not None and message.error is not None:
            error = remote_error(message.error)
            self.taken.set_exception(ProtocolError(error.code, error.message))
        else:
            self.taken.set_exception(ServerLost("the server has ended the subscription"))
