"""What tests patch in the package: nothing private. Clocks and back-offs are passed.

What may be patched: functions and classes, to let something fail or to see that it is called; and
constants without an underscore that are bounds, where a test would need thousands of what they
count.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from wirespeed.transport.backoff import Backoff

TESTS = Path(__file__).parents[1]
ALLOWED = {
    "wirespeed.transport.link._quiet",  # a rate-limited log, which other tests may have used up
    "wirespeed.transport.wire_trace._Lines.feed",  # a fault that nothing from outside can cause
}
# Waits that are patched all the same. This list may only get shorter.
WAITS = {
    "wirespeed.client.http.exchanges.MAX_RETRY",
    "wirespeed.client.http.exchanges.RETRY",
    "wirespeed.server.dependencies.scope.LAST_WAIT",
}


MAY_PATCH = re.compile(r"setattr|delattr|setitem|patch|[a-z]\._\w+ =", re.IGNORECASE)


def patched(tree: ast.Module) -> Iterator[str]:
    """The names of the package that a file of tests patches or assigns."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            homes |= {one.asname: one.name for one in node.names if one.asname}
            homes |= {one.name.partition(".")[0]: one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            homes |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        for name in _names(node):
            first, dot, rest = name.partition(".")
            whole = f"{homes.get(first, first)}{dot}{rest}"
            if whole.startswith("wirespeed."):
                yield whole


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (ast.unparse(one) for one in targets if isinstance(one, ast.Attribute))
    elif isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rpartition(".")[2]
        first, second = (*node.args, node.args[0])[:2]
        if called not in ("setattr", "delattr", "setitem", "patch", "object"):
            return
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value
        elif isinstance(second, ast.Constant) and isinstance(second.value, str):
            yield f"{ast.unparse(first)}.{second.value}"


def private(name: str) -> bool:
    """Whether a name is one of a module's or class's own."""
    parts = name.split(".")
    own = next(n for n in range(len(parts), 0, -1) if _is_module(".".join(parts[:n])))
    return any(part.startswith("_") and not part.startswith("__") for part in parts[own:])


def _is_module(name: str) -> bool:
    try:
        return hasattr(pkgutil.resolve_name(name), "__path__") or bool(
            pkgutil.resolve_name(name + ":__spec__")
        )
    except (ImportError, AttributeError):
        return False


@cache
def found() -> dict[str, Path]:
    """What the tests patch, and where."""
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    return {
        name: path.relative_to(TESTS)
        for path, text in texts.items()
        if MAY_PATCH.search(text)
        for name in patched(ast.parse(text))
    }


def test_patches_are_found() -> None:
    text = (
        "import wirespeed.a as a\nfrom wirespeed.b import c\n"
        "monkeypatch.setattr(a, '_X', 1)\nmonkeypatch.setattr('wirespeed.d.Y', 2)\n"
        "mock.patch.object(c, 'f')\nc._Z = 3\nmonkeypatch.setattr(os, 'kill', 4)\n"
    )
    names = "wirespeed.a._X wirespeed.d.Y wirespeed.b.c.f wirespeed.b.c._Z"
    assert sorted(patched(ast.parse(text))) == sorted(names.split())
    assert private("wirespeed.client.client.Client._delays")
    assert not private("wirespeed._core.session.Session")


def test_nothing_private_is_patched() -> None:
    names = {name: path for name, path in found().items() if private(name)}
    assert names.keys() == ALLOWED, names


def test_waits_are_passed() -> None:
    """A time that is patched holds for all that runs at that moment."""
    constants = [name for name in found() if name.rpartition(".")[2].isupper()]
    values = {name: pkgutil.resolve_name(name) for name in constants}
    assert {name for name, one in values.items() if isinstance(one, float | Backoff)} == WAITS
