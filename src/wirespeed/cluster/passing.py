"""Requests that one host passes on to another, over connections that are kept.

A host says who it is by a signature (HMAC) in a header field of each request that it passes on. The
field also has the session, and the principal of the client, which the first host has authenticated.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import math
import ssl as ssl_
import time
from collections import OrderedDict
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.errors import TransportError
from wirespeed.peer.http.exchange import refuse
from wirespeed.transport.address import parse
from wirespeed.transport.gate import Admission, Refused
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.pool import HttpPool
from wirespeed.transport.options import OF_SESSION, Refusal, User

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.transport.http.client_connection import HttpCall
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.options import HttpRequest

K = TypeVar("K")
V = TypeVar("V")

FIELD = "wirespeed-member"
HOSTS_PATH = "/.wirespeed/hosts"  # where a host says whether it reaches the store
MISDIRECTED = 421  # RFC 9110 section 15.5.20: a host does not have the session
LOST = "the host that has the session was lost before its answer: the request may have run"
MAX_CONNECTIONS = 10_000  # to one host; each open stream takes one
MAX_SIGNED = 8192  # header fields of hosts that are remembered, in each direction

# Of a request: what belongs to one connection, what the pool writes, what the first host checks.
_OF_REQUESTS = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "origin", "te", "trailer",
        "transfer-encoding", "upgrade", "user-agent", "accept-encoding", "x-forwarded-for", FIELD,
    }
)  # fmt: skip
# The same of a response, and what the writer of a stream writes.
_OF_RESPONSES = frozenset(
    {"connection", "content-length", "date", "keep-alive", "transfer-encoding"}
)
_OF_STREAMS = frozenset({"cache-control", "content-type", "x-accel-buffering"})


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """The statement of a host about a request that it passes on: the client, as its gate has found
    out, and the worker that has the session. Without a session it is about the host itself."""

    session: str = ""
    principal: str | None = None  # in hexadecimal digits
    expires: float | None = None
    user: str | None = None
    scopes: tuple[str, ...] = ()
    worker: int = 0


class HostRequests:
    """The requests that this host and the others pass on to each other.

    Args:
        key: The key of the signatures, the same on all hosts.
        ssl, limits: As of `wirespeed.cluster.SessionHosts`.
    """

    def __init__(self, key: bytes, ssl: ssl_.SSLContext | None, limits: Limits | None) -> None:
        self._key = key
        self._ssl = ssl
        self._limits = limits
        self._pools: dict[str, HttpPool] = {}
        self._fields: OrderedDict[_Said, str] = OrderedDict()  # that this host has signed
        self._verdicts: OrderedDict[str, _Said] = OrderedDict()  # that others have

    async def close(self, but: Container[str] = ()) -> None:
        """Close the connections to all hosts but those at some URLs. What waits for them fails."""
        pools = [self._pools.pop(url) for url in list(self._pools) if url not in but]
        for pool in pools:
            await pool.close()

    async def ask(self, url: str, seconds: float) -> bytes | None:
        """Return the answer of a host at `HOSTS_PATH`; None: it does not answer in time."""
        answer = _Answer(asyncio.get_running_loop().create_future())
        fields = field_lines([(FIELD, self._signed(_Said()))])
        call = self._pool(url).request("GET", HOSTS_PATH, fields, None, answer)
        try:
            async with asyncio.timeout(seconds):
                return await answer.body
        except (TimeoutError, TransportError):
            call.abort()
            return None

    def pass_on(
        self,
        exchange: Exchange,
        owner: str,
        url: str,
        body: bytes,
        otherwise: Callable[[str | None], None],
    ) -> None:
        """Answer a request of a client with the response of another host, of whose processes the
        owner has the session. ``otherwise`` is called in place of this: with the owner, if it says
        that it does not have the session, and with None, if the host is not reached."""
        headers = exchange.headers
        target = exchange.path + (f"?{exchange.query}" if exchange.query else "")
        client = exchange.address
        if "x-forwarded-for" in headers:
            client = f"{headers['x-forwarded-for']}, {client}"
        fields = [one for one in headers.items() if one[0] not in _OF_REQUESTS]
        fields.append(("X-Forwarded-For", client))
        user = exchange.user
        said = _Said(
            headers["mcp-session-id"],
            None if exchange.principal is None else exchange.principal.hex(),
            None if exchange.expires == math.inf else exchange.expires,
            None if user is None else str(user),
            () if user is None else tuple(sorted(user.scopes)),
            int(owner.partition(".")[2]),
        )
        fields.append((FIELD, self._signed(said)))
        passing = _Passing(exchange, owner, otherwise)
        passing.call = self._pool(url).request(
            exchange.method, target, field_lines(fields), body or None, passing
        )

    def _pool(self, url: str) -> HttpPool:
        pool = self._pools.get(url)
        if pool is None:
            pool = self._pools[url] = HttpPool(
                parse(url),
                loop=asyncio.get_running_loop(),
                ssl=self._ssl,
                limits=self._limits,
                max_connections=MAX_CONNECTIONS,
                max_redirects=0,
            )
        return pool

    def is_passed_on(self, headers: Headers) -> bool:
        """Return whether another host has passed a request on to this one."""
        return FIELD in headers

    def worker_of(self, headers: Headers) -> int | None:
        """Return the worker that another host names in a request that it passes on; None: no host
        does."""
        given = headers.get(FIELD)
        said = None if given is None else self._verified(given)
        return None if said is None else said.worker

    def admission(self, request: HttpRequest) -> Admission | None:
        """Return the admission of a request that another host passes on; None: it is a client's.
        Refused: the sender is not one of the hosts."""
        given = request.headers.get(FIELD)
        if given is None:
            return None
        said = self._verified(given)
        # one without a session speaks for the host alone, which asks for nothing else
        if (
            said is None
            or said.session != request.headers.get("mcp-session-id", "")
            or (not said.session and request.path != HOSTS_PATH)
        ):
            raise Refused(Refusal(403, f"{FIELD} is not that of one of the hosts"))
        if said.expires is not None and said.expires <= time.time():
            raise Refused(Refusal(401, "the credentials of the client have expired"))
        return Admission(
            None if said.user is None else User(said.user, said.scopes, OF_SESSION),
            None if said.principal is None else bytes.fromhex(said.principal),
            0,
            math.inf if said.expires is None else said.expires,
        )

    def _signed(self, said: _Said) -> str:
        """Return the header field with what this host says of a client, and its signature."""
        field = self._fields.get(said)
        if field is None:
            text = msgspec.json.encode(said)
            mac = hmac.digest(self._key, text, "sha256")
            field = ".".join(base64.urlsafe_b64encode(one).decode() for one in (text, mac))
            _keep(self._fields, said, field)
        return field

    def _verified(self, field: str) -> _Said | None:
        """Return what a host says in a header field; None: none of the hosts has signed it."""
        said = self._verdicts.get(field)
        if said is None:
            try:
                text = base64.urlsafe_b64decode(field.partition(".")[0])
                mac = base64.urlsafe_b64decode(field.partition(".")[2])
                if not hmac.compare_digest(hmac.digest(self._key, text, "sha256"), mac):
                    return None
                said = msgspec.json.decode(text, type=_Said)
            except ValueError:
                return None
            _keep(self._verdicts, field, said)
        return said


class _Answer:
    """The answer of another host to a question of this one.

    Attributes:
        body: Its body; TransportError: there is none.
    """

    def __init__(self, body: asyncio.Future[bytes]) -> None:
        self.body = body

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None: ...

    def on_body(self, data: Any) -> None:
        if not self.body.done():
            self.body.set_result(bytes(data))

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None: ...

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        if not self.body.done():
            self.body.set_exception(exc or TransportError("the host has no answer"))


class _Passing:
    """A request that is passed on: it receives the response, which the client gets."""

    def __init__(
        self, exchange: Exchange, owner: str, otherwise: Callable[[str | None], None]
    ) -> None:
        self._exchange = exchange
        self._owner = owner
        self._otherwise = otherwise
        self._status = 0
        self._fields: list[tuple[str, str]] = []
        self._streams = False
        self.call: HttpCall | None = None
        exchange.on_gone = self._gone
        exchange.on_drained = self._drained

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        left_out = _OF_RESPONSES | _OF_STREAMS if streaming else _OF_RESPONSES
        self._status = status
        self._fields = [(name, value) for name, value in headers.items() if name not in left_out]
        self._streams = streaming
        if streaming:
            self._exchange.open_stream(self._fields)

    def on_body(self, data: Any) -> None:
        if self._status != MISDIRECTED:
            self._exchange.respond(self._status, bytes(data), self._fields)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        lines = []
        if retry is not None:
            lines.append(b"retry: %d\n" % retry)
        if id is not None:
            lines.append(b"id: %b\n" % id.encode())
        if event != "message":
            lines.append(b"event: %b\n" % event.encode())
        text = bytes(data)
        if text or id is not None:
            lines += [b"data: %b\n" % line for line in text.split(b"\n")]
        self._exchange.send_text(b"%b\n" % b"".join(lines))
        carrier = self._exchange.carrier
        if self.call is not None and carrier is not None:
            self.call.paused = len(carrier.wire.outbox) >= carrier.wire.limits.output_high

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        self.call = None
        exchange = self._exchange
        exchange.on_gone = exchange.on_drained = None
        if exchange.status:
            if self._streams:
                exchange.close_stream()  # the client comes back for the rest
        elif exc is None or not sent:
            self._otherwise(self._owner if exc is None else None)
        else:
            refuse(exchange, 502, LOST)

    def _drained(self) -> None:
        if self.call is not None:
            self.call.paused = False

    def _gone(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.abort()


def _keep(found: OrderedDict[K, V], key: K, value: V) -> None:
    """Remember one more of the last `MAX_SIGNED`."""
    found[key] = value
    if len(found) > MAX_SIGNED:
        found.popitem(last=False)
