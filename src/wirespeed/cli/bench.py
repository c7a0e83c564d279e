"""``wirespeed bench``: a load on a server, every answer checked."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, cannot_start, complain, printable, usage
from wirespeed.cli.session import Options, run, show_warnings
from wirespeed.cli.tools import read_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from wirespeed.bench.driver import Work
    from wirespeed.bench.load import Latency, Load, Result, Window
    from wirespeed.bench.run import Run
    from wirespeed.client.connection.handshake import Era

_EXAMPLE = 'write the arguments as in \'{"text": "$text:64"}\''
_TIMEOUT = 10.0
_FOREVER = 1e8  # seconds
_CALLS = 10_000
# Of a processor: with a larger share this process may be what is measured.
_BUSY = 0.8
# Of the calls: more late starts than this are reported.
_LATE = 0.001

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
# What the report calls the outcomes that are faults, in its order.
_FAULTS = {
    "tool_errors": "failed in the tool",
    "protocol_errors": "answered with an error",
    "wrong": "with a wrong answer",
    "missing": "without an answer",
    "refused": "refused, as the server has too many",
    "cancelled": "cancelled",
    "duplicate": "answers to calls that were answered",
    "late": "answers that came too late",
    "unexpected": "messages that answer no call",
    "connection_losses": "connections lost",
}


@dataclass(frozen=True)
class Choices:
    """The options of the command that are not those of all commands with a TARGET."""

    calls: int | None
    duration: float | None
    connections: int
    in_flight: int
    rate: float | None
    poisson: bool
    warmup: int
    think: float
    expect: str
    seed: int | None
    pids: Sequence[int]
    fail_if: Sequence[str]
    json_file: str | None
    own: bool


def bench(options: Options, tool: str, text: str | None, choices: Choices) -> int:
    """Run a load. Exit code 1 if a ``--fail-if`` holds."""
    if options.lite:
        raise usage("--lite is not for bench: it measures servers of MCP")
    if options.log_level is not None:
        raise usage("--log-level is not for bench: log messages of the server are not shown")
    load = _load(options, choices)
    conditions = [condition(one) for one in choices.fail_if]
    value: dict[str, Any] = {}
    if text is not None:
        _, value = read_json(text, (dict,), "an object", _EXAMPLE)
    work = _work(tool, value, choices, load)
    return run(_bench(options, work, load, choices, conditions))


def _load(options: Options, choices: Choices) -> Load:
    from wirespeed.bench.load import Load

    calls = choices.calls
    if calls is None and choices.duration is None:
        calls = _CALLS
    try:
        return Load(
            connections=choices.connections,
            in_flight=choices.in_flight,
            calls=calls,
            duration=choices.duration,
            rate=choices.rate,
            poisson=choices.poisson,
            warmup=choices.warmup,
            timeout=_TIMEOUT if options.timeout is None else options.timeout or _FOREVER,
            think=choices.think,
            seed=choices.seed,
        )
    except ValueError as exc:
        raise usage(str(exc)) from None


def _work(tool: str, value: dict[str, Any], choices: Choices, load: Load) -> Work:
    from wirespeed.bench.arguments import Arguments
    from wirespeed.bench.driver import Work

    kind, _, name = choices.expect.partition("=")
    if choices.expect != "any" and (kind != "echo" or not name):
        raise usage(f"--expect is any or echo=NAME, not {choices.expect!r}")
    try:
        arguments = Arguments(value, name or None, load.seed)
    except ValueError as exc:
        raise usage(f"JSON: {exc}") from None
    except OSError as exc:
        raise usage(f"JSON: cannot read {exc.filename}: {exc.strerror}") from None
    return Work(tool, arguments)


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


# -- the run --------------------------------------------------------------------------------------


async def _bench(
    options: Options,
    work: Work,
    load: Load,
    choices: Choices,
    conditions: list[Callable[[Result], bool]],
) -> int:
    from wirespeed import Client
    from wirespeed.bench.run import Run

    show_warnings()
    target = options.target()
    endpoint = target.endpoint
    _check_owner(endpoint, choices)
    handshake = options.time_limit(target) or float("inf")
    era = cast("Era", options.era or target.era)
    # a tool that is not there, and a server that cannot be started, are found before any load
    async with Client(endpoint, era=era, timeout=handshake, name="wirespeed-bench") as client:
        if "tools" in client.server_capabilities:
            names = [tool.name for tool in await client.list_tools()]
            if work.tool not in names:
                shown = ", ".join(map(printable, names[:20])) or "none"
                raise usage(f"there is no tool {printable(work.tool)}; there are {shown}")
    watching = sys.stderr.isatty() and choices.json_file != "-"
    with _Watch(watching) as watch:
        runs = Run(
            endpoint,
            work,
            load,
            era=era,
            handshake_timeout=handshake,
            pids=choices.pids or None,
            watch=watch.show,
        )
        with _interrupts(runs):
            result = await runs.measure()
    _write(result, runs.busy, choices)
    for text in warnings(result, runs.busy):
        complain(text, level="warning")
    failed = [
        text for text, holds in zip(choices.fail_if, conditions, strict=True) if holds(result)
    ]
    if runs.unsent:
        complain(
            f"{show.plural(runs.unsent, 'call')} more were due at the end, and none of the "
            "connections had room for them (--in-flight)",
            level="warning",
        )
    for text in failed:
        complain(f"--fail-if {text} holds")
    if runs.failure is not None:
        raise cannot_start(f"the server was lost during the run: {runs.failure}")
    return Exit.TOOL_FAILED if failed else Exit.OK


@contextlib.contextmanager
def _interrupts(runs: Run) -> Iterator[None]:
    """Let Ctrl-C end the run, so that what was measured is shown. A second one ends the program."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signals: list[None] = []

    def interrupt() -> None:
        signals.append(None)
        if len(signals) == 1:
            runs.stop()
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


def _check_owner(endpoint: Any, choices: Choices) -> None:
    from wirespeed.transport.address import is_loopback

    address = getattr(endpoint, "address", None)
    if address is None or choices.own or not address.host or is_loopback(address.host):
        return
    raise usage(f"{address.host} is another machine: a load on it needs --i-own-this-target")


def _write(result: Result, busy: float, choices: Choices) -> None:
    import msgspec

    if choices.json_file is not None:
        data = msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
        if choices.json_file == "-":
            sys.stdout.write(data)
            return
        try:
            with open(choices.json_file, "w", encoding="utf-8") as file:
                file.write(data)
        except OSError as exc:
            raise Failure(
                f"cannot write {choices.json_file}: {exc.strerror}", Exit.OUTPUT, "OutputError"
            ) from None
    _print(show.console(), result, busy)


# -- for people -----------------------------------------------------------------------------------


class _Watch:
    """A line on a terminal about a run that goes on."""

    def __init__(self, active: bool) -> None:
        self._status: Any = None
        self._ok = self._errors = 0
        if active:
            self._status = show.console(stderr=True).status("connecting")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, t: float, window: Window) -> None:
        """Show what was counted in the last second."""
        self._ok += window.ok
        self._errors += window.errors
        if self._status is not None:
            faults = f", {self._errors:,} not right" if self._errors else ""
            self._status.update(
                f"{t:.0f} s  {window.ok:,} calls/s  p50 {_micro(window.p50)}  "
                f"p99 {_micro(window.p99)}  {self._ok:,} right{faults}"
            )


def _micro(value: float) -> str:
    return show.duration(value / 1e6)


def _print(out: Console, result: Result, busy: float) -> None:
    from rich.text import Text

    load = result.load
    out.print(
        Text.assemble((printable(result.target), "bold"), f"  {result.transport}, {result.era}")
    )
    out.print()
    how = f"{load.in_flight} in flight on {show.plural(load.connections, 'connection')}"
    if load.rate is not None:
        how = f"{load.rate:,.0f} a second{' at random' if load.poisson else ''}, {how}"
    out.print(Text.assemble("  rate      ", (f"{result.rate:,.0f} calls/s", "bold green")))
    out.print(f"  load      {show.plural(result.calls, 'call')} in {result.seconds:.2f} s, {how}")
    out.print(_line("latency", result.latency_us))
    if load.rate is not None:
        out.print(_line("service", result.service_time_us))
    faults = any(result.counts[name] for name in _FAULTS)
    out.print(f"  answers   {format(result.counts['ok'], ',') if faults else 'all'} right")
    for name, words in _FAULTS.items():
        count = result.counts[name]
        if count:
            out.print(Text.assemble("  ", (f"{name:<18}", "red"), f"{count:,} {words}"))
    for label, words in zip(("cost", ""), _costs(result, busy), strict=False):
        out.print(f"  {label:<10}{words}")


def _line(name: str, latency: Latency) -> Text:
    from rich.text import Text

    line = Text(f"  {name:<8}")
    for label in ("p50", "p90", "p99", "p999", "max"):
        shown = "p99.9" if label == "p999" else label
        line.append(f"  {shown} ").append(_micro(getattr(latency, label)), "bold")
    return line


def _costs(result: Result, busy: float) -> list[str]:
    server, calls = result.server, max(result.calls, 1)
    parts = []
    if server.cpu_seconds is not None:
        parts.append(f"server {_micro(server.cpu_seconds / calls * 1e6)} of processor time a call")
    if server.rss_peak:
        parts.append(f"{server.rss_peak / 2**20:,.0f} MiB")
    lines = [", ".join(parts)] if parts else []
    return [*lines, f"this program {busy:.0%} of a processor"]


def warnings(result: Result, busy: float) -> list[str]:
    """Return what makes the figures of a result doubtful.

    busy: The share of a processor that this process used.
    """
    found = []
    if busy > _BUSY:
        found.append(
            "this program was busy nearly all of the time: the server may be faster than shown"
        )
    if result.tool.late_starts > _LATE * result.calls:
        found.append(
            f"{result.tool.late_starts:,} calls began over a millisecond late, because this "
            "program could not keep up"
        )
    stalls = result.load.rate is not None and (
        result.latency_us.p99 > 2 * result.service_time_us.p99 > 0
    )
    if stalls:
        found.append(
            "calls waited for the server before they could be sent: the service time hides it"
        )
    return found
