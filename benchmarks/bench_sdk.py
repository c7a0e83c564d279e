"""The gain of unchanged programs of other SDKs on the adapters.

The same programs run as they come and by ``python -m wirespeed.adapters.…``: servers and clients of
mcp 2.3.0 (in both eras, over stdio and Streamable HTTP), of mcp 1.30.0 and of FastMCP 4.2.3. Those
of mcp 2.3.0 run pinned to one processor, too, where that SDK is fastest. Clients call an echo
server in C. The load generators check every answer. The result has wall-clock time and the
processor time of what is measured.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from bench_connections import load
from harness import (
    HERE,
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

STOCK = "as it comes"
PINNED = "on one processor"
ADAPTED = "on the adapter"
FIELD = HERE / "field" / "programs" / "python"
SIZE = 64
CONNECTIONS = 16

# The environments of SDKs: the adapter, and calls for a measurement without it and with it.
SDKS = {
    "mcp2": ("wirespeed.adapters.mcp", 3_000, 30_000),
    "mcp1": ("wirespeed.adapters.mcp1", 1_500, 15_000),
    "fastmcp4": ("wirespeed.adapters.fastmcp", 1_500, 6_000),
}


def packages(settings: Settings, sdk: str) -> str:
    """The folder of an SDK's packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    run = subprocess.run(
        [settings.rival(sdk), "-c", code], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def command(settings: Settings, name: str, sdk: str, program: str) -> list[str]:
    """The command that runs a program of an SDK in one of the three ways."""
    if name != ADAPTED:
        pinned = ["taskset", "--cpu-list", "0"] if name == PINNED else []
        return [*pinned, settings.rival(sdk), program]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), packages(settings, sdk))))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-m", SDKS[sdk][0], program]


def calls_of(settings: Settings, name: str, sdk: str, window: int) -> int:
    _, stock, adapted = SDKS[sdk]
    calls = adapted if name == ADAPTED else stock
    return settings.calls(calls if window > 1 else calls // 6)


def costs(sample: Sample, calls: int, key: str = "server_cpu_s") -> Sample:
    """The sample with processor time of a call."""
    if key in sample:
        sample["cpu_us"] = sample[key] / calls * 1e6
    return sample


def stdio(
    settings: Settings,
    name: str,
    *,
    sdk: str = "mcp2",
    era: str = "legacy",
    window: int = 64,
    setting: str = "documented",
) -> Sample:
    """Calls of a server on stdio. ``setting`` is for the programs of mcp 1.30.0 and FastMCP."""
    calls = calls_of(settings, name, sdk, window)
    if sdk == "mcp2":
        served = command(settings, name, sdk, str(RIVALS / "mcp2_server.py"))
    else:
        program = "mcp1_server.py" if sdk == "mcp1" else "fastmcp_server.py"
        served = [*command(settings, name, sdk, str(FIELD / program)), "stdio", setting, "0"]
    sample = run_json(
        [
            tool("stdio_load"),
            *("--calls", str(calls), "--warmup", str(max(64, calls // 5))),
            *("--window", str(window), "--size", str(SIZE), "--tool", "echo", "--era", era),
            *("--timeout", "120", "--", *served),
        ],
        150,
    )
    return costs(sample, calls)


def over_http(settings: Settings, name: str, *, era: str) -> Sample:
    """Calls of a server of mcp 2.3.0 over Streamable HTTP."""
    calls = max(CONNECTIONS, calls_of(settings, name, "mcp2", CONNECTIONS))
    sample = against(
        command(settings, name, "mcp2", str(RIVALS / "mcp2_run_http.py")),
        lambda server: load(
            server, "http_load", "--pid", str(server.pid), "--era", era, "--calls", str(calls),
            "--warmup", str(max(CONNECTIONS, calls // 5)), "--spin", "no", "--timeout", "120",
            "--connections", str(CONNECTIONS), "--size", str(SIZE), timeout=150,
        ),
    )  # fmt: skip
    return costs(sample, calls)


def client(settings: Settings, name: str, *, sdk: str = "mcp2", window: int = 64) -> Sample:
    """Calls by a client on stdio."""
    calls = calls_of(settings, name, sdk, window)
    warmup = calls // 5
    if sdk == "mcp2":
        sample = run_json(
            [
                *command(settings, name, sdk, str(RIVALS / "mcp2_client.py")),
                *("--calls", str(calls), "--warmup", str(warmup), "--window", str(window)),
                *("--timeout", "120", "--", tool("echo_child")),
            ],
            150,
        )
        return costs(sample, calls, "client_cpu_s")
    program = str(FIELD / ("mcp1_client.py" if sdk == "mcp1" else "fastmcp_client.py"))
    numbers = map(str, (calls, warmup, window))
    said = run_json([*command(settings, name, sdk, program), *numbers, tool("echo_child")], 150)
    if "wrong" not in said:
        return said
    said["correct"] = said["wrong"] == 0
    said["calls_per_s"] = calls / said["seconds"]
    return costs(said, calls, "cpu_seconds")


Measure = Callable[..., Sample]
# What is measured: a key, a name, the function, and the gain that is wanted of a figure, over the
# programs as they come and pinned to a processor.
ROWS: list[tuple[str, str, Measure, str, dict[str, float]]] = [
    ("stdio", "mcp 2.3.0, server on stdio", partial(stdio, era="legacy"),
     "calls_per_s", {STOCK: 12, PINNED: 8}),
    ("modern", "mcp 2.3.0, server on stdio, 2026-07-28", partial(stdio, era="modern"),
     "calls_per_s", {STOCK: 7, PINNED: 7}),
    ("one", "mcp 2.3.0, server on stdio, one in flight, p50", partial(stdio, window=1),
     "p50_us", {STOCK: 0.2}),
    ("http", "mcp 2.3.0, server over HTTP", partial(over_http, era="legacy"),
     "calls_per_s", {STOCK: 8, PINNED: 8}),
    ("http_modern", "mcp 2.3.0, server over HTTP, 2026-07-28", partial(over_http, era="modern"),
     "calls_per_s", {STOCK: 8, PINNED: 8}),
    ("client", "mcp 2.3.0, client", client, "calls_per_s", {STOCK: 7, PINNED: 7}),
    ("mcp1", "mcp 1.30.0, server on stdio", partial(stdio, sdk="mcp1"),
     "calls_per_s", {STOCK: 2}),
    ("mcp1_fastest", "mcp 1.30.0, server on stdio, fastest settings",
     partial(stdio, sdk="mcp1", setting="fastest"), "calls_per_s", {STOCK: 2}),
    ("mcp1_client", "mcp 1.30.0, client", partial(client, sdk="mcp1"),
     "calls_per_s", {STOCK: 2}),
    ("fastmcp", "FastMCP 4.2.3, server on stdio", partial(stdio, sdk="fastmcp4"),
     "calls_per_s", {STOCK: 3}),
    ("fastmcp_client", "FastMCP 4.2.3, client", partial(client, sdk="fastmcp4"),
     "calls_per_s", {STOCK: 3}),
]  # fmt: skip


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    taken: dict[str, Samples] = {}
    targets = []
    for key, what, measure, figure, limits in ROWS:
        settings.say(f"sdk: {what}")
        names = (*limits, ADAPTED)
        samples = interleave(settings, {name: partial(measure, settings, name) for name in names})
        taken[what] = samples
        for theirs, limit in limits.items():
            targets.append(
                versus(
                    f"sdk.{key}.{'pinned' if theirs == PINNED else 'stock'}",
                    f"an unchanged program on the adapter: {what}, and {theirs}", limit,
                    samples, ADAPTED, [theirs], figure, at_least=figure == "calls_per_s",
                )
            )  # fmt: skip
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "sdk", *sys.argv[1:]])
