"""What does wirespeed cost before and beside the work: import, memory, start, an unread peer?

An import costs what a fresh process takes from its spawn to its end, less what one takes that
imports asyncio alone: every server needs asyncio.  Both run in turns, bytecode in place.  The
unread peer sends up to a million requests and reads
nothing until the server has taken no byte for two seconds; then it reads everything and counts,
because a server that stays small by losing requests would not do.
"""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import (
    RIVALS,
    Sample,
    Samples,
    Settings,
    Target,
    correct,
    interleave,
    medians,
    run_json,
    tool,
    why_wrong,
    within,
)

REQUESTS = 1_000_000
IMPORTS = 20  # processes of each kind
STALL_S = 2.0
DRAIN_S = 60.0


def import_time(python: str, statement: str) -> Sample:
    """Spawn to end of a process that imports and does nothing else."""
    environ = {**os.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each import of a checkout compiles
    begun = time.perf_counter()
    try:
        subprocess.run([python, "-c", statement], check=True, timeout=60, env=environ)
    except (OSError, subprocess.SubprocessError) as error:
        return {"correct": False, "error": f"{type(error).__name__}: {error}"}
    return {"correct": True, "ms": (time.perf_counter() - begun) * 1e3}


def differences(samples: Samples, ours: str, base: str) -> list[float]:
    """ours less the base, for each round; empty if either failed."""
    if not correct(samples, ours, base):
        return []
    pairs = zip(samples[ours], samples[base], strict=True)
    return [mine["ms"] - least["ms"] for mine, least in pairs]


def start_time(python: str, script: str) -> Sample:
    """Spawn to the reply to initialize, taken by the C load generator."""
    command = [tool("stdio_load"), "--calls", "0", "--warmup", "0"]
    return run_json([*command, "--", python, str(RIVALS / script)], 90)


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(f"process {pid} has no memory: it ended")
    run = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True)
    return int(run.stdout) * 1024


@contextlib.contextmanager
def started(python: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server after its handshake."""
    child = subprocess.Popen(
        [python, str(RIVALS / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    try:
        assert child.stdin and child.stdout
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "footprint", "version": "1"},
        }
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        child.stdin.write(json.dumps(request).encode() + b"\n")
        reply = b""
        deadline = time.monotonic() + 30
        while not reply.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                raise TimeoutError("no reply to initialize")
            got = child.stdout.read(65536)
            if not got:
                raise EOFError("the server ended before it replied to initialize")
            reply += got
        if "result" not in json.loads(reply):
            raise ValueError(f"initialize was answered with {reply[:200]!r}")
        child.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield child
    finally:
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def idle_memory(python: str, script: str) -> Sample:
    with started(python, script) as child:
        time.sleep(0.3)
        return {"correct": True, "mib": resident(child.pid) / 2**20}


def flood_requests(block: int, blocks: int) -> Iterator[bytes]:
    """Blocks of tools/call requests with ids from 1."""
    text = "f" * 64
    for number in range(blocks):
        yield b"".join(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
            b'{"name":"echo","arguments":{"text":"%s"}}}\n' % (id, text.encode())
            for id in range(1 + number * block, 1 + (number + 1) * block)
        )


def unread_peer(python: str, script: str, limit_s: float) -> Sample:
    """Growth of a server whose peer sends and never reads, then whether it answers all."""
    with started(python, script) as child:
        assert child.stdin and child.stdout
        time.sleep(0.3)
        before = peak = resident(child.pid)
        output, answers = child.stdin.fileno(), child.stdout.fileno()
        for fd in (output, answers):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        begun = time.monotonic()
        sent = lines_sent = 0
        rest = b""
        stalled = False
        for block in flood_requests(1000, REQUESTS // 1000):
            rest = block
            while rest and not stalled:
                # Measured on every stall too: what was taken may still be growing inside.
                if select.select([], [output], [], STALL_S)[1]:
                    wrote = os.write(output, rest[:65536])
                    lines_sent += rest.count(b"\n", 0, wrote)
                    sent += wrote
                    rest = rest[wrote:]
                else:
                    stalled = True
                peak = max(peak, resident(child.pid))
                if time.monotonic() - begun > limit_s:
                    stalled = True
            if stalled:
                break
        seconds = time.monotonic() - begun
        peak = max(peak, resident(child.pid))

        # Now read: the unfinished line is completed, and every request must have its answer.
        rest = rest[: rest.find(b"\n") + 1] if rest else b""
        lines_sent += rest.count(b"\n")
        counted = 0
        unfinished = b""
        ids = bytearray(lines_sent + 1)
        wrong = ""
        deadline = time.monotonic() + DRAIN_S
        while counted < lines_sent and time.monotonic() < deadline and not wrong:
            able, ready, _ = select.select([answers], [output] if rest else [], [], 1.0)
            if ready:
                rest = rest[os.write(output, rest) :]
            if not able:
                continue
            got = os.read(answers, 1 << 20)
            if not got:
                wrong = "the server closed its output"
                break
            *lines, unfinished = (unfinished + got).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "id" not in message:
                    continue
                if "result" not in message or ids[message["id"]]:
                    wrong = f"not one result an id: {line[:200]!r}"
                    break
                ids[message["id"]] = 1
                counted += 1
        if not wrong and counted < lines_sent:
            wrong = f"{lines_sent - counted} of {lines_sent} requests were not answered"
    return {
        "correct": not wrong,
        "error": wrong or None,
        "growth_mib": (peak - before) / 2**20,
        "requests_taken": lines_sent,
        "bytes_taken": sent,
        "stopped_reading": stalled and seconds < limit_s,
        "seconds": seconds,
    }


def guarded(measure: Callable[[], Sample]) -> Callable[[], Sample]:
    """A server that fails gives a sample without a number."""

    def run() -> Sample:
        try:
            return measure()
        except (OSError, EOFError, ValueError, AssertionError) as error:
            return {"correct": False, "error": f"{type(error).__name__}: {error}"}

    return run


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    ours, theirs = sys.executable, settings.rivals_python
    settings.say("footprint: import")
    base, server = "import asyncio", "from wirespeed import Server"
    statements = (base, "import wirespeed", server, f"{server}, Client")
    for statement in statements:
        import_time(ours, statement)  # writes the bytecode of a checkout
    imports = interleave(
        settings,
        {each: lambda each=each: import_time(ours, each) for each in statements},  # type: ignore[misc]
        rounds=max(settings.rounds, IMPORTS),
    )
    rival_statement = "from mcp.server.mcpserver import MCPServer"
    imports |= interleave(settings, {rival_statement: lambda: import_time(theirs, rival_statement)})
    settings.say("footprint: start")
    starts = interleave(
        settings,
        {
            "wirespeed": lambda: start_time(ours, "ws_server.py"),
            "mcp 2.3.0": lambda: start_time(theirs, "mcp2_server.py"),
        },
    )
    settings.say("footprint: idle server")
    idle = interleave(
        settings,
        {
            "wirespeed": guarded(lambda: idle_memory(ours, "ws_server.py")),
            "mcp 2.3.0": guarded(lambda: idle_memory(theirs, "mcp2_server.py")),
        },
        rounds=min(settings.rounds, 3),
    )
    settings.say("footprint: a peer that never reads")
    flood = interleave(
        settings,
        {"wirespeed": guarded(lambda: unread_peer(ours, "ws_server.py", 60))},
        rounds=min(settings.rounds, 2),
    )
    settings.say("footprint: the same, mcp 2.3.0 for 8 s")
    rival = guarded(lambda: unread_peer(theirs, "mcp2_server.py", 8))()
    flood["mcp 2.3.0, first 8 s"] = [rival]

    targets = [
        Target("footprint.import_server", f"{server}: more than {base}", 60, False, " ms",
               differences(imports, server, base), correct(imports, server, base),
               why_wrong(imports, server, base), medians(imports, "ms")),
        within("footprint.ready", "spawn to the reply to initialize", 200, " ms",
               starts, "wirespeed", "ready_s", scale=1e3),
        within("footprint.idle", "resident, server after initialize", 30, " MiB",
               idle, "wirespeed", "mib"),
        within("footprint.flood", "growth, a million requests and no answer read", 16, " MiB",
               flood, "wirespeed", "growth_mib"),
    ]  # fmt: skip
    return {"import": imports, "start": starts, "idle": idle, "unread peer": flood}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "footprint", *sys.argv[1:]])
