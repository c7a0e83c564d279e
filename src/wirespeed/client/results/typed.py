"""The value of a tool's result as a type that the caller chose: ``call_tool(…, type=T)``."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec import UNSET

from wirespeed.errors import InvalidResponse
from wirespeed.protocol.results import CallToolResult, is_wrap
from wirespeed.schema.json_schema import (
    dec_hook,
    describe_validation_error,
    prepare_type,
    type_name,
)

__all__ = ["ResultType"]

_FAULTS = (msgspec.DecodeError, RecursionError)


class ResultType:
    """A type for values of tools: what msgspec decodes, pydantic models, paths. TypeError: the type
    has no JSON form."""

    __slots__ = ("_name", "_type")

    def __init__(self, tp: Any) -> None:
        self._name = type_name(tp)
        self._type = prepare_type(tp, "the type of the result")

    async def of(self, tool: str, call: Awaitable[CallToolResult]) -> Any:
        """Wait for a call of a tool, and return its value. See `Client.call_tool`."""
        return self._read(tool, (await call).raise_for_error())

    def _read(self, tool: str, result: CallToolResult) -> Any:
        """The value of a result. InvalidResponse: the value does not fit the type; the text names
        the tool and the place.

        A value that does not fit is tried in two other forms: the only text as JSON, because a
        server before 2025-06-18 has no structured content, and the value of ``{"result": …}``,
        because some servers wrap values without a marker in the schema.
        """
        data, content = result.data, result.structured_content
        try:
            return self._convert(data)
        except _FAULTS as exc:
            fault = exc
        with contextlib.suppress(*_FAULTS):
            if content is UNSET and isinstance(data, str):
                return msgspec.json.decode(data, type=self._type, dec_hook=dec_hook)
            if is_wrap(content) and not result.wrapped:
                return self._convert(content["result"])
        reason = describe_validation_error(fault, "result")
        raise InvalidResponse(f"tool {tool} did not return {self._name}: {reason}") from fault

    def _convert(self, data: Any) -> Any:
        return msgspec.convert(data, self._type, dec_hook=dec_hook, str_keys=True)
