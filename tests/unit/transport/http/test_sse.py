"""Streams of events as a client reads them: the rules of HTML, section 9.2, and limits."""

from __future__ import annotations

import gc

import pytest
from lab.rows import every

from wirespeed._core.slab import Lease, slabs_live
from wirespeed.transport.http.sse import EventReader

Event = tuple[str, Lease | bytes, str | None, int | None]


def read(stream: bytes, step: int = 0, max_event: int = 1000) -> tuple[list[Event], str | None]:
    reader = EventReader(max_event=max_event)
    found: list[Event] = []
    for at in range(0, len(stream), step or max(1, len(stream))):
        found += reader.feed(stream[at : at + (step or len(stream))])
    return found, reader.failure


def message(data: bytes, id: str | None = None, retry: int | None = None) -> Event:
    return ("message", data, id, retry)


STREAMS = [
    (b"data: x\n\n", [message(b"x")]),
    (b"data:x\n\ndata:  y\n\n", [message(b"x"), message(b" y")]),
    (b"data: x\r\n\r\ndata: y\r\rdata: z\n\r\n", [message(b"x"), message(b"y"), message(b"z")]),
    (b"data: x\r\n\ndata: y\n\r", [message(b"x"), message(b"y")]),
    (b"\xef\xbb\xbfdata: x\n\n", [message(b"x")]),
    (b"\xef\xbb\xbf\ndata: x\n\n", [message(b"x")]),
    (b"\n\xef\xbb\xbfdata: x\n\n", []),
    (b"data: x\n\xef\xbb\xbfdata: y\n\n", [message(b"x")]),
    (b"data: a\ndata: b\ndata:\ndata: c\n\n", [message(b"a\nb\n\nc")]),
    (b"data\n\n", [message(b"")]),
    (b"data\ndata\n\n", [message(b"\n")]),
    (b"data: \n\n", [message(b"")]),
    (b"id: 7\ndata: \n\n", [message(b"", "7")]),
    (b"id: 7\n\n", [message(b"", "7")]),
    (b"id\ndata: x\n\n", [message(b"x", "")]),
    (b"id: a\0b\ndata: x\n\n", [message(b"x")]),
    (b"id: 1\nid: 2\ndata: x\n\n", [message(b"x", "2")]),
    (b"id: \xc3\xbc\xff\ndata: x\n\n", [message(b"x", "ü\ufffd")]),
    (b"id: 1\ndata: x\n\ndata: y\n\n", [message(b"x", "1"), message(b"y")]),
    (b"retry: 1500\n\n", [message(b"", None, 1500)]),
    (b"retry: 007\ndata: x\n\n", [message(b"x", None, 7)]),
    (b"retry: 0\n\n", [message(b"", None, 0)]),
    (b"retry: 99999999999999999999\n\n", [message(b"", None, 999_999_999)]),
    (b"retry: 1.5\ndata: x\n\n", [message(b"x")]),
    (b"retry: -1\nretry: 1 \nretry:\nretry\n\n", []),
    (b"event: ping\ndata: x\n\ndata: y\n\n", [("ping", b"x", None, None), message(b"y")]),
    (b"event: ping\n\ndata: y\n\n", [message(b"y")]),
    (b"event: ping\nevent:\ndata: y\n\n", [message(b"y")]),
    (b"event: ping\nid: 1\n\n", [("ping", b"", "1", None)]),
    (b"data: x\nevent: a\nid: 1\nretry: 2\n\n", [("a", b"x", "1", 2)]),
    (b": comment\n:\n\ndata: x\n: y: z\n\n", [message(b"x")]),
    (b"Data: x\ndatax: y\ndat: z\n: d\nother\n\n", []),
    (b"data : x\n\n", []),
    (b"data: {\"a\":\"b: c\"}\n\n", [message(b'{"a":"b: c"}')]),
    (b"data: x\n", []),
    (b"data: x", []),
    (b"", []),
    (b"data: " + b"x" * 1000 + b"\n\ndata: y\n\n", [message(b"x" * 1000), message(b"y")]),
]  # fmt: skip


@every("step", [0, 1, 2, 5])
@every(("stream", "events"), STREAMS)
def test_sse_streams_without_their_comments(stream: bytes, events: list[Event], step: int) -> None:
    assert read(stream, step) == (events, None)


@every("step", [0, 1, 3])
@every(
    ("stream", "failure"),
    [
        (b"data: " + b"x" * 21 + b"\n\n", "an event has more than 20 bytes"),
        (b"data: " + b"x" * 10 + b"\ndata: " + b"y" * 10 + b"\n\n", "an event has more than 20"),
        (11 * b"data: x\n", "an event has more than 20 bytes"),
        (21 * b"data\n" + b"data\n", "an event has more than 20 bytes"),
        (b":" + b"x" * 28, "a line of the stream has more than 28 bytes"),
        (b"data: " + b"x" * 30, "a line of the stream has more than 28 bytes"),
        (b"id: " + b"x" * 50 + b"\n", "a line of the stream has more than 28 bytes"),
    ],
)
def test_limits(stream: bytes, failure: str, step: int) -> None:
    """What comes before a fault counts, and what comes behind it does not."""
    found, why = read(b"data: ok\n\n" + stream + b"\n\ndata: late\n\n", step, 20)
    assert found == [message(b"ok")]
    assert why is not None
    assert why.startswith(failure)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(("name", "what"), [(b"id", "the id"), (b"event", "the name")])
def test_limits_of_words(name: bytes, what: str, step: int) -> None:
    word = b"w" * 4096
    assert read(name + b": " + word + b"\ndata: x\n\n", step, 1 << 20)[1] is None
    found, why = read(name + b": " + word + b"w\ndata: x\n\n", step, 1 << 20)
    assert found == []
    assert why == f"{what} of an event has more than 4096 bytes"


def test_lines_that_are_not_needed_take_no_memory() -> None:
    """Comments and fields without end: only the unfinished line is kept."""
    reader = EventReader(max_event=100)
    assert reader.feed(b"data: x\n") == []
    for _ in range(10_000):
        assert reader.feed(b": keep-ali") == []
        assert reader.feed(b"ve\nid: 1\nevent: e") == []
        assert reader.feed(b"\nretry: 3\n") == []
    assert reader.feed(b"\n") == [("e", b"x", "1", 3)]
    assert reader.failure is None


def test_an_idle_stream_holds_no_memory() -> None:
    gc.collect()
    before = slabs_live()
    readers = [EventReader(max_event=1000) for _ in range(40)]
    for reader in readers:
        assert reader.feed(b"data: x") == []
        assert reader.feed(b"y\n\n: comm") == [message(b"xy")]
        assert reader.feed(b"ent\n") == []
    gc.collect()
    assert slabs_live() <= before + 16  # what is kept as spare


def test_data_that_lies_in_one_piece_is_not_copied() -> None:
    reader = EventReader(max_event=1 << 20)
    data = bytearray(b"data: " + b"x" * 100_000 + b"\n\n")
    [(_, found, _, _)] = reader.feed(data)
    assert isinstance(found, Lease)
    assert found == b"x" * 100_000
    with pytest.raises(BufferError):
        data.clear()
    del found
    data.clear()


def test_an_empty_line_of_data_that_comes_in_parts() -> None:
    reader = EventReader(max_event=10)
    assert reader.feed(b"data\n") == reader.feed(b":") == reader.feed(b"\n") == []
    assert reader.feed(b"\n") == [message(b"")]
    assert reader.feed(b"data\n") == reader.feed(b":") == reader.feed(b"\nda") == []
    assert reader.feed(b"ta: x\n\n") == [message(b"\nx")]
