"""Digests that clients send back: a result names those that are stale.

A request is served by what the server has now, whatever its client knows: the middleware says so in
``_meta`` of the result. Where a filter decides who sees what, lists have no digests, and those of
clients are not looked at. See `wirespeed.protocol.digests`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.protocol.digests import META_KNOWN_DIGESTS, META_STALE_DIGESTS
from wirespeed.protocol.revisions import MODERN_VERSIONS, REVISIONS
from wirespeed.server.middleware.inbound import InboundRequest, Reply

if TYPE_CHECKING:
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.service import McpService

_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Digested(Protocol):
    """A list, or discovery, which has a digest."""

    def digest(self, revision: Revision) -> str: ...


class DigestCheck:
    """A middleware of a server with digests."""

    def __init__(self, service: McpService) -> None:
        self._service = service

    async def __call__(
        self, request: InboundRequest, call_next: Callable[[Any], Awaitable[Reply | None]]
    ) -> Reply | None:
        stale = self._stale(request) if request.method in _METHODS and request.modern else []
        reply = await call_next(request)
        if not stale or reply is None:
            return reply
        members = _members(reply.data)
        meta = _members(members.get("_meta", b"{}"))
        meta[META_STALE_DIGESTS] = msgspec.Raw(msgspec.json.encode(stale))
        members["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
        return Reply.result(msgspec.json.encode(members))

    def _stale(self, request: InboundRequest) -> list[str]:
        """The methods whose digests the client knows from before a change."""
        service = self._service
        known = request.meta.get(META_KNOWN_DIGESTS)
        version = request.protocol_version
        if (
            not isinstance(known, dict)
            or version not in MODERN_VERSIONS
            or service.visibility.limited
            or service.mounts.elsewhere  # the client knows the lists of another server
        ):
            return []
        revision = REVISIONS[version]
        lists: dict[str, Digested] = {
            "server/discover": service.discovery,
            "prompts/list": service.prompts,
            "resources/list": service.resources.fixed,
            "resources/templates/list": service.resources.templates,
        }
        if service.tool_search is None:
            lists["tools/list"] = service.tools
        return [
            method
            for method, digest in known.items()
            if method in lists
            and isinstance(digest, str)
            and digest != lists[method].digest(revision)
        ]
