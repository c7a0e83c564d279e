"""Front matter: YAML 1.2 in the core schema, bounded, with the line of what is wrong."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lab.rows import every

from wirespeed.skills.frontmatter import FrontmatterError, checked_frontmatter, frontmatter_of


def read(text: str) -> dict[str, Any]:
    return frontmatter_of(f"---\n{text}\n---\nbody".encode())


@every(
    "text, value",
    [
        ("a", "a"),
        ("''", ""),
        ("'1'", "1"),
        ('"true"', "true"),
        ("", None),
        ("~", None),
        ("Null", None),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),  # a boolean of YAML 1.1
        ("off", "off"),
        ("12", 12),
        ("-0", 0),
        ("012", 12),  # an octal number of YAML 1.1
        ("0o14", 12),
        ("0x1F", 31),
        ("-" + "0" * 5000 + "17", -17),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),  # a number of YAML 1.1 to the base 60
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("2026-07-28", "2026-07-28"),
        ("2026-07-28T00:00:00Z", "2026-07-28T00:00:00Z"),
        ("18446744073709551615", 18446744073709551615),
        ("<<", "<<"),
        ("=", "="),
        ("!!str 12", "12"),
        ("!!int 0x10", 16),
        ("!!float 1", 1.0),
        ("! 12", "12"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
        ("{1: a, true: b, null: c}", {"1": "a", "true": "b", "null": "c"}),
        ("|\n  two\n  lines", "two\nlines\n"),
        ('"\\u00e9 \\n"', "é \n"),
    ],
)
def test_what_scalars_are(text: str, value: Any) -> None:
    found = read(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


@every(
    "text, line, why",
    [
        ("a: 1\nb: 2\na: 3", 4, "there twice"),
        ("a: {b: 1, b: 2}", 2, "there twice"),
        ("a: *b", 2, "no complete value"),
        ("a: &x [*x]", 2, "no complete value"),
        ("a: .inf", 2, "JSON has no form for .inf"),
        ("a: .NaN", 2, "JSON has no form for .NaN"),
        ("a: 1e999", 2, "out of range"),
        ("a: 18446744073709551616", 2, "64 bits"),
        ("a: !!binary aGk=", 2, "core schema"),
        ("a: !!set {b}", 2, "core schema"),
        ("a: !own b", 2, "core schema"),
        ("a: !!int b", 2, "is not a value of the type int"),
        ("? [a]\n: b", 2, "keys of JSON are texts"),
        ("a: b\n--- c", 3, "second document"),
        ("a: [", 3, "YAML"),
        ("a: b: c", 2, "YAML"),
        ("a: 'b", 3, "YAML"),
        ("- a", 2, "not a mapping"),
        ("", 2, "not a mapping"),
        ("a: \x01", 2, "YAML"),
        ("a: " + "[" * 40 + "]" * 40, 2, "deeper than 32"),
    ],
)
def test_what_is_refused(text: str, line: int, why: str) -> None:
    with pytest.raises(FrontmatterError) as refused:
        read(text)
    assert why in str(refused.value)
    assert abs(refused.value.line - line) <= 1  # of an unfinished value, that of its end


def test_aliases_count_with_what_they_stand_for() -> None:
    assert read("a: &x {b: c}\nd: *x\n*x : e".replace("*x : e", "f: [*x, *x]")) == {
        "a": {"b": "c"},
        "d": {"b": "c"},
        "f": [{"b": "c"}, {"b": "c"}],
    }
    levels = ["a0: &a0 [" + ", ".join(["lol"] * 9) + "]"]
    levels += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 10)]
    with pytest.raises(FrontmatterError, match="too large"):
        read("\n".join(levels))
    with pytest.raises(FrontmatterError, match="too large"):  # one long text, many times
        read(f"a: &x {'y' * 30_000}\nb: [{', '.join(['*x'] * 2000)}]")


@every(
    "data, why",
    [
        (b"", "does not begin"),
        (b"# Title\n", "does not begin"),
        (b"---\nname: a\n", "has no end"),
        (b"---\n" + b"a: b\n" * 20_000 + b"---\n", "has no end"),
        (b"---\nname: \xff\n---\n", "not UTF-8"),
    ],
)
def test_a_file_without_front_matter(data: bytes, why: str) -> None:
    with pytest.raises(FrontmatterError, match=why):
        frontmatter_of(data)


def test_line_ends_and_a_mark_of_the_byte_order() -> None:
    data = b"\xef\xbb\xbf---\r\nname: a\r\ndescription: b\r\n---\r\n"
    assert frontmatter_of(data) == {"name": "a", "description": "b"}


@every(
    "text, why",
    [
        ("description: b", "has no name"),
        ("name: 1\ndescription: b", "has no name"),
        ("name: a", "has no description"),
        ("name: a\ndescription: ' '", "has no description"),
        ("name: A\ndescription: b", "small letters"),
        ("name: a--b\ndescription: b", "small letters"),
        (f"name: {'a' * 65}\ndescription: b", "small letters"),
        (f"name: a\ndescription: {'b' * 1025}", "longer than 1024"),
    ],
)
def test_what_a_skill_needs(text: str, why: str) -> None:
    with pytest.raises(FrontmatterError, match=why):
        checked_frontmatter(f"---\n{text}\n---\n".encode())


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'wirespeed\[skills\]'"):
        frontmatter_of(b"---\nname: a\n---\n")
