"""Scripted servers, and a watch over what tests leave behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import Fake

from wirespeed.client.connection import lifecycle
from wirespeed.client.connection.connection import ClientConnection


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[ClientConnection]:
    """The connections that clients make during the test, in order."""
    made: list[ClientConnection] = []

    def make(*args: Any) -> ClientConnection:
        made.append(ClientConnection(*args))
        return made[-1]

    monkeypatch.setattr(lifecycle, "ClientConnection", make)
    return made


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
