"""The compiled WebSocket framing against the model, and against `websockets`, at any chunking."""

from __future__ import annotations

import functools
import zlib

from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from lab.websocket import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Peer,
    Role,
    Sent,
    closing,
    deflate,
    frame,
)
from model.websocket import Reading, Rules, read
from websockets.frames import Frame
from websockets.protocol import CLIENT, OPEN, SERVER, Protocol

from wirespeed.transport.websocket.upgrade import MessageDeflate

roles: st.SearchStrategy[Role] = st.sampled_from(("server", "client"))
TEXTS = ("", "x", "é", "日本" * 30, " [] \n", "\t \r\n", "ab" * 90, "𐍈\x00")
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([text.encode() for text in TEXTS]),
    st.integers(0, 320).map(lambda n: b"z" * n),
)
reasons = st.sampled_from((b"", b"bye", "né".encode(), b"\xff", b"x" * 123))
codes = st.one_of(st.sampled_from((1000, 1001, 1005, 3000, 4999, 5000)), st.integers(0, 65535))
keys = st.binary(min_size=4, max_size=4)


@st.composite
def control(draw: st.DrawFn, to: Role) -> bytes:
    opcode = draw(st.sampled_from((PING, PONG)))
    return frame(opcode, draw(st.binary(max_size=125)), to=to, key=draw(keys))


@st.composite
def messages(draw: st.DrawFn, to: Role, compressed: bool) -> bytes:
    """A message in some fragments, with control frames between them."""
    opcode = draw(st.sampled_from((TEXT, TEXT, BINARY)))
    rsv = 4 if compressed and draw(st.booleans()) else 0
    parts = draw(st.lists(payloads, min_size=1, max_size=5))
    if rsv:
        coder = zlib.compressobj(wbits=-15)
        code = (coder.compress(b"".join(parts)) + coder.flush(zlib.Z_SYNC_FLUSH))[:-4]
        cut = draw(st.integers(0, len(code)))
        parts = [code] if draw(st.booleans()) else [code[:cut], code[cut:]]
    out = b""
    for i, part in enumerate(parts):
        size = draw(st.sampled_from((None, None, None, 2, 8)))
        last = i == len(parts) - 1
        out += frame(
            opcode if i == 0 else CONT,
            part,
            to=to,
            fin=last,
            rsv=rsv if i == 0 else 0,
            key=draw(keys),
            size=size,
        )
        if not last and draw(st.booleans()):
            out += draw(control(to))
    return out


@st.composite
def broken(draw: st.DrawFn, to: Role) -> bytes:
    """A frame with something that may be wrong."""
    payload = draw(payloads)
    length = draw(st.sampled_from((None, None, None, 0, 5, 125, 300, 1 << 40, 1 << 63)))
    n = len(payload) if length is None else length
    return frame(
        draw(st.integers(0, 15)),
        payload,
        to=to,
        fin=draw(st.booleans()),
        rsv=draw(st.sampled_from((0, 0, 0, 4, 1, 6))),
        key=draw(keys),
        length=length,
        size=draw(st.sampled_from((None, 2, 8) if n < 1 << 16 else (None, 8))),
        mask=draw(st.sampled_from((None, None, None, True, False))),
    )


@functools.cache
def frames(to: Role, compressed: bool) -> st.SearchStrategy[list[bytes]]:
    some = st.one_of(
        messages(to, compressed),
        messages(to, compressed),
        messages(to, compressed),
        control(to),
        broken(to),
        st.binary(max_size=6),
        st.builds(lambda code, reason: frame(CLOSE, closing(code, reason), to=to), codes, reasons),
    )
    return st.lists(some, max_size=8)


@st.composite
def streams(draw: st.DrawFn, to: Role, compressed: bool) -> bytes:
    out = b"".join(draw(frames(to, compressed)))
    if draw(st.booleans()):
        out = out[: draw(st.integers(0, len(out)))]
    return out


@st.composite
def cuts(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def reading(peer: Peer, messages: list[tuple[int, bytes]]) -> Reading:
    """What the compiled code made of it, in the model's words."""
    framer = peer.framer
    found = Reading(messages)
    found.sent = [
        (sent.opcode, sent.payload[:2] if sent.opcode == CLOSE else sent.payload)
        for sent in peer.sent()
    ]
    if framer.failure is not None:
        found.failed = framer.failure[0]
    if framer.close_code is not None:
        found.closed = (framer.close_code, framer.close_reason)
    assert peer.stream.over == (found.failed is not None or found.closed is not None)
    if peer.stream.over:
        assert framer.buffered == 0
    return found


@examples(200)
@given(st.data(), roles, st.booleans(), st.booleans())
def test_any_stream(data: st.DataObject, role: Role, json: bool, compressed: bool) -> None:
    rules = Rules(
        server=role == "server",
        max_message=data.draw(st.sampled_from((10, 300, 2000))),
        max_fragments=data.draw(st.sampled_from((1, 3, 10))),
        max_control=data.draw(st.sampled_from((1, 3, 10))),
        json=json,
        deflate=compressed,
    )
    stream = data.draw(streams(role, compressed))
    peer = Peer(
        role,
        door=data.draw(st.sampled_from(("data", "buffer"))),
        max_message=rules.max_message,
        max_fragments=rules.max_fragments,
        max_control=rules.max_control,
        binary=not json,
        deflate=MessageDeflate(deflate(takeover=False)) if compressed else None,
    )
    found = [message for chunk in data.draw(cuts(stream)) for message in peer.feed(chunk)]
    assert reading(peer, found) == read(stream, rules)


@given(
    roles,
    st.lists(st.tuples(st.sampled_from((TEXT, BINARY, PING)), st.integers(0, 70_000)), max_size=8),
    st.integers(1, 40_000),
    st.sampled_from((None, True, False)),
    st.sampled_from(("data", "buffer")),
)
@examples(30)
def test_against_websockets(
    role: Role, plan: list[tuple[int, int]], step: int, takeover: bool | None, door: str
) -> None:
    """Both ways, both roles, with and without compression."""
    other = Protocol(CLIENT if role == "server" else SERVER, state=OPEN, max_size=None)
    ours = None
    if takeover is not None:
        other.extensions = [deflate(takeover=takeover)]
        ours = MessageDeflate(deflate(takeover=takeover))
    peer = Peer(role, door=door, deflate=ours, max_message=1 << 20)
    expected, pings = [], []
    for opcode, n in plan:
        payload = (b"some payload %d, " % n * (n // 10 + 1))[: n if opcode != PING else n % 126]
        if opcode == PING:
            other.send_ping(payload)
            peer.framer.ping(payload)
            pings.append(payload)
            continue
        expected.append((opcode, payload))
        if opcode == TEXT:
            other.send_text(payload[:7], fin=False)
            other.send_continuation(payload[7:], fin=True)
            peer.framer.send_text(payload)
        else:
            other.send_binary(payload)
            peer.framer.send_binary(payload)
    peer.framer.goodbye(1001, "away")
    ours_to_them = peer.raw()

    theirs = b"".join(other.data_to_send())
    # what they send before they read our goodbye is dropped
    assert [m for i in range(0, len(theirs), step) for m in peer.feed(theirs[i : i + step])] == []
    assert peer.raw() == b""

    if ours is not None:
        ours = MessageDeflate(deflate(takeover=bool(takeover)))
    again = Peer(role, door=door, deflate=ours, max_message=1 << 20)
    got = [m for i in range(0, len(theirs), step) for m in again.feed(theirs[i : i + step])]
    assert got == expected
    assert again.sent() == [Sent(PONG, payload) for payload in pings]

    for i in range(0, len(ours_to_them), step):
        other.receive_data(ours_to_them[i : i + step])
    events = other.events_received()
    assert all(isinstance(event, Frame) for event in events)
    seen = [(int(event.opcode), bytes(event.data)) for event in events]  # type: ignore[union-attr]
    *seen, end = seen
    assert end == (CLOSE, closing(1001, b"away"))
    assert [event for event in seen if event[0] != PING] == expected
    assert [event[1] for event in seen if event[0] == PING] == pings
    for chunk in other.data_to_send():
        if chunk:
            peer.feed(chunk)
    assert peer.stream.over
    assert (peer.framer.close_code, peer.framer.failure) == (1001, None)
