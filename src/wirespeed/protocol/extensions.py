"""Extensions of MCP, as data that servers, clients and proxies share: names, revisions, codes, and
notifications as hooks see them.

Sources: 2026-07-28 basic/index; SEP-3392 for ``revision``; SEP-3371 for what extensions may do.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol import codes
from wirespeed.protocol.meta import LABEL

_NAME = re.compile(rf"{LABEL}(?:\.{LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

# The codes of this range are JSON-RPC's and MCP's.
_RESERVED = range(-32768, -31999)
_KNOWN = frozenset(
    value for value in vars(codes).values() if isinstance(value, int) and value in _RESERVED
)

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class SeenNotification(msgspec.Struct, frozen=True):
    """A notification that a server or a client sends or receives, for hooks of extensions.

    Attributes:
        sent: Whether this side sent it; else this side received it.
        method: Its method.
        params: The JSON text of its params, or None.
        connection_id: On a server, the number of the connection, unique in this process; else 0.
    """

    sent: bool
    method: str
    params: bytes | None
    connection_id: int = 0

    def decode(self) -> dict[str, Any]:
        """The params as a dict; empty if there are none. msgspec.DecodeError: they are not an
        object."""
        return {} if self.params is None else _decode(self.params)


NotificationHook: TypeAlias = Callable[[SeenNotification], object]
"""A function that sees notifications (`wirespeed.Extension`)."""


def check_name(name: str) -> None:
    """Check the identifier of an extension. ValueError: it is not valid."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an extension: vendor-prefix/name")


def check_code(name: str, code: int, *, known: bool = False) -> None:
    """Check an error code of an extension. ValueError: it is reserved. ``known``: codes that
    JSON-RPC and MCP define pass."""
    if isinstance(code, bool) or not isinstance(code, int):
        raise ValueError(f"extension {name}: {code!r} is not an error code")
    if code in _RESERVED and not (known and code in _KNOWN):
        raise ValueError(
            f"extension {name}: {code} is reserved for JSON-RPC and MCP (-32768 to -32000)"
        )


def revision_of(settings: Mapping[str, Any]) -> str | None:
    """Return the revision in the settings of an extension; None for the first revision, which has
    no name. A ``revision`` of another type than a string is returned as its JSON."""
    revision = settings.get("revision")
    if revision is None or isinstance(revision, str):
        return revision
    return msgspec.json.encode(revision).decode()


set_public_home(globals())
