"""`get_buffer` and `buffer_updated`: memory lent to a transport, safe whatever is done with it."""

from __future__ import annotations

import gc

import pytest
from lab.core import feed_buffer, outcomes, request, take
from lab.wording import raises

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._core.slab import ReadBuffer, slabs_live
from wirespeed.core import Limits, LineFramer, Session, WebSocketFramer

LINE = request(1)


def test_a_read() -> None:
    session = Session()
    view = session.get_buffer()
    assert isinstance(view, memoryview)
    assert not view.readonly
    assert view.format == "B"
    assert view.nbytes >= 32 * 1024
    view[: len(LINE)] = LINE
    session.buffer_updated(len(LINE))
    assert session.counters["bytes_in"] == len(LINE)
    assert outcomes(session) == ["request"]


def test_the_view_is_dead_afterwards() -> None:
    session = Session()
    view = session.get_buffer()
    view[: len(LINE)] = LINE
    session.buffer_updated(len(LINE))
    with pytest.raises(ValueError, match="released"):
        view[0] = 0
    (message,) = session.events()
    assert bytes(message.raw) == LINE.rstrip()


def test_a_transport_may_hold_its_export_during_the_update() -> None:
    """asyncio and uvloop release the buffer they got after `buffer_updated`."""
    session = Session()
    for i in range(3):
        view = session.get_buffer()
        export = memoryview(view)
        export[: len(LINE)] = request(i)
        session.buffer_updated(len(LINE))
        (message,) = session.events()
        assert message.id == i
        export.release()
        view.release()


def test_use_after_the_update_harms_nobody() -> None:
    """An export that outlives the update keeps its memory, and later reads go elsewhere or behind
    it; what is written to it reaches no other session."""
    before = slabs_live()
    session = Session(limits=Limits(max_in_flight=10_000))
    stale = []
    for _ in range(50):
        view = session.get_buffer()
        stale.append(memoryview(view))
        view[: len(LINE)] = LINE
        session.buffer_updated(len(LINE))
        for message in session.events():
            session.send_result(message, b"{}")
        del message
    del session, view
    gc.collect()
    others = [Session() for _ in range(20)]
    for other in others:
        view = other.get_buffer()
        view[:5] = LINE[:5]
        other.buffer_updated(5)
    for export in stale:
        export[:] = b"\xff" * len(export)
    for other in others:
        view = other.get_buffer()
        view[: len(LINE) - 5] = LINE[5:]
        other.buffer_updated(len(LINE) - 5)
        assert outcomes(other) == ["request"]
    for export in stale:
        export.release()
    del stale, export, view, other, others
    gc.collect()
    assert slabs_live() <= before + 16  # spare ones


def test_the_view_outlives_the_session() -> None:
    session = Session()
    view = session.get_buffer()
    del session
    gc.collect()
    view[:] = b"\x01" * len(view)
    assert bytes(view[:2]) == b"\x01\x01"


def test_events_between_the_two() -> None:
    """A task may wait for input while others take events."""
    session = Session(limits=Limits(max_in_flight=1))
    session.receive_data(request(1) + request(2))
    (first,) = take(session)
    view = session.get_buffer()
    assert take(session) == []
    session.send_result(first, b"{}")
    (second,) = take(session)
    session.send_result(second, b"{}")
    assert take(session) == []
    view[: len(LINE)] = LINE
    session.buffer_updated(len(LINE))
    assert outcomes(session) == ["request"]
    assert session.counters["payload_bytes_copied"] == 0


def test_events_between_the_two_with_leases_alive() -> None:
    session = Session()
    kept = []
    for i in range(2000):
        view = session.get_buffer()
        kept += take(session)
        line = request(i % 1000, "m" * (i % 200))
        view[: len(line)] = line
        session.buffer_updated(len(line))
        kept += take(session)
        if i == 999:
            for message in kept:
                session.send_result(message, b"{}")
    assert [message.id for message in kept] == [*range(1000)] * 2
    assert [message.method for message in kept] == ["m" * (i % 200) for i in range(2000)]


def test_asking_again_takes_the_first_one_back() -> None:
    """A read that brought nothing is not followed by an update."""
    session = Session()
    first = session.get_buffer()
    second = session.get_buffer()
    with pytest.raises(ValueError, match="released"):
        first[0] = 0
    second[: len(LINE)] = LINE
    session.buffer_updated(len(LINE))
    assert outcomes(session) == ["request"]


def test_updates_that_cannot_be() -> None:
    session = Session()
    with raises(RuntimeError):
        session.buffer_updated(1)
    room = len(session.get_buffer())
    for n in (room + 1, -1):
        with raises(ValueError):
            session.buffer_updated(n)
    assert session.counters["bytes_in"] == 0
    session.buffer_updated(0)
    with raises(RuntimeError):
        session.buffer_updated(0)
    assert outcomes(session) == []


def test_the_doors_do_not_mix() -> None:
    session = Session()
    view = session.get_buffer()
    with raises(RuntimeError):
        session.receive_data(LINE)
    view[:5] = LINE[:5]
    session.buffer_updated(5)
    session.receive_data(LINE[5:])
    with raises(RuntimeError):
        session.get_buffer()
    assert outcomes(session) == ["request"]
    session.get_buffer()
    session.buffer_updated(0)


def test_a_full_buffer() -> None:
    session = Session()
    view = session.get_buffer()
    n = len(view)
    view[:] = b"x" * n
    session.buffer_updated(n)
    assert outcomes(session) == []
    view = session.get_buffer()
    assert len(view) >= 32 * 1024
    view[:1] = b"\n"
    session.buffer_updated(1)
    assert outcomes(session) == ["invalid parse"]


def test_end_of_input_while_a_buffer_is_lent() -> None:
    session = Session()
    view = session.get_buffer()
    view[:5] = LINE[:5]
    session.buffer_updated(5)
    session.get_buffer()
    session.receive_eof()
    assert outcomes(session) == ["invalid parse"]
    session.buffer_updated(0)
    assert outcomes(session) == []


def test_read_buffers_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError):
        ReadBuffer()


def test_a_lent_buffer_that_was_not_used_is_taken_back() -> None:
    """A TLS layer asks for a buffer before it knows whether there are bytes for it."""
    before = slabs_live()
    sessions = [Session() for _ in range(40)]
    for session in sessions:
        session.get_buffer()
    assert slabs_live() >= before + 24  # the others were spare
    for session in sessions:
        session.reclaim_buffer()
        with raises(RuntimeError):
            session.buffer_updated(0)
    assert slabs_live() <= before + 16
    session.reclaim_buffer()  # again: nothing


def test_an_unfinished_line_outlives_the_loan() -> None:
    session = Session()
    text = request(1)
    feed_buffer(session, text[:10])
    session.get_buffer()
    session.reclaim_buffer()
    feed_buffer(session, text[10:])
    assert outcomes(session) == ["request"]


@pytest.mark.parametrize("framer", [LineFramer, BlankLineFramer])
def test_offsets_into_a_frame_have_32_bits(framer: type[LineFramer | BlankLineFramer]) -> None:
    framer(2**31)
    for n in (0, 2**31 + 1, 2**40):
        with raises(ValueError):
            framer(n)
    with raises(ValueError):
        WebSocketFramer("server", max_message=2**31 + 1)
