"""Loops of children, and task pools."""

from __future__ import annotations

from typing import Any

import pytest
from taskpool_lab import Lab

from wirespeed.transport.pooled_tasks import PooledTasks
from wirespeed.transport.taskpool import TaskPool


@pytest.fixture
def loop_of_children(any_loop: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Programs that a test starts run on the loop that the test is for."""
    monkeypatch.setenv("WIRESPEED_LOOP", any_loop)
    return any_loop


@pytest.fixture(params=[PooledTasks, TaskPool])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["fresh", "parked", "plain"])
def lab(request: pytest.FixtureRequest) -> Any:
    """A lab whose pool is open when the test begins.

    "fresh" requests meet a pool whose tasks have not had their first step, "parked" ones a pool
    with tasks that are waiting, "plain" ones a pool that makes a task for each.
    """
    kind = TaskPool if request.param == "plain" else PooledTasks
    return Lab(kind, parked=request.param == "parked")


@pytest.fixture
def max_idle() -> int:
    return 256


@pytest.fixture
def run(run: Any, request: pytest.FixtureRequest) -> Any:
    """``run(coroutine)`` on the loop that the test is for, inside the scene of its lab."""
    if "lab" not in request.fixturenames:
        return run
    lab, max_idle = map(request.getfixturevalue, ("lab", "max_idle"))
    return lambda test: run(lab.scene(test, max_idle))
