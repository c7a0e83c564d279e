"""Hooks of mkdocs: what is made of other files when the guide is built.

* ``changelog.md`` is CHANGELOG.md, with links that are right below ``docs/``.
* ``llms.txt`` lists the pages of the navigation for programs that read the guide. Each page is
  there as Markdown beside its HTML.
* The site links to the repository if pyproject.toml names one.
* There is no sitemap where the address of the site is not known: an empty one tells search engines
  that there are no pages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = "changelog.md"
# No sentences: front matter, comments, code, headings, pictures, HTML, lists, tables.
NO_TEXT = re.compile(
    r"\A---\n.*?^---$|<!--.*?-->|^(`{3,}).*?^\1$|^(?:#|!?\[!|!\[|<|[*|>-]|\d+\.).*?(?:\n\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[((?:[^\[\]]|\[\])+)\]\([^)]*\)")
INTRO = """\
# wirespeed

> Servers, clients and a proxy for MCP (Model Context Protocol) in typed Python on a compiled core.

Each page is Markdown; the pages of the reference are made of docstrings, so theirs are HTML.
"""


def changelog() -> str:
    """The changelog as a page of the guide."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def page(path: str) -> str:
    """The Markdown of a page, which is named by its path below docs/."""
    if path == CHANGELOG:
        return changelog()
    return (ROOT / "docs" / path).read_text(encoding="utf-8")


def summary(text: str) -> str:
    """The first sentence of a page."""
    rest = NO_TEXT.sub("\n\n", text).strip()
    paragraph = " ".join(LINK.sub(r"\1", rest.partition("\n\n")[0]).split())
    sentence = re.match(r".*?[.:](?= |$)", paragraph)
    return (sentence[0] if sentence else paragraph).rstrip(":")


def entries(nav: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """The pages of the navigation: tab, title, path."""
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield section, title, below
            else:
                yield from entries(below, section or title)


def llms(nav: list[Any]) -> str:
    """The text of llms.txt (https://llmstxt.org)."""
    lines, last = [INTRO], ""
    for section, title, path in entries(nav):
        if section != last:
            lines.append(f"## {section}\n")
            last = section
        text = page(path)
        made = path.removesuffix(".md") + "/index.html" if text.count("\n::: ") else path
        says = summary(text)
        lines.append(f"- [{title}]({made}): {says}" if says else f"- [{title}]({made})")
    return re.sub(r"(?<=[^\n])\n## ", "\n\n## ", "\n".join(lines)) + "\n"


def on_config(config: Any) -> Any:
    """Link to the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if url := project.get("urls", {}).get("Repository"):
        config.repo_url = url
        config.repo_name = url.rstrip("/").rpartition("/")[2]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files that are made."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, CHANGELOG, content=changelog()))
    files.append(File.generated(config, "llms.txt", content=llms(config.nav)))
    return files


def on_post_build(config: Any) -> None:
    """Put the Markdown of each page beside its HTML."""
    for _, _, path in entries(config.nav):
        to = Path(config.site_dir, path)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(page(path), encoding="utf-8")


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Return the text of a template; one that is empty is not written."""
    return "" if template_name == "sitemap.xml" and not config.site_url else output
