"""Mutated WebSocket streams against the sans-I/O core; every outcome must be on a closed list.

Run by hand, bounded and repeatable (no extra packages)::

    python tests/fuzz/fuzz_websocket.py --seed 1 --count 20000

A failure prints the seed and the input, and ends with status 1. What is checked: nothing raises;
close codes are those that we may send; each frame that goes out is whole and well-formed; nothing
follows our close frame; the outcome does not depend on how the stream was cut nor on the door.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from typing import Literal, NamedTuple

from driver import main

from wirespeed.core import FrameStream, Limits, Session, WebSocketFramer
from wirespeed.transport.websocket.upgrade import MessageDeflate

Role = Literal["server", "client"]

TEXTS = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}',
    b' {"jsonrpc":"2.0","method":"n"}\n',
    b'[{"jsonrpc":"2.0","id":3,"method":"m"},{"jsonrpc":"2.0","method":"n"},1]',
    b"",
    b"\n",
    b"nonsense",
    b"\xff",
    "日本".encode(),
    b"x" * 126,
    b"[" * 300,
]
CODES = {1002, 1003, 1007, 1008, 1009}


class Outcome(NamedTuple):
    messages: tuple[tuple[str, bytes], ...]
    output: bytes
    failure: tuple[int, str] | None
    closed: tuple[int | None, str]


def frame(rng: random.Random, role: Role, opcode: int, payload: bytes, first: int) -> bytes:
    """A frame to this role."""
    n = len(payload)
    top = 128 if role == "server" else 0
    if n < 126:
        head = bytes((first | opcode, top | n))
    else:
        head = bytes((first | opcode, top | 126)) + n.to_bytes(2, "big")
    if not top:
        return head + payload
    key = rng.randbytes(4)
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def pieces(rng: random.Random, role: Role, deflated: bool) -> bytes:
    """A message in one frame or more, or a control frame."""
    kind = rng.randrange(8)
    if kind == 0:
        return frame(rng, role, rng.choice((9, 10)), rng.randbytes(rng.randrange(20)), 128)
    if kind == 1 and rng.random() < 0.3:
        code = rng.choice((1000, 1001, 1005, 3000)).to_bytes(2, "big")
        return frame(rng, role, 8, code + b"bye", 128)
    data = rng.choice(TEXTS)
    opcode = rng.choice((1, 1, 1, 2))
    first = 0
    if deflated and rng.random() < 0.6:
        coder = zlib.compressobj(wbits=-15)
        data = (coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH))[:-4]
        first = 64
    if kind < 5:
        return frame(rng, role, opcode, data, 128 | first)
    at = rng.randint(0, len(data))
    return frame(rng, role, opcode, data[:at], first) + frame(rng, role, 0, data[at:], 128)


def mutate(rng: random.Random, role: Role, deflated: bool) -> bytes:
    stream = bytearray(b"".join(pieces(rng, role, deflated) for _ in range(rng.randint(1, 6))))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        at = rng.randint(0, len(stream))
        match rng.randint(0, 3):
            case 0:
                stream[at:at] = rng.randbytes(rng.randint(1, 6))
            case 1:
                del stream[at : at + rng.randint(1, 4)]
            case 2 if at < len(stream):
                stream[at] ^= 1 << rng.randint(0, 7)
            case _:
                stream[at:at] = stream[at : at + rng.randint(1, 30)]
    return bytes(stream)


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    chunks = []
    longest = rng.choice((1, 7, 50, 1000))
    while stream:
        n = rng.randint(1, longest)
        chunks.append(stream[:n])
        stream = stream[n:]
    return chunks


def check_output(output: bytes, role: Role) -> None:
    """Whole frames, the last of which may be a close."""
    closed = False
    while output:
        assert not closed, "a frame behind our close frame"
        opcode, n, top = output[0], output[1] & 127, output[1] >> 7
        assert opcode in (0x81, 0x82, 0xC1, 0xC2, 0x88, 0x8A), opcode
        assert top == (role == "client")
        at = 2
        if n == 126:
            n, at = int.from_bytes(output[2:4], "big"), 4
        assert n <= 125 or at == 4
        at += 4 * top
        payload = output[at : at + n]
        assert len(payload) == n
        if top:
            key = output[at - 4 : at]
            payload = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
        if opcode == 0x81:
            for answer in [json.loads(payload)] if payload[:1] == b"{" else json.loads(payload):
                assert answer["jsonrpc"] == "2.0"
        closed = opcode == 0x88
        output = output[at + n :]


def run(
    chunks: list[bytes], role: Role, json_: bool, deflated: bool, buffered: bool, limit: int
) -> Outcome:
    extension = None
    if deflated:
        from websockets.extensions.permessage_deflate import PerMessageDeflate

        extension = MessageDeflate(PerMessageDeflate(True, True, 15, 15))
    framer = WebSocketFramer(
        role,
        max_message=limit,
        max_fragments=3,
        max_control=5,
        binary=not json_,
        deflate=extension,
        random=lambda n: b"key!" * (n // 4),
    )
    found: list[tuple[str, bytes]] = []
    limits = Limits(max_message=limit, max_depth=20)
    wire: Session | FrameStream
    if json_:
        wire = Session(limits=limits, role=role, framer=framer)
        wire.batches = limit % 2 == 0
    else:
        wire = FrameStream(framer, limits=limits)

    def look() -> None:
        if isinstance(wire, Session):
            for event in wire.events():
                found.append((event.kind, bytes(event.raw or b"")))
                if event.kind == "request":
                    wire.send_result(event, b"{}")
            return
        for message in wire:
            assert message is not None
            found.append(("binary" if framer.is_binary else "text", bytes(message)))
            if not framer.is_binary:
                bytes(message).decode()
            framer.send_binary(b"!" + bytes(message))

    for chunk in chunks:
        if buffered:
            view = wire.get_buffer()
            view[: len(chunk)] = chunk
            wire.buffer_updated(len(chunk))
        else:
            wire.receive_data(chunk)
        look()
    wire.receive_eof()
    look()
    output = b"".join(map(bytes, wire.data_to_send()))
    check_output(output, role)
    assert framer.failure is None or framer.failure[0] in CODES
    if framer.over:
        assert framer.buffered == 0
    return Outcome(tuple(found), output, framer.failure, (framer.close_code, framer.close_reason))


def one(rng: random.Random) -> list[str]:
    role: Role = rng.choice(("server", "client"))
    json_, deflated = rng.random() < 0.5, rng.random() < 0.3
    stream = mutate(rng, role, deflated)
    limit = rng.choice((5, 60, 1000))
    try:
        whole = run([stream] if stream else [], role, json_, deflated, False, limit)
        for buffered in (False, True):
            chunks = cut(rng, stream)
            assert run(chunks, role, json_, deflated, buffered, limit) == whole, "the cut decides"
    except Exception:
        print(f"input: {stream!r}", file=sys.stderr)
        raise
    outcomes = [kind for kind, _ in whole.messages]
    return outcomes if whole.failure is None else [*outcomes, f"failed {whole.failure[0]}"]


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], one))
