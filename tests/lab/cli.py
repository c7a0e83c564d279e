"""Runs the real command line as a child, with pipes or on a pseudo-terminal."""

from __future__ import annotations

import atexit
import fcntl
import functools
import json
import os
import pty
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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


# The modules are loaded once, and each line is a process that begins where they are.
EACH = """
import importlib, json, os, pkgutil, sys
import wirespeed.cli
from wirespeed.cli.main import main

for module in pkgutil.walk_packages(wirespeed.cli.__path__, "wirespeed.cli."):
    importlib.import_module(module.name)

for line, out, err in json.load(sys.stdin):
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, path in ((0, None), (1, out), (2, err)):
            os.dup2(null if path is None else os.open(path, os.O_WRONLY | os.O_CREAT), fd)
        sys.argv[1:] = line
        try:
            main()
        except SystemExit as exc:
            sys.stdout.flush()
            os._exit(exc.code)  # to unload all modules takes ten times as long
    with open(out + ".status", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""


def wirespeed_each(
    lines: Iterable[Sequence[str]], folder: Path
) -> dict[tuple[str, ...], subprocess.CompletedProcess[str]]:
    """``wirespeed ARGS`` with pipes for each of many lines that end soon."""
    places = {tuple(line): str(folder / str(n)) for n, line in enumerate(lines)}
    work = [(line, f"{place}.out", f"{place}.err") for line, place in places.items()]
    subprocess.run(
        [sys.executable, "-W", "error", "-c", EACH],
        input=json.dumps(work).encode(),
        env=environment(),
        timeout=DEADLINE,
        check=True,
    )
    return {
        tuple(line): subprocess.CompletedProcess(
            line,
            int(Path(f"{out}.status").read_text()),
            Path(out).read_bytes().decode(),
            Path(err).read_bytes().decode(),
        )
        for line, out, err in work
    }


# As above, for one line at a time, each with its folder and its environment.
FORKS = """
import importlib, json, os, pkgutil, sys
import wirespeed.cli
from wirespeed.cli.main import main

for module in pkgutil.walk_packages(wirespeed.cli.__path__, "wirespeed.cli."):
    importlib.import_module(module.name)
import wirespeed
wirespeed.Client, wirespeed.Server

for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for fd, path in enumerate((os.devnull, job["out"], job["err"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), fd)
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        sys.argv[1:] = job["args"]
        status = 99
        try:
            main()
        except SystemExit as exc:
            status = exc.code
            sys.stdout.flush()
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@functools.cache
def forks() -> subprocess.Popen[str]:
    """The process that `forked` has its processes of. It ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    atexit.register(process.communicate)
    return process


def forked(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """``wirespeed ARGS`` with pipes, as `wirespeed`, but without the time to load the modules."""
    process = forks()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = {"args": args, "cwd": str(cwd or Path.cwd()), "env": environment(**env)}
        line = json.dumps({**job, "out": str(out), "err": str(err)})
        process.stdin.write(line + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        return subprocess.CompletedProcess(
            args, status, out.read_bytes().decode(), err.read_bytes().decode()
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


class Serving:
    """A ``wirespeed serve --on URL`` that runs: where it listens, what it says, how it ends. Or
    another command that listens."""

    def __init__(self, args: Sequence[str], env: dict[str, str], command: str = "serve") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "wirespeed", command, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**env),
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._queue.put(line.decode().rstrip("\n"))
        self._queue.put(None)

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line of its stderr that has this in it."""
        while True:
            line = self._queue.get(timeout=DEADLINE)
            assert line is not None, f"it ended without {pattern!r}: {self.lines}"
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    @property
    def said(self) -> str:
        """Its stderr so far."""
        return "\n".join(self.lines)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; its status. All of its stderr is in `lines` then, and nothing was on
        stdout."""
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE)
        while (line := self._queue.get(timeout=DEADLINE)) is not None:
            self.lines.append(line)
        assert self.process.stdout is not None
        assert self.process.stdout.read() == b""
        return status

    def stop(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def serving(*args: str, command: str = "serve", **env: str) -> Iterator[Serving]:
    """``wirespeed serve ARGS``, killed with all its workers at the end if it still runs."""
    running = Serving(args, env, command)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def listening(*args: str, command: str = "serve", **env: str) -> Iterator[str]:
    """The URL of a ``wirespeed serve ARGS`` that has said where it listens."""
    with serving(*args, command=command, **env) as running:
        yield running.line(r" on (\S+?);")[1]


def on_terminal(
    args: Sequence[str],
    *,
    typed: bytes = b"",
    prompt: str = "",
    answer: bytes = b"",
    talk: Sequence[tuple[str, str]] = (),
    cwd: Path | None = None,
    controls: bool = False,
    **env: str,
) -> tuple[str, int]:
    """``wirespeed ARGS`` on a terminal of its own: everything that it wrote, and its status.
    ``typed`` is there from the start, the answer is typed when the prompt shows; of a ``talk`` each
    answer when its prompt shows, in order. ``controls``: it is the terminal of the process, whose
    Ctrl-C interrupts it, and whose name is /dev/tty."""
    rest = [(question.encode(), reply.encode()) for question, reply in talk]
    if answer:
        rest.append((prompt.encode(), answer))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    os.write(ours, typed)
    with subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=environment(**({"TERM": "xterm-256color"} | env)),
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controls else None,
    ) as process:
        os.close(theirs)
        written = bytearray()
        seen = 0
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # EIO: the last one has closed it
                break
            if not data:
                break
            written += data
            while rest and (at := written.find(rest[0][0], seen)) >= 0:
                question, reply = rest.pop(0)
                seen = at + len(question)
                os.write(ours, reply)
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
from wirespeed.types import Image

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
