"""Structured output, checked against the tool's outputSchema."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asking_lab import elicit, legacy, required
from client_lab import Run, text_result
from peer_lab import MODERN_PEER, LinePeer, Rules, Talk

from wirespeed import Client
from wirespeed.client import validation
from wirespeed.client.results import CallToolResult
from wirespeed.client.validation import check_of
from wirespeed.errors import InvalidResponse

SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "required": ["rows"],
    "$defs": {"row": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
GOOD = {"rows": [{"name": "a"}]}
UNUSABLE = r"outputSchema of t (cannot be used|has a reference)"
BAD = {"rows": [{}, {"name": 7}]}


def checked(schema: Any, value: Any = None, is_error: bool = False) -> None:
    check_of("t", schema)(CallToolResult([], value, is_error))


def tool(schema: Any = SCHEMA, name: str = "t") -> dict[str, Any]:
    one = {"name": name, "inputSchema": {"type": "object"}}
    return one if schema is None else one | {"outputSchema": schema}


def rules(value: Any, *tools: dict[str, Any], modern: bool = True) -> Rules:
    end = {"resultType": "complete"} if modern else {}
    result = text_result() | {"structuredContent": value} | end
    lists = {"tools": list(tools or (tool(),))} | end
    base = MODERN_PEER if modern else legacy()
    return base | {"tools/call": result, "tools/list": lists}


Work = Callable[[Client, LinePeer], Awaitable[Any]]


def with_client(once: Run, folder: Path, rules: Rules, work: Work, **options: Any) -> Any:
    async def main() -> Any:
        async with LinePeer(rules, folder) as peer, Client(peer.url, **options) as client:
            return await work(client, peer)

    return once(main())


# -- when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [True, False])
def test_what_was_listed_is_checked(once: Run, tmp_path: Path, modern: bool) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        assert (await client.call_tool("t")).structured_content == BAD  # not known yet
        await client.list_tools()
        with pytest.raises(InvalidResponse) as caught:
            await client.call_tool("t")
        assert str(caught.value) == (
            "the result of t breaks its outputSchema: structuredContent.rows[1].name: "
            '7 is not of type "string"'
        )
        peer.rules |= rules(GOOD, modern=modern)
        assert (await client.call_tool("t")).structured_content == GOOD

    with_client(once, tmp_path, rules(BAD, modern=modern), work)


def test_what_was_not_listed_is_looked_for_if_checks_are_wanted(once: Run, tmp_path: Path) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        with pytest.raises(InvalidResponse, match=r"rows\[1\]"):
            await client.call_tool("t")
        peer.rules |= rules(GOOD)
        seen = len(peer.sent("tools/list"))
        for _ in range(3):
            await client.call_tool("t")
        assert len(peer.sent("tools/list")) == seen  # once is enough
        assert (await client.call_tool("not listed")).structured_content == GOOD
        await client.call_tool("not listed")
        assert len(peer.sent("tools/list")) == seen + 1

    with_client(once, tmp_path, rules(BAD), work, validate=True)


def test_nothing_is_checked_if_that_is_not_wanted(once: Run, tmp_path: Path) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content == BAD
        assert client._checks is None

    with_client(once, tmp_path, rules(BAD), work, validate=False)


def test_tools_without_a_schema_cost_nothing(once: Run, tmp_path: Path) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        assert client._checks is None
        assert (await client.call_tool("t")).structured_content == BAD

    with_client(once, tmp_path, rules(BAD, tool(None)), work)


def test_without_the_package(once: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content == BAD

    with_client(once, tmp_path, rules(BAD), work)
    with pytest.raises(ImportError, match=r"pip install 'wirespeed\[validate\]'"):
        Client("tcp://127.0.0.1:1", validate=True)


@pytest.mark.parametrize("bad", [None, "yes", 2])
def test_a_bad_option(bad: Any) -> None:
    with pytest.raises(ValueError, match="validate must be"):
        Client("tcp://127.0.0.1:1", validate=bad)


def test_results_of_later_rounds_are_checked(once: Run, tmp_path: Path) -> None:
    answers = [required({"a": elicit()}, "s"), rules(BAD)["tools/call"]]

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, answers.pop(0))  # type: ignore[arg-type]

    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        with pytest.raises(InvalidResponse, match=r"rows\[1\]"):
            await client.call_tool("t")

    all_rules = rules(BAD) | {"tools/call": give}
    with_client(once, tmp_path, all_rules, work, on_elicit=lambda request: {"name": "x"})


def test_results_of_rounds_by_hand_are_checked(once: Run, tmp_path: Path) -> None:
    from wirespeed.errors import InputNeeded

    answers = [required(state="s"), rules(BAD)["tools/call"]]

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, answers.pop(0))  # type: ignore[arg-type]

    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("t")
        with pytest.raises(InvalidResponse, match=r"rows\[1\]"):
            await client.resume(caught.value)

    with_client(once, tmp_path, rules(BAD) | {"tools/call": give}, work, max_rounds=0)


# -- schemas that change ---------------------------------------------------------------------------


def test_a_result_counts_by_the_schema_that_the_tool_has_now(once: Run, tmp_path: Path) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        peer.rules |= rules({"new": True}, tool({"type": "object", "required": ["new"]}))
        assert (await client.call_tool("t")).structured_content == {"new": True}
        assert len(peer.sent("tools/list")) == 2
        peer.rules |= rules({"newer": True}, tool(None))
        assert (await client.call_tool("t")).structured_content == {"newer": True}

    with_client(once, tmp_path, rules(GOOD), work)


def test_a_schema_that_cannot_be_used_may_have_been_mended(once: Run, tmp_path: Path) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        peer.rules |= rules(GOOD)
        assert (await client.call_tool("t")).structured_content == GOOD

    with_client(once, tmp_path, rules(GOOD, tool({"type": "nonsense"})), work)


def test_tools_that_cannot_be_listed_again(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        peer.rules |= {"tools/list": (-32603, "not now")}
        with pytest.raises(InvalidResponse, match=r"rows\[1\]"):
            await client.call_tool("t")

    with_client(once, tmp_path, rules(BAD), work)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "the tools cannot be listed again: not now (code -32603)"
    ]


def test_a_schema_that_cannot_be_used_stops_the_call_before_it_is_made(
    once: Run, tmp_path: Path
) -> None:
    async def work(client: Client, peer: LinePeer) -> None:
        await client.list_tools()
        with pytest.raises(InvalidResponse, match=UNUSABLE):
            await client.call_tool("t")
        assert not peer.sent("tools/call")

    with_client(once, tmp_path, rules(GOOD, tool({"type": "nonsense"})), work)


# -- values ----------------------------------------------------------------------------------------


def test_failures_are_not_checked() -> None:
    checked(SCHEMA, None, is_error=True)
    checked(SCHEMA, BAD, is_error=True)


def test_structured_content_must_be_there() -> None:
    with pytest.raises(InvalidResponse, match="no structuredContent, which the tool's"):
        checked(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "null"}, None), ({"type": "array"}, [1]), ({}, 7), (True, "x")],
)
def test_trap_74_any_schema_and_any_value(schema: Any, value: Any) -> None:
    checked(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"type": "object"}, 7, "structuredContent: "),
        ({"properties": {"a": {"type": "null"}}}, {"a": 1}, "structuredContent.a: "),
        ({"properties": {"a b": {"type": "null"}}}, {"a b": 1}, "structuredContent['a b']: "),
        ({"items": {"items": {"type": "null"}}}, [[None], [None, 1]], "structuredContent[1][1]: "),
        ({"required": ["x"]}, {}, "structuredContent: "),
    ],
)
def test_errors_name_the_place(schema: Any, value: Any, path: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        checked(schema, value)
    assert f"breaks its outputSchema: {path}" in str(caught.value)


def test_errors_are_short() -> None:
    with pytest.raises(InvalidResponse) as caught:
        checked({"type": "object"}, "x" * 100_000)
    assert len(str(caught.value)) < 400


# -- schemas ---------------------------------------------------------------------------------------


REFERENCES = [
    {"$ref": "http://127.0.0.1:%d/x"},
    {"$ref": "http://localhost:%d/x#/$defs/a"},
    {"$id": "http://127.0.0.1:%d/a", "$ref": "b"},
    {"$dynamicRef": "http://127.0.0.1:%d/x#a"},
    {"properties": {"a": {"items": {"anyOf": [{"$ref": "http://127.0.0.1:%d/x"}]}}}},
]


def filled(schema: Any, port: int) -> Any:
    if isinstance(schema, dict):
        return {key: filled(value, port) for key, value in schema.items()}
    if isinstance(schema, list):
        return [filled(value, port) for value in schema]
    return schema.replace("%d", str(port)) if isinstance(schema, str) else schema


@pytest.mark.parametrize("schema", REFERENCES, ids=range(len(REFERENCES)))
def test_trap_77_no_reference_is_fetched(schema: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(InvalidResponse, match=UNUSABLE):
            checked(filled(schema, listener.getsockname()[1]), {"a": [1]})
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody came


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "urn:x:y", "json-schema:///x", "#/nope"])
def test_trap_77_what_is_not_resolved_is_refused(uri: str) -> None:
    with pytest.raises(InvalidResponse, match=UNUSABLE):
        checked({"$ref": uri}, 1)


def test_references_inside_a_schema_are_followed() -> None:
    inner = {"$id": "http://example.com/b", "type": "string"}
    for schema in (
        {"$defs": {"b": inner}, "$ref": "http://example.com/b"},
        {"$id": "http://example.com/a", "$defs": {"b": inner}, "$ref": "b"},
        {"$defs": {"b": {"$anchor": "here", "type": "string"}}, "$ref": "#here"},
    ):
        checked(schema, "x")
        with pytest.raises(InvalidResponse, match='is not of type "string"'):
            checked(schema, 1)


DRAFTS = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
]


@pytest.mark.parametrize("dialect", DRAFTS)
def test_known_dialects(dialect: str) -> None:
    checked({"$schema": dialect, "type": "object"}, {})
    with pytest.raises(InvalidResponse, match="is not of type"):
        checked({"$schema": dialect, "type": "object"}, 1)


def test_the_dialect_is_2020_12_unless_a_schema_says_otherwise() -> None:
    checked({"prefixItems": [{"type": "string"}]}, ["x"])
    with pytest.raises(InvalidResponse, match=r"structuredContent\[0\]"):
        checked({"prefixItems": [{"type": "string"}]}, [1])
    checked({"$schema": DRAFTS[2], "prefixItems": [{"type": "string"}]}, [1])  # not in draft 7


@pytest.mark.parametrize("dialect", ["http://example.com/schema", "", 7, None, DRAFTS[0] + "x"])
def test_unknown_dialects_are_refused(dialect: Any) -> None:
    with pytest.raises(InvalidResponse, match="dialect that is not supported"):
        checked({"$schema": dialect}, {})


@pytest.mark.parametrize("schema", [[], "x", 1, {"type": "x"}, {"properties": 1}, {"pattern": "("}])
def test_broken_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(InvalidResponse, match="outputSchema of t"):
        checked(schema, {})


# -- bounds ----------------------------------------------------------------------------------------


def test_deep_schemas_are_refused() -> None:
    schema: Any = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(InvalidResponse, match="deeper than 128 levels"):
        checked(schema, [])


def test_large_schemas_are_refused() -> None:
    with pytest.raises(InvalidResponse, match="more than 10000 parts"):
        checked({"anyOf": [{} for _ in range(10_001)]}, [])


@pytest.mark.parametrize("by", ["pointer", "anchor", "id"])
def test_references_that_double_are_refused(by: str) -> None:
    def name(n: int) -> dict[str, Any]:
        if by == "pointer":
            return {}
        return {"$anchor": f"a{n}"} if by == "anchor" else {"$id": f"http://example.com/a{n}"}

    ref = {"pointer": "#/$defs/a{}", "anchor": "#a{}", "id": "http://example.com/a{}"}[by]
    defs: dict[str, Any] = {
        f"a{n}": name(n) | {"allOf": [{"$ref": ref.format(n + 1)}] * 2} for n in range(40)
    }
    defs["a40"] = name(40) | {"type": "string"}
    with pytest.raises(InvalidResponse, match="more work than is allowed"):
        checked({"$defs": defs, "$ref": ref.format(0)}, "x")


def test_schemas_that_refer_to_themselves_are_fine() -> None:
    tree = {"type": "object", "properties": {"kids": {"items": {"$ref": "#"}}}}
    checked(tree, {"kids": [{"kids": []}]})
    with pytest.raises(InvalidResponse, match=r"structuredContent.kids\[0\].kids\[0\]"):
        checked(tree, {"kids": [{"kids": [1]}]})
    checked({"$ref": "#"}, 1)


def test_regular_expressions_give_up() -> None:
    with pytest.raises(InvalidResponse, match="structuredContent"):
        checked({"pattern": r"(?=(a+)+\1$)b"}, "a" * 5000)


def test_what_is_known_of_tools_is_bounded(monkeypatch: pytest.MonkeyPatch, once: Run) -> None:
    monkeypatch.setattr(validation, "MAX_TOOLS", 10)
    from wirespeed.client.results import ToolInfo

    async def nothing() -> None:
        pass

    checks = validation.Checks(nothing, eager=False)
    for n in range(100):
        checks.learn([ToolInfo(f"t{n}", {}, output_schema={})])
    assert len(checks._schemas) <= 11

    async def main() -> None:
        assert await checks.of("t99") is not None
        assert await checks.of("t0") is None

    once(main())


@pytest.mark.parametrize("base", ["s", "http://h/s"])
def test_references_by_way_of_an_id_are_refused(base: str) -> None:
    """What is behind them is not counted, and a few lines could make endless work."""
    schema = {"$id": base, "$defs": {"a": {}}, "allOf": [{"$ref": f"{base}#/$defs/a"}]}
    with pytest.raises(InvalidResponse, match=r"reference by way of an \$id"):
        checked(schema, {})
    checked({"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/a"}]}, {})
