"""Mutated input against the sans-I/O core; every outcome must be on a closed list.

Run by hand, bounded and repeatable (no extra packages)::

    python tests/fuzz/fuzz_core.py --seed 1 --count 20000

A failure prints the seed and the input, and ends with status 1. What is checked: nothing raises;
events, faults and error codes are known ones; each line that goes out is one JSON text; the
outcome does not depend on how the stream was cut nor on the door; nothing is left in flight.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable

from driver import main

from wirespeed.core import POINTS, Limits, MessageReader, Session, parse

SEEDS = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1]}}}',
    b'{"jsonrpc":"2.0","id":"x","method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\\u00e9\xc3\xa9"}]}}',
    b'{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no","data":null}}',
    b'[{"jsonrpc":"2.0","id":3,"method":"m"},{"jsonrpc":"2.0","method":"n"},1,[]]',
    b'{"jsonrpc":"2.0","id":12345678901234567890123,"method":"m","params":{"_meta":{"progressToken"'
    b':0,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}',
    b"\xef\xbb\xbf{}",
    b"[" * 20 + b"]" * 20,
    b"",
]
TOKENS = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r\n", b" ", b"\x00", b"\xff",
    b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"1", b"-0", b"1e999", b"null", b"true", b"NaN",
    b'"id":', b'"id"', b'"method":', b'"result":{}', b'"error":{}', b'"jsonrpc":"2.0",',
    b"\\u0000", b"\\ud800",
]  # fmt: skip
OUTCOMES = {
    ("request", None),
    ("notification", None),
    ("result", None),
    ("error", None),
    ("invalid", "parse"),
    ("invalid", "request"),
    ("invalid", "response"),
    ("invalid", "notification"),
}
CODES = {-32700, -32600, -31000}
Outcome = tuple[str, str | None, bytes | None]


def mutate(rng: random.Random) -> bytes:
    """A stream of some seeds, damaged here and there."""
    lines = [rng.choice(SEEDS) for _ in range(rng.randint(1, 6))]
    stream = bytearray(rng.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(lines))
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
        at = rng.randint(0, len(stream))
        match rng.randint(0, 4):
            case 0:
                stream[at:at] = rng.choice(TOKENS)
            case 1:
                del stream[at : at + rng.randint(1, 4)]
            case 2 if at < len(stream):
                stream[at] ^= 1 << rng.randint(0, 7)
            case 3:
                stream[at:at] = stream[at : at + rng.randint(1, 30)]
            case _:
                stream[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(stream) + rng.choice((b"\n", b"\n", b""))


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    chunks = []
    longest = rng.choice((1, 7, 50, 1000))
    while stream:
        n = rng.randint(1, longest)
        chunks.append(stream[:n])
        stream = stream[n:]
    return chunks


def feed_buffer(session: Session, chunk: bytes) -> None:
    view = session.get_buffer()
    view[: len(chunk)] = chunk
    session.buffer_updated(len(chunk))


def feed_data(session: Session, chunk: bytes) -> None:
    session.receive_data(chunk)


def run(
    stream: bytes, chunks: list[bytes], feed: Callable[[Session, bytes], None], limits: Limits
) -> tuple[list[Outcome], bytes]:
    """Outcomes and output of one session that answers all it is asked."""
    session = Session(limits=limits)
    session.batches = len(stream) % 2 == 0
    session.send_request("a", token="a")
    session.send_request("b", token="b")
    found: list[Outcome] = []

    def look() -> None:
        for message in session.events():
            assert (message.kind, message.fault) in OUTCOMES, message
            found.append((message.kind, message.fault, message.raw_id))
            assert repr(message)
            for point in POINTS:
                lease = message.lease(point)
                if lease is not None:
                    json.loads(bytes(lease), parse_int=float)
            if message.kind == "request":
                assert isinstance(message.method, str)
                assert session.send_result(message, b"{}")

    for chunk in chunks:
        feed(session, chunk)
        look()
    session.receive_eof()
    look()
    output = b"".join(map(bytes, session.data_to_send()))
    assert session.want_read
    counters = session.counters
    assert counters["bytes_in"] == len(stream)
    assert counters["bytes_out"] == len(output)
    assert counters["requests_in_flight"] == counters["requests_waiting"] == 0
    return found, output


def check_output(output: bytes) -> None:
    assert not output or output.endswith(b"\n")
    for line in output.splitlines():
        text = json.loads(line, parse_int=lambda digits: int(digits[:50]))
        for message in text if isinstance(text, list) else [text]:
            assert message["jsonrpc"] == "2.0"
            if "error" in message:
                assert message["error"]["code"] in CODES


def one(rng: random.Random) -> list[str]:
    stream = mutate(rng)
    try:
        outcomes = check(rng, stream)
    except Exception:
        print(f"input: {stream!r}", file=sys.stderr)
        raise
    return [f"{kind} ({fault})" if fault else kind for kind, fault, _ in outcomes]


def check(rng: random.Random, stream: bytes) -> list[Outcome]:
    limits = Limits(max_message=rng.choice((60, 300, 10_000)), max_depth=rng.choice((2, 8, 64)))
    whole = run(stream, [stream] if stream else [], feed_data, limits)
    check_output(whole[1])
    for feed in (feed_data, feed_buffer):
        assert run(stream, cut(rng, stream), feed, limits) == whole, "the cut decides"
    reader = MessageReader(limits=limits, batches=rng.random() < 0.5)
    reader.receive_data(stream)
    reader.receive_eof()
    for message in reader:
        assert message.kind in {kind for kind, _ in OUTCOMES}
    for line in stream.split(b"\n"):
        assert repr(parse(line))
    return whole[0]


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], one))
