"""What the tools and prompts of one server are called behind the merged endpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from wirespeed.proxy.backend_config import BackendConfig


_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Names:
    """The names of one server's tools and prompts, the server's and the shown ones.

    A prefix stands before each name. A tool that is renamed is shown by that name alone.
    """

    def __init__(self, config: BackendConfig) -> None:
        self._tools = config.tools
        self._prefix = config.shown_prefix
        self._renamed = {shown: real for real, shown in config.tools.rename.items()}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Names)
            and self._prefix == other._prefix
            and self._tools == other._tools
        )

    __hash__ = None  # type: ignore[assignment]

    def shown(self, kind: str, real: str) -> str | None:
        """Return what clients call a tool or prompt of the server; None: they do not see it."""
        if kind == "tools":
            return self.full(real) if self._tools.allows(real) else None
        return self._prefix + real

    def full(self, real: str) -> str:
        """Return what clients call a tool, or would if they saw it."""
        return self._tools.rename.get(real, self._prefix + real)

    def of_tool(self, real: str, *, alone: bool) -> tuple[str, str]:
        """Return both names of a tool. The first is that at the endpoint of all servers, which has
        no prefix where the server is ``alone``."""
        return (real, self.full(real)) if alone else (self.full(real), real)

    def real(self, kind: str, shown: str) -> str | None:
        """Return what the server may call it; None: it is not this server's, or hidden."""
        real = self._renamed.get(shown) if kind == "tools" else None
        if real is None:
            if not shown.startswith(self._prefix):
                return None
            real = shown[len(self._prefix) :]
        return real if self.shown(kind, real) == shown else None

    def may_have(self, shown: str) -> bool:
        """Whether a name is one of this server's by its form, hidden or not."""
        return shown in self._renamed or (bool(self._prefix) and shown.startswith(self._prefix))

    def described(self, kind: str, real: str, text: Raw) -> tuple[str, Raw] | None:
        """Return the name and the text of an entry of the server's list as clients see it; None:
        they do not."""
        shown = self.shown(kind, real)
        if shown is None:
            return None
        other = self._tools.describe.get(real) if kind == "tools" else None
        if shown == real and other is None:
            return shown, text
        entry = _members(text)
        entry["name"] = Raw(msgspec.json.encode(shown))
        if other is not None:
            entry["description"] = Raw(msgspec.json.encode(other))
        return shown, Raw(msgspec.json.encode(entry))


def names_of_tool(servers: Iterable[Names], shown: str) -> list[str]:
    """Return the name of a tool at the endpoint of all servers, and what its server calls it."""
    found = (one.real("tools", shown) for one in servers)
    return [shown, *(real for real in found if real is not None)]
