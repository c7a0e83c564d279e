"""Drives an MCP client against an echo server: the same calls and checks for every client.

Standard library only: it runs in the rivals' environments too.  The client script has an
`open_client` that yields `call(text) -> text`; this prints one JSON line.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

Call = Callable[[str], Awaitable[str]]
Opener = Callable[[list[str]], AbstractAsyncContextManager[Call]]


def calling(call_tool: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> Call:
    """Calls of the echo tool by a client's `call_tool`."""

    async def call(text: str) -> str:
        result = await call_tool("echo", {"text": text})
        if result.is_error:
            raise RuntimeError("isError is set")
        answer: str = result.content[0].text
        return answer

    return call


async def run_calls(call: Call, first: int, count: int, window: int, size: int) -> list[str]:
    """Makes `count` calls, `window` at a time; returns what was wrong."""
    numbers = iter(range(first, first + count))
    padding = "x" * max(0, size - 13)
    wrong: list[str] = []

    async def worker() -> None:
        for number in numbers:
            text = f"{number:012d}:{padding}"
            try:
                got = await call(text)
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error}")
                continue
            if got != text:
                wrong.append(f"sent {text[:80]!r}, got {str(got)[:80]!r}")

    if window == 1:
        await worker()
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(window):
                group.create_task(worker())
    return wrong


async def measure(open_client: Opener, args: argparse.Namespace) -> dict[str, object]:
    started = time.perf_counter()
    async with open_client(args.command) as call:
        opened = time.perf_counter()
        wrong = await run_calls(call, 0, args.warmup, args.window, args.size)
        cpu = time.process_time()
        begun = time.perf_counter()
        wrong += await run_calls(call, args.warmup, args.calls, args.window, args.size)
        seconds = time.perf_counter() - begun
        cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "correct": not wrong,
        "first_wrong": wrong[0] if wrong else None,
        "calls": args.calls,
        "window": args.window,
        "size": args.size,
        "seconds": seconds,
        "calls_per_s": args.calls / seconds,
        "client_cpu_s": cpu,
        "open_s": opened - started,
        "peak_rss_kib": peak // 1024 if sys.platform == "darwin" else peak,
    }


def main(open_client: Opener) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--window", type=int, default=1)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("command", nargs="+", help="the server to start, after --")
    args = parser.parse_args()

    async def bounded() -> dict[str, object]:
        return await asyncio.wait_for(measure(open_client, args), args.timeout)

    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if args.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            sample = runner.run(bounded())
    except Exception as error:
        sample = {"correct": False, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps(sample))
    sys.exit(0 if sample["correct"] else 1)
