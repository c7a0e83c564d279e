"""The calls of the Python clients, and what they cost. Standard library only."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

CallTool = Callable[[str, dict[str, Any]], Awaitable[Any]]


async def phase(call_tool: CallTool, start: int, calls: int, in_flight: int) -> int:
    """Make calls, a fixed number of them at a time. Returns the number of wrong answers."""
    numbers = iter(range(start, start + calls))
    wrong = 0

    async def worker() -> None:
        nonlocal wrong
        for number in numbers:
            text = f"{number:012d}:{'x' * 51}"
            try:
                result = await call_tool("echo", {"text": text})
                failed = getattr(result, "is_error", getattr(result, "isError", False))
                right = not failed and result.content[0].text == text
            except Exception:
                right = False
            wrong += not right

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return wrong


async def load(call_tool: CallTool) -> None:
    """Read CALLS WARMUP IN_FLIGHT from the command line, make the calls, and print a line of JSON:
    calls, wrong answers, seconds, processor seconds."""
    calls, warmup, in_flight = map(int, sys.argv[1:4])
    wrong = await phase(call_tool, 0, warmup, in_flight)
    processor, began = time.process_time(), time.perf_counter()
    wrong += await phase(call_tool, warmup, calls, in_flight)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    report = {"calls": calls, "wrong": wrong, "seconds": seconds, "cpu_seconds": processor}
    print(json.dumps(report), flush=True)
