"""A client of the proxy: its connection, its router, and the requests that are answered later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from wirespeed._core.session import Session
from wirespeed.errors import ProtocolError, RemoteError, TransportError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream_side import DownstreamSide
from wirespeed.proxy.own_requests import CANCELLED, ProxyRequest, modern_version, unsupported
from wirespeed.proxy.upstream import remote_error, told

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits
    from wirespeed.peer.http.exchange import McpExchange
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.hosts.client_state import ClientState
    from wirespeed.proxy.side import AccessCheck, AdmissionControl, Side
    from wirespeed.proxy.upstream import Upstream

logger = logging.getLogger("wirespeed.proxy")

_Verdict = TypeVar("_Verdict")


class Permission(Protocol):
    """The rights of one principal."""

    def shows(self, name: str) -> bool:
        """Return whether clients may see and call a tool."""


class Permissions(Protocol):
    """The rights of all principals."""

    def of(self, principal: bytes | None) -> Permission | None:
        """Return those of a principal, by its digest; None: it has none."""


class DownstreamService(Protocol):
    """The service that clients are connected to (`ProxyService`).

    Attributes:
        config: The server's configuration; None for the endpoint of all servers.
        legacy_versions: The revisions of legacy eras that it speaks.
        opens: The methods of extensions whose requests stay open; None: there are none.
        flow: The limits of requests to the server; None without any.
        access: What clients may do; None: everything.
        meter: Counts requests that are refused.
    """

    name: str
    limits: Limits
    shutdown_grace: float
    cut: dict[str, int]
    farewell: str
    opens: frozenset[str] | None

    @property
    def config(self) -> BackendConfig | None:
        """See above, as for the following."""

    @property
    def legacy_versions(self) -> Sequence[str]: ...

    @property
    def flow(self) -> AdmissionControl | None: ...

    @property
    def access(self) -> Permissions | None: ...

    @property
    def meter(self) -> Any: ...

    def server_of(self, name: str | None) -> str | None:
        """Return the name of the server that has a tool or prompt."""

    def tools_changed(self) -> None:
        """A server says that its tools have changed."""

    def left(self, downstream: Downstream) -> None:
        """A client has left."""

    def translate(self, downstream: Downstream, message: Message, own: Upstream | None) -> None:
        """Serve a client of an era that the server does not speak, from this request on."""


class Router(Protocol):
    """Decides what becomes of the messages of clients.

    Attributes:
        is_shared: Whether what a server says to one client, the others see as well.
    """

    @property
    def is_shared(self) -> bool:
        """See above."""

    def joined(self, downstream: Downstream) -> None:
        """A client has connected."""

    def left(self, downstream: Downstream) -> None:
        """A client has left."""

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Return the server that a client's request goes to, or None if it was answered."""

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Take a notification of a client that belongs to no request."""


class Downstream(DownstreamSide):
    """A `wirespeed.transport.service.Connection`: what the client asks is passed to a server.

    Attributes:
        translates: Whether the client is served if its server does not speak its era.
        searches: Whether it may have a search in place of a list of tools.
        revision: The `Revision` that `initialize` agreed on.
        request_id: The client's name of its HTTP request, if its requests come one by one.
    """

    # a dict for each idle client is too much
    __slots__ = ("_initialized", "_is_greeted", "request_id", "searches", "translates")

    service: DownstreamService

    def __init__(
        self,
        service: DownstreamService,
        loop: asyncio.AbstractEventLoop,
        framer: Framer | None,
        router: Router,
        *,
        shared: bool = False,
        translates: bool = False,
        outer: Downstream | None = None,
        mirrored: AccessCheck | None = None,
    ) -> None:
        session = Session(limits=service.limits, role="server", framer=framer)
        super().__init__(session, loop, service, logger)
        self.shared = shared
        self.outer = outer
        if outer is not None and not shared:  # else each request has its own
            self.principal, self.peer = outer.principal, outer.peer
        self.mirrored = mirrored
        self.opens = service.opens
        self.request_id: str | None = None
        self.translates = translates
        self.searches = outer is None
        self._is_greeted = False  # `initialize` is answered
        self._initialized: Message | None = None  # the notification, if it came before that
        super().bind(Binding.to_router(router, service.flow))

    @property
    def router(self) -> Router:
        """The router that decides to which server its requests go."""
        router: Router = self.binding.router
        return router

    def bind(self, binding: Binding) -> None:
        """Let the requests of the client go somewhere else. One that drains refuses its requests
        already."""
        changed = binding.refusal is not self.binding.refusal
        super().bind(binding)
        if changed and not self.draining:
            self.session.refusal = binding.refusal

    def allow(
        self, rates: Any, access: AccessCheck | None, meta_tools: Any = None, quotas: Any = None
    ) -> None:
        """Set the client's rates, its grant, the tools of a search in place of a list, and its
        quotas."""
        self.rates, self.access, self.quotas = rates, access, quotas
        self.meta_tools = meta_tools if self.searches else None

    def watch(self, audit: Any, tracer: Any) -> None:
        """Set what notes the client's requests, and what makes spans of them."""
        self.audit, self.tracer = audit, tracer
        self.audits = 0 if audit is None else audit.requests

    def remember(self, state: ClientState) -> None:
        """Set what takes note of what the client tells the proxy."""
        self.state = state

    def state_changed(self) -> None:
        """No other host can go on with the session any more."""
        session: HttpSession | None = getattr(self.link, "session", None)
        if self.state is not None and session is not None:
            self.state.save(session)

    def changes_state(self, message: Message) -> None:
        """A request changes the state that another host needs for the session: its result is sent
        when other hosts know the state, or cannot know it."""
        session: HttpSession | None = getattr(self.link, "session", None)
        if session is not None:
            self.give_result_to(message, _AfterSave(message, session))

    def turn_away(self, code: int, text: str) -> None:
        """Refuse all requests from now on."""
        self.session.refusal = (code, text)

    @property
    def is_client(self) -> bool:
        """Whether it is a client of its service, and not a part of one that is translated."""
        return not isinstance(self.outer, Downstream) or self.outer.service is not self.service

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was answered."""
        return self.router.route(self, message)

    def on_slow(self) -> None:
        """The client has not read for too long: its connection ends."""
        self.service.cut["slow reader"] += 1

    def clean_up(self, exc: BaseException | None) -> None:
        """The client has left."""
        super().clean_up(exc)
        if self.is_client:
            self.service.left(self)
        self.router.left(self)

    def notified(self, message: Message) -> None:
        """Take a notification that belongs to no request. One that the client is initialized waits
        until the server has accepted `initialize`."""
        early = not (self._is_greeted or self.shared)
        if early and message.method == "notifications/initialized":
            self._initialized = message
        else:
            self.router.client_said(self, message)

    def overheard(self, message: Message) -> None:
        """The server has told this client of a change."""
        if message.method == "notifications/tools/list_changed":
            self.service.tools_changed()

    def answer(self, message: Message, result: bytes) -> None:
        """Answer a request with a result, unless the client has left."""
        if self.takers is not None and (taker := self.takers.get(message.ref)) is not None:
            taker.take(self, message.ref, result)
        elif self.link is not None:
            if self.meta_tools is not None and message.method == "tools/list":
                result = self.meta_tools.filter(None, message)(result)
            self.session.send_result(message, result)
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error, unless the client has left."""
        if self.link is not None:
            if code == codes.SERVER_LOST:
                self.unserved(message)
            self.refused(message, code)
            self.session.send_error(message, code, text, data)
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def await_rate(self, message: Message, head: Any, delay: asyncio.Future[float]) -> None:
        """Let a request wait until it is known whether it is in its rate."""
        WaitingRequest(self, message, delay, partial(self.rated, message, head))

    def await_quota(self, message: Message, head: Any, spending: Any) -> None:
        """Let a call wait until it is known whether it is in its quota."""
        WaitingRequest(self, message, spending.delay, partial(self.spent, message, head, spending))

    def other_era(
        self,
        message: Message,
        versions: Sequence[str],
        wanted: object,
        upstream: Upstream | None = None,
    ) -> None:
        """A server does not speak the era of a request: translate it, or refuse it.

        ``versions``: What the server speaks. ``wanted``: What the request names. ``upstream``: The
        client's own connection to the server.
        """
        if self.translates:
            self.service.translate(self, message, upstream)
        else:
            code, text, data = unsupported(versions, wanted)
            text = f"{text}; {self.service.name}: its translate is off"
            self.refuse(message, code, text, data)

    async def ask(self, method: str, params: bytes, about: int) -> msgspec.Raw:
        """Send a request of the proxy itself to the client, about one of its own. Returns the
        result. RemoteError, TransportError: there is none."""
        if self.link is None:
            raise TransportError("the client has left")
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        id = self.session.send_request(method, params, token=future, about=about)
        self.link.wrote()
        try:
            return await future
        finally:
            if self.link is not None and self.awaits(id):
                self.session.cancel(id, about=about)
                self.link.wrote()

    def answered(self, message: Message | None, token: Any) -> None:
        """Take the answer to a request of the proxy itself. A client without a session was asked
        nothing."""
        if self.shared and message is not None:
            cast("McpExchange", self.peer).refuse_response()
        if not isinstance(token, asyncio.Future) or token.done():
            return
        if message is None:
            token.set_exception(TransportError("the client has left"))
        elif message.error is not None:
            token.set_exception(remote_error(message.error))
        else:
            token.set_result(msgspec.Raw(bytes(message.result or b"{}")))

    def notified_about(self, message: Message, token: Any) -> None:
        """Take a notification about a request that the proxy answers."""
        if isinstance(token, ProxyRequest):
            token.notified(message)
        else:
            super().notified_about(message, token)

    def pause(self) -> None:
        """Let requests wait in the session."""
        self.session.pauses_requests = True

    def resume(self) -> None:
        """Let requests go on when the link is told next that something was written."""
        self.session.pauses_requests = False
        if self.parked:
            self.loop.call_soon(self.unpark)

    def release(self) -> None:
        """Let the requests go on that waited for a server."""
        self.resume()
        if self.link is not None:
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def drain(self) -> None:
        """Take no more requests, answer those in flight within the grace time, then close."""
        if not self.draining:
            if self.session.refusal is None:  # else its server is not there
                self.session.refusal = (codes.SHUTTING_DOWN, self.service.farewell)
            self.end_subscriptions()
            for token in self.deferred():
                token.drain()
            super().drain()

    def on_draining(self) -> None:
        """Call what is to be called before the last requests are waited for."""
        if (on_drain := self.binding.on_drain) is not None:
            on_drain()

    def on_grace_over(self) -> None:
        """Cut off the requests that are left."""
        self.end_subscriptions()
        n = self.session.inflight.live
        if n:
            logger.warning(
                "%s: %d requests of a client did not end within %g s, and were cut off",
                self.service.name,
                n,
                self.service.shutdown_grace,
            )
        refusal = self.session.refusal
        self.cut_off("the client sends no more" if refusal is None else refusal[1])

    def speak(self, version: object) -> None:
        """Go on in the revision that `initialize` agreed on, if it is a known one."""
        self._is_greeted = True
        self.revision = REVISIONS.get(version) if isinstance(version, str) else None
        self.session.batches = self.revision is not None and self.revision.batches

    def agreed(self, message: Message) -> None:
        """A server has answered `initialize`."""
        assert message.result is not None
        result: Any = None
        with contextlib.suppress(msgspec.DecodeError):  # it is JSON, but more than Python can hold
            result = msgspec.json.decode(message.result)
        self.speak(result.get("protocolVersion") if isinstance(result, dict) else None)
        if self.across is not None:
            cast("Upstream", self.across).speak(self.revision)
        initialized, self._initialized = self._initialized, None
        if initialized is not None:
            self.router.client_said(self, initialized)


class WithoutSession:
    """The requests of HTTP clients that have no session. None can be passed on: clients of
    2026-07-28 learn which revisions they may use.

    Args:
        reason: Why, as of `Assignment.refuses_lanes`.
    """

    is_shared = True

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    def joined(self, downstream: Downstream) -> None:
        """Nothing is started for such clients."""

    def left(self, downstream: Downstream) -> None:
        """Nothing ends with them."""

    def route(self, downstream: Downstream, message: Message) -> None:
        """Refuse a request."""
        version = modern_version(message)
        if version is None:
            downstream.refuse(message, codes.INVALID_REQUEST, "there is no session")
        else:
            code, text, data = unsupported(downstream.service.legacy_versions, version)
            if self._reason:
                text = f"{text}; {downstream.service.name}: {self._reason}"
            downstream.refuse(message, code, text, data)

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Drop a notification."""


class DeferredRequest(ProxyRequest):
    """A request of a client that the proxy answers later. A cancelled task refuses the request.

    Args:
        downstream: The client.
        message: The request.
        work: What answers it. What it raises is the answer.
        works: All that the client waits for; it is one of these until it is done.

    Attributes:
        task: What does the work.
    """

    def __init__(
        self,
        downstream: Downstream,
        message: Message,
        work: Coroutine[Any, Any, None],
        works: set[DeferredRequest],
    ) -> None:
        self.request = message
        self._downstream = downstream
        self._works = works
        works.add(self)
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(partial(self._ended, message))
        downstream.give_token(message, self)

    def _ended(self, message: Message, task: asyncio.Task[None]) -> None:
        self._works.discard(self)
        refuse = self._downstream.refuse
        if not self._downstream.is_open(message):  # it was answered, or the client has given it up
            failed = task.cancelled() or task.exception() is not None
            self.note(CANCELLED if failed else 0)
            return
        try:
            task.result()
            self.note(0)
        except asyncio.CancelledError:
            refuse(message, codes.SERVER_LOST, "the server is not there")
        except (ProtocolError, RemoteError) as exc:
            refuse(message, exc.code, exc.message, exc.data)
        except WirespeedError as exc:
            logger.info("%s: %s: %s", self._downstream.service.name, message.method, exc)
            refuse(message, codes.SERVER_LOST, told(self._downstream.service.name, exc))
        except msgspec.DecodeError as exc:
            refuse(message, codes.INTERNAL_ERROR, f"the server's answer is malformed: {exc}")
        except Exception as exc:
            logger.error("internal error of the proxy at %s", message, exc_info=exc)
            refuse(message, codes.INTERNAL_ERROR, "Internal error")

    def notified(self, message: Message) -> None:
        """The client has cancelled its request."""
        self.task.cancel()
        self._downstream.session.cancelled_done()


class _AfterSave:
    """Takes the result of a request that changes the state of a session, and sends it when the
    state is written."""

    def __init__(self, message: Message, session: HttpSession) -> None:
        self._message = message
        self._session = session

    def take(self, downstream: Downstream, ref: int, text: Any) -> None:
        """Take the result."""
        assert downstream.takers is not None and downstream.state is not None
        downstream.takers.pop(ref, None)
        work = self._answer(downstream, bytes(text))
        DeferredRequest(downstream, self._message, work, downstream.state.answers)

    async def _answer(self, downstream: Downstream, result: bytes) -> None:
        await self._session.save()
        downstream.answer(self._message, result)


class WaitingRequest(ProxyRequest):
    """A request that waits for what decides about it, such as the rate of its client.

    Args:
        downstream: The client.
        message: The request.
        verdict: What it waits for. A ProtocolError refuses it.
        go_on: Called with the result.
    """

    waits = True

    def __init__(
        self,
        downstream: Downstream,
        message: Message,
        verdict: asyncio.Future[_Verdict],
        go_on: Callable[[_Verdict], None],
    ) -> None:
        self.request = message
        self._downstream = downstream
        self._go_on: Callable[[Any], None] = go_on
        downstream.give_token(message, self)
        verdict.add_done_callback(self._known)

    def _known(self, verdict: asyncio.Future[Any]) -> None:
        try:
            self._go_on(verdict.result())
        except (ProtocolError, asyncio.CancelledError) as exc:
            if self.request is not None and self._downstream.is_open(self.request):
                code = getattr(exc, "code", codes.SHUTTING_DOWN)
                text = getattr(exc, "message", "the proxy is shutting down")
                self._downstream.refuse(self.request, code, text)
        except Exception as exc:
            logger.error("internal error of the proxy at %s", self.request, exc_info=exc)
            if self.request is not None and self._downstream.is_open(self.request):
                self._downstream.refuse(self.request, codes.INTERNAL_ERROR, "Internal error")

    def notified(self, message: Message) -> None:
        """The client has cancelled its request."""
        self._downstream.session.cancelled_done()


def name_of(client: Downstream) -> object:
    """Return the principal of a client, or else its user; None: neither is known."""
    access: Any = client.access
    grant = None if access is None else access.of(client.principal)
    return getattr(client.peer, "user", None) if grant is None else grant.name or None


def outermost(downstream: Downstream) -> Downstream:
    """Return the connection of a client, of which another one is a part."""
    while isinstance(downstream.outer, Downstream):
        downstream = downstream.outer
    return downstream


def principal_of(downstream: Downstream) -> bytes | None:
    """Return the digest of the principal whose request is served; None: there is no principal. A
    client of several servers has a connection to each. Over HTTP the next request on these
    connections may be of another principal."""
    found: bytes | None = outermost(downstream).principal
    return found
