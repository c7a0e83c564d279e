"""``wirespeed demo``: many calls multiplexed on one link to the bundled servers, every answer
checked."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from array import array
from asyncio.subprocess import PIPE, Process
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, cannot_start, print_json, printable
from wirespeed.cli.session import run

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed import Client, Stdio
    from wirespeed.types import ToolInfo

_ROWS = 12
_TIMEOUT = 60.0
_NAME = "wirespeed-demo"
_MOST = 20_000  # calls over the WebSocket
# The columns of a histogram line without its bar and the digits of its count; the widest line.
_MARGIN = 26
_WIDEST = 100
# What the README measured, with 64 calls in flight.
_RIVAL, _RIVAL_RATE = "The official SDK (mcp 2.3.0)", "1,022"
_START_TIMEOUT = 30.0  # seconds that the bundled servers have
_END_TIMEOUT = 5.0

PERCENTILES = (50.0, 90.0, 99.0)

# The edges within a decade: round numbers with about equal distances on a log scale.
_STEPS = (
    *(1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8),
    *(3.15, 3.55, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0),
)
_STRIDES = (1, 2, 4, 10, 20)
# Values above this percentile share the last row, so that one straggler does not flatten the rest.
_TAIL = 98.0
_EIGHTHS = " ▏▎▍▌▋▊▉"


def demo(calls: int, in_flight: int, *, as_json: bool) -> int:
    """Run the demo. Failure (1) at a wrong answer."""
    return run(_demo(calls, in_flight, as_json))


def calculator() -> Stdio:
    """Return the target of the bundled calculator. Its stderr is shown only with an error."""
    from wirespeed import Stdio

    args = ["-m", "wirespeed.demo.calculator"]
    return Stdio(sys.executable, args, stderr="discard", inherit_env=True)


async def _demo(calls: int, in_flight: int, as_json: bool) -> int:
    out = None if as_json else show.console()
    facts = await _stdio(out, calls, in_flight)
    async with bundled() as (mcp, lite):
        facts["websocket"] = await _websocket(out, mcp, min(calls, _MOST), in_flight)
        facts["litemcp"] = await _litemcp(out, lite)
    if out is None:
        print_json(facts)
    else:
        _end(out)
    return Exit.OK


async def _stdio(out: Console | None, calls: int, in_flight: int) -> dict[str, Any]:
    from wirespeed import Client

    began = time.perf_counter()
    async with Client(calculator(), timeout=_TIMEOUT, name=_NAME) as client:
        ready = time.perf_counter() - began
        tools = await client.list_tools()
        if out is not None:
            _introduce(out, client, ready, tools)
        one = await _one(out, client)
        load = Load(client, calls, in_flight)
        await load.run(watch=sys.stderr.isatty())
        facts = load.facts() | {"ready_seconds": ready, "first_call_seconds": one}
        facts |= {"server": client.server_info, "revision": client.protocol_version}
    if out is not None:
        _measured(out, load, facts)
        _histogram(out, load)
        _counted(out, facts)
    return facts


async def _websocket(out: Console | None, url: str, calls: int, in_flight: int) -> dict[str, Any]:
    from wirespeed import Client

    began = time.perf_counter()
    async with Client(url, timeout=_TIMEOUT, name=_NAME) as client:
        ready = time.perf_counter() - began
        if out is not None:
            _step(out, f"The same tools on {url}", show.duration(ready))
        one = await _one(out, client)
        load = Load(client, calls, in_flight)
        await load.run(watch=sys.stderr.isatty())
        facts = load.facts() | {"ready_seconds": ready, "first_call_seconds": one, "url": url}
    if out is not None:
        _measured(out, load, facts)
        _counted(out, facts)
    return facts


async def _litemcp(out: Console | None, url: str) -> dict[str, Any]:
    """Ask for one tool's description, and call the tool."""
    from wirespeed.litemcp import LiteClient

    arguments = ["26.2", "mi", "km"]
    began = time.perf_counter()
    async with LiteClient(url, timeout=_TIMEOUT) as client:
        tool = await client.info()
        ready = time.perf_counter() - began
        began = time.perf_counter()
        result = await client.call(*arguments)
        seconds = time.perf_counter() - began
    right = "42.1648128"
    if result.text != right or result.error:
        raise wrong(f"convert({', '.join(arguments)}) returned {result.text!r}, not {right}")
    if out is not None:
        names = ", ".join(parameter.name for parameter in tool.parameters)
        words = ", ".join(f'"{argument}"' for argument in arguments)
        _step(out, f"LiteMCP on {url}: {tool.name}({names})", show.duration(ready))
        _step(out, f'{tool.name}({words}) = "{result.text}"', show.duration(seconds))
    return {"url": url, "ready_seconds": ready, "tool": tool.name, "call_seconds": seconds}


async def _one(out: Console | None, client: Client) -> float:
    began = time.perf_counter()
    result = await client.call_tool("multiply", {"a": 6, "b": 7})
    seconds = time.perf_counter() - began
    check("multiply(6, 7)", result, 42)
    if out is not None:
        _step(out, "multiply(6, 7) = 42", show.duration(seconds))
    return seconds


# -- for people -----------------------------------------------------------------------------------


def _introduce(out: Console, client: Client, ready: float, tools: list[ToolInfo]) -> None:
    from rich.text import Text

    from wirespeed import __version__
    from wirespeed.cli.info import installation

    info = client.server_info or {}
    name = printable(str(info.get("title") or info.get("name")))
    facts = installation()
    line = Text.assemble(
        (f"wirespeed {__version__}", "bold"),
        f"  {facts['python']}, {facts['loop']}, {facts['simd']['level']}",
    )
    out.print(line)
    out.print()
    _step(out, f"{name} started as a child, MCP {client.protocol_version}", show.duration(ready))
    _step(out, show.plural(len(tools), "tool"), "")
    out.print()
    show.put(out, show.tool_table(tools), indent=2)
    out.print()


def _step(out: Console, text: str, value: str) -> None:
    from rich.text import Text

    mark = "✓" if show.unicode_output() else "*"
    line = Text.assemble((mark, "green"), " ", text)
    if value:
        line.append("  ").append(value, "cyan")
    out.print(line)


def _measured(out: Console, load: Load, facts: dict[str, Any]) -> None:
    from rich.text import Text

    rate = f"{facts['calls_per_second']:,.0f} calls/s"
    took = f"in {show.duration(load.seconds)}, {load.in_flight} in flight, every answer right"
    _step(out, f"{show.plural(load.answered, 'call')} {took}", "")
    out.print()
    out.print(Text.assemble("  throughput  ", (rate, "bold green")))
    latency = facts["latency_seconds"]
    line = Text("  latency   ")
    for name in (*(f"p{p:g}" for p in PERCENTILES), "max"):
        line.append(f"  {name} ").append(show.duration(latency[name]), "bold")
    out.print(line)
    out.print()


def _histogram(out: Console, load: Load) -> None:
    from rich.text import Text

    for row in histogram(sorted(load.latencies), max(20, min(out.width, _WIDEST) - _MARGIN)):
        out.print(Text.assemble(row[0], (row[1], "cyan")))
    out.print()


def _counted(out: Console, facts: dict[str, Any]) -> None:
    from rich.text import Text

    counted = facts["counters"]
    copied = counted["payload_bytes_copied"]
    out.print(
        Text.assemble(
            f"  {counted['messages_in']:,} answers, {counted['bytes_in']:,} bytes read, ",
            (f"{copied:,} payload bytes copied", "green" if copied == 0 else "yellow"),
        )
    )
    out.print()


def _end(out: Console) -> None:
    import os

    out.print()
    out.print(
        "  Client and server ran without encryption on this machine with "
        f"{show.plural(os.cpu_count() or 1, 'processor')}."
    )
    out.print(f"  {_RIVAL} answered {_RIVAL_RATE} calls/s on stdio (see README.md).")
    out.print("  Next: the server in ten lines of README.md; wirespeed serve FILE serves it.")


def histogram(ordered: list[float], width: int) -> list[tuple[str, str]]:
    """Return lines of (range and count, bar). The length of a bar is its row's count as a share of
    the largest count."""
    rows = bins(ordered, _ROWS)
    fullest = max(count for _, _, count in rows)
    blocks = show.unicode_output()
    digits = len(f"{fullest:,}")
    lines = []
    for low, high, count in rows:
        label = f"  {show.duration(low):>7} - {show.duration(high):>7}  {count:>{digits},}"
        length = bar(count / fullest, width - digits, blocks=blocks)
        lines.append((label, f"  {length}" if length else ""))
    return lines


# -- latencies: exact percentiles, and a histogram of text bars -----------------------------------


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values that are sorted and not empty."""
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]


def bins(ordered: Sequence[float], rows: int) -> list[tuple[float, float, int]]:
    """Return at most ``rows`` rows (low, high, count) that count each value once: low <= v < high.

    The values are sorted, positive and not empty; ``rows`` is at least 2. The steps are as fine as
    the number of rows allows. The few largest values share the last row, which ends at the largest.
    """
    largest = ordered[-1]
    usual = percentile(ordered, _TAIL)
    edges: list[float] = []
    for stride in _STRIDES:
        edges = _edges(ordered[0], usual, stride)
        if len(edges) - 1 < rows:
            break
    edges = edges[:rows]
    if edges[-1] <= largest:
        edges.append(largest)
    found = []
    before = 0
    for row, (low, high) in enumerate(pairwise(edges), start=2):
        # the last row includes the largest value
        upto = len(ordered) if row == len(edges) else bisect_left(ordered, high)
        found.append((low, high, upto - before))
        before = upto
    return found


def _edges(smallest: float, largest: float, stride: int) -> list[float]:
    """Return edges: the first is at most the smallest value, the last is above the largest."""
    steps = _STEPS[::stride]
    at = floor(log10(smallest)) * len(steps)
    if _edge(at, steps) > smallest:  # log10 rounds
        at -= 1
    while _edge(at + 1, steps) <= smallest:
        at += 1
    edges = [_edge(at, steps)]
    while edges[-1] <= largest:
        at += 1
        edges.append(_edge(at, steps))
    return edges


def _edge(at: int, steps: Sequence[float]) -> float:
    decade, step = divmod(at, len(steps))
    return float(f"{steps[step]}e{decade}")


def bar(share: float, width: int, *, blocks: bool) -> str:
    """Return a bar of at most ``width`` characters. It is not empty if the share is above 0."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    if not blocks:
        return "#" * max(round(eighths / 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


# -- the load --------------------------------------------------------------------------------------


def check(what: str, result: Any, right: int) -> None:
    """Raise Failure (1) unless the text and the structured content of an answer are right."""
    if result.structured_content != {"result": right} or result.text != str(right):
        said = f"returned {result.structured_content} as {result.text!r}, not {right}"
        if result.is_error:
            said = f"failed: {result.text}"
        raise wrong(f"{what} {said}")


def wrong(text: str) -> Failure:
    """Return the failure of a wrong answer."""
    return Failure(f"a wrong answer: {text}", Exit.TOOL_FAILED, "WrongAnswer")


class Load:
    """A load of ``calls`` additions, ``in_flight`` of them at a time. Every answer is checked."""

    def __init__(self, client: Client, calls: int, in_flight: int) -> None:
        self.client = client
        self.calls = calls
        self.in_flight = min(in_flight, calls)
        self.latencies = array("d", bytes(8 * calls))  # seconds, by the number of the call
        self.started = 0
        self.answered = 0
        self.seconds = 0.0
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}

    async def run(self, *, watch: bool) -> None:
        """Make the calls. The first failure ends all calls, and is raised."""
        self.before = self.client.counters
        watcher = asyncio.create_task(self._watch()) if watch else None
        began = time.perf_counter()
        workers = [asyncio.create_task(self._work()) for _ in range(self.in_flight)]
        try:
            await asyncio.gather(*workers)
            self.seconds = time.perf_counter() - began
        finally:
            for task in (*workers, watcher):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*workers, *filter(None, [watcher]), return_exceptions=True)
        self.after = self.client.counters

    async def _work(self) -> None:
        clock = time.perf_counter
        while self.started < self.calls:
            number = self.started
            self.started += 1
            other = number * 7919 % 100_003
            began = clock()
            result = await self.client.call_tool("add", {"a": number, "b": other})
            self.latencies[number] = clock() - began
            if result.structured_content != {"result": number + other}:
                check(f"add({number}, {other})", result, number + other)
            self.answered += 1

    async def _watch(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with Progress(
            TextColumn("  calling"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", style="cyan"),
            console=show.console(stderr=True),
            auto_refresh=False,
            transient=True,
        ) as progress:
            task = progress.add_task("", total=self.calls, rate="")
            began = time.perf_counter()
            while True:
                rate = self.answered / max(time.perf_counter() - began, 1e-9)
                words = f"{rate:,.0f} calls/s" if self.answered else ""
                progress.update(task, completed=self.answered, rate=words, refresh=True)
                await asyncio.sleep(0.1)

    def facts(self) -> dict[str, Any]:
        """Return the measurements."""
        ordered = sorted(self.latencies)
        counted = {name: self.after[name] - self.before[name] for name in self.after}
        latency = {f"p{p:g}": percentile(ordered, p) for p in PERCENTILES}
        latency |= {"min": ordered[0], "mean": sum(ordered) / len(ordered), "max": ordered[-1]}
        return {
            "calls": self.answered,
            "in_flight": self.in_flight,
            "wrong": 0,
            "seconds": self.seconds,
            "calls_per_second": self.answered / self.seconds,
            "latency_seconds": latency,
            "counters": {
                name: counted[name]
                for name in (
                    "messages_in",
                    "messages_out",
                    "bytes_in",
                    "bytes_out",
                    "payload_bytes_copied",
                    "faults",
                    "late_responses",
                )
            },
        }


# -- the bundled servers on a port, in a child that ends with this process ------------------------


@contextlib.asynccontextmanager
async def bundled() -> AsyncIterator[list[str]]:
    """Start a child that runs `wirespeed.demo.network`, and yield its URLs for MCP and for LiteMCP.
    Failure (3): the child does not start."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "wirespeed.demo.network", stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        # Meanwhile, load the modules of the first connection, so that its time is not measured.
        import wirespeed.client.connection.network_channels
        import wirespeed.transport.websocket.upgrade  # noqa: F401

        yield await _urls(child)
    finally:
        await _end_child(child)


async def _urls(child: Process) -> list[str]:
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            lines = [await child.stdout.readline() for _ in range(2)]
            if lines[-1]:
                return [line.decode().strip() for line in lines]
            said = (await child.stderr.read()).decode(errors="replace").strip()
    except TimeoutError:
        text = f"the bundled server does not listen after {_START_TIMEOUT:g} s"
        raise cannot_start(text) from None
    reason = printable(said.rpartition("\n")[2]) or "it wrote nothing to stderr"
    raise cannot_start(f"the bundled server cannot be started: {reason}")


async def _end_child(child: Process) -> None:
    """Close the child's stdin, which tells the child to end, and wait for its end."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(_END_TIMEOUT):
            await child.communicate()  # reads the rest of the output
    except TimeoutError:
        child.kill()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
