"""Scripted servers, and a watch over what tests leave behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_lab import Fake


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    """A test that is a coroutine runs by the fixture ``once`` if it takes that, or by ``run``."""
    if name.startswith("test_") and inspect.iscoroutinefunction(obj):
        runner = "once" if "once" in inspect.signature(obj).parameters else "run"
        pytest.mark.usefixtures(runner)(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test, given = pyfuncitem.obj, pyfuncitem.funcargs
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: given[name] for name in inspect.signature(test).parameters}
    given["once" if "once" in arguments else "run"](test(**arguments))
    return True


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Fake]:
    """``fake(rules, …)``: a scripted server."""

    def make(*lives: Any, **options: Any) -> Fake:
        return Fake(tmp_path, *lives, **options)

    return make


@pytest.fixture(scope="session")
def certificate() -> Path:
    """A certificate for 127.0.0.1 and its key, signed by nobody. For tests only."""
    return Path(__file__).with_name("certificate.pem")


@pytest.fixture(autouse=True)
def watched(nothing_left: None) -> None:
    """No test of this folder leaves anything behind."""
