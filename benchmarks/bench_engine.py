"""How long does the engine take from bytes to events, with full validation on?

Against `bytes.split` and a msgspec decoder for an envelope struct whose params stay msgspec.Raw.
Both sides must see the same ids, methods and params.  The judged row is `core.MessageReader`, which
does what the rival loop does (framing and envelopes) and validates all of it besides.  A whole
`core.Session`, which also registers every id and refuses duplicates, is measured beside it; each
repetition gets a fresh one (made outside the timed part), because the requests stay in flight.
"""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial

import corpus
import msgspec
from harness import TIMES, Sample, Samples, Settings, Target, correct, interleave, medians, ratios

RIVALS = {"chunk": "bytes.split + msgspec", "rows": "msgspec", "string": "msgspec"}
OURS, SESSION, THEIRS = "wirespeed", "wirespeed, whole session", "split + msgspec"


class Envelope(msgspec.Struct, gc=False):
    jsonrpc: str
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"")


decode = msgspec.json.Decoder(Envelope).decode


def split_and_decode(chunk: bytes) -> int:
    count = 0
    for line in chunk.split(b"\n"):
        if line:
            decode(line)
            count += 1
    return count


# case -> (chunks of one session, messages in them, repetitions of one round, limit, question)
def cases() -> dict[str, tuple[list[bytes], int, int, float, str]]:
    numbers = range(corpus.FIRST_ID, corpus.FIRST_ID + 16)
    return {
        "chunk": (
            [corpus.small_chunk()], corpus.CHUNK_MESSAGES, 60, 3,
            "engine, chunk of 2,000 tools/call messages of 164 bytes to events",
        ),
        "rows": (
            corpus.framed(map(corpus.rows_message, numbers)), 16, 8, 1.5,
            "engine, message of 81 KB, nested rows",
        ),
        "string": (
            corpus.framed(map(corpus.string_message, numbers)), 16, 30, 3,
            "engine, string of 64 KiB",
        ),
    }  # fmt: skip


def check(chunks: list[bytes]) -> str | None:
    """None if engine and decoder see the same requests; else the first difference."""
    from engine_adapter import new_session, requests

    session = new_session()
    for chunk in chunks:
        seen = requests(session, chunk)
        wanted = []
        for line in chunk.split(b"\n"):
            if line:
                one = decode(line)
                wanted.append((str(one.id).encode(), one.method, bytes(one.params)))
        if seen != wanted:
            for got, want in zip(seen, wanted, strict=False):
                if got != want:
                    return f"saw {str(got)[:200]}, not {str(want)[:200]}"
            return f"saw {len(seen)} requests, not {len(wanted)}"
    return None


def sample(seconds: float, messages: int, size: int) -> Sample:
    return {
        "correct": True,
        "seconds": seconds,
        "ns_per_message": seconds / messages * 1e9,
        "mb_per_s": size / seconds / 1e6,
    }


def time_ours(chunks: list[bytes], messages: int, repetitions: int, session: bool) -> Sample:
    from engine_adapter import consume, consume_messages, new_reader, new_session

    make, take = (new_session, consume) if session else (new_reader, consume_messages)
    total = 0.0
    for _ in range(repetitions):
        engine = make()
        count = 0
        begun = time.perf_counter()
        for chunk in chunks:
            count += take(engine, chunk)
        total += time.perf_counter() - begun
        if count != messages:
            return {"correct": False, "error": f"{count} events, not {messages}"}
    size = sum(map(len, chunks)) * repetitions
    return sample(total, messages * repetitions, size)


def decode_alone(message: bytes) -> int:
    decode(message)
    return 1


def time_theirs(chunks: list[bytes], messages: int, repetitions: int) -> Sample:
    # single messages are judged against the decoder alone, which is spared the split
    take = split_and_decode
    if len(chunks) == messages:
        take, chunks = decode_alone, [chunk.rstrip(b"\n") for chunk in chunks]
    total = 0.0
    for _ in range(repetitions):
        count = 0
        begun = time.perf_counter()
        for chunk in chunks:
            count += take(chunk)
        total += time.perf_counter() - begun
        if count != messages:
            return {"correct": False, "error": f"{count} messages, not {messages}"}
    return sample(total, messages * repetitions, sum(map(len, chunks)) * repetitions)


def guarded(measure: Callable[[], Sample]) -> Callable[[], Sample]:
    """An exception of either side is a sample without a number."""

    def run() -> Sample:
        try:
            return measure()
        except Exception as error:
            return {"correct": False, "error": f"{type(error).__name__}: {error}"}

    return run


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    taken = {}
    targets = []
    for name, (chunks, messages, repetitions, limit, question) in cases().items():
        settings.say(f"engine: {name}")
        try:
            fault = check(chunks)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        times = max(1, int(repetitions * settings.scale))
        gc.collect()
        gc.freeze()
        samples = interleave(
            settings,
            {
                OURS: guarded(partial(time_ours, chunks, messages, times, False)),
                SESSION: guarded(partial(time_ours, chunks, messages, times, True)),
                THEIRS: guarded(partial(time_theirs, chunks, messages, times)),
            },
        )
        gc.unfreeze()
        taken[name] = samples
        # a ratio of speeds: their time over ours
        values = ratios(samples, THEIRS, OURS, "seconds")
        targets.append(
            Target(
                f"engine.{name}", f"{question}: {RIVALS[name]}", limit, True, TIMES,
                values, fault is None and correct(samples, OURS, SESSION, THEIRS), fault or "",
                figures=medians(samples, "ns_per_message"),
            )
        )  # fmt: skip
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "engine", *sys.argv[1:]])
