"""WebSocket framing with permessage-deflate (RFC 7692)."""

from __future__ import annotations

import random
import zlib

import pytest
from lab.core import chunkings, notification, request, take
from lab.rows import every
from lab.websocket import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Peer,
    Role,
    deflater,
    frame,
    unframe,
)

from wirespeed.core import Limits, Session, WebSocketFramer

ROLES: tuple[Role, ...] = ("server", "client")
both_roles = pytest.mark.parametrize("role", ROLES)
both_takeovers = pytest.mark.parametrize("takeover", [True, False])
MIXED = b"plain " * 40 + random.Random(3).randbytes(3000) + b"\x00" * 3000 + "é日本".encode() * 500


def packed(data: bytes, *, bits: int = 15) -> bytes:
    """One message on its own."""
    coder = zlib.compressobj(wbits=-bits)
    return (coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH))[:-4]


@both_roles
@both_takeovers
def test_messages_in(role: Role, takeover: bool) -> None:
    sender = deflater(takeover=takeover)
    peer = Peer(role, deflate=deflater(takeover=takeover))
    for n in (0, 1, 5, 100, 126, 3000, 9000, 1 << 20):
        data = (MIXED * (n // len(MIXED) + 1))[:n]
        code = bytes(sender.encode(data))
        stream = (
            frame(BINARY, code, to=role, rsv=4)
            + frame(BINARY, data, to=role)  # a message need not be compressed
            + frame(TEXT, b"after", to=role)
        )
        assert peer.feed(stream) == [(BINARY, data), (BINARY, data), (TEXT, b"after")]


@both_roles
def test_fragments_are_joined_first(role: Role) -> None:
    code = packed(b"some text " * 10)
    stream = (
        frame(TEXT, code[:3], to=role, rsv=4, fin=False)
        + frame(PING, b"between", to=role)
        + frame(CONT, to=role, fin=False)
        + frame(CONT, code[3:], to=role)
        + frame(TEXT, b"plain", to=role)
    )
    for door in ("data", "buffer"):
        for chunks in chunkings(stream):
            peer = Peer(role, door=door, deflate=deflater(takeover=False))
            found = [message for chunk in chunks for message in peer.feed(chunk)]
            assert found == [(TEXT, b"some text " * 10), (TEXT, b"plain")]
            assert [sent.opcode for sent in peer.sent()] == [PONG]


@both_roles
@both_takeovers
@pytest.mark.parametrize("binary", [True, False])
def test_messages_out(role: Role, takeover: bool, binary: bool) -> None:
    reader = deflater(takeover=takeover)
    peer = Peer(role, binary=binary, deflate=deflater(takeover=takeover))
    expected = []
    for n in (1, 2, 100, 200, 3000, 5000, 70_000, 300_000):
        data = (MIXED * (n // len(MIXED) + 1))[:n]
        peer.framer.send_binary(bytearray(data))
        peer.stream.send(data)
        peer.framer.send_text("x" * n)
        peer.framer.ping(b"not compressed")
        expected += [
            (BINARY, data), (BINARY if binary else TEXT, data), (TEXT, b"x" * n),
            (PING, b"not compressed"),
        ]  # fmt: skip
    raw = peer.raw()
    assert len(raw) < 800_000
    found = []
    for sent in unframe(raw, role):
        assert sent.rsv == (0 if sent.opcode == PING else 4)
        payload = sent.payload if not sent.rsv else reader.decode(sent.payload, 1 << 20)
        assert payload is not None
        found.append((sent.opcode, bytes(payload)))
    assert found == expected


@both_takeovers
def test_sessions(takeover: bool) -> None:
    def session(role: Role) -> Session:
        framer = WebSocketFramer(role, max_message=1 << 20, deflate=deflater(takeover=takeover))
        return Session(limits=Limits(max_message=1 << 20), role=role, framer=framer)

    ours, theirs = session("client"), session("server")
    for n in (0, 10, 5000, 100_000):
        text = b'{"a":"' + b"xyz" * n + b'"}'
        ours.send_request("m", text, token="t")
        ours.send_notification("n", text)
        theirs.receive_data(b"".join(map(bytes, ours.data_to_send())))
        called, noticed = take(theirs)
        assert called.params == noticed.params == text
        theirs.send_result(called, text)
        size = theirs.outbox.size
        assert size < 1000
        ours.receive_data(b"".join(map(bytes, theirs.data_to_send())))
        (answered,) = take(ours)
        assert answered.result == text
    # what was kept is still there
    assert called.params == answered.result == text


def test_whitespace_and_empty_texts() -> None:
    framer = WebSocketFramer("server", max_message=1000, deflate=deflater(takeover=False))
    session = Session(framer=framer)
    session.batches = True
    for text in (b"", b" \n", b" " + request(1) + b"\n", b"\xff", request(2)):
        session.receive_data(frame(TEXT, packed(text), rsv=4))
    kinds = [message.kind for message in session.events()]
    assert kinds == ["invalid", "invalid", "request"]
    assert framer.failure == (1007, "not UTF-8")


@pytest.mark.parametrize("door", ["data", "buffer"])
@both_takeovers
def test_a_bomb_is_1009(door: str, takeover: bool) -> None:
    bomb = packed(bytes(50 << 20))
    assert len(bomb) < 1 << 16
    peer = Peer(door=door, max_message=1 << 16, deflate=deflater(takeover=takeover))
    assert peer.feed(frame(BINARY, b"ok") + frame(BINARY, bomb, rsv=4)) == [(BINARY, b"ok")]
    assert peer.framer.failure == (1009, "a message of more than 65536 bytes")
    assert peer.framer.buffered == 0


def test_the_limit_is_exact() -> None:
    for data in (bytes(1000), MIXED[:1000]):
        for limit, good in ((1000, True), (999, False), (1001, True)):
            peer = Peer(max_message=limit, deflate=deflater())
            found = peer.feed(frame(BINARY, packed(data), rsv=4))
            if len(packed(data)) > limit:
                assert peer.stream.over  # its header told
            else:
                assert found == ([(BINARY, data)] if good else [])
                assert peer.stream.over is not good


@pytest.mark.parametrize(
    "code", [b"\xff\xff\xff", b"\x07", b"garbage", packed(b"x" * 99)[:-1] + b"\x07"]
)
def test_what_is_not_deflated_is_1002(code: bytes) -> None:
    for takeover in (True, False):
        peer = Peer(deflate=deflater(takeover=takeover))
        assert peer.feed(frame(TEXT, b"ok") + frame(TEXT, code, rsv=4)) == [(TEXT, b"ok")]
        assert peer.framer.failure == (1002, "not deflated data")
        assert [sent.opcode for sent in peer.sent()] == [CLOSE]


def test_text_is_checked_once_it_is_decompressed() -> None:
    peer = Peer(deflate=deflater())
    assert peer.feed(frame(TEXT, packed(b"ab\xff"), rsv=4)) == []
    assert peer.framer.failure == (1007, "not UTF-8")


def test_a_block_that_says_it_is_the_last() -> None:
    """RFC 7692, section 7.2.3.4: it may be sent. What follows is never taken for nothing."""
    coder = zlib.compressobj(wbits=-15)
    final = coder.compress(b"Hello") + coder.flush() + b"\x00"
    peer = Peer(deflate=deflater(takeover=False))
    stream = frame(TEXT, final, rsv=4) + frame(TEXT, packed(b"more"), rsv=4)
    assert peer.feed(stream) == [(TEXT, b"Hello"), (TEXT, b"more")]
    peer = Peer(deflate=deflater(takeover=True))
    assert peer.feed(stream) == [(TEXT, b"Hello")]
    assert peer.framer.failure == (1002, "not deflated data")


@every(
    "stream",
    [
        frame(TEXT, b"x", rsv=2), frame(TEXT, b"x", rsv=6), frame(TEXT, b"x", rsv=5),
        frame(PING, b"x", rsv=4), frame(CLOSE, rsv=4),
        frame(TEXT, packed(b"x")[:1], rsv=4, fin=False) + frame(CONT, packed(b"x")[1:], rsv=4),
    ],
)  # fmt: skip
def test_the_bit_stands_at_the_first_frame_of_a_message_only(stream: bytes) -> None:
    peer = Peer(deflate=deflater())
    assert peer.feed(stream) == []
    assert (peer.framer.failure or (0,))[0] == 1002


def test_dropped_messages_still_count_for_the_window() -> None:
    """After our goodbye they are not given out, but a fault in them is one."""
    peer = Peer(deflate=deflater())
    peer.framer.goodbye()
    sender = deflater()
    for _ in range(3):
        assert peer.feed(frame(TEXT, bytes(sender.encode(MIXED[:200])), rsv=4)) == []
    assert peer.feed(frame(TEXT, b"\x07", rsv=4)) == []
    assert peer.framer.failure is not None
    assert notification("x")


class Broken:
    """A compressor that fails."""

    def encode(self, data: bytes) -> bytes:
        raise MemoryError

    def decode(self, data: bytes, max_size: int) -> bytes:
        raise ZeroDivisionError


def test_a_failing_compressor_leaves_nothing_half_written() -> None:
    peer = Peer(deflate=Broken())
    for say in (lambda: peer.stream.send(b"x"), lambda: peer.framer.send_text("x")):
        with pytest.raises(MemoryError):
            say()
    assert peer.raw() == b""
    with pytest.raises(ZeroDivisionError):
        peer.feed(frame(TEXT, b"x", rsv=4))
    assert peer.take() == []
