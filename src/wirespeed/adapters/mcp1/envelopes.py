"""Envelopes of JSON-RPC as the models of `mcp` 1.x, and back.

A message that wirespeed finds valid is decoded without the union of all envelopes. Every other one,
and one whose members have other types than the models ask for, is given to the SDK's own model, so
that it is accepted, or refused with the same error, as without the adapter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import from_json

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message

# The kind of a message and its members, or the error of one that is none.
Decoded: TypeAlias = "tuple[str, dict[str, Any]] | Exception"

MODELS: dict[str, type[Any]] = {
    "request": JSONRPCRequest,
    "notification": JSONRPCNotification,
    "result": JSONRPCResponse,
    "error": JSONRPCError,
}
KINDS = {model: kind for kind, model in MODELS.items()}


def fits(kind: str, data: dict[str, Any]) -> bool:
    """Whether the members have the types of the model, so that it need not check them."""
    if kind == "result":
        return type(data["result"]) is dict
    if kind == "error":
        error = data["error"]
        return (
            type(error) is dict
            and type(error.get("code")) is int
            and type(error.get("message")) is str
        )
    params = data.get("params")
    return params is None or type(params) is dict


def decode(message: Message) -> Decoded:
    """Return the kind and the members of a message."""
    raw = message.raw
    if raw is None:
        return ValueError(message.reason)
    text = bytes(raw)
    kind = message.kind
    if kind in MODELS:
        try:
            data = from_json(text)
        except ValueError:
            data = None
        if data is not None and fits(kind, data):
            return kind, data
    try:
        root = JSONRPCMessage.model_validate_json(text.decode(errors="replace")).root
    except Exception as exc:
        return exc
    return KINDS[type(root)], root.model_dump(by_alias=True, mode="json", exclude_none=True)


def session_message(decoded: Decoded) -> SessionMessage | Exception:
    """Make what the SDK's streams carry."""
    if isinstance(decoded, Exception):
        return decoded
    kind, data = decoded
    root = MODELS[kind].model_validate(data)
    return SessionMessage(JSONRPCMessage.model_construct(root=root))


def encode(item: SessionMessage) -> bytes:
    """Return the JSON text of what the SDK's streams carry."""
    return json_of(item.message)


def id_text(id: int | str) -> bytes:
    """Return an id as JSON text."""
    return b"%d" % id if type(id) is int else json.dumps(id).encode()


def json_of(model: Any) -> bytes:
    """The JSON text of a model as the SDK sends it."""
    text: bytes = model.__pydantic_serializer__.to_json(model, by_alias=True, exclude_none=True)
    return text


def error_text(raw_id: bytes, code: int, message: str) -> bytes:
    """Return an error as JSON text."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (
        raw_id,
        json.dumps({"code": code, "message": message}).encode(),
    )
