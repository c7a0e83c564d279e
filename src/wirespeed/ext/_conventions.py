"""Names and attributes of spans: the semantic conventions of OpenTelemetry for MCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from opentelemetry.trace import Status, StatusCode

if TYPE_CHECKING:
    from wirespeed.server.server import Server

# What `wirespeed.server.requests.params.described` returns: method, target (the name of a tool or
# prompt, or a URI), protocol version, JSON text of the id.
Request: TypeAlias = tuple[str, str | None, str | None, bytes]

CANCELLED = 1  # in place of an error code; no error has this code
MAX_TEXT = 1024  # the most characters that a span has of one text of the peer


def attributes_of(method: str, target: str | None, version: str | None) -> dict[str, Any]:
    """Return the attributes that a request has in the client's and in the server's span."""
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


def request_attributes(request: Request) -> dict[str, Any]:
    """Return the attributes of a request that a server received."""
    method, target, version, raw_id = request
    attributes = attributes_of(method, target, version)
    attributes["jsonrpc.request.id"] = id_text(raw_id) if len(raw_id) <= MAX_TEXT else ""
    return attributes


def span_name(method: str, target: str | None) -> str:
    if target is not None and method in ("tools/call", "prompts/get"):
        return f"{method} {target}"
    return method


def server_span_name(server: Server, method: str, target: str | None) -> str:
    """Return the `span_name` with a target that the server has, otherwise the method alone: clients
    must not choose the names of spans."""
    if method == "tools/call" and target not in server.service.tools:
        return method
    if method == "prompts/get" and target not in server.service.prompts:
        return method
    return span_name(method, target)


def mark_failed(span: Any, code: int, failed: bool, note: str | None) -> None:
    """Record the failure of a request in its span: an error's code and text, or ``isError``."""
    error = error_attributes(code, failed)
    if error:
        span.set_attributes(error)
        span.set_status(Status(StatusCode.ERROR, None if note is None else text_of(note)))


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
    """Return a peer's text as an exporter can send it: short, and without lone surrogates."""
    text = text[:MAX_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def strings_of(meta: Any) -> dict[str, str]:
    """Return the string members of ``meta``, the JSON text of a request's ``_meta``; no members if
    the text is not a valid object."""
    try:
        members = {} if meta is None else msgspec.json.decode(meta, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {key: value for key, value in members.items() if isinstance(value, str)}
