"""Both event loops for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from child_lab import FOREVER, Run


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture
def run(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run_(main: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(FOREVER):
                return await main

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(bounded())

    return run_
