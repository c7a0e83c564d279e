"""The page "Performance" is what was measured."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from guide import ROOT

FIELD = ROOT / "benchmarks" / "field"
RESULTS = ROOT / "benchmarks" / "results" / "field.json"
PRINT = "import report; print(report.page(report.Field()), end='')"


@pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution has no results")
def test_the_page_is_made_of_the_results() -> None:
    made = subprocess.run(
        [sys.executable, "-c", PRINT], cwd=FIELD, capture_output=True, text=True, check=True
    ).stdout
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert made == page, "run python benchmarks/field/report.py"
    images = re.findall(r"\((images/[^#)]+)", page)
    assert images
    assert [name for name in images if not (ROOT / "docs" / name).exists()] == []


def test_the_first_sentence_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page.partition("\n## Calls a second\n")[2].partition("\n\n| ")[2]
    head, ours, theirs = (
        re.search(rf"^(?:\| )?{name} \|.*", table, re.MULTILINE)
        for name in ("server", "wirespeed", r"mcp 2\.3\.0")
    )
    assert head and ours and theirs
    for column, least in (("stdio, 64", 200), ("HTTP, 16", 20)):
        at = head[0].removeprefix("| ").split(" | ").index(column)
        a, b = (
            float(row[0].removeprefix("| ").split(" | ")[at].split(" [")[0].replace(",", ""))
            for row in (ours, theirs)
        )
        assert a / b >= least, column
    for name in ("README.md", "docs/index.md"):
        says = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert "hundreds of times as many tool calls a second as one on the official SDK" in says
        assert "over stdio, and tens of times as many over HTTP." in says
