"""Types of what servers list and tell: tools, resources, prompts, completion and discovery, and
progress and log notifications.

Unknown members are ignored, as every revision requires. Sources: server/tools, server/resources,
server/prompts and server/utilities/completion of each revision, and the schemas. Results of calls
are in `wirespeed.protocol.results`.
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
    digest: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class _Named(msgspec.Struct, rename="camel", kw_only=True):
    """The members of all named items. ``title`` is of 2025-06-18, ``icons`` of 2025-11-25."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[dict[str, Any]] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """The name to show to people: the title, or the name (basic, "title")."""
        return self.title or self.name


class ResourceInfo(_Named, rename="camel", kw_only=True):
    """A resource in a server's list. ``size`` is in bytes; ``annotations`` (audience, priority,
    lastModified) are hints."""

    uri: str
    mime_type: str | None = None
    size: int | float | None = None
    annotations: dict[str, Any] | None = None


class ResourceTemplateInfo(_Named, rename="camel", kw_only=True):
    """A resource template in a server's list. ``uri_template`` (RFC 6570) is for
    `Client.read_template`."""

    uri_template: str
    mime_type: str | None = None
    annotations: dict[str, Any] | None = None


class PromptArgument(msgspec.Struct, kw_only=True):
    """An argument that a prompt takes."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class PromptInfo(_Named, rename="camel", kw_only=True):
    """A prompt in a server's list."""

    arguments: list[PromptArgument] = msgspec.field(default_factory=list)


class _Page(msgspec.Struct, rename="camel", kw_only=True):
    """One page of a list. ``""`` is a cursor; None is the end.

    ``ttl_ms`` and ``cache_scope``: see `wirespeed.client.cache`.
    """

    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    digest: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class ListResourcesResult(_Page, rename="camel", kw_only=True):
    """One page of resources/list. ``""`` is a cursor; None is the end."""

    resources: list[ResourceInfo]


class ListResourceTemplatesResult(_Page, rename="camel", kw_only=True):
    """One page of resources/templates/list. ``""`` is a cursor; None is the end."""

    resource_templates: list[ResourceTemplateInfo]


class ListPromptsResult(_Page, rename="camel", kw_only=True):
    """One page of prompts/list. ``""`` is a cursor; None is the end."""

    prompts: list[PromptInfo]


class Discovery(msgspec.Struct, rename="camel"):
    """The result of server/discover (2026-07-28): revisions, capabilities and instructions."""

    supported_versions: list[str]
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    instructions: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    digest: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


# -- skills ----------------------------------------------------------------------------------------


class SkillFile(msgspec.Struct, frozen=True):
    """A file of a skill that was verified.

    Attributes:
        server: The label of the server that it came from.
        uri: Its URI.
        data: Its bytes.
        mime_type: Its media type, as the server says.
    """

    server: str
    uri: str
    data: bytes
    mime_type: str | None = None

    @property
    def text(self) -> str:
        """The file as text. UnicodeDecodeError: it is not UTF-8."""
        return self.data.decode()


# -- completion ------------------------------------------------------------------------------------


class PromptRef(msgspec.Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    """The argument to complete belongs to a prompt."""

    name: str


class ResourceRef(msgspec.Struct, frozen=True, tag_field="type", tag="ref/resource"):
    """The argument to complete is a variable of a resource template, such as ``file:///{path}``."""

    uri: str


# -- notifications ---------------------------------------------------------------------------------


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
