"""The admin listener: what it serves at which path, and to whom."""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from wirespeed.limits import Limits
from wirespeed.proxy.operation import exposition
from wirespeed.proxy.operation.meter import TICK
from wirespeed.proxy.operation.metrics import families
from wirespeed.proxy.operation.neighbours import Neighbours
from wirespeed.proxy.operation.recent import Recent
from wirespeed.proxy.operation.snapshot import Snapshot, merged, take
from wirespeed.proxy.operation.states import READY, is_required, state_of
from wirespeed.proxy.operation.status import Facts, status
from wirespeed.proxy.operation.turns import in_turns
from wirespeed.transport.gate import NOBODY, Admission, Refused, bearer, digest
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.http.routes import CustomRoute, HttpResponse, send
from wirespeed.transport.options import HttpRequest, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from wirespeed.proxy.service import ProxyService
    from wirespeed.transport.gate import Gate
    from wirespeed.transport.http.options import HttpOptions, RouteHandler
    from wirespeed.transport.taskpool import TaskPool

# No answer is for another page, nor for a cache.
_FIELDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_KNOWS_HOST = Admission(None, digest("host", "known"))
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
    """Lets in who brings the token: as a bearer token, or as the password of HTTP Basic, which
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
        services: Callable[[], Iterable[ProxyService]],
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
            self._neighbours.serve(self._worker, self.take)

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
            await asyncio.sleep(TICK - time.monotonic() % TICK)

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
        """The members of the answer of ``/status``."""
        return status(await self.snapshot(), self._facts())

    # -- pages -----------------------------------------------------------------------------------

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """The status page."""
        return self._guarded(self._page)

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """The other paths."""
        return {
            "/status": self._guarded(self._status),
            "/metrics": self._guarded(self._metrics),
            "/readyz": Readiness(self._services, self._facts),
        }

    def _guarded(self, handler: RouteHandler) -> Guarded:
        target = Guarded({"GET": handler, "HEAD": handler}, asyncio.get_running_loop())
        target.authority = self.auth
        return target

    async def _page(self, request: HttpRequest) -> HttpResponse:
        from wirespeed.proxy.operation.page import POLICY, page

        text = page(await self.status())
        fields = {**_FIELDS, "Content-Security-Policy": POLICY}
        return HttpResponse(200, text, fields, "text/html; charset=utf-8")

    async def _status(self, request: HttpRequest) -> HttpResponse:
        body = msgspec.json.encode(await self.status())
        return HttpResponse(200, body, _FIELDS, "application/json")

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        is_open = exposition.wants_open_metrics(request.headers.get("accept", ""))
        found = families(await self.snapshot(), self._facts())
        media_type = exposition.OPEN_METRICS if is_open else exposition.PLAIN
        text = exposition.text_of(found, open_metrics=is_open)
        return HttpResponse(200, text, _FIELDS, media_type)


class Guarded(CustomRoute):
    """A route for those with the token."""

    def admit(self, gate: Gate, request: HttpRequest) -> Any:
        """Check Host, Origin and the token."""
        return HttpTarget.admit(self, gate, request)


class Readiness(HttpTarget):
    """Answers whether this process can serve, to everyone: a probe knows no token, and may name no
    host or any. Below its path it answers for each server by its name. The names of servers are for
    clients that name the host of the listener: a web page that has pointed its own name at this
    machine learns the state alone."""

    methods = ("GET", "HEAD")
    answers_below = True

    def __init__(
        self, services: Callable[[], Iterable[ProxyService]], facts: Callable[[], Facts]
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
