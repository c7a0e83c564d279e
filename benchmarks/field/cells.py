"""The cells of the table, and how one of them is measured: by `wirespeed bench`, by the C generator
of benchmarks/load, or by a few lines that speak the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import builder
from contenders import LEGACY, MODERN
from processes import Fault

Figures = dict[str, float]
GENERATORS = {"stdio": "stdio_load", "http": "http_load", "websocket": "ws_load"}
KIB = 1024
# Before the first run of a cell nothing is known of its rate.
UNKNOWN = 300


@dataclass(frozen=True)
class Cell:
    """A load.

    Attributes:
        key: Its name in results.
        title: Its name for readers.
        transport: `stdio`, `http`, `websocket`, or `sse`: HTTP+SSE.
        connections: The connections.
        in_flight: Calls without an answer on each.
        size: Bytes of the text of a call.
        all_settings: Whether servers as documented are measured, too; else only the fastest.
        share: The share of the usual time.
        era: `legacy`, or `modern`: 2026-07-28.
    """

    key: str
    title: str
    transport: str
    connections: int
    in_flight: int
    size: int = 64
    all_settings: bool = False
    share: float = 1.0
    era: str = LEGACY

    @property
    def generator(self) -> str | None:
        """The program in C that drives it; None: there is none."""
        return GENERATORS.get(self.transport)


CELLS = [
    Cell("stdio_1", "stdio, 1 in flight", "stdio", 1, 1, all_settings=True),
    Cell("stdio_64", "stdio, 64 in flight", "stdio", 1, 64, all_settings=True),
    Cell("stdio_64k", "stdio, 64 KiB, 8 in flight", "stdio", 1, 8, 64 * KIB, share=0.6),
    Cell("stdio_1m", "stdio, 1 MiB, 4 in flight", "stdio", 1, 4, 1024 * KIB, share=0.6),
    Cell("http_1", "HTTP, 1 connection", "http", 1, 1, all_settings=True),
    Cell("http_16", "HTTP, 16 connections", "http", 16, 1, all_settings=True),
    Cell("http_256", "HTTP, 256 connections", "http", 256, 1, all_settings=True),
    Cell("http_64k", "HTTP, 64 KiB, 16 connections", "http", 16, 1, 64 * KIB, share=0.6),
    Cell("http_1m", "HTTP, 1 MiB, 4 connections", "http", 4, 1, 1024 * KIB, share=0.6),
    Cell("ws_64", "WebSocket, 64 in flight", "websocket", 1, 64, all_settings=True),
    Cell("ws_256", "WebSocket, 256 connections", "websocket", 256, 1, all_settings=True),
    Cell("stdio_1_modern", "2026-07-28, stdio, 1 in flight", "stdio", 1, 1, era=MODERN),
    Cell("stdio_64_modern", "2026-07-28, stdio, 64 in flight", "stdio", 1, 64, era=MODERN),
    Cell("http_1_modern", "2026-07-28, HTTP, 1 connection", "http", 1, 1, era=MODERN),
    Cell("http_16_modern", "2026-07-28, HTTP, 16 connections", "http", 16, 1, era=MODERN),
    Cell("http_256_modern", "2026-07-28, HTTP, 256 connections", "http", 256, 1, era=MODERN),
    Cell("sse_1", "HTTP+SSE, 1 connection", "sse", 1, 1),
    Cell("sse_16", "HTTP+SSE, 16 connections", "sse", 16, 1),
]
# The URLs of servers that listen.
URLS = {
    "http": "http://127.0.0.1:{}/mcp",
    "websocket": "ws://127.0.0.1:{}/mcp",
    "sse": "http://127.0.0.1:{}/sse",
}


def own_environment() -> dict[str, str]:
    """The environment of wirespeed's programs."""
    return dict(os.environ)


def by_bench(
    cell: Cell,
    where: Sequence[str] | str,
    seconds: float,
    warmup: int,
    environment: Mapping[str, str],
    pid: int | None = None,
    tool: str = "echo",
) -> Figures:
    """Measure by `wirespeed bench`: a command, or a URL. Fault: not all answers were right."""
    target = [where] if isinstance(where, str) else ["--", *where, "--"]
    done = _run(
        [
            *(sys.executable, "-m", "wirespeed", "bench", "--json", "-", "--era", cell.era),
            *("--duration", f"{seconds:g}", "--warmup", str(warmup), "--expect", "echo=text"),
            *("--connections", str(cell.connections), "--in-flight", str(cell.in_flight)),
            *("--timeout", "30", *(("--pid", str(pid)) if pid is not None else ())),
            *(*target, tool, json.dumps({"text": f"$text:{cell.size}"})),
        ],
        environment,
        90.0 + 2 * seconds,
    )
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise Fault(_last(done.stderr)) from None
    counts: dict[str, int] = result["counts"]
    faults = [f"{value} {name}" for name, value in counts.items() if name != "ok" and value]
    if faults:
        raise Fault(f"of {result['calls']} calls: {', '.join(faults)}")
    if not counts["ok"]:
        raise Fault("no call was answered")
    latency, calls = result["latency_us"], result["calls"]
    figures = {
        "rate": result["rate"],
        "p50": latency["p50"],
        "p99": latency["p99"],
        "calls": calls,
        "load_cpu_us": result["tool"]["cpu_seconds"] / calls * 1e6,
    }
    if result["server"]["cpu_seconds"] is not None:
        figures["cpu_us"] = result["server"]["cpu_seconds"] / calls * 1e6
    return figures


def by_generator(
    cell: Cell,
    where: Sequence[str] | int,
    calls: int,
    warmup: int,
    environment: Mapping[str, str],
    pid: int | None = None,
    path: str = "/mcp",
    tool: str = "echo",
) -> Figures:
    """Measure by the C generator: a command, or a port. Fault: not all answers were right."""
    program = str(builder.find("c") / GENERATORS[cell.transport])
    options = [
        *("--calls", str(calls), "--warmup", str(warmup), "--size", str(cell.size)),
        *("--timeout", "90", "--tool", tool, "--era", cell.era),
    ]
    if isinstance(where, int):
        options += ["--port", str(where), "--connections", str(cell.connections), "--path", path]
        if cell.transport == "websocket":
            options += ["--window", str(cell.in_flight)]
        if pid is not None:
            options += ["--pid", str(pid)]
    else:
        options += ["--window", str(cell.in_flight), "--", *where]
    done = _run([program, *options], environment, 120.0)
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Fault(_last(done.stderr)) from None
    if not result["correct"]:
        raise Fault(str(result.get("error") or result.get("first_wrong") or "a wrong answer"))
    figures = {
        "rate": result["calls_per_s"],
        "p50": result["p50_us"],
        "p99": result["p99_us"],
        "calls": result["calls"],
        "load_cpu_us": result["load_cpu_s"] / max(result["calls"], 1) * 1e6,
    }
    if result["server_cpu_s"] > 0:
        figures["cpu_us"] = result["server_cpu_s"] / max(result["calls"], 1) * 1e6
    return figures


def by_client(
    command: Sequence[str], calls: int, warmup: int, in_flight: int, environment: Mapping[str, str]
) -> Figures:
    """Measure a client against the echo server in C. Fault: not all answers were right."""
    server = str(builder.find("c") / "echo_child")
    numbers = (str(calls), str(warmup), str(in_flight))
    done = _run([*command, *numbers, server], environment, 120.0)
    try:
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Fault(_last(done.stderr)) from None
    if result["wrong"]:
        raise Fault(f"{result['wrong']} of {result['calls']} calls failed")
    return {
        "rate": calls / result["seconds"],
        "cpu_us": result["cpu_seconds"] / calls * 1e6,
        "calls": calls,
    }


def _run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    # a process group of its own, so that the server of a generator that must be killed ends, too
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            out, said = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Fault(f"it took more than {seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(list(command), child.returncode, out, said)


def _last(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
