"""Streams of events against a slow reader, whatever their bytes and however they were cut."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples

from wirespeed._core.slab import Lease
from wirespeed.transport.http.sse import EventReader

Event = tuple[str, Lease | bytes, str | None, int | None]

WORDS = [
    b"data", b"data:", b"data: ", b"id: ", b"id:1", b"event: ", b"event:x", b"retry: ", b"retry:12",
    b":", b" ", b"\n", b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\0", b"\xef\xbb\xbf", b"\xff",
    b"x", b'{"a":1}', b"7" * 12,
]  # fmt: skip
streams = st.lists(st.sampled_from(WORDS) | st.binary(max_size=3), max_size=40).map(b"".join)


def model(stream: bytes) -> list[Event]:
    """The events by the rules of HTML, section 9.2.6, line by line."""
    found: list[Event] = []
    lines = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    data: list[bytes] = []
    event, id_, retry = "", None, None
    for line in lines[:-1]:  # the last one has no end
        if not line:
            if data or id_ is not None or retry is not None:
                found.append((event or "message", b"\n".join(data), id_, retry))
            data, event, id_, retry = [], "", None, None
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            id_ = value.decode(errors="replace")
        elif name == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = min(int(value), 999_999_999)
    return found


@examples(500)
@given(st.data(), streams)
def test_any_stream_is_read_by_the_rules(data: st.DataObject, stream: bytes) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = EventReader(max_event=1000)
    found: list[Event] = []
    for a, b in zip([0, *places], [*places, len(stream)], strict=True):
        found += reader.feed(stream[a:b])
    assert found == model(stream)
    assert reader.failure is None


@examples(250)
@given(st.data(), streams, st.integers(1, 12))
def test_the_cut_does_not_decide_about_limits(
    data: st.DataObject, stream: bytes, max_event: int
) -> None:
    whole = EventReader(max_event=max_event)
    expected = whole.feed(stream)
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = EventReader(max_event=max_event)
    found: list[Event] = []
    for a, b in zip([0, *places], [*places, len(stream)], strict=True):
        found += reader.feed(stream[a:b])
    assert (found, reader.failure) == (expected, whole.failure)
    assert all(len(event[1]) <= max_event for event in found)
