"""Both event loops, and a watch over what tests leave behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from lite_lab import FOREVER, Run

from wirespeed.server import launch
from wirespeed.transport.loop import loop_factory as default_loop


def runner_of(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run(main: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(FOREVER):
                return await main

        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(bounded())

    return run


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """On each loop in turn."""
    return runner_of(
        asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    )


@pytest.fixture
def once() -> Run:
    """For what has nothing to do with the loop: the default one."""
    return runner_of(default_loop())


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> Iterator[None]:
    """What is there now need not be looked through after each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test leaves threads, or tasks and futures that nobody looked at."""
    yield
    gc.collect()
    deadline = time.monotonic() + FOREVER
    while left := [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("wirespeed") and "worker" not in thread.name
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
    noise = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert not noise


@pytest.fixture(autouse=True, scope="module")
def no_workers_left() -> Iterator[None]:
    """Other tests count threads: those of tools end with the module."""
    yield
    if launch._executor is not None:
        launch._executor.shutdown()
        launch._executor = None
    for thread in threading.enumerate():
        if thread.name.startswith("wirespeed-worker"):
            thread.join(FOREVER)
            assert not thread.is_alive(), thread
