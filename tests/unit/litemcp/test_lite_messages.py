"""LiteMCP's data structures: versions, ids, and the text for a model."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._core.streams import FrameStream
from wirespeed.litemcp import Parameter, Tool, VersionTuple
from wirespeed.litemcp.envelope import BadMessage, SeenIds, id_of
from wirespeed.litemcp.messages import VERSION, parse_version, refuse_version

pytestmark = pytest.mark.compiled

# -- versions -------------------------------------------------------------------------------------


def test_versions_are_compared_number_by_number() -> None:
    assert parse_version(b"[1,10,0]") > parse_version(b"[1,9,0]")
    assert parse_version(b"[1,0,0]") == VERSION == VersionTuple(1, 0, 0)
    assert str(parse_version(b"[1,10,3]")) == "1.10.3"


@pytest.mark.parametrize("text", [b"[1,0,0]", b" [ 1 , 10 , 3 ] ", b"[1,999,999]"])
def test_an_equal_major_version_is_served(text: bytes) -> None:
    assert refuse_version(text) is None


@pytest.mark.parametrize("text", [b"[2,0,0]", b"[0,1,0]", b"[10,0,0]"])
def test_another_major_version_is_refused(text: bytes) -> None:
    version = ".".join(map(str, msgspec.json.decode(text)))
    assert refuse_version(text) == f"LiteMCP {version} is not supported, only 1.0.0"
    assert refuse_version(text, parse_version(text)) is None


@every(
    "text",
    [
        b"[1,0]", b"[1,0,0,0]", b"[]", b"[1,0,-1]", b"[1,0,true]", b"[1,0,0.0]", b'[1,0,"0"]',
        b'"1.0.0"', b"1", b"null", b"{}", b'{"major":1,"minor":0}',
        b'{"major":1,"minor":0,"patch":"0"}',
    ],
)  # fmt: skip
def test_malformed_versions_are_refused(text: bytes) -> None:
    with raises(ValueError):
        parse_version(text)
    assert refuse_version(text) == "a version is [major, minor, patch], three integers"


def test_the_object_form_is_accepted_and_never_written() -> None:
    found = parse_version(b'{"major":1,"minor":2,"patch":3}')
    assert found == VersionTuple(1, 2, 3)
    assert msgspec.json.encode(found) == b"[1,2,3]"


def test_a_missing_version_is_told_apart() -> None:
    assert refuse_version(b"") == "the version is missing"


# -- ids ------------------------------------------------------------------------------------------


def frame_of(text: bytes) -> tuple[FrameStream, object]:
    stream = FrameStream(BlankLineFramer(10_000))
    stream.receive_data(text + b"\n\n\n")
    return stream, next(stream)


@every("raw_id", [b"1", b"0", b"-5", b"2147483647", b"12345678901234567890123", b"9" * 5000])
def test_any_integer_is_an_id_and_comes_back_as_it_was(raw_id: bytes) -> None:
    stream, frame = frame_of(b'{"type":"get", "id" : %b , "data":{"id":true}}' % raw_id)
    assert id_of(stream, frame, 10) == raw_id


@every(
    ("text", "reason"),
    [
        (b'{"id":true}', "its id is not an integer"),
        (b'{"id":null}', "its id is not an integer"),
        (b'{"id":1.0}', "its id is not an integer"),
        (b'{"id":1e3}', "its id is not an integer"),
        (b'{"id":"1"}', "its id is not an integer"),
        (b'{"id":[1]}', "its id is not an integer"),
        (b'{"type":"get"}', "without an id"),
        (b'{"id":1,"id":2}', "two ids"),
        (b'{"id":1,"\\u0069d":2}', "two ids"),
        (b"[1]", "not a JSON object"),
        (b"1", "not a JSON object"),
        (b"nonsense", "not one JSON value"),
        (b'{"id":1}{"id":2}', "not one JSON value"),
        (b'{"id":1}\n{"id":2}', "not one JSON value"),
        (b'{"id":01}', "not one JSON value"),
        (b'{"id":1,}', "not one JSON value"),
        (b'{"id":1', "not one JSON value"),
        (b'{"id":1,"x":"\xff"}', "not UTF-8"),
        (b'{"id":1,"x":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"id":1,"x":' + b"[" * 11 + b"]" * 11 + b"}", "deeper than 10"),
    ],
)
def test_what_has_no_integer_id_is_no_message(text: bytes, reason: str) -> None:
    stream, frame = frame_of(text)
    with pytest.raises(BadMessage, match=reason):
        id_of(stream, frame, 10)


def test_seen_ids_are_told_by_their_number() -> None:
    seen = SeenIds()
    for raw_id in (b"1", b"-1", b"0", b"123456789012345678", b"1234567890123456789", b"9" * 5000):
        assert seen.add(raw_id)
        assert not seen.add(raw_id)
    assert not seen.add(b"-0")
    assert seen.add(b"-1234567890123456789")
    assert len(seen) == 7


def test_seen_ids_forget_the_oldest_and_stay_small() -> None:
    seen = SeenIds(1024)
    for i in range(5000):
        assert seen.add(b"%d" % i)
        if i >= 1024:
            assert not seen.add(b"%d" % (i - 1023))
    assert len(seen) == 1024
    assert seen.nbytes == 1024 * 16
    assert seen.add(b"0")
    assert SeenIds().nbytes == 0


@pytest.mark.parametrize("limit", [0, 15, 17, 1000, 2**27])
def test_the_number_of_remembered_ids_is_a_power_of_two(limit: int) -> None:
    with raises(ValueError):
        SeenIds(limit)


def test_what_is_no_integer_is_no_id_to_remember() -> None:
    with raises(ValueError):
        SeenIds().add(b"1x")
    with pytest.raises(TypeError):
        SeenIds().add("1")  # type: ignore[arg-type]


@given(st.lists(st.integers(-40, 40), max_size=400))
def test_seen_ids_are_as_their_model(ids: list[int]) -> None:
    seen, model = SeenIds(16), deque[int](maxlen=16)
    for number in ids:
        assert seen.add(b"%d" % number) == (number not in model)
        if number not in model:
            model.append(number)


# -- the prompt -----------------------------------------------------------------------------------


def test_the_prompt_tells_a_model_all_there_is() -> None:
    tool = Tool(
        "Calculator",
        "A simple calculator",
        "Calculate the sum of 2 and 3",
        [Parameter("a", "number", "The first number", "2"), Parameter("b", "number")],
    )
    assert tool.prompt() == (
        "Tool: Calculator\n"
        "Description: A simple calculator\n"
        "Parameters, in order:\n"
        "1. a (number): The first number\n"
        "   Example: 2\n"
        "2. b (number)\n"
        "Example of its use: Calculate the sum of 2 and 3\n"
        "To call it, answer with this JSON object alone. The arguments are strings, one for each "
        "parameter in the order above:\n"
        '{"tool": "Calculator", "arguments": ["2", "<b>"]}'
    )


def test_the_prompt_of_a_tool_that_says_nothing_of_itself() -> None:
    assert Tool('"quoted"').prompt() == (
        'Tool: "quoted"\n'
        "Parameters: none\n"
        "To call it, answer with this JSON object alone. The arguments are strings, one for each "
        "parameter in the order above:\n"
        '{"tool": "\\"quoted\\"", "arguments": []}'
    )
