"""The event loop: uvloop where it is installed, asyncio's own otherwise. Chosen in one place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes an event loop. ``WIRESPEED_LOOP=asyncio`` asks for asyncio's own."""
    wanted = os.environ.get("WIRESPEED_LOOP", "uvloop")
    if wanted not in ("uvloop", "asyncio"):
        raise ValueError(f"WIRESPEED_LOOP={wanted!r} is neither uvloop nor asyncio")
    if wanted == "uvloop":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop
    return asyncio.new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
