"""The lists of several servers as one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.proxy.merge.member import Member

logger = logging.getLogger("wirespeed.proxy")


@dataclass(frozen=True)
class Kind:
    """One list.

    Attributes:
        method: What asks for it.
        name: Its member in results; for lists that belong to a capability, that as well.
        key: The member of an entry that tells entries apart.
        capability: Which capability of a server it needs.
    """

    method: str
    name: str
    key: str
    capability: str


KINDS = {
    kind.method: kind
    for kind in (
        Kind("tools/list", "tools", "name", "tools"),
        Kind("prompts/list", "prompts", "name", "prompts"),
        Kind("resources/list", "resources", "uri", "resources"),
        Kind("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
    )
}


@dataclass
class Listing:
    """What one server listed: its entries, and how long they may be kept.

    Attributes:
        until: When they are to be asked for again, on the loop's clock.
    """

    entries: list[dict[str, Any]]
    ttl: int = 0
    scope: str = "private"
    until: float = 0.0


@dataclass
class Merged:
    """A list as clients see it.

    Attributes:
        entries: By key, in the order of the servers.
        owners: Whose each is.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    owners: dict[str, Member] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    collisions: int = 0


def merge(kind: Kind, listings: dict[Member, Listing]) -> Merged:
    """Put the lists of servers together. Of entries with the same key the first one stays."""
    merged = Merged()
    for member, listing in listings.items():
        for entry in listing.entries:
            shown: dict[str, Any] | None = entry
            if kind.key == "name":
                shown = member.names.described(kind.name, entry)
            key = None if shown is None else shown.get(kind.key)
            if shown is None or not isinstance(key, str):
                continue
            if key in merged.entries:
                merged.collisions += 1
                logger.warning(
                    "%s and %s both have %r in %s: that of %s is used",
                    merged.owners[key].name, member.name, key, kind.name, merged.owners[key].name,
                )  # fmt: skip
                continue
            merged.entries[key] = shown
            merged.owners[key] = member
    return merged
