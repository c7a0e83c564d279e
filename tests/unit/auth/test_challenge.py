"""WWW-Authenticate as servers write it and clients read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed.auth.metadata import (
    MAX_CHALLENGES,
    Challenge,
    find_challenge,
    read_challenges,
    write_challenge,
)

pytestmark = pytest.mark.smoke


@every(
    ("field", "found"),
    [
        ("", []),
        ("Bearer", [Challenge("bearer")]),
        ('Bearer realm="a", scope="x y"', [Challenge("bearer", {"realm": "a", "scope": "x y"})]),
        ("Bearer error=invalid_token", [Challenge("bearer", {"error": "invalid_token"})]),
        ('Bearer a = "b" ,c=d', [Challenge("bearer", {"a": "b", "c": "d"})]),
        ('Bearer a="q\\"u\\\\o"', [Challenge("bearer", {"a": 'q"u\\o'})]),
        ('Bearer a="1, b=2"', [Challenge("bearer", {"a": "1, b=2"})]),
        ('BEARER A="1", a="2"', [Challenge("bearer", {"a": "1"})]),
        ("Basic, Bearer", [Challenge("basic"), Challenge("bearer")]),
        (
            'Basic realm="x", DPoP algs="ES256 RS256", Bearer scope="s"',
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("dpop", {"algs": "ES256 RS256"}),
                Challenge("bearer", {"scope": "s"}),
            ],
        ),
        ("Negotiate YWJj==, Bearer a=b", [
            Challenge("negotiate", token68="YWJj=="), Challenge("bearer", {"a": "b"})
        ]),
        (", ,Bearer a=b,,", [Challenge("bearer", {"a": "b"})]),
        ('Bearer a="unfinished', [Challenge("bearer")]),
        ("Bearer a=b; c=d", [Challenge("bearer")]),
        ("(comment) Bearer", []),
        ("a=b", []),
    ],
)  # fmt: skip
def test_fields_are_read(field: str, found: list[Challenge]) -> None:
    assert read_challenges(field) == found


def test_a_field_with_many_challenges_is_read_in_part() -> None:
    assert len(read_challenges("Bearer a=b, " * 1000)) == MAX_CHALLENGES


def test_the_challenge_of_a_scheme() -> None:
    field = 'Basic realm="x", Bearer scope="a b", Bearer scope="c"'
    challenge = find_challenge(field, "bearer")
    assert challenge is not None
    assert challenge.scopes == ["a", "b"]
    assert find_challenge(field, "dpop") is None


def test_challenges_are_written() -> None:
    assert write_challenge("Bearer", {}) == "Bearer"
    params = {"error": "invalid_token", "scope": None, "error_description": 'not "good"'}
    text = 'Bearer error="invalid_token", error_description="not \\"good\\""'
    assert write_challenge("Bearer", params) == text


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x", "\x00", "é", "\x7f"])
def test_a_challenge_cannot_end_its_line(value: str) -> None:
    with raises(ValueError):
        write_challenge("Bearer", {"scope": value})


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}\Z", fullmatch=True),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
        min_size=1,
    )
)
def test_what_is_written_is_read(params: dict[str, str]) -> None:
    field = write_challenge("Bearer", params)
    twice = f"{field}, {field}"
    assert read_challenges(twice) == [Challenge("bearer", params)] * 2


@given(st.text(st.sampled_from('Bearer =,"\\a1 \t~/'), max_size=60))
def test_any_text_is_read(field: str) -> None:
    read_challenges(field)
