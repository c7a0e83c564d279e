"""The load of ``wirespeed demo``: many calls multiplexed on one link, every answer checked."""

from __future__ import annotations

import asyncio
import time
from array import array
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure
from wirespeed.cli.histogram import PERCENTILES, percentile

if TYPE_CHECKING:
    from wirespeed import Client


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
    """``calls`` additions, ``in_flight`` of them at a time. Every answer is checked."""

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
