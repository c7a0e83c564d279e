"""Newline framing: what ends a message, what is too long, what is moved and what is held."""

from __future__ import annotations

import pytest
from lab.core import (
    DOORS,
    Feed,
    chunkings,
    feed_all,
    feed_data,
    notification,
    outcomes,
    request,
    sent,
    take,
)
from lab.rows import every
from lab.wording import raises

from wirespeed.core import Limits, Session

BOM = b"\xef\xbb\xbf"
both_doors = pytest.mark.parametrize("feed", DOORS.values(), ids=DOORS)


def padded(n: int) -> bytes:
    """A notification of exactly n bytes, without its newline."""
    shell = len(notification("", "")) - 1
    return notification("m" * (n - shell)).rstrip(b"\n")


def copied(session: Session) -> int:
    return session.counters["payload_bytes_copied"]


# -- what ends a message -----------------------------------------------------------------------


@both_doors
@pytest.mark.parametrize(
    "stream",
    [
        BOM + padded(40) + b"\n",
        b"\n\n" + padded(40) + b"\n\n\n",
        b"\r\n \r\n\t\n" + padded(40) + b"\r\n",
        padded(40) + b"\r\r\n",
        b"  " + padded(40) + b" \t \r\n",
        BOM + b"\n" + padded(40) + b"\n",
    ],
)
def test_tolerated_surroundings(feed: Feed, stream: bytes) -> None:
    for chunks in chunkings(stream):
        assert feed_all(Session(), chunks, feed) == ["notification"]


@pytest.mark.parametrize(
    "before", [b"\n", b" \r\n\n", b"starting ...\n", b"a\n\nb\n", BOM + b"x\n"]
)
def test_the_mark_is_tolerated_before_the_first_message(before: bytes) -> None:
    """A launcher may have written lines before the program that writes the mark."""
    for chunks in chunkings(before + b" " + BOM + padded(40) + b"\n"):
        expected = "invalid parse" if before.startswith(BOM) else "notification"
        assert feed_all(Session(), chunks, feed_data)[-1] == expected


def test_the_mark_is_tolerated_once_and_before_no_other_message() -> None:
    line = padded(40) + b"\n"
    for before in (line, b" " + line, BOM, BOM + b"\n", b"[]\n"):
        session = Session()
        session.receive_data(before + BOM + line)
        assert outcomes(session)[-1] == "invalid parse"
    session = Session(limits=Limits(max_message=50))
    session.receive_data(b"x" * 60 + b"\n" + BOM + line)
    assert outcomes(session) == ["invalid request", "invalid parse"]


def test_other_line_ends_do_not_end_a_message() -> None:
    for end in ("\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1e", "\r"):
        session = Session()
        session.receive_data(padded(40) + end.encode() + padded(40) + b"\n")
        assert outcomes(session) == ["invalid parse"]
    for text in ("\u2028", "\u2029", "\u0085"):
        session = Session()
        session.receive_data(notification(text))
        (message,) = session.events()
        assert message.method == text


def test_raw_is_the_line_without_what_surrounds_it() -> None:
    session = Session()
    session.receive_data(BOM + b" \t" + padded(50) + b"\t \r\n")
    (message,) = session.events()
    assert bytes(message.raw) == padded(50)


@both_doors
def test_end_of_input(feed: Feed) -> None:
    for chunks in chunkings(padded(40)):
        session = Session()
        assert feed_all(session, chunks, feed) == []
        session.receive_eof()
        assert outcomes(session) == ["notification"]
        assert outcomes(session) == []
        assert session.want_read


def test_end_of_input_is_known_before_the_chunks_are_looked_at() -> None:
    """The last line is the last of all chunks, not of the first one."""
    for chunks in chunkings(padded(40)):
        session = Session()
        for chunk in chunks:
            session.receive_data(chunk)
        session.receive_eof()
        assert outcomes(session) == ["notification"]
    session = Session(limits=Limits(max_message=50))
    for chunk in (b"x" * 60, b"yy", b"zz\n" + padded(40)):
        session.receive_data(chunk)
    session.receive_eof()
    assert outcomes(session) == ["invalid request", "notification"]


@every("stream", [b"", b"\n", b"  ", b"\r", BOM, BOM + b"\r\n"])
def test_nothing_but_blanks(stream: bytes) -> None:
    session = Session()
    session.receive_data(stream)
    session.receive_eof()
    assert outcomes(session) == []
    assert sent(session) == b""


def test_no_bytes_after_the_end_of_input() -> None:
    session = Session()
    session.receive_eof()
    session.receive_eof()
    with raises(RuntimeError):
        session.receive_data(b"x")
    assert session.counters["bytes_in"] == 0


# -- too long ----------------------------------------------------------------------------------


@both_doors
def test_the_limit_is_exact(feed: Feed) -> None:
    limits = Limits(max_message=60)
    tail = padded(40) + b"\n"
    for n, end, expected in (
        (60, b"\n", "notification"),
        (60, b"\r\n", "notification"),
        (59, b" \n", "notification"),
        (61, b"\n", "invalid request"),
        (61, b"\r\n", "invalid request"),
        (60, b"\r\r\n", "invalid request"),
        (60, b" \n", "invalid request"),
    ):
        for chunks in chunkings(padded(n) + end + tail):
            found = feed_all(Session(limits=limits), chunks, feed)
            assert found == [expected, "notification"], (n, end, chunks)


@both_doors
@pytest.mark.parametrize("n", [61, 62, 100, 500])
def test_too_long_is_said_once_and_the_next_line_counts(feed: Feed, n: int) -> None:
    limits = Limits(max_message=60)
    for chunks in chunkings(b"x" * n + b"\n" + padded(40) + b"\n"):
        session = Session(limits=limits)
        assert feed_all(session, chunks, feed) == ["invalid request", "notification"]
        answer = sent(session)
        assert answer.count(b"\n") == 1
        assert b'"id":null' in answer
        assert b"-32600" in answer
        assert b"limit of 60 bytes" in answer


@both_doors
def test_too_long_is_said_as_soon_as_it_is(feed: Feed) -> None:
    session = Session(limits=Limits(max_message=60))
    feed(session, b"x" * 60)
    assert outcomes(session) == []
    feed(session, b"x")
    assert outcomes(session) == ["invalid request"]
    for _ in range(50):
        feed(session, b"x" * 100)
        assert outcomes(session) == []
    feed(session, b"\n" + padded(40) + b"\n")
    assert outcomes(session) == ["notification"]


@both_doors
def test_too_long_at_the_end_of_input(feed: Feed) -> None:
    for n in (61, 200):
        for chunks in chunkings(b"x" * n):
            session = Session(limits=Limits(max_message=60))
            found = feed_all(session, chunks, feed)
            session.receive_eof()
            assert found + outcomes(session) == ["invalid request"]
            assert outcomes(session) == []


def test_a_message_too_long_to_be_kept() -> None:
    session = Session(limits=Limits(max_message=60))
    session.receive_data(b"x" * 61 + b"\n")
    (message,) = session.events()
    assert message.raw is None
    assert message.id is message.raw_id is message.method is message.params is None
    assert message.lease("params.name") is None
    assert message.text("params.name") is None
    assert message.ref == 0
    assert message.token is None
    assert "60 bytes" in repr(message)


def test_the_bytes_of_a_line_too_long_are_not_held() -> None:
    session = Session(limits=Limits(max_message=60))
    for _ in range(3):
        chunk = bytearray(b"x" * 10_000)
        session.receive_data(chunk)
        take(session)
        chunk.append(0)
    assert session.counters["faults"] == 1
    assert copied(session) == 0


# -- what is moved -----------------------------------------------------------------------------


@both_doors
def test_messages_that_arrive_whole_are_not_moved(feed: Feed) -> None:
    session = Session()
    for n in (40, 1000, 60_000, 200_000):
        feed(session, (padded(n) + b"\n") * 3)
        kept = take(session)
        assert [len(message.raw) for message in kept] == [n] * 3
        del kept
    if feed is feed_data:
        assert copied(session) == 0
    else:
        # in the slab's room each arrived whole; longer ones came in pieces
        assert copied(session) <= 200_000


def test_messages_in_a_reader_s_buffer_are_not_moved_even_when_kept() -> None:
    session = Session(limits=Limits(max_in_flight=3000))
    kept = []
    for i in range(3000):
        DOORS["buffer"](session, request(i, "m" * 100))
        kept += take(session)
    assert copied(session) == 0
    assert [message.id for message in kept] == list(range(3000))
    assert all(message.method == "m" * 100 for message in kept)


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_an_unfinished_line_is_moved_once_and_counted(cut: int) -> None:
    line = padded(40) + b"\n"
    session = Session()
    session.receive_data(line[:cut])
    assert outcomes(session) == []
    session.receive_data(line[cut:] + line)
    assert outcomes(session) == ["notification"] * 2
    assert copied(session) == len(line)  # the first, and not the second


def test_byte_by_byte_each_byte_is_moved_once() -> None:
    line = padded(500) + b"\n"
    session = Session()
    for i in range(len(line)):
        session.receive_data(line[i : i + 1])
        assert len(take(session)) == (i == len(line) - 1)
    assert copied(session) == len(line)


@both_doors
@pytest.mark.parametrize("step", [1000, 4096, 65_536, 1_000_003])
def test_a_long_line_costs_twice_its_length_at_most(feed: Feed, step: int) -> None:
    n = 3_000_000
    line = padded(n) + b"\n"
    session = Session()
    found: list[str] = []
    for i in range(0, len(line), step):
        feed(session, line[i : i + step])
        found += outcomes(session)
    assert found == ["notification"]
    assert copied(session) <= 2 * n


@both_doors
def test_a_long_line_behind_kept_messages_costs_no_more(feed: Feed) -> None:
    """Kept messages pin the block that the line begins in."""
    n = 1_000_000
    line = padded(n) + b"\n"
    session = Session()
    feed(session, request(1) + line[:100])
    kept = take(session)
    for i in range(100, len(line), 10_000):
        feed(session, line[i : i + 10_000])
        kept += take(session)
    assert [message.kind for message in kept] == ["request", "notification"]
    assert bytes(kept[0].raw) == request(1).rstrip()
    assert bytes(kept[1].raw) == line.rstrip()
    assert copied(session) <= 2 * n


def test_taking_many_small_chunks_late_is_linear() -> None:
    """Moves grow with the bytes, whether the chunks are looked at one by one or all at once."""
    line = padded(40) + b"\n"
    session = Session()
    for i in range(0, 40_000 * len(line), 7):
        at = i % len(line)
        session.receive_data((line + line)[at : at + 7])
    assert outcomes(session).count("notification") >= 39_999
    assert copied(session) <= 40_001 * len(line)


# -- what is held ------------------------------------------------------------------------------


def test_an_idle_session_holds_no_input_memory() -> None:
    chunk = bytearray(padded(100) + b"\n")
    session = Session()
    session.receive_data(chunk)
    with pytest.raises(BufferError):
        chunk.append(0)  # read in place: exported
    assert outcomes(session) == ["notification"]
    chunk.append(0)  # given back


def test_an_unfinished_line_releases_the_chunk_once_it_is_complete() -> None:
    line = padded(100) + b"\n"
    first, second = bytearray(line[:30]), bytearray(line[30:])
    session = Session()
    session.receive_data(first)
    assert outcomes(session) == []
    session.receive_data(second)
    assert outcomes(session) == ["notification"]
    first.append(0)
    second.append(0)


def test_an_empty_chunk_is_nothing() -> None:
    session = Session()
    for empty in (b"", bytearray(), memoryview(b"")):
        session.receive_data(empty)
    assert outcomes(session) == []
    assert session.counters["bytes_in"] == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_contiguous_bytes(kind: type) -> None:
    session = Session()
    session.receive_data(kind(padded(40) + b"\n"))
    assert outcomes(session) == ["notification"]
    assert session.counters["bytes_in"] == 41


def test_bytes_are_counted_whatever_the_items_are() -> None:
    session = Session()
    session.receive_data(memoryview(padded(43) + b"\n").cast("I"))
    assert outcomes(session) == ["notification"]
    assert session.counters["bytes_in"] == 44
    session.receive_data(memoryview(b"\n").cast("B", ()))
    assert session.counters["bytes_in"] == 45


@pytest.mark.parametrize("data", ["text", 5, None, memoryview(b"abcd")[::2]])
def test_what_is_no_contiguous_bytes_is_refused(data: object) -> None:
    session = Session()
    with pytest.raises((TypeError, BufferError)):
        session.receive_data(data)  # type: ignore[arg-type]
    assert session.counters["bytes_in"] == 0
    session.receive_data(padded(40) + b"\n")
    assert outcomes(session) == ["notification"]
