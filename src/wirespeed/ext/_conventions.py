"""What spans say of requests: the semantic conventions of OpenTelemetry for MCP."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from wirespeed.server.server import Server

CANCELLED = 1  # in the place of an error's code, which is never that
MAX_TEXT = 1024  # characters that a peer may put into a span, in one place


def attributes_of(method: str, target: str | None, version: str | None) -> dict[str, Any]:
    """The attributes of a request, of both sides."""
    attributes: dict[str, Any] = {"mcp.method.name": text_of(method)}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if target is not None:
        target = text_of(target)
        if method == "tools/call":
            attributes["gen_ai.tool.name"] = target
        elif method == "prompts/get":
            attributes["gen_ai.prompt.name"] = target
        elif method.startswith("resources/"):
            attributes["mcp.resource.uri"] = target
    if version is not None:
        attributes["mcp.protocol.version"] = text_of(version)
    return attributes


def span_name(method: str, target: str | None) -> str:
    if target is not None and method in ("tools/call", "prompts/get"):
        return f"{method} {target}"
    return method


def server_span_name(server: Server, method: str, target: str | None) -> str:
    """As `span_name`; what the server does not have makes no name: clients must not invent them."""
    if method == "tools/call" and target not in server.service.tools:
        return method
    if method == "prompts/get" and target not in server.service.prompts:
        return method
    return span_name(method, target)


def error_attributes(code: int, failed: bool) -> dict[str, Any]:
    if code == CANCELLED:
        return {"error.type": "cancelled"}
    if code:
        return {"error.type": str(code), "rpc.response.status_code": str(code)}
    return {"error.type": "tool_error"} if failed else {}


def id_text(raw_id: bytes) -> str:
    try:
        return str(msgspec.json.decode(raw_id))
    except msgspec.DecodeError:  # half a surrogate pair
        return raw_id.decode("utf-8", "replace")


def text_of(text: str) -> str:
    """A peer's words as exporters can write them: short, and without halves of surrogate pairs."""
    text = text[:MAX_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def strings_of(meta: Any) -> dict[str, str]:
    """The strings of a request's ``_meta``, given as JSON text; none of one that is malformed."""
    try:
        members = {} if meta is None else msgspec.json.decode(meta, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {key: value for key, value in members.items() if isinstance(value, str)}


def exception_attributes(exception: BaseException, escaped: bool) -> dict[str, Any]:
    kind = type(exception)
    module = kind.__module__
    name = kind.__qualname__ if module in ("builtins", None) else f"{module}.{kind.__qualname__}"
    return {
        "exception.type": name,
        "exception.message": str(exception),
        "exception.stacktrace": "".join(traceback.format_exception(exception)),
        "exception.escaped": str(escaped),
    }
