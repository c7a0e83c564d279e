"""Both event loops, scripted servers, and a watch over what tests leave behind."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from client_lab import FOREVER, Fake, Run, wait_for_threads

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


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Fake]:
    """``fake(rules, …)``: a scripted server."""

    def make(*lives: Any, **options: Any) -> Fake:
        return Fake(tmp_path, *lives, **options)

    return make


@pytest.fixture(scope="session")
def certificate() -> Path:
    """A certificate for 127.0.0.1 and its key, which nobody vouches for. For tests only."""
    return Path(__file__).with_name("certificate.pem")


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
    wait_for_threads()
    noise = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert not noise
