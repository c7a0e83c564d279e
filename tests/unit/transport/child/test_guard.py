"""Children of a process that was killed are ended by its guard."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from lab.child import CHILDREN, FOREVER, open_fds, read_line, shell, state, wait_dead

from wirespeed import Stdio
from wirespeed.transport.child.group import SCRIPT
from wirespeed.transport.child.process import Child

HOLDER = str(CHILDREN / "holds_children.py")


@contextlib.contextmanager
def holder(*scripts: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with children; it, and the pids that they say."""
    process = subprocess.Popen(
        [sys.executable, HOLDER, *(str(CHILDREN / script) for script in scripts)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with process:
        assert process.stdout is not None
        try:
            pids = [int(word) for word in process.stdout.readline().split()]
            until(lambda: guards_of(process.pid))
            yield process, pids
        finally:
            process.kill()


def until(condition: Callable[[], object]) -> None:
    """Wait for what other processes do."""
    deadline = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def guards_of(pid: int) -> list[int]:
    """The guard processes of a process."""
    found = []
    for line in subprocess.check_output(["ps", "-eo", "pid,ppid,args"], text=True).splitlines():
        words = line.split(None, 2)
        if words[1] == str(pid) and "wirespeed-guard" in line:
            found.append(int(words[0]))
    return found


@pytest.mark.parametrize("script", ["ignores_term.sh", "leaves_grandchild.sh"])
def test_children_that_stay_are_ended_when_we_are_killed(script: str) -> None:
    with holder(script, "ignores_term.sh") as (process, pids):
        assert all(state(pid)[:1] not in ("", "Z") for pid in pids)
        process.kill()
        for pid in pids:
            wait_dead(pid)


def test_a_stopped_child_is_ended() -> None:
    with holder("ignores_term.sh") as (process, pids):
        os.kill(pids[0], signal.SIGSTOP)
        process.kill()
        wait_dead(pids[0])


def test_a_guard_that_was_killed_is_replaced() -> None:
    with holder("ignores_term.sh", "ignores_term.sh") as (process, pids):
        (guard,) = guards_of(process.pid)
        os.kill(guard, signal.SIGKILL)
        wait_dead(guard)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("more\n")
        process.stdin.flush()
        pids.append(int(process.stdout.readline()))
        until(lambda: guards_of(process.pid) not in ([], [guard]))
        process.kill()
        for pid in pids:
            wait_dead(pid)


async def test_children_that_were_shut_down_are_forgotten() -> None:
    """Their numbers may be those of others by then; and nothing of the guard is left."""
    before = open_fds()
    first, second = [await Child.launch(shell("ignores_term.sh")) for _ in range(2)]
    for child in (first, second):
        await read_line(child)
    until(lambda: guards_of(os.getpid()))
    (guard,) = guards_of(os.getpid())
    await first.shutdown(0, 0)
    assert guards_of(os.getpid()) == [guard]
    await second.shutdown(0, 0)
    wait_dead(guard)
    assert open_fds() <= before


def test_a_fork_that_lives_on_does_not_hold_the_guard_back() -> None:
    with holder("ignores_term.sh") as (process, pids):
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("fork\n")
        process.stdin.flush()
        fork = int(process.stdout.readline())
        process.kill()
        for pid in pids:
            wait_dead(pid)
        os.kill(fork, signal.SIGKILL)


async def test_the_guard_survives_what_ends_us() -> None:
    """Ctrl-C, and a signal to our process group, leave it at work."""
    child = await Child.launch(Stdio("cat"))
    until(lambda: guards_of(os.getpid()))
    (guard,) = guards_of(os.getpid())
    assert os.getsid(guard) == guard
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    assert state(guard)[:1] not in ("", "Z")
    await child.shutdown()
    wait_dead(guard)


def test_the_script_takes_groups_out_of_its_list() -> None:
    ones = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    try:
        lines = "".join(f"+ {one.pid}\n" for one in ones) + f"- {ones[1].pid}\n- 12345678\n"
        for shells in ("/bin/sh", "bash"):
            command = [shells, "-c", SCRIPT, "guard", "2"]
            subprocess.run(command, input=lines, text=True, check=False, timeout=FOREVER)
            assert ones[0].wait(FOREVER) == ones[2].wait(FOREVER) == -signal.SIGTERM
            assert ones[1].poll() is None
    finally:
        for one in ones:
            one.kill()
            one.wait()
