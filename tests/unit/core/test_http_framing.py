"""Messages of HTTP connections as frames: bodies, limits, memory, ends, and both roles."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from lab.http_corpus import GET, head
from lab.http_parsers import pieces
from lab.rows import every
from lab.wording import raises

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.slab import slabs_live
from wirespeed.core import FrameStream, Lease, Limits

DOORS = pytest.mark.parametrize("door", ["data", "buffer"])
CHUNKED = "Transfer-Encoding: chunked"


class Peer:
    """A connection, by either door."""

    def __init__(
        self, role: Any = "server", *, door: str = "data", max_body: int = 1 << 20, **options: Any
    ) -> None:
        self.framer = HttpFramer(role, max_body=max_body, **options)
        self.stream = FrameStream(self.framer, limits=Limits(max_message=1 << 26))
        self.door = door

    def give(self, data: bytes) -> None:
        if self.door == "data":
            self.stream.receive_data(data)
            return
        while data:
            view = self.stream.get_buffer()
            n = min(len(view), len(data))
            view[:n] = data[:n]
            view.release()
            self.stream.buffer_updated(n)
            data = data[n:]

    def take(self) -> list[tuple[str, bytes]]:
        """The path (of a client: the status) and the body of each message that is there."""
        found = []
        for body in self.stream:
            assert body is not None
            head = self.framer.head
            found.append((str(head.status) if head.response else head.path, bytes(body)))
        return found

    def feed(self, data: bytes, step: int = 0) -> list[tuple[str, bytes]]:
        found = []
        for piece in pieces(data, step or max(1, len(data))):
            self.give(piece)
            found += self.take()
        return found

    def end(self) -> list[tuple[str, bytes]]:
        self.stream.receive_eof()
        return self.take()


def post(path: str, body: bytes, *fields: str) -> bytes:
    line = f"POST {path} HTTP/1.1".encode()
    return head(f"Content-Length: {len(body)}", *fields, line=line) + body


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


@pytest.mark.smoke
@DOORS
@pytest.mark.parametrize("step", [0, 1, 7, 1000])
def test_messages_of_every_kind_in_one_stream(door: str, step: int) -> None:
    stream = (
        post("/a", b"hello")
        + head(line=b"GET /b HTTP/1.1")
        + head(CHUNKED, line=b"POST /c HTTP/1.1")
        + chunks(b"x" * 300, b"y", b"z" * 3)
        + post("/d", b"")
        + head(CHUNKED, line=b"PUT /e HTTP/1.1")
        + chunks()
        + post("/f", b"w" * 5000)
    )
    peer = Peer(door=door)
    assert peer.feed(stream, step) == [
        ("/a", b"hello"),
        ("/b", b""),
        ("/c", b"x" * 300 + b"yzzz"),
        ("/d", b""),
        ("/e", b""),
        ("/f", b"w" * 5000),
    ]
    assert peer.framer.failure is None
    assert peer.framer.buffered == 0


def test_bodies_stay_where_they_were_read() -> None:
    """Only the chunks behind the first one are moved, and these bytes are counted."""
    peer = Peer(door="buffer")
    for body in (b"x" * 50, b"y" * 200_000):
        assert peer.feed(post("/", body), 20_000) == [("/", body)]
    moved = peer.framer.bytes_moved
    data = head(CHUNKED) + chunks(b"a" * 100)
    assert peer.feed(data) == [("/mcp", b"a" * 100)]
    assert peer.framer.bytes_moved == moved
    data = head(CHUNKED) + chunks(b"a" * 100, b"b" * 10, b"c" * 5)
    assert peer.feed(data) == [("/mcp", b"a" * 100 + b"b" * 10 + b"c" * 5)]
    assert peer.framer.bytes_moved == moved + 15


def test_a_body_is_kept_as_long_as_its_lease() -> None:
    peer = Peer(door="buffer")
    kept: list[Lease] = []
    for i in range(50):
        peer.give(post("/", b"%d" % i * 3000))
        kept += [body for body in peer.stream if body is not None]
        peer.give(head(CHUNKED) + chunks(b"%d" % i, b"chunk"))
        kept += [body for body in peer.stream if body is not None]
    for i in range(50):
        assert bytes(kept[2 * i]) == b"%d" % i * 3000
        assert bytes(kept[2 * i + 1]) == b"%dchunk" % i


@DOORS
@pytest.mark.parametrize("step", [1, 6, 100])
def test_chunks_of_a_byte_take_no_more_memory_than_their_body(door: str, step: int) -> None:
    peer = Peer(door=door)
    data = head(CHUNKED) + chunks(*[b"x"] * 5000)[:-5]
    highest = 0
    for piece in pieces(data, step):
        assert peer.feed(piece) == []
        highest = max(highest, peer.framer.buffered)
    assert highest <= len(head(CHUNKED)) + 5000 + step
    assert peer.feed(b"0\r\n\r\n") == [("/mcp", b"x" * 5000)]


def test_an_idle_connection_holds_no_memory() -> None:
    gc.collect()
    before = slabs_live()
    peers = [Peer(door="buffer") for _ in range(40)]
    for peer in peers:
        assert peer.feed(post("/", b"x") + b"\r\n") == [("/", b"x")]
    gc.collect()
    assert slabs_live() <= before + 16  # what is kept as spare


@every(
    ("data", "status"),
    [
        (head("Content-Length: 11"), 413),
        (head(CHUNKED) + b"b\r\n", 413),
        (head(CHUNKED) + chunks(b"x" * 10, b"y", end=b""), 413),
        (head(CHUNKED) + b"1;" + b"a" * 300 + b"\r\n", 431),
        (head(CHUNKED) + 200 * b"1;ab\r\nx\r\n", 431),
        (head(CHUNKED) + b"0\r\n" + 50 * b"X: y\r\n", 431),
    ],
)
@every("step", [0, 1])
def test_limits_of_a_body(data: bytes, status: int, step: int) -> None:
    max_body = 10 if status == 413 else 1000
    peer = Peer(max_body=max_body, max_head=200)
    assert peer.feed(data, step) == []
    assert peer.framer.failure is not None
    assert peer.framer.failure[0] == status
    assert str(max_body if status == 413 else 200) in peer.framer.failure[1]


def test_a_body_of_the_limit() -> None:
    peer = Peer(max_body=10)
    assert peer.feed(post("/", b"x" * 10)) == [("/", b"x" * 10)]
    assert peer.feed(head(CHUNKED) + chunks(b"x" * 9, b"y")) == [("/mcp", b"x" * 9 + b"y")]


def test_an_announced_length_takes_no_memory() -> None:
    peer = Peer(door="buffer", max_body=1 << 30)
    assert peer.feed(head("Content-Length: 1000000000") + b"x" * 10) == []
    view = peer.stream.get_buffer()
    assert len(view) < 1 << 20


def test_what_follows_a_fault_is_dropped() -> None:
    peer = Peer()
    assert peer.feed(post("/a", b"x") + b"GET /b\r\n") == [("/a", b"x")]
    assert peer.framer.failure is not None
    assert peer.framer.failure[0] == 400
    assert peer.feed(post("/c", b"x")) == []
    assert peer.framer.buffered == 0
    assert not peer.stream.over  # what is queued may still be sent


def test_what_follows_the_last_request_is_dropped() -> None:
    peer = Peer()
    data = post("/a", b"x", "Connection: close") + post("/b", b"x")
    assert peer.feed(data) == [("/a", b"x")]
    assert peer.framer.ended
    assert peer.framer.failure is None
    assert peer.feed(b"\0") == []
    assert peer.framer.buffered == 0


def test_stop_takes_no_further_request() -> None:
    peer = Peer()
    peer.give(post("/a", b"x") + post("/b", b"x"))
    assert next(peer.stream) is not None
    peer.framer.stop()
    assert peer.take() == []
    assert peer.framer.failure is None


@every(
    "data",
    [
        b"G",
        b"\r",
        head()[:-1],
        head("Content-Length: 2") + b"x",
        head(CHUNKED),
        head(CHUNKED) + chunks(b"x", end=b""),
        head(CHUNKED) + chunks(b"x", end=b"0\r\n"),
    ],
)
def test_the_end_inside_a_request_is_a_fault(data: bytes) -> None:
    peer = Peer()
    assert peer.feed(post("/a", b"x") + data) == [("/a", b"x")]
    assert peer.framer.failure is None
    assert peer.end() == []
    assert peer.framer.failure == (400, "the stream ended inside a message")


@pytest.mark.parametrize("data", [b"", b"\r\n", post("/a", b"x"), post("/a", b"x") + b"\r\n"])
def test_the_end_between_requests_is_none(data: bytes) -> None:
    peer = Peer()
    peer.feed(data)
    assert peer.end() == []
    assert peer.framer.failure is None


def test_the_head_is_there_before_the_body() -> None:
    peer = Peer()
    framer = peer.framer
    assert not framer.has_head
    assert peer.feed(head("Content-Length: 5", line=b"POST /a HTTP/1.1")[:-1]) == []
    assert not framer.has_head
    assert peer.feed(b"\n") == []
    assert framer.has_head
    assert framer.head.path == "/a"
    assert peer.feed(b"hell") == []
    assert framer.has_head
    assert framer.head.fields == [("Host", "a"), ("Content-Length", "5")]
    assert peer.feed(b"o") == [("/a", b"hello")]
    assert not framer.has_head


def test_a_client_that_waits_to_be_told() -> None:
    peer = Peer()
    framer = peer.framer
    expecting = head("Expect: 100-continue", "Content-Length: 2")
    assert peer.feed(expecting) == []
    assert framer.awaits_continue
    framer.send_continue()
    assert not framer.awaits_continue
    assert b"".join(map(bytes, peer.stream.data_to_send())) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert peer.feed(b"hi") == [("/mcp", b"hi")]
    assert peer.feed(expecting) == []
    assert framer.awaits_continue  # the next one waits again
    assert peer.feed(b"h") == []
    assert not framer.awaits_continue  # the client did not wait
    assert peer.feed(b"i") == [("/mcp", b"hi")]
    assert (
        peer.feed(head("Expect: 100-continue", "Content-Length: 2", line=b"POST / HTTP/1.0")) == []
    )
    assert not framer.awaits_continue


def test_another_protocol_takes_over() -> None:
    peer = Peer()
    upgrade = head("Upgrade: websocket", "Connection: Upgrade", line=GET)
    peer.give(upgrade + b"\x81\x85abcd")
    body = next(peer.stream)
    assert body is not None
    assert bytes(body) == b""
    assert peer.framer.head.upgrades
    assert peer.framer.head.raw == upgrade
    assert peer.framer.take_rest() == b"\x81\x85abcd"
    assert peer.framer.ended
    assert peer.framer.buffered == 0


@DOORS
@pytest.mark.parametrize("step", [0, 1, 9])
def test_a_client_reads_responses(door: str, step: int) -> None:
    stream = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        b"HTTP/1.1 204 No Content\r\n\r\n"
        b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n"
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks(b"a", b"b")
        + b"HTTP/1.1 200 OK\r\n\r\nuntil the "
    )
    peer = Peer("client", door=door)
    assert peer.feed(stream, step) == [
        ("200", b"hi"),
        ("204", b""),
        ("304", b""),
        ("202", b"ab"),
    ]
    assert peer.feed(b"end") == []
    assert peer.end() == [("200", b"until the end")]
    assert peer.framer.ended
    assert peer.framer.failure is None


@pytest.mark.parametrize("step", [0, 1])
def test_interim_responses_are_skipped(step: int) -> None:
    peer = Peer("client")
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert peer.feed(interim * 3, step) == []
    assert peer.framer.buffered == 0
    assert peer.feed(interim + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", step) == []
    assert peer.framer.head.fields == [("Content-Length", "1")]
    assert peer.feed(b"x") == [("200", b"x")]


def test_a_change_of_protocols_is_a_response() -> None:
    peer = Peer("client")
    peer.give(b"HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n\x81\x00")
    assert bytes(next(peer.stream) or b"") == b""
    assert peer.framer.head.status == 101
    assert peer.framer.take_rest() == b"\x81\x00"


@pytest.mark.parametrize("step", [0, 1])
def test_responses_that_have_no_body_because_of_their_request(step: int) -> None:
    peer = Peer("client")
    sized = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for data in (sized, chunked, b"HTTP/1.1 200 OK\r\n\r\n"):
        peer.framer.expect("HEAD")
        assert peer.feed(b"HTTP/1.1 100 x\r\n\r\n" + data, step) == [("200", b"")]
    assert peer.feed(sized + b"hello", step) == [("200", b"hello")]  # no longer expected
    peer.framer.expect("CONNECT")
    assert peer.feed(b"HTTP/1.1 403 x\r\nContent-Length: 2\r\n\r\nno", step) == [("403", b"no")]
    peer.framer.expect("CONNECT")
    peer.give(chunked + b"\x16\x03")
    assert bytes(next(peer.stream) or b"") == b""
    assert peer.framer.take_rest() == b"\x16\x03"


class Streaming(Peer):
    """A client that takes bodies of status 200 in pieces."""

    def __init__(self, **options: Any) -> None:
        super().__init__("client", heads=True, **options)

    def take(self) -> list[tuple[str, bytes]]:
        found = []
        for body in self.stream:
            assert body is not None
            found.append((self.framer.part, bytes(body)))
            if self.framer.part == "head" and self.framer.head.status == 200:
                self.framer.take_pieces()
        return found


OK = b"HTTP/1.1 200 OK\r\n"
ONE_CHUNKED = OK + CHUNKED.encode() + b"\r\n\r\n"
IN_PIECES = [
    (ONE_CHUNKED, chunks(b"hello ", b"w" * 300, b"!"), b"hello " + b"w" * 300 + b"!"),
    (ONE_CHUNKED, chunks(end=b"0\r\nX: y\r\n\r\n"), b""),
    (OK + b"Content-Length: 300\r\n\r\n", b"x" * 300, b"x" * 300),
    (OK + b"Content-Length: 0\r\n\r\n", b"", b""),
]


@DOORS
@pytest.mark.parametrize("step", [0, 1, 7, 1000])
@pytest.mark.parametrize(("head", "wire", "body"), IN_PIECES)
def test_a_body_in_pieces(head: bytes, wire: bytes, body: bytes, door: str, step: int) -> None:
    """Pieces come as they arrive, of any length in all; then others follow whole."""
    peer = Streaming(door=door, max_body=10)
    [first, *pieces_, end, next_head, last] = peer.feed(
        head + wire + b"HTTP/1.1 404 x\r\nContent-Length: 2\r\n\r\nno", step
    )
    assert (first, end, next_head) == (("head", b""), ("end", b""), ("head", b""))
    assert all(part == "piece" and piece for part, piece in pieces_)
    assert b"".join(piece for _, piece in pieces_) == body
    assert last == ("body", b"no")
    assert peer.framer.failure is None
    assert peer.framer.buffered == 0


@pytest.mark.parametrize("step", [0, 1, 7])
def test_pieces_until_the_connection_ends(step: int) -> None:
    peer = Streaming(max_body=4)
    found = peer.feed(OK + b"\r\nhello", step)
    assert found[0] == ("head", b"")
    assert b"".join(piece for _, piece in found) == b"hello"
    assert not peer.framer.ended
    assert peer.end() == [("end", b"")]
    assert peer.framer.ended
    assert peer.framer.failure is None


def test_pieces_arrive_at_once_and_are_not_moved() -> None:
    peer = Streaming(door="buffer")
    assert peer.feed(ONE_CHUNKED) == [("head", b"")]
    assert peer.feed(chunks(b"one", b"two", end=b"")) == [("piece", b"one"), ("piece", b"two")]
    assert peer.feed(b"5\r\nab") == [("piece", b"ab")]
    assert peer.framer.buffered == 0
    assert peer.feed(b"cde\r\n0\r\n\r\n") == [("piece", b"cde"), ("end", b"")]
    assert peer.framer.bytes_moved == 0


def test_the_head_of_a_body_in_pieces_is_gone_with_the_next_frame() -> None:
    peer = Streaming()
    assert peer.feed(ONE_CHUNKED) == [("head", b"")]
    assert not peer.framer.has_head
    with raises(RuntimeError):
        _ = peer.framer.head.raw
    with raises(RuntimeError):
        peer.framer.take_pieces()


def test_a_body_that_has_begun_is_not_taken_in_pieces() -> None:
    peer = Peer("client", heads=True)
    assert peer.feed(ONE_CHUNKED) == [("200", b"")]
    with raises(RuntimeError):
        peer.framer.take_pieces()
    assert peer.feed(chunks(b"x")) == [("200", b"x")]


@every("step", [0, 1])
@every(
    "wire",
    [
        ONE_CHUNKED,
        ONE_CHUNKED + b"5\r\nhe",
        ONE_CHUNKED + chunks(b"x", end=b""),
        ONE_CHUNKED + chunks(end=b"0\r\n"),
        OK + b"Content-Length: 2\r\n\r\nx",
        OK + b"Content-Length: 2\r\n\r\n",
    ],
)
def test_the_end_inside_a_body_in_pieces_is_a_fault(wire: bytes, step: int) -> None:
    peer = Streaming()
    assert peer.feed(wire, step)[0] == ("head", b"")
    assert peer.framer.failure is None
    assert peer.end() == []
    assert peer.framer.failure == (502, "the stream ended inside a message")


@pytest.mark.parametrize("step", [0, 1])
def test_chunks_of_a_body_in_pieces_are_read_strictly(step: int) -> None:
    peer = Streaming(max_head=200)
    assert peer.feed(ONE_CHUNKED + 400 * b"1;ab\r\nx\r\n", step)[1:] == [("piece", b"x")] * 400
    assert peer.feed(b"1;" + b"a" * 300 + b"\r\n", step) == []
    assert peer.framer.failure == (
        502,
        "the chunk extensions and trailers of a body have more than 200 bytes",
    )
    peer = Streaming()
    assert peer.feed(ONE_CHUNKED + b"1\r\nxy", step)[1:] == [("piece", b"x")]
    assert peer.framer.failure == (502, "a chunk is not followed by the end of a line")


def test_a_length_is_limited_where_the_body_is_whole() -> None:
    peer = Peer("client", heads=True, max_body=10)
    assert peer.feed(OK + b"Content-Length: 11\r\n\r\n") == [("200", b"")]
    assert peer.framer.failure == (502, "the body has more than 10 bytes")


def test_a_client_limits_a_body_without_length() -> None:
    peer = Peer("client", max_body=10)
    assert peer.feed(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10) == []
    assert peer.framer.failure is None
    assert peer.feed(b"x") == []
    assert peer.framer.failure == (502, "the body has more than 10 bytes")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"role": "both"}, 'role must be "server" or "client"'),
        ({"max_body": 0}, "the limit of a frame"),
        ({"max_head": 0}, "the limit of a head"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        HttpFramer(**{"max_body": 1, **options})
