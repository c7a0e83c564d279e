"""The names of an SDK that an adapter uses: none is found missing only when a program needs it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.adapters import seams
from wirespeed.adapters.mcp.used_names import NAMES

FOLDER = Path(seams.__file__).parent / "mcp"
# What `connect` and `Client` need besides, which are not for programs that stay as they are.
OWN = {"client.py"}
# Without it every `_meta` is read.
OPTIONAL = {"mcp.server.runner:_extract_meta"}


def used(tree: ast.Module) -> Iterator[str]:
    """The names of the SDK that a module imports, and those that it looks up in its modules."""
    modules = {}
    for node in tree.body:  # not those for type checkers
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in (
            "mcp",
            "mcp_types",
        ):
            for one in node.names:
                yield f"{node.module}:{one.name}"
        elif isinstance(node, ast.Import):
            modules.update({one.asname: one.name for one in node.names if one.asname})
    for found in ast.walk(tree):
        if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name):
            module = modules.get(found.value.id, "")
            if module.split(".")[0] == "mcp":
                yield f"{module}:{found.attr}"


FILES = [one for one in sorted(FOLDER.glob("*.py")) if one.name not in OWN]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.stem)
def test_every_name_that_is_used_is_checked(file: Path) -> None:
    found = set(used(ast.parse(file.read_text())))
    assert found - set(NAMES) - OPTIONAL == set()


def test_the_names_are_in_order() -> None:
    assert list(NAMES) == sorted(set(NAMES))
    assert "mcp.client.stdio:_terminate_process_tree" in set(
        used(ast.parse((FOLDER / "stdio.py").read_text()))
    )
