"""The admin listener: its paths and their access, the actions of an operator, and the last
warnings and errors."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import msgspec

from wirespeed.errors import WirespeedError
from wirespeed.limits import Limits
from wirespeed.proxy.operation.meter import end_of_tick, in_turns
from wirespeed.proxy.operation.metrics import (
    OPEN_METRICS,
    PLAIN,
    families,
    text_of,
    wants_open_metrics,
)
from wirespeed.proxy.operation.snapshot import (
    READY,
    Event,
    Facts,
    Snapshot,
    is_required,
    state_of,
    take,
)
from wirespeed.proxy.operation.status import status
from wirespeed.proxy.operation.workers import Neighbours, merged
from wirespeed.transport.gate import NOBODY, Admission, Refused, bearer, digest
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.http.routes import CustomRoute, HttpResponse, send
from wirespeed.transport.options import HttpRequest, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wirespeed.proxy.operation.snapshot import ProxyEndpoint
    from wirespeed.transport.gate import Gate
    from wirespeed.transport.http.options import HttpOptions, RouteHandler
    from wirespeed.transport.taskpool import TaskPool

MAX_EVENTS = 50  # warnings and errors that are kept
MAX_TEXT = 500  # characters of one of them
ACTIONS = ("drain", "resume", "restart", "logout")  # that an operator can take at a server
LOGGERS = ("wirespeed.proxy", "wirespeed.server")
# No answer is for another page, nor for a cache.
_FIELDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_KNOWS_HOST = Admission(None, digest("host", "known"))
_NO_PAGE = "the status page needs the package jinja2: pip install 'wirespeed[proxy]'\n"
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="wirespeed proxy", charset="UTF-8"'}


def make_token() -> str:
    """Make a token for this start, and tell it to the operator. It is written to stderr, and
    neither to the log nor to a file, which would outlive it."""
    token = secrets.token_urlsafe(24)
    if sys.stderr is not None:
        sys.stderr.write(f"wirespeed: the token of the admin listener is {token}\n")
        sys.stderr.flush()
    return token


class TokenAuthority:
    """The check of the token. It comes as a bearer token, or as the password of HTTP Basic, which
    browsers ask people for."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._admission = Admission(None, digest("token", token))

    def check(self, request: HttpRequest) -> Admission:
        """Return the admission. Refused: the token is wrong."""
        given = _token(request.headers.get("authorization", ""))
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            raise Refused(Refusal(401, "the token of the admin listener is needed", _CHALLENGE))
        return self._admission


def _token(field: str) -> str:
    scheme, _, rest = field.strip().partition(" ")
    if scheme.lower() != "basic":
        return bearer(field) or ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except ValueError:  # not Base64, or not text
        return ""


class AdminService:
    """A `wirespeed.transport.service.Service` without clients of a protocol: it answers HTTP.

    Args:
        services: Returns the endpoints of the proxy.
        facts: Returns what the proxy knows besides its numbers.
        token: What everyone has to bring, but probes.

    Attributes:
        events: The last warnings and errors.
    """

    name = "admin"
    subprotocol = None
    auth_headers = ("authorization",)
    refusal_status = 401
    limits = Limits(max_message=1 << 16)
    shutdown_grace = 1.0
    drains_last = True

    def __init__(
        self,
        services: Callable[[], Iterable[ProxyEndpoint]],
        facts: Callable[[], Facts],
        token: str,
    ) -> None:
        self.auth = TokenAuthority(token)
        self.events = Recent()
        self._services = services
        self._facts = facts
        self._started = time.time()
        self._worker = 0
        self._neighbours: Neighbours | None = None
        self._sampling: asyncio.Task[None] | None = None

    # -- its life --------------------------------------------------------------------------------

    def before_fork(self, n: int) -> None:
        """The process will fork ``n`` workers."""
        self._neighbours = Neighbours(n)

    def after_fork(self, worker: int) -> None:
        """This is one of the workers."""
        self._worker = worker

    async def hold(self) -> None:
        """Begin to watch."""
        self.events.start()
        self._sampling = asyncio.ensure_future(self._sample())
        if self._neighbours is not None:
            self._neighbours.serve(self._worker, self.take, self._obey)

    async def release(self, held: None) -> None:
        """Watch no more."""
        self.events.stop()
        if self._neighbours is not None:
            self._neighbours.stop(self._worker)
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait((self._sampling,))

    async def _sample(self) -> None:
        while True:
            for service in self._services():
                service.meter.sample()
            await end_of_tick()

    # -- numbers ---------------------------------------------------------------------------------

    async def take(self) -> Snapshot:
        """Read the numbers of this process."""
        events = list(self.events.events)
        return await in_turns(
            take(self._services(), self._facts(), self._started, events, self._worker)
        )

    async def snapshot(self) -> Snapshot:
        """Read the numbers of all workers."""
        mine = await self.take()
        if self._neighbours is None:
            return mine
        others, missing = await self._neighbours.ask(self._worker)
        return merged([mine, *others], missing)

    async def status(self) -> dict[str, Any]:
        """Return the members of the answer of ``/status``."""
        return status(await self.snapshot(), self._facts())

    # -- pages -----------------------------------------------------------------------------------

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return the status page."""
        return self._guarded(self._page)

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """Return the other paths."""
        return {
            "/status": self._guarded(self._status),
            "/metrics": self._guarded(self._metrics),
            "/readyz": Readiness(self._services, self._facts),
            **{f"/{action}": Control(self._control, self.auth) for action in ACTIONS},
        }

    def _guarded(self, handler: RouteHandler) -> Guarded:
        target = Guarded({"GET": handler, "HEAD": handler}, asyncio.get_running_loop())
        target.authority = self.auth
        return target

    # -- actions of an operator --------------------------------------------------------------------

    async def _obey(self, name: str, action: str, principal: str) -> str:
        """Carry out an action at a server of this process, and return the outcome in words.
        ``principal``: of a logout. LookupError: no server has this name. ValueError: the action is
        not possible."""
        found = [one for one in self._services() if one.config and one.name == name]
        if not found:
            raise LookupError(f"there is no server {name[:100]}")
        return await found[0].control(action, principal)

    async def _control(self, request: HttpRequest) -> HttpResponse:
        """Carry out an action at a server, in all workers."""
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is not None and origin != f"http://{host}":  # nor a page of another port
            return HttpResponse(403, "this page may not do that\n", _FIELDS)
        action, _, name = request.path[1:].partition("/")
        wanted = unquote(name), action, parse_qs(request.query).get("principal", [""])[0]
        missing: list[int] = []
        try:
            outcome = await self._obey(*wanted)
            if self._neighbours is not None:
                missing = await self._neighbours.tell(self._worker, *wanted)
        except LookupError as exc:
            return HttpResponse(404, f"{exc.args[0]}\n", _FIELDS)
        except ValueError as exc:
            return HttpResponse(400, f"{exc}\n", _FIELDS)
        except WirespeedError as exc:  # the authorization server does not revoke the tokens
            return HttpResponse(502, f"{str(exc).partition(chr(10))[0]}\n", _FIELDS)
        if missing:
            text = f"no answer from worker {', '.join(map(str, missing))}\n"
            return HttpResponse(502, text, _FIELDS)
        return HttpResponse(200, f"{outcome}\n", _FIELDS)

    async def _page(self, request: HttpRequest) -> HttpResponse:
        try:  # in a thread: clients of the proxy are not to wait for a page
            text, policy = await asyncio.to_thread(_drawn, await self.status())
        except ModuleNotFoundError as exc:
            if exc.name != "jinja2":
                raise
            return HttpResponse(501, _NO_PAGE, _FIELDS)
        fields = {**_FIELDS, "Content-Security-Policy": policy}
        return HttpResponse(200, text, fields, "text/html; charset=utf-8")

    async def _status(self, request: HttpRequest) -> HttpResponse:
        body = msgspec.json.encode(await self.status())
        return HttpResponse(200, body, _FIELDS, "application/json")

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        is_open = wants_open_metrics(request.headers.get("accept", ""))
        found = families(await self.snapshot(), self._facts())
        media_type = OPEN_METRICS if is_open else PLAIN
        text = text_of(found, open_metrics=is_open)
        return HttpResponse(200, text, _FIELDS, media_type)


def _drawn(status: dict[str, Any]) -> tuple[str, str]:
    """Return the status page, and its Content-Security-Policy. ModuleNotFoundError: jinja2 is not
    installed."""
    from wirespeed.proxy.operation.page import POLICY, page

    return page(status), POLICY


class Guarded(CustomRoute):
    """A route for those with the token."""

    def admit(self, gate: Gate, request: HttpRequest) -> Any:
        """Check Host, Origin and the token."""
        return HttpTarget.admit(self, gate, request)


class Control(Guarded):
    """The path of an action. The names of servers are below it."""

    answers_below = True

    def __init__(self, handler: RouteHandler, authority: TokenAuthority) -> None:
        super().__init__({"POST": handler}, asyncio.get_running_loop())
        self.authority = authority


class Readiness(HttpTarget):
    """The answer whether this process can serve. Everyone gets it: a probe knows no token, and may
    name no host or any. Below its path it answers for each server by its name. The names of servers
    are for clients that name the host of the listener: a web page that has pointed its own name at
    this machine learns the state alone."""

    methods = ("GET", "HEAD")
    answers_below = True

    def __init__(
        self, services: Callable[[], Iterable[ProxyEndpoint]], facts: Callable[[], Facts]
    ) -> None:
        self._services = services
        self._facts = facts
        self._leaving = False

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Let everyone in."""
        try:
            gate.check_host(request)
            gate.check_origin(request)
        except Refused:
            return NOBODY
        return _KNOWS_HOST

    def take(self, exchange: Exchange, body: bytes) -> None:
        if exchange.method not in self.methods:
            send(exchange, HttpResponse(405, "", {"Allow": "GET, HEAD, OPTIONS"}))
            return
        _, _, rest = exchange.path[1:].partition("/")
        asked = [one for one in self._services() if is_required(one)]
        if rest:
            asked = [one for one in self._services() if one.config and one.name == unquote(rest)]
            if not asked:
                send(exchange, HttpResponse(404, "there is no server of this name\n", _FIELDS))
                return
        found = [one.name for one in asked if state_of(one) not in READY]
        if self._leaving or self._facts().draining:
            response = HttpResponse(503, "the proxy is shutting down\n", _FIELDS)
        elif found:
            names = f": {', '.join(found)}" if exchange.principal is not None else ""
            response = HttpResponse(503, f"not ready{names}\n", _FIELDS)
        else:
            response = HttpResponse(200, "ready\n", _FIELDS)
        send(exchange, response)

    def leave(self) -> None:
        self._leaving = True


# -- the last warnings and errors ------------------------------------------------------------------


def _short(text: str) -> str:
    """Return the first line of a text, and the last one if the first one promises it."""
    first, _, rest = text.strip().partition("\n")
    if first.endswith(":") and rest:
        first += f" {rest.rpartition(chr(10))[2].strip()}"
    return first if len(first) <= MAX_TEXT else f"{first[: MAX_TEXT - 1]}…"


class Recent(logging.Filter):
    """The warnings and errors of the proxy's loggers. It is a filter that lets everything through,
    because a further handler would silence the one that `logging` has for programs without any."""

    def __init__(self) -> None:
        super().__init__()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a record."""
        if record.levelno >= logging.WARNING:
            try:
                text = _short(record.getMessage())
            except Exception:  # the handlers will tell
                return True
            last = self.events[-1] if self.events else None
            if last is not None and last.text == text:
                last.at, last.times = record.created, last.times + 1
            else:
                self.events.append(Event(record.created, record.levelname.lower(), text))
        return True

    def start(self) -> None:
        """Begin to listen."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def stop(self) -> None:
        """Listen no more."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
