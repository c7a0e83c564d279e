"""Types of tools/list, and of progress and log notifications.

Unknown members are ignored, as every revision requires. Results of calls are in
`wirespeed.protocol.results`; resources, prompts and completion in
`wirespeed.client.results.features`.
"""

from typing import Any

import msgspec

from wirespeed._exports import set_public_home


class ToolInfo(msgspec.Struct, rename="camel"):
    """A tool in a server's list. ``annotations`` are hints: do not trust them."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    icons: list[dict[str, Any]] | None = None
    execution: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """The name to show to people: title, the annotations' title, or name (basic, "title")."""
        return self.title or (self.annotations or {}).get("title") or self.name


class ListToolsResult(msgspec.Struct, rename="camel"):
    """One page of tools/list. ``""`` is a cursor; None is the end."""

    tools: list[ToolInfo]
    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class Progress(msgspec.Struct):
    """notifications/progress."""

    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(msgspec.Struct):
    """notifications/message. ``data`` is the message; ``logger`` names a part of the server."""

    level: str
    data: Any = None
    logger: str | None = None


set_public_home(globals())
