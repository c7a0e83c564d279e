"""How many tools/call a second does a stdio server answer, and how soon one?

wirespeed's typed echo tool (async and inline, in both eras) against mcp 2.3.0, two bare uvloop +
msgspec loops and an echo server in C, each a child of the same C load generator, which checks every
answer.
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
    run_json,
    tool,
    versus,
)

# Where the load generator sleeps between answers, or hands over 64 requests in one write, a fast
# server waits for it.  Looking without sleeping and writing eight at a time keeps the bare loops
# busiest; mcp is faster when the generator leaves the second core to its threads.
BUSY = ("--spin", "yes", "--burst", "8")

# contender -> (script or program, tool, in the rivals' environment?, calls a round, how to load it)
SERVERS: dict[str, tuple[str, str, bool, int, tuple[str, ...]]] = {
    "wirespeed": ("ws_server.py", "echo", False, 300_000, BUSY),
    "wirespeed inline": ("ws_server.py", "echo_inline", False, 300_000, BUSY),
    "bare, a Task a request": ("bare_tasks.py", "echo", False, 300_000, BUSY),
    "bare, inline": ("bare_inline.py", "echo", False, 300_000, BUSY),
    "mcp 2.3.0": ("mcp2_server.py", "echo", True, 3_000, ()),
    "wirespeed, 2026-07-28": ("ws_server.py", "echo", False, 300_000, (*BUSY, "--era", "modern")),
    "echo in C": ("echo_child", "echo", False, 300_000, BUSY),
}
SIZE = 64


def load_command(
    settings: Settings, name: str, window: int, calls: int, options: tuple[str, ...]
) -> list[str]:
    script, echo, rival, _, _ = SERVERS[name]
    python = settings.rivals_python if rival else sys.executable
    server = [python, str(RIVALS / script)] if script.endswith(".py") else [tool(script)]
    count = settings.calls(calls)
    return [
        tool("stdio_load"),
        *("--calls", str(count), "--warmup", str(min(5_000, count // 5))),
        *("--window", str(window), "--size", str(SIZE), "--tool", echo, "--timeout", "120"),
        *options,
        *("--", *server),
    ]


def throughput(settings: Settings, names: list[str]) -> Samples:
    """64 in flight."""

    def measure(name: str) -> Sample:
        _, _, _, calls, options = SERVERS[name]
        return run_json(load_command(settings, name, 64, calls, options), 150)

    return interleave(settings, {name: partial(measure, name) for name in names})


def latency(settings: Settings, names: list[str], spin: str) -> Samples:
    """One in flight.  `spin`: the client looks for the answer without sleeping.

    Many short rounds: how long the kernel takes to wake a process changes in steps that last.
    """

    def measure(name: str) -> Sample:
        calls = 500 if SERVERS[name][2] else 5_000
        return run_json(load_command(settings, name, 1, calls, ("--spin", spin)), 150)

    contenders = {name: partial(measure, name) for name in names}
    return interleave(settings, contenders, rounds=3 * settings.rounds)


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    ours, inline, tasks, bare, mcp, modern, in_c = SERVERS
    settings.say("server: 64 in flight")
    flight = throughput(settings, list(SERVERS))
    settings.say("server: one in flight, client sleeps")
    asleep = latency(settings, [ours, inline, tasks, bare, mcp], "no")
    settings.say("server: one in flight, client spins")
    awake = latency(settings, [ours, inline, tasks, bare], "yes")

    targets = []
    for key, us, them, limit, question in (
        ("server.mcp2", ours, mcp, 200, "stdio server, async echo, 64 in flight: mcp 2.3.0"),
        ("server.tasks", ours, tasks, 2, "the same: a bare uvloop + msgspec loop with Tasks"),
        ("server.inline", inline, bare, 1.2, "inline echo, 64 in flight: the bare loop, inline"),
        ("server.c", ours, in_c, 0.8, "async echo, 64 in flight: an echo server in C"),
        ("server.modern", modern, ours, 0.85, "the same in 2026-07-28: in 2025-06-18"),
    ):
        targets.append(versus(key, question, limit, flight, us, [them]))
    for key, samples, how in (
        ("server.p50", asleep, "client sleeps in poll"),
        ("server.p50_spin", awake, "client spins"),
    ):
        targets.append(
            versus(
                key, f"one in flight, p50 ({how}): the bare loop with Tasks", 1.3, samples, ours,
                [tasks], "p50_us", at_least=False,
            )
        )  # fmt: skip
    return {"64 in flight": flight, "one, sleeping": asleep, "one, spinning": awake}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "server", *sys.argv[1:]])
