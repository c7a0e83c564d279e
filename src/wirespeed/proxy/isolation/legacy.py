"""One server for all clients: what each of them may see of it.

A server of a legacy era knows one client, the proxy. It was initialized once, and each client gets
its answer, cut to the client's revision. It has one log level, the most verbose that a client asked
for, and one set of subscriptions. What it says without naming a request cannot be attributed to a
client, unless it belongs to a task, or only one client is there, and there was none other lately.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import RemoteError, VersionMismatch
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    CAPABILITY_OF,
    CHANGES,
    LATEST_LEGACY,
    LEGACY_VERSIONS,
    LOG_LEVELS,
    understood,
)
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import WaitingRequest
from wirespeed.proxy.isolation.handshake import initialize, learn_tools
from wirespeed.proxy.isolation.instance import Instance, guarded, pong, quiet
from wirespeed.proxy.isolation.task_makers import TaskMakers
from wirespeed.proxy.list_cache import ListCache
from wirespeed.proxy.own_requests import modern_version, params_of, unsupported
from wirespeed.proxy.supervision.supervisor import Unsuitable
from wirespeed.tasks.views import not_found

if TYPE_CHECKING:
    from collections.abc import Collection

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.binding import Functions
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream

# The first revision that knows a capability of servers.
_SINCE = {"completions": "2025-03-26", "tasks": "2025-11-25"}
_LIST_CHANGES = CHANGES - {"notifications/resources/updated"}
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

    def __init__(
        self, config: BackendConfig, limits: Limits, pool: Pool, address: Address | None
    ) -> None:
        super().__init__(config, limits, is_one_of_several=not pool.has_one, address=address)
        self._pool = pool
        self._downstreams: dict[Downstream, _Client] = {}
        self._hello: dict[str, Any] = {}
        url = None if address is None else address.target.url
        self._makers = TaskMakers(pool.shared_makers(url))
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
        return self._downstreams

    @property
    def n_clients(self) -> int:
        """The number of its clients."""
        return len(self._downstreams)

    # -- the server ------------------------------------------------------------------------------

    async def opened(self, upstream: Upstream) -> None:
        """Shake hands, and bring the server to the state that the clients know."""
        limit, began = self.config.start_timeout, upstream.began  # it may have been probed before
        async with asyncio.timeout(max(began + limit - upstream.loop.time(), limit / 2)):
            try:
                self._hello = await initialize(upstream, asked_of(self.config))
            except (RemoteError, VersionMismatch) as exc:
                if self._pool.is_modern:
                    self._pool.without_legacy()
                    raise Unsuitable(str(exc)) from exc
                raise
            await learn_tools(upstream, self.retries, self.config.start_timeout)
        if self._level is not None:
            self._tell(upstream, "logging/setLevel", level=self._level)
        for uri in {uri for client in self._downstreams.values() for uri in client.uris}:
            self._tell(upstream, "resources/subscribe", uri=uri)
        if self.address is not None:
            upstream.has_others(self)
        self.use(upstream)
        self.attach_all()

    def lists_of(self, upstream: Upstream) -> ListCache | None:
        """As of the base class. Over HTTP a notification of a change may be lost."""
        return None if upstream.over_http else ListCache(self._hello["capabilities"])

    def server_asks(self, upstream: Upstream, message: Message) -> Side | None:
        """Return the client that a question is for, where that is certain."""
        capability = CAPABILITY_OF.get(message.method or "")
        if not self.config.ask or capability is None:
            return super().server_asks(upstream, message)
        downstream = self._addressee(upstream, message)
        if downstream is None:
            self.drop(upstream, message)
            upstream.refuse(message, "it is not certain which client this question is about")
            return None
        if capability not in self._downstreams[downstream].capabilities:
            self.dropped["not supported"] += 1
            upstream.refuse(message, f"the client does not support {capability}")
            return None
        return downstream

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Tell a server that may ask for roots that they have changed."""
        if (
            self.config.ask
            and self.upstream is not None
            and message.method == "notifications/roots/list_changed"
            and self.only() is downstream
        ):
            downstream.pass_notification(message, self.upstream)

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Show a notification to those that it is for."""
        method = message.method
        if upstream.retired:
            self.drop(upstream, message)
        elif method in _LIST_CHANGES:
            for downstream, client in list(self._downstreams.items()):
                if client.version is not None:
                    upstream.pass_notification(message, downstream)
        elif method == "notifications/resources/updated":
            self._updated(upstream, message)
        elif (whose := self._addressee(upstream, message)) is None:
            self.drop(upstream, message)
        elif method == "notifications/message" and not self._downstreams[whose].wants(message):
            self.dropped["below the level"] += 1
        elif self._downstreams[whose].version is not None:
            upstream.pass_on(message, whose)

    def _addressee(self, upstream: Upstream, message: Message) -> Downstream | None:
        """The client that a message is for, where that is certain: the message is about its task,
        the response to its request has brought the message, or it can only be this one."""
        is_of_task, downstream = self._makers.of_task(message)
        if is_of_task:
            return downstream
        if (route := upstream.stream()) is not None:
            return next((one for one in self._downstreams if one is route.asker), None)
        return None if upstream.retired or upstream.is_late() else self.only()

    def _updated(self, upstream: Upstream, message: Message) -> None:
        uri = _member(message, "uri")
        found = [
            downstream for downstream, client in self._downstreams.items() if client.hears_of(uri)
        ]
        self.dropped["no subscriber"] += not found
        for downstream in found:
            upstream.pass_notification(message, downstream)

    # -- clients ---------------------------------------------------------------------------------

    def greet(self, downstream: Downstream, message: Message) -> None:
        """A client has sent ``initialize``."""
        client = self._downstreams[downstream] = _Client()
        self.met(downstream)
        if self.upstream is None:
            client.greeting = message
        else:
            self._initialize(downstream, message)
        self._attach(downstream)

    def give_back(self) -> list[tuple[Downstream, Message]]:
        """The server is not of a legacy era: return the clients that wait, and what they sent."""
        found, self._downstreams = self._downstreams, {}
        for downstream in found:
            downstream.bind(downstream.binding.translated(None))
            downstream.release()
        return [
            (downstream, one.greeting)
            for downstream, one in found.items()
            if one.greeting is not None
        ]

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        for downstream in list(self._downstreams):
            self._attach(downstream)

    def _attach(self, downstream: Downstream) -> None:
        self.bind(
            downstream,
            Binding.to_legacy(
                self._pool,
                downstream.service.flow,
                self.requests,
                self.upstream,
                self._makers.requests if self._runs_tasks else None,
                self.refusal,
                passes=self._downstreams[downstream].version is not None and not self.is_tried,
            ),
        )
        if self.upstream is None and self.refusal is None:
            downstream.pause()
            return
        client = self._downstreams[downstream]
        if client.greeting is not None:
            message, client.greeting = client.greeting, None
            if self.refusal is None:
                with guarded(downstream, message):
                    self._initialize(downstream, message)
            else:
                downstream.refuse(message, *self.refusal)
        downstream.release()

    def left(self, downstream: Downstream) -> None:
        """A client has left."""
        super().left(downstream)
        self._makers.left(downstream)
        client = self._downstreams.pop(downstream)
        if self.upstream is None:
            return
        for uri in client.uris:
            if not self._is_wanted(uri):
                self._tell(self.upstream, "resources/unsubscribe", uri=uri)
        self._choose_level()

    def dismiss(self, reason: str) -> None:
        """End the sessions of all clients, once their requests are answered."""
        for downstream in list(self._downstreams):
            downstream.turn_away(codes.SHUTTING_DOWN, reason)
            downstream.drain()

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Return the server, or None if the request was answered."""
        if not self._admits(downstream, message):
            return None
        if downstream.across is None:
            downstream.unreachable(message)
        elif not self.admits(downstream, message):
            return None
        return downstream.across

    def _admits(self, downstream: Downstream, message: Message) -> bool:
        """Return whether a request may be passed on. If not, it was answered."""
        modern = modern_version(message)
        if modern is None and self._downstreams[downstream].version is not None:
            return True
        if modern is not None:
            downstream.refuse(message, *unsupported(self.versions, modern))
        else:
            downstream.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        return False

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that clients may use."""
        newest = self._hello.get("protocolVersion", LATEST_LEGACY)
        return LEGACY_VERSIONS[: LEGACY_VERSIONS.index(newest) + 1]

    # -- requests that the proxy answers ---------------------------------------------------------

    def _initialize(self, downstream: Downstream, message: Message) -> None:
        """Answer with what the server said, cut to the client's revision."""
        params = params_of(message)
        if not isinstance(params.get("protocolVersion"), str):
            downstream.refuse(message, codes.INVALID_PARAMS, "protocolVersion must be a string")
            return
        client = self._downstreams[downstream]
        if client.version is not None:
            downstream.refuse(
                message, codes.INVALID_REQUEST, "the connection is initialized already"
            )
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
        self.bind(downstream, downstream.binding.admitting(legacy=not self.is_tried))
        downstream.speak(version)
        downstream.answer(message, msgspec.json.encode(hello))

    def _set_level(self, downstream: Downstream, message: Message) -> None:
        """Keep a client's level. The server has the most verbose one."""
        level = params_of(message).get("level")
        if not self._admits(downstream, message):
            return
        if level not in LOG_LEVELS or "logging" not in self._hello["capabilities"]:
            downstream.pass_request(message, downstream.across)  # the server says what is wrong
            return
        self._downstreams[downstream].level = level
        self._choose_level()
        downstream.answer(message, b"{}")

    def _choose_level(self) -> None:
        levels = [client.level for client in self._downstreams.values() if client.level is not None]
        level = min(levels, key=LOG_LEVELS.index, default=None)
        if level is not None and level != self._level and self.upstream is not None:
            self._level = level
            self._tell(self.upstream, "logging/setLevel", level=level)

    def _subscribe(self, downstream: Downstream, message: Message) -> None:
        """Pass the request on: the server decides about each client's."""
        uri = params_of(message).get("uri")
        if not self._admits(downstream, message):
            return
        if not isinstance(uri, str):
            downstream.pass_request(message, downstream.across)  # the server says what is wrong
            return
        client, ref = self._downstreams[downstream], message.ref
        if uri not in client.uris and len(client.uris) >= MAX_SUBSCRIPTIONS:
            downstream.refuse(message, codes.OVERLOADED, "too many subscriptions")
            return
        if client.uris.get(uri, ref) is not None:
            client.uris = {**client.uris, uri: ref}

        def after(answer: Message) -> Message:
            client.settle(uri, ref, granted=answer.result is not None)
            return answer

        downstream.pass_request(message, downstream.across, after=after)
        if not downstream.is_open(message):  # it did not reach the server
            client.settle(uri, ref, granted=False)

    def _unsubscribe(self, downstream: Downstream, message: Message) -> None:
        """End a client's subscription, and the server's with the last one."""
        uri = params_of(message).get("uri")
        if not self._admits(downstream, message):
            return
        if not isinstance(uri, str):
            downstream.pass_request(message, downstream.across)  # the server says what is wrong
            return
        self._downstreams[downstream].forget(uri)
        if self._is_wanted(uri):
            downstream.answer(message, b"{}")
            return

        def after(answer: Message) -> Message:
            if self._is_wanted(uri):  # since this request waited: the server has ended that, too
                self._tell(self.upstream, "resources/subscribe", uri=uri)
            return answer

        downstream.pass_request(message, downstream.across, after=after)

    @property
    def _runs_tasks(self) -> bool:
        return "tasks" in self._hello.get("capabilities", ())

    def _ask_of_task(self, downstream: Downstream, message: Message) -> None:
        """Pass a request on if it is about a task of this client."""
        may = self._makers.may(downstream, params_of(message).get("taskId"))
        if isinstance(may, bool):
            self._go_on(downstream, message, may)
        else:
            WaitingRequest(downstream, message, may, partial(self._go_on, downstream, message))

    def _go_on(self, downstream: Downstream, message: Message, may: bool) -> None:
        if not downstream.is_open(message):
            return  # it was cancelled meanwhile
        if downstream not in self._downstreams:
            downstream.unreachable(message)  # the server speaks another era now
        elif may:
            self._makers.asked(downstream, message)
            self._list_tasks(downstream, message)
        elif self._admits(downstream, message):
            unknown = not_found()
            downstream.refuse(message, unknown.code, unknown.message)

    def _list_tasks(self, downstream: Downstream, message: Message) -> None:
        """Pass a request about tasks on, to a server that has any."""
        if not self._runs_tasks:
            downstream.refuse(
                message, codes.METHOD_NOT_FOUND, f"Method not found: {message.method} (no tasks)"
            )
        elif (to := self.route(downstream, message)) is not None:
            downstream.pass_request(message, to)

    def _is_wanted(self, uri: str) -> bool:
        """Whether a client has a subscription, or has asked for it."""
        return any(uri in client.uris for client in self._downstreams.values())

    def _tell(self, upstream: Upstream | None, method: str, **params: str) -> None:
        """Bring the server to the state that its clients know. Nobody waits for the answer, which
        is logged if it is an error."""

        def done(answer: asyncio.Future[Any]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, RemoteError):
                quiet.log(logging.WARNING, "%s: it refused %s: %s", name, method, error)

        if upstream is not None:
            name = upstream.name
            upstream.ask(method, params).add_done_callback(done)


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
