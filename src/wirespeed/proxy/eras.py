"""Of which era a client's request is, and what the proxy's own requests say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.protocol import codes
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
    """``_meta`` of a modern request of the proxy itself."""
    return {
        META_PROTOCOL_VERSION: LATEST_MODERN,
        META_CLIENT_CAPABILITIES: {},
        META_CLIENT_INFO: client_info(),
    }


def client_info() -> dict[str, str]:
    """What the proxy says of itself to servers."""
    from wirespeed import __version__

    return {"name": "wirespeed-proxy", "version": __version__}


def params_of(message: Message) -> dict[str, Any]:
    """The params of a message, decoded; empty if Python cannot hold them (a lone surrogate, a
    number beyond a float)."""
    try:
        found: dict[str, Any] = msgspec.json.decode(message.params or b"{}")
    except msgspec.DecodeError:
        return {}
    return found
