"""Workers: threads for blocking handlers that hold up nobody's end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from lab.wording import raises

from wirespeed.transport.loop import Workers

FOREVER = 20.0


def test_a_call_runs_in_a_thread_and_gives_its_result() -> None:
    workers = Workers(2)
    future = workers.submit(lambda a, *, b: (a, b, threading.current_thread()), 1, b=2)
    a, b, thread = future.result(FOREVER)
    assert (a, b) == (1, 2)
    assert thread is not threading.current_thread()
    assert thread.daemon
    workers.shutdown()


@pytest.mark.parametrize("exc", [ValueError("v"), SystemExit(3), KeyboardInterrupt()])
def test_any_exception_goes_to_the_future_and_the_thread_lives(exc: BaseException) -> None:
    workers = Workers(1)

    def fail() -> None:
        raise exc

    assert workers.submit(fail).exception(FOREVER) is exc
    assert workers.submit(lambda: 5).result(FOREVER) == 5
    workers.shutdown()


async def test_who_awaits_a_function_that_raised_stop_iteration_hears_of_it() -> None:
    workers = Workers(1)
    with raises(RuntimeError) as caught:
        await asyncio.get_running_loop().run_in_executor(workers, next, iter(()))
    assert isinstance(caught.value.__cause__, StopIteration)
    workers.shutdown()


def test_idle_threads_are_used_again_and_the_size_is_a_bound() -> None:
    workers = Workers(3)
    gate = threading.Event()
    before = set(threading.enumerate())
    for _ in range(20):  # one after the other: one thread, which is idle again a moment later
        workers.submit(threading.get_ident).result(FOREVER)
        time.sleep(0.005)
    assert len(set(threading.enumerate()) - before) < 3

    def wait() -> int:
        gate.wait()
        return threading.get_ident()

    futures = [workers.submit(wait) for _ in range(10)]
    assert len(set(threading.enumerate()) - before) == 3
    gate.set()
    assert len({future.result(FOREVER) for future in futures}) <= 3
    workers.shutdown()


def test_by_default_forty_calls_block_at_a_time() -> None:
    workers = Workers()
    together = threading.Barrier(40)
    for future in [workers.submit(together.wait, FOREVER) for _ in range(40)]:
        future.result(FOREVER)
    workers.shutdown()


def test_a_cancelled_job_that_waits_for_a_thread_never_runs() -> None:
    workers = Workers(1)
    gate = threading.Event()
    ran: list[int] = []
    first = workers.submit(gate.wait)
    waiting = [workers.submit(ran.append, i) for i in range(5)]
    assert all(future.cancel() for future in waiting[1:])
    gate.set()
    assert first.result(FOREVER)
    waiting[0].result(FOREVER)
    workers.submit(ran.append, 99).result(FOREVER)
    assert ran == [0, 99]
    workers.shutdown()


def test_after_a_shutdown_nothing_is_taken_and_what_was_is_done() -> None:
    workers = Workers(1)
    gate = threading.Event()
    first, second = workers.submit(gate.wait), workers.submit(lambda: "done")
    workers.shutdown(wait=True)  # returns although the thread is busy
    workers.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        workers.submit(print)
    gate.set()
    assert first.result(FOREVER)
    assert second.result(FOREVER) == "done"


def test_a_shutdown_can_cancel_what_is_queued() -> None:
    workers = Workers(1)
    gate = threading.Event()
    first, second = workers.submit(gate.wait), workers.submit(print)
    workers.shutdown(cancel_futures=True)
    gate.set()
    assert first.result(FOREVER)
    assert second.cancelled()


def test_threads_end_after_a_shutdown() -> None:
    workers = Workers(4)
    threads = {workers.submit(threading.current_thread).result(FOREVER) for _ in range(4)}
    workers.shutdown()
    for thread in threads:
        thread.join(FOREVER)
        assert not thread.is_alive()


def test_an_idle_thread_keeps_neither_arguments_nor_results() -> None:
    class Value:
        pass

    workers = Workers(1)
    value = Value()
    ref = weakref.ref(value)
    future: Any = workers.submit(lambda v: v, value)
    assert future.result(FOREVER) is value
    del value, future
    deadline = time.monotonic() + FOREVER
    while ref() is not None:
        assert time.monotonic() < deadline
        time.sleep(0)
    workers.shutdown()


async def test_it_may_be_a_loops_default_executor() -> None:
    asyncio.get_running_loop().set_default_executor(Workers(1))
    assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()


def test_a_busy_thread_does_not_hold_the_end_of_the_process() -> None:
    script = (
        "import time; from wirespeed.transport.loop import Workers;"
        "w = Workers(); w.submit(time.sleep, 3600); w.submit(print, 'ran', flush=True).result();"
        "w.shutdown()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=FOREVER)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")
