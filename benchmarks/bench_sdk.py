"""The gain of an unchanged program of the official SDK on the adapter.

The same programs of mcp 2.3.0 run as they come, pinned to one processor (where the SDK is
fastest), and by ``python -m wirespeed.adapters.mcp``: a server on stdio in both eras, over
Streamable HTTP, and a client against an echo server in C. The load generators check every answer.
The result has wall-clock time and the processor time of the server.
"""

import os
import subprocess
import sys
from functools import partial

from bench_connections import load
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
from listening import against

STOCK = "mcp 2.3.0"
PINNED = "mcp 2.3.0, one processor"
ADAPTED = "on the adapter"
CALLS = {STOCK: 3_000, PINNED: 3_000, ADAPTED: 30_000}
SIZE = 64
CONNECTIONS = 16


def packages(settings: Settings) -> str:
    """The folder of the SDK's packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    run = subprocess.run(
        [settings.rival("mcp2"), "-c", code], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def command(settings: Settings, name: str, script: str) -> list[str]:
    """The command that runs a program of the SDK in one of the three ways."""
    program = str(RIVALS / script)
    if name != ADAPTED:
        pinned = ["taskset", "--cpu-list", "0"] if name == PINNED else []
        return [*pinned, settings.rival("mcp2"), program]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), packages(settings))))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-m", "wirespeed.adapters.mcp", program]


def stdio(settings: Settings, name: str, era: str, window: int) -> Sample:
    calls = settings.calls(CALLS[name] if window > 1 else CALLS[name] // 6)
    return run_json(
        [
            tool("stdio_load"),
            *("--calls", str(calls), "--warmup", str(max(64, calls // 5))),
            *("--window", str(window), "--size", str(SIZE), "--tool", "echo", "--era", era),
            *("--timeout", "120", "--", *command(settings, name, "mcp2_server.py")),
        ],
        150,
    )


def over_http(settings: Settings, name: str, era: str) -> Sample:
    calls = max(CONNECTIONS, settings.calls(CALLS[name]))
    return against(
        command(settings, name, "mcp2_run_http.py"),
        lambda server: load(
            server, "http_load", "--pid", str(server.pid), "--era", era, "--calls", str(calls),
            "--warmup", str(max(CONNECTIONS, calls // 5)), "--spin", "no", "--timeout", "120",
            "--connections", str(CONNECTIONS), "--size", str(SIZE), timeout=150,
        ),
    )  # fmt: skip


def client(settings: Settings, name: str, window: int) -> Sample:
    count = settings.calls(CALLS[name])
    return run_json(
        [
            *command(settings, name, "mcp2_client.py"),
            *("--calls", str(count), "--warmup", str(count // 5), "--window", str(window)),
            *("--timeout", "120", "--", tool("echo_child")),
        ],
        150,
    )


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    every = (STOCK, PINNED, ADAPTED)
    taken: dict[str, Samples] = {}
    targets = []
    for key, what, measure, names, figure, limits in (
        ("sdk.stdio", "stdio, 64 in flight", partial(stdio, settings, era="legacy", window=64),
         every, "calls_per_s", {STOCK: 12, PINNED: 8}),
        ("sdk.modern", "stdio, 2026-07-28, 64 in flight",
         partial(stdio, settings, era="modern", window=64), every, "calls_per_s",
         {STOCK: 7, PINNED: 7}),
        ("sdk.one", "stdio, one in flight, p50",
         partial(stdio, settings, era="legacy", window=1), every, "p50_us", {STOCK: 0.2}),
        ("sdk.http", "HTTP, 16 connections", partial(over_http, settings, era="legacy"), every,
         "calls_per_s", {STOCK: 8, PINNED: 8}),
        ("sdk.http_modern", "HTTP, 2026-07-28, 16 connections",
         partial(over_http, settings, era="modern"), every, "calls_per_s", {STOCK: 8}),
        ("sdk.client", "client, 64 in flight", partial(client, settings, window=64), every,
         "calls_per_s", {STOCK: 7, PINNED: 7}),
    ):  # fmt: skip
        settings.say(f"sdk: {what}")
        samples = interleave(settings, {name: partial(measure, name=name) for name in names})
        taken[what] = samples
        for theirs, limit in limits.items():
            targets.append(
                versus(
                    f"{key}.{'pinned' if theirs == PINNED else 'stock'}",
                    f"an unchanged program of mcp on the adapter, {what}: {theirs}", limit,
                    samples, ADAPTED, [theirs], figure, at_least=figure == "calls_per_s",
                )
            )  # fmt: skip
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "sdk", *sys.argv[1:]])
