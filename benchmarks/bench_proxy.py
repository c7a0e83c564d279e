"""What does the proxy add to a shared server on stdio?

The server is an echo in C (load/echo_child.c); the load generator checks every answer.  WebSocket
in front: processor time of the proxy for each round trip, with progress tokens in every request;
calls a second against supergateway 4.0.0, short and of 64 KiB; the latency that is added to the
direct pipe, against a bare relay of bytes; memory at rest and with 5,000 idle clients.  Streamable
HTTP in front: calls a second against sparfenyuk's mcp-proxy 0.13.0 and FastMCP 4.1.2's proxy.
"""

import sys
import time
from functools import partial

from bench_connections import idle, load
from bench_footprint import resident
from harness import (
    NOT_MEASURED,
    TIMES,
    Sample,
    Samples,
    Settings,
    Target,
    correct,
    interleave,
    medians,
    run_json,
    tool,
    versus,
    why_wrong,
    within,
)
from listening import Listening, against, script

OURS = "wirespeed"
METRICS = "wirespeed with metrics"
SUPERGATEWAY = "supergateway 4.0.0"
MCP_PROXY = "mcp-proxy 0.13.0"
FASTMCP = "FastMCP 4.1.2's proxy"
RELAY = "bare uvloop relay"
PIPE = "direct pipe"

SMALL, LARGE = 64, 64 * 1024
IDLE = 5_000
# Those that are faster while the load generator looks for answers without sleeping: on two
# processors it takes one of them, which a proxy that has enough to do needs for its server.
SPINNING = frozenset({OURS, METRICS, RELAY, PIPE})
SPINNING_WHEN_BUSY = frozenset({PIPE})


def command(settings: Settings, name: str, scheme: str) -> list[str]:
    """How a proxy is started; it tells its port."""
    child = tool("echo_child")
    if name == SUPERGATEWAY:
        folder = str(settings.venvs / "supergateway")
        return [*script(settings, "", "supergateway.py"), folder, child]
    environment, program = {
        OURS: ("", "our_proxy.py"),
        METRICS: ("", "our_proxy.py"),
        MCP_PROXY: ("mcp_proxy", "mcp_proxy.py"),
        FASTMCP: ("fastmcp", "fastmcp_proxy.py"),
        RELAY: ("websocket", "byte_relay.py"),
    }[name]
    options = [scheme] if name == OURS else ["--metrics", scheme] if name == METRICS else []
    return [*script(settings, environment, program), *options, child]


def lacking(settings: Settings, name: str) -> Sample | None:
    """A sample that says what is not there; None if nothing is missing."""
    missing = None
    if name == METRICS:
        from wirespeed import proxy

        missing = None if hasattr(proxy, "AdminConfig") else "the proxy has no metrics"
    elif name == SUPERGATEWAY and not (settings.venvs / "supergateway").exists():
        missing = "run benchmarks/setup_rivals.py with npm"
    return missing and {"correct": False, "error": NOT_MEASURED + missing}


def with_cpu(sample: Sample) -> Sample:
    if sample.get("calls"):
        sample["cpu_us"] = sample["server_cpu_s"] / sample["calls"] * 1e6
    return sample


def through(
    settings: Settings,
    name: str,
    scheme: str,
    calls: int,
    size: int,
    spinning: frozenset[str],
    *options: str,
) -> Sample:
    """Calls through one proxy, or straight to the server."""
    if (missing := lacking(settings, name)) is not None:
        return missing
    count = settings.calls(calls)
    common = [
        *("--calls", str(count), "--warmup", str(min(5_000, count // 5)), "--size", str(size)),
        *("--timeout", "120", "--spin", "yes" if name in spinning else "no", *options),
    ]
    if name == PIPE:
        return run_json([tool("stdio_load"), *common, "--", tool("echo_child")], 150)
    if name == RELAY:
        common += ["--lines", "yes"]

    def run_load(server: Listening) -> Sample:
        place = ("--path", "/mcp", "--pid", str(server.pid))
        return with_cpu(load(server, f"{scheme}_load", *place, *common, timeout=150))

    return against(command(settings, name, scheme), run_load)


def loads(
    settings: Settings,
    calls: dict[str, int],
    size: int,
    *options: str,
    scheme: str = "ws",
    spinning: frozenset[str] = SPINNING,
) -> Samples:
    return interleave(
        settings,
        {
            name: partial(through, settings, name, scheme, count, size, spinning, *options)
            for name, count in calls.items()
        },
    )


def many(settings: Settings, calls: dict[str, int], connections: int, window: int) -> Samples:
    # The direct pipe is one connection, and has no such option. See bench_websocket.py on bursts.
    alone = connections == 1
    how = ("--burst", "16") if alone else ("--connections", str(connections))
    return loads(settings, calls, SMALL, "--window", str(window), "--tokens", "yes", *how,
                 spinning=SPINNING if alone else SPINNING_WHEN_BUSY)  # fmt: skip


def added(samples: Samples, name: str) -> list[float]:
    """Microseconds that a proxy adds to the direct pipe at the median, for each round."""
    pairs = zip(samples[name], samples[PIPE], strict=True)
    return [ours["p50_us"] - pipe["p50_us"] for ours, pipe in pairs]


def added_ratio(samples: Samples, limit: float) -> Target:
    right = correct(samples, OURS, RELAY, PIPE)
    pairs = zip(added(samples, OURS), added(samples, RELAY), strict=True) if right else ()
    return Target(
        "proxy.added", "p50 added to the direct pipe with one call in flight: what a bare uvloop "
        "relay of bytes adds", limit, False, TIMES, [ours / relay for ours, relay in pairs], right,
        why_wrong(samples, OURS, RELAY, PIPE), medians(samples, "p50_us"),
    )  # fmt: skip


def memory(server: Listening, connections: int) -> Sample:
    time.sleep(1)
    rest = resident(server.pid) / 2**20
    sample = idle(server, connections, "ws_load", "--path", "/mcp", "--window", "1")
    if sample["correct"]:
        sample["all_mib"] = sample["before_mib"] + sample["kib_each"] * connections / 1024
    return sample | {"rest_mib": rest}


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    settings.say("proxy: one WebSocket connection, 64 in flight")
    one = many(settings, {OURS: 600_000, METRICS: 600_000, SUPERGATEWAY: 60_000, PIPE: 600_000},
               1, 64)  # fmt: skip
    settings.say("proxy: 100 WebSocket connections, 4 in flight on each")
    hundred = many(settings, {OURS: 400_000, METRICS: 400_000, SUPERGATEWAY: 60_000}, 100, 4)
    settings.say("proxy: messages of 64 KiB, 64 in flight")
    large = loads(settings, {OURS: 20_000, SUPERGATEWAY: 3_000, PIPE: 20_000}, LARGE,
                  "--window", "64", spinning=SPINNING_WHEN_BUSY)  # fmt: skip
    settings.say("proxy: one in flight")
    single = loads(settings, {OURS: 20_000, RELAY: 20_000, PIPE: 20_000}, SMALL, "--window", "1")
    settings.say("proxy: Streamable HTTP, 16 connections with one call each")
    http = loads(settings, {OURS: 60_000, MCP_PROXY: 1_500, FASTMCP: 500}, SMALL,
                 scheme="http")  # fmt: skip
    connections = max(200, min(IDLE, int(IDLE * settings.scale)))
    settings.say(f"proxy: {connections} idle connections")
    idling = interleave(
        settings,
        {OURS: partial(against, command(settings, OURS, "ws"),
                       lambda server: memory(server, connections))},
        rounds=min(settings.rounds, 3),
    )  # fmt: skip

    proxies = {name: taken for name, taken in one.items() if name != PIPE}
    front = "WebSocket to a shared server on stdio"
    cpu = "processor time of the proxy for a round trip"
    targets = [
        within("proxy.cpu", f"{front}, 64 in flight: {cpu}", 0.8, " µs", proxies, OURS, "cpu_us"),
        within("proxy.cpu_metrics", "the same with metrics", 1.1, " µs", proxies, METRICS,
               "cpu_us"),
        within("proxy.cpu_many", f"{front}, 100 connections with 4 in flight: {cpu}", 2.2, " µs",
               hundred, OURS, "cpu_us"),
        within("proxy.cpu_many_metrics", "the same with metrics", 2.5, " µs", hundred, METRICS,
               "cpu_us"),
        versus("proxy.one", f"{front}, 64 in flight: supergateway 4.0.0", 7, one, OURS,
               [SUPERGATEWAY], beside=(METRICS, PIPE)),
        versus("proxy.many", "the same, 100 connections with 4 in flight", 8, hundred, OURS,
               [SUPERGATEWAY], beside=(METRICS,)),
        versus("proxy.large", "messages of 64 KiB, 64 in flight, MB/s: supergateway 4.0.0", 4,
               large, OURS, [SUPERGATEWAY], "mb_per_s"),
        versus("proxy.large_pipe", "the same: the direct pipe", 0.85, large, OURS, [PIPE],
               "mb_per_s"),
        added_ratio(single, 2),
        versus("proxy.http", "Streamable HTTP to a shared server on stdio, 16 connections with one "
               "call each: sparfenyuk/mcp-proxy 0.13.0", 50, http, OURS, [MCP_PROXY]),
        versus("proxy.http_fastmcp", "the same: FastMCP 4.1.2's proxy", 150, http, OURS, [FASTMCP]),
        within("proxy.idle", f"resident, a shared server with {connections:,} idle WebSocket "
               "clients", 60, " MiB", idling, OURS, "all_mib"),
        within("proxy.rest", "resident at rest", 45, " MiB", idling, OURS, "rest_mib"),
    ]  # fmt: skip
    taken = {
        "64 in flight": one, "100 connections": hundred, "64 KiB": large, "one in flight": single,
        "HTTP": http, "idle": idling,
    }  # fmt: skip
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "proxy", *sys.argv[1:]])
