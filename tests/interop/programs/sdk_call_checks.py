"""Checks of calls of tools by the adapter of the official SDK, beside those by the SDK itself, as
those of `sdk_checks.py`."""

import copy
import dataclasses
import datetime
import gc
import json
import os
import subprocess
import sys
import unittest.mock
import weakref
from types import SimpleNamespace
from typing import Any

import mcp
import mcp.server.mcpserver.server
from sdk_checks import LOUD, MODERN, run


def many_tools() -> list[Any]:
    """Servers with tools of every kind of result."""
    from mcp.server.mcpserver.exceptions import ToolError

    server = mcp.server.MCPServer("kinds", version="1", icons=[], log_level="CRITICAL")
    text = mcp.types.TextContent(type="text", text="ü")
    noted = text.model_copy(update={"meta": {"a": 1}})
    results: dict[str, Any] = {
        "string": "ü",
        "number": 1.5,
        "nothing": None,
        "values": {"a": None, "b": [1, 2.5, True, None, {"c": {}}]},
        "infinite": {"a": float("inf")},
        "texts": [text, text],
        "noted": [noted],
        "mixed": [text, mcp.types.ImageContent(type="image", data="", mime_type="image/png"), 3],
        "result": mcp.types.CallToolResult(content=[text], structured_content={"n": 1}),
        "failed": mcp.types.CallToolResult(content=[], is_error=True),
        "list": mcp.types.CallToolResult(content=[], structured_content=[1]),
        "marked": mcp.types.CallToolResult(content=[text], _meta={"m": 1}),
        "date": mcp.types.CallToolResult(content=[], structured_content={"at": datetime.date.min}),
    }

    def returning(value: Any) -> Any:
        async def tool() -> Any:
            return value

        return tool

    for name, value in results.items():
        for structured in (None, False):
            server.add_tool(returning(value), f"{name}-{structured}", structured_output=structured)

    @server.tool()
    async def typed(number: int, text: str = "a", numbers: list[int] | None = None) -> str:
        if number < 0:
            raise ValueError("secret")
        if number == 0:
            raise ToolError("told")
        return f"{number} {text} {numbers}"

    async def lowlevel(ctx: Any, params: Any) -> Any:
        value = results.get(params.name, "ü")
        return value if isinstance(value, mcp.types.CallToolResult) else {"content": [], "n": value}

    return [server._lowlevel_server, mcp.server.lowlevel.Server("low", on_call_tool=lowlevel)]


def same_checks() -> None:
    """A client's check of results takes what the SDK's takes, and refuses the rest as it does."""
    from mcp_types import methods
    from pydantic import ValidationError

    from wirespeed.adapters.mcp import tool_calls

    stock = methods.validate_server_result
    ours = tool_calls.result_check(stock)
    versions = ("2024-11-05", "2025-11-25", "2026-07-28")
    assert all(tool_calls.takes_texts(version) for version in versions)
    assert tool_calls.is_text("2025-11-25", {"content": [{"type": "text", "text": "a"}]})
    text: dict[str, Any] = {"type": "text", "text": "ü"}
    contents = [[], [text], [text, text], [text | {"text": 1}], [text | {"type": "x"}], [text | {
        "more": 1}], [text | {"_meta": 1}], [1], None, text, [{"type": "text"}]]  # fmt: skip
    more: list[dict[str, Any]] = [
        {}, {"isError": True}, {"isError": "x"}, {"isError": None}, {"structuredContent": {"a": 1}},
        {"structuredContent": [1]}, {"structuredContent": None}, {"resultType": "complete"},
        {"resultType": 1}, {"_meta": {}}, {"_meta": 1}, {"unknown": 1},
    ]  # fmt: skip

    def outcome(check: Any, method: str, version: str, data: Any) -> Any:
        try:
            return check(method, version, data)
        except ValidationError as exc:
            return exc.errors(include_url=False)
        except (KeyError, ValueError) as exc:
            return repr(exc)

    for method in ("tools/call", "tools/list", "nothing/here"):
        for version in (*versions, "1999-01-01"):
            for content in contents:
                for one in more:
                    for other in more:
                        data = {"content": content} | one | other
                        found = outcome(ours, method, version, copy.deepcopy(data))
                        assert found == outcome(stock, method, version, data), (version, data)


async def outcome_of(kind: Any, server: Any, version: str, params: Any) -> tuple[str, Any]:
    """The outcome of a call by a runner of this class: the text of a result, or the error."""
    from mcp.server.connection import Connection
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError
    from pydantic_core import to_json

    from wirespeed.adapters.mcp import envelopes, runner

    meta = params["_meta"] if params and version == "2026-07-28" else {}
    own: Any = Connection.from_envelope(version, None, {})
    running = kind(server, own, {})
    if meta and kind is runner.Runner:
        context: Any = SimpleNamespace(envelope=json.dumps(meta).encode())
        running.envelope = envelopes.read(context, "tools/call", params)
        running.connection = running.envelope.connection()
    context = SimpleNamespace(message_metadata=None, request_id=1, can_send_request=False)
    try:
        result = await running._on_request(context, "tools/call", params)
        return "result", to_json(result)
    except MCPError as exc:
        return "error", (exc.code, exc.message, exc.data)
    except ValidationError as exc:
        return "invalid", exc.errors(include_url=False)


async def same_results() -> None:
    """The adapter's runner gives what the SDK's gives, text for text."""
    from mcp.server.runner import ServerRunner

    from wirespeed.adapters.mcp import runner, tool_calls

    assert runner._known and tool_calls._known
    versions = ("2024-11-05", "2025-11-25", "2026-07-28")
    assert all(tool_calls.is_loose(version) for version in versions)
    assert all(tool_calls.is_same(version) for version in versions)

    for server in many_tools():
        names = ["string", "nothing", "result", "failed", "list", "marked", "date", "infinite"]
        listed = server.get_request_handler("tools/list")
        if listed is not None:
            tools = await listed.handler(SimpleNamespace(), None)
            names = [tool.name for tool in tools.tools]
        given: list[Any] = [{"name": name, "arguments": {}} for name in [*names, "none"]]
        given += [
            {"name": names[0]},
            {"name": names[0], "arguments": None},
            {"name": names[0], "arguments": 1},
            {"name": names[0], "arguments": {"other": 1}},
            {"name": "typed", "arguments": {"number": 1}},
            {"name": "typed", "arguments": {"number": "5", "numbers": "[1]", "text": "[1]"}},
            {"name": "typed", "arguments": {"number": 1, "numbers": "5"}},
            {"name": "typed", "arguments": {"number": "x", "other": 1}},
            {"name": "typed", "arguments": {"number": -1}},
            {"name": "typed", "arguments": {"number": 0}},
            {"name": names[0], "more": 1},
            {"name": names[0], "task": {"ttl": 1}},
            {"name": names[0], "task": 1},
            {"name": names[0], "inputResponses": 1},
            {"name": 1},
            {},
        ]
        for version in versions:
            metas: list[Any] = [None, {}, {"progressToken": 1}, {"progressToken": 1.5}, {"x": [1]}]
            if version == "2026-07-28":
                metas = [MODERN, LOUD, MODERN | {"x": {"y": 1}}]
            for meta in metas:
                for params in given:
                    asked = params if meta is None else params | {"_meta": meta}
                    stock, adapted = [
                        await outcome_of(kind, server, version, copy.deepcopy(asked))
                        for kind in (ServerRunner, runner.Runner)
                    ]
                    assert stock == adapted, (version, asked, stock, adapted)


async def replaced_parts() -> None:
    """A part of the SDK that a program replaces while it serves is used, as on stock; the model of
    a tool that is gone is not kept."""
    from mcp.server.mcpserver.tools import Tool
    from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
    from mcp.server.runner import ServerRunner
    from mcp_types import CallToolRequestParams

    from wirespeed.adapters.mcp import runner, tool_calls

    server = mcp.server.MCPServer("parts", log_level="CRITICAL")
    other = mcp.server.MCPServer("other", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def echo(text: str = "a") -> str:
        return text

    denied = mcp.types.CallToolResult(content=[], is_error=True)

    async def deny(*args: Any, **options: Any) -> Any:
        return denied

    class Strict(CallToolRequestParams):
        arguments: dict[str, int]

    @dataclasses.dataclass
    class Rewrites:
        params: Any

        async def __call__(self, ctx: Any, call_next: Any) -> Any:
            return await call_next(dataclasses.replace(ctx, params=ctx.params | self.params))

    low, manager = server._lowlevel_server, server._tool_manager
    tool: Any = manager.get_tool("echo")
    upper: Any = lambda metadata, given: {"text": "upper"}  # noqa: E731
    entry: Any = low.get_request_handler("tools/call")
    low.add_request_handler("strict", Strict, entry.handler)
    strict = low.get_request_handler("strict")
    replacements: list[tuple[Any, str, Any]] = [
        (manager, "call_tool", deny),
        (manager, "get_tool", lambda name: None),
        (manager, "_tools", {}),
        (server, "call_tool", deny),
        (server, "call_tool", other.call_tool),
        (Tool, "run", deny),
        (vars(tool), "run", deny),
        (vars(tool.fn_metadata), "validate_arguments", lambda given: {"text": "upper"}),
        (FuncMetadata, "validate_arguments", upper),
        (FuncMetadata, "pre_parse_json", upper),
        (FuncMetadata, "convert_result", lambda metadata, result: denied),
        (low._request_handlers, "tools/call", strict),
        (low, "middleware", [Rewrites({"arguments": {1: 2}})]),
        (low, "middleware", [Rewrites({"arguments": {"text": "b"}, "_meta": None})]),
        (low, "middleware", [Rewrites({"name": "none"})]),
    ]
    given = {"name": "echo", "arguments": {"text": "x"}, "_meta": MODERN}
    plain = await outcome_of(ServerRunner, low, "2026-07-28", given)
    assert await outcome_of(runner.Runner, low, "2026-07-28", given) == plain
    for owner, name, new in replacements:
        patched = (
            unittest.mock.patch.dict if isinstance(owner, dict) else unittest.mock.patch.object
        )
        change = ({name: new},) if isinstance(owner, dict) else (name, new)
        with patched(owner, *change):
            stock = await outcome_of(ServerRunner, low, "2026-07-28", given)
            adapted = await outcome_of(runner.Runner, low, "2026-07-28", given)
            assert plain != stock == adapted, (name, new, stock, adapted)
    assert await outcome_of(runner.Runner, low, "2026-07-28", given) == plain

    model = weakref.ref(tool.fn_metadata.arg_model)
    assert model() in tool_calls._arguments
    server.remove_tool("echo")
    del tool, echo, replacements, owner
    gc.collect()
    assert model() is None


def clients_apart() -> None:
    """Each request has capabilities of its own, which a handler may change, and Python takes 1, 1.0
    and True for the same. A provider of spans that the environment names is one."""
    from wirespeed.adapters.mcp import envelopes, sdk

    def seen(value: object, known: bool) -> object:
        capabilities = {"experimental": {"own": {"value": value}}}
        meta = MODERN | {"io.modelcontextprotocol/clientCapabilities": capabilities}
        context: Any = SimpleNamespace(envelope=json.dumps(meta).encode() if known else None)
        connection = envelopes.read(context, "ping", {"_meta": meta}).connection()
        found = connection.client_capabilities.experimental["own"].pop("value")
        assert connection.client_capabilities.experimental["own"] == {}  # it is this request's
        # as stock: one value for both
        assert connection.client_params.capabilities is connection.client_capabilities
        return found

    values = (1, True, 1.0, "1", 1)
    for known in (False, True, True):
        assert [repr(seen(value, known)) for value in values] == [repr(value) for value in values]
    assert not sdk.has_provider()
    code = "from wirespeed.adapters.mcp import sdk; raise SystemExit(not sdk.has_provider())"
    named = os.environ | {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    assert subprocess.run([sys.executable, "-c", code], env=named).returncode == 0


if __name__ == "__main__":
    run(clients_apart, same_checks, same_results, replaced_parts)
