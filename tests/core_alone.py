"""Runs what is documented of the core where wirespeed-core is installed alone.

    python tests/core_alone.py

Every module of the core is loaded, and the examples of its pages are run, by the standard library
alone. An example that needs the distribution wirespeed is left out.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

BEFORE = {name.partition(".")[0] for name in sys.modules}  # what site has loaded

from guide import ROOT, blocks  # noqa: E402

import wirespeed  # noqa: E402

PAGES = ("docs/how-to/sdk.md", "docs/how-to/transport.md", "docs/how-to/depend-on-the-core.md")
ALONE = "wirespeed-core is installed alone"


async def run_page(page: str) -> tuple[int, int]:
    """Run the examples of a page. Returns how many ran, and how many were left out."""
    ran = left = 0
    namespace: dict[str, Any] = {"__name__": "guide"}
    for block in blocks(page):
        if block.language != "python" or not block.runs:
            continue
        if block.title is not None:
            Path(block.title).write_text(block.code)
            continue
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            outcome = eval(compile(block.code, page, "exec", flags=flags), namespace)
            if inspect.isawaitable(outcome):
                await outcome
        except ImportError as exc:
            if ALONE not in str(exc):
                raise
            left += 1
        else:
            ran += 1
    return ran, left


def main() -> None:
    modules = [one.name for one in pkgutil.walk_packages(wirespeed.__path__, "wirespeed.")]
    for name in modules:
        importlib.import_module(name)
    standard = sys.stdlib_module_names | BEFORE | {"wirespeed", "guide"}
    others = {name.partition(".")[0] for name in sys.modules} - standard
    others = {name for name in others if not name.startswith(("_cython", "cython", "_sysconfig"))}
    assert not others, f"the core has loaded {', '.join(sorted(others))}"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        counts = {page: asyncio.run(run_page(page)) for page in PAGES}
        os.chdir(ROOT)
    assert all(ran for ran, _ in counts.values()), counts
    ran, left = (sum(numbers) for numbers in zip(*counts.values(), strict=True))
    print(f"{len(modules)} modules, {ran} examples; {left} examples need wirespeed")


if __name__ == "__main__":
    main()
