"""Structured output, checked against the tool's outputSchema."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.asking import elicit, legacy, required
from lab.client import Run, text_result
from lab.peer import MODERN_PEER, Rules, Talk, nothing, with_client
from lab.wording import raises

from wirespeed import Client
from wirespeed.client import output_checks as validation
from wirespeed.errors import CallTimeout, InvalidResponse, RemoteError

SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "required": ["rows"],
    "$defs": {"row": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
GOOD = {"rows": [{"name": "a"}]}
UNUSABLE = "outputSchema of t cannot be used"
END = {"resultType": "complete"}
BAD = {"rows": [{}, {"name": 7}]}


def tool(schema: Any = SCHEMA, name: str = "t") -> dict[str, Any]:
    one = {"name": name, "inputSchema": {"type": "object"}}
    return one if schema is None else one | {"outputSchema": schema}


def rules(value: Any, *tools: dict[str, Any], modern: bool = True) -> Rules:
    end = {"resultType": "complete"} if modern else {}
    result = text_result() | {"structuredContent": value} | end
    lists = {"tools": list(tools or (tool(),))} | end
    base = MODERN_PEER if modern else legacy()
    return base | {"tools/call": result, "tools/list": lists}


# -- when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [True, False])
async def test_what_was_listed_is_checked(once: Run, tmp_path: Path, modern: bool) -> None:
    async with with_client(tmp_path, rules(BAD, modern=modern), validate="auto") as (client, peer):
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


async def test_what_was_not_listed_is_looked_for_if_checks_are_wanted(
    once: Run, tmp_path: Path
) -> None:
    async with with_client(tmp_path, rules(BAD), validate=True) as (client, peer):
        with raises(InvalidResponse):
            await client.call_tool("t")
        peer.rules |= rules(GOOD)
        seen = len(peer.sent("tools/list"))
        for _ in range(3):
            await client.call_tool("t")
        assert len(peer.sent("tools/list")) == seen  # once is enough
        assert (await client.call_tool("not listed")).structured_content == GOOD
        await client.call_tool("not listed")
        assert len(peer.sent("tools/list")) == seen + 1


async def test_nothing_is_checked_if_that_is_not_wanted(once: Run, tmp_path: Path) -> None:
    async with with_client(tmp_path, rules(BAD), validate=False) as (client, _):
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content == BAD


async def test_nothing_is_checked_by_default(once: Run, tmp_path: Path) -> None:
    """Whatever else is installed, and whatever a schema is like."""
    async with with_client(tmp_path, rules(BAD)) as (client, peer):
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content == BAD
        peer.rules |= rules(BAD, tool({"$ref": "http://127.0.0.1:1/x"}))
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content == BAD


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://127.0.0.1:1/x"}, {"$schema": "http://odd"}],
    ids=["remote", "dialect"],
)
async def test_auto_warns_of_a_schema_that_it_cannot_use(
    once: Run, tmp_path: Path, schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_client(tmp_path, rules(BAD, tool(schema)), validate="auto") as (client, _):
        await client.list_tools()
        for _ in range(3):
            assert (await client.call_tool("t")).structured_content == BAD
    [record] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "results of t are not checked: the outputSchema of t " in record.getMessage()


@pytest.mark.parametrize("value", [None, "absent"])
async def test_null_is_kept_apart_from_absent(once: Run, tmp_path: Path, value: Any) -> None:
    result = text_result() | END | ({} if value == "absent" else {"structuredContent": None})
    async with with_client(tmp_path, rules(None, tool({"type": "null"})), validate=True) as (
        client,
        peer,
    ):
        peer.rules |= {"tools/call": result}
        if value == "absent":
            with raises(InvalidResponse):
                await client.call_tool("t")
        else:
            assert (await client.call_tool("t")).structured_content is None


async def test_without_the_package(
    once: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    for options, tools in (
        ({"validate": "auto"}, ()),
        ({"validate": "auto"}, (tool(None),)),
        ({}, ()),
    ):
        async with with_client(tmp_path, rules(BAD, *tools), **options) as (client, _):
            await client.list_tools()
            await client.list_tools()
            assert (await client.call_tool("t")).structured_content == BAD
        [record] = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert "not checked: jsonschema-rs is not installed" in record.getMessage()
    with pytest.raises(ImportError, match=r"pip install 'wirespeed\[validate\]'"):
        Client("tcp://127.0.0.1:1", validate=True)


@pytest.mark.parametrize("bad", [None, "yes", 2, 0, 1])
def test_a_bad_option(bad: Any) -> None:
    with raises(ValueError):
        Client("tcp://127.0.0.1:1", validate=bad)


async def test_results_of_later_rounds_are_checked(once: Run, tmp_path: Path) -> None:
    answers = [required({"a": elicit()}, "s"), rules(BAD)["tools/call"]]

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, answers.pop(0))  # type: ignore[arg-type]

    all_rules = rules(BAD) | {"tools/call": give}
    async with with_client(
        tmp_path, all_rules, on_elicit=lambda request: {"name": "x"}, validate="auto"
    ) as (client, _):
        await client.list_tools()
        with raises(InvalidResponse):
            await client.call_tool("t")


async def test_results_of_rounds_by_hand_are_checked(once: Run, tmp_path: Path) -> None:
    from wirespeed.errors import InputNeeded

    answers = [required(state="s"), rules(BAD)["tools/call"]]

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, answers.pop(0))  # type: ignore[arg-type]

    async with with_client(
        tmp_path, rules(BAD) | {"tools/call": give}, max_rounds=0, validate="auto"
    ) as (client, _):
        await client.list_tools()
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("t")
        with raises(InvalidResponse):
            await client.resume(caught.value)


# -- schemas that change ---------------------------------------------------------------------------


async def test_a_result_counts_by_the_schema_that_the_tool_has_now(
    once: Run, tmp_path: Path
) -> None:
    async with with_client(tmp_path, rules(GOOD), validate="auto") as (client, peer):
        await client.list_tools()
        peer.rules |= rules({"new": True}, tool({"type": "object", "required": ["new"]}))
        assert (await client.call_tool("t")).structured_content == {"new": True}
        assert len(peer.sent("tools/list")) == 2
        peer.rules |= rules({"newer": True}, tool(None))
        assert (await client.call_tool("t")).structured_content == {"newer": True}


async def test_tools_are_listed_again_past_the_cache(once: Run, tmp_path: Path) -> None:
    """What a server said to be fresh for an hour may be wrong all the same."""

    def kept(value: Any, *tools: dict[str, Any]) -> Rules:
        changed = rules(value, *tools)
        changed["tools/list"] |= {"ttlMs": 3_600_000, "cacheScope": "private"}  # type: ignore
        return changed

    async with with_client(tmp_path, kept(GOOD), validate="auto") as (client, peer):
        await client.list_tools()
        peer.rules |= kept({"new": True}, tool({"type": "object", "required": ["new"]}))
        assert (await client.call_tool("t")).structured_content == {"new": True}
        assert len(peer.sent("tools/list")) == 2
        await client.list_tools()
        assert len(peer.sent("tools/list")) == 2  # from the cache


async def test_a_tool_that_was_called_before_it_was_there_is_checked_later(
    once: Run, tmp_path: Path
) -> None:
    async with with_client(tmp_path, rules(BAD, tool(name="other")), validate=True) as (
        client,
        peer,
    ):
        for missing in ((-32602, "Unknown tool"), text_result() | END | {"isError": True}):
            peer.rules |= rules(BAD, tool(name="other")) | {"tools/call": missing}
            if isinstance(missing, tuple):
                with pytest.raises(RemoteError):
                    await client.call_tool("t")
            else:
                assert (await client.call_tool("t")).is_error
        peer.rules |= rules(BAD)
        with raises(InvalidResponse):
            await client.call_tool("t")


@pytest.mark.parametrize("hidden", [True, False], ids=["before", "after"])
async def test_the_time_limit_of_a_call_is_also_that_of_its_check(
    once: Run, tmp_path: Path, hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_client(tmp_path, rules(BAD), validate=True, timeout=None) as (client, peer):
        if not hidden:
            await client.list_tools()
        peer.rules |= {"tools/list": nothing}
        expected = CallTimeout if hidden else InvalidResponse
        with pytest.raises(expected):
            await client.call_tool("t", timeout=0.05)
        await peer.got("notifications/cancelled")
        assert len(peer.sent("tools/call")) == (0 if hidden else 1)


async def test_a_schema_that_cannot_be_used_may_have_been_mended(once: Run, tmp_path: Path) -> None:
    async with with_client(tmp_path, rules(GOOD, tool({"type": "nonsense"})), validate=True) as (
        client,
        peer,
    ):
        await client.list_tools()
        peer.rules |= rules(GOOD)
        assert (await client.call_tool("t")).structured_content == GOOD


async def test_tools_that_cannot_be_listed_again(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_client(tmp_path, rules(BAD), validate="auto") as (client, peer):
        await client.list_tools()
        peer.rules |= {"tools/list": (-32603, "not now")}
        with raises(InvalidResponse):
            await client.call_tool("t")
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "the tools cannot be listed again: not now (code -32603)"
    ]


async def test_a_schema_that_cannot_be_used_stops_the_call_before_it_is_made(
    once: Run, tmp_path: Path
) -> None:
    async with with_client(tmp_path, rules(GOOD, tool({"type": "nonsense"})), validate=True) as (
        client,
        peer,
    ):
        await client.list_tools()
        with pytest.raises(InvalidResponse, match=UNUSABLE):
            await client.call_tool("t")
        assert not peer.sent("tools/call")


def test_what_is_known_of_tools_is_bounded(monkeypatch: pytest.MonkeyPatch, once: Run) -> None:
    monkeypatch.setattr(validation, "MAX_TOOLS", 10)
    from wirespeed.client.results.features import ToolInfo

    async def fetch(until: float) -> None:
        pass

    checks = validation.OutputChecks("auto", fetch)
    for n in range(100):
        checks.learn([ToolInfo(f"t{n}", {}, output_schema={})])

    async def known() -> list[bool]:
        return [await checks.of(f"t{n}") is not None for n in range(100)]

    found = once(known())
    assert sum(found) <= 11
    assert found[99]
