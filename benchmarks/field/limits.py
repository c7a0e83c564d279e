"""The limits of the machine: the kernel's share of a server's time, and the copying of memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

import builder
import cells
from cells import CELLS, Cell, Figures
from contenders import FASTEST, OURS, REFERENCE, Server, servers
from processes import Fault, family, free_port, started

if TYPE_CHECKING:
    from __main__ import Results, Scale

_CELLS = ("stdio_64", "http_16", "ws_64")
_COPIED = 256 * 1024 * 1024


def measure(found: Results, scale: Scale) -> None:
    """Measure both, for wirespeed and for the echo in C."""
    for server in servers():
        if server.setting != FASTEST or server.key not in (OURS, REFERENCE):
            continue
        for cell in CELLS:
            if cell.key in _CELLS:
                found.take(
                    server.id,
                    f"kernel_{cell.key}",
                    "raw",
                    lambda server=server, cell=cell: _share(server, cell, scale),
                )
    found.take("machine", "copy", "raw", _copy)


def _share(server: Server, cell: Cell, scale: Scale) -> Figures:
    """The share of the kernel in the processor time of a server under a load of two seconds."""
    program = str(builder.find("c") / cells.GENERATORS[cell.transport])
    ours = cells.own_environment()
    calls = 40_000
    while True:
        options = ["--calls", str(calls), "--size", str(cell.size), "--timeout", "60"]
        if cell.transport == "stdio":
            options += ["--window", str(cell.in_flight), "--", *server.stdio()]
            user, kernel = _watched([program, *options], ours, None)
        else:
            port = None if server.announces else free_port()
            with started(server.listening(cell.transport, port or 0), port, ours) as live:
                options += ["--port", str(live.port), "--connections", str(cell.connections)]
                options += ["--path", "/mcp"]
                if cell.transport == "websocket":
                    options += ["--window", str(cell.in_flight)]
                user, kernel = _watched([program, *options], ours, live.pid)
        if user + kernel >= min(1.0, 2 * scale.seconds) or calls >= 4_000_000:
            if not user + kernel:
                raise Fault("it took no time that can be measured")
            return {"kernel": kernel / (user + kernel)}
        calls *= 4


def _watched(
    command: list[str], environment: dict[str, str], pid: int | None
) -> tuple[float, float]:
    """User and kernel seconds of a server while a generator runs; pid: None: its child."""
    before = _times(pid) if pid is not None else (0.0, 0.0)
    last = before
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    watched = pid
    while child.poll() is None:
        if watched is None:
            watched = next((one for one in family(child.pid) if one != child.pid), None)
        elif (now := _times(watched)) is not None:
            last = now
        time.sleep(0.01)
    if child.returncode:
        raise Fault(f"the generator ended with {child.returncode}")
    assert before is not None and last is not None
    return last[0] - before[0], last[1] - before[1]


def _times(pid: int) -> tuple[float, float] | None:
    ticks = os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return int(fields[11]) / ticks, int(fields[12]) / ticks
    return None


def _copy() -> Figures:
    """Bytes a second of a copy in memory by one processor, larger than its caches."""
    source, target = bytearray(_COPIED), bytearray(_COPIED)
    into = memoryview(target)
    into[:] = source
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        into[:] = source
        best = max(best, _COPIED / (time.perf_counter() - began))
    return {"bytes_per_s": best}
