"""Stdio as a value: what it takes, shows and passes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every
from rich.pretty import pretty_repr

from wirespeed.transport.child.command import Stdio, safe_environment

pytestmark = pytest.mark.smoke


async def _coroutine(_line: str) -> None:
    pass


@every(
    ("make", "kind", "expected"),
    [
        (lambda: Stdio(""), ValueError, "command is empty"),
        (lambda: Stdio(5), TypeError, "command must be a string or a path, not int"),
        (lambda: Stdio("a\0b"), ValueError, "command contains a null character"),
        (lambda: Stdio("a", "bc"), TypeError, "strings, not one str: write a list"),
        (lambda: Stdio("a", ["b", 5]), TypeError, r"args\[1\] must be a string or a path, not int"),
        (lambda: Stdio("a", env=["A=b"]), TypeError, "env must be a mapping"),
        (lambda: Stdio("a", env={"A": 5}), TypeError, r"env\['A'\] must be a string, not int"),
        (lambda: Stdio("a", env={5: "A"}), TypeError, "env has a key that is not a string"),
        (lambda: Stdio("a", env={"A=": ""}), ValueError, "env has a bad variable name"),
        (lambda: Stdio("a", env={"A": "\0"}), ValueError, "null character"),
        (lambda: Stdio("a", cwd=""), ValueError, "cwd is empty"),
        (lambda: Stdio("a", stderr="inhert"), ValueError, "stderr must be"),
        (lambda: Stdio("a", stderr=5), TypeError, "stderr must be"),
        (lambda: Stdio("a", stderr=_coroutine), TypeError, "not a coroutine function"),
        (lambda: Stdio("a", restart=-1), ValueError, "restart must be"),
        (lambda: Stdio("a", restart="no"), ValueError, "restart must be"),
        (lambda: Stdio("a", shutdown_grace=-1), ValueError, "shutdown_grace must be"),
        (lambda: Stdio("a", shutdown_grace=float("nan")), ValueError, "shutdown_grace must be"),
    ],
)
def test_bad_targets(make: Callable[[], Any], kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        make()


def test_target_is_a_value(tmp_path: Path) -> None:
    a = Stdio("x", ["y"], {"K": "s3cret"}, tmp_path, restart=True)
    b = Stdio("x", ("y",), {"K": "s3cret"}, str(tmp_path), restart=5)
    assert a == b and hash(a) == hash(b)
    assert a != Stdio("x", ["y"], {"K": "other"}, tmp_path, restart=True)
    assert repr(a) == f"Stdio('x', ['y'], env=<K>, cwd={str(tmp_path)!r}, restart=5)"
    assert pretty_repr(a, max_width=1000) == repr(a)
    with pytest.raises(AttributeError):
        a.command = "z"  # type: ignore[misc]
    assert Stdio("a b", ["c d"]).command_line == "'a b' 'c d'"


def test_safe_environment(monkeypatch: Any) -> None:
    full = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "SECRET": "x", "TERM": "() { :;}"}
    assert safe_environment(full) == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in full.items():
        monkeypatch.setenv(name, value)
    assert Stdio("a", env={"HOME": "/x"}).environment() == {
        "PATH": "/bin",
        "HOME": "/x",
        "LC_ALL": "C",
    }
    assert Stdio("a", env={"A": "b"}, inherit_env=True).environment() == full | {"A": "b"}


@pytest.mark.parametrize("inherit_env", [False, True])
def test_the_token_of_this_process_is_not_inherited(
    monkeypatch: pytest.MonkeyPatch, inherit_env: bool
) -> None:
    monkeypatch.setenv("WIRESPEED_TOKEN", "s3cret")
    assert "WIRESPEED_TOKEN" not in Stdio("x", inherit_env=inherit_env).environment()
    given = Stdio("x", env={"WIRESPEED_TOKEN": "other"}, inherit_env=inherit_env)
    assert given.environment()["WIRESPEED_TOKEN"] == "other"
