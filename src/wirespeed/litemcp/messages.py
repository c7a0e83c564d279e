"""LiteMCP's messages, typed (LiteMCP 1.0.0, data-structure), and the rule for versions.

Every value of a call is a string on the wire; the ``type`` of a parameter or a content is free
text, a hint for the model.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

__all__ = [
    "VERSION",
    "CallResult",
    "Content",
    "IOBasic",
    "Parameter",
    "Response",
    "Tool",
    "ToolCall",
    "VersionTuple",
    "parse_version",
    "refuse_version",
]

_Part = Annotated[int, msgspec.Meta(ge=0)]


class VersionTuple(NamedTuple):
    """A version of LiteMCP: ``[major, minor, patch]`` on the wire, compared number by number."""

    major: _Part
    minor: _Part
    patch: _Part

    def __str__(self) -> str:
        return ".".join(map(str, self))


VERSION = VersionTuple(1, 0, 0)


class _VersionObject(msgspec.Struct):
    """``{"major": 1, …}``: the page on ToolCall calls its version a ``Version``."""

    major: _Part
    minor: _Part
    patch: _Part


_version = msgspec.json.Decoder(VersionTuple | _VersionObject).decode


def parse_version(raw: Any) -> VersionTuple:
    """The version in a JSON text (bytes-like). ValueError for anything but three integers, none of
    them negative, as an array or as an object."""
    try:
        found = _version(raw)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("a version is [major, minor, patch], three integers") from None
    if isinstance(found, VersionTuple):
        return found
    return VersionTuple(found.major, found.minor, found.patch)


def refuse_version(raw: Any, own: VersionTuple = VERSION) -> str | None:
    """Why a message of this version cannot be served; None if it can.

    There is no negotiation: an equal major version will do, whatever the others are.
    """
    text = bytes(raw)
    if text == b"[1,0,0]" and own.major == 1:  # as almost everybody writes it
        return None
    if not text:
        return "the version is missing"
    try:
        found = parse_version(text)
    except ValueError as exc:
        return str(exc)
    if found.major != own.major:
        return f"LiteMCP {found} is not spoken here, but {own}"
    return None


class IOBasic(msgspec.Struct):
    """The envelope of every message over stdio and WebSocket.

    Attributes:
        type: ``get``, ``info``, ``call`` or ``result``.
        version: As it came; empty when it is missing.
        id: As it came.
        data: As it came: of `Tool`, `ToolCall` or `CallResult`. An absent one is null.
    """

    type: str
    version: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"null")


class Parameter(msgspec.Struct, omit_defaults=True):
    """A parameter of a tool; their order is that of the arguments."""

    name: str
    type: str
    description: str | None = None
    example: str | None = None


class Tool(msgspec.Struct):
    """What a server says of its tool.

    Attributes:
        name: What a call must name.
        description, example: For the model, or None.
        parameters: In the order of the arguments.
        version: Of LiteMCP, as the server speaks it.
    """

    name: str
    description: str | None = None
    example: str | None = None
    parameters: list[Parameter] = msgspec.field(default_factory=list)
    version: VersionTuple = VERSION

    def prompt(self) -> str:
        """A text that tells a language model what this tool is and how to call it."""
        from wirespeed.litemcp.prompt import prompt_of

        return prompt_of(self)


class ToolCall(msgspec.Struct):
    """A call: the arguments are strings, one for each parameter, in order."""

    tool: str
    arguments: list[str] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


class Content(msgspec.Struct):
    """A piece of a result: a free text that says what it is, and the data as a string."""

    type: str
    data: str


class Response(msgspec.Struct):
    """What a tool gave; with `error`, why it failed. The shape is the same.

    A tool may return one to say everything itself.
    """

    content: list[Content] = msgspec.field(default_factory=list)
    error: bool = False


class CallResult(msgspec.Struct):
    """The result of a call.

    Attributes:
        params: The arguments that the tool got, by the names of its parameters.
        response: What it gave.
        version: Of LiteMCP, as the server speaks it.
    """

    params: dict[str, str]
    response: Response
    version: VersionTuple = VERSION

    @property
    def content(self) -> list[Content]:
        """What the tool gave, piece by piece."""
        return self.response.content

    @property
    def error(self) -> bool:
        """Whether the tool failed; the content may say why."""
        return self.response.error

    @property
    def text(self) -> str:
        """The data of all contents that are no media (whose type is no media type, or a text
        one), joined by newlines."""
        return "\n".join(c.data for c in self.content if not is_media(c.type))


def is_media(kind: str) -> bool:
    """Whether the type of a content is a media type of bytes, whose data is base64."""
    return "/" in kind and not kind.startswith("text/") and kind != "application/json"
