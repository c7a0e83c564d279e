"""The proxy's own handshakes with a server that clients share."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.http.statuses import NO_VERDICT, Challenged
from wirespeed.errors import (
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    VersionMismatch,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
    MODERN_VERSIONS,
    REVISIONS,
)

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Backend


logger = logging.getLogger("wirespeed.proxy")

_MAX_PAGES = 100
# After these errors, another question would fail as well.
_NO_ERA = codes.UNAVAILABLE | codes.MODERN_ERRORS - {codes.UNSUPPORTED_PROTOCOL_VERSION}


async def discover(backend: Backend, timeout: float) -> tuple[str, ...]:
    """Return the versions that a server names in the modern era; none: it is of a legacy era.

    ``timeout``: Seconds after which a server that does not answer counts as a legacy one. Source:
    basic/transports/stdio of 2026-07-28, "Backward Compatibility". TransportError: the connection
    was lost. RemoteError: a modern server refuses.
    """
    backend.revision = REVISIONS[LATEST_MODERN]
    found: tuple[str, ...] = ()
    try:
        async with asyncio.timeout(timeout):
            answer = await backend.ask("server/discover", {"_meta": envelope()})
        versions = answer.get("supportedVersions") if isinstance(answer, dict) else None
    except (TimeoutError, InvalidResponse):
        versions = None
    except HttpStatusError as exc:
        if exc.status < 400 or exc.status in NO_VERDICT:
            raise
        versions = None
    except RemoteError as exc:
        if exc.code in _NO_ERA:
            raise
        versions = exc.data.get("supported") if isinstance(exc.data, dict) else None
    known = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
    if isinstance(versions, list) and any(one in MODERN_VERSIONS for one in versions):
        found = tuple(one for one in known if one in versions)
    else:
        backend.revision = None
    return found


async def learn_fields(backend: Backend) -> None:
    """Learn which arguments of a server over HTTP are header fields, too. Pages of its tools are
    asked for, and what it does not say is not known."""
    from wirespeed.client.results.tools import ToolInfo

    learn = getattr(getattr(backend.link, "mirrored", None), "learn", None)
    if learn is None:
        return
    params: dict[str, Any] = {"_meta": envelope()}
    for _ in range(_MAX_PAGES):
        try:
            page = await backend.ask("tools/list", params)
            learn(msgspec.convert(page.get("tools", []), list[ToolInfo]))
        except (WirespeedError, msgspec.ValidationError, AttributeError) as exc:
            logger.info("%s: its tools cannot be listed: %s", backend.name, exc)
            return
        cursor = page.get("nextCursor")
        if cursor is None or cursor == params.get("cursor"):
            return
        params["cursor"] = cursor


async def initialize(
    backend: Backend, capabilities: dict[str, Any] | None = None, info: object = None
) -> dict[str, Any]:
    """Shake hands with a server of a legacy era, and return what it says of itself.

    ``capabilities``, ``info``: Those of a client. Without them the proxy is the client, and
    declares nothing: a question could not be attributed. VersionMismatch: the server wants another
    version. RemoteError: it refuses.
    """
    backend.revision = None
    backend.session.batches = True  # a server of 2025-03-26 may answer in a batch
    params = {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": capabilities or {},
        "clientInfo": info if isinstance(info, dict) else _info(),
    }
    for n in itertools.count():
        try:
            answer = await backend.ask("initialize", params)
            break
        except Challenged as exc:  # over HTTP: a token is got
            if not await exc.answer(n):
                raise
    hello: dict[str, Any] = answer if isinstance(answer, dict) else {}
    version = hello.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        raise VersionMismatch(f"the server wants protocol version {version!r}", [])
    backend.revision = REVISIONS[version]
    backend.session.batches = version == "2025-03-26"
    backend.tell("notifications/initialized")
    return hello


def envelope() -> dict[str, Any]:
    """``_meta`` of a modern request of the proxy itself."""
    return {
        META_PROTOCOL_VERSION: LATEST_MODERN,
        META_CLIENT_CAPABILITIES: {},
        META_CLIENT_INFO: _info(),
    }


def _info() -> dict[str, str]:
    from wirespeed import __version__

    return {"name": "wirespeed-proxy", "version": __version__}
