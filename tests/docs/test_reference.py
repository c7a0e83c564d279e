"""The reference has every public name, by a public home."""

from __future__ import annotations

import contextlib
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest
from lab.rows import every

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
NAME = re.compile(r"`(wirespeed(?:\.\w+)+)(?:\(\))?`")
IMPORT = re.compile(r"^(?:from|import) (wirespeed[\w.]*)", re.MULTILINE)
# with "members: []" a module's docstring only
BLOCK = re.compile(r"^::: ([\w.]+)$(?!\n    options:\n      members: \[\])", re.MULTILINE)
LOGGERS = {"wirespeed.access", "wirespeed.stdio"}
MODULES = (
    "wirespeed",
    "wirespeed.auth",
    "wirespeed.cluster",
    "wirespeed.config",
    "wirespeed.core",
    "wirespeed.errors",
    "wirespeed.proxy",
    "wirespeed.ext.otel",
    "wirespeed.ext.prometheus",
    "wirespeed.litemcp",
    "wirespeed.middleware",
    "wirespeed.peer",
    "wirespeed.skills",
    "wirespeed.tasks",
    "wirespeed.transport",
    "wirespeed.types",
)
# They import SDKs of others, which need not be there.
ADAPTERS = {
    "wirespeed.adapters",
    "wirespeed.adapters.fastmcp",
    "wirespeed.adapters.mcp",
    "wirespeed.adapters.mcp1",
}
# Choices of strings, which the reference shows where they are taken, and the version.
ELSEWHERE = {"wirespeed.__version__", "wirespeed.config.Era", "wirespeed.config.Transport"}


def shown() -> set[str]:
    """The dotted names that the pages ask for."""
    pages = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    return {name for page in pages for name in BLOCK.findall(page)}


def homes(name: str, value: object) -> set[str]:
    """The public names of a value that a public module exports under a name."""
    modules = [m for m in map(importlib.import_module, MODULES) if name in m.__all__]
    found = {m.__name__ for m in modules if getattr(m, name) is value}
    if (own := getattr(value, "__module__", None)) in found:
        found = {own}
    return {f"{module}.{name}" for module in found}


@every("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    names = shown()
    imported = importlib.import_module(module)
    values = {name: getattr(imported, name) for name in imported.__all__}
    assert not [
        name
        for name, value in values.items()
        if not isinstance(value, ModuleType)
        and names.isdisjoint(homes(name, value) | {module})
        and f"{module}.{name}" not in ELSEWHERE
    ]


def test_the_guide_imports_from_public_modules() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    used = {module for page in pages for module in IMPORT.findall(page.read_text())}
    assert used <= {*MODULES, *ADAPTERS, "wirespeed.ext", "wirespeed.litemcp.bridge"}


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    module, _, rest = name.partition(".")
    value = importlib.import_module(module)
    for part in rest.split("."):
        if value.__name__ in ADAPTERS and part in getattr(value, "__all__", ()):
            return True
        if not hasattr(value, part):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{value.__name__}.{part}")
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def test_names_in_the_guide_and_in_docstrings_exist() -> None:
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "wirespeed").rglob("*.p[xy]*")]
    texts = [file.read_text(encoding="utf-8") for file in files if file.suffix != ".pyc"]
    used = {name for text in texts for name in NAME.findall(text)}
    assert {name for name in used if not exists(name)} <= LOGGERS
