"""Results made of JSON text: what is malformed is an `InvalidResponse`, whatever it is, and what an
older revision does not know is ignored."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.client import Run
from lab.feature import peer
from lab.rows import every
from lab.wording import raises

from wirespeed import Client
from wirespeed.client import feature_requests as lists
from wirespeed.client.results import decode as decoding
from wirespeed.errors import InvalidResponse
from wirespeed.protocol.blocks import Text, UnknownContent
from wirespeed.types import PromptRef

NAMED = {"name": "n", "title": "t", "description": "d", "icons": [{"src": "x"}], "_meta": {}}
BLOCKS: list[Any] = [
    {"type": "text", "text": "x", "annotations": {"audience": ["user"], "priority": 1}},
    {"type": "image", "data": "aGk=", "mimeType": "a/b"},
    {"type": "audio", "data": "aGk=", "mimeType": "a/b"},
    {"type": "resource", "resource": {"uri": "u", "text": "t"}},
    {"type": "resource_link", "uri": "u", "name": "n", "icons": [{"src": "x"}]},
    {"type": "zzz"},
]
COMMON = {"resultType": "complete", "_meta": {}}
HINTS = {"ttlMs": 5, "cacheScope": "public"}
RESULTS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "tools/call": (
        decoding.decode_call_result,
        {"content": BLOCKS, "structuredContent": {"a": 1}, "isError": False, **COMMON},
    ),
    "prompts/get": (
        decoding.decode_prompt_result,
        {
            "messages": [{"role": "user", "content": block} for block in BLOCKS],
            "description": "d",
            **COMMON,
        },
    ),
    "resources/read": (
        decoding.decode_read_result,
        {
            "contents": [{"uri": "u", "text": "t", "_meta": {}}, {"uri": "u", "blob": "aGk="}],
            **HINTS,
            **COMMON,
        },
    ),
    "completion/complete": (
        decoding.decode_completion,
        {"completion": {"values": ["a"], "total": 1, "hasMore": True}, **COMMON},
    ),
    "server/discover": (
        decoding.decode_discovery,
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {},
            "instructions": "i",
            **HINTS,
            **COMMON,
        },
    ),
    "tools/list": (
        lists.TOOLS.decode,
        {
            "tools": [
                {
                    **NAMED,
                    "inputSchema": {"type": "object"},
                    "outputSchema": {},
                    "annotations": {"title": "a"},
                    "execution": {},
                }
            ],
            "nextCursor": "c",
            **HINTS,
            **COMMON,
        },
    ),
    "prompts/list": (
        lists.PROMPTS.decode,
        {"prompts": [{**NAMED, "arguments": [{"name": "a", "required": True}]}], **HINTS, **COMMON},
    ),
    "resources/list": (
        lists.RESOURCES.decode,
        {"resources": [{**NAMED, "uri": "u", "mimeType": "a/b", "size": 1}], **HINTS, **COMMON},
    ),
    "resources/templates/list": (
        lists.TEMPLATES.decode,
        {"resourceTemplates": [{**NAMED, "uriTemplate": "u{x}"}], **HINTS, **COMMON},
    ),
}
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, 10**400, "", "text", "x" * 50, [], [None], [[]], {},
    {"a": None}, {"type": []}, {"type": {}}, {"type": "text"},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something in a JSON value is."""
    yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from places(member, (*path, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from places(item, (*path, n))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return value


def look_at(result: Any) -> None:
    """What users look at first."""
    for name in ("text", "data", "content", "messages"):
        getattr(result, name, None)
    for name in ("tools", "prompts", "resources", "resource_templates", "messages"):
        for item in getattr(result, name, None) or ():
            getattr(item, "display_name", None)
            getattr(item, "text", None)


def decode_both(decode: Callable[[Any], Any], data: bytes) -> None:
    """Nothing but what the connection makes an `InvalidResponse` of comes out."""
    for form in (decode, decoding.legacy_form(decode)):
        with contextlib.suppress(msgspec.DecodeError, InvalidResponse):
            look_at(form(data))


@every("method", RESULTS)
def test_nothing_but_invalid_responses_comes_of_odd_members(method: str) -> None:
    decode, good = RESULTS[method]
    for form in (decode, decoding.legacy_form(decode)):
        look_at(form(json.dumps(good).encode()))
    for path in places(good):
        for odd in ODD:
            decode_both(decode, json.dumps(changed(good, path, odd)).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "data", "role", "content", "uri", "resource"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(RESULTS)), st.data())
def test_nothing_but_invalid_responses_comes_of_any_json(method: str, data: Any) -> None:
    decode, good = RESULTS[method]
    value = good
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(value))))
        value = changed(value, path, data.draw(JSON))
    decode_both(decode, json.dumps(value).encode())


@pytest.mark.parametrize("kind", [[], {}, ["text"], {"text": 1}, 5, True])
async def test_a_block_whose_type_is_no_string(
    once: Run, tmp_path: Path, era: str, kind: Any
) -> None:
    block = {"type": kind, "text": "x"}
    rules = {
        "tools/call": {"content": [block], "resultType": "complete"},
        "prompts/get": {
            "messages": [{"role": "user", "content": block}],
            "resultType": "complete",
        },
    }
    server = peer(tmp_path, era, rules)
    async with server, Client(server.url, era=era) as client:  # type: ignore[arg-type]
        with raises(InvalidResponse):
            await client.call_tool("t")
        with raises(InvalidResponse):
            await client.get_prompt("p")


def test_a_block_of_a_new_type_is_kept() -> None:
    blocks = [{"type": "zzz", "a": [1]}, {"type": "text", "text": "x"}, {"a": 1}]
    data = json.dumps({"content": blocks}).encode()
    for decode in (decoding.decode_call_result, decoding.decode_legacy_call_result):
        assert decode(data).content == [  # type: ignore[union-attr]
            UnknownContent(blocks[0]), Text("x"), UnknownContent(blocks[2]),
        ]  # fmt: skip


LATER: list[dict[str, Any]] = [
    {"resultType": "mine", "ttlMs": 5000, "cacheScope": "public"},
    {"resultType": 5, "ttlMs": "soon", "cacheScope": None},
    {"resultType": None, "ttlMs": None, "cacheScope": []},
]


@pytest.mark.parametrize("more", LATER)
async def test_members_of_a_later_revision_mean_nothing(
    once: Run, tmp_path: Path, more: dict[str, Any]
) -> None:
    rules: dict[str, Any] = {
        "tools/call": {"content": [{"type": "text", "text": "x"}], **more},
        "prompts/get": {"messages": [], **more},
        "resources/read": {"contents": [{"uri": "a://b", "text": "x"}], **more},
        "completion/complete": {"completion": {"values": ["a"]}, **more},
        "tools/list": {"tools": [], **more},
        "prompts/list": {"prompts": [], **more},
        "resources/list": {"resources": [], **more},
        "resources/templates/list": {"resourceTemplates": [], **more},
    }
    server = peer(tmp_path, "legacy", rules)
    async with server, Client(server.url, era="legacy") as client:
        called = await client.call_tool("t")
        assert (called.text, called.result_type) == ("x", "complete")
        assert (await client.get_prompt("p")).messages == []
        read = await client.read_resource("a://b")
        assert (read.text, read.ttl_ms, read.cache_scope) == ("x", 0, "private")
        assert (await client.complete(PromptRef("p"), "a", "")).values == ["a"]
        for page in (
            await client.list_tools_page(),
            await client.list_prompts_page(),
            await client.list_resources_page(),
            await client.list_resource_templates_page(),
        ):
            assert (page.ttl_ms, page.cache_scope) == (0, "private")
        await client.list_tools()
        assert len(server.sent("tools/list")) == 2  # nothing was kept


@pytest.mark.parametrize("ttl", [None, 1.5, "5", [], True])
@pytest.mark.parametrize("scope", ["public", None, 5])
async def test_malformed_hints_count_as_absent(
    once: Run, tmp_path: Path, ttl: Any, scope: Any
) -> None:
    hints = {"ttlMs": ttl, "cacheScope": scope, "resultType": "complete"}
    rules: dict[str, Any] = {
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], **hints},
        "resources/read": {"contents": [{"uri": "a://b", "text": "x"}], **hints},
    }
    server = peer(tmp_path, "modern", rules)
    async with server, Client(server.url, era="modern") as client:
        page = await client.list_tools_page()
        assert [tool.name for tool in page.tools] == ["t"]
        # a null is an absent member, beside which the other one counts
        assert (page.ttl_ms, page.cache_scope) == (
            0,
            "public" if (ttl, scope) == (None, "public") else "private",
        )
        read = await client.read_resource("a://b")
        assert (read.text, read.ttl_ms) == ("x", 0)
