"""How many calls a second does a stdio client make against an echo server in C?

mcp 2.3.0's Client runs on asyncio, as it comes, and on uvloop; the faster of the two in a round
is what wirespeed is compared with.  Every answer's text is checked.

One call at a time is measured twice. With idle processors each call waits for two of them to wake,
which on a virtual machine costs both contenders more than our client itself; with a nice-19 process
on each, which keeps them awake, the difference between the clients shows.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from harness import (
    Sample,
    Samples,
    Settings,
    Target,
    client_load,
    interleave,
    tool,
    versus,
)

# contender -> (environment, script, loop, calls of one round: one, 64 in flight)
CLIENTS: dict[str, tuple[str, str, str, int, int]] = {
    "wirespeed": ("", "our_client.py", "uvloop", 30_000, 150_000),
    "mcp 2.3.0": ("mcp2", "mcp2_client.py", "asyncio", 3_000, 4_000),
    "mcp 2.3.0 on uvloop": ("mcp2", "mcp2_client.py", "uvloop", 3_000, 4_000),
}


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Every processor has something to do, of the lowest priority."""
    busy = [sys.executable, "-c", "import os\nos.nice(19)\nwhile os.getppid() > 1: pass"]
    keepers = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.kill()
            keeper.wait()


def measure(settings: Settings, name: str, window: int, keep_awake: bool) -> Sample:
    environment, script, loop, one, many = CLIENTS[name]
    calls = one if window == 1 else many
    with awake() if keep_awake else contextlib.nullcontext():
        return client_load(settings, environment, script, loop, calls, window, tool("echo_child"))


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    ours, *theirs = CLIENTS
    taken = {}
    targets = []
    for window, keep_awake, key, limit, what in (
        (1, False, "client.one", 6, "one call at a time (processors go idle)"),
        (1, True, "client.one_awake", 6, "one call at a time (processors kept awake)"),
        (64, False, "client.64", 35, "64 in flight"),
    ):
        settings.say(f"client: {what}")
        samples = interleave(
            settings,
            {name: partial(measure, settings, name, window, keep_awake) for name in CLIENTS},
        )
        taken[what] = samples
        targets.append(
            versus(key, f"stdio client, {what}: mcp 2.3.0's client", limit, samples, ours, theirs)
        )
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "client", *sys.argv[1:]])
