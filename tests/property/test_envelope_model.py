"""Framing and envelopes against the model: any stream, cut anywhere, read by every reader."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lab.examples import examples
from model import envelope
from model import streams as wire
from model.lines import Oversize, frames

from wirespeed.core import POINTS, Limits, Message, MessageReader, Session, parse

pytestmark = pytest.mark.smoke

depths = st.sampled_from((1, 2, 3, 5, 8))


def same(message: Message, expected: envelope.Envelope) -> None:
    assert (message.kind, message.fault) == (expected.kind, expected.fault), message
    assert message.raw_id == expected.id
    assert message.raw == expected.text
    if expected.kind not in ("invalid", "batch"):
        found = {point: message.lease(point) for point in POINTS}
        assert {point: bytes(lease) for point, lease in found.items() if lease} == expected.points
        assert message.method == expected.string("method")


def kept(found: list[bytes]) -> list[bytes | None]:
    return [None if isinstance(text, Oversize) else text for text in found]


@examples(300)
@given(text=wire.texts, depth=depths)
@example(text=b'{"a":\x80}', depth=5)
@example(text=b"[" * 9, depth=8)
@example(text=b'{"jsonrpc":"2.0","id":null,"result":null,"error":[]}', depth=2)
def test_one_message(text: bytes, depth: int) -> None:
    text = text.strip(b" \t\r\n")
    if text:
        same(parse(text, max_depth=depth), envelope.read(text, depth))


@examples(150)
@given(text=wire.batch_texts() | wire.damaged(wire.batch_texts()), depth=depths)
def test_one_batch(text: bytes, depth: int) -> None:
    text = text.strip(b" \t\r").replace(b"\n", b"")
    if not text.startswith(b"["):
        text = b"[" + text
    expected = envelope.split(text, 3, depth)
    reader = MessageReader(limits=Limits(max_depth=depth, max_batch=3), batches=True)
    reader.receive_data(b"\n" + text + b"\n")
    found = list(reader)
    if isinstance(expected, envelope.Envelope):
        assert [(m.kind, m.fault, m.raw) for m in found] == [
            (expected.kind, expected.fault, expected.text)
        ]
        return
    assert len(found) == len(expected)
    for message, element in zip(found, expected, strict=True):
        same(message, element)


@examples(100)
@given(stream=wire.streams(), data=st.data(), limit=st.sampled_from((30, 60, 10_000)))
def test_a_stream(stream: bytes, data: st.DataObject, limit: int) -> None:
    """Whatever the chunks and whenever they are looked at, by each of the three doors."""
    limits = Limits(max_message=limit, max_depth=6)
    reader, session, buffered = (
        MessageReader(limits=limits),
        Session(limits=limits, role="client"),
        Session(limits=limits, role="client"),
    )
    lines: list[list[Message]] = [[], [], []]

    def look() -> None:
        lines[0] += reader
        lines[1] += session.events()
        lines[2] += buffered.events()

    fed = b""
    looks = data.draw(wire.turns(st.booleans()))
    for i, chunk in enumerate(data.draw(wire.cuts(stream))):
        reader.receive_data(chunk)
        session.receive_data(chunk)
        fed += chunk
        while chunk:
            view = buffered.get_buffer()
            n = min(len(view), len(chunk))
            view[:n] = chunk[:n]
            buffered.buffer_updated(n)
            chunk = chunk[n:]
        if looks[i % len(looks)]:
            look()
            assert [m.raw for m in lines[0]] == kept(frames(fed, False, limit))
    for each in (reader, session, buffered):
        each.receive_eof()
    look()
    expected = [
        envelope.begun(text, 1) if isinstance(text, Oversize) else envelope.read(text, 6)
        for text in frames(stream, True, limit)
    ]
    assert [m.raw for m in lines[0]] == kept(frames(stream, True, limit))
    shown = [[(m.kind, m.fault, m.raw_id, m.raw) for m in found] for found in lines]
    assert [(kind, fault, id) for kind, fault, id, _ in shown[0]] == [
        (e.kind, e.fault, e.id) if e.kind != "batch" else ("invalid", "request", None)
        for e in expected
    ]
    # what a session shows of them is test_session_model's matter; here, that the doors agree
    assert shown[1] == shown[2]
    assert reader.payload_bytes_copied <= 2 * len(stream)
