"""The wire model of skills: URIs, entries that are not valid, approvals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lab.rows import every

from wirespeed.skills import Skill, SkillApproval, SkillChanges
from wirespeed.skills.model import entry_of, key_of, roots_above, same_json, uri_of

DIGEST = "sha256:" + "0a" * 32
HEAD = {"uri": "skill://acme/refunds/SKILL.md", "digest": DIGEST, "size": 3}
ENTRY: dict[str, Any] = {
    "uri": "skill://acme/refunds/SKILL.md",
    "frontmatter": {"name": "refunds", "description": "Refunds."},
    "resources": [HEAD],
}


def other(**changes: Any) -> bytes:
    return msgspec.json.encode({**ENTRY, **changes})


def with_file(**changes: Any) -> bytes:
    return other(resources=[HEAD, {**HEAD, "uri": "skill://acme/refunds/a.md", **changes}])


def test_a_valid_entry() -> None:
    entry = entry_of(other())
    assert (entry.name, entry.description, entry.root) == (
        "refunds",
        "Refunds.",
        "skill://acme/refunds",
    )
    assert entry_of(other(resources="dynamic")).resources == "dynamic"
    assert entry_of(with_file(uri="skill://acme/refunds/a%20b.md")) is not None
    github = "github://o/r/refunds/SKILL.md"
    assert entry_of(other(uri=github, resources=[{**HEAD, "uri": github}])).uri == github


@every(
    "text, why",
    [
        (other(resources=None), "resources"),
        (other(resources="static"), "resources"),
        (other(resources={}), "resources"),
        (other(resources=[]), "its own SKILL.md"),
        (b'{"uri":"skill://a/SKILL.md","frontmatter":{}}', "resources"),
        (other(uri="skill://acme/refunds/skill.md"), "not the URI of a SKILL.md"),
        (other(uri="skill://SKILL.md"), "not the URI of a SKILL.md"),
        (other(uri="refunds/SKILL.md"), "not the URI of a file"),
        (other(uri="skill://acme/other/SKILL.md"), "not named as its skill"),
        (other(frontmatter={"name": "refunds"}), "no description"),
        (other(frontmatter={"name": 1, "description": "x"}), "no name"),
        (other(frontmatter={"name": "Refunds", "description": "x"}), "small letters"),
        (with_file(uri="skill://acme/refunds/SKILL.md"), "twice"),
        (with_file(uri="skill://acme/refunds/%53KILL.md"), "twice"),
        (with_file(uri="skill://acme/other/a.md"), "not inside"),
        (with_file(uri="skill://acme/refunds"), "not inside"),
        (with_file(uri="other://acme/refunds/a.md"), "not inside"),
        (with_file(uri="skill://acme/refunds/../../etc/passwd"), "dots"),
        (with_file(uri="skill://acme/refunds/%2e%2e/a"), "dots"),
        (with_file(uri="skill://acme/refunds/a/"), "empty segment"),
        (with_file(uri="skill://acme/refunds//a"), "empty segment"),
        (with_file(uri="skill://acme/refunds/a%2Fb"), "cannot be the name of a file"),
        (with_file(uri="skill://acme/refunds/a%5Cb"), "cannot be the name of a file"),
        (with_file(uri="skill://acme/refunds/a%00b"), "cannot be the name of a file"),
        (with_file(uri="skill://acme/refunds/%ff"), "not UTF-8"),
        (with_file(uri="skill://acme/refunds/a?b"), "query"),
        (with_file(uri="skill://acme/refunds/a#b"), "query"),
        (with_file(uri="skill://acme/refunds/a b"), "not the URI of a file"),
        (with_file(digest=DIGEST.upper()), "digest"),
        (with_file(digest=DIGEST[:-1]), "digest"),
        (with_file(digest="md5:" + "0" * 64), "digest"),
        (with_file(size=-1), "negative"),
        (with_file(size="3"), "size"),
        (with_file(size=1.5), "size"),
    ],
)
def test_entries_that_are_not_valid(text: bytes, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        entry_of(text)
    assert why in str(refused.value)


def test_uris() -> None:
    assert uri_of(("a b", "é", "c+d.md")) == "skill://a%20b/%C3%A9/c%2Bd.md"
    assert key_of("SKILL://a%20b/%C3%A9") == ("skill", "a b", "é")
    assert roots_above("skill://a/b/c.md") == [
        "skill://a/b/c.md/SKILL.md",
        "skill://a/b/SKILL.md",
        "skill://a/SKILL.md",
    ]
    assert roots_above("skill://a/b/SKILL.md")[0] == "skill://a/b/SKILL.md"


@every(
    "one, other, same",
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, False, False),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_the_same_json(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


def test_an_approval_is_of_a_set_of_files() -> None:
    skill = Skill("refunds", "Refunds.", {"SKILL.md": "Do it.", "a.md": "a", "b.md": "b"})
    approval = SkillApproval.of("docs", skill.entry)
    assert SkillApproval.from_json(approval.to_json()) == approval
    assert approval.covers("docs", skill.entry)
    assert not approval.covers("other", skill.entry)
    turned = msgspec.structs.replace(skill.entry, resources=skill.entry.resources[::-1])
    assert approval.covers("docs", turned)
    later = Skill("refunds", "Refunds.", {"SKILL.md": "Do it.", "a.md": "A", "c.md": "c"}).entry
    assert not approval.covers("docs", later)
    assert approval.changes(later) == SkillChanges(
        ("skill://refunds/c.md",), ("skill://refunds/b.md",), ("skill://refunds/a.md",)
    )
    dynamic = msgspec.structs.replace(skill.entry, resources="dynamic")
    assert not approval.covers("docs", dynamic)
    with pytest.raises(ValueError, match="dynamic"):
        SkillApproval.of("docs", dynamic)
