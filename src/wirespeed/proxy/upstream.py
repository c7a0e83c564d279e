"""A connection to a server behind the proxy, and the texts that clients get when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.session import Session
from wirespeed.errors import (
    AuthorizationError,
    ChildExited,
    ConnectionClosed,
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
    VersionMismatch,
)
from wirespeed.protocol import codes
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.proxy.affinity import is_code
from wirespeed.proxy.binding import UNBOUND
from wirespeed.proxy.own_requests import ProxyRequest, envelope
from wirespeed.proxy.side import Route, Side
from wirespeed.proxy.upstream_side import UpstreamSide
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.limits import Limits
    from wirespeed.protocol.revisions import Revision
    from wirespeed.proxy.breakdown import Breakdown
    from wirespeed.server.requests.observer import Observer

logger = logging.getLogger("wirespeed.proxy")
quiet = RateLimitedLog(logger)

# A server that writes more than `MAX_GARBAGE` of them within `WINDOW` seconds is ended.
MAX_GARBAGE = 1000
WINDOW = 10.0

BAD_MESSAGE = "bad message"  # not JSON, not a message, too long, or cut off by the end
UNKNOWN_ID = "unknown id"  # an answer to what was not asked, or a second answer


class UpstreamOwner(Protocol):
    """The owner of a connection to a server: it hears of the server, and answers it."""

    async def opened(self, upstream: Upstream) -> None:
        """A connection is there. WirespeedError: the server cannot be used."""

    def closed(self, upstream: Upstream) -> None:
        """That connection is gone."""

    def failed(self) -> None:
        """The server has ended, could not be started, or did not answer in time."""

    def again(self, asker: Side, message: Message) -> bool:
        """Return whether a request that the lost server has not answered will be sent again."""

    def down(self, reason: str | None) -> None:
        """Starts fail again and again: what clients are told; None: one has succeeded."""

    def server_asks(self, upstream: Upstream, message: Message) -> Side | None:
        """Return the client that a request of the server goes to, or None if it was answered."""

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Take a notification that belongs to no request."""


class ChangeGatherer(Protocol):
    """The place where the changes that several servers tell of are gathered."""

    def gathers(self, upstream: Upstream, message: Message, route: Route) -> bool:
        """Return whether a change was taken, to be told once."""


class OtherAddresses(Protocol):
    """The other addresses of a server that has several, as a connection to one sees them.

    Attributes:
        ends_silent: Whether the connection is ended when its address answers nothing.
    """

    @property
    def ends_silent(self) -> bool:
        """See above."""

    def take(self, asker: Side, message: Message) -> bool:
        """Return whether another address gets a request that this one has failed."""

    def take_unsent(self, upstream: Upstream, route: Route, text: bytes) -> bool:
        """Return whether another address gets a request of which nothing reached this one."""

    def eject(self, why: str) -> None:
        """Give this address no requests until it has answered one of the proxy. ``why``: what it
        has done, for clients."""


class Upstream(UpstreamSide):
    """The proxy is the client of this connection. It reads always: a server that cannot write does
    not read either.

    The members ``probing``, ``revision``, ``resends``, ``awaits`` and ``fail_request`` are what
    `HttpLink` needs besides those of every endpoint.

    Attributes:
        name: The server's, in the configuration.
        exit_note: What is known of the exit of its program.
        ended_for: Why the proxy has ended it; "" if the proxy has not.
        retired: Whether another connection has taken its place, so that it gets no new requests.
        garbage: The invalid messages that it wrote.
        began: When the connection was made, on the clock of the loop.
        ends_unreachable: Whether it ends when its server cannot be reached, where each request has
            a connection of its own. Who owns it connects again.
        changes: What gathers changes that several servers of a pool tell of; None: nothing does.
        runs_tasks: Whether the server declares the extension for tasks of 2026-07-28.
        greeting: The answer to ``initialize``, if that was sent to find out the era; else None.
    """

    resends = False  # what a server puts off with 429 or 503 fails: its client decides

    def __init__(
        self,
        name: str,
        owner: UpstreamOwner,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        framer: Framer | None = None,
        deadline: float | None = None,
    ) -> None:
        session = Session(limits=limits, role="client", framer=framer, reads_always=True)
        super().__init__(session, loop)
        self.bind(UNBOUND)
        if deadline is not None:
            self.deadline = deadline
        self.name = name
        self.owner = owner
        self.exit_note = ""
        self.ended_for = ""
        self.retired = False
        self.garbage = InvalidMessages()
        self.began = loop.time()
        self.runs_tasks = False
        self.changes: ChangeGatherer | None = None
        self._n_excused = 0
        self.probing = False
        self._others: OtherAddresses | None = None
        self.ends_unreachable = False
        self.greeting: Any = None
        session.shows_late_responses = True

    def pass_to(self, owner: UpstreamOwner) -> UpstreamOwner:
        """Let somebody else own the connection. Returns the owner before."""
        before, self.owner = self.owner, owner
        return before

    def speak(self, revision: Revision | None, *, batches: bool | None = None) -> None:
        """Go on in a revision; None: it is not known yet.

        ``batches``: Whether the server may answer in batches; None: as before.
        """
        self.revision = revision
        if batches is not None:
            self.session.batches = batches

    def expect_no_requests(self) -> None:
        """The server is of 2026-07-28, and asks nothing."""
        self.session.answers_requests = False

    def discovered(self, answer: Any) -> None:
        """Take note of the answer to ``server/discover``: whether it declares the extension for
        tasks."""
        capabilities = answer.get("capabilities") if isinstance(answer, dict) else None
        extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        self.runs_tasks = isinstance(extensions, dict) and TASKS_EXTENSION in extensions

    def mark(self, tags: Any, changes: ChangeGatherer | None = None) -> None:
        """Mark what is to come back to this server, and gather its changes with those of others."""
        self.tags, self.changes = tags, changes

    def retry(self, retries: Callable[[Message], bool] | None, *, calls: bool = False) -> None:
        """Set which requests may be sent again if this server is lost. ``calls``: Whether calls of
        tools may."""
        self.retries, self.retries_calls = retries, calls

    def observe(self, observer: Observer | None, breakdown: Breakdown | None = None) -> None:
        """Count the requests of this server. ``breakdown``: by tool and principal, too."""
        self.observer, self.breakdown = observer, breakdown

    def end_when_unreachable(self) -> None:
        """End when the server cannot be reached: who owns the connection makes another."""
        self.ends_unreachable = True

    def has_others(self, others: OtherAddresses) -> None:
        """The server has other addresses: a request that this one cannot take is a failure of the
        address."""
        self._others = others

    def retire(self) -> None:
        """Another connection has taken the place of this one."""
        self.retired = True

    def ask(
        self, method: str, params: object = None, *, cancels: bool = False
    ) -> asyncio.Future[Any]:
        """Send a request of the proxy itself. The future gets the decoded result, or RemoteError or
        TransportError. ``cancels``: Whether the server is told if the future is cancelled."""
        future: asyncio.Future[Any] = self.loop.create_future()
        if self.link is None:
            future.set_exception(ServerLost(f"the server {self.name} is not there"))
            return future
        body = None if params is None else msgspec.json.encode(params)
        id = self.session.send_request(method, body, token=future)
        self.link.wrote()
        future.add_done_callback(partial(self._withdraw, id, cancels))
        return future

    @property
    def over_http(self) -> bool:
        """Whether each message is the body of an HTTP request."""
        return hasattr(self.link, "mirrored")

    def greeted(self, answer: Any) -> None:
        """Keep the answer to the ``initialize`` that was sent to find out the era."""
        self.greeting = answer

    def _withdraw(self, id: int, cancels: bool, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() or self.session.forget(id) is None:
            return
        if cancels:
            self.cancel(id, "the answer is not needed any more")
        else:
            self.n_given_up += 1  # its answer may still come

    def tell(self, method: str, params: object = None) -> None:
        """Send a notification of the proxy itself."""
        if self.link is not None:
            body = None if params is None else msgspec.json.encode(params)
            self.session.send_notification(method, body)
            self.link.wrote()

    def probe(self) -> asyncio.Future[Any] | None:
        """Ask whether a server is still there. There is no ping in 2026-07-28."""
        if self.link is None:
            return None
        if self.revision is not None and self.revision.modern:
            asked = self.ask("server/discover", {"_meta": envelope()})
        else:
            asked = self.ask("ping")
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    def answered(self, message: Message | None, token: Any) -> None:
        """Take the answer to a request of the proxy itself."""
        if isinstance(token, ProxyRequest):
            token.answered(message)
        if token is None and message is not None:
            if self._n_excused < self.n_given_up:  # it may have answered before it was cancelled
                self._n_excused += 1
            else:
                self.garbage.add(self, UNKNOWN_ID, "an answer to no request")
        if not isinstance(token, asyncio.Future) or token.done():
            return
        try:
            if message is None:
                token.set_exception(ServerLost(f"the server {self.name} did not answer"))
            elif message.error is not None:
                token.set_exception(remote_error(message.error))
            else:
                assert message.result is not None
                token.set_result(msgspec.json.decode(message.result))
        except msgspec.DecodeError as exc:  # it is JSON, but more than Python can hold
            token.set_exception(InvalidResponse(f"the answer of {self.name}: {exc}"))

    def fail_request(self, id: int, exc: BaseException) -> None:
        """Fail a request for a reason that the link knows: no answer to it will come."""
        token = self.session.forget(id)
        if not isinstance(token, Route):
            self.gave_up(token, exc)
        elif isinstance(exc, RemoteError):
            error: dict[str, Any] = {"code": exc.code, "message": exc.message}
            if exc.data is not None:
                error["data"] = exc.data
            self.pass_error(token, msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "error": error}))
        else:
            quiet.log(logging.WARNING, "%s: %s", self.name, exc)
            is_fault = self._others is not None and _is_of_address(exc)
            if is_fault and self._others is not None:
                if isinstance(exc, HttpStatusError | ConnectionLost):
                    self.owner.failed()
                else:  # it cannot be reached: the next request would fail as well
                    self._others.eject("cannot be reached")
            if not (is_fault and (self.send_again(token) or self._moves_unsent(token))):
                self.fail(token, codes.SERVER_LOST, told(self.name, exc))
        if self.ends_unreachable and isinstance(exc, TransportError):
            self._doubt(exc, isinstance(token, Route))

    def _moves_unsent(self, route: Route) -> bool:
        """Whether another address gets a request that fails before anything of it was sent."""
        text: bytes | None = getattr(self.link, "unsent", None)
        return (
            text is not None
            and self._others is not None
            and self._others.take_unsent(self, route, text)
        )

    def _doubt(self, exc: TransportError, of_client: bool) -> None:
        """A request has not reached the server, or its answer has not come. If the server cannot be
        reached at all, the connection ends, unless it has other requests: these may be answered.
        """
        if isinstance(exc, HttpStatusError):
            return
        if not isinstance(exc, ConnectionLost):
            if self.session.pending.live == 0:
                self.loop.call_soon(self.end, str(exc).partition("\n")[0])
        elif of_client:
            self.probe()

    def expire(self, now: float) -> int:
        """Fail the requests that were not answered by their deadline, and cancel them. Returns how
        many there were. ``now``: The time on the clock of the loop."""
        found = self.session.expire(now)
        for id, token in found:
            if isinstance(token, Route):  # the proxy's own have no deadline
                if token.greets:  # `initialize` must not be cancelled
                    self.n_given_up += 1
                else:
                    self.cancel(id, "it took too long")
                self.fail(token, codes.REQUEST_TIMEOUT, f"no answer within {self.deadline:g} s")
        return len(found)

    def gave_up(self, token: Any, exc: BaseException) -> None:
        """A request of the proxy itself will get no answer."""
        if isinstance(token, ProxyRequest):
            token.answered(None)
        elif isinstance(token, asyncio.Future) and not token.done():
            token.set_exception(exc)

    def notified_about(self, message: Message, token: Any) -> None:
        """Take a notification about a request of the proxy itself."""
        if isinstance(token, ProxyRequest):
            token.notified(message)
        else:
            super().notified_about(message, token)

    def notified(self, message: Message) -> None:
        """Take a notification that belongs to no request."""
        if self.lists is not None:
            self.lists.heard(message.method)
        self.owner.server_said(self, message)

    def route(self, message: Message) -> Side | None:
        """Return the client that a request of the server goes to, or None if it was answered."""
        return self.owner.server_asks(self, message)

    def gathers(self, message: Message, route: Route) -> bool:
        """Return whether a change for a subscription waits for what other servers say."""
        return self.changes is not None and self.changes.gathers(self, message, route)

    def faulty(self, message: Message) -> None:
        """Count a message that is not valid."""
        self.garbage.add(self, BAD_MESSAGE, message.reason or "")

    def again(self, asker: Side, message: Message) -> bool:
        """Return whether a request that this server has not answered will be sent again."""
        if self.link is not None:  # it goes on
            return self._others is not None and self._others.take(asker, message)
        return self.owner.again(asker, message)

    def silent(self, reason: str) -> None:
        """The server answers nothing. It is ended; or, where it has other addresses, these get what
        may be sent twice. The other requests go on: the server may only be busy."""
        if self._others is None or self._others.ends_silent:
            self.end(reason)
            return
        quiet.log(logging.WARNING, "%s: an address gets no requests: %s", self.name, reason)
        self._others.eject("answers nothing")
        self.move_requests("the server answers nothing")

    def end(self, reason: str) -> None:
        """End a connection that cannot be used any more. Its requests fail."""
        if self.link is not None:
            self.ended_for = reason
            self.link.lose(TransportError(reason))

    def refuse(self, message: Message, text: str) -> None:
        """Answer a request of the server with an error."""
        self.session.send_error(message, codes.METHOD_NOT_FOUND, text)
        if self.link is not None:
            self.link.wrote()

    def loss(self, exc: BaseException | None) -> str:
        """Return the text of the error for requests that were not answered."""
        if self.ended_for:
            return f"the server {self.name} was ended: {self.ended_for}"
        return f"the server {self.name} ended before it answered"

    def on_eof(self) -> None:
        """The server writes no more."""
        if self.link is not None:
            self.link.close()

    def clean_up(self, exc: BaseException | None) -> None:
        """The connection is gone: what it was asked fails."""
        super().clean_up(exc)
        self.owner.closed(self)


def _is_of_address(exc: BaseException) -> bool:
    """Whether an error says that an address cannot do its work, whatever the request is."""
    if isinstance(exc, HttpStatusError):
        return exc.status in (502, 503, 504)  # others may be due to the request, or its client
    return isinstance(exc, TransportError)


def remote_error(text: Lease) -> RemoteError:
    """Return the error of an answer."""
    error: Any = None
    with contextlib.suppress(msgspec.DecodeError):  # it is JSON, but more than Python can hold
        error = msgspec.json.decode(text)
    if not isinstance(error, dict) or not is_code(code := error.get("code")):
        return RemoteError(codes.INTERNAL_ERROR, "the error is not valid", None)
    return RemoteError(code, str(error.get("message", "")), error.get("data"))


class InvalidMessages:
    """The invalid messages of a server: they are counted by kind, and too many end the server.

    Attributes:
        counts: How much there was, by kind.
    """

    def __init__(self) -> None:
        self.counts = {BAD_MESSAGE: 0, UNKNOWN_ID: 0}
        self._quiet = RateLimitedLog(logger)
        self._window = 0.0
        self._n = 0

    def add(self, upstream: Upstream, kind: str, text: str) -> None:
        """Count and log one, and end the server if there is too much."""
        self.counts[kind] += 1
        self._quiet.log(logging.WARNING, "%s: %s: %s", upstream.name, kind, text)
        now = upstream.loop.time()
        if now >= self._window + WINDOW:
            self._window, self._n = now, 0
        self._n += 1
        if self._n > MAX_GARBAGE:
            self._n = 0
            upstream.end(f"it wrote more than {MAX_GARBAGE} bad messages within {WINDOW:g} s")


# -- what clients are told -------------------------------------------------------------------------

# The texts of errors name commands, folders, URLs, and what a server or something before it said.
# These are for the log. Clients learn the name of the server and what happened to it.


class ServerLost(TransportError):
    """A server cannot be asked. The text is for clients."""


def is_down(name: str) -> str:
    """Return the text for clients of a server that cannot be used now."""
    return f"the server {name} is down"


def told(name: str, error: BaseException) -> str:
    """Return the text for clients of an error of the connection to a server. The texts of errors
    that the proxy raises itself, and of answers that are not valid, name no place."""
    if isinstance(error, ServerLost | VersionMismatch | InvalidResponse):
        return str(error).partition("\n")[0]
    if isinstance(error, HttpStatusError):
        return f"the server {name} answered with the HTTP status {error.status}"
    if isinstance(error, TimeoutError):
        return f"the server {name} did not answer in time"
    if isinstance(error, AuthorizationError):
        return f"the server {name} does not accept the credentials of the proxy"
    if isinstance(error, ConnectionLost | ConnectionClosed | ChildExited):
        return f"the server {name} was lost before it answered"
    return is_down(name)
