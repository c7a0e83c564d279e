"""``wirespeed bench``: loads on a server, every answer checked."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import operator
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from wirespeed.cli import show
from wirespeed.cli.bench import live, summary
from wirespeed.cli.bench.compare import show_comparisons
from wirespeed.cli.bench.processes import Job, Processes
from wirespeed.cli.bench.replay import ReplayCalls
from wirespeed.cli.bench.work import BenchWork, Side, ToolCalls, UsersCalls, side_of
from wirespeed.cli.failures import Exit, Failure, cannot_start, complain, printable, usage
from wirespeed.cli.session import Options, run, show_warnings
from wirespeed.errors import WirespeedError

if TYPE_CHECKING:
    from wirespeed.bench.compare import Comparison
    from wirespeed.bench.load import Load, Result
    from wirespeed.bench.plan import Plan, Planned
    from wirespeed.bench.replay import Replay
    from wirespeed.bench.run import Run

_TIMEOUT = 10.0
_FOREVER = 1e8  # seconds
_CALLS = 10_000
_STEPS = 10
_STEP = 5.0  # seconds
_MAX_RUNS = 10_000
_ANY = "any"  # answer is right
_MAX_WORD = 400  # characters of a word of the command line, on a page

_CONDITION = re.compile(r"\s*([a-z_0-9]+)\s*(<=|>=|<|>)\s*([0-9.]+)\s*(us|ms|s|)\s*$")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
_LATENCIES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p999", "max": "max"}
_LATENCIES |= {"p999": "p999", "mean": "mean"}


@dataclass(frozen=True)
class Choices:
    """The options of the command that are not those of all commands with a TARGET."""

    calls: int | None
    duration: float | None
    connections: Sequence[int]
    in_flight: int
    rate: Sequence[float] | None
    steps: int | None
    poisson: bool
    sizes: Sequence[int] | None
    rounds: int
    versus: str | None
    processes: int
    warmup: int
    think: float
    expect: str | None
    users: str | None
    replay: str | None
    speed: float | Literal["max"] | None
    seed: int | None
    pids: Sequence[int]
    fail_if: Sequence[str]
    json_file: str | None
    csv_file: str | None
    html_file: str | None
    own: bool

    @property
    def prints_data(self) -> bool:
        """Whether data are printed, in place of the summary."""
        return "-" in (self.json_file, self.csv_file)

    @property
    def ramp(self) -> bool:
        """Whether the rate has steps."""
        return self.rate is not None and len(self.rate) > 1


def bench(options: Options, tool: str | None, text: str | None, choices: Choices) -> int:
    """Run loads, of a tool, of ``--users`` or of a record. Exit code 1 if a ``--fail-if`` holds."""
    if options.lite and options.era is not None:
        raise usage("--era is for MCP: LiteMCP has one era")
    if options.log_level is not None:
        raise usage("--log-level is not for bench: log messages of the server are not shown")
    if choices.html_file is not None:
        import wirespeed.bench.page  # noqa: F401 - a package that is missing is found before any run
    if choices.speed is not None and choices.replay is None:
        raise usage("--speed is for --replay")
    if choices.processes > 1 and choices.replay is not None:
        raise usage("--processes is not for --replay")
    plan = _plan(options, choices)
    for pid in choices.pids:
        _check_process(pid)
    if choices.json_file == choices.csv_file == "-":
        raise usage("--json - and --csv - both print: give one of them a file")
    outputs = [path for path in (choices.json_file, choices.csv_file) if path != "-"]
    for path in (*outputs, choices.html_file):
        if path is not None:
            _check_output(path)
    conditions = [condition(one) for one in choices.fail_if]
    calls: BenchWork
    if choices.replay is not None:
        calls = replay = ReplayCalls(
            choices.replay,
            choices.speed or 1.0,
            choices.expect,
            plan.loads[0].timeout,
            options.lite,
        )
        plan = replace(plan, loads=[replay.load])
    elif choices.users is not None:
        if choices.expect is not None:
            raise usage("--expect is for TOOL; a file of --users says what its calls expect")
        calls = UsersCalls(choices.users, options.lite)
    else:
        calls = ToolCalls(tool or "", text, choices.expect or _ANY, options.lite)
    for load in plan.loads:
        _shares(load)
        calls.check_load(load)  # what is wrong is found before any run
    sides = [options]
    if choices.versus is not None:
        sides.append(_versus(options, choices.versus))
    return run(_Bench(sides, calls, plan, choices, conditions).main())


def _shares(load: Load) -> list[Load]:
    from wirespeed.bench.merge import shares

    try:
        return shares(load)
    except ValueError as exc:
        raise usage(f"of {load.processes} processes one has no share: {exc}") from None


def _plan(options: Options, choices: Choices) -> Plan:
    from wirespeed.bench.plan import Plan, loads, steps

    calls, duration = choices.calls, choices.duration
    if calls is None and duration is None:
        calls, duration = (None, _STEP) if choices.ramp else (_CALLS, None)
    if choices.steps is not None and not choices.ramp:
        raise usage("--steps is for a ramp, as in --rate 1k..20k")
    if choices.rounds < 1:
        raise usage("--rounds must be at least 1")
    rates: Sequence[float | None] = choices.rate or (None,)
    try:
        if choices.ramp:
            low, high = (choices.rate or ())[:2]
            rates = steps(low, high, _STEPS if choices.steps is None else choices.steps)
        plan = Plan(
            loads(
                rates,
                choices.sizes or (None,),
                choices.connections,
                in_flight=choices.in_flight,
                calls=calls,
                duration=duration,
                poisson=choices.poisson,
                warmup=choices.warmup,
                timeout=_TIMEOUT if options.timeout is None else options.timeout or _FOREVER,
                think=choices.think,
                seed=choices.seed,
                processes=choices.processes,
            ),
            choices.rounds,
            1 if choices.versus is None else 2,
        )
    except ValueError as exc:
        raise usage(str(exc)) from None
    runs = len(plan.loads) * plan.rounds * plan.sides  # maybe too many for len()
    if runs > _MAX_RUNS:
        raise usage(f"these are {runs:,} runs; there can be {_MAX_RUNS:,}")
    return plan


def _check_process(pid: int) -> None:
    """Look for a process of ``--pid``. Failure (2): there is none."""
    try:
        if pid > 0:
            os.kill(pid, 0)
            return
    except PermissionError:
        return  # it is another user's
    except (ProcessLookupError, OverflowError):
        pass
    raise usage(f"--pid {pid}: there is no such process")


def _check_output(path: str) -> None:
    """Find out whether a file can be written; nothing of it changes. Failure (74): it cannot."""
    try:
        if not os.path.lexists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            os.unlink(path)
        elif os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif os.path.exists(path) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as exc:
        raise Failure(_unwritten(path, exc), Exit.OUTPUT, "OutputError") from None


def _versus(options: Options, line: str) -> Options:
    """Return the options of the second target: a word, or the words of a command."""
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise usage(f"--versus {line!r} is not a command line: {exc}") from None
    if len(words) == 1 and words[0] != "--":
        return replace(options, word=words[0], command=None)
    return replace(options, word=None, command=words[1:] if words[:1] == ["--"] else words)


# -- conditions -----------------------------------------------------------------------------------


def condition(text: str) -> Callable[[Result], bool]:
    """Return whether a result meets a condition, such as ``p99>5ms`` or ``wrong>0``. Failure (2):
    the text is not one."""
    from wirespeed.bench.recorder import OUTCOMES

    match = _CONDITION.match(text)
    names = (*_LATENCIES, "rate", "calls", "late_starts", *OUTCOMES)
    if match is None or match[1] not in names:
        raise usage(
            f"--fail-if {text!r} is not a condition: write p99>5ms, wrong>0 or rate<1000; "
            f"there are {', '.join(names)}"
        )
    name, compare, number, unit = match[1], _COMPARE[match[2]], match[3], match[4]
    if bool(unit) != (name in _LATENCIES):
        needs = "us, ms or s" if name in _LATENCIES else "no unit"
        raise usage(f"--fail-if {text!r}: {name} has {needs}")
    try:
        limit = float(number) * _UNITS.get(unit, 1.0)
    except ValueError:
        raise usage(f"--fail-if {text!r}: {number} is not a number") from None

    def holds(result: Result) -> bool:
        if name in _LATENCIES:
            if not result.counts["ok"]:
                return True  # nothing was answered: no bound is kept
            found = getattr(result.latency_us, _LATENCIES[name])
        elif name in ("rate", "calls"):
            found = getattr(result, name)
        else:
            found = result.tool.late_starts if name == "late_starts" else result.counts[name]
        return compare(found, limit)

    return holds


# -- the runs -------------------------------------------------------------------------------------


class _Bench:
    """The runs of the command."""

    def __init__(
        self,
        sides: Sequence[Options],
        calls: BenchWork,
        plan: Plan,
        choices: Choices,
        conditions: list[Callable[[Result], bool]],
    ) -> None:
        self._options = sides
        self._calls = calls
        self._plan = plan
        self._choices = choices
        self._conditions = conditions
        self._current: Run | Replay | Processes | None = None
        self._stopped = False
        self._unsent = 0
        self._failure: Exception | str | None = None
        self._broken: WirespeedError | None = None  # of a run that could not be made

    async def main(self) -> int:
        """Make the runs, and show them. Returns the exit code."""
        show_warnings()
        sides = [side_of(options, self._choices.own) for options in self._options]
        # a tool that is not there, and a server that cannot be started, are found before any load
        for side in sides:
            await self._calls.check(side, self._plan.loads[0])
        choices = self._choices
        results: list[Result] = []
        watching = sys.stderr.isatty() and not choices.prints_data
        with live.Watch(watching, len(self._plan)) as watch, self._interrupts():
            for planned in self._plan:
                if self._stopped:
                    break
                watch.begin(len(results), planned)
                try:
                    results.append(await self._measure(planned, sides[planned.side], watch))
                except WirespeedError as exc:
                    if not results:
                        raise
                    self._broken = exc  # what was measured is shown
                if self._failure is not None or self._broken is not None:
                    break
        whole = _write(results, len(self._plan) > 1, choices)
        code = self._judged(results)
        return code if whole else Exit.OUTPUT

    async def _measure(self, planned: Planned, side: Side, watch: live.Watch) -> Result:
        import msgspec

        run = self._current = self._run(planned, side, watch)
        result = await run.measure()
        self._unsent += run.unsent
        self._failure = run.failure
        return msgspec.structs.replace(
            result,
            target=printable(result.target),
            versions={name: printable(text) for name, text in result.versions.items()},
            round=planned.round,
            versus=planned.side > 0,
        )

    def _run(self, planned: Planned, side: Side, watch: live.Watch) -> Run | Replay | Processes:
        pids, calls = self._choices.pids or None, self._calls
        if planned.load.processes == 1:
            return calls.run(side, planned.load, pids, watch.show)
        options, own = self._options[planned.side], self._choices.own
        jobs = [Job(options, calls.again, own, load, pids) for load in _shares(planned.load)]
        if pids is not None:  # one of them measures these
            jobs[1:] = [replace(job, pids=()) for job in jobs[1:]]
        return Processes(planned.load, jobs, watch.show)

    def _stop(self) -> None:
        self._stopped = True
        if self._current is not None:
            self._current.stop()

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Let Ctrl-C end the runs, so that what was measured is shown. A second one ends the
        program."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        signals: list[None] = []

        def interrupt() -> None:
            signals.append(None)
            if len(signals) == 1:
                self._stop()
            else:
                task.cancel()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        except asyncio.CancelledError:
            if len(signals) > 1:
                raise KeyboardInterrupt from None
            raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _judged(self, results: list[Result]) -> int:
        """Report what is doubtful and which conditions hold. Returns the exit code."""
        for text in self._calls.remarks:
            complain(printable(text), level="warning")
        for text in summary.warnings(results):
            complain(text, level="warning")
        if self._unsent:
            complain(
                f"{show.plural(self._unsent, 'call')} more were due at the end, and none of the "
                "connections had room for them (--in-flight)",
                level="warning",
            )
        failed = False
        for text, holds in zip(self._choices.fail_if, self._conditions, strict=True):
            found = [str(n) for n, result in enumerate(results, 1) if holds(result)]
            failed = failed or bool(found)
            if found:
                where = "" if len(self._plan) == 1 else f" in run {', '.join(found)}"
                complain(f"--fail-if {text} holds{where}")
        if self._failure is not None:
            raise cannot_start(f"the server was lost during the run: {self._failure}")
        if self._broken is not None:
            raise self._broken
        return Exit.TOOL_FAILED if failed else Exit.OK


def _write(results: list[Result], several: bool, choices: Choices) -> bool:
    """Write the files, and show the results. Returns whether all files were written."""
    from wirespeed.bench.report import as_csv, as_json

    whole = True
    printed = b""
    for path, data in (
        (choices.json_file, as_json(results, several)),
        (choices.csv_file, as_csv(results).encode()),
    ):
        if path == "-":
            printed = data
        elif path is not None:
            whole = _write_file(path, data) and whole
    comparisons: list[Comparison] = []
    out = show.console()
    try:
        comparisons = _comparisons(results)
    finally:  # a fault of a comparison loses nothing that was measured
        if choices.html_file is not None:
            from wirespeed.bench.page import page

            text = page(results, command_line(sys.argv[1:]), comparisons, time.time())
            whole = _write_file(choices.html_file, text.encode()) and whole
        if choices.prints_data:
            sys.stdout.flush()
            sys.stdout.buffer.write(printed)
        else:
            summary.show_results(out, results, several)
    if comparisons and not choices.prints_data:
        out.print()
        show_comparisons(out, comparisons)
    return whole


def _comparisons(results: list[Result]) -> list[Comparison]:
    """Compare the two targets, as far as both were measured."""
    from wirespeed.bench.compare import compare_all

    whole = len(results) // 2 * 2  # of a pair that was interrupted one is missing
    if not any(result.versus for result in results[:whole]):
        return []
    return compare_all(results[:whole], None)


def command_line(args: Sequence[str]) -> str:
    """Write the command line, without secrets and with long words cut."""
    from wirespeed.bench.command_line import command_shown

    return printable(command_shown(["wirespeed", *args], _MAX_WORD))


def _write_file(path: str, data: bytes) -> bool:
    """Write a file, or say why not. Returns whether it was written."""
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as exc:
        complain(_unwritten(path, exc))
        return False
    return True


def _unwritten(path: str, exc: OSError) -> str:
    return f"cannot write {printable(path) or repr(path)}: {exc.strerror}"
