"""HTTP answers without a JSON-RPC response: statuses by their meaning, and the errors of these."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from wirespeed.errors import ConnectionLost, HttpStatusError, shortened
from wirespeed.transport.address import Address, parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wirespeed.transport.headers import Headers

# About who asks, never about the message: authorization and its proxies.
UNAUTHORIZED = frozenset({401, 403, 407})
# By which a server demands a token, or one with more scopes.
CHALLENGES = frozenset({401, 403})
# That say nothing about the era of a server: authorization, overload, and a proxy whose server
# cannot be reached.
NO_VERDICT = UNAUTHORIZED | {402, 408, 425, 429, 502, 503, 504}
# After which a message is sent again, if the answer says when.
TRY_LATER = frozenset({429, 503})
# After which a stream of events is asked for again: the server, or its proxy, is busy.
BUSY = frozenset({408, 425, 429, 502, 503, 504})
# Of a server that does not speak Streamable HTTP (2025-11-25 basic/transports, "Backwards
# Compatibility"; 406, 410, 415 and 501 are other ways to refuse a POST).
NOT_STREAMABLE = frozenset({400, 404, 405, 406, 410, 415, 501})

MAX_TEXT = 65536  # bytes of a body that are looked at

# Advice about a status.
_REMEDIES = {
    401: "; Http(token=…) takes the server's token",
    404: "; correct the path of the URL",
    405: "; correct the path of the URL",
    407: "; the proxy wants credentials",
    501: "; no MCP server is at this URL",
}


class SessionGone(ConnectionLost):
    """The server refused a request because its session has ended: the request was not executed."""


class Challenged(HttpStatusError):
    """The server demands a token for a message of the handshake. ``answer`` gets one: called with
    the number of earlier challenges, it returns whether the handshake is to be begun again. The
    time limits of the handshake do not run meanwhile: a user logs in."""

    def __init__(self, error: HttpStatusError, answer: Callable[[int], Awaitable[bool]]) -> None:
        super().__init__(str(error), error.status, error.reason, error.retry_after)
        self.answer = answer


def reason_of(status: int) -> str:
    """The name of a status; "" for an unknown one."""
    from http import HTTPStatus  # not for clients of other transports

    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def status_error(
    where: str,
    what: str,
    status: int,
    headers: Headers,
    body: bytes = b"",
    *,
    secrets: Iterable[str] = (),
    said: str = "",
    note: str = "",
) -> HttpStatusError:
    """The error of a message that was answered with a status. ``secrets``: what its text must not
    show. ``said``: the words of the server, by default those of the body. ``note``: what follows
    them, by default what to do about the status."""
    reason = reason_of(status)
    text = f"{where} answered {what} with {status} {reason}".rstrip()
    said = said or _text(headers, body)
    for secret in secrets:
        said = said.replace(secret, "…")
    said = _shown(said)
    if said and said.lower() != reason.lower():
        text += f" ({said})"
    text += note or _REMEDIES.get(status, "")
    return HttpStatusError(text, status, reason, retry_after(headers))


def _text(headers: Headers, body: bytes) -> str:
    """A text that is meant for people. Secrets are looked for before it is cut to a line."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/plain", "application/json", "application/problem+json"):
        return ""
    return body[:MAX_TEXT].decode(errors="replace")


def _shown(text: str) -> str:
    """The first line of a text of the server, as an error shows it."""
    lines = text.strip().splitlines()
    return shortened("".join(c if c.isprintable() else " " for c in lines[0])) if lines else ""


def retry_after(headers: Headers) -> float | None:
    """The seconds of Retry-After (RFC 9110 section 10.2.3), which also has dates."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii() and len(value) < 10:
        return float(value)
    if not value:
        return None
    from email.utils import parsedate_to_datetime  # slow to import

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def same_origin(address: Address, reference: str) -> str | None:
    """The request target of a URL that a server sent, relative to an address; None for a URL of
    another origin (RFC 6454 section 5), or one that is not valid."""
    base = f"{address.scheme}://{address.authority}{address.target}"
    try:
        found = parse(urljoin(base, reference.strip()).partition("#")[0])
    except ValueError:
        return None
    origin = (found.scheme, found.host.lower(), found.port)
    if origin != (address.scheme, address.host.lower(), address.port):
        return None
    return found.target
