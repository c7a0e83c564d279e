"""What users import: each public name has one home, which `repr`, tracebacks and pickles show."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from lab.rows import every

import wirespeed
from wirespeed import errors, types
from wirespeed._exports import HOMES

pytestmark = pytest.mark.smoke

TYPED = Path(__file__).resolve().parents[1] / "typing"
PUBLIC = [*HOMES, "wirespeed.errors", "wirespeed.core"]
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that Python code may change
# The annotations of these name a class of `ssl`, which is loaded when there is TLS, one of a
# package that loads each name at its first use, or one of a room behind their own.
UNRESOLVED = {
    "AuditConfig",
    "BackendConfig", "Child", "ClusterConfig", "Connection", "HookConfig", "Http", "HttpOptions",
    "IdentityConfig", "ListenConfig", "ListenOptions", "ProxyConfig", "WebSocket",
}  # fmt: skip


def exported(package: str) -> dict[str, Any]:
    """What a package exports, by name."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


@every("package", PUBLIC)
def test_classes_and_functions_carry_the_first_package_that_has_them(package: str) -> None:
    for name, value in exported(package).items():
        if inspect.isclass(value) and not value.__flags__ & HEAP_TYPE:
            # an extension type keeps the name of the module that defines it
            assert str(sys.modules[value.__module__].__file__).endswith(".so")
        elif inspect.isclass(value) or inspect.isfunction(value):
            home = next(module for module in PUBLIC if exported(module).get(name) is value)
            assert f"{value.__module__}.{value.__qualname__}" == f"{home}.{name}"


def test_a_public_name_has_one_home() -> None:
    """`wirespeed.core` is for SDK authors, and LiteMCP has names of its own."""
    apart = {"wirespeed.core", "wirespeed.litemcp"}
    names = [name for package in PUBLIC if package not in apart for name in exported(package)]
    assert sorted(names) == sorted(set(names))


@every("package", PUBLIC)
def test_annotations_of_classes_are_found(package: str) -> None:
    for name, value in exported(package).items():
        if inspect.isclass(value):
            try:
                get_type_hints(value)
            except NameError:
                assert name in UNRESOLVED


@every("package", HOMES)
def test_type_checkers_see_what_the_table_has(package: str) -> None:
    source = importlib.import_module(package).__file__
    assert source is not None
    stub = ast.parse(Path(source).with_suffix(".pyi").read_text(encoding="ascii"))
    seen = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    listed = {f"{module}.{name}" for module, names in HOMES[package].items() for name in names}
    assert seen == listed


@pytest.mark.parametrize(
    "value",
    [
        types.Text("a"),
        types.ToolResult(content=[types.Image(b"a", "image/png")], is_error=True),
        types.CallToolResult([types.Text("a")], structured_content={"a": [1, None]}),
        types.ResourceUpdated("file:///a"),
        wirespeed.Stdio("python", ["-V"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results_are_pickled(value: Any) -> None:
    data = pickle.dumps(value)
    assert pickle.loads(data) == value
    assert type(value).__module__.encode() in data


@every(
    "error",
    [
        errors.VersionMismatch("no", ["2025-11-25"]),
        errors.CallTimeout("late"),
        errors.ChildExited("gone", 3),
        errors.ConnectionLost("gone", 4001, "why"),
        errors.HttpStatusError("no", 503, "Service Unavailable", 2.0),
        errors.InputNeeded("asks", {"a": {}}, "state"),
        errors.MissingCapability({"roots": {}}, "no", code=-32600),
        errors.ProtocolError(7, "no", {"a": 1}),
        errors.ResourceNotFound("file:///a", "no"),
        errors.TaskCancelled(7, "no"),
        errors.UpgradeRefused("no", 403, "why"),
        errors.SignatureError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_pickled(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.args, vars(copy), str(copy)) == (error.args, vars(error), str(error))


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Package and name of each public name that the body of a program uses."""
    names: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name: ("", a.name) for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            yield names[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package, name = names.get(node.value.id, ("", ""))
            yield f"{package}.{name}".strip("."), node.attr


def test_the_typed_programs_use_every_public_name() -> None:
    """mypy and pyright read the programs: a new name needs a use there."""
    used: set[tuple[str, str]] = set()
    for path in TYPED.glob("*.py"):
        used |= set(imported(ast.parse(path.read_text(encoding="utf-8"))))
    modules = ("wirespeed.ext.otel", "wirespeed.ext.prometheus", "wirespeed.litemcp.bridge")
    public = {(package, name) for package in (*PUBLIC, *modules) for name in exported(package)}
    assert sorted(public - used) == []
