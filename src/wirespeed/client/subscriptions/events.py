"""The changes that a server reports, as `Event` values, and the filter of a subscription.

Sources: basic/patterns/subscriptions of 2026-07-28; server/tools, /prompts and /resources ("List
Changed Notification", "Subscriptions") of the earlier revisions.
"""

from typing import Any, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.client.cache import belongs

__all__ = [
    "CHANGES",
    "FIELDS",
    "Event",
    "Notice",
    "Overflowed",
    "PromptsChanged",
    "ResourceUpdated",
    "ResourcesChanged",
    "Resumed",
    "SubscriptionFilter",
    "ToolsChanged",
    "kind_of",
]


class ToolsChanged(msgspec.Struct, frozen=True):
    """The list of tools changed."""


class PromptsChanged(msgspec.Struct, frozen=True):
    """The list of prompts changed."""


class ResourcesChanged(msgspec.Struct, frozen=True):
    """The list of resources, or of resource templates, changed."""


class ResourceUpdated(msgspec.Struct, frozen=True):
    """A resource changed. ``uri`` may name a part of the subscribed resource."""

    uri: str


class Resumed(msgspec.Struct, frozen=True):
    """The connection was lost, and the client subscribed again over the next connection. Changes in
    between are not reported: fetch the data again."""


class Overflowed(msgspec.Struct, frozen=True):
    """More than ``max_events`` events waited, and were dropped: fetch the data again."""


class Notice(msgspec.Struct, frozen=True):
    """A notification of an extension: its method, and its params without the id of the
    subscription in ``_meta``."""

    method: str
    params: dict[str, Any]


Event: TypeAlias = (
    ToolsChanged
    | PromptsChanged
    | ResourcesChanged
    | ResourceUpdated
    | Resumed
    | Overflowed
    | Notice
)

# By method: the name of the list in the cache and in the filter, and the event.
CHANGES: dict[str, tuple[str, Event]] = {
    "notifications/tools/list_changed": ("tools", ToolsChanged()),
    "notifications/prompts/list_changed": ("prompts", PromptsChanged()),
    "notifications/resources/list_changed": ("resources", ResourcesChanged()),
}
_KINDS = {ToolsChanged: "tools", PromptsChanged: "prompts", ResourcesChanged: "resources"}
_FIELDS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
_URIS = "resourceSubscriptions"
# The members of the filter in the specification.
FIELDS = frozenset({*_FIELDS.values(), _URIS})


class SubscriptionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a subscription requests, or that a server reports.

    Attributes:
        tools, prompts, resources: Changes of these lists.
        uris: The resources whose changes are reported.
        more: Further members, of extensions, in their wire form.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    more: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return self.tools or self.prompts or self.resources or bool(self.uris or self.more)

    def wire(self) -> dict[str, Any]:
        """``notifications`` of subscriptions/listen."""
        members = {field: True for kind, field in _FIELDS.items() if getattr(self, kind)}
        uris = {_URIS: list(self.uris)} if self.uris else {}
        return {**members, **uris, **self.more}

    @classmethod
    def of(cls, wire: Any) -> "SubscriptionFilter":
        """Read a filter from its wire form. Members that are not valid are left out."""
        members = dict(wire) if isinstance(wire, dict) else {}
        kinds = {kind: members.pop(field, None) is True for kind, field in _FIELDS.items()}
        uris = members.pop(_URIS, None)
        return cls(
            **kinds,
            uris=tuple(u for u in uris if isinstance(u, str)) if isinstance(uris, list) else (),
            more=members,
        )

    def wants(self, event: Event) -> bool:
        """Whether the filter includes the kind of an event."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            return bool(getattr(self, kind))
        return bool(self.uris if isinstance(event, ResourceUpdated) else self.more)

    def covers(self, uri: str) -> list[str]:
        """Return the URIs of the filter that name a resource, or contain it by their path."""
        return [mine for mine in self.uris if belongs(uri, mine)]


def kind_of(event: Event) -> str | None:
    """The changed list of an event: "tools", "prompts" or "resources"."""
    return _KINDS.get(type(event))


set_public_home(globals())
