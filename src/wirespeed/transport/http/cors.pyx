"""CORS (WHATWG Fetch, "CORS protocol"): the web pages whose requests a connection takes, and what
they may see. The gate has checked their Origin."""

cimport cython

import re

from wirespeed._core.framing.http.fields cimport HOST, ORIGIN
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.transport.http.targets cimport is_known

from wirespeed._core.framing.http.writer import field_lines

METHODS = ("GET", "POST", "DELETE")  # of MCP
PREFLIGHT_AGE = 7200  # seconds; Chromium keeps the answer of a preflight no longer
ALLOWED = (
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "mcp-method",
    "mcp-name",
)
EXPOSED = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"

_PARAM = re.compile(r"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]+")


def is_preflight(headers):
    """Whether by OPTIONS a browser asks if a page may send a request."""
    return "origin" in headers and "access-control-request-method" in headers


def preflight_fields(headers, methods):
    """The header fields of the answer to a preflight. ``methods``: those of the path.

    All fields of MCP are allowed. The names of ``Mcp-Param-*`` depend on the tools, so those are
    allowed that the browser asks for. ``*`` would not cover Authorization.
    """
    asked = headers.get("access-control-request-headers", "").lower().split(",")
    params = [name for name in map(str.strip, asked) if _PARAM.fullmatch(name)]
    return [
        ("Access-Control-Allow-Origin", headers["origin"]),
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Allow-Headers", ", ".join((*ALLOWED, *params))),
        ("Access-Control-Max-Age", str(PREFLIGHT_AGE)),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]


def public_preflight_fields(methods):
    """The same, of a path that every page may read, without credentials."""
    return [
        ("Allow", ", ".join((*methods, "OPTIONS"))),
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Allow-Headers", "*"),
        ("Access-Control-Max-Age", str(PREFLIGHT_AGE)),
    ]


def response_fields(str origin not None):
    """The header fields of every other answer to a page of an origin that may connect."""
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED),
        ("Vary", "Origin"),
    ]


@cython.final
cdef class PageOrigin:
    """The origin of a web page that the gate let in.

    Args:
        origin: The header field of its requests.
        host: The same; None where the target of the request has the host.
    """

    def __init__(self, bytes origin not None, bytes host):
        self.origin = origin
        self.host = host
        self.fields = tuple(response_fields(origin.decode("latin-1")))
        self.lines = field_lines(self.fields)

    cdef bint sends_c(self, HttpHead head) noexcept:
        return (
            head.n_authority == 0 and not head.twice_c(ORIGIN)
            and is_known(head, ORIGIN, self.origin)
            and is_known(head, HOST, self.host)
        )
