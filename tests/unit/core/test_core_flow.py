"""Flow control: what waits, what gets through, what stops reading, and that nothing is lost."""

from __future__ import annotations

import gc

import pytest
from lab.core import batch, cancel, notification, outcomes, request, result, sent, take
from lab.rows import every

from wirespeed._core.slab import slabs_live
from wirespeed.core import Limits, Message, Session

pytestmark = pytest.mark.smoke


def limited(**limits: int) -> Session:
    return Session(limits=Limits(**limits))


def ids(messages: list[Message]) -> list[object]:
    return [m.id for m in messages]


def numbers(*which: int) -> bytes:
    return b"".join(request(i) for i in which)


def waiting(session: Session) -> int:
    return session.counters["requests_waiting"]


# -- requests in flight ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_requests_beyond_the_limit_wait_and_follow_in_order(limit: int) -> None:
    session = limited(max_in_flight=limit)
    session.receive_data(numbers(*range(20)))
    working = take(session)
    assert ids(working) == list(range(limit))
    assert waiting(session) == 20 - limit
    done = []
    while working:
        message = working.pop(len(working) // 2)
        session.send_result(message, b"{}")
        done.append(message.id)
        more = take(session)
        assert len(more) <= 1
        working += more
    assert sorted(done) == list(range(20))
    assert sent(session).count(b"\n") == 20
    assert waiting(session) == session.counters["requests_in_flight"] == 0


def test_everything_else_gets_through() -> None:
    session = limited(max_in_flight=1)
    call = session.send_request("roots/list", token="t")
    session.receive_data(
        numbers(1, 2) + request(3, "ping") + notification("n") + result(call) + b"nonsense\n"
        + request(2) + request(4, "pi\\u006eg")
    )  # fmt: skip
    assert [(m.kind, m.id) for m in session.events()] == [
        ("request", 1),
        ("request", 3),
        ("notification", None),
        ("result", call),
        ("invalid", None),
        ("request", 4),
    ]
    assert session.counters["duplicate_ids"] == 1
    assert waiting(session) == 1


def test_a_request_that_waits_can_be_cancelled() -> None:
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1, 2, 3, 4) + cancel(2) + cancel(4))
    first, *others = take(session)
    # nothing beyond the limit starts because of it
    assert [m.kind for m in others] == ["notification"] * 2
    assert [m.ref != 0 for m in others] == [True, True]
    assert [m.token for m in others] == [None, None]
    session.send_result(first, b"{}")
    (third,) = take(session)
    assert third.id == 3
    session.send_result(third, b"{}")
    assert take(session) == []
    assert sent(session).count(b"\n") == 2
    assert waiting(session) == session.counters["requests_in_flight"] == 0
    session.receive_data(numbers(2, 4))
    assert ids(take(session)) == [2]


def test_many_cancellations_in_one_batch() -> None:
    """They are worked through before anything that waits is looked at."""
    session = limited(max_in_flight=1)
    session.batches = True
    session.receive_data(numbers(*range(10)) + batch(*map(cancel, range(1, 10))))
    first = take(session)[0]
    session.receive_data(numbers(20))
    assert take(session) == []
    session.send_result(first, b"{}")
    assert ids(take(session)) == [20]


def test_a_waiting_message_of_an_id_in_flight_again() -> None:
    """Cancelled while it waited, and sent again while its place in the queue is still there."""
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1, 2) + cancel(2) + request(2, "again"))
    first = take(session)[0]
    session.send_result(first, b"{}")
    (second,) = take(session)
    assert second.method == "again"
    session.send_result(second, b'{"again":1}')
    assert sent(session).count(b'"id":2') == 1
    assert take(session) == []


def test_a_cancelled_request_counts_until_its_handler_ends() -> None:
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1))
    (message,) = take(session)
    session.set_token(message, "worker")
    session.receive_data(cancel(1) + numbers(2))
    (cancellation,) = take(session)
    assert cancellation.token == "worker"
    assert session.n_cancelled == 1
    session.cancelled_done()
    assert session.n_cancelled == 0
    assert ids(take(session)) == [2]
    session.cancelled_done()  # once too often: nothing
    assert session.n_cancelled == 0


def test_a_request_that_stays_open_leaves_room() -> None:
    session = limited(max_in_flight=1, max_in_flight_bytes=100)
    session.receive_data(numbers(1, 2, 3))
    (first,) = take(session)
    session.keep_open(first)
    (second,) = take(session)  # neither the number nor the bytes of the first one count
    assert take(session) == []
    session.send_result(second, b"{}")
    assert ids(take(session)) == [3]
    session.set_token(first, "worker")
    session.receive_data(cancel(1) + numbers(4))
    assert [m.token for m in take(session) if m.kind == "notification"] == ["worker"]
    session.cancelled_done()
    session.open_done()
    assert take(session) == []  # the third one has all room there is


def test_without_a_token_nobody_works_on_it() -> None:
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1) + cancel(1) + numbers(2))
    assert [m.id for m in session.events() if m.kind == "request"] == [1, 2]
    assert session.n_cancelled == 0


# -- when too many wait ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [{"max_waiting": 3}, {"max_waiting_bytes": len(request(1)) * 3 - 4}]
)
def test_reading_stops(limits: dict[str, int]) -> None:
    session = limited(max_in_flight=1, **limits)
    session.receive_data(numbers(1, 2, 3))
    (first,) = take(session)
    assert session.want_read
    session.receive_data(numbers(4, 5, 6))
    assert take(session) == []
    assert not session.want_read
    assert waiting(session) == 3
    assert session.counters["refused"] == 0
    assert sent(session) == b""
    session.send_result(first, b"{}")
    (second,) = take(session)
    assert second.id == 2
    assert not session.want_read  # 5 came in its place
    for expected in (3, 4, 5, 6):
        session.send_result(second, b"{}")
        (second,) = take(session)
        assert second.id == expected
    assert session.want_read


def test_while_we_wait_for_the_peer_requests_are_refused_instead() -> None:
    """Its answer may lie behind them, and a handler may wait for it."""
    session = limited(max_in_flight=1, max_waiting=2)
    session.receive_data(numbers(1))
    (first,) = take(session)
    call = session.send_request("roots/list", token="t")
    sent(session)
    session.receive_data(numbers(2, 3, 4, 5) + result(call) + numbers(6))
    (answer,) = take(session)
    assert answer.token == "t"
    refusals = sent(session)
    assert refusals.count(b"\n") == session.counters["refused"] == 2
    assert b'"id":4,"error":{"code":-31000,' in refusals
    assert b'"id":5,"error":{"code":-31000,' in refusals
    # and now it waits again
    assert not session.want_read
    session.send_result(first, b"{}")
    assert ids(take(session)) == [2]
    assert session.counters["refused"] == 2


def test_a_batch_is_not_refused_while_we_wait_for_nobody() -> None:
    session = limited(max_in_flight=1, max_waiting=2)
    session.batches = True
    session.receive_data(batch(*map(request, range(9))) + notification("tail"))
    working = take(session)
    assert ids(working) == [0]
    assert not session.want_read
    for i in range(1, 9):
        session.send_result(working.pop(), b"{}")
        assert sent(session) == b""
        working += [m for m in session.events() if m.kind == "request"]
        assert ids(working) == [i]
    session.send_result(working.pop(), b"{}")
    assert session.counters["refused"] == 0
    assert sent(session).count(b'"result"') == 9
    assert session.want_read


def test_a_batch_is_refused_in_part_while_we_wait_for_the_peer() -> None:
    session = limited(max_in_flight=1, max_waiting=2)
    session.batches = True
    call = session.send_request("x", token="t")
    sent(session)
    session.receive_data(batch(*map(request, range(5)), result(call)))
    first, answer = take(session)
    assert answer.token == "t"
    assert session.counters["refused"] == 2
    session.send_result(first, b"{}")
    for _ in range(2):
        (message,) = take(session)
        session.send_result(message, b"{}")
    line = sent(session)
    assert line.count(b"-31000") == 2
    assert line.count(b'"result"') == 3


# -- a peer that does not read -----------------------------------------------------------------


def test_requests_wait_while_much_is_queued() -> None:
    session = limited(output_high=1000, output_low=1000)
    session.receive_data(numbers(1, 2))
    first, second = take(session)
    session.send_result(first, b'"' + b"x" * 2000 + b'"')
    session.receive_data(numbers(3) + request(4, "ping") + notification("n"))
    assert [m.kind for m in take(session)] == ["notification"]
    assert waiting(session) == 2
    session.send_result(second, b"{}")
    assert take(session) == []
    sent(session)
    assert ids(take(session)) == [3, 4]


def test_a_ping_gets_through_between_the_bounds() -> None:
    session = limited(output_high=1000, output_low=1000)
    session.receive_data(numbers(1))
    (first,) = take(session)
    session.send_result(first, b'"' + b"x" * 1200 + b'"')
    session.receive_data(numbers(2) + request(3, "ping"))
    assert ids(take(session)) == [3]


@every(
    ("line", "n"),
    [
        (b"nonsense\n", 1),
        (b"{}\n", 1),
        (request(1), 1),
        (request(1, "ping"), 1),
        (b"[]\n", 1),
        (batch(*[b"1"] * 10), 10),
        (batch(*[request(1)] * 10), 10),
    ],
)
def test_what_must_be_answered_stops_reading_when_nobody_reads(line: bytes, n: int) -> None:
    """Neither errors nor anything else grow without bound; all of it is answered in the end."""
    session = limited(output_high=4000, output_low=1000, max_waiting=50)
    session.batches = True
    session.receive_data(numbers(1))
    (first,) = take(session)
    fed = 0
    while session.want_read and fed < 5000:
        session.receive_data(line)
        fed += 1
        take(session)
    assert fed < 5000
    assert session.counters["bytes_queued"] < 2 * 4000 + 1500
    answers = 0
    session.send_result(first, b"{}")
    answers -= 1
    for _ in range(10_000):
        found = [m for m in session.events() if m.kind == "request"]
        for message in found:
            session.send_result(message, b"{}")
        got = sent(session)
        if not got and not found:
            break
        answers += got.count(b'"jsonrpc"')
    assert session.want_read
    assert waiting(session) == 0
    assert answers == fed * n


@pytest.mark.parametrize("held", [b"nonsense\n", request(9)])
def test_what_waited_is_not_answered_into_a_batch_that_came_later(held: bytes) -> None:
    session = limited(output_high=100, output_low=100, max_waiting=3)
    session.batches = True
    session.receive_data(numbers(1, 9))
    first, ninth = take(session)
    session.send_result(first, b'"' + b"x" * 300 + b'"')
    session.receive_data(held + batch(*map(request, range(2, 7))))
    assert take(session) == []
    sent(session)
    lines = []
    for _ in range(10):
        for message in session.events():
            if message.kind == "request":
                session.send_result(message, b"{}")
        lines += sent(session).splitlines()
    error, answers = lines
    assert error.startswith(b'{"jsonrpc":"2.0","id":')
    assert b'"error":{"code":-3' in error
    assert answers.startswith(b"[")
    assert answers.count(b'"result"') == 5
    assert session.send_result(ninth, b"{}")


def test_notifications_and_responses_pass_a_full_outbox() -> None:
    session = limited(output_high=100, output_low=100)
    calls = [session.send_request("x", b'"' + b"x" * 300 + b'"', token=i) for i in range(3)]
    session.receive_data(b"".join(map(result, calls)) + notification("n") + cancel(7))
    assert outcomes(session) == ["result"] * 3 + ["notification"] * 2


def test_waiting_messages_survive_the_input_that_follows() -> None:
    session = limited(max_in_flight=1)
    for i in range(200):
        view = session.get_buffer()
        line = request(i, f"m{i}", f'{{"pad":"{"x" * i}"}}')
        view[: len(line)] = line
        session.buffer_updated(len(line))
        found = take(session)
        if i == 0:
            (message,) = found
    for i in range(200):
        assert (message.id, message.method) == (i, f"m{i}")
        assert bytes(message.params) == f'{{"pad":"{"x" * i}"}}'.encode()  # type: ignore[arg-type]
        session.send_result(message, b"{}")
        for message in session.events():  # noqa: B007
            pass


def test_what_waits_is_freed_with_the_session() -> None:
    gc.collect()
    before = slabs_live()
    for _ in range(20):
        session = limited(max_in_flight=1)
        for i in range(50):
            view = session.get_buffer()
            view[: len(request(i))] = request(i)
            session.buffer_updated(len(request(i)))
            take(session)
        del session, view
    gc.collect()
    assert slabs_live() <= before + 16


# -- figures -----------------------------------------------------------------------------------


def test_counters() -> None:
    session = limited(max_in_flight=2)
    stream = numbers(1, 2, 2, 3) + b"nonsense\n" + notification("n") + result(99) + cancel(1)
    session.receive_data(stream)
    first, *_ = take(session)
    assert not session.send_result(first, b"{}")
    session.send_request("x", token="t")
    out = sent(session)
    counters = session.counters
    assert counters["messages_in"] == 8
    assert counters["messages_out"] == out.count(b"\n") == 3
    assert counters["bytes_in"] == len(stream)
    assert counters["bytes_out"] == len(out)
    assert counters["requests_in_flight"] == 2
    assert counters["requests_waiting"] == 0
    assert counters["requests_outstanding"] == 1
    assert counters["bytes_queued"] == 0
    assert counters["faults"] == counters["duplicate_ids"] == counters["late_responses"] == 1
    assert counters["cancelled"] == 1
    assert counters["refused"] == 0
    assert counters["slabs_live"] == slabs_live()
    assert session.messages_in == 8
    assert session.bytes_out == len(out)


# -- requests that come too late -----------------------------------------------------------------


def test_a_refusal_answers_what_comes_and_leaves_the_rest() -> None:
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1, 2))
    (first,) = take(session)
    id = session.send_request("ask", token="asked")
    session.refusal = (-7, "too late")
    sent(session)
    session.receive_data(
        numbers(3)
        + notification("notifications/x")
        + batch(request(4))  # no batches here: a fault
        + request(2)
        + result(id)
        + cancel(2)
    )
    shown = outcomes(session)
    assert [m.split()[0] for m in shown] == ["notification", "invalid", "result", "notification"]
    lines = sent(session).splitlines()
    assert lines[0] == b'{"jsonrpc":"2.0","id":3,"error":{"code":-7,"message":"too late"}}'
    assert b"-32600" in lines[1]
    assert b"in flight already" in lines[2]
    assert len(lines) == 3
    assert session.counters["refused"] == 1
    assert session.send_result(first, b"{}")
    session.refusal = None
    session.receive_data(numbers(5))
    assert ids(take(session)) == [5]


def test_what_waits_when_the_refusal_begins_is_shown_in_its_turn() -> None:
    session = limited(max_in_flight=1)
    session.receive_data(numbers(1, 2, 3))
    working = take(session)
    session.refusal = (-7, "too late")
    session.receive_data(numbers(4))
    assert take(session) == []
    seen = []
    while working:
        seen += ids(working)
        assert session.send_result(working[0], b"{}")
        working = take(session)
    assert seen == [1, 2, 3]


def test_refusals_that_nobody_reads_stop_the_reading() -> None:
    session = limited(output_high=1000, output_low=100)
    session.refusal = (-7, "too late")
    session.receive_data(numbers(*range(200)))
    assert take(session) == []
    assert not session.want_read
    assert session.counters["bytes_queued"] < 3000
    n = 0
    while lines := sent(session).splitlines():
        n += len(lines)
        assert take(session) == []
    assert n == 200
    assert session.want_read


# -- what the owner stops, and what never stops ------------------------------------------------


def test_a_paused_session_reads_on_and_shows_nothing() -> None:
    session = Session(limits=Limits(max_waiting_bytes=100))
    session.receive_data(request(1) + request(2))
    assert session.next_event() is not None
    session.paused = True
    assert take(session) == []
    assert session.want_read
    session.receive_data(notification("n") * 4)
    assert not session.want_read  # over a hundred bytes
    assert take(session) == []
    session.paused = False
    assert session.want_read
    assert outcomes(session) == ["request", *["notification"] * 4]
    session.paused = True
    assert session.want_read  # counted from the pause on
    session.receive_message(request(3))
    session.paused = True  # is no further pause
    session.receive_message(request(4))
    session.receive_message(request(5))
    assert not session.want_read
    assert take(session) == []
    session.paused = False
    assert [message.id for message in session] == [3, 4, 5]


def test_answers_leave_while_events_pause() -> None:
    session = Session()
    session.receive_data(request(1))
    (message,) = session
    session.paused = True
    assert session.send_result(message, b"{}")
    assert sent(session) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def test_a_session_that_reads_always_refuses_what_cannot_wait() -> None:
    limits = Limits(max_in_flight=1, max_waiting=1, output_high=1000, output_low=10)
    session = Session(limits=limits, reads_always=True)
    session.send_notification("n", b'{"x":"%b"}' % (b"x" * 1000))
    assert session.want_read
    session.receive_data(request(1) + request(2) + request(3) + b"nonsense\n" + request(1))
    assert outcomes(session) == ["invalid parse"]
    assert session.want_read
    _, second, third, *rest = sent(session).splitlines()
    assert b"-31000" in second
    assert b"-31000" in third
    assert [b"-32700" in rest[0], b"-32600" in rest[1]] == [True, True]
    assert [message.id for message in session] == [1]


def test_a_session_that_reads_always_answers_no_peer_that_does_not_read() -> None:
    limits = Limits(output_high=100, output_low=10)
    session = Session(limits=limits, role="client", reads_always=True)
    session.send_notification("n", b'{"x":"%b"}' % (b"x" * 300))
    size = session.counters["bytes_queued"]
    session.receive_data(request(1) + request(2, "ping"))
    assert [message.reason for message in session] == 2 * [
        "a request, while its sender reads no answers"
    ]
    assert session.counters["bytes_queued"] == size
    assert session.counters["requests_in_flight"] == 0


def test_responses_still_arrive_where_reading_never_stops() -> None:
    session = Session(
        limits=Limits(output_high=100, output_low=10), role="client", reads_always=True
    )
    id = session.send_request("m", b'{"x":"%b"}' % (b"x" * 300), token="t")
    assert session.want_read
    session.receive_data(result(id))
    assert [message.token for message in session] == ["t"]
