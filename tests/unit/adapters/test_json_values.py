"""Results of tools on their way to the wire, with a stand-in for the SDK's block of text."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from wirespeed.adapters.mcp.json_values import plain_copy, text_blocks


class Text:
    """Stands for `mcp_types.TextContent`."""

    def __init__(self, text: Any, **more: Any) -> None:
        vars(self).update({"type": "text", "text": text, "annotations": None, "meta": None}, **more)


class More(Text):
    pass


class Level(IntEnum):
    HIGH = 3


def test_texts_are_blocks_of_the_wire() -> None:
    assert text_blocks([], Text) == []
    assert text_blocks([Text("ü"), Text("")], Text) == [
        {"text": "ü", "type": "text"},
        {"text": "", "type": "text"},
    ]


@pytest.mark.parametrize(
    "block",
    [
        More("a"),
        {"type": "text", "text": "a"},
        Text(1),
        Text(None),
        Text("a", meta={}),
        Text("a", annotations={}),
        Text("a", type="other"),
    ],
)
def test_content_that_is_more_than_text_is_left_to_the_sdk(block: Any) -> None:
    assert text_blocks([Text("a"), block], Text) is None


def test_a_plain_value_is_copied() -> None:
    value: Any = {"a": None, "b": [1, 2**70, 2.5, True, "ü", {"c": []}]}
    copied = plain_copy(value)
    assert copied == value
    assert copied is not value and copied["b"] is not value["b"]
    assert copied["b"][5]["c"] is not value["b"][5]["c"]


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), (1,), {1}, b"a", Level.HIGH, {1: 2}, object()]
)
def test_what_pydantic_may_change_is_not_copied(value: Any) -> None:
    for one in (value, {"a": [value]}):
        with pytest.raises(TypeError):
            plain_copy(one)


def test_a_value_that_is_too_deep_or_contains_itself_is_not_copied() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError):
        plain_copy(value)
