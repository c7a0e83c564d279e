"""The one place where a loop is chosen and run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
import uvloop

from wirespeed.transport import loop as loop_module
from wirespeed.transport.taskpool_choice import open_pool

pytestmark = pytest.mark.smoke

FOREVER = 20.0


def test_uvloop_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESPEED_LOOP", raising=False)
    assert loop_module.loop_factory() is uvloop.new_event_loop
    monkeypatch.setenv("WIRESPEED_LOOP", "asyncio")
    assert loop_module.loop_factory() is asyncio.new_event_loop
    monkeypatch.setenv("WIRESPEED_LOOP", "other")
    with pytest.raises(ValueError, match="other"):
        loop_module.loop_factory()


def test_asyncio_where_there_is_no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESPEED_LOOP", raising=False)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_module.loop_factory() is asyncio.new_event_loop


@pytest.fixture
def chosen(any_loop: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WIRESPEED_LOOP", any_loop)
    return any_loop


def test_run_gives_the_result_or_the_exception(chosen: str) -> None:
    async def give() -> str:
        return type(asyncio.get_running_loop()).__module__

    async def fail() -> None:
        raise LookupError("x")

    assert chosen in loop_module.run(give())
    with pytest.raises(LookupError):
        loop_module.run(fail())


def test_run_ends_although_a_task_ignores_its_cancellation(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "LAST_WAIT", 0.01)
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

    tasks = loop_module.run(main())
    assert sorted(cancelled) == ["polite", "stubborn"]
    assert [task.done() for task in tasks] == [False, True]


def test_run_ends_although_a_thread_is_busy(chosen: str) -> None:
    async def main() -> str:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.5)
        return "ended"

    assert loop_module.run(main()) == "ended"


def test_closed_standard_descriptors_are_filled(chosen: str) -> None:
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


def test_a_pool_abandons_those_that_ignore_its_end(loop_factory: Any) -> None:
    gate: list[asyncio.Event] = []
    ended: list[Any] = []

    async def stubborn() -> str:
        while True:
            try:
                await gate[0].wait()
                return "in the end"
            except asyncio.CancelledError:
                pass

    async def main() -> None:
        gate.append(asyncio.Event())
        loop = asyncio.get_running_loop()
        pool = open_pool(loop)
        running: Any = pool.start(stubborn(), lambda *outcome: ended.append(outcome))
        if running is not None and running.task is None:
            await asyncio.sleep(0)
        task = running.task
        polite = pool.start(asyncio.sleep(3600), lambda *outcome: ended.append(outcome))
        assert polite is not None
        await asyncio.sleep(0.001)
        closing = asyncio.create_task(pool.aclose())
        await asyncio.wait([closing], timeout=0.01)
        assert not closing.done()
        closing.cancel()
        await asyncio.wait([closing])
        assert task in asyncio.all_tasks()
        assert pool.abandon() == 1
        assert pool.tasks == 0
        assert task not in asyncio.all_tasks()
        assert pool.abandon() == 0
        await pool.aclose()  # does not wait for it
        gate[0].set()
        while len(ended) < 2:
            await asyncio.sleep(0.001)
        assert ("in the end", None) in ended

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
