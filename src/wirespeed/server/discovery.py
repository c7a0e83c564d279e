"""Discovery: the identity of a server, its revisions, and what it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from wirespeed.protocol.blocks import Icon
from wirespeed.protocol.meta import check_json
from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS, REVISIONS, Revision, fit
from wirespeed.server.requests.reply import Whole, modern_end

# In the order in which clients see them.
_CAPABILITIES = (
    "tools",
    "resources",
    "prompts",
    "completions",
    "extensions",
    "tasks",
    "logging",
    "experimental",
)

# The settings of what a server offers from its first entry on.
_ENABLED: dict[str, dict[str, Any]] = {
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}

_encode = msgspec.json.Encoder().encode


class ServerDiscovery:
    """The identity of a server and its capabilities, as ``initialize`` and ``server/discover`` show
    them; see `wirespeed.Server` for the arguments.

    Attributes:
        info: Its ``Implementation``.
        offers: By capability: its settings at this moment, or None while there is nothing to offer.
        hints: ``ttlMs`` and ``cacheScope`` of lists and discovery (2026-07-28
            server/utilities/caching).
        digests: Whether lists and discovery have digests.
        versions: The revisions that it speaks, the newest first of each era.
        null_ids: Whether any of these answers unreadable requests under the id null.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        versions: Iterable[str] | None = None,
        list_ttl_ms: int = 0,
        cache_scope: str = "private",
        digests: bool = False,
    ) -> None:
        if cache_scope not in ("public", "private"):
            raise ValueError('cache_scope must be "public" or "private"')
        if list_ttl_ms < 0:
            raise ValueError("list_ttl_ms must not be negative")
        wanted = tuple(REVISIONS) if versions is None else tuple(versions)
        unknown = [v for v in wanted if v not in REVISIONS]
        if unknown or not wanted:
            raise ValueError(f"unknown versions {unknown}; known are {', '.join(REVISIONS)}")
        self.name = name
        self.version = version
        self.instructions = instructions
        self.legacy_versions = tuple(v for v in LEGACY_VERSIONS if v in wanted)
        self.modern_versions = tuple(v for v in MODERN_VERSIONS if v in wanted)
        self.versions = self.modern_versions[::-1] + self.legacy_versions[::-1]
        self.null_ids = any(REVISIONS[v].null_error_ids for v in self.versions)
        info: dict[str, Any] = {"name": name, "version": version}
        more = {
            "title": title,
            "description": description,
            "websiteUrl": website_url,
            "icons": None if icons is None else list(icons),
        }
        info |= {key: value for key, value in more.items() if value is not None}
        declared = {name: dict(settings) for name, settings in (experimental or {}).items()}
        check_json("server", info | {"instructions": instructions, "experimental": declared})
        self.info = info
        self.info_json = _encode(info)
        self.modern_end = modern_end(self.info_json)
        self.digests = digests
        self.hints: dict[str, Any] = {"ttlMs": list_ttl_ms, "cacheScope": cache_scope}
        self.offers: dict[str, Callable[[], dict[str, Any] | None]] = {
            "logging": dict,
            "experimental": lambda: declared or None,
        }
        # extensions that are declared to legacy clients, although their revisions have none
        self.legacy_extensions: Callable[[], dict[str, Any] | None] = lambda: None
        self._discovered: dict[str, Whole] = {}  # by revision, until something changes

    def offered(self, capability: str) -> bool:
        """Whether the server has this capability at this moment."""
        return self._settings(capability) is not None

    def _settings(self, capability: str) -> dict[str, Any] | None:
        offer = self.offers.get(capability)
        return None if offer is None else offer()

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """The capabilities that a client of this revision sees at this moment."""
        found = {
            name: settings
            for name in _CAPABILITIES
            if name in revision.capabilities and (settings := self._settings(name)) is not None
        }
        if not revision.modern and (extensions := self.legacy_extensions()) is not None:
            found["extensions"] = extensions
        return found

    def enable(self, feature: str) -> bool:
        """Offer "prompts", "resources" or "completions" from now on; from any thread. Returns
        whether they were not offered before."""
        if feature in self.offers:
            return False
        settings = _ENABLED[feature]
        self.offers[feature] = lambda: settings
        self.forget()
        return True

    def forget(self) -> None:
        """Note that the server offers something else; from any thread."""
        self._discovered = {}

    def finish(self, body: bytes) -> Whole:
        """A whole modern result of the members of one."""
        return Whole(body[:-1] + self.modern_end)

    def initialize_result(self, revision: Revision) -> bytes:
        """The result of ``initialize``."""
        result: dict[str, Any] = {
            "protocolVersion": revision.version,
            "capabilities": self.capabilities(revision),
            "serverInfo": fit("Implementation", self.info, revision.version),
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return _encode(result)

    def discover_result(self, revision: Revision) -> Whole:
        """The result of ``server/discover``."""
        discovered = self._discovered  # a change in another thread, meanwhile, replaces the dict
        answer = discovered.get(revision.version)
        if answer is None:
            members = self._defined(revision)
            if self.digests:
                members["digest"] = self.digest(revision)
            members |= self.hints
            answer = discovered[revision.version] = self.finish(_encode(members))
        return answer

    def _defined(self, revision: Revision) -> dict[str, Any]:
        """The members of ``server/discover`` that a client may keep, and that its digest is of."""
        return {
            "supportedVersions": list(self.versions),
            "capabilities": self.capabilities(revision),
            **({} if self.instructions is None else {"instructions": self.instructions}),
        }

    def digest(self, revision: Revision) -> str:
        """The digest of the result of ``server/discover``."""
        from wirespeed.protocol.digests import digest_of

        return digest_of([_encode(self._defined(revision))])
