"""Mutated HTTP requests against the sans-I/O core; every outcome must be on a closed list.

Run by hand, bounded and repeatable (needs httptools and h11)::

    python tests/fuzz/fuzz_http.py --seed 1 --count 20000

A failure prints the seed and the input, and ends with status 1. What is checked: nothing raises;
failures have a status and a sentence that we know; nothing follows a failure; the outcome does not
depend on how the stream was cut nor on the door; bodies in pieces are the whole ones; where another
parser takes all requests that we take, it sees the same bodies.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from driver import main
from lab.http_corpus import CASES, MAX_BODY
from lab.http_parsers import PARSERS

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed.core import FrameStream

STATUSES = {400, 413, 414, 417, 431, 501, 505}
PARTS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b",", b";", b"=", b'"', b"\0", b"\x80", b"0", b"5",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Host: b\r\n", b"0\r\n\r\n", b"chunked", b"HTTP/1.1", b"HTTP/1.0", b"GET / HTTP/1.1\r\n",
    b"Expect: 100-continue\r\n", b"5\r\nhello\r\n", b"\r\n\r\n", b"X: y\r\n", b"x" * 40,
]  # fmt: skip
CUT_SHORT = "the stream ended inside a message"  # at the end of the input, which others do not see
SEEDS = [case.data for case in CASES if len(case.data) < 2000]
GOOD = [case.data for case in CASES if len(case.data) < 2000 and isinstance(case.expected, list)]

Outcome = tuple[tuple[bytes, ...], tuple[int, str] | None, bool]


def mutate(rng: random.Random) -> bytes:
    seeds = SEEDS if rng.random() < 0.3 else GOOD
    stream = bytearray(b"".join(rng.choice(seeds) for _ in range(rng.choice((1, 1, 1, 2, 3)))))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at = rng.randint(0, len(stream))
        match rng.randint(0, 5):
            case 0 | 1:
                stream[at:at] = rng.choice(PARTS)
            case 2:
                del stream[at : at + rng.randint(1, 6)]
            case 3 if at < len(stream):
                stream[at] = rng.randrange(256)
            case 4 if at < len(stream):
                stream[at] ^= 0x20
            case _:
                stream[at:at] = stream[at : at + rng.randint(1, 40)]
    return bytes(stream)


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    longest = rng.choice((1, 7, 50, 1000))
    chunks = []
    while stream:
        n = rng.randint(1, longest)
        chunks.append(stream[:n])
        stream = stream[n:]
    return chunks


def run(
    role: str, chunks: list[bytes], buffered: bool, options: dict[str, int], pieces: bool = False
) -> Outcome:
    framer = HttpFramer(role, heads=pieces, **options)  # type: ignore[arg-type]
    stream = FrameStream(framer)
    bodies: list[bytes] = []

    def look() -> None:
        for body in stream:
            assert body is not None
            if framer.part in ("piece", "end"):
                assert (framer.part == "piece") == (len(body) > 0)
                bodies[-1] += bytes(body)
                continue
            if framer.part == "body":
                assert len(body) <= options["max_body"]
            bodies.append(bytes(body))
            if framer.part == "head":
                framer.take_pieces()
            head = framer.head
            assert len(head.fields) <= head.max_fields
            assert len(head.raw) <= head.max_head
            for name, value in head.fields:
                assert name
                assert value == value.strip(" \t")
                assert not {*name, *value} & {"\r", "\n", "\0"}
                assert name.encode("latin-1") in head.raw
            if role == "server":
                assert head.method
                assert head.path[0] in "/*"
        if framer.failure is not None or framer.ended:
            assert framer.buffered == 0

    for chunk in chunks:
        if buffered:
            view = stream.get_buffer()
            view[: len(chunk)] = chunk
            view.release()
            stream.buffer_updated(len(chunk))
        else:
            stream.receive_data(chunk)
        look()
    stream.receive_eof()
    look()
    assert next(iter(stream), None) is None
    return tuple(bodies), framer.failure, framer.ended


def one(rng: random.Random) -> list[str]:
    role = "client" if rng.random() < 0.2 else "server"
    data = mutate(rng)
    if role == "client":
        data = (
            b"HTTP/1.%d %d x\r\n" % (rng.randint(0, 1), rng.choice((200, 200, 204, 103, 99)))
            + (data.partition(b"\r\n")[2])
        )
    options = {"max_body": MAX_BODY}
    if rng.random() < 0.3:
        options = {
            "max_body": rng.randint(1, 40),
            "max_head": rng.randint(20, 200),
            "max_target": rng.randint(1, 12),
            "max_fields": rng.randint(1, 4),
        }
    try:
        whole = run(role, [data] if data else [], False, options)
        for buffered in (False, True):
            assert run(role, cut(rng, data), buffered, options) == whole, "the cut decides"
        if role == "client":
            parts = run(role, [data] if data else [], False, options, True)
            assert run(role, cut(rng, data), rng.random() < 0.5, options, True) == parts
            n = len(whole[0])
            assert parts[0][:n] == whole[0]
            assert whole[1] is not None or parts == whole
        assert whole[1] is None or whole[1][0] in ({502} if role == "client" else STATUSES)
        if role == "server" and options == {"max_body": MAX_BODY}:
            agree(data, whole)
    except Exception:
        print(f"{role} {options}\ninput: {data!r}", file=sys.stderr)
        raise
    bodies, failure, _ = whole
    return ["body"] * len(bodies) + ([] if failure is None else [f"failed {failure[0]}"])


def agree(data: bytes, whole: Outcome) -> None:
    """Requests that both take are the same, up to one that closes the connection: llhttp reads on
    behind a close and a keep-alive."""
    bodies, failure, ended = whole
    for name, read in PARSERS.items():
        theirs = read(data, MAX_BODY)
        if theirs is None or (failure is not None and failure[1] != CUT_SHORT):
            continue
        if ended and failure is None:
            theirs = theirs[: len(bodies)]
        assert list(bodies) == theirs, f"{name} sees {theirs}, we see {bodies}"


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], one))
