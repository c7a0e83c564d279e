"""Subscriptions of a client of one era at a server of the other.

A client of 2026-07-28 sends ``subscriptions/listen``: a legacy server gets ``resources/subscribe``.
For a legacy client a server of 2026-07-28 gets one ``subscriptions/listen``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID, offers
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.own_requests import ProxyRequest, params_of
from wirespeed.proxy.translation.results import encode, members_of
from wirespeed.proxy.upstream import ServerLost, remote_error
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.upstream import Upstream

# What a client may listen to, and the capability with ``listChanged``.
_CHANGES = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
# The most subscriptions of one client.
MAX_LISTENS = 64
# Before a subscription that the server has ended is asked for again.
_BACKOFF = Backoff(0.5, 30.0)


# -- a client of 2026-07-28 ------------------------------------------------------------------------


class _ClientListen(ProxyRequest):
    """A ``subscriptions/listen`` of a client. It is the token of its request."""

    def __init__(self, listening: ListenRequests, message: Message) -> None:
        self._listening = listening
        self.ref = message.ref
        assert message.raw_id is not None
        self.id = Raw(bytes(message.raw_id))
        self.kinds: set[str] = set()
        self.uris: list[str] = []
        self.acknowledged = False

    def notified(self, message: Message) -> None:
        """The client has cancelled it."""
        self._listening.cancelled(self)

    def wants(self, method: str, uri: str) -> bool:
        """Whether a notification of the server belongs to it."""
        if not self.acknowledged:
            return False
        if method == "notifications/resources/updated":
            return any(uri == one or uri.startswith(f"{one}/") for one in self.uris)
        return method.split("/")[1] in self.kinds


class ListenServer(Protocol):
    """The server that is asked for the changes of resources, or several in its place."""

    @property
    def link(self) -> object:
        """None: it is gone."""

    def ask(self, method: str, params: dict[str, Any]) -> asyncio.Future[Any]:
        """Send a request of the proxy."""


class ListenRequests:
    """The ``subscriptions/listen`` requests of one client.

    Args:
        offered: The server's capabilities.
    """

    def __init__(
        self, downstream: Downstream, upstream: ListenServer, offered: dict[str, Any]
    ) -> None:
        self._downstream = downstream
        self._upstream = upstream
        self._offered = offered
        self._listens: dict[int, _ClientListen] = {}
        self._uris: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, message: Message) -> None:
        """Subscribe. ProtocolError: the request is wrong, or one too many."""
        wanted = params_of(message).get("notifications")
        if not isinstance(wanted, dict):
            raise ProtocolError(codes.INVALID_PARAMS, "notifications must be an object")
        uris = wanted.get("resourceSubscriptions", [])
        if not isinstance(uris, list) or not all(isinstance(one, str) for one in uris):
            raise ProtocolError(codes.INVALID_PARAMS, "resourceSubscriptions must be strings")
        if len(self._listens) >= MAX_LISTENS or len(uris) > MAX_SUBSCRIPTIONS:
            raise ProtocolError(codes.OVERLOADED, "too many subscriptions")
        listen = _ClientListen(self, message)
        for flag, capability in _CHANGES.items():
            if wanted.get(flag) is True and offers(self._offered, capability, "listChanged"):
                listen.kinds.add(capability)
        self._listens[listen.ref] = listen
        self._downstream.session.set_token(message, listen)
        if not offers(self._offered, "resources", "subscribe"):
            uris = []
        task = asyncio.ensure_future(self._begin(listen, list(dict.fromkeys(uris))))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, listen: _ClientListen, uris: list[str]) -> None:
        """Subscribe at the server, then acknowledge what it took."""
        for uri in uris:
            if uri not in self._uris:
                try:
                    await self._upstream.ask("resources/subscribe", {"uri": uri})
                except (RemoteError, WirespeedError):
                    continue
            if listen.ref not in self._listens:
                self._release([uri])
                return
            listen.uris.append(uri)
            self._uris[uri] += 1
        honoured: dict[str, Any] = {
            flag: True for flag, kind in _CHANGES.items() if kind in listen.kinds
        }
        if listen.uris:
            honoured["resourceSubscriptions"] = listen.uris
        params = {"notifications": honoured, "_meta": {META_SUBSCRIPTION_ID: listen.id}}
        listen.acknowledged = True
        self._downstream.say("notifications/subscriptions/acknowledged", encode(params), listen.ref)

    def said(self, message: Message) -> None:
        """Pass a notification on to those that want it."""
        method = message.method or ""
        params = members_of(message.params)
        uri = str(msgspec.json.decode(params.get("uri", b'""')))
        meta = members_of(params.get("_meta"))
        for one in [one for one in self._listens.values() if one.wants(method, uri)]:
            meta[META_SUBSCRIPTION_ID] = one.id
            self._downstream.say(method, encode({**params, "_meta": meta}), one.ref)

    def cancelled(self, listen: _ClientListen) -> None:
        """The client has cancelled a subscription."""
        if self._listens.pop(listen.ref, None) is not None:
            self._drop(listen)
            self._downstream.session.cancelled_done()

    def _drop(self, listen: _ClientListen) -> None:
        self._uris.subtract(listen.uris)
        self._release(listen.uris)

    def _release(self, uris: list[str]) -> None:
        for uri in uris:
            if self._uris[uri] <= 0:
                del self._uris[uri]
                if self._upstream.link is not None:
                    answer = self._upstream.ask("resources/unsubscribe", {"uri": uri})
                    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def end(self) -> None:
        """Answer all, because the server or the client is to leave."""
        for task in self._tasks:
            task.cancel()
        listens, self._listens = self._listens, {}
        for listen in listens.values():
            self._drop(listen)
            if self._downstream.link is not None:
                meta = {META_SUBSCRIPTION_ID: listen.id}
                self._downstream.session.send_result(
                    listen.ref, encode({"resultType": "complete", "_meta": meta})
                )
                self._downstream.link.wrote()


# -- a legacy client -------------------------------------------------------------------------------


class Updates:
    """The changes that one client hears of, by one subscription. When the client wants other
    resources, another subscription takes its place when that is acknowledged: no change is lost.

    Args:
        offered: The server's capabilities.
        meta: Returns the envelope of the client.
    """

    def __init__(
        self,
        downstream: Downstream,
        upstream: Upstream,
        offered: dict[str, Any],
        meta: Callable[[], dict[str, Any]],
    ) -> None:
        self._downstream = downstream
        self._upstream = upstream
        self._meta = meta
        config = downstream.service.config
        self._patience: float | None = None
        if config is not None and config.request_timeout is not None:
            # the server may have to start first
            self._patience = config.start_timeout + config.request_timeout
        self._lists = {
            flag: True for flag, kind in _CHANGES.items() if offers(offered, kind, "listChanged")
        }
        self._uris: dict[str, None] = {}
        self._listen: _ServerListen | None = None
        self._lock = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None

    @property
    def uris(self) -> list[str]:
        """The resources that it hears of."""
        return list(self._uris)

    def start(self) -> None:
        """Hear of changed lists, if the server tells of any."""
        if self._lists:
            self._again = asyncio.ensure_future(self._renew(-1))

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
            new: _ServerListen | None = None
            wanted: dict[str, Any] = dict(self._lists)
            if self._uris:
                wanted["resourceSubscriptions"] = list(self._uris)
            if wanted:
                new = _ServerListen(self, self._downstream.loop)
                new.send(self._upstream, {"notifications": wanted, "_meta": self._meta()})
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

    def _end(self, listen: _ServerListen | None) -> None:
        if listen is not None and self._upstream.awaits(listen.id):
            self._upstream.session.forget(listen.id)
            self._upstream.cancel(listen.id, "other subscriptions follow")

    def ended(self, listen: _ServerListen, *, at_once: bool) -> None:
        """A subscription has ended: ask for it again. ``at_once``: The server is lost. The request
        waits for the next process, which gets it before all others."""
        if listen is self._listen:
            self._listen = None
            self._again = asyncio.ensure_future(self._renew(-1 if at_once else 0))

    async def _renew(self, n: int) -> None:
        """Ask until there is an answer. ``n``: The pauses there were; -1: ask at once."""
        while self._upstream.link is not None:
            await asyncio.sleep(_BACKOFF.pause(n))
            try:
                await self._exchange()
                return
            except WirespeedError:
                n += 1

    def said(self, message: Message) -> None:
        """Show the client a change, as its revision has it."""
        params = members_of(message.params)
        meta = members_of(params.pop("_meta", None))
        meta.pop(META_SUBSCRIPTION_ID, None)
        if meta:
            params["_meta"] = msgspec.Raw(encode(meta))
        self._downstream.say(message.method or "", encode(params))


class _ServerListen(ProxyRequest):
    """A ``subscriptions/listen`` at a server.

    Attributes:
        taken: The resources that the server has acknowledged.
    """

    def __init__(self, updates: Updates, loop: asyncio.AbstractEventLoop) -> None:
        self.taken: asyncio.Future[set[str]] = loop.create_future()
        self.id = 0
        self._updates = updates

    def send(self, upstream: Upstream, params: dict[str, Any]) -> None:
        """Ask for it."""
        if upstream.link is None:
            raise ServerLost("the server is not there")
        self.id = upstream.session.send_request("subscriptions/listen", encode(params), token=self)
        upstream.link.wrote()

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
