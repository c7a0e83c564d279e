"""Runs the real command line as a child, with pipes or on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CALCULATOR = [sys.executable, "-m", "wirespeed.demo.calculator"]
DEADLINE = 60

# ESC and the C0 and C1 controls other than newline and tab.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would change the look of the output."""
    drop = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    return {k: v for k, v in os.environ.items() if k not in drop} | changes


def wirespeed(
    *args: str, stdin: str | bytes = b"", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """``wirespeed ARGS`` with pipes; both outputs decoded."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "wirespeed", *args],
        input=data,
        capture_output=True,
        cwd=cwd,
        env=environment(**env),
        timeout=DEADLINE,
        check=False,
    )
    return subprocess.CompletedProcess(
        args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def start(*args: str) -> subprocess.Popen[bytes]:
    """``wirespeed ARGS``, running, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )


def on_terminal(args: Sequence[str], *, typed: bytes = b"", **env: str) -> tuple[str, int]:
    """``wirespeed ARGS`` on a terminal of its own: everything that it wrote, and its status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    os.write(ours, typed)
    with subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**({"TERM": "xterm-256color"} | env)),
        start_new_session=True,
    ) as process:
        os.close(theirs)
        written = bytearray()
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # EIO: the last one has closed it
                break
            if not data:
                break
            written += data
        os.close(ours)
        status = process.wait(DEADLINE)
    return written.decode(), status


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Its stderr, which must be one line of ours; nothing may be on stdout."""
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("wirespeed: ")
    return lines[0].removeprefix("wirespeed: ")


def error_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The error object on stdout of a command with --json; its exit code must agree."""
    (line,) = done.stdout.splitlines()
    error: dict[str, Any] = json.loads(line)["error"]
    assert error["exit_code"] == done.returncode
    return error


SERVER = '''
import asyncio, os, sys, time
from wirespeed import Context, Server
from wirespeed.server import Image

server = Server("lab", "3.1", instructions="Mind the gap.")

@server.tool
async def echo(text: str = "nothing") -> str:
    """Give it back."""
    return text

@server.tool
async def arguments() -> list[str]:
    """What the process was started with."""
    return sys.argv[1:]

@server.tool
async def environment(name: str) -> str:
    """A variable."""
    return os.environ.get(name, "unset")

@server.tool
async def picture():
    """A picture and a word."""
    return [Image(data=b"12345", mime_type="image/png"), "seen"]

@server.tool
async def wait(mark: str = "") -> None:
    """Never end; write the process's number into a file first."""
    if mark:
        with open(mark + ".tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename(mark + ".tmp", mark)
    await asyncio.sleep(3600)

@server.tool
async def talk(ctx: Context) -> str:
    """Log at two levels."""
    ctx.debug("too much")
    ctx.log("warning", {"disk": "full \\x1b[2J"}, logger="store")
    print("printed")
    return "talked"

@server.tool
async def die() -> None:
    """End the process."""
    print("about to die", file=sys.stderr, flush=True)
    os._exit(9)

if __name__ == "__main__":
    server.run()
'''
