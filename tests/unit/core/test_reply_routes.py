"""Messages that come whole, and the reply routes that their answers take."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from lab.core import batch, cancel, notification, outcomes, request, result, sent, take
from lab.rows import every
from lab.wording import raises

from wirespeed.core import Limits, MemoryReply, ReplyRoute, Session


def posted(session: Session, body: bytes, **options: Any) -> MemoryReply:
    """A body given to the session, whose events are not taken."""
    reply = MemoryReply(**options)
    session.receive_message(body, reply)
    return reply


def served(session: Session, body: bytes, **options: Any) -> MemoryReply:
    """A body whose requests are answered at once."""
    reply = posted(session, body, **options)
    for message in session:
        if message.kind == "request":
            assert session.send_result(message, b"{}")
    return reply


def test_an_answer_goes_to_its_route_and_not_to_the_stream() -> None:
    session = Session()
    found = [served(session, request(id).strip()) for id in (1, '"a"', 10**30)]
    assert [json.loads(reply.data or b"")["id"] for reply in found] == [1, "a", 10**30]
    assert all(reply.done for reply in found)
    assert sent(session) == b""
    session.receive_data(request(1))
    assert [session.send_result(message, b"{}") for message in session] == [True]
    assert sent(session) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def test_without_a_route_the_stream_is_the_route() -> None:
    session = Session()
    session.receive_message(request(1))
    (message,) = session
    session.send_error(message, -1, "no")
    assert json.loads(sent(session)) == {
        "jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"},
    }  # fmt: skip


@every(
    ("body", "kind", "code"),
    [
        (notification("n"), "notification", None),
        (result(5), None, None),
        (b"nonsense", "invalid parse", -32700),
        (b"", "invalid parse", -32700),
        (b" \r\n\t", "invalid parse", -32700),
        (b"5", "invalid request", -32600),
        (b"[]", "invalid request", -32600),
        (b"{" + b" " * 100 + b"}", "invalid request", -32600),
    ],
)
def test_bodies_that_are_not_requests(body: bytes, kind: str | None, code: int | None) -> None:
    session = Session(limits=Limits(max_message=100))
    reply = posted(session, body)
    assert outcomes(session) == ([] if kind is None else [kind])
    assert reply.done
    found = None if reply.data is None else json.loads(reply.data)["error"]["code"]
    assert found == code
    assert sent(session) == b""


def test_blanks_and_newlines_stand_around_a_body_and_in_it() -> None:
    session = Session()
    reply = posted(session, b'\n {"jsonrpc":"2.0",\n"id":1,\r\n"method":"m"}\r\n')
    (message,) = session
    assert bytes(message.raw or b"").startswith(b"{")
    session.send_result(message, b"{}")
    assert reply.data == b'{"jsonrpc":"2.0","id":1,"result":{}}'


def test_a_body_is_read_in_place() -> None:
    session = Session()
    body = bytearray(request(1, params='{"a":1}'))
    reply = posted(session, body)
    with pytest.raises(BufferError):
        body.clear()
    (message,) = session
    params = message.params
    session.send_result(message, b"{}")
    del message
    assert params == b'{"a":1}'
    with pytest.raises(BufferError):
        body.clear()
    del params, reply
    session.receive_message(notification("n"))
    take(session)  # the session, too, lets go of the last message
    body.clear()
    assert session.counters["payload_bytes_copied"] == 0


def test_a_route_is_open_until_its_request_is_answered() -> None:
    done: list[MemoryReply] = []
    session = Session()
    first, second = (posted(session, request(i), on_done=done.append) for i in (1, 2))
    one, two = session
    assert (first.n_open, second.n_open) == (1, 1)
    session.send_result(two, b"{}")
    assert done == [second]
    session.send_result(one, b"{}")
    assert done == [second, first]
    assert not session.send_result(one, b"{}")
    assert done == [second, first]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_batch_of_a_body(order: tuple[int, int]) -> None:
    session = Session()
    session.batches = True
    body = batch(request(1), notification("n"), b"5", request(2))
    reply = posted(session, body)
    found = [message for message in session if message.kind == "request"]
    for i in order:
        assert not reply.done
        session.send_result(found[i], b"{}")
    assert reply.done
    answers = json.loads(reply.data or b"")
    assert [answer["id"] for answer in answers] == [None, found[order[0]].id, found[order[1]].id]
    assert session.counters["bytes_in_batches"] == 0
    assert sent(session) == b""


def test_a_batch_without_answers_is_done_without_data() -> None:
    session = Session()
    session.batches = True
    reply = served(session, batch(notification("n"), result(7)))
    assert reply.done
    assert reply.data is None


def test_batches_are_batches_as_soon_as_they_are_read() -> None:
    """What a body is depends on what was negotiated before it."""
    session = Session()
    replies = [posted(session, batch(request(i))) for i in (1, 2)]
    assert outcomes(session)[0] == "invalid request"
    session.batches = True
    third = served(session, batch(request(3)))
    assert [json.loads(reply.data or b"").get("id") for reply in replies] == [None, None]
    assert json.loads(third.data or b"")[0]["id"] == 3


def test_initialize_in_a_body_is_no_batch() -> None:
    session = Session()
    session.batches = True
    alone = served(session, request(1, "initialize"))
    joined = served(session, batch(request(2, "initialize")))
    assert "result" in json.loads(alone.data or b"")
    assert json.loads(joined.data or b"")[0]["error"]["code"] == -32600


def test_the_stream_goes_on_beside_bodies() -> None:
    session = Session()
    session.receive_data(request(1))
    reply = posted(session, request(2))
    session.receive_data(request(3))
    ids = [message.id for message in session if session.send_result(message, b"{}")]
    assert sorted(ids) == [1, 2, 3]
    assert json.loads(reply.data or b"")["id"] == 2
    assert [json.loads(line)["id"] for line in sent(session).splitlines()] == [1, 3]


def test_a_duplicate_is_refused_on_its_own_route() -> None:
    session = Session()
    first, second = posted(session, request(1)), posted(session, request(1))
    (message,) = session
    assert json.loads(second.data or b"")["error"]["code"] == -32600
    assert second.done
    assert not first.done
    session.send_result(message, b"{}")
    assert "result" in json.loads(first.data or b"")


def test_refusals_and_limits() -> None:
    session = Session()
    session.refusal = (-32000, "closing")
    assert json.loads(served(session, request(1)).data or b"")["error"]["code"] == -32000
    long = served(session, request('"' + "x" * 2000 + '"'))
    assert json.loads(long.data or b"")["error"]["code"] == -32600


def test_requests_of_bodies_wait_for_room() -> None:
    session = Session(limits=Limits(max_in_flight=1, max_waiting=1))
    replies = [posted(session, request(i)) for i in range(4)]
    for i in range(4):
        (message,) = take(session)
        assert message.id == i
        assert not replies[i].done
        session.send_result(message, b"{}")
        assert replies[i].done
    assert take(session) == []


def test_requests_that_came_whole_wait_while_the_session_does_not_read() -> None:
    session = Session(limits=Limits(max_in_flight=1, max_waiting=1))
    session.batches = True
    held = [posted(session, request(i)) for i in range(4)]
    lists = posted(session, batch(request(10), notification("in a batch")))
    bad = posted(session, b"nonsense")
    last = posted(session, request(11))
    told = posted(session, notification("n"))
    ping = posted(session, request(5, "ping"))
    events = take(session)
    assert not session.want_read
    assert [message.method for message in events] == ["x", "n", "ping"]
    assert told.done
    assert session.send_result(events[2], b"{}")
    assert json.loads(ping.data or b"")["id"] == 5
    assert session.send_result(events[0], b"{}")
    waited = [outcome for _ in range(9) for outcome in _next(session)]
    assert waited == ["request"] * 4 + ["notification", "invalid", "request"]
    assert all(reply.done for reply in (*held, lists, bad, last))
    assert [json.loads(reply.data or b"")["id"] for reply in (*held, last)] == [0, 1, 2, 3, 11]
    assert take(session) == []


def test_a_request_that_came_whole_can_be_cancelled_before_it_is_read() -> None:
    session = Session(limits=Limits(max_in_flight=1, max_waiting=1))
    held = [posted(session, request(id)) for id in (0, 1, 2, r'"\u0033"', 4)]
    (first,) = take(session)
    for id in ('"3"', '"3"', 77, 1):  # not read, gone, unknown, waits for room
        told = posted(session, cancel(id))
        (event,) = take(session)
        assert (event.method, event.token) == ("notifications/cancelled", None)
        assert told.done
    assert [(reply.done, reply.data) for reply in (held[3], held[1])] == [(True, None)] * 2
    session.send_result(first, b"{}")
    assert [outcome for _ in held for outcome in _next(session)] == ["request"] * 2
    assert [json.loads(held[i].data or b"")["id"] for i in (0, 2, 4)] == [0, 2, 4]
    assert session.counters["cancelled"] == 2


def test_texts_of_a_route_that_is_gone_are_dropped_wherever_they_wait() -> None:
    session = Session(limits=Limits(max_in_flight=1, max_waiting=1))
    held = [posted(session, request(i)) for i in range(6)]
    (first,) = take(session)
    late = posted(session, request(6))
    for reply in (held[2], held[4], late):
        session.cancel_route(reply)
        assert take(session) == []
        assert reply.done
    posted(session, cancel(5))
    assert [message.kind for message in take(session)] == ["notification"]
    session.send_result(first, b"{}")
    assert [outcome for _ in held for outcome in _next(session)] == ["request"] * 2
    assert [json.loads(held[i].data or b"")["id"] for i in (1, 3)] == [1, 3]


def _next(session: Session) -> list[str]:
    found = []
    for message in take(session):
        found.append(message.kind)
        if message.kind == "request":
            session.send_result(message, b"{}")
    return found


def test_faults_do_not_wait_for_a_peer_that_does_not_read_the_stream() -> None:
    session = Session(limits=Limits(output_high=100, output_low=10))
    session.send_notification("n", b'{"x":"%b"}' % (b"x" * 300))
    reply = posted(session, b"nonsense")
    assert outcomes(session) == ["invalid parse"]
    assert reply.done


def test_cancellation() -> None:
    session = Session()
    reply = posted(session, request(1))
    (message,) = session
    session.set_token(message, "token")
    told = posted(session, cancel(1))
    (event,) = session
    assert event.token == "token"
    assert told.done
    assert reply.done
    assert reply.data is None
    assert not session.send_result(message, b"{}")


def test_a_client_that_is_gone_cancels_its_route() -> None:
    session = Session(limits=Limits(max_in_flight=3))
    session.batches = True
    gone = posted(session, batch(request(1), request(2), request(3), request(4)))
    other = posted(session, request(5))
    events = take(session)
    assert [message.id for message in events] == [1, 2, 3]
    assert session.send_result(events[0], b"{}")
    session.set_token(events[1], "two")
    unread = posted(session, request(6))
    session.receive_message(request(7), gone)
    assert session.cancel_route(gone) == ["two"]
    assert gone.done
    assert not session.send_result(events[1], b"{}")
    session.cancelled_done()
    assert [message.id for message in session if session.send_result(message, b"{}")] == [5, 6]
    assert other.done
    assert unread.done
    assert gone.data is not None  # of the first request: nobody reads it
    assert session.counters["cancelled"] == 3
    assert session.counters["requests_in_flight"] == 0
    assert session.counters["bytes_in_batches"] == 0


def test_the_rest_of_a_batch_of_a_cancelled_route_is_not_shown() -> None:
    session = Session()
    session.batches = True
    reply = posted(session, batch(request(1), request(2), request(3)))
    assert session.next_event() is not None
    session.cancel_route(reply)
    assert take(session) == []
    assert reply.done
    assert reply.data is None


# -- what is said about a request --------------------------------------------------------------


def test_notices_go_to_a_route_that_carries_them() -> None:
    said: list[bytes] = []
    session = Session()
    carrying = posted(session, request(1), on_notice=said.append)
    plain = posted(session, request(2))
    one, two = session
    session.send_notification("n", b'{"about":1}', about=one)
    session.send_notification("n", b'{"about":2}', about=two)
    session.send_notification("n", b'{"about":0}')
    session.send_notification("n", b'{"about":0}', about=0)
    assert said == [b'{"jsonrpc":"2.0","method":"n","params":{"about":1}}']
    assert [json.loads(line)["params"]["about"] for line in sent(session).splitlines()] == [2, 0, 0]
    session.send_result(one, b"{}")
    session.send_result(two, b"{}")
    assert b"result" in (carrying.data or b"")
    assert b"result" in (plain.data or b"")
    session.send_notification("late", about=one)
    assert b"late" in sent(session)
    assert len(said) == 1


def test_requests_and_their_cancellation_take_the_route() -> None:
    said: list[bytes] = []
    session = Session()
    posted(session, request(1), on_notice=said.append)
    (one,) = session
    id = session.send_request("ask", token="t", about=one)
    reserved = session.reserve("u")
    session.send_reserved(reserved, "ask", about=one.ref)
    assert session.cancel(id, "no", about=one) == "t"
    assert [json.loads(text)["method"] for text in said] == [
        "ask", "ask", "notifications/cancelled",
    ]  # fmt: skip
    served(session, result(reserved))
    assert sent(session) == b""


def test_notices_about_requests_of_a_batch_take_the_route_of_the_body() -> None:
    said: list[bytes] = []
    session = Session()
    session.batches = True
    posted(session, batch(request(1)), on_notice=said.append)
    (one,) = session
    session.send_notification("n", about=one)
    assert len(said) == 1
    session.receive_data(batch(request(2)))
    (two,) = session
    session.send_notification("n", about=two)
    assert sent(session) == b'{"jsonrpc":"2.0","method":"n"}\n'


def test_a_notice_may_cause_another() -> None:
    said: list[bytes] = []
    session = Session()

    def on_notice(text: bytes) -> None:
        said.append(text)
        if len(said) == 1:
            session.send_notification("second", about=one)

    reply = posted(session, request(1), on_notice=on_notice)
    (one,) = session
    session.send_notification("first", about=one)
    assert [json.loads(text)["method"] for text in said] == ["first", "second"]
    session.send_result(one, b"{}")
    assert reply.done


def test_what_is_wrong() -> None:
    session = Session()
    with pytest.raises(TypeError):
        session.receive_message("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        session.receive_message(b"{}", object())  # type: ignore[arg-type]
    with raises(TypeError):
        session.send_notification("n", about="1")  # type: ignore[arg-type]
    with raises(TypeError):
        session.receive_message(b"{}", ReplyRoute())
    assert take(session) == []


def test_what_a_function_raises_reaches_the_caller_and_nothing_is_half_written() -> None:
    def fail(*_: object) -> None:
        raise LookupError("mine")

    session = Session()
    reply = posted(session, request(1), on_notice=fail, on_done=fail)
    (one,) = session
    with pytest.raises(LookupError, match="mine"):
        session.send_notification("n", about=one)
    with pytest.raises(LookupError, match="mine"):
        session.send_result(one, b"{}")
    assert reply.done
    assert b"result" in (reply.data or b"")
    assert session.counters["requests_in_flight"] == 0


def test_a_session_that_its_routes_refer_to_is_freed() -> None:
    """An open route and its session may refer to each other."""

    class Owner:
        session: Session

        def on_done(self, reply: MemoryReply) -> None:
            raise AssertionError

    owner = Owner()
    owner.session = Session()
    posted(owner.session, request(1), on_done=owner.on_done)
    posted(owner.session, request(2), on_notice=owner.on_done, on_done=owner.on_done)
    take(owner.session)
    posted(owner.session, request(3), on_done=owner.on_done)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
