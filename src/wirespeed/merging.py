"""Lists of several servers as one, for the proxy and for a client of many servers: the kinds of
lists, the names of entries, and whose an entry is."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from wirespeed.protocol.uri_template import Matcher, UriTemplate

T = TypeVar("T")


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

# Capabilities with a list.
LISTED = ("tools", "prompts", "resources")


def prefix_of(server: str) -> str:
    """The prefix of a server's tools and prompts, by the server's name."""
    return re.sub(r"[.~]", "_", server) + "_"


class PrefixedNames:
    """The names of one server's tools and prompts, the server's and the shown ones: a prefix stands
    before each name."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def shown(self, kind: str, real: str) -> str | None:
        """Return what clients call a tool or prompt of the server; None: they do not see it."""
        return self.prefix + real

    def real(self, kind: str, shown: str) -> str | None:
        """Return what the server may call it; None: it is not this server's, or hidden."""
        if not shown.startswith(self.prefix):
            return None
        return shown[len(self.prefix) :]


def merge_entries(
    what: str, found: Iterable[tuple[str, str, T]], logger: logging.Logger
) -> tuple[dict[str, T], dict[str, str], int]:
    """Put the entries of servers together. Of entries with the same key the first one stays, which
    is logged.

    Args:
        what: The name of the list.
        found: The name of the server, the key and the entry of each, in the order of the servers.
        logger: The logger.

    Returns the entries by key, the servers by key, and the number of those that were left out.
    """
    entries: dict[str, T] = {}
    owners: dict[str, str] = {}
    n_collisions = 0
    for server, key, entry in found:
        if key in entries:
            n_collisions += 1
            logger.warning(
                "%s and %s both have %r in %s: that of %s is used",
                owners[key], server, key, what, owners[key],
            )  # fmt: skip
            continue
        entries[key] = entry
        owners[key] = server
    return entries, owners, n_collisions


def owner_of(
    uri: str, resources: Mapping[str, str] | None, templates: Mapping[str, str] | None
) -> str | None:
    """Return the server that lists a URI, else the first with a template that matches it.
    ``resources`` and ``templates``: the servers by key; None: not known."""
    if resources is not None and uri in resources:
        return resources[uri]
    if templates is not None:
        if uri in templates:  # completions name the template itself
            return templates[uri]
        for template, server in templates.items():
            if _matches(template, uri):
                return server
    return None


def joined_instructions(found: Mapping[str, str | None]) -> str | None:
    """The instructions of servers, each below its name; None without any."""
    parts = [f"# {name}\n\n{text}" for name, text in found.items() if text]
    return "\n\n".join(parts) or None


def _matches(template: str, uri: str) -> bool:
    try:
        return _matcher(template).match(uri) is not None
    except ValueError:  # not a template of RFC 6570
        return False


@functools.lru_cache(1024)
def _matcher(template: str) -> Matcher:
    return Matcher(UriTemplate(template), safe=False)
