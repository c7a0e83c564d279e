"""The messages of LiteMCP as typed classes (LiteMCP 1.0.0, data-structure), and its version rule.

Arguments and contents are strings on the wire. The ``type`` of a parameter or a content is free
text, a hint for the model.
"""

import json
from typing import Annotated, Any, NamedTuple

import msgspec

from wirespeed._exports import set_public_home

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
    """A version as an object, ``{"major": 1, …}``: the specification of ToolCall names its type
    ``Version``, not ``VersionTuple``."""

    major: _Part
    minor: _Part
    patch: _Part


_version = msgspec.json.Decoder(VersionTuple | _VersionObject).decode


def parse_version(raw: Any) -> VersionTuple:
    """Read a version from a JSON text (bytes-like). ValueError: the text is not an array or an
    object of three integers, each at least 0."""
    try:
        found = _version(raw)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("a version is [major, minor, patch], three integers") from None
    if isinstance(found, VersionTuple):
        return found
    return VersionTuple(found.major, found.minor, found.patch)


def refuse_version(raw: Any, own: VersionTuple = VERSION) -> str | None:
    """Return why a message of a version is refused; None if the message is accepted.

    LiteMCP does not negotiate versions. A message is accepted if its major version is that of
    ``own``.
    """
    text = bytes(raw)
    if text == b"[1,0,0]" and own.major == 1:  # the usual form
        return None
    if not text:
        return "the version is missing"
    try:
        found = parse_version(text)
    except ValueError as exc:
        return str(exc)
    if found.major != own.major:
        return f"LiteMCP {found} is not supported, only {own}"
    return None


class IOBasic(msgspec.Struct):
    """The envelope of every message over stdio and WebSocket.

    Attributes:
        type: ``get``, ``info``, ``call`` or ``result``.
        version: The raw JSON; empty when the member is missing.
        id: The raw JSON.
        data: The raw JSON of a `Tool`, `ToolCall` or `CallResult`; null when it is missing.
    """

    type: str
    version: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"null")


class Parameter(msgspec.Struct, omit_defaults=True):
    """A parameter of a tool. Parameters and arguments have the same order."""

    name: str
    type: str
    description: str | None = None
    example: str | None = None


class Tool(msgspec.Struct):
    """A server's description of its tool.

    Attributes:
        name: The name of the tool, which every call contains.
        description, example: Texts for the model, or None.
        parameters: The parameters, in the order of the arguments.
        version: The server's version of LiteMCP.
    """

    name: str
    description: str | None = None
    example: str | None = None
    parameters: list[Parameter] = msgspec.field(default_factory=list)
    version: VersionTuple = VERSION

    def prompt(self) -> str:
        """Return a text that describes the tool and its call to a language model: its name,
        descriptions and parameters, and the JSON of its call (LiteMCP, prompt)."""
        lines = [f"Tool: {self.name}"]
        if self.description:
            lines.append(f"Description: {self.description}")
        if self.parameters:
            lines.append("Parameters, in order:")
            for number, parameter in enumerate(self.parameters, 1):
                lines.append(f"{number}. {parameter.name} ({parameter.type})")
                if parameter.description:
                    lines[-1] += f": {parameter.description}"
                if parameter.example is not None:
                    lines.append(f"   Example: {parameter.example}")
        else:
            lines.append("Parameters: none")
        if self.example:
            lines.append(f"Example of its use: {self.example}")
        samples = [p.example if p.example is not None else f"<{p.name}>" for p in self.parameters]
        call = json.dumps({"tool": self.name, "arguments": samples}, ensure_ascii=False)
        lines += [
            "To call it, answer with this JSON object alone. The arguments are strings, one for "
            "each parameter in the order above:",
            call,
        ]
        return "\n".join(lines)


class ToolCall(msgspec.Struct):
    """A call: the arguments are strings, one for each parameter, in order."""

    tool: str
    arguments: list[str] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


class Content(msgspec.Struct):
    """A piece of a result: its type, a free text, and its data as a string."""

    type: str
    data: str


class Response(msgspec.Struct):
    """The contents that a tool returned. If `error` is true, they are the reason of the failure.

    A tool may return a `Response` to set contents and `error` itself.
    """

    content: list[Content] = msgspec.field(default_factory=list)
    error: bool = False


class CallResult(msgspec.Struct):
    """The result of a call.

    Attributes:
        params: The arguments of the call, by the names of the tool's parameters.
        response: The contents that the tool returned.
        version: The server's version of LiteMCP.
    """

    params: dict[str, str]
    response: Response
    version: VersionTuple = VERSION

    @property
    def content(self) -> list[Content]:
        """The contents that the tool returned."""
        return self.response.content

    @property
    def error(self) -> bool:
        """Whether the tool failed. The contents may contain the reason."""
        return self.response.error

    @property
    def text(self) -> str:
        """The data of all text contents, joined by newlines. A content is text unless its
        type is a media type other than ``text/…`` and ``application/json``."""
        return "\n".join(c.data for c in self.content if not is_media(c.type))


def is_media(kind: str) -> bool:
    """Whether the type of a content is a media type of binary data, which is sent as base64."""
    return "/" in kind and not kind.startswith("text/") and kind != "application/json"


set_public_home(globals())
