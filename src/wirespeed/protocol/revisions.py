"""The revisions of MCP as data: what each has, one table a revision.

Adding a revision is adding a row. Sources: the specification's changelogs and the pages of each
revision under ``docs/specification/<revision>/``.
"""

from __future__ import annotations

import msgspec


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the protocol.

    Attributes:
        version: The string on the wire.
        modern: Per-request ``_meta`` instead of the ``initialize`` handshake.
        batches: A line may be an array of messages, which must be accepted.
        null_error_ids: An error whose request's id could not be read carries ``"id": null``;
            from 2025-11-25 on the member is left out.
        audio: Tools may return audio content.
        structured: Tools have ``title``, ``outputSchema`` and results ``structuredContent``;
            ``resource_link`` content.
        annotations: Tools have ``annotations``.
        icons: Tools have ``icons``.
        argument_errors_in_results: Arguments that break a tool's schema give a result with
            ``isError``; before, error -32602 (SEP-1303).
        structured_any: ``structuredContent`` may be any JSON value; before, an object.
        progress_message: Progress notifications have ``message``.
        requests: Methods that a client may call on a server.
    """

    version: str
    modern: bool = False
    batches: bool = False
    null_error_ids: bool = True
    audio: bool = True
    structured: bool = True
    annotations: bool = True
    icons: bool = True
    argument_errors_in_results: bool = False
    structured_any: bool = False
    progress_message: bool = True
    requests: frozenset[str]


_LEGACY_REQUESTS = frozenset({"initialize", "ping", "tools/list", "tools/call", "logging/setLevel"})

REVISIONS: dict[str, Revision] = {
    revision.version: revision
    for revision in (
        Revision(
            version="2024-11-05",
            audio=False,
            structured=False,
            annotations=False,
            icons=False,
            progress_message=False,
            requests=_LEGACY_REQUESTS,
        ),
        Revision(
            version="2025-03-26",
            batches=True,
            structured=False,
            icons=False,
            requests=_LEGACY_REQUESTS,
        ),
        Revision(version="2025-06-18", icons=False, requests=_LEGACY_REQUESTS),
        Revision(
            version="2025-11-25",
            null_error_ids=False,
            argument_errors_in_results=True,
            requests=_LEGACY_REQUESTS,
        ),
        Revision(
            version="2026-07-28",
            modern=True,
            null_error_ids=False,
            argument_errors_in_results=True,
            structured_any=True,
            requests=frozenset(
                {"server/discover", "tools/list", "tools/call", "subscriptions/listen"}
            ),
        ),
    )
}

LEGACY_VERSIONS: tuple[str, ...] = tuple(v for v, r in REVISIONS.items() if not r.modern)
MODERN_VERSIONS: tuple[str, ...] = tuple(v for v, r in REVISIONS.items() if r.modern)
LATEST_LEGACY = LEGACY_VERSIONS[-1]
LATEST_MODERN = MODERN_VERSIONS[-1]

# basic/utilities/logging of every revision: severities of RFC 5424, the least severe first.
LOG_LEVELS: tuple[str, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)

META = "io.modelcontextprotocol/"
META_PROTOCOL_VERSION = META + "protocolVersion"
META_CLIENT_CAPABILITIES = META + "clientCapabilities"
META_CLIENT_INFO = META + "clientInfo"
META_LOG_LEVEL = META + "logLevel"
META_SERVER_INFO = META + "serverInfo"
META_SUBSCRIPTION_ID = META + "subscriptionId"
