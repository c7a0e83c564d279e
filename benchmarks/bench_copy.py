"""How many payload bytes does the engine copy, and does a long line cost more per byte?

Messages that arrive whole must not be copied at all.  Lines of 1 MiB and of 64 MiB come from
another process through a real pipe, read straight into the session; searching from the start at
every read would be quadratic.  A first line of each length is not timed: the pages that a virtual
machine gives out for the first time say nothing of the engine.
"""

import gc
import os
import subprocess
import sys
import time

import corpus
from harness import TIMES, Sample, Samples, Settings, Target, correct, interleave, ratios

# writes the message on its stdin, as often as told, whenever a byte has come after it
WRITER = """
import os, sys
length, lines = int(sys.argv[1]), int(sys.argv[2])
line = sys.stdin.buffer.read(length)
while sys.stdin.buffer.read(1):
    for _ in range(lines):
        view = memoryview(line)
        while view:
            view = view[os.write(1, view):]
"""
SHORT, LONG = 1 << 20, 64 << 20


def whole_messages() -> dict[str, list[bytes]]:
    numbers = range(corpus.FIRST_ID, corpus.FIRST_ID + 4)
    return {
        "2,000 of 164 bytes": [corpus.small_chunk()],
        "81 KB rows": corpus.framed(map(corpus.rows_message, numbers)),
        "64 KiB string": corpus.framed(map(corpus.string_message, numbers)),
        "1 MiB string": [corpus.big_message(corpus.FIRST_ID, SHORT) + b"\n"],
    }


def count_copied(chunks: list[bytes]) -> Sample:
    """Feeds chunks that hold whole messages; the payload bytes copied."""
    from engine_adapter import bytes_copied, new_session, requests

    session = new_session()
    try:
        seen = [request for chunk in chunks for request in requests(session, chunk)]
        copied = bytes_copied(session)
    except Exception as error:
        return {"correct": False, "error": f"{type(error).__name__}: {error}"}
    messages = sum(chunk.count(b"\n") for chunk in chunks)
    if len(seen) != messages:
        return {"correct": False, "error": f"{len(seen)} requests, not {messages}"}
    return {"correct": True, "bytes_copied": copied, "bytes": sum(map(len, chunks))}


def time_lines(length: int, lines: int) -> Sample:
    """Seconds per byte for lines of `length` bytes of text, from the first read to the events."""
    from engine_adapter import bytes_copied, new_session, read_events

    line = corpus.big_message(corpus.FIRST_ID, length) + b"\n"
    try:
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(len(line)), str(lines)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        ) as writer:
            assert writer.stdin is not None and writer.stdout is not None
            source = writer.stdout.fileno()
            view = memoryview(line)
            while view:
                view = view[os.write(writer.stdin.fileno(), view) :]
            session = new_session()
            seconds = 0.0
            for _ in range(2):
                writer.stdin.write(b"!")
                begun = time.perf_counter()
                events = 0
                while events < lines:
                    events += read_events(session, source)
                seconds = time.perf_counter() - begun  # of the second time
                if events != lines:
                    return {"correct": False, "error": f"{events} events, not {lines}"}
            copied = bytes_copied(session)
            writer.stdin.close()
    except Exception as error:
        return {"correct": False, "error": f"{type(error).__name__}: {error}"}
    size = len(line) * lines
    return {
        "correct": True,
        "ns_per_byte": seconds / size * 1e9,
        "bytes_copied_per_byte": copied / (2 * size),
    }


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    settings.say("copy: whole messages")
    whole: Samples = {name: [count_copied(chunks)] for name, chunks in whole_messages().items()}
    right = correct(whole, *whole)
    copied = [float(s[0]["bytes_copied"]) for s in whole.values()] if right else []
    settings.say("copy: long lines")
    gc.collect()
    short, long = "64 lines of 1 MiB", "one line of 64 MiB"
    lines = interleave(
        settings,
        {short: lambda: time_lines(SHORT, 64), long: lambda: time_lines(LONG, 1)},
        rounds=min(settings.rounds, 5),
    )
    faults = [s for taken in (*whole.values(), *lines.values()) for s in taken if "error" in s]
    note = faults[0]["error"] if faults else ""
    targets = [
        Target(
            "copy.whole", "payload bytes copied, messages that arrived whole", 0, False, " bytes",
            [max(copied)] if copied else [], right, note,
        ),
        Target(
            "copy.long", "cost per byte, one line of 64 MiB: lines of 1 MiB", 2, False, TIMES,
            ratios(lines, long, short, "ns_per_byte"), correct(lines, short, long), note,
        ),
    ]  # fmt: skip
    return {"whole": whole, "lines": lines}, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "copy", *sys.argv[1:]])
