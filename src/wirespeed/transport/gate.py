"""Access checks of an HTTP request before it is served: Host, Origin and bearer token; and the
address of its client behind proxies (RFC 7239, and X-Forwarded-For).

`wirespeed.ListenOptions` describes the order and the defaults. A service may have an `Authority` of
its own in place of the token (`wirespeed.auth.ResourceServer` is one).
"""

import contextlib
import hashlib
import hmac
import inspect
import ipaddress
import logging
import math
import re
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import shortened
from wirespeed.transport.address import Address, is_loopback, networks
from wirespeed.transport.headers import Headers
from wirespeed.transport.options import HttpRequest, ListenOptions, Refusal, User, Verdict
from wirespeed.transport.service import has_capability

logger = logging.getLogger("wirespeed.server")

_HOST = re.compile(
    r"(?P<host>\[[0-9a-f:.%]+\]|[^\[\]:/?#@\s]+)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>[^/?#@\s]+)", re.IGNORECASE)
_PORTS = {"http": "80", "https": "443"}
HOW_TO_NAME = "name it with hosts=[...], --host-name or hosts of the proxy's file"


class Refused(Exception):
    """A client is refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class Admission(NamedTuple):
    """A client that may come in.

    Attributes:
        user: The user that ``authenticate`` returned; None without one.
        principal: A digest of the user, or else of the token; None without both.
        until: Up to which time, in Unix seconds, requests with the same header fields may be
            admitted without asking again; 0 for none.
        expires: When the credentials end, in Unix seconds. Streams and WebSockets end then.
        fields: More header fields of the response.
    """

    user: User | None
    principal: bytes | None
    until: float = math.inf
    expires: float = math.inf
    fields: Sequence[tuple[str, str]] = ()


NOBODY = Admission(None, None)


class Authority(Protocol):
    """The decision who may use one service."""

    def check(self, request: HttpRequest) -> Admission | Awaitable[Admission]:
        """Return the admission of a client, whose Host and Origin were checked. Refused: the client
        may not come in."""
        ...


def check_authorities(services: Iterable[Any], options: ListenOptions) -> None:
    """ValueError: both a service and the options of its listener decide who may come in."""
    if options.token is None and options.authenticate is None:
        return
    for service in services:
        if authority_of(service) is not None:
            given = "authenticate" if options.token is None else "token"
            raise ValueError(f"auth or principals decide who may come in: remove {given}")


class HasAuthority(Protocol):
    """A service whose ``auth`` decides who may use it, in place of the token and the
    ``authenticate`` of the listener. None: these decide."""

    @property
    def auth(self) -> Authority | None: ...


def authority_of(service: object) -> Authority | None:
    """The `Authority` of a service. None: the options of the listener decide."""
    return service.auth if has_capability(service, HasAuthority) else None


class Gate:
    """The rules of one listener.

    Args:
        options: The options of the listener.
        address: The address of the URL.
        local: Whether only this machine can reach the listener.
    """

    def __init__(self, options: ListenOptions, address: Address, *, local: bool) -> None:
        self.local = local
        self.own_name = address.host.lower()
        self.is_file = bool(address.file)  # no web page can reach it, whatever it is called
        self.tokens = [token.encode() for token in options.tokens]
        self.authenticate = options.authenticate
        self.on_refused = options.on_refused
        self.hosts = None if options.hosts is None else [_rule(host) for host in options.hosts]
        self.any_host = self.hosts is not None and ("*", "") in self.hosts
        self.origins = (
            None if options.origins is None else {_normal_origin(o) for o in options.origins}
        )
        # A host name is not proof: anybody may point a name at this machine (DNS rebinding).
        self.trusts_names = not self.any_host and (self.hosts is not None or local)

    # -- Host --------------------------------------------------------------------------------------

    def check_page(self, request: HttpRequest) -> None:
        """Refused unless Host is a name of this server, and the web page that sends the request may
        connect."""
        with self._noted(request):
            self.check_host(request)
            self.check_origin(request)

    @contextlib.contextmanager
    def _noted(self, request: HttpRequest) -> Iterator[None]:
        """Tell `on_refused` of a refusal."""
        try:
            yield
        except Refused as exc:
            if self.on_refused is not None:
                self.on_refused(request, exc.refusal)
            raise

    def check_host(self, request: HttpRequest) -> None:
        """Refused unless Host is a name of this server (RFC 9110 section 7.2)."""
        found = _HOST.fullmatch(request.headers.get("host", ""))
        if found is None:
            raise Refused(Refusal(400, "the request needs one valid Host header field"))
        host, port = _normal_host(found["host"]), found["port"] or ""
        if self.hosts is None:
            good = not self.local or self.is_file or is_loopback(host) or host == self.own_name
        else:
            good = self.any_host or any(
                host == name and wanted in ("", port) for name, wanted in self.hosts
            )
        if not good:
            name = shortened(request.headers["host"])
            raise Refused(
                Refusal(403, f"the server is not known by the Host {name}: {HOW_TO_NAME}")
            )

    # -- Origin ------------------------------------------------------------------------------------

    def check_origin(self, request: HttpRequest) -> None:
        """Refused for a web page that may not connect (RFC 6455 section 10.2). Programs other than
        browsers send no Origin, and pass."""
        origin = request.headers.get("origin")
        if origin is None:
            return
        if self.origins is not None:
            normal = _normal_origin(origin)
            any_port = re.sub(r":[0-9]+$", "", normal) + ":*"
            good = bool(self.origins & {"*", normal, any_port})
        else:
            good = self._is_own(origin, request.headers)
        if not good:
            raise Refused(Refusal(403, "this Origin may not connect"))

    def _is_own(self, origin: str, headers: Headers) -> bool:
        found = _ORIGIN.fullmatch(origin)
        place = None if found is None else _HOST.fullmatch(found["rest"])
        if found is None or place is None:
            return False  # sandboxed pages and files have the origin "null"
        host = _normal_host(place["host"])
        if self.local and is_loopback(host):
            return True
        asked = _HOST.fullmatch(headers.get("host", ""))
        if asked is None or _normal_host(asked["host"]) != host:
            return False
        default = _PORTS.get(found["scheme"].lower())
        if (place["port"] or default) != (asked["port"] or default):
            return False
        return self.trusts_names or _is_address(host)

    # -- token -------------------------------------------------------------------------------------

    def check(
        self,
        request: HttpRequest,
        auth_headers: Sequence[str],
        refusal_status: int,
        authority: Authority | None = None,
    ) -> Admission | Awaitable[Admission]:
        """Check Host, Origin and the token (RFC 6750), and call `authenticate`. An awaitable is
        returned only where ``authenticate`` or the authority returns one. Refused: a check failed.

        Args:
            request: The request.
            auth_headers: The header fields, in lower case, that may bring a token.
            refusal_status: The status for a missing or wrong token.
            authority: What decides in place of the options of the listener.
        """
        with self._noted(request):
            found = self._check(request, auth_headers, refusal_status, authority)
        if self.on_refused is None or not inspect.isawaitable(found):
            return found
        return self._decided(request, found)

    async def _decided(self, request: HttpRequest, found: Awaitable[Admission]) -> Admission:
        with self._noted(request):
            return await found

    def _check(
        self,
        request: HttpRequest,
        auth_headers: Sequence[str],
        refusal_status: int,
        authority: Authority | None,
    ) -> Admission | Awaitable[Admission]:
        self.check_host(request)
        self.check_origin(request)
        if authority is not None:
            return authority.check(request)
        if not self.tokens and self.authenticate is None:
            return NOBODY
        brought = [request.headers[name] for name in auth_headers if name in request.headers]
        tokens = [bearer(value) for value in brought]
        token = tokens[0] if tokens else None
        challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"' if brought else "Bearer"}
        if refusal_status != 401:
            challenge = {}
        if any(other != token for other in tokens[1:]):
            names = " and ".join(name.title() for name in auth_headers)
            raise Refused(Refusal(refusal_status, f"{names} differ", challenge))
        if self.authenticate is not None:
            asked = msgspec.structs.replace(request, token=token)
            refusal = Refusal(refusal_status, "not authorized", challenge)
            return self._ask(asked, refusal)
        if token is None:
            raise Refused(Refusal(refusal_status, "a bearer token is needed", challenge))
        # all tokens are compared, so that the time does not depend on the match
        given = token.encode("latin-1", "replace")
        if not sum([hmac.compare_digest(given, good) for good in self.tokens]):
            raise Refused(Refusal(refusal_status, "the bearer token is not valid", challenge))
        return Admission(None, digest("token", token))

    def _ask(self, request: HttpRequest, refusal: Refusal) -> Admission | Awaitable[Admission]:
        """Call `authenticate`. A missing return value refuses the client. ``refusal``: that of a
        client for whom it returns False."""
        assert self.authenticate is not None
        with _logged(request):
            verdict = self.authenticate(request)
        if inspect.isawaitable(verdict):
            return self._wait(request, refusal, verdict)
        return _obey(request, refusal, verdict)

    async def _wait(
        self, request: HttpRequest, refusal: Refusal, verdict: Awaitable[Verdict]
    ) -> Admission:
        with _logged(request):
            decided = await verdict
        return _obey(request, refusal, decided)


@contextlib.contextmanager
def _logged(request: HttpRequest) -> Iterator[None]:
    """An exception of `authenticate` is logged and refuses the client."""
    try:
        yield
    except Exception:
        logger.exception("authenticate failed for %s", request.peer)
        raise Refused(Refusal(500, "internal error")) from None


def _obey(request: HttpRequest, refusal: Refusal, verdict: Verdict) -> Admission:
    """Return what the verdict of `authenticate` admits. Refused: it admits nothing."""
    with _logged(request):
        if not isinstance(verdict, (bool, str, Refusal)) or verdict == "":
            raise TypeError(
                "authenticate must return True, False, the name of a user or a Refusal, "
                f"not {verdict!r:.50}"
            )
    if verdict is False:
        raise Refused(refusal)
    if isinstance(verdict, Refusal):
        if verdict.status == 401 and "www-authenticate" not in Headers(verdict.headers):
            challenge = refusal.headers.get("WWW-Authenticate", "Bearer")
            verdict = Refusal(
                401, verdict.reason, {**verdict.headers, "WWW-Authenticate": challenge}
            )
        raise Refused(verdict)
    if isinstance(verdict, str):
        user = verdict if isinstance(verdict, User) else User(verdict)
        return Admission(user, digest("user", verdict), 0)
    token = request.token
    return Admission(None, None if token is None else digest("token", token), 0)


def digest(kind: str, who: str) -> bytes:
    """The principal of a client: ``kind`` says what it is known by."""
    return hashlib.sha256(f"{kind}:{who}".encode("utf-8", "surrogatepass")).digest()


def bearer(value: str) -> str | None:
    """Return the token of a header field ``Bearer token``; None for any other field."""
    scheme, _, token = value.strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def _normal_host(host: str) -> str:
    host = host.lower().removesuffix(".")
    return host[1:-1] if host.startswith("[") else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _rule(host: str) -> tuple[str, str]:
    """Split an entry of ``hosts`` into name and port. An empty part matches every value."""
    if host == "*":
        return "*", ""
    found = _HOST.fullmatch(host)
    if found is None and _is_address(host):
        return host.lower(), ""  # IPv6 without brackets
    if found is None:
        raise ValueError(f"{host!r} is not a host name: use a name, name:port or *")
    return _normal_host(found["host"]), found["port"] or ""


def _normal_origin(origin: str) -> str:
    """Return an origin in its form for comparison: lower case, without the default port."""
    origin = origin.lower().removesuffix("/")
    port = _PORTS.get(origin.partition("://")[0])
    return origin if port is None else origin.removesuffix(f":{port}")


class Forwarded:
    """Finds clients behind trusted proxies.

    Args:
        trusted: The addresses and networks of the proxies.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = networks(trusted)

    def peer(self, sender: str, headers: Headers) -> str:
        """The address of the client: the nearest one that is not a trusted proxy.

        The fields are read from the right, as far as proxies are trusted that wrote them. Where
        both fields are there and name different clients, one of them was not written by the proxy:
        then neither counts.

        Args:
            sender: Who sent the request, as ``address:port``.
            headers: The header fields of the request.
        """
        found = {
            self._client(sender, list(read(headers[name])))
            for name, read in (("x-forwarded-for", _plain), ("forwarded", _forwarded))
            if name in headers
        }
        return found.pop() if len(found) == 1 else sender

    def _client(self, sender: str, chain: list[str]) -> str:
        nearest = sender
        while self._trusts(nearest) and chain:
            hop = _address(chain.pop())
            if hop is None:
                break  # hidden, or not an address: the proxy is all that is known
            nearest = str(hop)
        return nearest

    def _trusts(self, place: str) -> bool:
        address = _address(place)
        return address is not None and any(address in network for network in self._trusted)


def _plain(value: str) -> Iterator[str]:
    return map(str.strip, value.split(","))


def _forwarded(value: str) -> Iterator[str]:
    """Each node of ``for=``. A comma always divides: no address has one, and a quotation mark that
    a client left open must not swallow what a proxy added behind it."""
    for element in value.split(","):
        pairs = (pair.strip().partition("=") for pair in element.split(";"))
        nodes = [node.strip('"') for name, _, node in pairs if name.lower() == "for"]
        yield nodes[0] if len(nodes) == 1 else ""


def _address(place: str) -> IPv4Address | IPv6Address | None:
    """The address of a hop, with or without a port; None for any other text."""
    if place.startswith("["):
        place = place[1:].partition("]")[0]
    elif place.count(":") == 1:
        place = place.partition(":")[0]
    try:
        found = ip_address(place)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


set_public_home(globals())
