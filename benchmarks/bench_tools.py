"""A server with a thousand typed tools: how long until it serves, and how long does a list take?

The time to start is from the spawn to the reply to initialize, in fresh processes. A list is taken
over the pipe, from the write of the request to the last byte of the reply; the first one, which
encodes the page, is shown apart.
"""

import json
import statistics
import sys
import time

from bench_footprint import guarded, started
from harness import Sample, Samples, Settings, Target, correct, interleave, within

SCRIPT = "many_tools_server.py"
N = 1000
LISTS = 50
REQUEST = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}\n'


def listed() -> Sample:
    begun = time.perf_counter()
    with started(sys.executable, SCRIPT) as child:
        ready = time.perf_counter() - begun
        assert child.stdin and child.stdout
        taken = []
        right = True
        for n in range(1, LISTS + 1):
            begun = time.perf_counter()
            child.stdin.write(REQUEST % n)
            parts = [child.stdout.read(1 << 20)]
            while not parts[-1].endswith(b"\n"):
                parts.append(child.stdout.read(1 << 20))
                if not parts[-1]:
                    raise EOFError("the server ended")
            taken.append(time.perf_counter() - begun)
            answer = json.loads(b"".join(parts))
            names = {tool["name"] for tool in answer["result"]["tools"]}
            right = right and answer["id"] == n and len(names) == N
    return {
        "correct": right,
        "ready_ms": ready * 1e3,
        "first_ms": taken[0] * 1e3,
        "list_ms": statistics.median(taken[1:]) * 1e3,
    }


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    settings.say("tools: a thousand")
    samples = interleave(settings, {"wirespeed": guarded(listed)})
    right = correct(samples, "wirespeed")

    targets = [
        within("tools.start", "1,000 tools: spawn to the reply to initialize", 500, " ms", samples,
               "wirespeed", "ready_ms"),
        within("tools.list", "1,000 tools: tools/list", 2, " ms", samples, "wirespeed", "list_ms"),
    ]  # fmt: skip
    if right:
        first = statistics.median(sample["first_ms"] for sample in samples["wirespeed"])
        targets[1].figures["the first list, which encodes it"] = first
    return {"a thousand tools": samples}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "tools", *sys.argv[1:]])
