"""Servers that are started for a measurement, and what processes cost: time, memory."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

STARTING = 60.0
ENDING = 5.0


class Fault(Exception):
    """A server that did not start, answered wrongly, or died: it gets no number."""


@dataclass
class Started:
    """A server that listens.

    Attributes:
        pid: Its process.
        port: Where it listens.
        seconds: From its start until it took a connection.
    """

    pid: int
    port: int
    seconds: float


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def awake() -> Iterator[bool]:
    """Ask the kernel that no processor halts (power management quality of service: a latency of 0
    µs). Yields whether it took the request: that needs the superuser.

    A virtual processor without work halts, and waking it takes up to 90 µs: more than most calls
    that are measured. Whether it halts depends on which processor the scheduler chooses, so that
    figures of one call in flight differ by factors from run to run.
    """
    try:
        request = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
    except OSError:
        yield False
        return
    try:
        os.write(request, struct.pack("=i", 0))
        yield True
    finally:
        os.close(request)  # which ends it


@contextlib.contextmanager
def started(
    command: Sequence[str], port: int | None, environment: Mapping[str, str], cwd: str | None = None
) -> Iterator[Started]:
    """Start a server, wait until it listens, and end it and its children afterwards.

    port: None: the server prints it as its first line. Fault: it does not start.
    """
    with tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if port is None else errors,
                stderr=errors,
                env=dict(environment),
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as exc:
            raise Fault(f"cannot be started: {exc}") from None
        try:
            found = _announced(child, errors) if port is None else port
            _await_listening(child, found, errors)
            yield Started(child.pid, found, time.monotonic() - began)
        finally:
            _end(child)


def _announced(child: subprocess.Popen[bytes], errors: IO[bytes]) -> int:
    assert child.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready = select.select([child.stdout], [], [], STARTING)[0]
        part = child.stdout.read(64) if ready else b""
        if not part:
            raise Fault(f"it told no port: {last_words(errors)}")
        line += part
    return int(line)


def _await_listening(child: subprocess.Popen[bytes], port: int, errors: IO[bytes]) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        if child.poll() is not None:
            raise Fault(f"it ended at once: {last_words(errors)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.005)
    raise Fault(f"it does not listen: {last_words(errors)}")


def last_words(errors: IO[bytes]) -> str:
    """The last line that a server wrote."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _end(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    members = [pid for pid in family(child.pid) if pid != child.pid]
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(ENDING)
    # children that outlived it, and whatever else is in its session
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


# -- costs --------------------------------------------------------------------------------------


def _parents() -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                children[int(fields[1])].append(int(name))
    return children


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children = _parents()
    found, todo = [pid], [pid]
    while todo:
        for child in children[todo.pop()]:
            found.append(child)
            todo.append(child)
    return found


def processor_seconds(pid: int) -> float:
    """The processor time of a process, of all its threads."""
    return time.clock_gettime((~pid << 3) | 2)


def resident(pid: int, beside: str = "") -> int:
    """Bytes that a process and its descendants hold, with their share of common pages.

    beside: Programs of this name are not counted.
    """
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            if beside and os.path.basename(os.readlink(f"/proc/{member}/exe")) == beside:
                continue
            with open(f"/proc/{member}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
    return total
