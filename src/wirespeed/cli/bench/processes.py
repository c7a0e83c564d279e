"""``wirespeed bench --processes N``: N processes that share a load, each with its own connections.

A process gets its job as the first message on stdin, says that it is ready, and begins when it is
told to. It sends what it counted each second, and at the end what it found. A message is the length
of a pickle in four bytes, and the pickle: both ends are this program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from wirespeed.cli.failures import Exit, Failure, Terminated, describe, exit_code

if TYPE_CHECKING:
    from wirespeed.bench.load import Load, Result, Window
    from wirespeed.bench.merge import Part
    from wirespeed.bench.series import Watch
    from wirespeed.cli.bench.work import BenchWork
    from wirespeed.cli.session import Options

# Seconds in which a process ends its servers when it has to end.
_GRACE = 10.0


@dataclass(frozen=True)
class Job:
    """The work of one process."""

    options: Options
    calls: Callable[[], BenchWork]
    own: bool
    load: Load
    pids: Sequence[int] | None


class Processes:
    """A run by several processes. As of `wirespeed.bench.run.Run`: `measure`, `stop`, `unsent`, and
    `failure`, as a text.

    Args:
        load: The load of all.
        jobs: The job of each.
    """

    def __init__(self, load: Load, jobs: Sequence[Job], watch: Watch) -> None:
        self._load = load
        self._jobs = jobs
        self._watch = watch
        self._children: list[_Child] = []
        self._seen: dict[int, list[Window]] = {}
        self.unsent = 0
        self.failure: str | None = None

    async def measure(self) -> Result:
        """Make the calls, and return what became of them. Failure: a process ended too early, or
        with one."""
        from wirespeed.bench.machine import Others
        from wirespeed.bench.merge import merged

        async with contextlib.AsyncExitStack() as stack:
            for job in self._jobs:
                self._children.append(await stack.enter_async_context(_Child(job)))
            await _all(child.expect("ready") for child in self._children)
            others = Others()
            for child in self._children:
                child.tell("go")
            parts = await _all(self._part(child) for child in self._children)
        results = [part.result for part in parts]
        servers = [result.server.cpu_seconds for result in results]
        known = [seconds for seconds in servers if seconds is not None]
        spent = sum(result.tool.cpu_seconds for result in results)
        share = others.share(spent + sum(known)) if known else None
        self.unsent = sum(part.unsent for part in parts)
        self.failure = next((part.failure for part in parts if part.failure is not None), None)
        return merged(self._load, parts, share)

    def stop(self) -> None:
        """Let no more calls begin."""
        for child in self._children:
            child.tell("stop")

    async def _part(self, child: _Child) -> Part:
        while True:
            kind, *values = await child.receive()
            if kind == "part":
                part: Part = values[0]
                return part
            self._show(*values)

    def _show(self, t: float, window: Window) -> None:
        """Show a second when all have told about it; its percentiles are about those of all."""
        import msgspec

        windows = self._seen.setdefault(round(t), [])
        windows.append(window)
        if len(windows) == len(self._jobs):
            del self._seen[round(t)]
            ok = sum(one.ok for one in windows)
            middle = sum(one.ok * one.p50 for one in windows) / max(ok, 1)
            highest = max(windows, key=lambda one: one.p99)
            errors = sum(one.errors for one in windows)
            self._watch(t, msgspec.structs.replace(highest, ok=ok, errors=errors, p50=middle))


async def _all(work: Any) -> list[Any]:
    """The results of all; the first exception cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as exc:
        raise exc.exceptions[0] from None
    return [task.result() for task in tasks]


class _Child:
    """A process of the load, as its parent sees it."""

    def __init__(self, job: Job) -> None:
        self._job = job

    async def __aenter__(self) -> Self:
        # until it knows what to do with Ctrl-C it gets none
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "wirespeed.cli.bench.processes"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.tell(self._job)
        return self

    async def __aexit__(self, *exc: object) -> None:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None and exc[0] is not None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _GRACE)
        except TimeoutError:
            process.kill()
            await process.wait()

    def tell(self, value: Any) -> None:
        """Send a message. A process that is gone is noticed when it should answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(_framed(value))

    async def receive(self) -> Any:
        """Return the next message. Failure: there is none, or it is one."""
        assert self._process.stdout is not None
        try:
            size = await self._process.stdout.readexactly(4)
            message = pickle.loads(
                await self._process.stdout.readexactly(int.from_bytes(size, "little"))
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            raise Failure(
                f"a process of the load ended {how}, without a result", Exit.FAULT, "ProcessLost"
            ) from None
        if message[0] == "failed":
            raise Failure(*message[1:])
        return message

    async def expect(self, kind: str) -> None:
        """Wait for a message of a kind."""
        message = await self.receive()
        assert message[0] == kind


def _framed(value: Any) -> bytes:
    data = pickle.dumps(value)
    return len(data).to_bytes(4, "little") + data


# -- the process ----------------------------------------------------------------------------------


class _Worker:
    """A process of the load, as it sees itself."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._go = asyncio.Event()

    def _tell(self, *message: Any) -> None:
        data = memoryview(_framed(message))
        while data:
            data = data[os.write(self._out, data) :]

    async def main(self) -> int:
        """Do the job."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
        )
        try:
            self._tell("part", await self._part(await _message(reader), reader))
        except Exception as exc:
            text, lines = describe(exc)
            text = "\n    ".join([f"{text}; its stderr ends:", *lines]) if lines else text
            self._tell("failed", text, exit_code(exc), type(exc).__name__)
        return 0

    async def _part(self, job: Job, reader: asyncio.StreamReader) -> Part:
        from wirespeed.bench.merge import Part
        from wirespeed.bench.run import Run
        from wirespeed.cli.bench.work import side_of
        from wirespeed.cli.session import show_warnings

        show_warnings()
        side = side_of(job.options, job.own)
        calls = job.calls()
        if job.options.lite:
            await calls.check(side, job.load)
        run = Run(
            side.endpoint,
            calls.work(job.load, side),
            job.load,
            era=side.era,
            handshake_timeout=side.handshake,
            pids=job.pids,
            lite=side.lite,
            watch=lambda t, window: self._tell("window", t, window),
            ready=self._ready,
        )
        task = asyncio.current_task()
        assert task is not None

        async def obey() -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    if await _message(reader) == "stop":
                        run.stop()
                    self._go.set()
            task.cancel()  # the parent is gone

        obeying = asyncio.ensure_future(obey())
        try:
            result = await run.measure()
        finally:
            obeying.cancel()
        failure = None if run.failure is None else describe(run.failure)[0]
        return Part(result, run.series, run.service_histogram, run.unsent, failure)

    async def _ready(self) -> None:
        self._tell("ready")
        await self._go.wait()


async def _message(reader: asyncio.StreamReader) -> Any:
    size = await reader.readexactly(4)
    return pickle.loads(await reader.readexactly(int.from_bytes(size, "little")))


def main() -> None:
    """Be a process of the load."""
    from wirespeed.cli.session import run

    # Ctrl-C is for the parent, which says what to do; servers get their own action back
    signal.signal(signal.SIGINT, lambda *_: None)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever prints does not disturb
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    try:
        run(_Worker(out).main())
    except Terminated as exc:
        sys.exit(exit_code(exc))  # the parent says why
    except asyncio.CancelledError:
        pass


if __name__ == "__main__":
    from wirespeed.cli.bench.processes import main as entry  # classes of pickles have this name

    entry()
