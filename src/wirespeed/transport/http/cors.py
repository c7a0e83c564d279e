"""CORS (WHATWG Fetch, "CORS protocol"): what web pages may see of a server, and which requests they
may send. The gate has checked their Origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Fields: TypeAlias = list[tuple[str, str]]

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


def is_preflight(headers: Mapping[str, str]) -> bool:
    """Whether by OPTIONS a browser asks if a page may send a request."""
    return "origin" in headers and "access-control-request-method" in headers


def preflight_fields(headers: Mapping[str, str], methods: Iterable[str]) -> Fields:
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


def public_preflight_fields(methods: Iterable[str]) -> Fields:
    """The same, of a path that every page may read, without credentials."""
    return [
        ("Allow", ", ".join((*methods, "OPTIONS"))),
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Allow-Headers", "*"),
        ("Access-Control-Max-Age", str(PREFLIGHT_AGE)),
    ]


def response_fields(origin: str) -> Fields:
    """The header fields of every other answer to a page of an origin that may connect."""
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", EXPOSED),
        ("Vary", "Origin"),
    ]
