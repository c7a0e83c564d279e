"""Content: the blocks that results and messages are made of, and the contents of resources, for
both sides.

Sources: server/tools, "Tool Result", server/resources, "Resource Contents", and the ``schema.ts``
of each revision. Audio is from 2025-03-26 on, links to resources from 2025-06-18 on; which members
a revision does not have is in `wirespeed.protocol.revisions`.
"""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import field

from wirespeed._exports import set_public_home
from wirespeed.protocol.revisions import fit_struct, has_kind
from wirespeed.protocol.structs import ExplainedStruct

BYTES = (bytes, bytearray, memoryview)


class Annotations(
    msgspec.Struct, metaclass=ExplainedStruct, omit_defaults=True, rename="camel", kw_only=True
):
    """Hints on a block: who it is for, how important (0..1), ISO 8601 time of last change."""

    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    last_modified: str | None = None

    def __post_init__(self) -> None:
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"priority is between 0 and 1, not {self.priority}")


class Icon(msgspec.Struct, metaclass=ExplainedStruct, omit_defaults=True, rename="camel"):
    """An icon: https or data URI, media type, sizes such as "48x48", theme (2025-11-25)."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class ContentBlock(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """The members of all blocks: annotations, and ``_meta`` (2025-06-18). ``type`` of each class is
    its name on the wire, such as ``"text"``."""

    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")

    def describe(self) -> str:
        """The text for a peer whose revision does not have this kind of block."""
        return f"[{type(self).__name__}]"


class Text(ContentBlock, tag_field="type", tag="text"):
    """Plain text."""

    type: ClassVar[Literal["text"]] = "text"

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Text takes str, not {type(self.text).__name__}")


class Image(ContentBlock, metaclass=ExplainedStruct, tag_field="type", tag="image"):
    """An image: its bytes (base64 on the wire) and media type, such as "image/png"."""

    type: ClassVar[Literal["image"]] = "image"
    _instead: ClassVar[dict[str, str]] = {
        "format": 'write mime_type="image/png"',
        "path": "write data=Path(…).read_bytes() and its mime_type",
        "mime_type": 'write Image(Path(…).read_bytes(), "image/png")',
    }

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _check_bytes(self, self.data)


class Audio(ContentBlock, metaclass=ExplainedStruct, tag_field="type", tag="audio"):
    """Sound: its bytes (base64 on the wire) and media type, such as "audio/wav" (2025-03-26)."""

    type: ClassVar[Literal["audio"]] = "audio"
    _instead: ClassVar[dict[str, str]] = {
        "format": 'write mime_type="audio/wav"',
        "path": "write data=Path(…).read_bytes() and its mime_type",
        "mime_type": 'write Audio(Path(…).read_bytes(), "audio/wav")',
    }

    data: bytes
    mime_type: str

    def __post_init__(self) -> None:
        _check_bytes(self, self.data)

    def describe(self) -> str:
        return f"[audio: {self.mime_type}, {memoryview(self.data).nbytes} bytes]"


class ResourceContents(
    msgspec.Struct, metaclass=ExplainedStruct, omit_defaults=True, rename="camel"
):
    """The contents of a resource, or of a part of one: either *text* or *blob*.

    Attributes:
        uri: The resource; may be a sub-resource of the one that was asked for.
        mime_type: Its media type, if that is known.
        text: The text, or None for what is not text.
        blob: The bytes (base64 on the wire), or None for text.
        meta: ``_meta`` of the contents (2025-06-18).
    """

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: bytes | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise ValueError("ResourceContents takes exactly one of text and blob")
        if self.blob is not None:
            _check_bytes(self, self.blob)


class EmbeddedResource(ContentBlock, metaclass=ExplainedStruct, tag_field="type", tag="resource"):
    """A resource sent along."""

    type: ClassVar[Literal["resource"]] = "resource"

    resource: ResourceContents


class ResourceLink(ContentBlock, metaclass=ExplainedStruct, tag_field="type", tag="resource_link"):
    """A resource that the client may read or subscribe to (2025-06-18). *size* is in bytes."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None

    def describe(self) -> str:
        return f"[resource: {self.title or self.name}] {self.uri}"


Block = Text | Image | Audio | EmbeddedResource | ResourceLink
"""A part of the content of a tool's result, or of a prompt's message."""


class UnknownContent(msgspec.Struct):
    """A content block of a type that this version does not know, as it came."""

    data: dict[str, Any]

    @property
    def type(self) -> str:
        """Its type on the wire."""
        return str(self.data.get("type", "unknown"))

    def describe(self) -> str:
        """The text that stands for it when it is passed on: no revision is known to have it."""
        return f"[{self.type}]"


def fit_block(block: ContentBlock | UnknownContent, version: str) -> ContentBlock:
    """A block as a revision has it: without the members that it does not know; a text that says
    what it was, where the revision does not have the kind."""
    if isinstance(block, UnknownContent) or not has_kind(type(block).__name__, version):
        return Text(block.describe())
    return fit_struct(block, version)


def _check_bytes(owner: object, data: object) -> None:
    if not isinstance(data, BYTES):
        raise TypeError(f"{type(owner).__name__} takes bytes, not {type(data).__name__}")


set_public_home(globals())
