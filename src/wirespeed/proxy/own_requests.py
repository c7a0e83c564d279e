"""Requests that the proxy reads, makes or answers: the era of a client's request, the envelope of
the proxy's own, the pages of a list, and the tokens that hear of such requests (`ProxyRequest`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.errors import InvalidResponse
from wirespeed.protocol import codes
from wirespeed.protocol.digests import are_of_two
from wirespeed.protocol.revisions import (
    LATEST_MODERN,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirespeed._core.envelope import Message

_VERSION = f"params._meta.{META_PROTOCOL_VERSION}"
_ENVELOPE = tuple(
    f"params._meta.{name}"
    for name in (META_PROTOCOL_VERSION, META_CLIENT_CAPABILITIES, META_CLIENT_INFO)
)


def modern_version(message: Message) -> str | None:
    """Return the version that the envelope of a modern request names; "" if the envelope has none.
    Returns None for a legacy request."""
    if all(message.lease(point) is None for point in _ENVELOPE):
        return None
    return message.text(_VERSION) or ""


def unsupported(versions: Sequence[str], wanted: object) -> tuple[int, str, dict[str, Any]]:
    """Return the error for a request of an era that the server does not speak: code, text, data."""
    return (
        codes.UNSUPPORTED_PROTOCOL_VERSION,
        f"the server speaks {', '.join(versions)}",
        {"supported": list(versions), "requested": wanted},
    )


def envelope() -> dict[str, Any]:
    """Return ``_meta`` of a modern request of the proxy itself."""
    return {
        META_PROTOCOL_VERSION: LATEST_MODERN,
        META_CLIENT_CAPABILITIES: {},
        META_CLIENT_INFO: own_info(),
    }


def own_info() -> dict[str, str]:
    """Return the name and version of the proxy, as clients and servers are told them."""
    from wirespeed import __version__

    return {"name": "wirespeed-proxy", "version": __version__}


def params_of(message: Message) -> dict[str, Any]:
    """Return the params of a message, decoded; empty if Python cannot hold them (a lone surrogate,
    a number beyond a float)."""
    try:
        found: dict[str, Any] = msgspec.json.decode(message.params or b"{}")
    except msgspec.DecodeError:
        return {}
    return found


# Pages of one list.
MAX_PAGES = 1000
# How often a list may change while it is listed.
MAX_CHANGES = 3


async def pages(
    ask: Callable[[str, object], Awaitable[Any]],
    method: str,
    params: dict[str, Any],
    max_bytes: int,
    known: str | None = None,
) -> list[dict[str, Any]]:
    """Return the pages of a list. The last one has no next cursor, or one that is empty, is not a
    string, or was followed before. The list is asked for again from the start when a page has
    another digest than the first one.

    ``ask``: Sends a request and returns its result. ``max_bytes``: What all pages may take.
    ``known``: Ends with the first page if that has this digest.
    InvalidResponse: A page is not an object, the list is too long, or it changes each time.
    What ``ask`` raises passes.
    """
    first = params
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    n_bytes = n_changes = 0
    for _ in range(MAX_PAGES):
        page = await ask(method, params)
        if not isinstance(page, dict):
            raise InvalidResponse(f"a page of {method} is not an object")
        n_bytes += len(msgspec.json.encode(page))
        if n_bytes > max_bytes:
            raise InvalidResponse(f"{method} has more than {max_bytes} bytes")
        if found and are_of_two(found[0].get("digest"), page.get("digest")):
            n_changes += 1
            if n_changes > MAX_CHANGES:
                raise InvalidResponse(f"{method} changes while it is listed")
            params = first
            found.clear()
            seen.clear()
            continue
        found.append(page)
        if known is not None and page.get("digest") == known:
            return found
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return found
        seen.add(cursor)
        params = {**params, "cursor": cursor}
    raise InvalidResponse(f"{method} has more than {MAX_PAGES} pages")


CANCELLED = 1  # as of `wirespeed.server.requests.observer`


class CallRecord(Protocol):
    """The entry of the audit log for a request, until the request ends."""

    def end(self, code: int) -> None:
        """The request has ended; 0: without an error."""


class ProxyRequest:
    """The token of a request that the proxy itself answers or makes.

    Attributes:
        record: What notes the end of the request for the audit log, if the request was passed on
            before; or None.
        sent: Whether the request was ever sent to a server.
        request: The request, if it may be one that the audit log notes; or None.
        waits: Whether the proxy does nothing for the request yet.
    """

    record: CallRecord | None = None
    sent = False
    request: Message | None = None
    waits = False

    def notified(self, message: Message) -> None:
        """Take a notification about the request, or its cancellation by the asker."""

    def drain(self) -> None:
        """The connection of the asker shuts down: the request has its grace time."""

    def answered(self, message: Message | None) -> None:
        """Take the answer to a request of the proxy; None: there will be none."""

    def note(self, code: int) -> None:
        """Note the end of the request, unless it was passed on again."""
        record, self.record = self.record, None
        if record is not None:
            record.end(code)
