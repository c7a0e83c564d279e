"""Conversion of a tool's return value to LiteMCP contents.

==========================================  =====================================================
value                                       contents
==========================================  =====================================================
``None``                                    none
``str``, and what JSON writes as a string   one, of type ``text``
``bool``                                    one, ``boolean``: ``true`` or ``false``
``int``, ``float``, ``Decimal``             one, ``number``, as JSON writes it
``bytes``                                   one, ``application/octet-stream``, base64
`wirespeed.types.Image`, ``Audio``         one, of their media type, base64
`wirespeed.types.Text`                     one, ``text``
`wirespeed.types.EmbeddedResource`         one, of its media type: its text, or its data as base64
`Content`                                   unchanged
list, tuple, set, items of a generator      those of the items, in order; a list inside a list is
                                            ``json``
dict, struct, dataclass, model              one, ``json``; so are other content classes of MCP
`Response`                                  its contents, unchanged
==========================================  =====================================================
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import msgspec

from wirespeed.litemcp.messages import Content, Response
from wirespeed.schema.json_schema import one_line
from wirespeed.schema.python_types import enc_hook

__all__ = ["LiteResultError", "contents_of", "encode_text", "json_content", "response_of"]

BINARY = "application/octet-stream"
_BYTES = (bytes, bytearray, memoryview)
# `__module__` of MCP's content blocks and results. The comparison does not import their modules.
_MCP = "wirespeed.types"
_RESULTS = {"Completion", "PromptMessage", "RawResult", "ToolResult"}
_RESULTS |= {"CallToolResult", "GetPromptResult", "ReadResourceResult"}
_COLLECTIONS = (list, tuple, set, frozenset)

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


class LiteResultError(ValueError):
    """The value of a tool cannot be sent. The caller receives the text as the reason."""


def response_of(value: Any) -> Response:
    """Convert a tool's value to a response. LiteResultError: the value cannot be sent."""
    if type(value) is str:  # the most frequent type
        return Response([Content("text", value)])
    if isinstance(value, Response):
        for content in value.content:
            _check(content)
        return value
    return Response(contents_of(value))


def contents_of(value: Any) -> list[Content]:
    """Convert a value to contents. LiteResultError: the value cannot be sent."""
    if value is None:
        return []
    if isinstance(value, _COLLECTIONS) and not hasattr(value, "_fields"):
        found: list[Content] = []
        for item in value:
            if isinstance(item, _COLLECTIONS):
                found.append(json_content(item))
            else:
                found += _one(item)
        return found
    return _one(value)


def _one(value: Any) -> list[Content]:
    if value is None:
        return [json_content(value)]
    if isinstance(value, str):
        return [Content("text", str.__str__(value))]
    if isinstance(value, Content):
        return [_check(value)]
    if isinstance(value, _BYTES):
        return [media(BINARY, value)]
    if isinstance(value, float):
        return [Content("number", _number(float(value)))]
    if isinstance(value, Decimal):
        return [Content("number", str(value))]
    if type(value).__module__ == _MCP:
        return _block(value)
    return [json_content(value)]


def _number(value: float) -> str:
    """Format a number for a model: ``5``, not ``5.0``, for every Python type."""
    if math.isfinite(value) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)


def media(kind: str, data: Any) -> Content:
    """Return the content for bytes of a media type."""
    return Content(kind, base64.b64encode(data).decode("ascii"))


def json_content(value: Any) -> Content:
    """Return the content of a value. Its type is that of the JSON: text, number, boolean, json."""
    try:
        text = _encode(value).decode()
    except Exception as exc:  # the user's classes may raise any exception
        raise LiteResultError(
            f"the result cannot be sent as JSON: {_reason(exc)}; "
            "return JSON values, dataclasses or content"
        ) from exc
    first = text[0]
    if first == '"':
        return Content("text", msgspec.json.decode(text, type=str))
    if first in "tf":
        return Content("boolean", text)
    if first in "-0123456789":
        return Content("number", text)
    return Content("json", text)


def _block(block: Any) -> list[Content]:
    """Convert a content class of MCP."""
    from wirespeed.protocol import blocks as mcp

    if isinstance(block, mcp.Text):
        return [Content("text", block.text)]
    if isinstance(block, (mcp.Image, mcp.Audio)):
        return [media(block.mime_type, block.data)]
    if isinstance(block, mcp.EmbeddedResource):
        resource = block.resource
        if isinstance(resource.blob, _BYTES):
            return [media(resource.mime_type or BINARY, resource.blob)]
        return [Content(resource.mime_type or "text", str(resource.text))]
    name = type(block).__name__
    if name in _RESULTS:
        raise LiteResultError(f"a {name} is for MCP: return a wirespeed.litemcp.Response")
    return [json_content(block)]


def _check(content: Any) -> Content:
    if (
        not isinstance(content, Content)
        or not isinstance(content.type, str)
        or not isinstance(content.data, str)
    ):
        raise LiteResultError("the type and the data of a content must be strings")
    return content


def _reason(exc: BaseException) -> str:
    if isinstance(exc, UnicodeEncodeError):
        return "it holds a lone surrogate"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply, or contains itself"
    return one_line(str(exc))


def encode_text(text: str) -> str:
    """Return a text with lone surrogates escaped, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()
