"""The lists of several servers as one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.proxy.merge.discovery import modern
from wirespeed.server.pagination import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wirespeed.proxy.merge.names import Names

logger = logging.getLogger("wirespeed.proxy")


@dataclass(frozen=True)
class Kind:
    """One list.

    Attributes:
        method: What asks for it.
        name: Its member in results; for lists that belong to a capability, that as well.
        key: The member of an entry that tells entries apart.
        capability: Which capability of a server it needs.
        needs: The members of an entry that are texts.
    """

    method: str
    name: str
    key: str
    capability: str
    needs: tuple[str, ...]


KINDS = {
    kind.method: kind
    for kind in (
        Kind("tools/list", "tools", "name", "tools", ("name",)),
        Kind("prompts/list", "prompts", "name", "prompts", ("name",)),
        Kind("resources/list", "resources", "uri", "resources", ("uri", "name")),
        Kind(
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
            "resources",
            ("uriTemplate", "name"),
        ),
    )
}


@dataclass(eq=False)
class Listing:
    """What one server listed: its entries by key, as text, and how long they may be kept.

    Attributes:
        until: When they are to be asked for again, on the loop's clock.
        faults: What is wrong with entries that were left out, by key.
    """

    entries: list[tuple[str, Raw]] = field(default_factory=list)
    ttl: int = 0
    scope: str = "private"
    until: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)

    def take(self, kind: Kind, pages: Iterable[dict[str, Any]]) -> None:
        """Take the entries of all pages. Those that are not valid are left out, and pages without a
        list."""
        for page in pages:
            entries = page.get(kind.name)
            if entries is not None and not isinstance(entries, list):
                self.faults["a page"] = f"the {kind.name} of a page are not a list"
                continue
            for entry in entries or ():
                fault = fault_of(kind, entry)
                if fault:
                    key = entry.get(kind.key) if isinstance(entry, dict) else None
                    self.faults[repr(key)[:100] if key else "one without a name"] = fault
                    continue
                shown = {name: value for name, value in entry.items() if value is not None}
                self.entries.append((entry[kind.key], Raw(msgspec.json.encode(shown))))


def fault_of(kind: Kind, entry: Any) -> str:
    """What is wrong with an entry of a list, so that a client may refuse the whole list; "" if
    nothing is. None in the place of a member that may be missing is nothing."""
    if not isinstance(entry, dict):
        return "it is not an object"
    for name in kind.needs:
        if not isinstance(entry.get(name), str):
            return f"its {name} is not a text" if name in entry else f"it has no {name}"
    if kind.name != "tools":
        return ""
    if "inputSchema" not in entry:
        return "it has no inputSchema"
    for name in ("inputSchema", "outputSchema"):
        schema = entry.get(name)
        if schema is None and name == "outputSchema":
            continue
        if not isinstance(schema, dict):
            return f"its {name} is not an object"
    return ""


@dataclass(eq=False)
class Merged:
    """A list as clients see it.

    Attributes:
        entries: The text of each, by key, in the order of the servers.
        owners: The name of the server of each.
        listings: What it was made of.
        rest: The other members of a result of 2026-07-28.
        collisions: Entries that were left out, because an earlier server has their key.
    """

    kind: Kind
    listings: tuple[Listing, ...]
    is_whole: bool
    entries: dict[str, Raw] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    collisions: int = 0
    _pages: dict[tuple[str | None, int, bool], bytes] = field(default_factory=dict)

    def is_of(self, listings: tuple[Listing, ...], is_whole: bool) -> bool:
        """Whether it was made of the same."""
        return (
            self.is_whole == is_whole
            and len(listings) == len(self.listings)
            and all(a is b for a, b in zip(listings, self.listings, strict=True))
        )

    def page(self, cursor: str | None, size: int, is_modern: bool) -> bytes:
        """Return one page as a result. ProtocolError -32602: the cursor was not given out."""
        found = self._pages.get((cursor, size, is_modern))
        if found is not None:
            return found
        page = page_of(list(self.entries.items()), cursor, size)
        result: dict[str, Any] = {self.kind.name: page.entries}
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        if is_modern:
            result |= self.rest
        found = msgspec.json.encode(result)
        if page.is_regular:
            self._pages[cursor, size, is_modern] = found
        return found


def merge(
    kind: Kind,
    found: dict[str, Listing],
    names: dict[str, Names],
    shows: Callable[[str], bool] | None,
    is_whole: bool,
) -> Merged:
    """Put the lists of servers together. Of entries with the same key the first one stays.

    Args:
        found: What each server lists, by its name.
        names: What is shown of each server.
        shows: Whether the client sees a tool; None: it sees all.
        is_whole: Whether no server is missing.
    """
    merged = Merged(kind, tuple(found.values()), is_whole)
    for server, listing in found.items():
        for key, text in listing.entries:
            if kind.key == "name":
                shown = names[server].described(kind.name, key, text)
                if shown is None or (
                    kind.name == "tools" and shows is not None and not shows(shown[0])
                ):
                    continue
                key, text = shown
            if key in merged.entries:
                merged.collisions += 1
                logger.warning(
                    "%s and %s both have %r in %s: that of %s is used",
                    merged.owners[key], server, key, kind.name, merged.owners[key],
                )  # fmt: skip
                continue
            merged.entries[key] = text
            merged.owners[key] = server
    parts = [{"ttlMs": one.ttl, "cacheScope": one.scope} for one in found.values()]
    merged.rest = modern(parts if is_whole else [*parts, {}])
    return merged
