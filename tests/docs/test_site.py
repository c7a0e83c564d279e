"""The guide as a site: its navigation, what hooks make of other files, and the messages that the
page "Troubleshooting" quotes."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from typing import Any

import pytest
import yaml
from guide import ROOT

DOCS = ROOT / "docs"
MADE = "changelog.md"  # of CHANGELOG.md


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "_griffe" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def nav() -> Any:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]


def test_each_page_is_once_in_the_navigation(hooks: ModuleType, nav: Any) -> None:
    pages = [path for _, _, path in hooks.entries(nav)]
    assert sorted(pages) == sorted(
        [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")] + [MADE]
    )
    tabs = [title for entry in nav for title in entry]
    assert tabs == ["Start", "Servers", "Clients", "Proxy", "SDK authors", "Reference"]


def test_llms_txt_has_each_page_with_a_sentence(hooks: ModuleType, nav: Any) -> None:
    text = hooks.llms(nav)
    assert text.startswith("# wirespeed\n\n> ") and "\n\n## Start\n\n- [Home](index.md): " in text
    lines = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: (.+))?$", text, re.MULTILINE)
    assert len(lines) == len([*hooks.entries(nav)])
    for path, sentence in lines:
        if path.endswith(".html"):
            assert path.startswith("reference/")
            path = path.replace("/index.html", ".md")
        else:
            assert 10 < len(sentence) < 400 and sentence[-1] != ":", path
        assert path == MADE or (DOCS / path).is_file()


def test_the_links_of_the_changelog_are_right_in_the_guide(hooks: ModuleType) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", hooks.changelog())
    assert "conformance.md" in links
    assert [link for link in links if not (DOCS / link).is_file()] == []


def test_troubleshooting_quotes_what_is_said() -> None:
    source = [*(ROOT / "src" / "wirespeed").rglob("*.py"), *(ROOT / "src").rglob("*.pyx")]
    said = "\n".join(path.read_text(encoding="utf-8") for path in [*source, ROOT / "setup.py"])
    said = re.sub(r'["\']\n\s*[rfb]*["\']', "", said)  # a text on two lines
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    seen = "\n".join(re.findall(r"^\|[^|]+\|", page, re.MULTILINE))
    quotes = re.findall(r"(?<!`)`([^`\n]+ [^`\n]*)`", seen)
    assert len(quotes) > 20
    for quote in quotes:
        for part in filter(None, map(str.strip, quote.split("…"))):
            assert part in said, quote


def test_each_picture_is_shown_and_fits_both_schemes() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    for picture in (DOCS / "images").glob("*.svg"):
        assert f"images/{picture.name}" in pages, picture.name
        text = picture.read_text(encoding="utf-8")
        if re.search(r"-(light|dark)$", picture.stem) is None:
            assert "prefers-color-scheme: dark" in text and "<title id=" in text, picture.name
