"""Nothing is held that nobody asked to hold: loops over every kind of input leave no trace."""

from __future__ import annotations

import sys

import pytest
from lab.core import DOORS, Feed, batch, cancel, grown_by, notification, request, result, sent, take
from lab.rows import every

from wirespeed._core.slab import slabs_live
from wirespeed.core import Limits, Session, parse

LINES = {
    "request": request(1, "m", '{"name":"n"}'),
    "duplicate": request(1) + request(1),
    "long id": request('"' + "x" * 500 + '"'),
    "cancelled": request(1) + cancel(1),
    "notification": notification("n", "{}"),
    "late response": result(99),
    "not JSON": b"nonsense\n",
    "not UTF-8": b'"\xff"\n',
    "no message": b"{}\n",
    "bad id": request("null"),
    "too deep": b"[" * 200 + b"\n",
    "too long": b"x" * 600 + b"\n",
    "batch": batch(request(1), notification("n"), b"1", cancel(2)),
    "batch cancelled": batch(request(1), request(2), cancel(1), cancel(2)),
    "batch too long": batch(*[b"1"] * 20),
    "batch not JSON": b'[{"jsonrpc":"2.0","id":1,"method":"m"},x]\n',
    "empty batch": b"[]\n",
    "cut short": b'{"jsonrpc"' + b"\n",
}


def serve(session: Session, feed: Feed, line: bytes) -> None:
    feed(session, line)
    for message in session.events():
        if message.kind == "request":
            session.set_token(message, "worker")
            session.send_result(message, b'{"a":1}')
    sent(session)


@every("door", DOORS)
@every("name", LINES)
def test_a_session_does_not_grow(name: str, door: str) -> None:
    session = Session(limits=Limits(max_message=500 if name == "too long" else 2000, max_batch=10))
    session.batches = True
    feed, line = DOORS[door], LINES[name]
    slabs = slabs_live()
    references = sys.getrefcount(line)
    assert grown_by(lambda: serve(session, feed, line)) < 2000
    assert slabs_live() <= slabs + 2
    assert sys.getrefcount(line) <= references + 1
    assert session.counters["requests_in_flight"] == 0


@every("name", LINES)
def test_sessions_leave_nothing_behind(name: str) -> None:
    line = LINES[name]

    def whole_life() -> None:
        session = Session(limits=Limits(max_message=500, max_batch=10, max_in_flight=1))
        session.batches = True
        session.send_request("m", b"{}", token="t", deadline=5.0)
        session.receive_data(line + line[: len(line) // 2])
        take(session)  # nothing of it is answered

    references = sys.getrefcount(line)
    assert grown_by(whole_life) < 2000
    assert sys.getrefcount(line) == references


def test_parse_leaves_nothing_behind() -> None:
    def all_of_them() -> None:
        for line in LINES.values():
            message = parse(line)
            assert message.raw is not None
            for point in ("method", "params", "params.name"):
                message.lease(point)
            repr(message)

    assert grown_by(all_of_them) < 2000


def test_a_paused_reader_holds_what_it_was_given_and_no_more() -> None:
    """Chunks are exported until they are looked at, then let go one by one."""
    session = Session(limits=Limits(max_in_flight=1, max_waiting=1))
    chunks = [bytearray(request(i)) for i in range(5)]
    for chunk in chunks:
        session.receive_data(chunk)
    (message,) = take(session)
    for i in range(1, 5):
        session.send_result(message, b"{}")
        del message
        (message,) = take(session)
        assert message.id == i
        chunks[i - 1].append(0)
    session.send_result(message, b"{}")
    del message
    assert take(session) == []
    chunks[4].append(0)


def test_failed_calls_leave_nothing_behind() -> None:
    session = Session(limits=Limits(max_outstanding=5))
    token = object()
    references = sys.getrefcount(token)

    def fail() -> None:
        for params in ("text", b"", b"\n"):
            with pytest.raises((TypeError, ValueError)):
                session.send_request("m", params, token=token)  # type: ignore[arg-type]

    assert grown_by(fail) < 4000
    assert sys.getrefcount(token) == references
