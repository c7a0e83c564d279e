"""What the lists of a server show of its tools, prompts, resources and templates."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.blocks import Annotations, Icon

__all__ = ["Entry", "PromptEntry", "ResourceEntry", "TemplateEntry", "ToolEntry"]


class ToolEntry(msgspec.Struct, omit_defaults=True):
    """A tool as tools/list shows it. Clients of older revisions get fewer of the members."""

    name: str
    inputSchema: Mapping[str, Any]  # noqa: N815
    title: str | None = None
    description: str | None = None
    outputSchema: Mapping[str, Any] | None = None  # noqa: N815
    annotations: Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)
    execution: Mapping[str, Any] | None = None


class PromptArgumentEntry(msgspec.Struct, omit_defaults=True):
    """An argument as prompts/list shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class PromptEntry(msgspec.Struct, omit_defaults=True):
    """A prompt as prompts/list shows it. Clients of older revisions get fewer of the members."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgumentEntry] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceEntry(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A resource as resources/list shows it; *size* is in bytes. Clients of older revisions get
    fewer of the members."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


class TemplateEntry(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A template as resources/templates/list shows it. Clients of older revisions get fewer of the
    members."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


Entry: TypeAlias = ToolEntry | PromptEntry | ResourceEntry | TemplateEntry
"""What `Server(filter=…)` judges."""


set_public_home(globals())
