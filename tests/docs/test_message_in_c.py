"""The table "Message in C" of the guide has what the `.pxd` files declare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "wirespeed"
SECTION = (
    (ROOT / "docs" / "how-to" / "sdk.md")
    .read_text(encoding="utf-8")
    .partition("\n### Message in C\n")[2]
    .partition("\n### ")[0]
)
# Methods of the reader and of the session.
OWN = {
    "classify_c",
    "classify_duplicates_c",
    "hold_c",
    "invalid_c",
    "is_call_c",
    "is_nothing_c",
    "lacks_only_id_c",
    "lost_c",
    "read_element_c",
    "refuse_c",
    "version_c",
}


def rows(head: str) -> dict[str, str]:
    """The first two cells of a table of the section, by its first title; one entry for each name in
    the first cell."""
    table = SECTION.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    found = {}
    for line in table:
        names, kinds = (re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3])
        for i, name in enumerate(names):
            found[name.partition("(")[0].removeprefix("Message.")] = kinds[i % len(kinds)]
    return found


def declared() -> dict[str, str]:
    """The members of `Message` and their types."""
    text = (SOURCE / "_core" / "envelope.pxd").read_text()
    body = text.partition("\ncdef class Message:\n")[2].partition("\n\n\n")[0]
    field = re.compile(r"^    cdef (?:readonly )?(.+?) ?(\*?)(\w+)(?: *#.*|\(.*)?$", re.MULTILINE)
    return {name: f"{kind} {star}".strip() for kind, star, name in field.findall(body)}


def test_the_table_has_the_members_of_a_message() -> None:
    members = declared()
    assert len(members) > 20
    assert members.keys() >= OWN
    assert rows("member") == {name: kind for name, kind in members.items() if name not in OWN}


def test_the_table_has_the_functions_and_values_of_the_core() -> None:
    public = (SOURCE / "core.pxd").read_text()
    given = public.partition("from wirespeed._core.envelope cimport (")[2].partition(")")[0]
    names = set(re.findall(r"\w+", given)) - {"Message"}
    text = (SOURCE / "_core" / "envelope.pxd").read_text()
    functions = set(re.findall(r"^cdef inline \w+ (\w+)\(", text, re.MULTILINE))
    assert functions <= names
    assert rows("function").keys() == functions
    assert {name for name in names if f"`{name}`" not in SECTION} <= functions


def test_the_table_has_every_point_of_interest() -> None:
    text = (SOURCE / "_core" / "_simd.pxd").read_text()
    points = re.findall(r"\bWS_\w+", text.partition("    enum:\n")[2].partition("WS_POI_COUNT")[0])
    assert len(points) > 10
    assert set(rows_of_points()) == set(points)


def rows_of_points() -> list[str]:
    table = SECTION.partition("\n| points of interest |")[2]
    return re.findall(r"`(WS_\w+)`", table)
