"""What a peer can make a session keep: bytes of requests, ids, and answers held for a batch."""

from __future__ import annotations

import json
import re

import pytest
from lab.core import batch, cancel, request, sent, take
from lab.rows import every

from wirespeed.core import Limits, MessageReader, Session

BODY = b'{"text":"' + b"x" * 500 + b'"}'


def batching(**limits: int) -> Session:
    session = Session(limits=Limits(**limits))
    session.batches = True
    return session


# -- bytes of requests that are worked on ------------------------------------------------------


def big(id: int, n: int = 600) -> bytes:
    return request(id, "x", '{"text":"' + "x" * n + '"}')


def test_requests_wait_while_too_many_bytes_are_worked_on() -> None:
    session = Session(limits=Limits(max_in_flight_bytes=1500))
    session.receive_data(b"".join(map(big, range(6))))
    working = take(session)
    assert [m.id for m in working] == [0, 1, 2]
    assert session.counters["bytes_in_flight"] == sum(len(big(i)) - 1 for i in range(3))
    assert session.counters["requests_waiting"] == 3
    done = []
    while working:
        message = working.pop(0)
        assert session.send_result(message, b"{}")
        done.append(message.id)
        working += take(session)
    assert done == list(range(6))
    assert session.counters["bytes_in_flight"] == 0


def test_one_request_may_be_larger_than_the_limit() -> None:
    session = Session(limits=Limits(max_in_flight_bytes=1))
    session.receive_data(big(1) + big(2))
    (first,) = take(session)
    session.send_result(first, b"{}")
    assert [m.id for m in take(session)] == [2]


def test_a_cancelled_request_counts_until_its_handler_ends() -> None:
    session = Session(limits=Limits(max_in_flight_bytes=1500))
    session.receive_data(b"".join(map(big, range(3))))
    for message in take(session):
        session.set_token(message, "handler")
    session.receive_data(cancel(0) + cancel(1) + cancel(2) + big(3) + big(4))
    assert [m.kind for m in take(session)] == ["notification"] * 3
    session.cancelled_done()
    assert [m.id for m in take(session)] == [3]
    session.cancelled_done()
    assert [m.id for m in take(session)] == [4]


def test_a_request_is_refused_while_we_wait_for_the_peer_too() -> None:
    session = Session(limits=Limits(max_in_flight_bytes=500, max_waiting=1))
    session.send_request("roots/list", token="t")
    sent(session)
    session.receive_data(big(1) + big(2) + big(3))
    assert [m.id for m in take(session)] == [1]
    assert b'"code":-31000' in sent(session)


# -- ids ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["1" * 21, '"' + "x" * 19 + '"', '"\\u0061' + "x" * 13 + '"'])
def test_an_id_that_is_too_long(id: str) -> None:
    session = Session(limits=Limits(max_id=20))
    session.receive_data(request(id) + request(id[-20:] if id[-1] == "1" else '"' + id[-19:]))
    refused, taken = take(session)
    assert (refused.kind, refused.fault, refused.raw_id) == ("invalid", "request", None)
    assert refused.reason == "an id of more than 20 bytes"
    assert taken.kind == "request"
    answer = sent(session)
    assert b'"id":null' in answer
    assert b"-32600" in answer


# -- answers that wait for the rest of their batch ---------------------------------------------


def test_open_batches_hold_a_bounded_number_of_bytes() -> None:
    """A peer leaves one request of each batch unanswered, and has all others answered."""
    session = batching(max_in_flight_bytes=20_000)
    held = []
    for n in range(50):
        session.receive_data(batch(*(request(1000 * n + i) for i in range(20))))
        for message in take(session):
            if message.id == 1000 * n:
                held.append(message)
            else:
                session.send_result(message, BODY)
        assert session.counters["bytes_in_batches"] < 20_000 + 20 * len(BODY)
    assert 1 <= len(held) <= 3
    assert session.counters["refused"] > 20 * 45
    # all of a refused batch is answered at once, and the others when they are complete
    for message in held:
        session.send_result(message, BODY)
    assert session.counters["bytes_in_batches"] == session.counters["requests_in_flight"] == 0
    assert sent(session).count(b'"id":') == 50 * 20


def test_requests_of_a_batch_that_waited_are_refused_too() -> None:
    """They cannot wait for bytes that leave only when they are answered themselves."""
    session = batching(max_in_flight=1, max_in_flight_bytes=400)
    session.receive_data(batch(*(request(i) for i in range(4))) + request(9))
    (first,) = take(session)
    assert session.counters["requests_waiting"] == 4
    session.send_result(first, BODY)
    (other,) = take(session)
    assert other.id == 9
    answer = sent(session)
    assert answer.count(b'"code":-31000') == 3
    assert b'"id":0' in answer


def test_requests_outside_of_batches_go_on() -> None:
    session = batching(max_in_flight_bytes=400)
    session.receive_data(batch(request(1), request(2)))
    first, _ = take(session)
    session.send_result(first, BODY)
    session.receive_data(request(3))
    assert [m.id for m in take(session)] == [3]


def test_faults_in_a_batch_count_as_well() -> None:
    session = batching(max_in_flight_bytes=1000)
    session.receive_data(batch(request(1), *[b"5"] * 30) + batch(request(2)))
    assert [m.id for m in take(session) if m.kind == "request"] == [1]
    assert sent(session).count(b'"code":-31000') == 1


def test_a_batch_that_is_cancelled_holds_nothing() -> None:
    session = batching(max_in_flight_bytes=400)
    session.receive_data(batch(request(1), request(2)))
    first, _ = take(session)
    session.send_result(first, BODY)
    session.receive_data(cancel(2))
    take(session)
    assert session.counters["bytes_in_batches"] == 0
    session.receive_data(batch(request(3)))
    assert [m.id for m in take(session)] == [3]


# -- values of one message -------------------------------------------------------------------------

MANY = {
    "request": '{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":[%s]}}',
    "notification": '{"jsonrpc":"2.0","method":"x","params":{"x":[%s]}}',
    "response": '{"jsonrpc":"2.0","result":{"x":[%s]},"id":1}',
    "error": '{"jsonrpc":"2.0","error":{"code":1,"message":"x","data":[%s]},"id":1}',
    "batch": '[{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":[%s]}}]',
}
# strings whose quotes, commas and brackets are text
TEXTS = [",[{" * 9, '\\"' + "," * 30, "\\\\", '\\\\\\"[[,', "\\\\" * 5 + '\\",', "\\u0022,,", ""]


def counted(text: str) -> int:
    """What stands outside the strings of a JSON text, by another way than the reader's."""
    outside = re.sub(r'"(\\.|[^"\\])*"', "", text)
    return 1 + sum(outside.count(mark) for mark in ",[{")


@every("values", ["7," * 60 + "7", "[]," * 30 + "{}", json.dumps(TEXTS * 9)])
@every("kind", MANY)
def test_values_of_a_message_are_bounded(kind: str, values: str) -> None:
    text = MANY[kind] % values
    for most, good in ((counted(text), True), (counted(text) - 1, False)):
        reader = MessageReader(limits=Limits(max_values=most), batches=kind == "batch")
        reader.receive_data(text.encode() + b"\n" + request(2, "y"))
        first, after = reader
        assert after.id == 2  # the connection lives
        assert (first.kind != "invalid") == good
        if not good:
            assert first.reason == f"more than the limit of {most} JSON values"
            assert first.fault == ("response" if kind in ("response", "error") else "request")


@every("text", TEXTS)
def test_strings_are_one_value_each(text: str) -> None:
    whole = MANY["request"] % ",".join([f'"{text}"'] * 20)
    reader = MessageReader(limits=Limits(max_values=counted(whole)))
    reader.receive_data(whole.encode() + b"\n" + whole.encode() + b"\n")
    assert [message.kind for message in reader] == ["request", "request"]
