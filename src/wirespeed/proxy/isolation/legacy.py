"""One server for all clients: what each of them may see of it.

A server of a legacy era knows one client, the proxy. It was initialized once, and each client gets
its answer, cut to the client's revision. It has one log level, the most verbose that a client asked
for, and one set of subscriptions. What it says without naming a request cannot be attributed to a
client, unless it belongs to a task, or only one client is there, and there was none other lately.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import RemoteError, VersionMismatch
from wirespeed.protocol import codes
from wirespeed.protocol.capabilities import CAPABILITY_OF, understood
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LEGACY_VERSIONS,
    LOG_LEVELS,
)
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.isolation.handshake import initialize, learn_tools
from wirespeed.proxy.isolation.instance import Instance, guarded, pong, quiet
from wirespeed.proxy.isolation.task_makers import TaskMakers
from wirespeed.proxy.requests import modern_version, params_of, unsupported
from wirespeed.proxy.supervision.supervisor import Unsuitable
from wirespeed.tasks.views import not_found

if TYPE_CHECKING:
    from collections.abc import Collection

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.binding import Functions
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream

# The first revision that knows a capability of servers.
_SINCE = {"completions": "2025-03-26", "tasks": "2025-11-25"}
_LIST_CHANGES = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
)
# What a server that may ask is told of its client.
QUESTIONS: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
# Resources that one client may be subscribed to.
MAX_SUBSCRIPTIONS = 1000
_NO_URIS: dict[str, int | None] = {}


def asked_of(config: BackendConfig) -> dict[str, Any]:
    """The capabilities of the client that a shared server knows."""
    return QUESTIONS if config.ask else {}


class Legacy(Instance):
    """One server of a legacy era, with all clients on its one connection."""

    def __init__(self, config: BackendConfig, limits: Limits, pool: Pool) -> None:
        super().__init__(config, limits, is_one_of_several=not pool.has_one)
        self._pool = pool
        self._fronts: dict[Downstream, _Client] = {}
        self._hello: dict[str, Any] = {}
        self._makers = TaskMakers()
        self._level: str | None = None
        self.requests: Functions = {
            "initialize": self._initialize,
            "ping": pong,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "tasks/get": self._ask_of_task,
            "tasks/result": self._ask_of_task,
            "tasks/cancel": self._ask_of_task,
            "tasks/list": self._list_tasks,
        }

    @property
    def clients(self) -> Collection[Downstream]:
        """Those that have sent ``initialize``."""
        return self._fronts

    @property
    def n_clients(self) -> int:
        """The number of its clients."""
        return len(self._fronts)

    # -- the server ------------------------------------------------------------------------------

    async def opened(self, backend: Upstream) -> None:
        """Shake hands, and bring the server to the state that the clients know."""
        limit, began = self.config.start_timeout, backend.began  # it may have been probed before
        async with asyncio.timeout(max(began + limit - backend.loop.time(), limit / 2)):
            try:
                self._hello = await initialize(backend, asked_of(self.config))
            except (RemoteError, VersionMismatch) as exc:
                if self._pool.is_modern:
                    self._pool.without_legacy()
                    raise Unsuitable(str(exc)) from exc
                raise
            await learn_tools(backend, self.retries, self.config.start_timeout)
        if self._level is not None:
            self._tell(backend, "logging/setLevel", level=self._level)
        for uri in {uri for client in self._fronts.values() for uri in client.uris}:
            self._tell(backend, "resources/subscribe", uri=uri)
        self.use(backend)
        self.attach_all()

    def server_asks(self, backend: Upstream, message: Message) -> Side | None:
        """Return the client that a question is for, where that is certain."""
        capability = CAPABILITY_OF.get(message.method or "")
        if not self.config.ask or capability is None:
            return super().server_asks(backend, message)
        front = self._addressee(backend, message)
        if front is None:
            self.drop(backend, message)
            backend.refuse(message, "it is not certain which client this question is about")
            return None
        if capability not in self._fronts[front].capabilities:
            self.dropped["not supported"] += 1
            backend.refuse(message, f"the client does not support {capability}")
            return None
        return front

    def client_said(self, front: Downstream, message: Message) -> None:
        """Tell a server that may ask for roots that they have changed."""
        if (
            self.config.ask
            and self.backend is not None
            and message.method == "notifications/roots/list_changed"
            and self.only() is front
        ):
            front.pass_notification(message, self.backend)

    def server_said(self, backend: Upstream, message: Message) -> None:
        """Show a notification to those that it is for."""
        method = message.method
        if backend.retired:
            self.drop(backend, message)
        elif method in _LIST_CHANGES:
            for front, client in list(self._fronts.items()):
                if client.version is not None:
                    backend.pass_notification(message, front)
        elif method == "notifications/resources/updated":
            self._updated(backend, message)
        elif (whose := self._addressee(backend, message)) is None:
            self.drop(backend, message)
        elif method == "notifications/message" and not self._fronts[whose].wants(message):
            self.dropped["below the level"] += 1
        elif self._fronts[whose].version is not None:
            backend.pass_on(message, whose)

    def _addressee(self, backend: Upstream, message: Message) -> Downstream | None:
        """The client that a message is for, where that is certain: it has made the task that the
        message is about, the response to its request has brought the message, or it can only be
        this one."""
        is_of_task, front = self._makers.of_task(message)
        if is_of_task:
            return front
        if (route := backend.stream()) is not None:
            return next((one for one in self._fronts if one is route.asker), None)
        return None if backend.retired or backend.is_late() else self.only()

    def _updated(self, backend: Upstream, message: Message) -> None:
        uri = _member(message, "uri")
        found = [front for front, client in self._fronts.items() if client.hears_of(uri)]
        self.dropped["no subscriber"] += not found
        for front in found:
            backend.pass_notification(message, front)

    # -- clients ---------------------------------------------------------------------------------

    def greet(self, front: Downstream, message: Message) -> None:
        """A client has sent ``initialize``."""
        client = self._fronts[front] = _Client()
        self.met(front)
        if self.backend is None:
            client.greeting = message
        else:
            self._initialize(front, message)
        self._attach(front)

    def give_back(self) -> list[tuple[Downstream, Message]]:
        """The server is not of a legacy era: return the clients that wait, and what they sent."""
        found, self._fronts = self._fronts, {}
        for front in found:
            front.bind(front.binding.translated(None))
            front.release()
        return [(front, one.greeting) for front, one in found.items() if one.greeting is not None]

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        for front in list(self._fronts):
            self._attach(front)

    def _attach(self, front: Downstream) -> None:
        front.bind(
            Binding.to_legacy(
                self._pool,
                front.service.flow,
                self.requests,
                self.backend,
                self._makers.requests if self._runs_tasks else None,
                self.refusal,
                passes=self._fronts[front].version is not None and not self.is_tried,
            )
        )
        if self.backend is None and self.refusal is None:
            front.pause()
            return
        client = self._fronts[front]
        if client.greeting is not None:
            message, client.greeting = client.greeting, None
            if self.refusal is None:
                with guarded(front, message):
                    self._initialize(front, message)
            else:
                front.refuse(message, *self.refusal)
        front.release()

    def left(self, front: Downstream) -> None:
        """A client has left."""
        super().left(front)
        self._makers.left(front)
        client = self._fronts.pop(front)
        if self.backend is None:
            return
        for uri in client.uris:
            if not self._is_wanted(uri):
                self._tell(self.backend, "resources/unsubscribe", uri=uri)
        self._choose_level()

    def route(self, front: Downstream, message: Message) -> Side | None:
        """Return the server, or None if the request was answered."""
        if not self._admits(front, message):
            return None
        if front.across is None:
            front.unreachable(message)
        elif not self.admits(front, message):
            return None
        return front.across

    def _admits(self, front: Downstream, message: Message) -> bool:
        """Return whether a request may be passed on. If not, it was answered."""
        modern = modern_version(message)
        if modern is None and self._fronts[front].version is not None:
            return True
        if modern is not None:
            front.refuse(message, *unsupported(self.versions, modern))
        else:
            front.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        return False

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that clients may use."""
        newest = self._hello.get("protocolVersion", LATEST_LEGACY)
        return LEGACY_VERSIONS[: LEGACY_VERSIONS.index(newest) + 1]

    # -- requests that the proxy answers ---------------------------------------------------------

    def _initialize(self, front: Downstream, message: Message) -> None:
        """Answer with what the server said, cut to the client's revision."""
        params = params_of(message)
        if not isinstance(params.get("protocolVersion"), str):
            front.refuse(message, codes.INVALID_PARAMS, "protocolVersion must be a string")
            return
        client = self._fronts[front]
        if client.version is not None:
            front.refuse(message, codes.INVALID_REQUEST, "the connection is initialized already")
            return
        versions = self.versions
        wanted = params["protocolVersion"]
        version = versions[versions.index(wanted) if wanted in versions else -1]
        capabilities = {
            name: value
            for name, value in self._hello["capabilities"].items()
            if version >= _SINCE.get(name, version)
        }
        hello = {**self._hello, "protocolVersion": version, "capabilities": capabilities}
        client.version = version
        offered = understood(params.get("capabilities"))
        client.capabilities = tuple(name for name in QUESTIONS if name in offered)
        front.bind(front.binding.admitting(legacy=not self.is_tried))
        front.speak(version)
        front.session.send_result(message, msgspec.json.encode(hello))

    def _set_level(self, front: Downstream, message: Message) -> None:
        """Keep a client's level. The server has the most verbose one."""
        level = params_of(message).get("level")
        if not self._admits(front, message):
            return
        if level not in LOG_LEVELS or "logging" not in self._hello["capabilities"]:
            front.pass_request(message, front.across)  # the server says what is wrong
            return
        self._fronts[front].level = level
        self._choose_level()
        front.session.send_result(message, b"{}")

    def _choose_level(self) -> None:
        levels = [client.level for client in self._fronts.values() if client.level is not None]
        level = min(levels, key=LOG_LEVELS.index, default=None)
        if level is not None and level != self._level and self.backend is not None:
            self._level = level
            self._tell(self.backend, "logging/setLevel", level=level)

    def _subscribe(self, front: Downstream, message: Message) -> None:
        """Pass the request on: the server decides about each client's."""
        uri = params_of(message).get("uri")
        if not self._admits(front, message):
            return
        if not isinstance(uri, str):
            front.pass_request(message, front.across)  # the server says what is wrong
            return
        client, ref = self._fronts[front], message.ref
        if uri not in client.uris and len(client.uris) >= MAX_SUBSCRIPTIONS:
            front.refuse(message, codes.OVERLOADED, "too many subscriptions")
            return
        if client.uris.get(uri, ref) is not None:
            client.uris = {**client.uris, uri: ref}

        def after(answer: Message) -> Message:
            client.settle(uri, ref, granted=answer.result is not None)
            return answer

        front.pass_request(message, front.across, after=after)
        if not front.is_open(message):  # it did not reach the server
            client.settle(uri, ref, granted=False)

    def _unsubscribe(self, front: Downstream, message: Message) -> None:
        """End a client's subscription, and the server's with the last one."""
        uri = params_of(message).get("uri")
        if not self._admits(front, message):
            return
        if not isinstance(uri, str):
            front.pass_request(message, front.across)  # the server says what is wrong
            return
        self._fronts[front].forget(uri)
        if self._is_wanted(uri):
            front.session.send_result(message, b"{}")
            return

        def after(answer: Message) -> Message:
            if self._is_wanted(uri):  # since this request waited: the server has ended that, too
                self._tell(self.backend, "resources/subscribe", uri=uri)
            return answer

        front.pass_request(message, front.across, after=after)

    @property
    def _runs_tasks(self) -> bool:
        return "tasks" in self._hello.get("capabilities", ())

    def _ask_of_task(self, front: Downstream, message: Message) -> None:
        """Pass a request on if it is about a task of this client."""
        if self._makers.may(front, params_of(message).get("taskId")):
            self._list_tasks(front, message)
        elif self._admits(front, message):
            unknown = not_found()
            front.refuse(message, unknown.code, unknown.message)

    def _list_tasks(self, front: Downstream, message: Message) -> None:
        """Pass a request about tasks on, to a server that has any."""
        if not self._runs_tasks:
            front.refuse(
                message, codes.METHOD_NOT_FOUND, f"Method not found: {message.method} (no tasks)"
            )
        elif (to := self.route(front, message)) is not None:
            front.pass_request(message, to)

    def _is_wanted(self, uri: str) -> bool:
        """Whether a client has a subscription, or has asked for it."""
        return any(uri in client.uris for client in self._fronts.values())

    def _tell(self, backend: Upstream | None, method: str, **params: str) -> None:
        """Bring the server to the state that its clients know. Nobody waits for the answer, which
        is logged if it is an error."""

        def done(answer: asyncio.Future[Any]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, RemoteError):
                quiet.log(logging.WARNING, "%s: it refused %s: %s", name, method, error)

        if backend is not None:
            name = backend.name
            backend.ask(method, params).add_done_callback(done)


class _Client:
    """The state of a client: its revision, log level and subscriptions."""

    __slots__ = ("capabilities", "greeting", "level", "uris", "version")

    def __init__(self) -> None:
        self.greeting: Message | None = None  # an `initialize` that waits for the server
        self.version: str | None = None
        self.capabilities: tuple[str, ...] = ()  # of `QUESTIONS`: what it can be asked
        self.level: str | None = None
        # its subscriptions, and None; or the `ref` of the request for one that is not granted yet
        self.uris = _NO_URIS

    def settle(self, uri: str, ref: int, *, granted: bool) -> None:
        """The server has decided about a request for a subscription."""
        if self.uris.get(uri) == ref:
            self.forget(uri)
            if granted:
                self.uris[uri] = None

    def forget(self, uri: str) -> None:
        """A subscription has ended, or there was none."""
        self.uris = {one: ref for one, ref in self.uris.items() if one != uri}

    def hears_of(self, uri: str) -> bool:
        """Whether the server has granted a subscription to a resource, or to one above it."""
        return any(
            ref is None and (uri == one or uri.startswith(f"{one}/"))
            for one, ref in self.uris.items()
        )

    def wants(self, message: Message) -> bool:
        """Whether a log message is as severe as the client asked for."""
        level = _member(message, "level")
        if self.level is None or level not in LOG_LEVELS:
            return True
        return LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.level)


def _member(message: Message, name: str) -> str:
    value = params_of(message).get(name)
    return value if isinstance(value, str) else ""
