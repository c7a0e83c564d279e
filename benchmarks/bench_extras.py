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

SERVERS = {
    "off": 300_000,
    "middleware": 200_000,
    "metrics": 300_000,
    "traces1": 100_000,
    "hand1": 50_000,
    "traces": 50_000,
    "hand": 30_000,
    "middleware+metrics+traces1": 100_000,
    "middleware+metrics+traces": 50_000,
    "read": 30_000,
}
# what an extra needs: the module and its package
PACKAGES = [
    ("metrics", "prometheus_client", "prometheus-client"),
    ("traces", "opentelemetry", "opentelemetry-sdk"),
    ("read", "opentelemetry", "opentelemetry-sdk"),
    ("hand", "opentelemetry", "opentelemetry-sdk"),
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
    targets = [
        versus(key, question, 1, flight, ours, [by_hand], beside=["off"])
        for key, ours, by_hand, question in (
            ("extras.traces", "traces", "hand", "every trace kept: spans by hand"),
            ("extras.traces_1", "traces1", "hand1", "one trace of a hundred kept: spans by hand"),
        )
    ]
    return {"64 in flight": flight}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "extras", *sys.argv[1:]])
