"""What do many WebSocket connections cost: idle ones, and ones that come and go?

Idle: the growth of the server's resident memory while 10,000 connections are open that have shaken
hands, over what it was after a thousand had come and gone.  Coming and going: connections enter,
call and leave in every way a client can (see load/ws_churn.c); before and after, the server itself
tells its tasks and descriptors, and gives back what malloc(3) holds in reserve, so that resident
memory is what is in use.  A first spell is not counted: it fills the pools.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench_footprint import resident
from harness import (
    Sample,
    Samples,
    Settings,
    Target,
    interleave,
    run_json,
    tool,
    within,
)
from listening import Listening, against, script

IDLE = 10_000
COMING = 2_000
SETTLING_S = 60.0  # longer than keep-alive needs to notice a client that vanished

# contender -> (environment, script)
SERVERS = {
    "wirespeed": ("", "websocket_server.py"),
    "picows, a Task a request": ("websocket", "picows_tasks.py"),
}


def held(server: Listening) -> dict[str, Any]:
    """What the server says it holds, this connection included, and its resident memory."""
    from websockets.sync.client import connect

    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "held", "version": "1"},
    }
    steps: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "held", "arguments": {}}},
    ]
    untrimmed = resident(server.pid) / 2**20
    with connect(server.url, subprotocols=["mcp"], compression=None) as socket:  # type: ignore[list-item]
        for step in steps:
            socket.send(json.dumps({"jsonrpc": "2.0", **step}))
            if "id" in step:
                answer = json.loads(socket.recv(timeout=20))
                if answer["id"] != step["id"]:
                    raise ValueError(f"an answer to another id: {answer}")
    counts: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return counts | {"mib": resident(server.pid) / 2**20, "untrimmed_mib": untrimmed}


# asks a server what it holds
Ask = Callable[[Listening], dict[str, Any]]


def load(server: Listening, program: str, *options: str, timeout: float = 120) -> Sample:
    return run_json([tool(program), "--port", str(server.port), *options], timeout)


def settled(server: Listening, files: int, ask: Ask) -> dict[str, Any]:
    """What is held once the descriptors are down to `files` and sessions are over, or after a
    while."""
    begun = time.monotonic()
    first = now = ask(server)
    while (now["files"] > files or now["sessions"]) and time.monotonic() - begun < SETTLING_S:
        time.sleep(0.2)
        now = ask(server)
    seconds = time.monotonic() - begun
    return now | {"settled_s": seconds, "untrimmed_mib": first["untrimmed_mib"]}


def idle(server: Listening, connections: int, program: str, *options: str) -> Sample:
    warm = load(server, program, "--connections", str(max(20, connections // 10)),
                "--calls", "20000", "--warmup", "0", *options)  # fmt: skip
    if not warm["correct"]:
        return warm
    time.sleep(1)
    before = resident(server.pid)
    command = [tool(program), "--port", str(server.port), "--connections", str(connections)]
    with subprocess.Popen(
        [*command, *options, "--sources", "8", "--hold", "yes", "--calls", "0", "--warmup", "0",
         "--timeout", "120"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdin and holder.stdout
        sample: Sample = json.loads(holder.stdout.readline())
        time.sleep(2)
        grown = resident(server.pid) - before
        holder.stdin.close()
        if sample["correct"]:
            sample = json.loads(holder.stdout.readline())
    return sample | {"kib_each": grown / 1024 / connections, "before_mib": before / 2**20}


def churn(
    server: Listening, connections: int, seconds: float, program: str, ask: Ask = held
) -> Sample:
    options = ("--connections", str(connections))
    files = ask(server)["files"]
    first = load(server, program, *options, "--seconds", str(seconds), timeout=seconds + 60)
    if not first["correct"]:
        return first
    before = settled(server, files, ask)
    sample = load(server, program, *options, "--seconds", str(seconds), timeout=seconds + 60)
    after = settled(server, before["files"], ask)
    left = {f"{name}_left": after[name] - before[name] for name in before if name != "settled_s"}
    return sample | left | {"before": before, "after": after}


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    connections = max(200, min(IDLE, int(IDLE * settings.scale)))
    settings.say(f"connections: {connections} idle")
    few = interleave(
        settings,
        {
            name: partial(
                against,
                script(settings, environment, program),
                lambda server: idle(server, connections, "ws_load", "--window", "1"),
            )
            for name, (environment, program) in SERVERS.items()
        },
        rounds=min(settings.rounds, 3),
    )
    settings.say(f"connections: coming and going for {settings.seconds:g} s")
    ours, program = "wirespeed", SERVERS["wirespeed"][1]
    coming = interleave(
        settings,
        {
            ours: partial(
                against,
                script(settings, "", program),
                lambda server: churn(server, COMING, settings.seconds, "ws_churn"),
            )
        },
        rounds=1,
    )

    spell = f"{COMING:,} connections coming and going for {settings.seconds:g} s"
    targets = [
        within("connections.idle", f"resident memory of each of {connections:,} idle connections",
               12, " KiB", few, ours, "kib_each"),
        within("connections.memory", f"{spell}: memory left behind", 2, " MiB", coming, ours,
               "mib_left"),
        within("connections.tasks", "the same: tasks left behind", 0, "", coming, ours,
               "tasks_left"),
        within("connections.files", "the same: descriptors left behind", 0, "", coming, ours,
               "files_left"),
    ]  # fmt: skip
    return {"idle": few, "coming and going": coming}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "connections", *sys.argv[1:]])
