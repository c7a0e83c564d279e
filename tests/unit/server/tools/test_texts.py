"""Long texts among the arguments: decoded apart, to the same values as by msgspec alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every

from wirespeed import Client, Server
from wirespeed.server.tools.tool import LongTexts

pytestmark = pytest.mark.compiled

LONG = "x" * 3000
OTHER = "é" * 3000


class Arguments(msgspec.Struct):
    text: str
    more: str | None = None
    n: int = 0
    rows: list[Any] = []


DECODE = msgspec.json.Decoder(Arguments).decode
TEXTS = LongTexts({"text": "text", "more": "more"})


def decode(data: str | bytes) -> Arguments | None:
    raw = data.encode() if isinstance(data, str) else data
    result: Arguments | None = TEXTS.decode(DECODE, raw)
    if result is not None:
        assert result == DECODE(raw)
    return result


@every(
    "arguments",
    [
        {"text": LONG},
        {"text": OTHER},
        {"text": LONG, "more": OTHER},
        {"more": LONG, "n": -5, "text": "short"},
        {"rows": [[{"text": LONG}], "]"], "text": LONG, "n": 3},
        {"unknown": LONG, "text": LONG + "☃"},
        {"text": LONG, "more": None},
    ],
)
@every("indent", [None, 2])
def test_the_values_are_those_of_msgspec(arguments: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(arguments, ensure_ascii=False, indent=indent)
    assert decode(text) is not None
    assert decode(text.replace(": ", " :\r\n\t")) is not None


@every(
    "text",
    [
        "{}",
        '{ "text" : "short" }',
        '{"unknown": "@"}',
        '{"text": "@\\n"}',  # escapes
        '{"more": "a\\"b", "text": "@"}',
        '{"te\\u0078t": "@"}',
        '{"text": "@", "text": "b"}',  # twice
        '{"text": "b", "text": "@"}',
    ],
)
def test_what_is_unusual_is_left_to_msgspec(text: str) -> None:
    assert decode(text.replace("@", LONG)) is None


def test_what_does_not_fit_raises_as_ever() -> None:
    with pytest.raises(msgspec.ValidationError, match="n"):
        TEXTS.decode(DECODE, b'{"text": "%s", "n": "no"}' % LONG.encode())
    with pytest.raises(msgspec.ValidationError, match="text"):
        TEXTS.decode(DECODE, b'{"more": "%s"}' % LONG.encode())


@given(
    st.dictionaries(
        st.sampled_from(["text", "more", "n", "rows", "other"]),
        st.one_of(
            st.text(max_size=20),
            st.integers(2000, 2100).map(lambda n: "é" * (n // 2) + "a" * (n % 2)),
            st.integers(2040, 2060).map(lambda n: "a" * n),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=3),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
                max_leaves=5,
            ),
        ),
    )
)
def test_any_arguments(arguments: dict[str, Any]) -> None:
    raw = json.dumps(arguments, ensure_ascii=False).encode()
    try:
        expected = DECODE(raw)
    except msgspec.ValidationError as exc:
        # the wanted type, and the same words
        try:
            assert TEXTS.decode(DECODE, raw) is None
        except msgspec.ValidationError as ours:
            assert str(ours) == str(exc)
        return
    assert TEXTS.decode(DECODE, raw) in (None, expected)


@every(
    "text",
    [
        "a" * 100_000,
        "é" * 50_000,
        "\n" * 30_000,
        ("plain " * 4000 + '"\\\x01') * 3,
        ("€" * 1365 + "\n") * 20,  # a step ends within a character
        "a" * 20_000 + "\n" + "b" * 5_000 + '"' + "☃" * 9_000,
    ],
)
def test_long_texts_go_through_a_tool_and_back(text: str) -> None:
    server = Server("long")

    @server.tool
    async def echo(text: str, times: int = 1) -> str:
        return text * times

    async def main() -> None:
        async with Client(server) as client:
            result = await client.call_tool("echo", {"text": text})
            assert result.content[0].text == text
            result = await client.call_tool("echo", {"times": 2, "text": text})
            assert result.content[0].text == 2 * text

    asyncio.run(main())
