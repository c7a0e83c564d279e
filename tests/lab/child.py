"""What tests of child processes share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.process import Child

CHILDREN = Path(__file__).resolve().parents[1] / "children"
# For waits that end at once unless something is broken.
FOREVER = 20.0

Run = Callable[[Coroutine[Any, Any, Any]], Any]


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


async def until_gone(threads: set[threading.Thread]) -> None:
    """Until no thread runs but these."""
    while set(threading.enumerate()) - threads:
        await asyncio.sleep(0.001)
