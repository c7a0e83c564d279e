"""Decodes the answers of LiteMCP servers: strictly, or with tolerance for other JSON types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from wirespeed.errors import InvalidResponse
from wirespeed.litemcp.arguments import text_of
from wirespeed.litemcp.messages import (
    VERSION,
    CallResult,
    Content,
    IOBasic,
    Parameter,
    Response,
    Tool,
    VersionTuple,
    parse_version,
    refuse_version,
)

__all__ = ["info_reader", "result_reader"]


class _Info(msgspec.Struct):
    name: str
    version: msgspec.Raw = msgspec.Raw(b"")
    description: str | None = None
    example: str | None = None
    parameters: list[Parameter] | None = None


class _Result(msgspec.Struct):
    params: dict[str, str]
    response: Response
    version: msgspec.Raw = msgspec.Raw(b"")


class _LooseParameter(msgspec.Struct):
    name: str
    type: Any = None
    description: Any = None
    example: Any = None


class _LooseInfo(msgspec.Struct):
    name: str
    version: msgspec.Raw = msgspec.Raw(b"")
    description: Any = None
    example: Any = None
    parameters: list[_LooseParameter] | None = None


class _LooseContent(msgspec.Struct):
    type: Any = None
    data: Any = None


class _LooseResponse(msgspec.Struct):
    content: list[_LooseContent] | None = None
    error: bool = False


class _LooseResult(msgspec.Struct):
    response: _LooseResponse
    params: dict[str, Any] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


_info = msgspec.json.Decoder(_Info).decode
_result = msgspec.json.Decoder(_Result).decode
_loose_info = msgspec.json.Decoder(_LooseInfo).decode
_loose_result = msgspec.json.Decoder(_LooseResult).decode


def _string(value: Any) -> str | None:
    return None if value is None else text_of(value)


def _decode(strict: Any, loose: Any, message: IOBasic) -> Any:
    """Decode the data of a message with `strict`, then, if that fails, with `loose` if given."""
    try:
        return strict(message.data)
    except (msgspec.DecodeError, RecursionError) as exc:
        if loose is None:
            raise _invalid(message, exc) from exc
    try:
        return loose(message.data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _invalid(message, exc) from exc


def _invalid(message: IOBasic, exc: BaseException) -> InvalidResponse:
    return InvalidResponse(f"the data of {message.type!r} is not valid: {exc}")


def info_reader(strict: bool) -> Callable[[IOBasic], Tool]:
    """Return a decoder of ``info``, which accepts every version of LiteMCP."""

    def read(message: IOBasic) -> Tool:
        found = _decode(_info, None if strict else _loose_info, message)
        parameters = [
            Parameter(
                p.name, _string(p.type) or "string", _string(p.description), _string(p.example)
            )
            for p in found.parameters or ()
        ]
        names = [parameter.name for parameter in parameters]
        if len(set(names)) != len(names):
            raise InvalidResponse("the tool has two parameters with the same name")
        version = _version(found.version, strict) or _version(message.version, strict)
        return Tool(
            found.name,
            _string(found.description),
            _string(found.example),
            parameters,
            version or VERSION,
        )

    return read


def result_reader(strict: bool) -> Callable[[IOBasic], CallResult]:
    """Return a decoder of ``result``, which accepts an equal major version only."""

    def read(message: IOBasic) -> CallResult:
        found = _decode(_result, None if strict else _loose_result, message)
        for version in (message.version, found.version):
            if (strict or bytes(version)) and (reason := refuse_version(version)):
                raise InvalidResponse(f"the result cannot be read: {reason}")
        response = found.response
        if isinstance(found, _LooseResult):
            contents = [
                Content(_string(c.type) or "text", _string(c.data) or "")
                for c in response.content or ()
            ]
            params = {name: text_of(value) for name, value in (found.params or {}).items()}
            return CallResult(params, Response(contents, response.error))
        version = _version(found.version, strict) or VERSION
        return CallResult(found.params, response, version)

    return read


def _version(raw: msgspec.Raw, strict: bool) -> VersionTuple | None:
    text = bytes(raw)
    if not text and not strict:
        return None
    if text == b"[1,0,0]":
        return VERSION
    try:
        return parse_version(text)
    except ValueError as exc:
        if strict:
            raise InvalidResponse(f"the version of the answer is not valid: {exc}") from None
        return None
