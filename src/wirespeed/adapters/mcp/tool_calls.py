"""Calls of tools, without work whose outcome is known beforehand.

The SDK validates each request twice and each result twice, as models that no handler sees. Where a
request or a result is plainly valid, the adapter skips the validation and uses its known outcome.
All others go through the SDK's own functions, and so do all calls if the SDK's source is not one
that the adapter knows.

What a call of an echo tool takes of the SDK and here, in microseconds (2026-07-28): the frame of
the request 8.9 and 0.3 · its params as a model 1.9 and 0 · `Context` 7.0 and 0 · the search for
the tool 0.4 and 1.1 · its arguments 3.6 and 1.9 · the result, converted and dumped twice 13.1 and
0.4 · the name of the server 1.8 and 0.3. In `envelopes`: the route 3.0 and 0.1 · the connection
12.9 and 0.7 · the `_meta` of the context 2.7 and 0.1. In all 55 and 5.
"""

from __future__ import annotations

import logging
from functools import cache
from types import MethodType
from typing import Any, get_args
from weakref import WeakKeyDictionary

import mcp.server.runner as stock_runner
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.tools import Tool, ToolManager
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, TextContent, methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from wirespeed.adapters.mcp.json_values import plain_copy, text_blocks
from wirespeed.adapters.seams import is_known

logger = logging.getLogger("mcp.server.mcpserver.server")  # the SDK logs these messages

CALL = "tools/call"

# -- requests ------------------------------------------------------------------------------------


@cache
def is_loose(version: str) -> bool:
    """Whether calls of a revision may have any name and any arguments, by the SDK's models."""
    try:
        params = methods.CLIENT_REQUESTS[CALL, version].model_fields["params"].annotation
        fields, rules = params.model_fields, params.__pydantic_decorators__  # type: ignore[union-attr]
    except (AttributeError, KeyError):
        return False
    name, arguments = fields.get("name"), fields.get("arguments")
    return (
        name is not None
        and arguments is not None
        and (name.annotation, name.metadata) == (str, [])
        and (arguments.annotation, arguments.metadata) == (dict[str, Any] | None, [])
        and not (rules.field_validators or rules.model_validators or rules.validators)
    )


def fits(version: str, params: Any, meta_fits: bool) -> bool:
    """Whether the params of a call are plainly valid. False also for some that the SDK accepts."""
    if type(params) is not dict or type(params.get("name")) is not str:
        return False
    n = 1
    if "arguments" in params:
        n += 1
        if type(params["arguments"]) is not dict:
            return False
    if "_meta" in params:
        n += 1
        if not meta_fits:
            return False
    elif version in MODERN_PROTOCOL_VERSIONS:
        return False
    return len(params) == n and is_loose(version)


# -- results -------------------------------------------------------------------------------------


def wire_form(version: str, result: Any) -> dict[str, Any] | None:
    """Return a result as the SDK sends it, without the name of the server; None for a result whose
    form is not known. A string stands for a result with this text."""
    if not is_same(version):
        return None
    if type(result) is str:
        return _joined(version, [{"text": result, "type": "text"}], False)
    return _of_model(version, result) if type(result) is CallToolResult else None


def _joined(version: str, content: list[Any], is_error: bool) -> dict[str, Any]:
    wire: dict[str, Any] = {"content": content, "isError": is_error}
    if version in MODERN_PROTOCOL_VERSIONS:
        wire["resultType"] = "complete"
    return wire


def _of_model(version: str, result: CallToolResult) -> dict[str, Any] | None:
    fields = vars(result)
    content, is_error = fields.get("content"), fields.get("is_error")
    if (
        type(content) is not list
        or type(is_error) is not bool
        or fields.get("meta") is not None
        or fields.get("result_type") != "complete"
    ):
        return None
    blocks = text_blocks(content, TextContent)
    if blocks is None:
        return None
    wire = _joined(version, blocks, is_error)
    structured = fields.get("structured_content")
    if structured is not None:
        if type(structured) is not dict:
            return None
        try:
            wire["structuredContent"] = plain_copy(structured)
        except TypeError:
            return None
    return wire


@cache
def is_same(version: str) -> bool:
    """Whether the SDK sends results of a revision as `wire_form` does."""
    value: dict[str, Any] = {"b": [1, 2.5, True, None, "ü", {}], "a": None}
    texts: list[Any] = [TextContent(type="text", text=text) for text in ("ü", "")]
    for result in (
        CallToolResult(content=texts, structured_content=value),
        CallToolResult(content=[], is_error=True),
    ):
        try:
            dumped = stock_runner._dump_result(result)
            dumped = methods.serialize_server_result(CALL, version, dumped)
        except (AttributeError, KeyError, ValueError):
            return False
        if to_json(dumped) != to_json(_of_model(version, result)):
            return False
    return True


# -- results, at a client ------------------------------------------------------------------------

MEMBERS = (("isError", bool), ("structuredContent", dict), ("resultType", str))


@cache
def takes_texts(version: str) -> bool:
    """Whether the result of a call of a revision may be any text, by the SDK's models."""
    try:
        model: Any = methods.SERVER_RESULTS[CALL, version]
        model = (get_args(model) or (model,))[0]
        fields = model.model_fields
        kinds = get_args(get_args(fields["content"].annotation)[0])
        text = next(kind for kind in kinds if kind.__name__ == "TextContent")
        known = (
            fields["is_error"].annotation == bool | None
            and fields["structured_content"].annotation in (dict[str, Any] | None, Any | None)
            and text.model_fields["text"].annotation is str
            and get_args(text.model_fields["type"].annotation) == ("text",)
        )
        rules = [one.__pydantic_decorators__ for one in (model, text)]
        details = [*fields.values(), *text.model_fields.values()]
    except (AttributeError, IndexError, KeyError, StopIteration):
        return False
    return (
        known
        and not any(rule.field_validators or rule.model_validators for rule in rules)
        and not any(field.metadata for field in details)
    )


def is_text(version: str, data: Any) -> bool:
    """Whether a result of a call is plainly valid. False also for some that the SDK accepts."""
    if type(data) is not dict:
        return False
    content = data.get("content")
    if type(content) is not list or (
        version in MODERN_PROTOCOL_VERSIONS and "resultType" not in data
    ):
        return False
    n = 1
    for name, kind in MEMBERS:
        if name in data:
            n += 1
            if type(data[name]) is not kind:
                return False
    if n != len(data):
        return False
    for block in content:
        if (
            type(block) is not dict
            or len(block) != 2
            or block.get("type") != "text"
            or type(block.get("text")) is not str
        ):
            return False
    return takes_texts(version)


@cache
def _adapter(target: Any) -> TypeAdapter[Any]:
    return TypeAdapter(target)


def result_check(stock: Any) -> Any:
    """Make the check of the results that a client gets. It does not dump the result."""

    def validate_server_result(
        method: str, version: str, data: Any, *, surface: Any = methods.SERVER_RESULTS
    ) -> None:
        if method == CALL and surface is methods.SERVER_RESULTS and is_text(version, data):
            return
        if version not in KNOWN_PROTOCOL_VERSIONS:
            stock(method, version, data, surface=surface)  # that is its error
        _adapter(surface[method, version]).validate_python(data, by_name=False)

    return validate_server_result


# -- tools of MCPServer --------------------------------------------------------------------------

METADATA = "mcp.server.mcpserver.utilities.func_metadata:"
# The digests of the functions whose work `plain_tool`, `call` and `Arguments` do.
REPLACED = {
    "mcp.server.mcpserver.server:MCPServer._handle_call_tool": "8005e5943ac9eb91",
    "mcp.server.mcpserver.server:MCPServer.call_tool": "a2aecd02a342ca9c",
    "mcp.server.mcpserver.tools.tool_manager:ToolManager.call_tool": "3e9b8fe2249cac64",
    "mcp.server.mcpserver.tools.base:Tool.run": "cf8345c5407ae55f",
    f"{METADATA}FuncMetadata.validate_arguments": "c63770c5459edf02",
    f"{METADATA}FuncMetadata.pre_parse_json": "9bd9d866713f1037",
    f"{METADATA}ArgModelBase.model_dump_one_level": "5e04ff74200b96ba",
    f"{METADATA}FuncMetadata.convert_result": "62aeceb9a1eb9473",
    f"{METADATA}_convert_to_content": "f4284321c15a386a",
}
_known = is_known(REPLACED)
_handle = getattr(MCPServer, "_handle_call_tool", None)
# The functions that instrumentation may wrap later.
_call_tool, _manager_call_tool = MCPServer.call_tool, ToolManager.call_tool
_run, _validate = Tool.run, FuncMetadata.validate_arguments
_parse, _convert = FuncMetadata.pre_parse_json, FuncMetadata.convert_result
_FIELDS = frozenset(FuncMetadata.model_fields)


def plain_tool(entry: Any, name: str) -> Tool | None:
    """Return the tool that a handler of an `MCPServer` calls, if it takes no context and none of
    the functions that call it was replaced; else None."""
    handler = entry.handler
    if (
        not _known
        or type(handler) is not MethodType
        or handler.__func__ is not _handle
        or entry.params_type is not CallToolRequestParams
    ):
        return None
    server: Any = handler.__self__
    method, manager = server.call_tool, server._tool_manager
    if (
        type(method) is not MethodType
        or method.__func__ is not _call_tool
        or method.__self__ is not server
        or type(manager) is not ToolManager
        or "call_tool" in vars(manager)
        or ToolManager.call_tool is not _manager_call_tool
        or Tool.run is not _run
        or FuncMetadata.validate_arguments is not _validate
        or FuncMetadata.pre_parse_json is not _parse
        or FuncMetadata.convert_result is not _convert
    ):
        return None
    tool = manager.get_tool(name)
    if (
        type(tool) is not Tool
        or tool.context_kwarg is not None
        or tool.resolved_params
        or type(tool.fn_metadata) is not FuncMetadata
        or "run" in vars(tool)
        or not vars(tool.fn_metadata).keys() <= _FIELDS
    ):
        return None
    return tool


class Arguments:
    """The rules for the arguments of a tool, as `FuncMetadata.validate_arguments` applies them.

    Args:
        model: The model of the arguments.
    """

    def __init__(self, model: type[ArgModelBase]) -> None:
        fields = model.model_fields
        self._outputs = [(name, field.alias or name) for name, field in fields.items()]
        # Arguments of other types than str: the SDK parses a string in their place as JSON.
        self._others = {
            key
            for name, field in fields.items()
            for key in (name, field.alias)
            if field.annotation is not str
        }
        self._is_plain = model.model_dump_one_level is ArgModelBase.model_dump_one_level

    def validated(self, metadata: FuncMetadata, given: dict[str, Any]) -> dict[str, Any]:
        """Return the validated arguments of one call. ValidationError: they are not valid."""
        others = self._others
        if not self._is_plain or (
            others and any(key in others and isinstance(given[key], str) for key in given)
        ):
            found: dict[str, Any] = metadata.validate_arguments(given)
            return found
        fields = vars(metadata.arg_model.model_validate(given.copy()))
        return {output: fields[name] for name, output in self._outputs}


# The entry of a model goes when its tool is removed.
_arguments: WeakKeyDictionary[type[ArgModelBase], Arguments] = WeakKeyDictionary()


def arguments_of(model: type[ArgModelBase]) -> Arguments:
    """Return the rules for the arguments of a tool. Its fields are read once: they take 2 µs."""
    known = _arguments.get(model)
    if known is None:
        known = _arguments[model] = Arguments(model)
    return known


async def call(tool: Tool, name: str, given: dict[str, Any]) -> Any:
    """Call a tool that takes no context, as `MCPServer._handle_call_tool` does. A string that is
    the whole result is returned as it is."""
    try:
        return await _run_tool(tool, given)
    except MCPError:
        raise
    except Exception as exc:
        if isinstance(exc, ToolError) and not isinstance(exc, UnexpectedToolError):
            if isinstance(exc.__cause__, ValidationError):
                # the rejected values are the caller's
                errors = exc.__cause__.errors()
                names = sorted({".".join(str(part) for part in error["loc"]) for error in errors})
                logger.info("Tool %r rejected arguments: %r", name, names)
            else:
                logger.info("Tool %r failed: %r", name, str(exc))
        else:
            logger.exception("Tool %r raised an unexpected exception", name)
        return CallToolResult(content=[TextContent(type="text", text=str(exc))], is_error=True)


async def _run_tool(tool: Tool, given: dict[str, Any]) -> Any:
    """Do what `Tool.run` does, but leave a string as it is."""
    metadata = tool.fn_metadata
    try:
        validated = arguments_of(metadata.arg_model).validated(metadata, given)
    except ValidationError as exc:
        raise ToolError(f"Error executing tool {tool.name}: {exc}") from exc
    except MCPError:
        raise
    except Exception as exc:
        raise UnexpectedToolError(f"Error executing tool {tool.name}") from exc
    try:
        result = await metadata.call_fn(tool.fn, tool.is_async, validated)
        if type(result) is str and metadata.output_schema is None:
            return result
        return metadata.convert_result(result)
    except MCPError:
        raise
    except (UnexpectedToolError, UnexpectedResourceError) as exc:
        raise UnexpectedToolError(f"Error executing tool {tool.name}: {exc}") from exc
    except (ToolError, ResourceError) as exc:
        raise ToolError(f"Error executing tool {tool.name}: {exc}") from exc
    except Exception as exc:
        raise UnexpectedToolError(f"Error executing tool {tool.name}") from exc
