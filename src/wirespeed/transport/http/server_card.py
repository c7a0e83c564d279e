"""Server cards and the catalog of a listener: what a client may know of servers before it connects.

Experimental. Sources: SEP-2127 (draft), and docs/discovery.md and schema.ts of
modelcontextprotocol/experimental-ext-server-card. A card names no tools, no prompts and no
resources, and is shown to everyone.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
CARD = "application/mcp-server-card+json"
CATALOG = "application/ai-catalog+json"
CATALOG_PATH = "/.well-known/ai-catalog.json"

_LONGEST = 100  # characters of titles and descriptions
_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_TOKEN = {
    "name": "Authorization",
    "description": "Bearer and an access token of this server.",
    "isRequired": True,
    "isSecret": True,
}


class ServerIdentity(NamedTuple):
    """A server, as its card describes it.

    Attributes:
        info: The members of its ``Implementation``: name, version, title, description, websiteUrl,
            icons.
        versions: The revisions of MCP that it speaks; empty if they are not known.
    """

    info: Mapping[str, Any]
    versions: Sequence[str]


class HasIdentity(Protocol):
    """A service that may have a card."""

    def identity(self, guarded: bool) -> ServerIdentity | None:
        """The server; None: it has no card. ``guarded``: clients need a token here, so that
        nothing may be told that only some of them see."""


class Document(NamedTuple):
    """A document that everyone may read: its path, JSON text and media type."""

    path: str
    text: bytes
    media_type: str


def documents(servers: Iterable[tuple[str, ServerIdentity, bool]], url: str) -> Iterator[Document]:
    """The cards of servers, and the catalog of them.

    Args:
        servers: The path of each, the server, and whether clients need a token there.
        url: The URL of the listener without their paths, as clients reach it.
    """
    base, host = url.rstrip("/"), card_host(url)
    entries = []
    for path, server, guarded in servers:
        at = "" if path == "/" else path
        card = _card(server, host, base + (at or "/"), guarded)
        space, _, name = card["name"].partition("/")
        publisher = host if space == _reversed(host) else _reversed(space)
        entries.append(
            {
                "identifier": f"urn:air:{publisher}:mcp:{name}",
                "type": CARD,
                "url": f"{base}{at}/server-card",
            }
        )
        yield Document(f"{at}/server-card", msgspec.json.encode(card), CARD)
    catalog = {"specVersion": "1.0", "entries": entries}
    yield Document(CATALOG_PATH, msgspec.json.encode(catalog), CATALOG)


def card_host(url: str) -> str:
    """The host of a URL by which clients reach a listener. ValueError: it is not such a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"card is the https:// URL by which clients reach the server, not {url!r}")
    if parts.query or parts.fragment or parts.username is not None or not url.isprintable():
        raise ValueError("card is a URL without user, query and fragment")
    return parts.hostname


def _card(server: ServerIdentity, host: str, url: str, guarded: bool) -> dict[str, Any]:
    info = server.info
    name = info["name"]
    if not _NAME.fullmatch(name):
        name = f"{_reversed(host)}/{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-') or 'server'}"
    remote = {
        "type": "streamable-http",
        "url": url,
        **({"supportedProtocolVersions": list(server.versions)} if server.versions else {}),
        **({"headers": [_TOKEN]} if guarded else {}),
    }
    about = info.get("description") or info.get("title") or f"The MCP server {info['name']}."
    card = {
        "$schema": SCHEMA,
        "name": name[:200],
        "version": info["version"][:255],
        "description": _short(about),
        "title": _short(info.get("title") or ""),
        "websiteUrl": info.get("websiteUrl"),
        "icons": info.get("icons"),
        "remotes": [remote],
    }
    return {key: value for key, value in card.items() if value or key == "version"}


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _reversed(name: str) -> str:
    """The labels of a name in reverse order; an address as it is, fit for a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return ".".join(reversed(name.split(".")))
    return name.replace(":", "-")
