"""A server on stdio with tools of every kind. argv[1]: JSON of options, ``limits`` among them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from wirespeed import Context, Server
from wirespeed.limits import Limits

options: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
limits = Limits(**options.pop("limits", {}))
if options.pop("banner", False):
    print("a banner before the server runs")
farewell = options.pop("farewell", False)
server = Server("tool-server", "1.0", limits=limits, **options)
gate = threading.Event()  # what `wait` and `wait_in_thread` wait for
started: list[str] = []


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool(inline=True)
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def in_thread(text: str) -> str:
    return f"{text} in {'main' if threading.current_thread() is threading.main_thread() else 'it'}"


@server.tool
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@server.tool
async def wait(tag: str = "") -> str:
    """Ends when `release` is called."""
    started.append(tag)
    while not gate.is_set():
        await asyncio.sleep(0.001)
    return "released"


@server.tool
def wait_in_thread() -> str:
    gate.wait()
    return "released"


@server.tool
async def release() -> list[str]:
    gate.set()
    return started


@server.tool
async def hang() -> str:
    """Never ends by itself."""
    await asyncio.Event().wait()
    return "never"


@server.tool
async def stubborn() -> str:
    """Ignores every cancellation."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("stubborn ignores it", flush=True)


@server.tool
async def late() -> str:
    """Ends soon after it is cancelled, with a value all the same."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)
    return "late"


@server.tool
def block() -> str:
    """Holds its thread for ever."""
    time.sleep(3600)
    return "never"


@server.tool
async def block_to_thread() -> str:
    await asyncio.to_thread(time.sleep, 3600)
    return "never"


@server.tool
async def fail(text: str = "it failed") -> str:
    raise ValueError(text)


@server.tool
def noise(text: str) -> str:
    """Writes to what is standard output for everybody."""
    print(text)
    sys.stdout.write(text + " without a newline")
    os.write(1, text.encode() + b" by os.write\n")
    subprocess.run(["sh", "-c", f"echo {text} by a child"], check=True)
    return "quiet"


@server.tool
def read_stdin() -> str:
    return repr(sys.stdin.read()) + repr(os.read(0, 10))


@server.tool
def child_fds() -> str:
    """The descriptors that a child inherits."""
    script = "import os; print([fd for fd in range(3, 64) if os.path.exists(f'/dev/fd/{fd}')])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, close_fds=False
    )
    return done.stdout.strip()


@server.tool
async def huge(mib: int) -> str:
    return "é" * (mib * 512 * 1024)


@server.tool
async def report(steps: int, ctx: Context) -> str:
    for i in range(steps):
        await ctx.progress(i, total=steps, message=f"step {i}")
        await ctx.log("error", {"step": i})
    return "reported"


@server.tool
async def leave(status: int) -> str:
    sys.exit(status)


@server.tool
async def leave_later(status: int) -> str:
    await asyncio.sleep(0)
    sys.exit(status)


@server.tool(inline=True)
def leave_inline(status: int) -> str:
    sys.exit(status)


@server.tool
def leave_from_thread(status: int) -> str:
    sys.exit(status)


@server.tool
async def interrupt() -> str:
    raise KeyboardInterrupt


@server.tool
def count(to: int) -> Iterator[int]:
    yield from range(to)


if __name__ == "__main__":
    server.run()
    if farewell:
        print("farewell", flush=True)
