"""The pages of the protocol's rules and of advisories: each row has tests, and those that it names
exist."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from lab.rows import every

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "rules.md"
ADVISORIES = PAGE.with_name("advisories.md")

ROW = re.compile(
    r"\| `(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)` \| (?P<says>[^|]+) \| [^|]+ \| (?P<held>[^|]+) \|"
)
ADVISORY = re.compile(
    r"\* Advisories: [^*]+\]\(https://[^*]+\n\* wirespeed: [^*]+\n\* Held by: (`[^*#]+`)\n\n"
)
ADDRESS = re.compile(r"\[(\w+-[\w-]+)\]\(https://[\w./-]+/([\w-]+)\)")
HELD = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<test>test_\w+)(?:\[(?P<case>[^\]`]+)\])?`")


@cache
def text_of(file: str) -> str:
    path = TESTS / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def rules() -> list[re.Match[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    found = [match for row in rows if (match := ROW.fullmatch(row))]
    assert len(found) == len(rows) > 90
    return found


def check(named: str) -> None:
    """The tests that a row names exist."""
    for one in named.split("<br>"):
        held = HELD.fullmatch(one)
        assert held, one
        text = text_of(held["file"])
        assert f"def {held['test']}(" in text, one
        assert held["case"] is None or f'"{held["case"]}"' in text, one


def test_names_of_rules_are_unique() -> None:
    counted = Counter(rule["name"] for rule in rules())
    assert [name for name, n in counted.items() if n > 1] == []


@every("name", [rule["name"] for rule in rules()])
def test_the_tests_of_a_rule_exist(name: str) -> None:
    (rule,) = (rule for rule in rules() if rule["name"] == name)
    check(rule["held"])


def test_the_tests_of_an_advisory_exist() -> None:
    _, *holes = re.split(r"^### .+", ADVISORIES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(holes) > 20
    for hole in holes:
        found = ADVISORY.search(hole)
        assert found, hole
        check(re.sub(r",\s+(?=`)", "<br>", found[1]))
        assert all(id == last for id, last in ADDRESS.findall(hole))
