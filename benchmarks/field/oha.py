"""`wirespeed bench --rate` beside oha, which is another load generator for HTTP: both send calls at
the same times whatever the answers do, and measure latency from the intended time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import builder
import cells
from contenders import FASTEST, OURS, servers
from processes import Fault, free_port, started

if TYPE_CHECKING:
    from __main__ import Results, Scale

CONNECTIONS = 16
SHARE = 0.8  # of what both can drive
SLOW = Path(__file__).resolve().parent / "programs" / "python" / "slow_server.py"
SLOW_SECONDS = 4.0
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "x" * 64}},
}
FIELDS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}


def compare(found: Results, scale: Scale) -> None:
    """Measure by both in turn, at 80 % of what both can drive: before the echo server, where oha
    bunches its calls (its clock has steps of a millisecond), and before one that works 5 ms."""
    server = next(one for one in servers() if one.key == OURS and one.setting == FASTEST)
    port = free_port()
    _in_turn(found, "open_loop", server.listening("http", port), port, scale, 2.0)
    port = free_port()
    slow = [sys.executable, str(SLOW), str(port)]
    _in_turn(found, "open_loop_slow", slow, port, scale, SLOW_SECONDS)


def _in_turn(
    found: Results, cell: str, command: list[str], port: int, scale: Scale, share: float
) -> None:
    rounds = 9 if scale.rounds > 1 else 1
    seconds = max(share * scale.seconds, 1.0)
    with started(command, port, cells.own_environment()) as live:
        url = f"http://127.0.0.1:{live.port}/mcp"
        try:
            pairs = [(_by_bench(url, seconds, None), _by_oha(url, seconds, None)) for _ in range(3)]
            most = statistics.median(min(ours["rate"], theirs["rate"]) for ours, theirs in pairs)
            rate = int(SHARE * most)
            for _ in range(rounds):
                found.take(OURS, cell, "bench", lambda: _by_bench(url, seconds, rate))
                found.take(OURS, cell, "oha", lambda: _by_oha(url, seconds, rate))
        except (Fault, builder.NotBuilt) as exc:
            found.fault(OURS, cell, "oha", str(exc))


def _by_bench(url: str, seconds: float, rate: int | None) -> dict[str, float]:
    command = [sys.executable, "-m", "wirespeed", "bench", "--json", "-", "--era", "legacy"]
    command += ["--connections", str(CONNECTIONS), "--in-flight", "1"]
    command += ["--duration", f"{seconds:g}", "--expect", "echo=text"]
    command += ["--rate", str(rate)] if rate else []
    result = _json([*command, url, "echo", '{"text": "$text:64"}'], seconds)
    if result["counts"]["ok"] != result["calls"]:
        raise Fault(f"wirespeed bench: {result['counts']}")
    latency, service = result["latency_us"], result["service_time_us"]
    return {
        "rate": result["rate"],
        "p50": latency["p50"],
        "p99": latency["p99"],
        "service_p99": service["p99"],
        "late_starts": result["tool"]["late_starts"],
        "wanted": rate or 0,
    }


def _by_oha(url: str, seconds: float, rate: int | None) -> dict[str, float]:
    program = str(builder.find("oha") / "bin" / "oha")
    command = [program, "--no-tui", "--output-format", "json", "-c", str(CONNECTIONS)]
    command += ["-z", f"{seconds:g}s", "-m", "POST", "-d", json.dumps(CALL)]
    command += [word for name, value in FIELDS.items() for word in ("-H", f"{name}: {value}")]
    command += ["-q", str(rate), "--latency-correction"] if rate else []
    result = _json([*command, url], seconds)
    summary, percentiles = result["summary"], result["latencyPercentiles"]
    if summary["successRate"] != 1.0 or set(result["statusCodeDistribution"]) != {"200"}:
        raise Fault(f"oha: {result['statusCodeDistribution']} {result['errorDistribution']}")
    return {
        "rate": summary["requestsPerSec"],
        "p50": percentiles["p50"] * 1e6,
        "p99": percentiles["p99"] * 1e6,
        "wanted": rate or 0,
    }


def _json(command: list[str], seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            env=cells.own_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60 + seconds,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise Fault(f"{command[0]} took too long") from None
    except ValueError:
        raise Fault(f"{command[0]}: {done.stderr.strip()[-300:]}") from None
    return found
