"""The reference has every public name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.smoke

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
BLOCK = re.compile(r"^::: ([\w.]+)\n(?:    .*\n)*", re.MULTILINE)
MEMBERS = re.compile(r"^      members: \[(.*)\]$", re.MULTILINE)
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
# Annotated types, constants and modules do not know where they are from.
ELSEWHERE = {
    "wirespeed.__version__": None,
    "wirespeed.core": "wirespeed.core",
    "wirespeed.client.ClientMiddleware": "wirespeed.client.middleware.ClientMiddleware",
    "wirespeed.client.Event": "wirespeed.client.events.Event",
    "wirespeed.client.TASKS": "wirespeed.client.task_calls.TASKS",
    "wirespeed.config.Era": None,  # a choice of strings, seen where it is taken
    "wirespeed.config.Transport": None,
    "wirespeed.core.POINTS": "wirespeed._core.envelope.POINTS",
    "wirespeed.core.simd_level": "wirespeed._core._simd.level",
    "wirespeed.litemcp.Content": "wirespeed.litemcp.messages.Content",
    "wirespeed.litemcp.VersionTuple": "wirespeed.litemcp.messages.VersionTuple",
    "wirespeed.server.Email": "wirespeed.server.forms.Email",
    "wirespeed.server.Uri": "wirespeed.server.forms.Uri",
}


def shown() -> set[str]:
    """What the pages ask for; a whole module as ``its.name.*``."""
    names = set()
    for page in REFERENCE.glob("*.md"):
        for block in BLOCK.finditer(page.read_text(encoding="utf-8") + "\n"):
            names.add(block[1])
            members = MEMBERS.search(block[0])
            if members is None:
                names.add(f"{block[1]}.*")
            else:
                names |= {f"{block[1]}.{name}" for name in re.findall(r"\w+", members[1])}
    return names


def home(module: str, name: str, value: Any) -> str | None:
    public = f"{module}.{name}"
    return ELSEWHERE.get(public, f"{getattr(value, '__module__', None)}.{name}")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    names = shown()
    imported = importlib.import_module(module)
    missing = []
    for name in imported.__all__:
        place = home(module, name, getattr(imported, name))
        if place and place not in names and f"{place.rpartition('.')[0]}.*" not in names:
            missing.append(place)
    assert not missing
