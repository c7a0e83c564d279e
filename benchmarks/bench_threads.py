"""How much later do answers come while a plain function keeps a worker thread busy?

A stdio server answers an async echo, one call at a time, first alone and then beside a tool that
burns CPU in a thread. Whenever the loop's thread lets go of the GIL, the busy thread may keep it
for the switch interval (sys.setswitchinterval, 5 ms). Waiting for input is one such place for every
loop, so a bare echo without any protocol shows what cannot be less. Both are measured with an
interval of 0.5 ms, too. The p99 is that interval as soon as one call in a hundred is late, so the
share of late calls says more.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from harness import (
    RIVALS,
    TIMES,
    Sample,
    Samples,
    Settings,
    Target,
    correct,
    interleave,
    medians,
    ratios,
    why_wrong,
)

LOOPS = ("uvloop", "asyncio")
SCRIPTS = {"wirespeed": "threads_server.py", "bare echo": "threads_floor.py"}
INTERVALS = (0.005, 0.0005)
LATE = 0.001  # seconds

CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
    b'"params":{"name":"%b","arguments":{"%b":%b}}}\n'
)
HELLO = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"threads","version":"1"}}}\n'
)
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def timed(ask: Callable[[bytes], bytes], seconds: float) -> tuple[float, float]:
    """Calls for some seconds: their p99 in µs, and how many of a thousand are late."""
    taken = []
    end = time.perf_counter() + seconds
    number = 1
    while time.perf_counter() < end:
        number += 1
        text = b'"text %d"' % number
        request = CALL % (number, b"echo", b"text", text)
        begun = time.perf_counter()
        answer = ask(request)
        taken.append(time.perf_counter() - begun)
        if text[1:-1] not in answer:
            raise ValueError(f"a wrong answer: {answer[:200]!r}")
    late = sum(one > LATE for one in taken) / len(taken) * 1000
    return sorted(taken)[len(taken) * 99 // 100] * 1e6, late


def measure(script: str, loop: str, interval: float, seconds: float) -> Sample:
    """A server alone, and beside the busy thread."""
    with subprocess.Popen(
        [sys.executable, str(RIVALS / script), str(interval)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=os.environ | {"WIRESPEED_LOOP": loop},
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        put, get = server.stdin.fileno(), server.stdout.fileno()

        def ask(request: bytes) -> bytes:
            os.write(put, request)
            answer = os.read(get, 1 << 16)
            while answer and not answer.endswith(b"\n"):
                answer += os.read(get, 1 << 16)
            return answer

        try:
            ask(HELLO)
            if script == SCRIPTS["wirespeed"]:
                os.write(put, READY)
            timed(ask, 0.1 * seconds)
            alone, _ = timed(ask, seconds)
            os.write(put, CALL % (1, b"burn", b"seconds", b"%g" % (3 * seconds)))
            if script != SCRIPTS["wirespeed"]:
                os.read(get, 1 << 16)  # it echoes everything
            time.sleep(0.5 * seconds)
            beside, late = timed(ask, seconds)
        except (OSError, ValueError) as error:
            return {"correct": False, "error": f"{type(error).__name__}: {error}"}
        finally:
            server.kill()
    taken = {"alone_us": alone, "beside_us": beside, "growth": beside / alone, "late": late}
    return {"correct": True, **taken}


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    seconds = max(0.1, min(1.0, settings.scale))
    samples: dict[str, Samples] = {}
    targets = []
    for interval in INTERVALS:
        for loop in LOOPS:
            key = f"{loop}, {interval * 1000:g} ms"
            settings.say(f"threads: {key}")
            contenders = {
                name: partial(measure, script, loop, interval, seconds)
                for name, script in SCRIPTS.items()
            }
            taken = samples[key] = interleave(settings, contenders)
            right = correct(taken, *SCRIPTS)
            note = why_wrong(taken, *SCRIPTS)
            shown = {
                f"{name}, {when}": value
                for when in ("alone_us", "beside_us", "late")
                for name, value in medians(taken, when).items()
            }
            targets += [
                Target(
                    f"threads.growth.{loop}.{interval:g}",
                    f"p99 of one call beside a busy thread ({key}): alone",
                    3, False, TIMES, [s["growth"] for s in taken["wirespeed"]] if right else [],
                    right, note, shown,
                ),
                Target(
                    f"threads.floor.{loop}.{interval:g}",
                    f"the same, calls later than 1 ms ({key}): a bare echo's",
                    1.5, False, TIMES, ratios(taken, "wirespeed", "bare echo", "late"),
                    right, note,
                ),
            ]  # fmt: skip
    return samples, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "threads", *sys.argv[1:]])
