"""The examples of README.md and of docs/, as tests and type checkers read them.

    python tests/guide.py FOLDER

writes the Python blocks of every page as a package of FOLDER. The blocks of a page are the body of
one coroutine function, because they use ``await``; a block with a title is a module. Every line has
the number that it has in the page.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(
    r"(?P<above><!-- not run: (?P<why>[^\n]+) -->\n)?"
    r"^```(?P<language>python|console)(?P<options>[^\n]*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# Blocks that import SDKs which are not installed where types are checked.
ABSENT = ("it needs mcp", "it needs fastmcp")
# Programs for other SDKs, which are not installed, for setuptools, which has no types, and a link
# whose loop has two methods of asyncio's.
UNTYPED = ("_fastmcp.py", "_mcp.py", "setup.py", "trio_link.py")
TITLE = re.compile(r'title="([\w./-]+)"')


class Block(NamedTuple):
    """A fenced block, and the number of lines above its code."""

    language: str
    title: str | None
    code: str
    line: int
    runs: bool
    typed: bool


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, which is named by its path in the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in FENCED.finditer(text):
        title = TITLE.search(found["options"])
        line = text.count("\n", 0, found.start("code"))
        typed = found["why"] not in ABSENT and not (title and title[1].endswith(UNTYPED))
        runs = found["above"] is None
        yield Block(found["language"], title and title[1], found["code"], line, runs, typed)


def modules(page: str, package: str) -> dict[str, str]:
    """The Python modules of a page, by name."""
    found = {"page.py": "async def page() -> None:\n"}
    for block in blocks(page):
        if block.language != "python" or not block.typed:
            continue
        name, code = block.title or "page.py", block.code
        before = found.get(name, "")
        after = code if block.title else indent(code, "    ")
        found[name] = before + "\n" * (block.line - before.count("\n")) + after
    if found["page.py"].count("\n") == 1:
        del found["page.py"]
    # The files of a page import each other.
    own = "|".join(re.escape(name.removesuffix(".py")) for name in found)
    from_one = re.compile(rf"^( *from) ({own}) import", re.MULTILINE)
    whole_one = re.compile(rf"^( *)import ({own})$", re.MULTILINE)
    for name, code in found.items():
        code = from_one.sub(rf"\1 {package}.\2 import", code)
        found[name] = whole_one.sub(rf"\1from {package} import \2", code)
    return found


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT).as_posix()
        package = re.sub(r"\W", "_", page.removesuffix(".md").lower())
        for name, code in modules(page, package).items():
            (folder / package).mkdir(parents=True, exist_ok=True)
            (folder / package / name).write_text(code, encoding="utf-8")
            (folder / package / "__init__.py").touch()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
