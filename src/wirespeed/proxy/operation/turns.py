"""Work in steps, one for each turn of the loop: nobody is to wait until thousands of clients were
looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

PART = 256  # clients that are looked at in one step

Steps = Generator[None, None, _T]


def in_parts(many: Iterable[_T]) -> Iterator[list[_T]]:
    """Give those that are there now, as many at a time as are for one step."""
    found = list(many)
    for start in range(0, len(found), PART):
        yield found[start : start + PART]


async def in_turns(steps: Steps[_T]) -> _T:
    """Do a step in each turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
        await asyncio.sleep(0)


def at_once(steps: Steps[_T]) -> _T:
    """Do all steps now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
