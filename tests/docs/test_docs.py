"""The guide's examples run, and do what the pages say.

How a page is written: its ``python`` blocks are run one after another in one namespace, with
``await`` allowed at the top level. A block with ``title="name.py"`` is a file instead, which they
can import; a second block of that title goes to its end. A ``console`` block below that starts with
``$ python name.py`` (or ``$ wirespeed …``) is run, and the rest of it is what it prints. A comment
``<!-- not run: why -->`` right above a block leaves it out.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from guide import ROOT, Block, blocks

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in (
        *(DOCS / "index.md", DOCS / "tutorial.md"),
        *(path for folder in ("how-to", "explanation") for path in DOCS.glob(f"{folder}/*.md")),
    )
)
FOREVER = 60.0


def blocks_to_run(page: str) -> list[Block]:
    return [block for block in blocks(f"docs/{page}") if block.runs]


def command(line: str) -> list[str]:
    words = shlex.split(line.removeprefix("$ "))
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    assert words[0] == "wirespeed", f"the guide runs python and wirespeed only, not {words[0]}"
    return [sys.executable, "-m", "wirespeed", *words[1:]]


def run_console(code: str, folder: Path) -> None:
    first, _, expected = code.partition("\n")
    path = os.pathsep.join(filter(None, sys.path))
    env = os.environ | {"PYTHONPATH": path, "PYTHONUTF8": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        command(first),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=FOREVER,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert "\n".join(printed).strip() == expected.strip()


def compiled(code: str, page: str, line: int) -> CodeType:
    tree = ast.parse(code, page)
    ast.increment_lineno(tree, line)  # so that a traceback has the page's own lines
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    made: CodeType = compile(tree, page, "exec", flags=flags, dont_inherit=True)
    return made


async def run_page(page: str, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "guide"}
    for language, title, code, line, *_ in blocks_to_run(page):
        if title is not None:
            place = folder / title
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("a", encoding="utf-8") as file:
                file.write(f"\n\n{code}" if file.tell() else code)
            if language == "python":
                compile(code, title, "exec")
        elif language == "console":
            await asyncio.to_thread(run_console, code, folder)
        else:
            outcome = eval(compiled(code, page, line), namespace)
            if inspect.isawaitable(outcome):
                await outcome


DRAFTS = "how-to/drafts.md"  # what it shows is in no revision yet


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.off_schema("drafts")) if page == DRAFTS else page
        for page in PAGES
    ],
)
def test_the_examples_of_the_guide(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # files that a page's own code opens
    monkeypatch.syspath_prepend(tmp_path)  # … and imports
    before = set(sys.modules)

    async def main() -> None:
        async with asyncio.timeout(FOREVER):
            await run_page(page, tmp_path)

    try:
        asyncio.run(main())
    finally:
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]  # another page may have a file of that name


def test_every_page_has_examples_that_run() -> None:
    for page in PAGES:
        if not page.startswith("explanation/"):
            assert blocks_to_run(page), page


def test_the_first_screen_of_readme_is_real(tmp_path: Path) -> None:
    server, call = [*blocks("README.md")][:2]
    assert (server.language, call.language) == ("python", "console")
    (tmp_path / "calculator.py").write_text(server.code, encoding="utf-8")
    run_console(call.code, tmp_path)
    home = [block.code for block in blocks("docs/index.md")]
    assert home == [server.code, call.code]


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_console("$ python -c 'print(1)'\n2\n", tmp_path)
    with pytest.raises(ZeroDivisionError):
        eval(compiled("1 / 0", "page.md", 5), {})


def test_the_pictures_name_classes_that_exist() -> None:
    source = ROOT / "src" / "wirespeed"
    code = "\n".join(path.read_text() for path in source.rglob("*.py*") if path.suffix != ".pyc")
    for picture in (ROOT / "docs" / "images" / name for name in ("data-path.svg", "proxy.svg")):
        titles = re.findall(r'class="title"[^>]*>([^<]+)<', picture.read_text())
        names = {name for title in titles for name in re.findall(r"\b[A-Z][a-z]\w+", title)}
        names -= {"LiteMCP"}
        assert len(names) >= 5
        for name in names:
            assert re.search(rf"^(cdef )?class {name}\b", code, re.MULTILINE), (picture.name, name)
