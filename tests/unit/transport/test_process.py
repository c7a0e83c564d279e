"""The life cycle of child processes, with real children, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from wirespeed.client.target import Stdio
from wirespeed.errors import ChildExited, LaunchError, TransportError
from wirespeed.transport import process as process_module
from wirespeed.transport.process import Child
from wirespeed.transport.stderr import MAX_LINE, TAIL_BYTES, TAIL_LINES, Drain

CHILDREN = Path(__file__).resolve().parents[2] / "children"
# For waits that end at once unless something is broken.
FOREVER = 20.0

Run = Callable[[Coroutine[Any, Any, Any]], Any]


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


def shell(script: str, *args: str, **options: Any) -> Stdio:
    return Stdio("sh", [str(CHILDREN / script), *args], **options)


def python(script: str, *args: str, **options: Any) -> Stdio:
    return Stdio(sys.executable, ["-I", "-S", str(CHILDREN / script), *args], **options)


async def read_line(child: Child) -> str:
    loop = asyncio.get_running_loop()
    return (await loop.run_in_executor(None, os.read, child.stdout_fd, 65536)).decode().strip()


def state(pid: int) -> str:
    """The state letter that ps shows; "" if there is no such process."""
    return subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()


def reaped(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
        return False
    return True


def wait_dead(pid: int) -> None:
    """Until a process that is not our child has ended; a zombie has."""
    deadline = time.monotonic() + FOREVER
    while state(pid)[:1] not in ("", "Z"):
        assert time.monotonic() < deadline, f"process {pid} is still alive"
        time.sleep(0.01)


def wait_reaped(pid: int) -> None:
    deadline = time.monotonic() + FOREVER
    while state(pid):
        assert time.monotonic() < deadline, f"child {pid} is still there: {state(pid)}"
        time.sleep(0.01)


def open_fds() -> set[str]:
    return set(os.listdir("/dev/fd"))


# -- the normal life ---------------------------------------------------------------------


def test_talks_and_ends_when_stdin_closes(run: Run) -> None:
    async def main() -> None:
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

    run(main())


def test_shutdown_is_idempotent_and_shared(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("cat"))
        await asyncio.gather(child.shutdown(), child.shutdown(), child.shutdown(grace=0))
        await child.shutdown()
        child.kill()
        assert child.returncode == 0

    run(main())


def test_wait_gives_the_status_to_all(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(shell("says_and_exits.sh", "3", "oops", stderr="discard"))
        assert await asyncio.gather(child.wait(), child.wait()) == [3, 3]
        assert await child.wait() == 3
        assert await child.settle(0)
        await child.shutdown()
        assert child.returncode == 3

    run(main())


def test_exit_in_the_tick_of_the_launch(run: Run) -> None:
    async def main() -> None:
        # While the loop sleeps, the child is launched, says something and exits.
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        lines: list[str] = []
        child = await Child.launch(shell("says_and_exits.sh", "3", "oops", stderr=lines.append))
        assert await child.wait() == 3
        assert lines == child.stderr_lines() == ["oops"]
        await child.shutdown()

    run(main())


def test_cancelling_wait_leaves_the_child_alone(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("cat"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child.wait(), 0.01)
        os.write(child.stdin_fd, b"still here\n")
        assert await read_line(child) == "still here"
        await child.shutdown()
        assert await child.wait() == 0

    run(main())


def test_environment_and_directory(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("NOT_SAFE", "x")
    monkeypatch.setenv("LC_TIME", "C")

    async def main() -> None:
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

    run(main())


def test_release_is_called_before_a_pipe_is_closed(run: Run) -> None:
    async def main() -> None:
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

    run(main())


# -- children that do not want to go -----------------------------------------------------


def test_ignoring_stdin_gets_sigterm(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("sleep", ["60"]))
        await child.shutdown(grace=0.05, term_grace=FOREVER)
        assert child.returncode == -signal.SIGTERM
        assert "was killed by SIGTERM" in child.failure("x")
        assert reaped(child.pid)

    run(main())


def test_a_stopped_child_gets_sigterm_too(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("sleep", ["60"]))
        os.kill(child.pid, signal.SIGSTOP)
        await child.shutdown(grace=0.05, term_grace=FOREVER)
        assert child.returncode == -signal.SIGTERM

    run(main())


def test_ignoring_sigterm_gets_sigkill(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(shell("ignores_term.sh"))
        assert await read_line(child) == str(child.pid)
        await child.shutdown(grace=0.05, term_grace=0.05)
        assert child.returncode == -signal.SIGKILL
        assert reaped(child.pid)
        listing = subprocess.run(
            ["ps", "-A", "-o", "pgid=,state="], capture_output=True, check=True
        )
        members = [line.split() for line in listing.stdout.decode().splitlines()]
        # Its sleep may be a zombie of init's.
        assert {state[0] for group, state in members if int(group) == child.pid} <= {"Z"}

    run(main())


def test_grandchild_that_ignores_sigterm_dies_with_the_group(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(shell("leaves_grandchild.sh"))
        grandchild = int(await read_line(child))
        await child.shutdown(grace=FOREVER, term_grace=0.1)
        assert child.returncode == 0  # the leader left by itself
        wait_dead(grandchild)

    run(main())


def test_grandchild_of_a_child_that_died_first(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(shell("leaves_grandchild.sh"))
        grandchild = int(await read_line(child))
        os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        assert state(grandchild)[:1] not in ("", "Z")
        await child.shutdown(grace=0, term_grace=0.05)
        wait_dead(grandchild)

    run(main())


def test_child_blocked_on_stdout_ends_when_stdout_is_drained(run: Run) -> None:
    async def main() -> None:
        script = "head -c 3000000 /dev/zero; cat >/dev/null; exit 7"
        child = await Child.launch(Stdio("sh", ["-c", script]))
        released: list[int] = []
        child.release = released.append
        stdout = child.stdout_fd
        child.drain_stdout()
        assert released == [stdout] and child.stdout_fd == -1
        await child.shutdown(grace=FOREVER)
        assert child.returncode == 7

    run(main())


def test_no_signal_reaches_a_group_that_is_gone(run: Run, monkeypatch: Any) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("true"))
        await child.wait()
        sent: list[int] = []
        monkeypatch.setattr(os, "killpg", lambda _pid, number: sent.append(number))
        await child.shutdown()
        child.kill()
        assert sent == []

    run(main())


def test_a_group_that_we_may_not_signal_is_given_up(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(process_module, "_KILL_WAIT", 0.01)

    async def main() -> None:
        child = await Child.launch(Stdio("sleep", ["60"]))
        with monkeypatch.context() as patch:

            def refuse(_pid: int, _number: int) -> None:
                raise PermissionError

            patch.setattr(os, "killpg", refuse)
            await child.shutdown(grace=0, term_grace=0)
            assert not child.exited and child.stdin_fd == -1
        os.killpg(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL

    run(main())


if sys.platform == "linux":

    def test_orphans_of_a_subreaper_are_reaped() -> None:
        script = str(CHILDREN / "orphan_of_subreaper.py")
        done = subprocess.run(
            [sys.executable, script, str(CHILDREN / "leaves_grandchild.sh")],
            capture_output=True,
            text=True,
            timeout=FOREVER,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("none left\n", "")


# -- who shuts it down, and when ---------------------------------------------------------


def test_shutdown_from_another_task(run: Run) -> None:
    async def main() -> None:
        child = await asyncio.create_task(Child.launch(Stdio("cat")))
        waiter = asyncio.create_task(child.wait())
        await asyncio.create_task(child.shutdown())
        assert await waiter == 0

    run(main())


def test_cancelled_shutdown_goes_on(run: Run) -> None:
    async def main() -> int:
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
        return child.pid

    assert reaped(run(main()))


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


def test_shutdown_cancelled_before_its_first_step_kills(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(shell("ignores_term.sh"))
        await read_line(child)
        first = child.shutdown(grace=60, term_grace=60)
        first.send(None)
        assert child._ending is not None
        child._ending.cancel()
        assert await child.wait() == -signal.SIGKILL
        assert child.stdin_fd == -1
        first.close()

    run(main())


def test_cancelled_launch_leaves_nothing(run: Run, monkeypatch: Any) -> None:
    started, go = threading.Event(), threading.Event()
    pids: list[int] = []
    spawn = process_module._Process.spawn

    def slow(self: Any, *args: Any) -> None:
        started.set()
        go.wait(FOREVER)
        spawn(self, *args)
        pids.append(self.pid)

    monkeypatch.setattr(process_module._Process, "spawn", slow)

    async def main() -> None:
        before = open_fds()
        task = asyncio.create_task(Child.launch(Stdio("sleep", ["60"], stderr="discard")))
        await asyncio.get_running_loop().run_in_executor(None, started.wait, FOREVER)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        while not pids:
            await asyncio.sleep(0.001)
        while threading.active_count() > 2:  # this one and the executor's
            await asyncio.sleep(0.001)
        assert open_fds() <= before
        assert reaped(pids[0])

    run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_launch_cut_off_by_a_closed_loop(
    loop_factory: Any, monkeypatch: Any, cancelled: bool
) -> None:
    go, done = threading.Event(), threading.Event()
    processes: list[Any] = []
    spawn, reap = process_module._Process.spawn, process_module._Process.reap

    def slow(self: Any, *args: Any) -> None:
        processes.append(self)
        go.wait(FOREVER)
        spawn(self, *args)

    def reap_(self: Any) -> None:
        reap(self)
        done.set()

    monkeypatch.setattr(process_module._Process, "spawn", slow)
    monkeypatch.setattr(process_module._Process, "reap", reap_)
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


def test_forgotten_child_is_killed_with_a_warning(run: Run) -> None:
    async def main() -> int:
        gc.collect()
        before = open_fds()
        child = await Child.launch(Stdio("sleep", ["60"]))
        pid, gone = child.pid, weakref.ref(child)
        with pytest.warns(ResourceWarning, match="never shut down"):
            del child
            gc.collect()
        assert gone() is None
        assert open_fds() == before
        return pid

    wait_reaped(run(main()))


def test_forgotten_child_dies_with_the_interpreter() -> None:
    script = str(CHILDREN / "forgets_child.py")
    done = subprocess.run(
        [sys.executable, script, str(CHILDREN / "ignores_term.sh")],
        capture_output=True,
        text=True,
        timeout=FOREVER,
        check=True,
    )
    assert done.stderr == ""
    wait_dead(int(done.stdout))


def test_fork_of_the_owner_does_not_kill_at_its_exit(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("cat"))
        # What the finalizer would see in a forked copy of this process.
        child._process.owner += 1
        process_module._abandon(child._process)
        child._process.owner -= 1
        os.write(child.stdin_fd, b"alive\n")
        assert await read_line(child) == "alive"
        await child.shutdown()
        assert child.returncode == 0

    run(main())


# -- leaks -------------------------------------------------------------------------------


def test_no_descriptors_threads_or_zombies_are_left(run: Run) -> None:
    async def main() -> None:
        await (await Child.launch(Stdio("true", stderr="discard"))).shutdown()
        before, pids = open_fds(), []
        for i in range(25):
            child = await Child.launch(Stdio("true", stderr="discard" if i % 2 else "inherit"))
            pids.append(child.pid)
            await child.shutdown()
            with pytest.raises(LaunchError):
                await Child.launch(Stdio("no-such-command", stderr="discard"))
        assert open_fds() == before
        assert all(map(reaped, pids))
        while threading.active_count() > 1:
            await asyncio.sleep(0.001)

    run(main())


def test_pipes_that_cannot_be_opened(run: Run, monkeypatch: Any) -> None:
    real, calls = os.pipe, 0

    def pipe() -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(24, "Too many open files")
        return real()

    async def main() -> None:
        before = open_fds()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", pipe)
            with pytest.raises(LaunchError, match="Too many open files: command true, dir"):
                await Child.launch(Stdio("true", stderr="discard"))
        assert open_fds() == before

    run(main())


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


def test_without_waitid(run: Run, monkeypatch: Any) -> None:
    monkeypatch.delattr(os, "waitid", raising=False)

    async def main() -> None:
        child = await Child.launch(shell("leaves_grandchild.sh"))
        grandchild = int(await read_line(child))
        await child.shutdown(grace=FOREVER, term_grace=0.05)
        assert child.returncode == 0 and reaped(child.pid)
        wait_dead(grandchild)

    run(main())


# -- stderr ------------------------------------------------------------------------------


def test_flood_of_stderr_while_nobody_reads_stdout(run: Run) -> None:
    async def main() -> None:
        size, got, ticks = 80_000 * 101, 0, 0  # whole lines

        def line(text: str) -> None:
            nonlocal got
            assert "\n" not in text
            got += len(text) + 1

        async def ticker() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(ticker())
        child = await Child.launch(python("floods_stderr.py", str(size), stderr=line))
        assert await read_line(child) == "done"  # written after all of the flood
        await child.shutdown()
        task.cancel()
        assert got == size
        # The loop went round once a read of 16 KiB at least.
        assert ticks >= size // 16384
        assert len(child.stderr_lines()) == TAIL_LINES

    run(main())


def test_the_rest_of_stderr_is_read_before_the_exit_is_reported(run: Run) -> None:
    async def main() -> None:
        lines: list[str] = []
        # The loop sleeps until the child has filled the pipe, which takes several reads.
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        child = await Child.launch(
            Stdio("sh", ["-c", "seq 1 12000 >&2; exit 4"], stderr=lines.append)
        )
        assert await child.wait() == 4
        assert lines == [str(i) for i in range(1, 12_001)]
        assert child.stderr_lines() == lines[-TAIL_LINES:]
        await child.shutdown()

    run(main())


def test_lines_are_decoded_and_split_by_bytes(run: Run) -> None:
    text = "grüße\r\n\n日本\\377é\nlast without end"
    script = f"printf '{text}' >&2"

    async def main() -> None:
        lines: list[str] = []
        child = await Child.launch(Stdio("sh", ["-c", script], stderr=lines.append))
        await child.shutdown(grace=FOREVER)
        assert lines == ["grüße", "", "日本\ufffdé", "last without end"]

    run(main())


def test_callback_that_raises_is_logged_once(run: Run, caplog: Any) -> None:
    async def main() -> None:
        seen: list[str] = []

        def line(text: str) -> None:
            seen.append(text)
            raise RuntimeError("callback is broken")

        child = await Child.launch(Stdio("sh", ["-c", "seq 1 50 >&2"], stderr=line))
        await child.wait()
        await child.shutdown()
        assert len(seen) == 50
        assert child.stderr_lines()[-1] == "50"

    with caplog.at_level(logging.ERROR, "wirespeed.stdio"):
        run(main())
    records = [r for r in caplog.records if r.name == "wirespeed.stdio"]
    assert len(records) == 1 and "callback is broken" in caplog.text


def test_stderr_to_files(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("before\n")
    raw, text = io.BytesIO(), io.StringIO()
    with (tmp_path / "open.log").open("wb") as file:

        async def main() -> None:
            for target in (str(log), log, raw, text, file):
                child = await Child.launch(
                    Stdio("sh", ["-c", "printf 'a\\377\\nb' >&2"], stderr=target)
                )
                await child.wait()
                assert child.stderr_lines() == ["a\ufffd", "b"]
                await child.shutdown()

        run(main())
        assert not file.closed
        assert (tmp_path / "open.log").read_bytes() == b"a\xff\nb"
    assert log.read_bytes() == b"before\n" + b"a\xff\nb" * 2
    assert raw.getvalue() == b"a\xff\nb"
    assert text.getvalue() == "a\ufffd\nb"


def test_stderr_file_that_fails_is_logged_once(run: Run, caplog: Any) -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _data: Any) -> int:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        child = await Child.launch(python("floods_stderr.py", "300000", stderr=Full()))
        assert await read_line(child) == "done"
        await child.shutdown()

    run(main())
    assert len(caplog.records) == 1 and "No space left on device" in caplog.text


def test_inherit_keeps_nothing_and_says_so(run: Run, capfd: Any) -> None:
    async def main() -> None:
        child = await Child.launch(shell("says_and_exits.sh", "3", "to the terminal"))
        await child.wait()
        assert child.stderr_lines() == []
        text = child.failure("no answer")
        assert "exited with status 3" in text and "stderr was inherited" in text
        await child.shutdown()

    run(main())
    assert capfd.readouterr().err == "to the terminal\n"


def test_loop_without_add_reader(run: Run, monkeypatch: Any) -> None:
    before = threading.active_count()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        class Refusing:
            def __getattr__(self, name: str) -> Any:
                if name == "add_reader":
                    raise NotImplementedError
                return getattr(loop, name)

        fds = open_fds()
        lines: list[str] = []
        child = await Child.launch(Stdio("cat"))
        with monkeypatch.context() as patch:
            patch.setattr(child, "_loop", Refusing())
            child.drain_stdout()
        for sink in (lines.append, lines.append):
            reader, writer = os.pipe()
            drain = Drain(Refusing(), reader, process_module.open_sink(sink))  # type: ignore[arg-type]
            for i in range(3):
                os.write(writer, b"line %d\n" % i)
                while len(lines) % 3 != (i + 1) % 3 or not lines:
                    await asyncio.sleep(0.001)
            os.close(writer)
            while not drain.closed:
                await asyncio.sleep(0.001)
            assert drain.lines() == ["line 0", "line 1", "line 2"]
            drain.close()
        reader, writer = os.pipe()
        drain = Drain(Refusing(), reader, None)  # type: ignore[arg-type]
        drain.close()  # with the thread in poll()
        os.close(writer)
        os.write(child.stdin_fd, b"x" * 100_000)
        await child.shutdown(grace=FOREVER)
        assert child.returncode == 0 and len(lines) == 6
        while threading.active_count() > before:
            await asyncio.sleep(0.001)
        assert open_fds() == fds

    run(main())


async def drained(*chunks: bytes, sink: Any = None) -> Drain:
    reader, writer = os.pipe()
    drain = Drain(asyncio.get_running_loop(), reader, process_module.open_sink(sink or "discard"))
    for chunk in chunks:
        os.write(writer, chunk)
        drain.finish()
    os.close(writer)
    drain.finish()
    assert drain.closed
    return drain


def test_tail_is_bounded_and_readable(run: Run) -> None:
    async def main() -> None:
        assert (await drained()).lines() == []
        assert (await drained(b"a\n\nb")).lines() == ["a", "", "b"]
        many = b"".join(b"%d\n" % i for i in range(10_000))
        assert (await drained(many)).lines() == [str(i) for i in range(9980, 10_000)]
        long = (await drained(b"x" * 30_000, b"y" * 10)).lines()
        assert len(long) == 1 and long[0].startswith("…x") and long[0].endswith("xyyyyyyyyyy")
        assert len(long[0]) == TAIL_BYTES + 1
        lines = (await drained(b"x" * 9000 + b"\n" + b"y" * 20 + b"\n")).lines()
        assert lines == ["y" * 20]
        # Colours go, other controls are made visible, the rest stays.
        assert (await drained(b"\x1b[1;31mred\x1b[0m\tx\x07 \xff\r\n")).lines() == [
            "red\tx\ufffd \ufffd"
        ]

    run(main())


def test_overlong_lines_come_in_pieces(run: Run) -> None:
    async def main() -> None:
        pieces: list[str] = []
        text = "é" * MAX_LINE  # two bytes each; a cut in the middle of one would show
        data = b"-" + text.encode() + b"\nshort\n"
        parts = [data[i : i + 40_000] for i in range(0, len(data), 40_000)]
        await drained(*parts, sink=pieces.append)
        assert pieces[-1] == "short"
        assert "".join(pieces[:-1]) == "-" + text
        assert all(len(piece.encode()) <= MAX_LINE for piece in pieces)
        assert len(pieces) == 4
        pieces.clear()
        await drained(b"\x80" * 60_000, b"\x80" * 60_000, sink=pieces.append)
        assert sum(map(len, pieces)) == 120_000

    run(main())


# -- what errors say ---------------------------------------------------------------------


def test_failure_names_everything_but_env_values(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        target = shell(
            "says_and_exits.sh",
            "3",
            "cannot open the database",
            env={"TOKEN": "s3cret"},
            cwd=tmp_path,
            stderr="discard",
        )
        child = await Child.launch(target)
        await child.wait()
        first, last = child.failure("no answer to initialize").splitlines()
        script = CHILDREN / "says_and_exits.sh"
        assert first == (
            f"no answer to initialize: command sh {script} 3 'cannot open the database', "
            f"directory {tmp_path}; the server exited with status 3; its stderr ends:"
        )
        assert last == "    cannot open the database"
        error = child.error("x")
        assert isinstance(error, ChildExited) and isinstance(error, TransportError)
        assert error.status == 3 and str(error) == child.failure("x")
        await child.shutdown()
        assert child.failure("x").endswith("cannot open the database")  # kept after the end
        assert "s3cret" not in first + repr(child) + repr(target)

    run(main())


def test_failure_of_a_living_child(run: Run) -> None:
    async def main() -> None:
        child = await Child.launch(Stdio("cat", ["-", "a\nb" * 1000], stderr="discard"))
        os.kill(child.pid, signal.SIGSTOP)
        text = child.failure("it printed a line that is not JSON")
        assert f"the server is still running (pid {child.pid})" in text
        assert "\n" not in text and "…, directory" in text and len(text) < 1500
        os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        assert "was killed by SIGKILL; it wrote nothing to stderr" in child.failure("x")
        await child.shutdown()

    run(main())


def _script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_launch_errors(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    plain = _script(tmp_path / "plain", "#!/bin/sh\n", 0o644)
    orphan = _script(tmp_path / "orphan", "#!/no/such/interpreter -x\n")
    garbage = _script(tmp_path / "garbage", "\x7fELF nonsense\n")
    cases: list[tuple[Stdio, str]] = [
        (Stdio("no-such-command"), "'no-such-command' was not found on the server's PATH"),
        (Stdio("sh -c true"), "give the arguments apart from the command"),
        (Stdio("sh", env={"PATH": "/no/such"}), "'sh' was not found on the server's PATH"),
        (Stdio("./nope", cwd=tmp_path), f"'./nope' (that is {tmp_path}/./nope) does not exist"),
        (Stdio(f"{plain}/x"), "does not exist"),
        (Stdio(plain), f"'{plain}' is not executable"),
        (Stdio("plain", env={"PATH": str(tmp_path)}), f"'plain' (that is {plain}) is not exec"),
        (Stdio(tmp_path / "folder"), "is a directory"),
        (Stdio(orphan), "the interpreter '/no/such/interpreter' that"),
        (Stdio(garbage), "is not a program for this system"),
        (Stdio("cat", cwd=tmp_path / "gone"), "the working directory does not exist"),
        (Stdio("cat", cwd=plain), "the working directory is not a directory"),
        (Stdio("cat", ["\udc00\ud800"]), "surrogates not allowed"),
        (Stdio("cat", stderr=tmp_path / "gone" / "log"), "cannot open"),
    ]

    async def main() -> None:
        for target, expected in cases:
            with pytest.raises(LaunchError) as caught:
                await Child.launch(target)
            text = str(caught.value)
            assert expected in text
            assert text.endswith(f": command {target.command_line}, directory {target.directory}")
            assert "\n" not in text

    run(main())


def test_signals_in_words() -> None:
    assert process_module.describe_status(0) == "exited with status 0"
    assert process_module.describe_status(-9) == "was killed by SIGKILL"
    assert process_module.describe_status(-250) == "was killed by signal 250"
    assert process_module.describe_status(None) == "ended with an unknown status"


# -- Stdio -------------------------------------------------------------------------------


async def _coroutine(_line: str) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [
        (lambda: Stdio(""), ValueError, "command is empty"),
        (lambda: Stdio(5), TypeError, "command must be a string or a path, not int"),
        (lambda: Stdio("a\0b"), ValueError, "command contains a null character"),
        (lambda: Stdio("a", "bc"), TypeError, "args must be a sequence of strings, not one str"),
        (lambda: Stdio("a", ["b", 5]), TypeError, r"args\[1\] must be a string or a path, not int"),
        (lambda: Stdio("a", env=["A=b"]), TypeError, "env must be a mapping"),
        (lambda: Stdio("a", env={"A": 5}), TypeError, r"env\['A'\] must be a string, not int"),
        (lambda: Stdio("a", env={5: "A"}), TypeError, "env has a key that is not a string"),
        (lambda: Stdio("a", env={"A=": ""}), ValueError, "env has a bad variable name"),
        (lambda: Stdio("a", env={"A": "\0"}), ValueError, "null character"),
        (lambda: Stdio("a", cwd=""), ValueError, "cwd is empty"),
        (lambda: Stdio("a", stderr="inhert"), ValueError, "stderr must be"),
        (lambda: Stdio("a", stderr=5), TypeError, "stderr must be"),
        (lambda: Stdio("a", stderr=_coroutine), TypeError, "not a coroutine function"),
        (lambda: Stdio("a", restart=-1), ValueError, "restart must be"),
        (lambda: Stdio("a", restart="no"), ValueError, "restart must be"),
        (lambda: Stdio("a", shutdown_grace=-1), ValueError, "shutdown_grace must be"),
        (lambda: Stdio("a", shutdown_grace=float("nan")), ValueError, "shutdown_grace must be"),
    ],
)
def test_bad_targets(make: Callable[[], Any], kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        make()


def test_target_is_a_value(tmp_path: Path) -> None:
    a = Stdio("x", ["y"], {"K": "s3cret"}, tmp_path, restart=True)
    b = Stdio("x", ("y",), {"K": "s3cret"}, str(tmp_path), restart=5)
    assert a == b and hash(a) == hash(b)
    assert a != Stdio("x", ["y"], {"K": "other"}, tmp_path, restart=True)
    assert repr(a) == f"Stdio('x', ['y'], env=<K>, cwd={str(tmp_path)!r}, restart=5)"
    with pytest.raises(AttributeError):
        a.command = "z"  # type: ignore[misc]
    assert Stdio("a b", ["c d"]).command_line == "'a b' 'c d'"


def test_safe_environment(monkeypatch: Any) -> None:
    full = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "SECRET": "x", "TERM": "() { :;}"}
    from wirespeed.client.target import safe_environment

    assert safe_environment(full) == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in full.items():
        monkeypatch.setenv(name, value)
    assert Stdio("a", env={"HOME": "/x"}).environment() == {
        "PATH": "/bin",
        "HOME": "/x",
        "LC_ALL": "C",
    }
    assert Stdio("a", env={"A": "b"}, inherit_env=True).environment() == full | {"A": "b"}
