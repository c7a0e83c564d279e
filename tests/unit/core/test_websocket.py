"""WebSocket framing, incoming: what is a message, what is answered, what ends the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.core import chunkings
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
    Sent,
    closing,
    frame,
)
from lab.wording import raises

from wirespeed.core import WebSocketFramer

ROLES: tuple[Role, ...] = ("server", "client")
both_roles = pytest.mark.parametrize("role", ROLES)
both_doors = pytest.mark.parametrize("door", ["data", "buffer"])
GOOD = (TEXT, b"behind")


def ways(stream: bytes, role: Role) -> Iterator[tuple[Peer, list[tuple[int, bytes]]]]:
    """A peer of its own for every way to cut the stream, by each door, and what it found."""
    for door in ("data", "buffer"):
        for chunks in chunkings(stream):
            peer = Peer(role, door=door, max_message=400, max_fragments=5, max_control=4)
            yield peer, [message for chunk in chunks for message in peer.feed(chunk)]


def check(
    role: Role, stream: bytes, *expected: tuple[int, bytes], sent: list[Sent] | None = None
) -> None:
    """These messages and answers, however the stream is cut, and also with a message behind."""
    for peer, found in ways(stream, role):
        assert found == list(expected)
        assert peer.sent() == (sent or [])
        assert not peer.stream.over
        assert peer.framer.failure is None
        assert peer.framer.buffered == 0
    for _, found in ways(stream + frame(*GOOD, to=role), role):
        assert found == [*expected, GOOD]


def check_failure(
    role: Role, stream: bytes, code: int, *expected: tuple[int, bytes], about: str = ""
) -> None:
    """It ends the connection with this code, at every cut; what follows is not looked at."""
    for tail in (b"", frame(*GOOD, to=role), frame(PING, to=role), frame(CLOSE, to=role)):
        for peer, found in ways(stream + tail, role):
            assert found == list(expected)
            assert peer.stream.over
            assert peer.framer.failure is not None
            assert peer.framer.failure[0] == code
            assert about in peer.framer.failure[1]
            (close,) = peer.sent()
            assert close.opcode == CLOSE
            assert close.payload == closing(code, peer.framer.failure[1].encode())
            assert peer.framer.buffered == 0
            assert peer.framer.close_code is None


# -- messages ----------------------------------------------------------------------------------


@both_roles
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 125, 126, 127, 400])
def test_a_message_in_one_frame(role: Role, opcode: int, n: int) -> None:
    payload = bytes(range(128))[:n] + b"x" * (n - 128)
    check(role, frame(opcode, payload, to=role), (opcode, payload))


@both_roles
def test_fragments(role: Role) -> None:
    parts = [b"one", b"", b"two of them", b"t", b""]
    stream = b"".join(
        frame(BINARY if i == 0 else CONT, part, to=role, fin=i == 4, key=bytes([i, 9, 0, 200]))
        for i, part in enumerate(parts)
    )
    check(role, stream, (BINARY, b"".join(parts)))
    check(
        role,
        frame(TEXT, b"a", to=role) + stream + frame(TEXT, b"b", to=role),
        (TEXT, b"a"),
        (BINARY, b"".join(parts)),
        (TEXT, b"b"),
    )


@both_roles
def test_only_empty_fragments_are_an_empty_message(role: Role) -> None:
    stream = frame(TEXT, to=role, fin=False) + frame(CONT, to=role)
    check(role, stream + stream, (TEXT, b""), (TEXT, b""))


@both_roles
def test_control_frames_between_fragments(role: Role) -> None:
    stream = (
        frame(TEXT, b"ab", to=role, fin=False)
        + frame(PING, b"first", to=role)
        + frame(CONT, b"cd", to=role, fin=False)
        + frame(PONG, b"unasked", to=role)
        + frame(PING, to=role)
        + frame(CONT, b"ef", to=role)
    )
    check(role, stream, (TEXT, b"abcdef"), sent=[Sent(PONG, b"first"), Sent(PONG, b"")])


@both_roles
@pytest.mark.parametrize("key", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x81\x7e\0\x88"])
def test_any_masking_key(role: Role, key: bytes) -> None:
    payload = bytes(range(100))
    check(role, frame(BINARY, payload, to=role, key=key), (BINARY, payload))


@both_doors
@pytest.mark.parametrize("n", [65535, 65536, 70_000, 300_000, 1 << 20])
def test_large_messages(n: int, door: str) -> None:
    payload = bytes(i * 7 & 255 for i in range(1000)) * (n // 1000) + b"z" * (n % 1000)
    for role in ROLES:
        peer = Peer(role, door=door)
        stream = frame(BINARY, payload, to=role) + frame(*GOOD, to=role)
        assert peer.feed(stream) == [(BINARY, payload), GOOD]
        peer = Peer(role, door=door)
        found = []
        for i in range(0, len(stream), 16_000):
            found += peer.feed(stream[i : i + 16_000])
        assert found == [(BINARY, payload), GOOD]


def test_text_with_everything_utf8_has() -> None:
    text = "aé日本𐍈\x00\U0010ffff".encode()
    check("server", frame(TEXT, text[:4], fin=False) + frame(CONT, text[4:]), (TEXT, text))


# -- what ends the connection ------------------------------------------------------------------


FAULTS = {
    "reserved bit 1": frame(TEXT, b"x", rsv=4),
    "reserved bit 2": frame(TEXT, b"x", rsv=2),
    "reserved bit 3": frame(BINARY, rsv=1),
    "reserved bit of a ping": frame(PING, b"x", rsv=4),
    "reserved opcode 3": frame(3),
    "reserved opcode 7": frame(7, b"data"),
    "reserved opcode 11": frame(11),
    "reserved opcode 15": frame(15, b"x"),
    "ping of 126 bytes": frame(PING, b"x" * 126),
    "pong of 126 bytes": frame(PONG, b"x" * 126),
    "close of 126 bytes": frame(CLOSE, closing(1000, b"x" * 124)),
    "ping with a long length": frame(PING, b"x", size=2),
    "ping in fragments": frame(PING, b"x", fin=False),
    "close in fragments": frame(CLOSE, fin=False),
    "continuation of nothing": frame(CONT, b"x"),
    "continuation of nothing, not final": frame(CONT, b"x", fin=False),
    "a second message inside one": frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"),
    "a binary message inside one": frame(TEXT, fin=False) + frame(BINARY, b"y", fin=False),
    "2 bytes for a length of 0": frame(TEXT, size=2),
    "2 bytes for a length of 125": frame(TEXT, b"x" * 125, size=2),
    "8 bytes for a length of 125": frame(TEXT, b"x" * 125, size=8),
    "8 bytes for a length of 126": frame(TEXT, b"x" * 126, size=8),
    "8 bytes for a length of 65535": frame(TEXT, size=8, length=65535),
    "the highest bit of a length": frame(BINARY, b"x", size=8, length=1 << 63),
    "no mask": frame(TEXT, b"x", mask=False),
    "no mask on a ping": frame(PING, mask=False),
    "close of one byte": frame(CLOSE, b"\x03"),
}


@every("name", FAULTS)
def test_broken_rules_are_1002(name: str) -> None:
    check_failure("server", FAULTS[name], 1002)
    before = frame(TEXT, b"good")
    check_failure("server", before + FAULTS[name], 1002, (TEXT, b"good"))


@pytest.mark.parametrize(
    "stream", [frame(TEXT, b"x", mask=True), frame(PING, mask=True), frame(CLOSE, mask=True)]
)
def test_a_client_takes_no_masked_frame(stream: bytes) -> None:
    check_failure("client", stream, 1002, about="a masked frame")


@every(
    ("first", "second"),
    [(0xF1, 0x80), (0x83, 0x80), (0x8B, 0x80), (0x09, 0x80), (0x89, 0xFE), (0x80, 0x80), (1, 1)],
)
def test_two_bytes_are_enough_to_judge(first: int, second: int) -> None:
    peer = Peer()
    peer.feed(bytes([first]))
    assert not peer.stream.over
    peer.feed(bytes([second]))
    assert peer.stream.over


def test_a_message_too_big_is_told_by_its_header() -> None:
    for n in (401, 65536, 1 << 40, (1 << 63) - 1):
        head = frame(TEXT, size=2 if n == 401 else 8, length=n)
        check_failure("server", head, 1009, about="400 bytes")
    many = frame(TEXT, b"x" * 300, fin=False) + frame(CONT, b"x" * 100, fin=False)
    check_failure("server", many + frame(CONT, length=1), 1009)
    check("server", many + frame(CONT), (TEXT, b"x" * 400))


def test_too_many_fragments() -> None:
    some = frame(TEXT, b"x", fin=False) + frame(CONT, b"x", fin=False) * 3
    check("server", some + frame(CONT, b"x"), (TEXT, b"xxxxx"))
    check_failure("server", some + frame(CONT, fin=False) + frame(CONT), 1008, about="5 fragments")
    # fragments of 64 bytes and more do not count
    large = frame(TEXT, b"x" * 64, fin=False) + frame(CONT, b"x" * 64, fin=False) * 3
    rest = frame(CONT, b"x", fin=False) * 4
    check("server", large + rest + frame(CONT), (TEXT, b"x" * 260))
    check_failure("server", large + rest + rest + frame(CONT), 1008)
    check("server", frame(TEXT, b"x") * 20, *[(TEXT, b"x")] * 20)


BAD_TEXT = [b"\xff", b"ab\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"x\x80"]


@every("text", BAD_TEXT)
def test_text_that_is_not_utf8_is_1007(text: bytes) -> None:
    check_failure("server", frame(TEXT, text), 1007)
    parts = b"".join(
        frame(TEXT if i == 0 else CONT, text[i : i + 1], fin=i == len(text) - 1)
        for i in range(len(text))
    )
    check_failure("server", parts, 1007)
    check("server", frame(BINARY, text), (BINARY, text))


def test_binary_where_json_is_wanted_is_1003() -> None:
    for stream in (frame(BINARY, b"{}"), frame(BINARY, fin=False), frame(BINARY)[:2]):
        peer = Peer(binary=False)
        assert peer.feed(frame(TEXT, b" [] \n") + stream) == [(TEXT, b"[]")]
        assert peer.framer.failure == (1003, "only text messages are taken")
        assert peer.sent() == [Sent(CLOSE, closing(1003, b"only text messages are taken"))]


# -- control frames ----------------------------------------------------------------------------


@both_roles
@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(125))])
def test_a_ping_is_answered_with_its_payload(role: Role, payload: bytes) -> None:
    check(role, frame(PING, payload, to=role), sent=[Sent(PONG, payload)])


@both_roles
def test_pongs_are_taken_and_counted(role: Role) -> None:
    peer = Peer(role)
    assert peer.feed(frame(PONG, b"x", to=role) * 3 + frame(PING, to=role)) == []
    assert (peer.framer.n_pongs_in, peer.framer.n_pings_in) == (3, 1)


def test_control_frames_have_an_allowance() -> None:
    pings = frame(PING, b"p") * 2 + frame(PONG) * 2
    sent = [Sent(PONG, b"p")] * 2
    check("server", pings, sent=sent)
    peer = Peer(max_control=4)
    for _ in range(3):
        peer.feed(pings)
        peer.framer.allow_control()
    for _ in range(3):
        assert peer.feed(pings + frame(TEXT, b"x")) == [(TEXT, b"x")]
    # parts of a message do not fill it up
    peer.feed(frame(TEXT, fin=False) + pings + frame(CONT, fin=False))
    assert not peer.stream.over
    peer.feed(frame(PONG))
    assert peer.framer.failure == (1008, "too many control frames")


def test_a_flood_of_pings_that_nobody_reads_is_answered_once() -> None:
    """RFC 6455, section 5.5.3: only the latest need be answered."""
    peer = Peer(max_control=100_000)
    for i in range(20_000):
        peer.feed(frame(PING, b"%0125d" % i))
    assert 1 << 20 <= peer.stream.outbox.size < (1 << 20) + 200
    sent = peer.sent()
    assert len(sent) < 9000
    assert peer.take() == []
    assert peer.sent() == [Sent(PONG, b"%0125d" % 19_999)]
    peer.feed(frame(PING, b"again"))
    assert peer.sent() == [Sent(PONG, b"again")]


# -- the end -----------------------------------------------------------------------------------

CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999]
BAD_CODES = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]


@both_roles
@pytest.mark.parametrize("code", CODES)
def test_a_close_is_answered_with_its_code(role: Role, code: int) -> None:
    stream = frame(CLOSE, closing(code, "wörd".encode()), to=role)
    for tail in (b"", frame(*GOOD, to=role), b"\xff" * 20):
        for peer, found in ways(stream + tail, role):
            assert found == []
            assert peer.stream.over
            assert peer.framer.failure is None
            assert (peer.framer.close_code, peer.framer.close_reason) == (code, "wörd")
            assert peer.sent() == [Sent(CLOSE, closing(code))]


@both_roles
def test_a_close_without_a_code(role: Role) -> None:
    peer = Peer(role)
    assert peer.framer.close_code is None
    peer.feed(frame(CLOSE, to=role))
    assert (peer.framer.close_code, peer.framer.close_reason) == (1005, "")
    assert peer.sent() == [Sent(CLOSE, b"")]


@every("code", BAD_CODES)
def test_codes_that_may_not_be_sent_are_1002(code: int) -> None:
    check_failure("server", frame(CLOSE, closing(code, b"why")), 1002, about=f"close code {code}")


@every("text", BAD_TEXT)
def test_a_reason_that_is_not_utf8_is_1007(text: bytes) -> None:
    check_failure("server", frame(CLOSE, closing(1000, text)), 1007)


@both_roles
def test_a_close_ends_a_message_begun(role: Role) -> None:
    peer = Peer(role)
    peer.feed(frame(TEXT, b"begun", to=role, fin=False) + frame(CLOSE, closing(1001), to=role))
    assert peer.stream.over
    assert peer.framer.close_code == 1001
    assert peer.framer.buffered == 0


def test_a_peer_that_vanishes() -> None:
    peer = Peer()
    peer.feed(frame(TEXT, b"begun", fin=False))
    peer.stream.receive_eof()
    assert peer.take() == []
    assert (peer.framer.close_code, peer.framer.close_reason) == (1006, "")
    peer = Peer()
    peer.feed(frame(CLOSE, closing(1000)))
    peer.stream.receive_eof()
    assert peer.framer.close_code == 1000


@both_doors
def test_bytes_behind_the_end_are_taken_and_dropped(door: str) -> None:
    peer = Peer(door=door)
    peer.feed(frame(CLOSE))
    for _ in range(50):
        assert peer.feed(b"x" * 100_000) == []
        assert peer.framer.buffered == 0
    assert peer.sent() == [Sent(CLOSE, b"")]
    peer.stream.receive_eof()
    with raises(RuntimeError):
        peer.stream.receive_data(b"x")


@both_roles
def test_looking_while_a_buffer_is_lent(role: Role) -> None:
    """Bytes that a transport reads meanwhile land where it was told."""
    stream = (
        frame(TEXT, b"one", to=role)
        + frame(TEXT, b"tw", to=role, fin=False)
        + frame(PING, b"?", to=role)
        + frame(CONT, b"o", to=role)
        + frame(BINARY, b"three", to=role)
    )
    for cut in range(len(stream) + 1):
        peer = Peer(role)
        peer.stream.receive_data(stream[:cut])
        view = peer.stream.get_buffer()
        found = peer.take()
        rest = stream[cut:]
        view[: len(rest)] = rest
        peer.stream.buffer_updated(len(rest))
        assert found + peer.take() == [(TEXT, b"one"), (TEXT, b"two"), (BINARY, b"three")]
        assert peer.framer.buffered == 0
        assert [sent.opcode for sent in peer.sent()] == [PONG]


# -- what is refused ---------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    with raises(ValueError):
        WebSocketFramer("proxy", max_message=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        WebSocketFramer("server")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        WebSocketFramer(7, max_message=1)  # type: ignore[arg-type]
    for name in ("max_message", "max_fragments", "max_control"):
        with raises(ValueError):
            WebSocketFramer("server", **{"max_message": 5, name: 0})  # type: ignore[arg-type]
