"""The reference has every public name, by a public home."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.smoke

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
# with "members: []" a module's docstring only
BLOCK = re.compile(r"^::: ([\w.]+)$(?!\n    options:\n      members: \[\])", re.MULTILINE)
MODULES = (
    "wirespeed",
    "wirespeed.client",
    "wirespeed.config",
    "wirespeed.core",
    "wirespeed.errors",
    "wirespeed.ext.otel",
    "wirespeed.ext.prometheus",
    "wirespeed.litemcp",
    "wirespeed.server",
    "wirespeed.tasks",
)
# Choices of strings, which the reference shows where they are taken, and the version.
ELSEWHERE = {"wirespeed.__version__", "wirespeed.config.Era", "wirespeed.config.Transport"}


def shown() -> set[str]:
    """The dotted names that the pages ask for."""
    pages = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    return {name for page in pages for name in BLOCK.findall(page)}


def homes(name: str) -> set[str]:
    """The public names of what a public module exports under a name."""
    modules = [m for m in map(importlib.import_module, MODULES) if name in m.__all__]
    return {f"{module.__name__}.{name}" for module in modules}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    names = shown()
    imported = importlib.import_module(module)
    values = {name: getattr(imported, name) for name in imported.__all__}
    assert not [
        name
        for name, value in values.items()
        if not isinstance(value, ModuleType)
        and names.isdisjoint(homes(name) | {module})
        and f"{module}.{name}" not in ELSEWHERE
    ]
