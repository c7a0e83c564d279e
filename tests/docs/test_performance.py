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
