"""``subscriptions/listen`` of a client of 2026-07-28, whose server is of a legacy era."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy.eras import params_of
from wirespeed.proxy.isolation.legacy import MAX_SUBSCRIPTIONS
from wirespeed.proxy.ongoing import Ongoing
from wirespeed.proxy.translation.results import encode, members_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front

# What a client may listen to, and the capability with ``listChanged``.
_CHANGES = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
# The most subscriptions of one client.
MAX_LISTENS = 64


class Listen(Ongoing):
    """One subscription. It is the token of its request."""

    def __init__(self, listening: Listening, message: Message) -> None:
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


class Listening:
    """The subscriptions of one client.

    Args:
        offered: The server's capabilities.
    """

    def __init__(self, front: Front, backend: Backend, offered: dict[str, Any]) -> None:
        self._front = front
        self._backend = backend
        self._offered = offered
        self._listens: dict[int, Listen] = {}
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
        listen = Listen(self, message)
        for flag, capability in _CHANGES.items():
            if wanted.get(flag) is True and self._offers(capability, "listChanged"):
                listen.kinds.add(capability)
        self._listens[listen.ref] = listen
        self._front.session.set_token(message, listen)
        if not self._offers("resources", "subscribe"):
            uris = []
        task = asyncio.ensure_future(self._begin(listen, list(dict.fromkeys(uris))))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _offers(self, capability: str, flag: str) -> bool:
        settings = self._offered.get(capability)
        return isinstance(settings, dict) and settings.get(flag) is True

    async def _begin(self, listen: Listen, uris: list[str]) -> None:
        """Subscribe at the server, then acknowledge what it took."""
        for uri in uris:
            if uri not in self._uris:
                try:
                    await self._backend.ask("resources/subscribe", {"uri": uri})
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
        self._front.say("notifications/subscriptions/acknowledged", encode(params), listen.ref)

    def said(self, method: str, message: Message) -> bool:
        """Pass a notification on to those that want it. Returns whether there are any."""
        params = members_of(message.params)
        uri = str(msgspec.json.decode(params.get("uri", b'""')))
        meta = members_of(params.get("_meta"))
        found = [one for one in self._listens.values() if one.wants(method, uri)]
        for one in found:
            meta[META_SUBSCRIPTION_ID] = one.id
            self._front.say(method, encode({**params, "_meta": meta}), one.ref)
        return bool(found)

    def cancelled(self, listen: Listen) -> None:
        """The client has cancelled a subscription."""
        if self._listens.pop(listen.ref, None) is not None:
            self._drop(listen)
            self._front.session.cancelled_done()

    def _drop(self, listen: Listen) -> None:
        self._uris.subtract(listen.uris)
        self._release(listen.uris)

    def _release(self, uris: list[str]) -> None:
        for uri in uris:
            if self._uris[uri] <= 0:
                del self._uris[uri]
                if self._backend.link is not None:
                    answer = self._backend.ask("resources/unsubscribe", {"uri": uri})
                    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def end(self) -> None:
        """Answer all, because the server or the client is to leave."""
        for task in self._tasks:
            task.cancel()
        listens, self._listens = self._listens, {}
        for listen in listens.values():
            self._drop(listen)
            if self._front.link is not None:
                meta = {META_SUBSCRIPTION_ID: listen.id}
                self._front.session.send_result(
                    listen.ref, encode({"resultType": "complete", "_meta": meta})
                )
                self._front.link.wrote()
