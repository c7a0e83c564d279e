"""Bridges between LiteMCP and MCP: a tool of one protocol as a tool of the other.

LiteMCP passes arguments as strings by position, MCP as JSON values by name. The bridges convert
them:

* **LiteMCP to MCP** (`as_mcp_tool`): every parameter is a string, required unless it is named as
  optional. Its description contains its type and its example. Contents of an image or audio type
  become blocks of that kind, all other contents become text blocks.
* **MCP to LiteMCP** (`as_lite_server`): the parameters are those of the schema, required parameters
  first. An argument is passed as a string if the schema allows a string, otherwise as the value of
  its JSON text. Text blocks become ``text``. Images and audio keep their media type, with base64.
  Structured content becomes ``json``.

An error of the tool remains an error. LiteMCP has no cancellation: the LiteMCP server continues a
cancelled call, and its answer is dropped; over HTTP the server cancels the call. A failure of the
link is reported to the caller without details, which the log has.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import CallTimeout, InvalidResponse, RemoteError, WirespeedError
from wirespeed.litemcp.contents import contents_of, json_content
from wirespeed.litemcp.messages import Content, Parameter, Response
from wirespeed.litemcp.server import LiteServer
from wirespeed.litemcp.tool import parameter_of
from wirespeed.protocol.blocks import Audio, Image, Text, UnknownContent
from wirespeed.schema.from_strings import ArgumentError, text_of, type_text
from wirespeed.server.tools.results import ToolResult
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.client.client import Client
    from wirespeed.client.results.features import ToolInfo
    from wirespeed.limits import Limits
    from wirespeed.litemcp.client import LiteClient
    from wirespeed.litemcp.messages import CallResult, Tool
    from wirespeed.protocol.results import CallToolResult
    from wirespeed.server.server import Server
    from wirespeed.server.tools.tool import Tool as McpTool

__all__ = ["as_lite_server", "as_mcp_tool"]

logger = logging.getLogger("wirespeed.litemcp")
quiet = RateLimitedLog(logger)

_arguments = msgspec.json.Decoder(dict[str, Any]).decode
_json = msgspec.json.encode


def _explain(what: str, exc: WirespeedError) -> str:
    """Log a failed call, and return the text for its caller."""
    quiet.log(logging.WARNING, "%s: %s", what, exc)
    if isinstance(exc, CallTimeout):
        return f"{what} did not answer in time"
    if isinstance(exc, RemoteError):  # the peer's own words
        return f"{what}: {exc.message}"
    return f"{what} cannot be reached"


# -- LiteMCP to MCP -------------------------------------------------------------------------------


async def as_mcp_tool(
    server: Server,
    client: LiteClient,
    *,
    name: str | None = None,
    info: Tool | None = None,
    optional: Sequence[str] = (),
    timeout: float | None = None,
) -> McpTool:
    """Register the tool of a LiteMCP server on an MCP server.

    The first call opens the client, and a call after a lost link opens it again. The caller closes
    the client.

    Args:
        server: The MCP server.
        client: A client of the LiteMCP server.
        name: The name of the new tool; by default the name of the LiteMCP tool.
        info: The description of the tool; by default the LiteMCP server is asked for it now.
        optional: Parameters that callers may leave out. LiteMCP does not describe which parameters
            are optional.
        timeout: The time limit of a call in seconds, instead of the client's.

    Raises:
        ValueError: The MCP server has a tool of this name, or a name in ``optional`` is not a
            parameter.
        WirespeedError: The LiteMCP server cannot be asked.
    """
    if info is None:
        await client.open()
        info = await client.info()
    names = [parameter.name for parameter in info.parameters]
    if unknown := set(optional) - set(names):
        raise ValueError(f"{info.name} has no parameter {', '.join(sorted(unknown))}")
    required = [one for one in names if one not in optional]
    schema = {
        "type": "object",
        "properties": {p.name: _string_schema(p) for p in info.parameters},
        "required": required,
        "additionalProperties": False,
    }
    what = f"tool {name or info.name}"

    async def handler(arguments: Any) -> ToolResult:
        given = _texts(_arguments(arguments))
        if missing := [one for one in required if one not in given]:
            return _failed(f"missing argument: {', '.join(missing)}")
        if wrong := [one for one in given if one not in names]:
            return _failed(f"unknown argument: {', '.join(wrong)}")
        last = max(map(names.index, given), default=-1)
        strings = [given.get(one, "") for one in names[: last + 1]]
        try:
            await client.open()
            if timeout is None:
                result = await client.invoke(strings)
            else:
                result = await client.invoke(strings, timeout=timeout)
        except WirespeedError as exc:
            return _failed(_explain(what, exc))
        return _tool_result(result)

    description = info.description or ""
    if info.example:
        description = f"{description}\n\nExample: {info.example}".strip()
    return server.tool_raw(name or info.name, schema, handler, description=description or None)


def as_mcp_server(name: str, target: Any, limits: Limits) -> Server:
    """Return an MCP server that has the tool of a LiteMCP server. Its parameters are strings.

    While it is served, it is a client of that server, which is started, or asked what its tool is,
    at the start. A LiteMCP server that ended is started again at the next call.
    """
    from wirespeed.litemcp.client import LiteClient
    from wirespeed.server.server import Server

    @contextlib.asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        async with LiteClient(target, limits=limits) as client:
            tool = await as_mcp_tool(server, client)
            try:
                yield
            finally:
                server.remove_tool(tool.name)

    return Server(name, lifespan=life)


def _string_schema(parameter: Parameter) -> dict[str, Any]:
    said = [parameter.description or ""]
    if said[0] and said[0][-1] not in ".!?":
        said[0] += "."
    if parameter.type not in ("", "string"):
        said.append(f"Type: {parameter.type}.")
    if parameter.example is not None:
        said.append(f"Example: {parameter.example}")
    text = " ".join(part for part in said if part)
    return {"type": "string", "description": text} if text else {"type": "string"}


def _texts(given: dict[str, Any]) -> dict[str, str]:
    """Return the arguments as strings. A null argument counts as left out."""
    return {name: text_of(value) for name, value in given.items() if value is not None}


def _failed(text: str) -> ToolResult:
    return ToolResult(content=text, is_error=True)


def _tool_result(result: CallResult) -> ToolResult:
    return ToolResult(content=[_block(c) for c in result.content], is_error=result.error)


def _block(content: Content) -> Text | Image | Audio:
    kind = content.type.lower()
    for prefix, make in (("image/", Image), ("audio/", Audio)):
        if kind.startswith(prefix):
            try:
                data = base64.b64decode(content.data, validate=True)
            except (binascii.Error, ValueError):
                break  # not base64: sent as text
            return make(data=data, mime_type=content.type)
    return Text(text=content.data)


# -- MCP to LiteMCP -------------------------------------------------------------------------------


async def as_lite_server(
    client: Client,
    tool_name: str,
    *,
    name: str | None = None,
    info: ToolInfo | None = None,
    timeout: float | None = None,
    **options: Any,
) -> LiteServer:
    """Return a LiteMCP server for a tool of an MCP server.

    The first call opens the client, and a call after a lost link opens it again. The caller closes
    the client.

    Args:
        client: A client of the MCP server.
        tool_name: The name of the MCP tool.
        name: The name of the LiteMCP tool; by default the name of the MCP tool.
        info: The description of the tool; by default the MCP server is asked for it now.
        timeout: The time limit of a call in seconds, instead of the client's.
        options: The options of `LiteServer`.

    Raises:
        LookupError: The MCP server has no such tool.
        InvalidResponse: The input schema of the tool is not valid.
        WirespeedError: The MCP server cannot be asked.
    """
    if info is None:
        await client.open()
        info = next((t for t in await client.list_tools() if t.name == tool_name), None)
        if info is None:
            raise LookupError(f"the MCP server has no tool {tool_name!r}")
    try:
        plan = _Schema(info.input_schema)
    except Exception as exc:  # a server may write anything there
        raise InvalidResponse(f"the input schema of {info.name} is not valid: {exc!r}") from exc
    what = f"tool {name or tool_name}"

    async def handler(arguments: list[str]) -> Response:
        values = plan.read(arguments)
        try:
            await client.open()
            if timeout is None:
                result = await client.call_tool(tool_name, values)
            else:
                result = await client.call_tool(tool_name, values, timeout=timeout)
        except WirespeedError as exc:
            return Response([Content("text", _explain(what, exc))], True)
        return Response(_contents(result), result.is_error)

    options.setdefault("description", info.description or info.title)
    server = LiteServer(name or tool_name, **options)
    server.tool_raw(plan.parameters, handler)
    return server


class _Schema:
    """The properties of an input schema as parameters, required properties first."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._defs = {**schema.get("definitions", {}), **schema.get("$defs", {})}
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            properties = {}
        required = [one for one in schema.get("required", ()) if one in properties]
        names = [one for one in properties if one in required]
        names += [one for one in properties if one not in required]
        self._required = len(required)
        self._names = names
        self._schemas = [self._resolved(properties[one]) for one in names]
        self.parameters = [
            parameter_of(one, found, self._defs, optional=at >= self._required)
            for at, (one, found) in enumerate(zip(names, self._schemas, strict=True))
        ]

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema with the ``$ref`` of its top level resolved."""
        for _ in range(16):
            ref = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(ref, str):
                break
            found = self._defs.get(ref.rpartition("/")[2])
            own = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**found, **own} if isinstance(found, dict) else own
        return schema if isinstance(schema, dict) else {}

    def read(self, arguments: list[str]) -> dict[str, Any]:
        """Return the arguments of a call by name. ArgumentError: a required argument is missing, or
        an argument has the wrong type."""
        if len(arguments) < self._required:
            missing = self._names[len(arguments) : self._required]
            plural = "s" if len(missing) > 1 else ""
            raise ArgumentError(f"missing argument{plural}: {', '.join(missing)}")
        values = {}
        for at, text in enumerate(arguments):
            if text or at < self._required or not self._is_gap(at, len(arguments)):
                values[self._names[at]] = self._value(at, self._schemas[at], text)
        return values

    def _is_gap(self, at: int, given: int) -> bool:
        """Whether an empty string stands for an argument that is left out."""
        return at < given - 1 or "string" not in _kinds(self._schemas[at], self._resolved)

    def _value(self, at: int, schema: dict[str, Any], text: str) -> Any:
        allowed = schema.get("enum")
        if isinstance(allowed, list) and text in allowed:
            return text
        kinds = _kinds(schema, self._resolved)
        if not allowed and ("string" in kinds or not kinds):
            return text
        try:
            value = msgspec.json.decode(text.strip() if kinds != {"boolean"} else text.lower())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            pass
        else:
            if (not kinds or kinds & _kinds_of(value)) and (not allowed or value in allowed):
                return value
        wanted = type_text(schema, self._defs)
        raise ArgumentError(f"argument '{self._names[at]}': expected {wanted}, got {text[:80]!r}")


def _kinds(schema: dict[str, Any], resolve: Any) -> set[str]:
    """Return the JSON types that a schema names, if any."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    found: set[str] = set()
    for key in ("anyOf", "oneOf"):
        for part in schema.get(key, ()):
            found |= _kinds(resolve(part), resolve)
    if "const" in schema:
        found |= _kinds_of(schema["const"])
    return found


def _kinds_of(value: Any) -> set[str]:
    """Return the JSON types of a value."""
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"}
    if isinstance(value, str):
        return {"string"}
    return {"array"} if isinstance(value, list) else {"object"}


def _contents(result: CallToolResult) -> list[Content]:
    # a block of a type that this version does not know becomes its JSON
    blocks: list[Any] = [b.data if isinstance(b, UnknownContent) else b for b in result.content]
    structured = result.structured_content
    if structured is msgspec.UNSET:
        return contents_of(blocks)
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        text = blocks[0].text
        # a text that only repeats the structured content, for clients that do not read that
        if _same(text, structured):
            return [Content("json", _json(structured).decode())]
        if isinstance(structured, dict) and structured.keys() == {"result"}:
            value = structured["result"]
            if text == value or _same(text, value):
                return [json_content(value)]
    return [*contents_of(blocks), Content("json", _json(structured).decode())]


def _same(text: str, value: Any) -> bool:
    try:
        return bool(msgspec.json.decode(text) == value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
