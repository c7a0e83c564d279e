"""The revisions of MCP as data: what each has, one table a revision.

Adding a revision is adding a row. Sources: the specification's changelogs and the pages of each
revision under ``docs/specification/<revision>/``.
"""

from __future__ import annotations

import msgspec

from wirespeed.protocol import codes


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the protocol. Which member of which object it has is in
    `wirespeed.protocol.shapes`.

    Attributes:
        version: The string on the wire.
        modern: Per-request ``_meta`` instead of the ``initialize`` handshake.
        batches: A line may be an array of messages, which must be accepted.
        null_error_ids: An error whose request's id could not be read carries ``"id": null``;
            from 2025-11-25 on the member is left out.
        argument_errors_in_results: Arguments that break a tool's schema are answered by a result
            with ``isError``; before, by error -32602 (SEP-1303).
        structured_any: ``structuredContent`` may be any JSON value; before, an object.
        polls: A client comes back to a stream of events whose connection the server closed.
        progress_message: Progress notifications have ``message``.
        resource_not_found: The error code for a resource that there is not.
        requests: Methods that a client may call on a server.
        server_requests: Methods that a server may call on a client; in a modern revision, the
            kinds of input requests.
        notifications: What a client may tell a server.
        server_notifications: What a server may tell a client.
        capabilities: What a server may say it can do. (A server of 2024-11-05 may complete
            without saying so.)
        client_capabilities: The same of a client.
        input_methods: Requests that may be answered with ``input_required``
            (basic/patterns/mrtr).
        cached_methods: Requests whose results say how long they may be kept
            (server/utilities/caching).
    """

    version: str
    modern: bool = False
    batches: bool = False
    null_error_ids: bool = True
    argument_errors_in_results: bool = False
    structured_any: bool = False
    polls: bool = False
    progress_message: bool = True
    resource_not_found: int = codes.RESOURCE_NOT_FOUND
    requests: frozenset[str]
    server_requests: frozenset[str]
    notifications: frozenset[str]
    server_notifications: frozenset[str]
    capabilities: frozenset[str]
    client_capabilities: frozenset[str]
    input_methods: frozenset[str] = frozenset()
    cached_methods: frozenset[str] = frozenset()


_LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
_FEATURES = _LISTS | {"tools/call", "prompts/get", "resources/read", "completion/complete"}
_LEGACY = _FEATURES | {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
_TASKS = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})

_ASKS = frozenset({"ping", "sampling/createMessage", "roots/list"})

_SAID_BY_CLIENTS = frozenset(
    {
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/roots/list_changed",
    }
)
_CHANGES = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
_SAID_BY_SERVERS = _CHANGES | {
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
}

_OFFERS = frozenset({"tools", "prompts", "resources", "logging", "experimental"})
_CLIENT_OFFERS = frozenset({"roots", "sampling", "experimental"})

_FIRST = Revision(
    version="2024-11-05",
    progress_message=False,
    requests=_LEGACY,
    server_requests=_ASKS,
    notifications=_SAID_BY_CLIENTS,
    server_notifications=_SAID_BY_SERVERS,
    capabilities=_OFFERS,
    client_capabilities=_CLIENT_OFFERS,
)
_SECOND = msgspec.structs.replace(
    _FIRST,
    version="2025-03-26",
    batches=True,
    progress_message=True,
    capabilities=_OFFERS | {"completions"},
)
_THIRD = msgspec.structs.replace(
    _SECOND,
    version="2025-06-18",
    batches=False,
    server_requests=_ASKS | {"elicitation/create"},
    client_capabilities=_CLIENT_OFFERS | {"elicitation"},
)
_FOURTH = msgspec.structs.replace(
    _THIRD,
    version="2025-11-25",
    null_error_ids=False,
    argument_errors_in_results=True,
    polls=True,
    requests=_LEGACY | _TASKS,
    server_requests=_ASKS | _TASKS | {"elicitation/create"},
    notifications=_SAID_BY_CLIENTS | {"notifications/tasks/status"},
    server_notifications=_SAID_BY_SERVERS
    | {"notifications/elicitation/complete", "notifications/tasks/status"},
    capabilities=_OFFERS | {"completions", "tasks"},
    client_capabilities=_CLIENT_OFFERS | {"elicitation", "tasks"},
)
_FIFTH = Revision(
    version="2026-07-28",
    modern=True,
    null_error_ids=False,
    argument_errors_in_results=True,
    structured_any=True,
    resource_not_found=codes.INVALID_PARAMS,
    requests=_FEATURES | {"server/discover", "subscriptions/listen"},
    server_requests=frozenset({"sampling/createMessage", "roots/list", "elicitation/create"}),
    notifications=frozenset({"notifications/cancelled"}),
    server_notifications=_SAID_BY_SERVERS | {"notifications/subscriptions/acknowledged"},
    capabilities=_OFFERS | {"completions", "extensions"},
    client_capabilities=_CLIENT_OFFERS | {"elicitation", "extensions"},
    input_methods=frozenset({"tools/call", "prompts/get", "resources/read"}),
    cached_methods=_LISTS | {"server/discover", "resources/read"},
)

# Oldest first.
REVISIONS: dict[str, Revision] = {
    revision.version: revision for revision in (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)
}

LEGACY_VERSIONS: tuple[str, ...] = tuple(v for v, r in REVISIONS.items() if not r.modern)
MODERN_VERSIONS: tuple[str, ...] = tuple(v for v, r in REVISIONS.items() if r.modern)
LATEST_LEGACY = LEGACY_VERSIONS[-1]
LATEST_MODERN = MODERN_VERSIONS[-1]

# What clients may call on servers, in any revision.
REQUEST_METHODS: frozenset[str] = frozenset().union(*(r.requests for r in REVISIONS.values()))

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
