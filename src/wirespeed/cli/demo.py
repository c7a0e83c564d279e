"""``wirespeed demo``: the bundled calculator as a child, and many calls multiplexed to it."""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, print_json, printable
from wirespeed.cli.histogram import PERCENTILES, bar, bins, percentile
from wirespeed.cli.session import run

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed.client import Client, Stdio, ToolInfo

_ROWS = 12
_TIMEOUT = 60.0
# Columns of a histogram line that are neither bar nor digits of a count, and the widest line.
_MARGIN = 26
_WIDEST = 100


def demo(calls: int, in_flight: int, *, as_json: bool) -> int:
    """Run it all. Failure (1) at a wrong answer."""
    return run(_demo(calls, in_flight, as_json))


def calculator() -> Stdio:
    """The bundled server; what it says on stderr is kept for error messages only."""
    from wirespeed.client import Stdio

    args = ["-m", "wirespeed.demo.calculator"]
    return Stdio(sys.executable, args, stderr="discard", inherit_env=True)


async def _demo(calls: int, in_flight: int, as_json: bool) -> int:
    from wirespeed.client import Client

    out = None if as_json else show.console()
    began = time.perf_counter()
    async with Client(calculator(), timeout=_TIMEOUT, name="wirespeed-demo") as client:
        ready = time.perf_counter() - began
        tools = await client.list_tools()
        if out is not None:
            _introduce(out, client, ready, tools)
        one = await _one(client)
        if out is not None:
            _step(out, "multiply(6, 7) = 42", show.duration(one))
        load = Load(client, calls, in_flight)
        await load.run(watch=sys.stderr.isatty())
        facts = load.facts() | {"ready_seconds": ready, "first_call_seconds": one}
        facts |= {"server": client.server_info, "revision": client.protocol_version}
    if out is None:
        print_json(facts)
    else:
        _conclude(out, load, facts)
    return Exit.OK


async def _one(client: Client) -> float:
    began = time.perf_counter()
    result = await client.call_tool("multiply", {"a": 6, "b": 7})
    seconds = time.perf_counter() - began
    _check("multiply(6, 7)", result, 42)
    return seconds


def _check(what: str, result: Any, right: int) -> None:
    """Failure (1) for a wrong answer: both the text and the structured content must be right."""
    if result.structured_content != {"result": right} or result.text != str(right):
        said = f"gave {result.structured_content} as {result.text!r}, not {right}"
        if result.is_error:
            said = f"failed: {result.text}"
        raise Failure(f"a wrong answer: {what} {said}", Exit.TOOL_FAILED, "WrongAnswer")


class Load:
    """``calls`` additions with ``in_flight`` of them under way, every answer checked."""

    def __init__(self, client: Client, calls: int, in_flight: int) -> None:
        self.client = client
        self.calls = calls
        self.in_flight = min(in_flight, calls)
        self.latencies = array("d", bytes(8 * calls))  # seconds, by number of the call
        self.started = 0
        self.answered = 0
        self.seconds = 0.0
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}

    async def run(self, *, watch: bool) -> None:
        """Make the calls. The first failure ends them all, and is raised."""
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
                _check(f"add({number}, {other})", result, number + other)
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
        """What was measured."""
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


def _conclude(out: Console, load: Load, facts: dict[str, Any]) -> None:
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
    for row in histogram(sorted(load.latencies), max(20, min(out.width, _WIDEST) - _MARGIN)):
        out.print(Text.assemble(row[0], (row[1], "cyan")))
    out.print()
    counted = facts["counters"]
    copied = counted["payload_bytes_copied"]
    out.print(
        Text.assemble(
            f"  {counted['messages_in']:,} answers, {counted['bytes_in']:,} bytes read, ",
            (f"{copied:,} payload bytes copied", "green" if copied == 0 else "yellow"),
        )
    )


def histogram(ordered: list[float], width: int) -> list[tuple[str, str]]:
    """Lines as (range and count, bar): the bar is as long as the share of the fullest row."""
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
