"""Memory goes back to the system after a burst of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from wirespeed.transport.net.connections import MAX_KEPT, MemoryReturn


class Timers:
    """A loop whose timers fire when a test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timers:
        assert delay == 5.0
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def fire(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def given() -> list[int]:
    return []


@pytest.fixture
def memory(timers: Timers, given: list[int]) -> MemoryReturn:
    loop = cast("asyncio.AbstractEventLoop", cast("Any", timers))
    return MemoryReturn(loop, burst=8, give=given.append)


def come(memory: MemoryReturn, n: int) -> None:
    for one in range(n):
        memory.came(one + 1)


def go(memory: MemoryReturn, n: int) -> None:
    for left in reversed(range(n)):
        memory.left(left)


def test_once_for_each_burst(memory: MemoryReturn, timers: Timers, given: list[int]) -> None:
    come(memory, 7)
    go(memory, 7)
    assert not timers.due
    for n in (1, 2):
        come(memory, 8)
        go(memory, 8)
        timers.fire()
        assert given == [MAX_KEPT] * n


def test_not_while_a_burst_follows_another(
    memory: MemoryReturn, timers: Timers, given: list[int]
) -> None:
    come(memory, 8)
    go(memory, 8)
    come(memory, 8)
    timers.fire()
    assert not given
    go(memory, 8)
    timers.fire()
    assert given == [MAX_KEPT]


def test_not_after_the_end(memory: MemoryReturn, timers: Timers, given: list[int]) -> None:
    come(memory, 8)
    memory.left(3)
    memory.stop()
    memory.left(0)
    assert not timers.due
