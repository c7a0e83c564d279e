"""WebSocket framing, outgoing: heads, masks, where bytes lie, and our goodbye."""

from __future__ import annotations

import sys

import pytest
from lab.rows import every
from lab.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Peer,
    Role,
    Sent,
    closing,
    frame,
    masked,
    unframe,
)
from lab.wording import raises

from wirespeed.core import FrameStream, LineFramer, Session, WebSocketFramer

ROLES: tuple[Role, ...] = ("server", "client")
both_roles = pytest.mark.parametrize("role", ROLES)
# Around every length of a header, of what is copied (4 KiB), and of a block (64 KiB).
LENGTHS = [
    0, 1, 2, 124, 125, 126, 127, 2000, 2040, 2047, 2048, 2049, 4094, 4095, 4096, 4097, 40_000,
    65_522, 65_526, 65_535, 65_536, 65_540, 200_000,
]  # fmt: skip


def text(n: int) -> bytes:
    return (b"0123456789abcdef" * (n // 16 + 1))[:n]


# -- heads and places --------------------------------------------------------------------------


@both_roles
@pytest.mark.parametrize("n", LENGTHS)
def test_messages_of_every_length(role: Role, n: int) -> None:
    peer = Peer(role)
    for data in (text(n), bytearray(text(n)), memoryview(text(n))):
        peer.framer.send_text(data)
        peer.framer.send_binary(data)
    peer.framer.send_text(text(n).decode())
    assert peer.sent() == [Sent(TEXT, text(n)), Sent(BINARY, text(n))] * 3 + [Sent(TEXT, text(n))]


@both_roles
@pytest.mark.parametrize("n", LENGTHS[1:])
@pytest.mark.parametrize("before", [0, 1, 30, 5000, 60_000, 65_500, 65_530])
def test_frames_whose_length_is_known_at_the_end(role: Role, n: int, before: int) -> None:
    """They begin anywhere in a block, lie in one piece or in several, and others follow."""
    peer = Peer(role, binary=False)
    expected = []
    for size in (before, n, 50, n):
        if size:
            peer.stream.send(text(size))
            expected.append(Sent(TEXT, text(size)))
    assert peer.stream.outbox.size == sum(map(len, chunks := peer.stream.data_to_send()))
    assert unframe(b"".join(map(bytes, chunks)), role) == expected
    assert peer.stream.outbox.size == 0


def test_a_raw_stream_sends_binary() -> None:
    peer = Peer(binary=True)
    peer.stream.send(b"x")
    assert peer.sent() == [Sent(BINARY, b"x")]


def test_large_payloads_are_sent_from_where_they_lie() -> None:
    peer = Peer("server")
    data = bytearray(text(50_000))
    references = sys.getrefcount(data)
    peer.framer.send_binary(data)
    with pytest.raises(BufferError):
        data.append(0)
    assert peer.stream.outbox.bytes_copied == 0
    head, payload = peer.stream.data_to_send()
    assert len(head) == 4
    assert len(payload) == len(data)
    del head, payload
    assert sys.getrefcount(data) == references
    data.append(0)


def test_a_client_masks_a_copy() -> None:
    peer = Peer("client")
    data = bytearray(text(50_000))
    peer.framer.send_binary(data)
    peer.stream.send(data)
    data[:] = bytes(len(data))
    assert peer.sent() == [Sent(BINARY, text(50_000))] * 2


def test_one_write_for_small_messages() -> None:
    """The heads' spare room does not cut the block."""
    for role in ROLES:
        peer = Peer(role, binary=False)
        for i in range(500):
            peer.stream.send(text(1 + i % 120))
        assert len(peer.stream.data_to_send()) == 1


def test_messages_are_masked_by_fresh_keys() -> None:
    asked = []

    def random(n: int) -> bytes:
        asked.append(n)
        return bytes(i % 251 + len(asked) for i in range(n))

    peer = Peer("client", random=random)
    assert asked == []
    keys = []
    for _ in range(1025):
        peer.framer.send_text("abcdef")
        raw = peer.raw()
        assert raw[:2] == b"\x81\x86"
        assert masked(raw[6:], raw[2:6]) == b"abcdef"
        keys.append(raw[2:6])
    assert asked == [4096, 4096]
    assert b"".join(keys[:1024]) == bytes(i % 251 + 1 for i in range(4096))
    assert keys[1024] == bytes((2, 3, 4, 5))


def test_keys_are_unpredictable_by_default() -> None:
    seen = set()
    for _ in range(3):
        peer = Peer("client")
        for _ in range(1100):
            peer.framer.ping()
            seen.add(peer.raw()[2:6])
    assert len(seen) > 3290


@pytest.mark.parametrize("bad", [b"", b"123", None, "1234"])
def test_no_randomness_no_frame(bad: object) -> None:
    peer = Peer("client", random=lambda n: bad)
    with pytest.raises((ValueError, TypeError)):
        peer.framer.send_text("x")
    with pytest.raises((ValueError, TypeError)):
        peer.framer.ping()
    with pytest.raises((ValueError, TypeError)):
        peer.stream.send(b"x")
    assert peer.raw() == b""


def test_a_failure_of_randomness_loses_only_that_message() -> None:
    given = iter([b"abcd", b"", b"efgh"])
    peer = Peer("client", random=lambda n: next(given))
    peer.stream.send(b"one")
    with raises(ValueError):
        peer.stream.send(b"two")
    peer.stream.send(b"three")
    assert peer.sent() == [Sent(BINARY, b"one"), Sent(BINARY, b"three")]


def test_a_server_needs_no_randomness() -> None:
    peer = Peer("server", random=None)
    peer.framer.send_text("x")
    assert peer.raw() == b"\x81\x01x"


# -- ping and goodbye --------------------------------------------------------------------------


@both_roles
def test_pings(role: Role) -> None:
    peer = Peer(role)
    peer.framer.ping()
    peer.framer.ping(b"x" * 125)
    peer.framer.ping(bytearray(b"abc"))
    with raises(ValueError):
        peer.framer.ping(b"x" * 126)
    assert peer.sent() == [Sent(PING, b""), Sent(PING, b"x" * 125), Sent(PING, b"abc")]


@both_roles
def test_our_goodbye(role: Role) -> None:
    peer = Peer(role)
    peer.framer.send_text("last")
    peer.framer.goodbye(1001, "going")
    peer.framer.goodbye(1000)
    assert not peer.stream.over
    # nothing follows it
    peer.framer.send_text("late")
    peer.framer.send_binary(b"late")
    peer.framer.ping()
    peer.stream.send(b"late")
    assert peer.feed(frame(PING, b"late", to=role)) == []
    assert peer.sent() == [Sent(TEXT, b"last"), Sent(CLOSE, closing(1001, b"going"))]
    # what the peer sent before it knew is checked and dropped
    assert peer.feed(frame(TEXT, b"crossed", to=role) * 2) == []
    assert peer.framer.buffered == 0
    assert not peer.stream.over
    peer.feed(frame(CLOSE, closing(1001), to=role))
    assert peer.stream.over
    assert (peer.framer.close_code, peer.framer.failure) == (1001, None)
    assert peer.sent() == []
    peer.framer.goodbye(1000)
    assert peer.sent() == []


def test_faults_behind_our_goodbye() -> None:
    peer = Peer()
    peer.framer.goodbye()
    assert peer.sent() == [Sent(CLOSE, closing(1000))]
    peer.feed(frame(TEXT, b"\xff"))
    assert peer.stream.over
    assert peer.framer.failure == (1007, "not UTF-8")
    assert peer.sent() == []


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("x" * 200, b"x" * 123),
        ("é" * 100, "é".encode() * 61),
        ("x" + "é" * 100, b"x" + "é".encode() * 61),
        ("𐍈" * 40, "𐍈".encode() * 30),
        ("a\ud800b", b"a?b"),
    ],
)
def test_a_reason_is_cut_between_characters(reason: str, kept: bytes) -> None:
    for role in ROLES:
        peer = Peer(role)
        peer.framer.goodbye(1011, reason)
        assert peer.sent() == [Sent(CLOSE, closing(1011, kept))]


@every("code", [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, -1])
def test_codes_that_may_not_be_sent(code: int) -> None:
    peer = Peer()
    with pytest.raises(ValueError, match=f"{code} is not a close code"):
        peer.framer.goodbye(code)
    assert peer.raw() == b""


def test_what_cannot_be_sent() -> None:
    peer = Peer()
    for bad in (b"\xff", bytearray(b"ab\xed\xa0\x80")):
        with raises(ValueError):
            peer.framer.send_text(bad)
    with pytest.raises(UnicodeEncodeError):
        peer.framer.send_text("\ud800")
    with pytest.raises(TypeError):
        peer.framer.send_binary("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        peer.framer.send_binary(memoryview(b"abcd")[::2])
    with raises(ValueError):
        peer.stream.send(b"")
    assert peer.raw() == b""


def test_a_framer_needs_a_stream_and_only_one() -> None:
    framer = WebSocketFramer("server", max_message=10)
    for say in (framer.ping, framer.goodbye, lambda: framer.send_text("x")):
        with raises(RuntimeError):
            say()
    FrameStream(framer)
    with raises(ValueError):
        Session(framer=framer)
    framer.ping()


def test_answers_and_messages_keep_their_order() -> None:
    peer = Peer(binary=False)
    peer.stream.send(b"[1]")
    peer.feed(frame(PING, b"a"))
    peer.stream.send(text(5000))
    peer.feed(frame(PING, b"b"))
    peer.stream.send(b"[2]")
    assert peer.sent() == [
        Sent(TEXT, b"[1]"),
        Sent(PONG, b"a"),
        Sent(TEXT, text(5000)),
        Sent(PONG, b"b"),
        Sent(TEXT, b"[2]"),
    ]


def test_the_base_has_no_goodbye() -> None:
    """Lines have no closing words: their link just closes."""
    stream = FrameStream(LineFramer(100))
    assert not stream.over
