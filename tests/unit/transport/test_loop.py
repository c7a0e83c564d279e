"""The one place where a loop is chosen and run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
import uvloop
from lab.wording import raises

from wirespeed.transport import loop as loop_module

pytestmark = pytest.mark.smoke

FOREVER = 20.0


def test_uvloop_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESPEED_LOOP", raising=False)
    assert loop_module.loop_factory() is uvloop.new_event_loop
    monkeypatch.setenv("WIRESPEED_LOOP", "asyncio")
    assert loop_module.loop_factory() is asyncio.new_event_loop
    monkeypatch.setenv("WIRESPEED_LOOP", "other")
    with raises(ValueError):
        loop_module.loop_factory()


def test_asyncio_where_there_is_no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESPEED_LOOP", raising=False)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_module.loop_factory() is asyncio.new_event_loop


def test_run_gives_the_result_or_the_exception(loop_of_children: str) -> None:
    async def give() -> str:
        return type(asyncio.get_running_loop()).__module__

    async def fail() -> None:
        raise LookupError("x")

    assert loop_of_children in loop_module.run(give())
    with pytest.raises(LookupError):
        loop_module.run(fail())


def test_run_ends_although_a_task_ignores_its_cancellation(loop_of_children: str) -> None:
    cancelled: list[str] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append("stubborn")

    async def polite() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.append("polite")

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(stubborn()), asyncio.create_task(polite())]
        await asyncio.sleep(0)
        return tasks

    tasks = loop_module.run(main(), last_wait=0.01)
    assert sorted(cancelled) == ["polite", "stubborn"]
    assert [task.done() for task in tasks] == [False, True]


def test_run_ends_although_a_thread_is_busy(loop_of_children: str) -> None:
    async def main() -> str:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.5)
        return "ended"

    assert loop_module.run(main()) == "ended"


def test_closed_standard_descriptors_are_filled(loop_of_children: str) -> None:
    script = (
        "import os\n"
        "for fd in (0, 1): os.close(fd)\n"
        "from wirespeed.transport.loop import run\n"
        "async def main(): return os.fstat(0).st_rdev == os.fstat(1).st_rdev == "
        "os.stat('/dev/null').st_rdev\n"
        "os.write(2, repr(run(main())).encode())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=FOREVER)
    assert done.returncode == 0
    assert done.stderr == b"True"
