"""The access to the page of the inspector, which runs tools: one browser of one person.

Each start makes three secrets. The key is in the URL that the command prints. The first request
with it gets a cookie, which every further request needs. The path of the page is the third one: a
browser sends cookies to all ports of a host, so a server at another port would learn the cookie if
its path were known.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qs

from wirespeed.transport.gate import Admission, Gate, Refused, digest
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.http.routes import CustomRoute, HttpResponse
from wirespeed.transport.options import HttpRequest, ListenFields, Refusal

COOKIE = "wirespeed-inspector"
MAX_CONNECTIONS = 100
# No answer is for other pages or for caches. Under the policy "no-referrer" a browser without
# scripts would send forms with "Origin: null".
FIELDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
_CLOSED = "this page is closed: open the URL that the command has printed"


class PageAccess:
    """The secrets of one start, and the checks of each request.

    Args:
        port: The port on 127.0.0.1. The page has no other host name.

    Attributes:
        host: The address and port, which every request names as its Host.
        origin: The origin of the page.
        base: The path of the page. All other paths are below it.
    """

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.origin = f"http://{self.host}"
        self.base = f"/{secrets.token_urlsafe(16)}/"
        self._key = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        # Until 0: the listener keeps verdicts by other fields than the cookie.
        self._admission = Admission(None, digest("inspector", self._cookie), until=0)

    @property
    def url(self) -> str:
        """The URL that the command prints. It has the key."""
        return f"{self.origin}/?key={self._key}"

    @property
    def listen_fields(self) -> ListenFields:
        """The options of the listener."""
        return {
            "hosts": (self.host,),
            "origins": (self.origin,),
            "max_connections": MAX_CONNECTIONS,
            "http": HttpOptions(healthz=None),
        }

    def check(self, request: HttpRequest) -> Admission:
        """Return the admission of a request whose Host was checked. Refused: it has no cookie of
        this start, or another page sent it."""
        headers = request.headers
        origin = headers.get("origin")
        changes = request.method not in ("GET", "HEAD")
        if origin != self.origin and (changes or origin is not None):
            raise Refused(Refusal(403, "only the page itself may do this"))
        site = headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" and (changes or site != "none"):
            raise Refused(Refusal(403, "only the page itself may do this"))
        if not any(map(self._is_cookie, headers.get("cookie", "").split(";"))):
            raise Refused(Refusal(403, _CLOSED))
        return self._admission

    def _is_cookie(self, pair: str) -> bool:
        name, _, value = pair.strip().partition("=")
        return name == COOKIE and _same(value, self._cookie)

    async def enter(self, request: HttpRequest) -> HttpResponse:
        """Answer the URL with the key: the browser gets the cookie, and goes to the page."""
        keys = query_of(request).get("key", [""])
        if len(keys) != 1 or not _same(keys[0], self._key):
            return HttpResponse(403, f"{_CLOSED}\n", FIELDS)
        cookie = f"{COOKIE}={self._cookie}; Path={self.base}; HttpOnly; SameSite=Strict"
        fields = {**FIELDS, "Set-Cookie": cookie}
        if request.headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
            return HttpResponse(303, b"", {**fields, "Location": self.base})
        # A redirection would go on as a request of the other site, without the cookie.
        fields["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url={self.base}">\n'
        return HttpResponse(200, page, fields, "text/html; charset=utf-8")


def query_of(request: HttpRequest) -> dict[str, list[str]]:
    """Return the parameters of a request; none if there are too many."""
    try:
        return parse_qs(request.query, max_num_fields=20)
    except ValueError:
        return {}


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


class EntryRoute(CustomRoute):
    """The path of the URL with the key."""

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Check the Host alone. Other pages may link here: without the key that is of no use."""
        gate.check_host(request)
        return Admission(None, None, until=0)

    def drain(self) -> None:
        """Wait for nothing."""
        self.close()


class PageRoute(EntryRoute):
    """A path for the browser with the cookie."""

    access: PageAccess

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Check Host, Origin and the cookie."""
        gate.check_host(request)
        gate.check_origin(request)
        return self.access.check(request)
