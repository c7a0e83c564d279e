"""Lists of several servers as one: what is shown of each, by which name, and whose an entry is."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.merging import Kind, PrefixedNames, merge_entries
from wirespeed.protocol.revisions import META_SERVER_INFO
from wirespeed.proxy.merge.skill_uris import is_of_skills, renamed, server_in
from wirespeed.proxy.own_requests import own_info
from wirespeed.server.catalog import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from wirespeed.proxy.backend_config import BackendConfig

logger = logging.getLogger("wirespeed.proxy")

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class ShownNames(PrefixedNames):
    """The names of one server's tools and prompts. A tool that is renamed is shown by that name
    alone. Two are equal if clients see the same of their servers."""

    def __init__(self, config: BackendConfig) -> None:
        super().__init__(config.shown_prefix)
        self._tools = config.tools
        self._skills = config.skills
        self._renamed = {shown: real for real, shown in config.tools.rename.items()}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ShownNames)
            and self.prefix == other.prefix
            and self._tools == other._tools
            and self._skills == other._skills
        )

    __hash__ = None  # type: ignore[assignment]

    def shown(self, kind: str, real: str) -> str | None:
        """Return what clients call a tool or prompt of the server; None: they do not see it."""
        if kind == "tools":
            return self.full(real) if self._tools.allows(real) else None
        return super().shown(kind, real)

    def full(self, real: str) -> str:
        """Return what clients call a tool, or would if they saw it."""
        return self._tools.rename.get(real, self.prefix + real)

    def of_tool(self, real: str, *, alone: bool) -> tuple[str, str]:
        """Return both names of a tool. The first is that at the endpoint of all servers, which has
        no prefix where the server is ``alone``."""
        return (real, self.full(real)) if alone else (self.full(real), real)

    def real(self, kind: str, shown: str) -> str | None:
        """Return what the server may call it; None: it is not this server's, or hidden."""
        real = self._renamed.get(shown) if kind == "tools" else None
        if real is None:
            real = super().real(kind, shown)
        return real if real is not None and self.shown(kind, real) == shown else None

    def may_have(self, shown: str) -> bool:
        """Whether a name is one of this server's by its form, hidden or not."""
        return shown in self._renamed or (bool(self.prefix) and shown.startswith(self.prefix))

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


def names_of_tool(servers: Iterable[ShownNames], shown: str) -> list[str]:
    """Return the name of a tool at the endpoint of all servers, and what its server calls it."""
    found = (one.real("tools", shown) for one in servers)
    return [shown, *(real for real in found if real is not None)]


@dataclass(eq=False)
class ServerListing:
    """The list of one server: its entries by key, as text, and how long they may be kept.

    Attributes:
        until: When they are to be asked for again, on the loop's clock.
        faults: What is wrong with entries that were left out, by key.
        digest: That of the whole list, if the server gives one.
    """

    entries: list[tuple[str, Raw]] = field(default_factory=list)
    ttl: int = 0
    scope: str = "private"
    until: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)
    digest: str | None = None

    def take(self, kind: Kind, pages: Iterable[dict[str, Any]]) -> None:
        """Take the entries of all pages. Those that are not valid are left out, and pages without a
        list."""
        for page in pages:
            if isinstance(digest := page.get("digest"), str):
                self.digest = digest
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
    """Return what is wrong with an entry of a list, so that a client may refuse the whole list; ""
    if nothing is. None in the place of a member that may be missing is nothing."""
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
class MergedList:
    """A list as clients see it.

    Attributes:
        entries: The text of each, by key, in the order of the servers.
        owners: The name of the server of each.
        listings: What it was made of.
        rest: The other members of a result of 2026-07-28.
        collisions: Entries that were left out, because an earlier server has their key.
    """

    kind: Kind
    listings: tuple[ServerListing, ...]
    is_whole: bool
    entries: dict[str, Raw] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    collisions: int = 0
    _pages: dict[tuple[str | None, int, bool], bytes] = field(default_factory=dict)

    def is_of(self, listings: tuple[ServerListing, ...], is_whole: bool) -> bool:
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
    found: dict[str, ServerListing],
    names: dict[str, ShownNames],
    shows: Callable[[str], bool] | None,
    is_whole: bool,
    with_skills: Collection[str] = (),
) -> MergedList:
    """Put the lists of servers together. Of entries with the same key the first one stays.

    Args:
        found: What each server lists, by its name.
        names: What is shown of each server.
        shows: Whether the client sees a tool; None: it sees all.
        is_whole: Whether no server is missing.
        with_skills: The servers whose resources of the scheme ``skill`` have other URIs here.
    """
    merged = MergedList(kind, tuple(found.values()), is_whole)
    merged.entries, merged.owners, merged.collisions = merge_entries(
        kind.name, _seen(kind, found, names, shows, with_skills), logger
    )
    parts = [{"ttlMs": one.ttl, "cacheScope": one.scope} for one in found.values()]
    merged.rest = modern(parts if is_whole else [*parts, {}])
    return merged


def _seen(
    kind: Kind,
    found: dict[str, ServerListing],
    names: dict[str, ShownNames],
    shows: Callable[[str], bool] | None,
    with_skills: Collection[str],
) -> Iterator[tuple[str, str, Raw]]:
    """The entries that the client sees: the server, the key and the text of each."""
    for server, listing in found.items():
        for key, text in listing.entries:
            if kind.key != "name":
                if kind.key == "uri" and is_of_skills(key):
                    if server in with_skills:
                        key, text = renamed(server, key, text)
                    elif server_in(key) in with_skills:
                        continue  # this URI leads to the server of that name
                yield server, key, text
                continue
            shown = names[server].described(kind.name, key, text)
            if shown is not None and (kind.name != "tools" or shows is None or shows(shown[0])):
                yield server, *shown


def modern(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the members of a result of 2026-07-28 that was put together of others."""
    parts = list(parts)
    return {
        "resultType": "complete",
        "ttlMs": min((ttl_of(part) for part in parts), default=0),
        "cacheScope": "public"
        if parts and all(part.get("cacheScope") == "public" for part in parts)
        else "private",
        "_meta": {META_SERVER_INFO: own_info()},
    }


def ttl_of(result: dict[str, Any]) -> int:
    """Return for how many milliseconds a result may be kept."""
    ttl = result.get("ttlMs")
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0
