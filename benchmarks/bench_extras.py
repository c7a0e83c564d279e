"""What do middleware, metrics and traces cost a stdio server?

The typed async echo tool without extras against each of them, and all at once, as children of the
C load generator, which checks every answer: see rivals/ws_extras.py for what is on. The figures to
compare are answers a second of one core; the server and the generator have one each. The targets
are about what is done here: an exporter's own work, in a thread of the same process, comes on top
of it, and `read` shows the part of that which reading the spans is.
"""

import sys
from functools import partial

from harness import (
    RIVALS,
    Sample,
    Samples,
    Settings,
    Target,
    interleave,
    lacking,
    run_json,
    tool,
    versus,
)

OFF = "off"
ALL = "middleware+metrics+traces"
ALL_1 = "middleware+metrics+traces1"
SERVERS = {
    OFF: 300_000,
    "middleware": 200_000,
    "metrics": 300_000,
    "traces1": 200_000,
    "traces": 200_000,
    ALL_1: 150_000,
    ALL: 150_000,
    "read": 60_000,
    "sdk": 30_000,
}
# what an extra needs: the module and its package
PACKAGES = [
    ("metrics", "prometheus_client", "prometheus-client"),
    ("traces", "opentelemetry", "opentelemetry-sdk"),
    ("read", "opentelemetry", "opentelemetry-sdk"),
    ("sdk", "opentelemetry", "opentelemetry-sdk"),
]


def throughput(settings: Settings) -> Samples:
    """64 in flight."""

    def measure(name: str) -> Sample:
        needed = {module: package for extra, module, package in PACKAGES if extra in name}
        if without := lacking(**needed):
            return without
        count = settings.calls(SERVERS[name])
        command = [
            tool("stdio_load"),
            *("--calls", str(count), "--warmup", str(min(5_000, count // 5))),
            *("--window", "64", "--size", "64", "--tool", "echo", "--timeout", "120"),
            *("--spin", "yes", "--burst", "8"),
            *("--", sys.executable, str(RIVALS / "ws_extras.py"), name),
        ]
        return run_json(command, 150)

    return interleave(settings, {name: partial(measure, name) for name in SERVERS})


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    settings.say("extras: 64 in flight")
    flight = throughput(settings)
    targets = []
    for key, extras, question, limit in (
        ("extras.all", ALL, "all extras on, every trace kept: without extras", 3),
        ("extras.all_1", ALL_1, "all extras on, one trace of a hundred kept: without extras", 2),
    ):
        targets.append(versus(key, question, limit, flight, OFF, [extras], at_least=False))
    return {"64 in flight": flight}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "extras", *sys.argv[1:]])
