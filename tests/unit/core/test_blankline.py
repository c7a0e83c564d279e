"""Frames that end with three newlines: what ends one, what is too long, what is moved and held."""

from __future__ import annotations

import pytest
from lab.core import chunkings
from lab.rows import every
from lab.wording import raises

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._core.streams import FrameStream
from wirespeed.limits import Limits

BOM = b"\xef\xbb\xbf"
ONE = b'{\n  "a": 1\n}'
TWO = b'{"b":2}'


class Reader:
    """A stream with this framing, by either door."""

    def __init__(self, max_frame: int = 1000, *, lenient: bool = False, door: str = "data") -> None:
        self.framer = BlankLineFramer(max_frame, lenient=lenient)
        self.stream = FrameStream(self.framer)
        self.door = door

    def feed(self, data: bytes) -> list[bytes | None]:
        if self.door == "data":
            self.stream.receive_data(data)
            return self.take()
        found = []
        while data:
            view = self.stream.get_buffer()
            n = min(len(view), len(data))
            view[:n] = data[:n]
            view.release()
            self.stream.buffer_updated(n)
            data = data[n:]
            found += self.take()
        return found

    def take(self) -> list[bytes | None]:
        return [None if frame is None else bytes(frame) for frame in self.stream]

    def end(self) -> list[bytes | None]:
        self.stream.receive_eof()
        return self.take()


both_doors = pytest.mark.parametrize("door", ["data", "buffer"])


def check(stream: bytes, *expected: bytes | None, rest: list[bytes | None] | None = None) -> None:
    """The same frames at every chunking, and with another frame behind."""
    for door in ("data", "buffer"):
        for chunks in chunkings(stream):
            reader = Reader(door=door)
            found = [frame for chunk in chunks for frame in reader.feed(chunk)]
            assert found == list(expected), chunks
            assert reader.end() == (rest or []), chunks
        if not rest:
            for chunks in chunkings(stream + TWO + b"\n\n\n"):
                reader = Reader(door=door)
                found = [frame for chunk in chunks for frame in reader.feed(chunk)]
                assert found == [*expected, TWO], chunks


# -- what ends a frame ----------------------------------------------------------------------------


def test_two_newlines_are_content_and_three_end_the_frame() -> None:
    check(b'{\n\n"a":\n\n1\n}\n\n\n', b'{\n\n"a":\n\n1\n}')
    check(ONE + b"\n\n\n" + ONE + b"\n\n\n", ONE, ONE)


@every("end", [b"\n\n\n", b"\r\n\r\n\r\n", b"\r\n\n\n", b"\n\r\n\n", b"\n\n\r\n", b"\r\n\r\n\n"])
def test_a_carriage_return_and_a_newline_are_one_newline(end: bytes) -> None:
    check(ONE + end, ONE)
    check(ONE.replace(b"\n", b"\r\n") + end, ONE.replace(b"\n", b"\r\n"))


@every("middle", [b"\n \n\n", b"\n\n\t\n", b"\n\r\r\n\n", b"\n\n\r", b"\n\n \r\n", b"\r\r\r"])
def test_blanks_on_an_empty_line_do_not_end_a_frame(middle: bytes) -> None:
    check(b"[1," + middle + b"2]\n\n\n", b"[1," + middle + b"2]")


def test_a_carriage_return_that_is_no_line_end_is_content() -> None:
    check(b"[1\r]\n\n\n", b"[1\r]")
    check(b"[1]\r\r\n\n\n", b"[1]")


@every("more", [b"\n", b"\n\n", b"\r\n", b" \n\n", b"\n\n\n", b"\n" * 7, b" \t"])
def test_more_newlines_belong_to_the_next_frame_and_empty_ones_are_skipped(
    more: bytes,
) -> None:
    check(more + ONE + b"\n\n\n" + more + TWO + b"\n\n\n" + more, ONE, TWO)


@pytest.mark.parametrize("blank", [b"", b"\n\n\n", b"\n\n\n\n\n\n", b" \r\n\t\n\n\n\n ", BOM])
def test_nothing_but_blanks_is_no_frame(blank: bytes) -> None:
    check(blank)


def test_the_terminator_is_not_looked_for_in_strings_that_hold_its_escapes() -> None:
    text = b'{"a":"\\n\\n\\n"}'
    check(text + b"\n\n\n", text)


def test_other_line_ends_end_nothing() -> None:
    for end in ("\u2028", "\u0085", "\x0b", "\x0c"):
        text = b"[1" + 3 * end.encode() + b"]"
        check(text + b"\n\n\n", text)


def test_one_mark_at_the_very_start_is_skipped() -> None:
    check(BOM + ONE + b"\n\n\n", ONE)
    check(BOM + b"\n\n\n" + ONE + b"\n\n\n", ONE)
    check(BOM + BOM + ONE + b"\n\n\n", BOM + ONE)
    check(b" " + BOM + ONE + b"\n\n\n", BOM + ONE)
    check(TWO + b"\n\n\n" + BOM + ONE + b"\n\n\n", TWO, BOM + ONE)
    for n in (1, 2):
        check(BOM[:n], rest=[BOM[:n]])
        check(BOM[:n] + b"x\n\n\n", BOM[:n] + b"x")


@every("tail", [b"", b"\n", b"\n\n", b"\r\n", b"\n\r", b"\r", b" \n \n"])
def test_the_end_of_input_ends_the_last_frame(tail: bytes) -> None:
    check(TWO + b"\n\n\n" + ONE + tail, TWO, rest=[ONE])


def test_nothing_after_the_end_of_input() -> None:
    reader = Reader()
    assert reader.feed(ONE) == []
    assert reader.end() == [ONE]
    assert reader.take() == []
    with raises(RuntimeError):
        reader.stream.receive_data(b"x")


# -- too long -------------------------------------------------------------------------------------


@both_doors
@pytest.mark.parametrize("end", [b"\n\n\n", b"\r\n\r\n\r\n", b"\n\r\n\n"])
def test_the_limit_is_exact(door: str, end: bytes) -> None:
    for n, expected in ((60, b"x" * 60), (61, None)):
        for blanks in (b"", b"\n\n", b" " * 100):
            for chunks in chunkings(blanks + b"x" * n + end + TWO + end):
                reader = Reader(60, door=door)
                found = [frame for chunk in chunks for frame in reader.feed(chunk)]
                assert found == [expected, TWO], chunks


def test_newlines_that_did_not_end_the_frame_count() -> None:
    for n, expected in ((57, b"x" * 57 + b"\n\ny"), (58, None)):
        for chunks in chunkings(b"x" * n + b"\n\ny\n\n\n" + TWO + b"\n\n\n"):
            reader = Reader(60)
            assert [f for chunk in chunks for f in reader.feed(chunk)] == [expected, TWO]


@both_doors
@pytest.mark.parametrize("n", [61, 62, 100, 500])
def test_too_long_is_said_once_and_dropped_up_to_the_terminator(door: str, n: int) -> None:
    for tail in (b"\n\n\n", b"\n\nxx\n\n\n", b"\r\n\r\n\r\n", b"\n \n\n\r\n\n"):
        for chunks in chunkings(b"x" * n + tail + TWO + b"\n\n\n"):
            reader = Reader(60, door=door)
            found = [frame for chunk in chunks for frame in reader.feed(chunk)]
            assert found == [None, TWO], chunks


@both_doors
def test_too_long_is_said_as_soon_as_it_is_and_nothing_of_it_is_held(door: str) -> None:
    reader = Reader(60, door=door)
    assert reader.feed(b"x" * 60) == []
    assert reader.feed(b"\n\r") == []
    assert reader.feed(b"x") == [None]
    for _ in range(50):
        assert reader.feed(b"x\n\n" * 100) == []
        assert reader.framer.buffered <= 1
    assert reader.feed(b"\n" + TWO + b"\n\n\n") == [TWO]


@both_doors
def test_too_long_at_the_end_of_input(door: str) -> None:
    for n in (61, 200):
        for chunks in chunkings(b"x" * n):
            reader = Reader(60, door=door)
            found = [frame for chunk in chunks for frame in reader.feed(chunk)]
            assert found + reader.end() == [None]
            assert reader.take() == []
            assert reader.framer.buffered == 0


def test_endless_blanks_hold_nothing() -> None:
    reader = Reader(60)
    for _ in range(20):
        assert reader.feed(b" \n\r\n" * 5000) == []
        assert reader.framer.buffered == 0
    assert reader.framer.bytes_moved == 20 * 20_000  # fed, not moved again


# -- what is moved --------------------------------------------------------------------------------


def test_frames_that_arrive_whole_in_a_reader_s_buffer_are_not_moved() -> None:
    reader = Reader(100_000, door="buffer")
    kept = []
    for _ in range(300):
        view = reader.stream.get_buffer()
        data = b"[" + b"1" * 1000 + b"]\n\n\n"
        view[: len(data)] = data
        reader.stream.buffer_updated(len(data))
        kept += list(reader.stream)
    assert {bytes(frame) for frame in kept} == {b"[" + b"1" * 1000 + b"]"}
    assert reader.framer.bytes_moved == 0


@both_doors
@pytest.mark.parametrize("step", [1000, 4096, 65_536])
@pytest.mark.parametrize("lenient", [False, True])
def test_a_long_frame_of_many_lines_costs_no_more_than_its_bytes(
    door: str, step: int, lenient: bool
) -> None:
    n = 1_000_000
    text = b"[" + b"1,\n" * (n // 3) + b"1]"
    stream = text + b"\n\n\n"
    reader = Reader(2 * n, door=door, lenient=lenient)
    found = []
    for i in range(0, len(stream), step):
        found += reader.feed(stream[i : i + step])
    assert found == [text]
    assert reader.framer.bytes_moved <= 3 * n


def test_an_idle_stream_holds_no_input_memory() -> None:
    from wirespeed._core.slab import slabs_live

    before = slabs_live()
    readers = [Reader() for _ in range(50)]
    for reader in readers:
        assert reader.feed(ONE + b"\n\n\n") == [ONE]
    assert slabs_live() <= before + 8  # what the process keeps for all of them


# -- lenient --------------------------------------------------------------------------------------


@both_doors
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (ONE + b"\n" + TWO + b"\n", [ONE, TWO]),
        (ONE + b"\r\n" + TWO + b"\r\n", [ONE, TWO]),
        (ONE + b"\n\n\n" + TWO + b"\n\n\n", [ONE, TWO]),
        (ONE + b" \t\n", [ONE]),
        (b"[1,\n\n[2\n]\n]\n", [b"[1,\n\n[2\n]\n]"]),
        (b'{"a":"}\\"]\\\\",\n"b":[]}\n', [b'{"a":"}\\"]\\\\",\n"b":[]}']),
        (b"starting up: {\n" + TWO + b"\n", [b"starting up: {", TWO]),
        (b'it said "\n' + TWO + b"\n", [b'it said "', TWO]),
        (b'{"a":\n\n\n' + TWO + b"\n", [b'{"a":', TWO]),
        (b'{"a":"x\r\n\r\n\r\n' + TWO + b"\n", [b'{"a":"x', TWO]),
        (TWO + TWO + b"\n" + TWO + b"\n", [TWO + TWO, TWO]),
        (TWO + b"{\n" + TWO + b"\n", [TWO + b"{", TWO]),
        (BOM + b"\n\n" + ONE + b"\n", [ONE]),
    ],
)
def test_lenient_takes_one_newline_behind_a_whole_value(
    door: str, stream: bytes, expected: list[bytes]
) -> None:
    for chunks in chunkings(stream):
        reader = Reader(lenient=True, door=door)
        assert [f for chunk in chunks for f in reader.feed(chunk)] == expected, chunks
        assert reader.end() == []


def test_lenient_drops_what_is_too_long_up_to_its_own_end() -> None:
    for long in (b"[" + b"1,\n" * 30 + b"1]", b"x" * 70, b'{"a":"' + b"]}\\\\" * 30 + b'"}'):
        for chunks in chunkings(long + b"\n" + TWO + b"\n"):
            reader = Reader(60, lenient=True)
            assert [f for chunk in chunks for f in reader.feed(chunk)] == [None, TWO], chunks


def test_lenient_at_the_end_of_input() -> None:
    for chunks in chunkings(ONE):
        reader = Reader(lenient=True)
        assert [f for chunk in chunks for f in reader.feed(chunk)] == []
        assert reader.end() == [ONE]


# -- written --------------------------------------------------------------------------------------


def test_what_is_sent_ends_with_three_newlines() -> None:
    reader = Reader()
    reader.stream.send(TWO)
    reader.stream.send(b"[" + b"1" * 10_000 + b"]")
    sent = b"".join(map(bytes, reader.stream.data_to_send()))
    assert sent == TWO + b"\n\n\n[" + b"1" * 10_000 + b"]\n\n\n"


def test_both_ways() -> None:
    one, other = Reader(20_000), Reader(20_000)
    texts = [TWO, b"[" + b"1" * 10_000 + b"]", ONE]
    for text in texts:
        one.stream.send(text)
    assert [f for chunk in one.stream.data_to_send() for f in other.feed(bytes(chunk))] == texts


def test_reading_stops_while_the_output_is_full() -> None:
    framer = BlankLineFramer(1000)
    stream = FrameStream(framer, limits=Limits(output_high=10, output_low=1))
    stream.receive_data((TWO + b"\n\n\n") * 3)
    got = [bytes(next(stream))]
    stream.send(b"x" * 20)
    assert list(stream) == []
    assert not stream.want_read
    stream.data_to_send()
    assert got + [bytes(frame) for frame in stream] == [TWO] * 3
