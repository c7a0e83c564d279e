"""The proxy's own handshakes with a server that clients share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wirespeed.errors import RemoteError, VersionMismatch
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
    MODERN_VERSIONS,
)

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Backend


async def discover(backend: Backend, timeout: float) -> tuple[str, ...]:
    """Return the versions that a server names in the modern era; none: it is of a legacy era.

    ``timeout``: Seconds after which a server that does not answer counts as a legacy one. Source:
    basic/transports/stdio of 2026-07-28, "Backward Compatibility". TransportError: the connection
    was lost. RemoteError: a modern server refuses.
    """
    meta = {
        META_PROTOCOL_VERSION: LATEST_MODERN,
        META_CLIENT_CAPABILITIES: {},
        META_CLIENT_INFO: _info(),
    }
    try:
        async with asyncio.timeout(timeout):
            answer = await backend.ask("server/discover", {"_meta": meta})
        versions = answer.get("supportedVersions") if isinstance(answer, dict) else None
    except TimeoutError:
        return ()
    except RemoteError as exc:
        if exc.code not in codes.MODERN_ERRORS:
            return ()
        if exc.code != codes.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        versions = exc.data.get("supported") if isinstance(exc.data, dict) else None
    known = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
    found = tuple(one for one in known if isinstance(versions, list) and one in versions)
    return found if any(one in MODERN_VERSIONS for one in found) else ()


async def initialize(backend: Backend) -> dict[str, Any]:
    """Shake hands with a server of a legacy era, and return what it says of itself.

    No capability is declared: a question could not be attributed to a client. VersionMismatch: the
    server wants another version. RemoteError: it refuses.
    """
    backend.session.batches = True  # a server of 2025-03-26 may answer in a batch
    answer = await backend.ask(
        "initialize",
        {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": _info()},
    )
    hello: dict[str, Any] = answer if isinstance(answer, dict) else {}
    version = hello.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        raise VersionMismatch(f"the server wants protocol version {version!r}", [])
    backend.session.batches = version == "2025-03-26"
    backend.tell("notifications/initialized")
    return hello


def _info() -> dict[str, str]:
    from wirespeed import __version__

    return {"name": "wirespeed-proxy", "version": __version__}
