"""The life cycle of child processes, with real children, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from lab.child import (
    CHILDREN,
    FOREVER,
    Run,
    open_fds,
    read_line,
    reaped,
    shell,
    state,
    until_gone,
    wait_dead,
    wait_reaped,
)
from lab.wording import raises

from wirespeed.errors import LaunchError
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.group import ProcessGroup
from wirespeed.transport.child.process import Child


async def test_talks_and_ends_when_stdin_closes() -> None:
    child = await Child.launch(Stdio("cat"))
    assert child.pid > 0 and not child.exited and child.returncode is None
    os.write(child.stdin_fd, b"hello\n")
    assert await read_line(child) == "hello"
    # Its own session: a Ctrl-C at the terminal is not for it.
    assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid
    await child.shutdown()
    assert child.returncode == 0 and child.exited
    assert child.stdin_fd == child.stdout_fd == -1
    assert reaped(child.pid) and state(child.pid) == ""


async def test_shutdown_is_idempotent_and_shared() -> None:
    child = await Child.launch(Stdio("cat"))
    await asyncio.gather(child.shutdown(), child.shutdown(), child.shutdown(grace=0))
    await child.shutdown()
    child.kill()
    assert child.returncode == 0


async def test_wait_gives_the_status_to_all() -> None:
    child = await Child.launch(shell("says_and_exits.sh", "3", "oops", stderr="discard"))
    assert await asyncio.gather(child.wait(), child.wait()) == [3, 3]
    assert await child.wait() == 3
    assert await child.settle(0)
    await child.shutdown()
    assert child.returncode == 3


async def test_exit_in_the_tick_of_the_launch() -> None:
    # While the loop sleeps, the child is launched, says something and exits.
    asyncio.get_running_loop().call_soon(time.sleep, 0.1)
    lines: list[str] = []
    child = await Child.launch(shell("says_and_exits.sh", "3", "oops", stderr=lines.append))
    assert await child.wait() == 3
    assert lines == child.stderr_lines() == ["oops"]
    await child.shutdown()


async def test_cancelling_wait_leaves_the_child_alone() -> None:
    child = await Child.launch(Stdio("cat"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(child.wait(), 0.01)
    os.write(child.stdin_fd, b"still here\n")
    assert await read_line(child) == "still here"
    await child.shutdown()
    assert await child.wait() == 0


async def test_environment_and_directory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("NOT_SAFE", "x")
    monkeypatch.setenv("LC_TIME", "C")
    target = Stdio("env", env={"EXTRA": "e", "PATH": os.environ["PATH"]}, cwd=tmp_path)
    child = await Child.launch(target)
    await child.wait()
    lines = (await read_line(child)).splitlines()
    assert "EXTRA=e" in lines and "LC_TIME=C" in lines
    assert not [line for line in lines if line.startswith("NOT_SAFE")]
    await child.shutdown()
    child = await Child.launch(Stdio("sh", ["-c", "pwd; echo $NOT_SAFE"], inherit_env=True))
    await child.wait()
    assert (await read_line(child)).splitlines() == [os.getcwd(), "x"]
    await child.shutdown()
    child = await Child.launch(Stdio("pwd", cwd=tmp_path))
    await child.wait()
    assert os.path.samefile(await read_line(child), tmp_path)
    await child.shutdown()


async def test_release_is_called_before_a_pipe_is_closed() -> None:
    child = await Child.launch(Stdio("cat"))
    fds = [child.stdin_fd, child.stdout_fd]
    seen = []

    def release(fd: int) -> None:
        os.fstat(fd)  # still open
        seen.append(fd)
        raise RuntimeError("must not stop the shutdown")

    child.release = release
    await child.shutdown()
    assert seen == fds


# -- children that do not want to go -----------------------------------------------------


async def test_ignoring_stdin_gets_sigterm() -> None:
    child = await Child.launch(Stdio("sleep", ["60"]))
    await child.shutdown(grace=0.05, term_grace=FOREVER)
    assert child.returncode == -signal.SIGTERM
    assert "was killed by SIGTERM" in child.failure("x")
    assert reaped(child.pid)


async def test_a_stopped_child_gets_sigterm_too() -> None:
    child = await Child.launch(Stdio("sleep", ["60"]))
    os.kill(child.pid, signal.SIGSTOP)
    await child.shutdown(grace=0.05, term_grace=FOREVER)
    assert child.returncode == -signal.SIGTERM


async def test_ignoring_sigterm_gets_sigkill() -> None:
    child = await Child.launch(shell("ignores_term.sh"))
    assert await read_line(child) == str(child.pid)
    await child.shutdown(grace=0.05, term_grace=0.05)
    assert child.returncode == -signal.SIGKILL
    assert reaped(child.pid)
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,state="], capture_output=True, check=True)
    members = [line.split() for line in listing.stdout.decode().splitlines()]
    # Its sleep may be a zombie of init's.
    assert {state[0] for group, state in members if int(group) == child.pid} <= {"Z"}


async def test_grandchild_that_ignores_sigterm_dies_with_the_group() -> None:
    child = await Child.launch(shell("leaves_grandchild.sh"))
    grandchild = int(await read_line(child))
    await child.shutdown(grace=FOREVER, term_grace=0.1)
    assert child.returncode == 0  # the leader left by itself
    wait_dead(grandchild)


async def test_grandchild_of_a_child_that_died_first() -> None:
    child = await Child.launch(shell("leaves_grandchild.sh"))
    grandchild = int(await read_line(child))
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    assert state(grandchild)[:1] not in ("", "Z")
    await child.shutdown(grace=0, term_grace=0.05)
    wait_dead(grandchild)


async def test_child_blocked_on_stdout_ends_when_stdout_is_drained() -> None:
    script = "head -c 3000000 /dev/zero; cat >/dev/null; exit 7"
    child = await Child.launch(Stdio("sh", ["-c", script]))
    released: list[int] = []
    child.release = released.append
    stdout = child.stdout_fd
    child.drain_stdout()
    assert released == [stdout] and child.stdout_fd == -1
    await child.shutdown(grace=FOREVER)
    assert child.returncode == 7


async def test_no_signal_reaches_a_group_that_is_gone(monkeypatch: Any) -> None:
    child = await Child.launch(Stdio("true"))
    await child.wait()
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda _pid, number: sent.append(number))
    await child.shutdown()
    child.kill()
    assert sent == []


class HastyChild(Child):
    _kill_wait = 0.01


async def test_a_group_that_we_may_not_signal_is_given_up(monkeypatch: Any) -> None:
    child = await HastyChild.launch(Stdio("sleep", ["60"]))
    with monkeypatch.context() as patch:

        def refuse(_pid: int, _number: int) -> None:
            raise PermissionError

        patch.setattr(os, "killpg", refuse)
        await child.shutdown(grace=0, term_grace=0)
        assert not child.exited and child.stdin_fd == -1
    os.killpg(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL


if sys.platform == "linux":

    @pytest.mark.parametrize("ends", [[], ["late"]])
    def test_orphans_of_a_subreaper_are_reaped(ends: list[str]) -> None:
        left = output_of("orphan_of_subreaper.py", "leaves_grandchild.sh", *ends)
        assert left == "none left\n"


# -- who shuts it down, and when ---------------------------------------------------------


async def test_shutdown_from_another_task() -> None:
    child = await asyncio.create_task(Child.launch(Stdio("cat")))
    waiter = asyncio.create_task(child.wait())
    await asyncio.create_task(child.shutdown())
    assert await waiter == 0


async def test_cancelled_shutdown_goes_on() -> None:
    child = await Child.launch(shell("ignores_term.sh"))
    await read_line(child)
    task = asyncio.create_task(child.shutdown(grace=0.05, term_grace=0.05))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not child.exited
    assert await child.wait() == -signal.SIGKILL
    await child.shutdown()  # waits for the first
    assert reaped(child.pid)


def test_shutdown_cut_off_by_the_end_of_the_loop_kills(run: Run) -> None:
    tasks = []

    async def main() -> Child:
        child = await Child.launch(shell("ignores_term.sh"))
        await read_line(child)
        tasks.append(asyncio.create_task(child.shutdown(grace=60, term_grace=60)))
        await asyncio.sleep(0.01)
        return child

    child = run(main())
    wait_reaped(child.pid)
    assert child.returncode == -signal.SIGKILL
    assert tasks[0].cancelled()


async def test_shutdown_cancelled_before_its_first_step_kills() -> None:
    child = await Child.launch(shell("ignores_term.sh"))
    await read_line(child)
    first, before = child.shutdown(grace=60, term_grace=60), asyncio.all_tasks()
    first.send(None)
    (ending,) = asyncio.all_tasks() - before
    ending.cancel()
    assert await child.wait() == -signal.SIGKILL
    assert child.stdin_fd == -1
    first.close()


async def test_cancelled_launch_leaves_nothing(monkeypatch: Any) -> None:
    started, go = threading.Event(), threading.Event()
    pids: list[int] = []
    spawn = ProcessGroup.spawn

    def slow(self: Any, *args: Any) -> None:
        started.set()
        go.wait(FOREVER)
        spawn(self, *args)
        pids.append(self.pid)

    monkeypatch.setattr(ProcessGroup, "spawn", slow)
    await asyncio.to_thread(int)  # the executor's thread stays
    before, threads = open_fds(), set(threading.enumerate())
    task = asyncio.create_task(Child.launch(Stdio("sleep", ["60"], stderr="discard")))
    await asyncio.to_thread(started.wait, FOREVER)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    while not pids:
        await asyncio.sleep(0.001)
    await until_gone(threads)
    assert open_fds() <= before
    assert reaped(pids[0])


@pytest.mark.parametrize("cancelled", [True, False])
def test_launch_cut_off_by_a_closed_loop(
    loop_factory: Any, monkeypatch: Any, cancelled: bool
) -> None:
    go, done = threading.Event(), threading.Event()
    processes: list[Any] = []
    spawn, reap = ProcessGroup.spawn, ProcessGroup.reap

    def slow(self: Any, *args: Any) -> None:
        processes.append(self)
        go.wait(FOREVER)
        spawn(self, *args)

    def reap_(self: Any) -> None:
        reap(self)
        done.set()

    monkeypatch.setattr(ProcessGroup, "spawn", slow)
    monkeypatch.setattr(ProcessGroup, "reap", reap_)
    loop = loop_factory()
    task = loop.create_task(Child.launch(Stdio("sleep", ["60"])))
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    if cancelled:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    else:
        task._log_destroy_pending = False
    loop.close()
    go.set()
    assert done.wait(FOREVER)
    assert processes[0].status == -signal.SIGKILL
    for thread in threading.enumerate():
        if thread.name == "wirespeed-child":
            thread.join(FOREVER)
    # The task that nobody finished takes its child and pipes with it.
    del task
    gc.collect()
    assert processes[0].stdin_fd == processes[0].stdout_fd == -1


def test_loop_closed_while_the_child_lives(loop_factory: Any) -> None:
    loop = loop_factory()
    child = loop.run_until_complete(Child.launch(Stdio("sleep", ["60"], stderr="discard")))
    loop.close()
    assert state(child.pid)
    child.kill()
    wait_reaped(child.pid)
    assert child.returncode == -signal.SIGKILL
    assert child.stdin_fd == child.stdout_fd == -1


def test_child_that_exits_after_its_loop_was_closed(loop_factory: Any) -> None:
    loop = loop_factory()
    child = loop.run_until_complete(Child.launch(Stdio("cat")))
    loop.close()
    child.close_stdin()
    wait_reaped(child.pid)
    assert child.exited and child.returncode == 0
    child.kill()


async def test_forgotten_child_is_killed_with_a_warning() -> None:
    gc.collect()
    before = open_fds()
    child = await Child.launch(Stdio("sleep", ["60"]))
    pid, gone = child.pid, weakref.ref(child)
    with pytest.warns(ResourceWarning, match="never shut down"):
        del child
        gc.collect()
    assert gone() is None
    assert open_fds() <= before
    await asyncio.to_thread(wait_reaped, pid)


def test_forgotten_child_dies_with_the_interpreter() -> None:
    wait_dead(int(output_of("forgets_child.py", "ignores_term.sh")))


def output_of(program: str, child: str, *args: str) -> str:
    """What a program with a child prints; it writes nothing to stderr."""
    done = subprocess.run(
        [sys.executable, str(CHILDREN / program), str(CHILDREN / child), *args],
        capture_output=True,
        text=True,
        timeout=FOREVER,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


async def test_fork_of_the_owner_does_not_kill_at_its_exit() -> None:
    child = await Child.launch(Stdio("cat"))
    # What the finalizer would see in a forked copy of this process.
    child.group.owner += 1
    child.group.abandon()
    child.group.owner -= 1
    os.write(child.stdin_fd, b"alive\n")
    assert await read_line(child) == "alive"
    await child.shutdown()
    assert child.returncode == 0


# -- leaks -------------------------------------------------------------------------------


async def test_no_descriptors_threads_or_zombies_are_left() -> None:
    await (await Child.launch(Stdio("true", stderr="discard"))).shutdown()
    before, pids = open_fds(), []
    threads = set(threading.enumerate())
    for i in range(25):
        child = await Child.launch(Stdio("true", stderr="discard" if i % 2 else "inherit"))
        pids.append(child.pid)
        await child.shutdown()
        with pytest.raises(LaunchError):
            await Child.launch(Stdio("no-such-command", stderr="discard"))
    assert open_fds() <= before
    assert all(map(reaped, pids))
    await until_gone(threads)


async def test_pipes_that_cannot_be_opened(monkeypatch: Any) -> None:
    real, calls = os.pipe, 0

    def pipe() -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(24, "Too many open files")
        return real()

    before = open_fds()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", pipe)
        with raises(LaunchError):
            await Child.launch(Stdio("true", stderr="discard"))
    assert open_fds() <= before


def test_status_taken_by_somebody_else(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("cat", stderr="discard"))
        child.close_stdin()
        assert await child.wait() is None
        assert child.exited
        assert "the server ended with an unknown status" in child.failure("x")
        await child.shutdown()

    # The kernel then reaps children by itself.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        run(main())
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_without_waitid(monkeypatch: Any) -> None:
    monkeypatch.delattr(os, "waitid", raising=False)
    child = await Child.launch(shell("leaves_grandchild.sh"))
    grandchild = int(await read_line(child))
    await child.shutdown(grace=FOREVER, term_grace=0.05)
    assert child.returncode == 0 and reaped(child.pid)
    wait_dead(grandchild)
