"""How many tools/call a second does a Streamable HTTP server answer, and a client make?

wirespeed's typed echo tool, on its own HTTP and as an ASGI application, against mcp 2.3.0 and a
bare ASGI echo, both on uvicorn with uvloop and httptools: JSON, 16 kept connections with one call
each, both eras.  Notifications of progress as events against mcp; bodies of 64 KiB against a plain
socket echo of the same requests; wirespeed's client against mcp's.  Then what many connections
cost: idle `subscriptions/listen` streams, clients that come and go (see load/http_churn.c), and
heads that come a byte at a time beside a client with calls.  The load generator checks every
answer.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench_connections import churn, idle, load
from bench_footprint import resident
from harness import (
    TIMES,
    Sample,
    Samples,
    Settings,
    Target,
    client_load,
    interleave,
    lacking,
    tool,
    versus,
    within,
)
from listening import Listening, against, script

OURS = "wirespeed"
ASGI = "wirespeed under uvicorn"
MCP = "mcp 2.3.0"
MCP_EVENTS = "mcp 2.3.0, events"
ECHO = "uvicorn, a bare echo"
RAW = "raw uvloop echo"
CEILING = "echo in C"

# contender -> (environment, script or program and its arguments, calls of one round)
SERVERS: dict[str, tuple[str, tuple[str, ...], int]] = {
    OURS: ("", ("http_server.py",), 100_000),
    ASGI: ("", ("asgi_server.py",), 20_000),
    MCP: ("mcp2", ("mcp2_http.py", "json"), 2_500),
    MCP_EVENTS: ("mcp2", ("mcp2_http.py", "sse"), 2_500),
    ECHO: ("http", ("uvicorn_echo.py",), 30_000),
    RAW: ("", ("raw_echo.py",), 60_000),
    CEILING: ("", ("echo_http",), 200_000),
}
# contender -> (environment, script, loop, calls of one round)
CLIENTS: dict[str, tuple[str, str, str, int]] = {
    OURS: ("", "our_client.py", "uvloop", 30_000),
    MCP: ("mcp2", "mcp2_client.py", "asyncio", 1_500),
    "mcp 2.3.0 on uvloop": ("mcp2", "mcp2_client.py", "uvloop", 1_500),
}

CONNECTIONS = 16
SIZE, LARGE = 64, 65_536
REPORTS = 1_000  # notifications of progress of a call
IDLE = 10_000
COMING = 2_000
SESSION_S = 15  # seconds without a request after which a legacy session ends, where clients go
FILLING_S = 3.0  # in which slow heads take their places
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "held", "version": "1"},
}


def server_command(settings: Settings, name: str, era: str) -> list[str]:
    environment, (program, *arguments), _ = SERVERS[name]
    if not program.endswith(".py"):
        return [tool(program), "--era", era]
    return script(settings, environment, program) + arguments


def serve_load(
    settings: Settings, name: str, era: str, calls: int, options: Sequence[str]
) -> Sample:
    """One contender under load."""
    missing = lacking(uvicorn="uvicorn", httptools="httptools") if name == ASGI else None
    if missing is not None:
        return missing
    # A slow server is as fast when the generator sleeps, and then has the whole machine.
    spin = "no" if name in (MCP, MCP_EVENTS) else "yes"
    count = str(max(CONNECTIONS, calls))
    warm = str(max(CONNECTIONS, min(5_000, calls // 5)))
    return against(
        server_command(settings, name, era),
        lambda server: load(
            server, "http_load", "--pid", str(server.pid), "--era", era, "--calls", count,
            "--warmup", warm, "--spin", spin, "--timeout", "120", *options, timeout=150,
        ),
    )  # fmt: skip


def loads(
    settings: Settings, names: Sequence[str], era: str, share: float = 1, size: int = SIZE
) -> Samples:
    """`share` of the usual calls, by name."""
    return interleave(
        settings,
        {
            name: partial(
                serve_load, settings, name, era, settings.calls(int(SERVERS[name][2] * share)),
                ["--connections", str(CONNECTIONS), "--size", str(size),
                 "--raw", "yes" if name == RAW else "no"],
            )
            for name in names
        },
    )  # fmt: skip


def reporting(settings: Settings) -> Samples:
    calls = {OURS: 400, MCP_EVENTS: 32}
    options = ["--connections", str(CONNECTIONS), "--tool", "progress", "--progress", str(REPORTS)]
    return interleave(
        settings,
        {
            name: partial(
                serve_load, settings, name, "modern", int(count * settings.scale), options
            )
            for name, count in calls.items()
        },
    )


def calling(settings: Settings, name: str) -> Sample:
    environment, program, loop, calls = CLIENTS[name]
    return against(
        [tool("echo_http")],
        lambda server: client_load(settings, environment, program, loop, calls, 64, server.http),
    )


# ------------------------------------------------------------------- many connections


def held(server: Listening) -> dict[str, Any]:
    """What the server says it holds, this connection included, and its resident memory."""
    call = {"name": "held", "arguments": {}, "_meta": META}
    untrimmed = resident(server.pid) / 2**20
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request(
        "POST",
        "/mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
        {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "held",
        },
    )
    answer = json.loads(connection.getresponse().read())
    connection.close()
    counts: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return counts | {"mib": resident(server.pid) / 2**20, "untrimmed_mib": untrimmed}


def beside_slow_heads(server: Listening, heads: int, calls: int) -> Sample:
    """A client with calls, alone and beside heads that come a byte at a time: its p99."""
    options = ("--connections", "4", "--calls", str(calls), "--era", "modern")
    alone = load(server, "http_load", *options)
    if not alone["correct"]:
        return alone
    port = ("--port", str(server.port))
    with subprocess.Popen(
        [tool("http_churn"), *port, "--only", "slow_head", "--connections", str(heads),
         "--rate", str(2 * heads), "--seconds", "30"],
        stdout=subprocess.PIPE, text=True,
    ) as slow:  # fmt: skip
        assert slow.stdout
        time.sleep(FILLING_S)
        beside = load(server, "http_load", *options)
        slow.terminate()
        told: dict[str, Any] = json.loads(slow.stdout.readline())
    right = beside["correct"] and not told["wrong"] and told["most"] > 0.9 * heads
    times = beside["p99_us"] / alone["p99_us"] if beside["correct"] else None
    sample = beside | {"alone_p99_us": alone["p99_us"], "times": times, "heads": told["most"]}
    return sample | ({} if right else {"correct": False, "error": f"beside heads: {told}"})


def coming_and_going(server: Listening, seconds: float) -> Sample:
    # Handlers that wait, many at once, fill the pool of tasks; the first spell may not.
    options = ("--only", "in_stream", "--connections", str(COMING), "--seconds", "2")
    first = load(server, "http_churn", *options)
    return churn(server, COMING, seconds, "http_churn", held) if first["correct"] else first


def one(settings: Settings, rounds: int, measure: Any, *arguments: str) -> Samples:
    """Samples of our server alone."""
    command = script(settings, "", "http_server.py") + list(arguments)
    return interleave(settings, {OURS: partial(against, command, measure)}, rounds=rounds)


# ------------------------------------------------------------------------ all of it


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    taken: dict[str, Samples] = {}
    targets = []
    for era in ("legacy", "modern"):
        settings.say(f"http: {CONNECTIONS} connections, one call each, {era}")
        calls = taken[era] = loads(settings, [OURS, ASGI, MCP, ECHO, CEILING], era)
        prefix = "http." if era == "legacy" else "http.modern_"
        shown = (ASGI, CEILING)
        targets += [
            versus(f"{prefix}mcp", f"Streamable HTTP server, {era}, {CONNECTIONS} connections with "
                   "one call each, JSON: mcp 2.3.0 on uvicorn", 25, calls, OURS, [MCP]),
            versus(f"{prefix}echo", "the same: a bare ASGI echo on uvicorn and httptools", 2.2,
                   calls, OURS, [ECHO], beside=shown),
            versus(f"{prefix}asgi", "the same, `asgi()` on uvicorn: that echo", 0.7, calls, ASGI,
                   [ECHO]),
        ]  # fmt: skip
    settings.say(f"http: {REPORTS} notifications of progress a call")
    reports = taken["progress"] = reporting(settings)
    settings.say("http: bodies of 64 KiB")
    large = taken["64 KiB"] = loads(settings, [OURS, RAW, CEILING], "modern", 0.1, LARGE)
    settings.say("http: client, 64 in flight")
    clients = taken["client"] = interleave(
        settings, {name: partial(calling, settings, name) for name in CLIENTS}
    )
    streams = max(200, min(IDLE, int(IDLE * settings.scale)))
    settings.say(f"http: {streams} idle streams")
    idling = taken["idle"] = one(
        settings, min(settings.rounds, 3),
        lambda server: idle(server, streams, "http_load", "--era", "modern"),
    )  # fmt: skip
    heads = max(200, min(COMING, int(COMING * settings.scale)))
    settings.say(f"http: a client beside {heads} slow heads")
    slow = taken["slow heads"] = one(
        settings, min(settings.rounds, 3),
        lambda server: beside_slow_heads(server, heads, settings.calls(40_000)),
    )  # fmt: skip
    settings.say(f"http: coming and going for {settings.seconds:g} s")
    coming = taken["coming and going"] = one(
        settings, 1, lambda server: coming_and_going(server, settings.seconds), str(SESSION_S),
    )  # fmt: skip
    spell = f"{COMING:,} HTTP clients coming and going for {settings.seconds:g} s"
    targets += [
        versus("http.progress", f"{REPORTS:,} notifications of progress a call as events: mcp "
               "2.3.0 on uvicorn", 10, reports, OURS, [MCP_EVENTS]),
        versus("http.large", "bodies of 64 KiB, MB/s: a raw uvloop socket echo of the same bytes",
               0.6, large, OURS, [RAW], "mb_per_s", beside=(CEILING,)),
        versus("http.client", "HTTP client, 64 in flight: mcp 2.3.0's client", 15, clients, OURS,
               [name for name in CLIENTS if name != OURS]),
        within("http.idle", f"resident memory of each of {streams:,} idle listen streams", 16,
               " KiB", idling, OURS, "kib_each"),
        within("http.slow_heads", f"p99 of a client beside {heads:,} slow heads: alone", 2, TIMES,
               slow, OURS, "times", beside=("p99_us", "alone_p99_us")),
        within("http.memory", f"{spell}: memory left behind", 2, " MiB", coming, OURS,
               "mib_left"),
        within("http.tasks", "the same: tasks left behind", 0, "", coming, OURS, "tasks_left"),
        within("http.files", "the same: descriptors left behind", 0, "", coming, OURS,
               "files_left"),
        within("http.sessions", "the same: sessions left behind", 0, "", coming, OURS,
               "sessions_left"),
    ]  # fmt: skip
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "http", *sys.argv[1:]])
