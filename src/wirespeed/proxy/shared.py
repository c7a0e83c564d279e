"""One server for all clients: what each of them may see of it.

A server of a legacy era knows one client, the proxy. It was initialized once, and each client gets
its answer, cut to the client's revision. It has one log level, the most verbose that a client asked
for, and one set of subscriptions. What it says without naming a request cannot be attributed to a
client, unless only one client is there, and no client that left had a request unanswered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import RemoteError, VersionMismatch
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LEGACY_VERSIONS,
    LOG_LEVELS,
)
from wirespeed.proxy.assignment import modern_version
from wirespeed.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.side import Side

logger = logging.getLogger("wirespeed.proxy")

# The first revision that knows a capability of servers.
_SINCE = {"completions": "2025-03-26", "tasks": "2025-11-25"}
_LIST_CHANGES = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
)
# Seconds for which a request of a client that has left counts as unfinished: servers need not
# answer a request that was cancelled.
_ORPHANED = 60.0
# Resources that one client may be subscribed to.
MAX_SUBSCRIPTIONS = 1000


class Shared:
    """One server of a legacy era, with all clients on its one connection."""

    def __init__(self, config: BackendConfig, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._fronts: dict[Front, _Client] = {}
        self._backend: Backend | None = None  # None while there is none, or it is not ready
        self._refusal: tuple[int, str] | None = None
        self._upstream: Upstream | None = None
        self._task: asyncio.Task[None] | None = None
        self._hello: dict[str, Any] = {}
        self._level: str | None = None
        self._orphaned_until = 0.0
        self.requests: dict[str, Callable[[Any, Message], None]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        # Messages of the server that were dropped, by reason.
        self.dropped = {"not attributed": 0, "no subscriber": 0, "below the level": 0}

    # -- the server ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the server. TransportError or another WirespeedError: it cannot be used yet, and is
        started again until `stop`."""
        self._upstream = Upstream(self._config, self, self._limits, restarts=True)
        self._task = asyncio.ensure_future(self._upstream.run())
        await asyncio.shield(self._upstream.ready)

    async def stop(self) -> None:
        """End the server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def opened(self, backend: Backend) -> None:
        """Shake hands, and bring the server to the state that the clients know."""
        backend.session.batches = True  # a server of 2025-03-26 may answer in a batch
        async with asyncio.timeout(self._config.start_timeout):
            self._hello = await self._shake_hands(backend)
            if self._level is not None:
                await _ignored(backend.ask("logging/setLevel", {"level": self._level}))
            for uri in {uri for client in self._fronts.values() for uri in client.uris}:
                await _ignored(backend.ask("resources/subscribe", {"uri": uri}))
        self._backend = backend
        self._orphaned_until = 0.0
        for front in list(self._fronts):
            self._attach(front)

    async def _shake_hands(self, backend: Backend) -> dict[str, Any]:
        """Initialize, without a capability: a question could not be attributed to a client."""
        from wirespeed import __version__

        answer = await backend.ask(
            "initialize",
            {
                "protocolVersion": LATEST_LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "wirespeed-proxy", "version": __version__},
            },
        )
        hello: dict[str, Any] = answer if isinstance(answer, dict) else {}
        version = hello.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            raise VersionMismatch(f"the server wants protocol version {version!r}", [])
        backend.session.batches = version == "2025-03-26"
        backend.tell("notifications/initialized")
        return hello

    def closed(self, backend: Backend) -> None:
        """The server is gone: requests wait for the next one."""
        if self._backend is backend:
            self._backend = None
            for front in list(self._fronts):
                self._attach(front)

    def down(self, reason: str | None) -> None:
        """Refuse requests while the server cannot be started."""
        refusal = None if reason is None else (codes.SERVER_LOST, f"the server is down: {reason}")
        if refusal != self._refusal:
            self._refusal = refusal
            for front in list(self._fronts):
                self._attach(front)

    def server_asks(self, backend: Backend, message: Message) -> None:
        """Answer a ping, and refuse all else."""
        if message.method == "ping":
            backend.session.send_result(message, b"{}")
            assert backend.link is not None
            backend.link.wrote()
        else:
            backend.refuse(
                message, "several clients share this server, so none of them can be asked"
            )

    def server_said(self, backend: Backend, message: Message) -> None:
        """Show a notification to those that it is for."""
        method = message.method
        if method in _LIST_CHANGES:
            for front, client in list(self._fronts.items()):
                if client.version is not None:
                    backend.pass_notification(message, front)
        elif method == "notifications/resources/updated":
            self._updated(backend, message)
        elif len(self._fronts) != 1 or backend.loop.time() < self._orphaned_until:
            self.dropped["not attributed"] += 1
        else:
            ((front, client),) = self._fronts.items()
            if method == "notifications/message" and not client.wants(message):
                self.dropped["below the level"] += 1
            elif client.version is not None:
                backend.pass_notification(message, front)

    def _updated(self, backend: Backend, message: Message) -> None:
        uri = _member(message, "uri")
        found = [
            front
            for front, client in self._fronts.items()
            if any(uri == known or uri.startswith(f"{known}/") for known in client.uris)
        ]
        self.dropped["no subscriber"] += not found
        for front in found:
            backend.pass_notification(message, front)

    # -- clients ---------------------------------------------------------------------------------

    def joined(self, front: Front) -> None:
        """A client has connected."""
        self._fronts[front] = _Client()
        front.requests = self.requests
        self._attach(front)

    def _attach(self, front: Front) -> None:
        """Let a client go on, wait, or be refused, as the server is there."""
        front.across = self._backend
        if not front.draining:
            front.session.refusal = self._refusal
        if self._backend is None and self._refusal is None:
            front.session.pauses_requests = True
        else:
            front.release()

    def left(self, front: Front) -> None:
        """A client has left."""
        client = self._fronts.pop(front)
        if front.n_abandoned:
            self._orphaned_until = front.loop.time() + _ORPHANED
        if self._backend is None:
            return
        for uri in client.uris:
            self._release_uri(uri)
        self._choose_level()

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the server, or None if the request was answered."""
        if not self._admits(front, message):
            return None
        if front.across is None:
            front.unreachable(message)
        return front.across

    def _admits(self, front: Front, message: Message) -> bool:
        """Return whether a request may be passed on. If not, it was answered."""
        params = _params(message)
        modern = modern_version(params)
        if modern is None and self._fronts[front].version is not None:
            return True
        if modern is not None:
            front.session.send_error(
                message,
                codes.UNSUPPORTED_PROTOCOL_VERSION,
                "the server speaks legacy revisions only",
                {"supported": self._versions(), "requested": modern},
            )
        else:
            front.session.send_error(
                message, codes.INVALID_PARAMS, "the connection is not initialized"
            )
        return False

    def client_said(self, front: Front, message: Message) -> None:
        """What a client says of itself is not the server's business: it knows the proxy."""

    def _versions(self) -> list[str]:
        newest = LEGACY_VERSIONS.index(self._hello["protocolVersion"])
        return list(LEGACY_VERSIONS[: newest + 1])

    # -- requests that the proxy answers ---------------------------------------------------------

    def _initialize(self, front: Front, message: Message) -> None:
        """Answer with what the server said, cut to the client's revision."""
        params = _params(message)
        if not isinstance(params.get("protocolVersion"), str):
            front.session.send_error(
                message, codes.INVALID_PARAMS, "protocolVersion must be a string"
            )
            return
        client = self._fronts[front]
        if client.version is not None:
            front.session.send_error(
                message, codes.INVALID_REQUEST, "the connection is initialized already"
            )
            return
        versions = self._versions()
        wanted = params["protocolVersion"]
        version = wanted if wanted in versions else versions[-1]
        capabilities = {
            name: value
            for name, value in self._hello.get("capabilities", {}).items()
            if version >= _SINCE.get(name, version)
        }
        hello = {**self._hello, "protocolVersion": version, "capabilities": capabilities}
        client.version = version
        front.admits_legacy = True
        front.speak(version)
        front.session.send_result(message, msgspec.json.encode(hello))

    def _ping(self, front: Front, message: Message) -> None:
        front.session.send_result(message, b"{}")

    def _set_level(self, front: Front, message: Message) -> None:
        """Keep a client's level. The server has the most verbose one."""
        level = _params(message).get("level")
        if not self._admits(front, message):
            return
        if level not in LOG_LEVELS or "logging" not in self._hello.get("capabilities", {}):
            front.pass_request(message, front.across)  # the server says what is wrong
            return
        self._fronts[front].level = level
        self._choose_level()
        front.session.send_result(message, b"{}")

    def _choose_level(self) -> None:
        levels = [client.level for client in self._fronts.values() if client.level is not None]
        level = min(levels, key=LOG_LEVELS.index, default=None)
        if level is not None and level != self._level and self._backend is not None:
            self._level = level
            _forget(self._backend.ask("logging/setLevel", {"level": level}))

    def _subscribe(self, front: Front, message: Message) -> None:
        """Pass the request on: the server decides about each client's."""
        uri = _params(message).get("uri")
        if not self._admits(front, message):
            return
        client = self._fronts[front]
        if isinstance(uri, str):
            if uri not in client.uris and len(client.uris) >= MAX_SUBSCRIPTIONS:
                front.session.send_error(message, codes.OVERLOADED, "too many subscriptions")
                return
            client.uris.add(uri)
        front.pass_request(message, front.across)

    def _unsubscribe(self, front: Front, message: Message) -> None:
        """End a client's subscription, and the server's with the last one."""
        uri = _params(message).get("uri")
        if not self._admits(front, message):
            return
        self._fronts[front].uris.discard(uri)
        if any(uri in client.uris for client in self._fronts.values()):
            front.session.send_result(message, b"{}")
        else:
            front.pass_request(message, front.across)

    def _release_uri(self, uri: str) -> None:
        if self._backend is not None and not any(
            uri in client.uris for client in self._fronts.values()
        ):
            _forget(self._backend.ask("resources/unsubscribe", {"uri": uri}))


class _Client:
    """What the proxy knows of a client: its revision, log level and subscriptions."""

    __slots__ = ("level", "uris", "version")

    def __init__(self) -> None:
        self.version: str | None = None
        self.level: str | None = None
        self.uris: set[str] = set()

    def wants(self, message: Message) -> bool:
        """Whether a log message is as severe as the client asked for."""
        level = _member(message, "level")
        if self.level is None or level not in LOG_LEVELS:
            return True
        return LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.level)


def _params(message: Message) -> dict[str, Any]:
    return {} if message.params is None else msgspec.json.decode(message.params)


def _member(message: Message, name: str) -> str:
    value = _params(message).get(name)
    return value if isinstance(value, str) else ""


async def _ignored(answer: asyncio.Future[Any]) -> None:
    """Wait for an answer. An error of the server is logged."""
    try:
        await answer
    except RemoteError as exc:
        logger.warning("the server refused to restore its state: %s", exc)


def _forget(answer: asyncio.Future[Any]) -> None:
    """Do not wait for an answer."""
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
