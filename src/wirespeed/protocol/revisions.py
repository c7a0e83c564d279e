"""The revisions of MCP as data: what each has, the members of its objects, and the capabilities of
its clients.

Adding a revision is adding a row to `REVISIONS` and to `CAPABILITIES`, and a first or a last
revision to `MEMBERS`. Sources: the specification's changelogs, the pages of each revision under
``docs/specification/<revision>/``, and the five ``schema.ts`` files, member by member.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from wirespeed.protocol import codes
from wirespeed.protocol.meta import META_PREFIX

S = TypeVar("S", bound=msgspec.Struct)


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the protocol.

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
CHANGES = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
_SAID_BY_SERVERS = CHANGES | {
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
}

_OFFERS = frozenset({"tools", "prompts", "resources", "logging", "experimental"})

_FIRST = Revision(
    version="2024-11-05",
    progress_message=False,
    requests=_LEGACY,
    server_requests=_ASKS,
    notifications=_SAID_BY_CLIENTS,
    server_notifications=_SAID_BY_SERVERS,
    capabilities=_OFFERS,
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

META_PROTOCOL_VERSION = META_PREFIX + "protocolVersion"
META_CLIENT_CAPABILITIES = META_PREFIX + "clientCapabilities"
META_CLIENT_INFO = META_PREFIX + "clientInfo"
META_LOG_LEVEL = META_PREFIX + "logLevel"
META_SERVER_INFO = META_PREFIX + "serverInfo"
META_SUBSCRIPTION_ID = META_PREFIX + "subscriptionId"


# -- members of objects: a message is cut to the peer's revision -----------------------------------
# Unknown members are harmless to a peer, but an old schema may be strict.

_ORDER = {version: n for n, version in enumerate(REVISIONS)}


class Since(msgspec.Struct, frozen=True):
    """The revisions that have something: from the first to the last, which may be open."""

    first: str
    last: str | None = None

    def has(self, version: str) -> bool:
        """Whether a revision has it."""
        n = _ORDER[version]
        return _ORDER[self.first] <= n and (self.last is None or n <= _ORDER[self.last])


_0326 = Since("2025-03-26")
_0618 = Since("2025-06-18")
_1125 = Since("2025-11-25")
_26 = Since("2026-07-28")

# Members that not all revisions have. What is not named here is in all of them.
MEMBERS: dict[str, dict[str, Since]] = {
    "Implementation": {"title": _0618, "description": _1125, "websiteUrl": _1125, "icons": _1125},
    "Tool": {
        "annotations": _0326,
        "title": _0618,
        "outputSchema": _0618,
        "_meta": _0618,
        "icons": _1125,
        "execution": Since("2025-11-25", "2025-11-25"),
    },
    "Prompt": {"title": _0618, "_meta": _0618, "icons": _1125},
    "PromptArgument": {"title": _0618},
    "Resource": {"title": _0618, "_meta": _0618, "icons": _1125},
    "ResourceTemplate": {"title": _0618, "_meta": _0618, "icons": _1125},
    "ResourceContents": {"_meta": _0618},
    "Annotations": {"lastModified": _0618},
    "Text": {"_meta": _0618},
    "Image": {"_meta": _0618},
    "Audio": {"_meta": _0618},
    "EmbeddedResource": {"_meta": _0618},
    "ResourceLink": {"icons": _1125},
    "SamplingMessage": {"_meta": _1125},
    "Root": {"_meta": _0618},
    "CompleteParams": {"context": _0618},
    "ListResult": {"ttlMs": _26, "cacheScope": _26, "resultType": _26},
}

# Members that are objects, or arrays of objects, with a row of their own.
NESTED: dict[str, dict[str, str]] = {
    "Prompt": {"arguments": "PromptArgument"},
    "Resource": {"annotations": "Annotations"},
    "ResourceTemplate": {"annotations": "Annotations"},
    "Text": {"annotations": "Annotations"},
    "Image": {"annotations": "Annotations"},
    "Audio": {"annotations": "Annotations"},
    "EmbeddedResource": {"annotations": "Annotations", "resource": "ResourceContents"},
    "ResourceLink": {"annotations": "Annotations"},
    "ToolResultContent": {"content": "Block"},
}

# Kinds of content blocks that not all revisions have.
KINDS: dict[str, Since] = {
    "Audio": _0326,
    "ResourceLink": _0618,
    "ToolUseContent": _1125,
    "ToolResultContent": _1125,
}


@functools.cache
def missing_members(kind: str, version: str) -> frozenset[str]:
    """The members that a revision does not have of a kind of object."""
    return frozenset(
        name for name, since in MEMBERS.get(kind, {}).items() if not since.has(version)
    )


def has_member(kind: str, member: str, version: str) -> bool:
    """Whether a revision's objects of this kind have a member."""
    return member not in missing_members(kind, version)


def fit(kind: str, value: Mapping[str, Any], version: str) -> dict[str, Any]:
    """An object without what a revision does not have of it."""
    drop = missing_members(kind, version)
    fitted = {name: member for name, member in value.items() if name not in drop}
    for name, inner in NESTED.get(kind, {}).items():
        member = fitted.get(name)
        if isinstance(member, Mapping):
            fitted[name] = fit(inner, member, version)
        elif isinstance(member, list):
            fitted[name] = [fit(inner, item, version) for item in member]
    return fitted


@functools.cache
def has_kind(kind: str, version: str) -> bool:
    """Whether a revision has this kind of content block."""
    since = KINDS.get(kind)
    return since is None or since.has(version)


@functools.cache
def _cut(cls: type[msgspec.Struct], version: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Of a class that is named as its kind: the attributes that a revision does not have, with what
    stands for their absence; and those that hold objects with a row of their own."""
    kind, drop = cls.__name__, missing_members(cls.__name__, version)
    fields = msgspec.structs.fields(cls)
    return (
        {one.name: one.default for one in fields if one.encode_name in drop},
        tuple(one.name for one in fields if one.encode_name in NESTED.get(kind, {})),
    )


def fit_struct(value: S, version: str) -> S:
    """`fit` for a typed object: the same object where there is nothing to leave out."""
    dropped, nested = _cut(type(value), version)
    changes = {name: no for name, no in dropped.items() if getattr(value, name) is not no}
    for name in nested:
        member = getattr(value, name)
        if isinstance(member, msgspec.Struct):
            fitted: Any = fit_struct(member, version)
            if fitted is not member:
                changes[name] = fitted
        elif isinstance(member, list):
            fitted = [fit_struct(item, version) for item in member]
            if any(new is not old for new, old in zip(fitted, member, strict=True)):
                changes[name] = fitted
    return msgspec.structs.replace(value, **changes) if changes else value


def fit_tool(tool: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A tool's entry: besides, an ``outputSchema`` of older revisions describes an object."""
    fitted = fit("Tool", tool, version)
    schema = fitted.get("outputSchema")
    any_json = REVISIONS[version].structured_any
    if schema is not None and not any_json and schema.get("type") != "object":
        del fitted["outputSchema"]
    return fitted


# -- capabilities ----------------------------------------------------------------------------------
# Some encoders write a null for a member that is not there, and an array for an object without
# members. Neither can mean anything else among capabilities.

# Their members have settings that only those who know the member can read.
_FREE = frozenset({"experimental", "extensions"})


def understood(capabilities: object) -> dict[str, Any]:
    """Return capabilities without members that are null, and with empty objects for empty arrays.

    >>> understood({"tools": [], "logging": None, "tasks": {"requests": {"tools": {"call": []}}}})
    {'tools': {}, 'tasks': {'requests': {'tools': {'call': {}}}}}
    """
    if not isinstance(capabilities, dict):
        return {}
    return {
        name: _settings(value, 1 if name in _FREE else 8)
        for name, value in capabilities.items()
        if value is not None
    }


def offers(capabilities: Mapping[str, Any], feature: str, what: str) -> bool:
    """Whether a server declares a member of a capability, such as ``resources.subscribe``."""
    declared = capabilities.get(feature)
    return isinstance(declared, dict) and declared.get(what) is True


def _settings(value: Any, depth: int) -> Any:
    if value == []:
        return {}
    if depth and isinstance(value, dict):
        return {k: _settings(v, depth - 1) for k, v in value.items() if v is not None}
    return value


# The members that a capability may have; None: any.
Members = tuple[str, ...] | None

# Of clients: client/elicitation, client/sampling and client/roots of each revision.
CAPABILITIES: dict[str, dict[str, Members]] = {
    "2024-11-05": {"roots": ("listChanged",), "sampling": (), "experimental": None},
    "2025-03-26": {"roots": ("listChanged",), "sampling": (), "experimental": None},
    "2025-06-18": {
        "roots": ("listChanged",),
        "sampling": (),
        "elicitation": (),
        "experimental": None,
    },
    "2025-11-25": {
        "roots": ("listChanged",),
        "sampling": ("context", "tools"),
        "elicitation": ("form", "url"),
        "tasks": None,
        "experimental": None,
    },
    "2026-07-28": {
        "roots": (),
        "sampling": ("context", "tools"),
        "elicitation": ("form", "url"),
        "experimental": None,
        "extensions": None,
    },
}
"""The capabilities and their members."""

CAPABILITY_OF = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The capability that a request of a server needs, by its method."""

ANSWERED = frozenset(CAPABILITY_OF.values())
"""The capabilities that need a handler."""

# The member that a capability without members means. A client without it does not declare it.
_MEANT = {"elicitation": "form"}


def declared(full: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The part of *full*, capabilities in the form of the newest revision, that *version* has.

    >>> full = {"elicitation": {"form": {}, "url": {}}, "extensions": {"com.example/x": {}}}
    >>> declared(full, "2025-06-18")
    {'elicitation': {}}
    """
    result: dict[str, Any] = {}
    for name, members in CAPABILITIES[version].items():
        settings = full.get(name)
        if settings is None:
            continue
        if members is None:
            result[name] = settings
            continue
        kept = {member: settings[member] for member in members if member in settings}
        if not kept and settings and _MEANT.get(name, name) not in (name, *settings):
            continue
        result[name] = kept
    return result
