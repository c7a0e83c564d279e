"""URIs of skills at the endpoint of several servers, and what a server declares of its skills.

Two servers may have skills with the same URI, which are different skills. So the name of the server
stands before the path: ``skill://a/b`` of the server ``docs`` is ``skill://docs/a/b`` for clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from wirespeed.protocol.extensions import revision_of
from wirespeed.skills.model import DIRECTORY_READ, REVISIONS, SKILLS_EXTENSION, entry_of

SCHEME = "skill://"

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def settings_of(capabilities: Any) -> dict[str, Any] | None:
    """The settings of the extension that a server declares; None if it has no skills, or a revision
    of the extension that is not known."""
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    settings = extensions.get(SKILLS_EXTENSION) if isinstance(extensions, dict) else None
    if not isinstance(settings, dict) or revision_of(settings) not in REVISIONS:
        return None
    return settings


def merged_settings(found: Iterable[Any]) -> dict[str, Any] | None:
    """What the endpoint declares for servers with these capabilities; None: none has skills.
    Folders can be listed if all of them list theirs."""
    having = [one for one in map(settings_of, found) if one is not None]
    if not having:
        return None
    if all(one.get(DIRECTORY_READ) is True for one in having):
        return {DIRECTORY_READ: True}
    return {}


def is_of_skills(uri: str) -> bool:
    """Whether a server with skills has a resource under another URI here."""
    return uri.startswith(SCHEME)


def shown_uri(server: str, uri: str) -> str:
    """The URI by which clients know what a server has under a URI."""
    scheme, slashes, path = uri.partition("://")
    return f"{scheme}{slashes}{server}/{path}"


def server_in(uri: str) -> str:
    """The name that stands before the path of a URI: of a server, if it is one of skills."""
    return uri.partition("://")[2].partition("/")[0]


def renamed(server: str, uri: str, text: Raw) -> tuple[str, Raw]:
    """The URI and the text of a resource in a list, as clients know them."""
    shown = shown_uri(server, uri)
    return shown, Raw(_encode({**_members(text), "uri": shown}))


def shown_entry(server: str, entry: Any) -> dict[str, Any]:
    """An entry of a skill as clients see it, with what else it has. ValueError: it is not
    valid."""
    entry_of(_encode(entry))
    shown = {**entry, "uri": shown_uri(server, entry["uri"])}
    if isinstance(entry["resources"], list):
        shown["resources"] = [
            {**file, "uri": shown_uri(server, file["uri"])} for file in entry["resources"]
        ]
    return shown
