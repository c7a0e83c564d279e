"""Batches (2025-03-26; JSON-RPC 2.0 section 6): an array in, its answers joined out."""

from __future__ import annotations

import itertools
import json

import pytest
from lab.core import (
    DOORS,
    Feed,
    batch,
    cancel,
    chunkings,
    feed_all,
    notification,
    outcomes,
    request,
    result,
    sent,
    take,
)
from lab.rows import every

from wirespeed.core import Limits, Session


def batching(**limits: int) -> Session:
    session = Session(limits=Limits(**limits))
    session.batches = True
    return session


def errors(line: bytes) -> list[tuple[int, object]]:
    return [(m["error"]["code"], m["id"]) for m in json.loads(line)]


@pytest.mark.parametrize("door", DOORS)
def test_requests_and_notifications(door: str) -> None:
    line = batch(request(1), notification("n"), request('"b"'))
    spaced = line.replace(b",{", b" ,\t{").replace(b"[", b" [ ").replace(b"]", b" ] ")
    for text in (line, spaced):
        for chunks in chunkings(text + notification("tail")):
            session = batching()
            kinds = []
            for chunk in chunks:
                DOORS[door](session, chunk)
                for message in session.events():
                    kinds.append(message.kind)
                    if message.kind == "request":
                        assert session.send_result(message, b"{}")
            assert kinds == ["request", "notification", "request", "notification"]
            assert sent(session) == (
                b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"b","result":{}}]\n'
            )


@every("order", list(itertools.permutations(range(3))))
def test_answers_join_in_any_order_and_leave_with_the_last(order: tuple[int, ...]) -> None:
    session = batching()
    session.receive_data(batch(request(0), request(1), b"5", request(2)))
    found = [m for m in session.events() if m.kind == "request"]
    for i in order:
        assert sent(session) == b""
        assert session.send_result(found[i], b"%d" % i)
    line = sent(session)
    assert line.count(b"\n") == 1
    first, *rest = json.loads(line)
    assert first["error"]["code"] == -32600
    assert [m["result"] for m in rest] == list(order)
    assert not session.send_result(found[0], b"{}")
    assert sent(session) == b""


@every(
    ("line", "code"),
    [
        (b"[]\n", -32600),
        (b"[ ]\n", -32600),
        (b"[1,]\n", -32700),
        (b"[,1]\n", -32700),
        (b"[\n", -32700),
        (b"[1\n", -32700),
        (b"[1 2]\n", -32700),
        (b"[1]2\n", -32700),
        (b"[1]]\n", -32700),
        (b"[1}\n", -32700),
        (b'[{"a":1},{"b"}]\n', -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"},nonsense]\n', -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"},"\xff"]\n', -32700),
        (b"[" + b"1," * 10 + b"1]\n", -32600),
        (b"[" + b"1," * 10 + b"x]\n", -32700),
    ],
)
@every("feed", DOORS.values(), ids=DOORS)
def test_one_error_for_a_batch_that_is_none(line: bytes, code: int, feed: Feed) -> None:
    """Nothing in it is looked at, and the answer is no array."""
    for chunks in chunkings(line + notification("tail")):
        session = batching(max_batch=10)
        fault = "invalid request" if code == -32600 else "invalid parse"
        assert feed_all(session, chunks, feed) == [fault, "notification"]
        answer = json.loads(sent(session))
        assert answer["error"]["code"] == code
        assert answer["id"] is None
        assert session.counters["requests_in_flight"] == 0


def test_reasons_say_where_in_the_line() -> None:
    for line, reason in (
        (b'[{"a":1},{"b"}]\n', "not JSON at byte 13"),
        (b"[1 2]\n", "not JSON at byte 3"),
        (b"[1,]\n", "not JSON at byte 3"),
        (b"[1,\n", "not JSON at byte 3"),
        (b'[1,"\xff"]\n', "not UTF-8 at byte 4"),
    ):
        session = batching()
        session.receive_data(line)
        assert [m.reason for m in session.events()] == [reason]


def test_the_length_limit_is_exact() -> None:
    for n, expected in ((10, ["notification"] * 10), (11, ["invalid request"])):
        session = batching(max_batch=10)
        session.receive_data(batch(*[notification("n")] * n))
        assert outcomes(session) == expected
        assert (b"more than 10" in sent(session)) == (n == 11)


@pytest.mark.parametrize("depth", [1, 2, 3, 64, 128])
def test_the_depth_limit_is_exact(depth: int) -> None:
    """The array around the messages is a level too."""
    for n in (depth, depth + 1):
        session = batching(max_depth=depth)
        inner = "[" * (n - 1) + "]" * (n - 1) if n > 1 else "1"
        session.receive_data(f"[1,{inner}]\n".encode())
        messages = take(session)
        if n == depth:
            assert [m.fault for m in messages] == ["request"] * 2
        else:
            assert [m.reason for m in messages] == [f"nested deeper than {depth} levels"]
            assert json.loads(sent(session))["error"]["code"] == -32600


def test_only_notifications_and_responses_get_no_answer() -> None:
    session = batching()
    id = session.send_request("m", token="t")
    sent(session)
    session.receive_data(batch(notification("a"), result(id), result(99), notification("b")))
    assert [(m.kind, m.token) for m in session.events()] == [
        ("notification", None), ("result", "t"), ("notification", None),
    ]  # fmt: skip
    assert sent(session) == b""


def test_each_invalid_element_gets_its_own_error() -> None:
    session = batching()
    session.receive_data(
        batch(b"1", b"[]", b"[" + request(5).rstrip() + b"]", b"{}", b'{"id":7,"method":"m"}',
              b'{"method":"broken notification"}', b'{"result":{}}')
    )  # fmt: skip
    assert outcomes(session) == ["invalid request"] * 5 + [
        "invalid notification", "invalid response",
    ]  # fmt: skip
    assert errors(sent(session)) == [(-32600, None)] * 4 + [(-32600, 7)]


@pytest.mark.parametrize("method", ["initialize", "initi\\u0061lize"])
def test_initialize_cannot_be_in_a_batch(method: str) -> None:
    session = batching()
    session.receive_data(batch(request(1, method), request(2)))
    (message,) = session.events()
    assert message.id == 2
    session.send_result(message, b"{}")
    refusal, answer = json.loads(sent(session))
    assert refusal["id"] == 1
    assert refusal["error"]["code"] == -32600
    assert "initialize" in refusal["error"]["message"]
    assert answer["id"] == 2
    # and alone it is a request
    session.receive_data(request(1, method))
    assert outcomes(session) == ["request"]


def test_a_second_id_in_the_same_batch() -> None:
    session = batching()
    session.receive_data(request(1, "alone") + batch(request(1), request(2), request(2)))
    alone, second = session.events()
    session.send_result(second, b"{}")
    assert [m.get("error", {}).get("code") for m in json.loads(sent(session))] == [
        -32600, -32600, None,
    ]  # fmt: skip
    assert session.send_result(alone, b"{}")
    assert sent(session) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def test_cancellation_of_a_part() -> None:
    session = batching()
    session.receive_data(batch(request(1), request(2), request(3)))
    first, second, third = session.events()
    session.send_result(first, b"{}")
    session.receive_data(cancel(2))
    assert outcomes(session) == ["notification"]
    assert not session.send_result(second, b"{}")
    assert sent(session) == b""
    session.send_result(third, b"{}")
    assert [m["id"] for m in json.loads(sent(session))] == [1, 3]


def test_cancellation_of_the_last_open_part_sends_the_rest() -> None:
    session = batching()
    session.receive_data(batch(request(1), request(2)))
    first, _ = session.events()
    session.send_result(first, b"{}")
    session.receive_data(cancel(2))
    take(session)
    assert [m["id"] for m in json.loads(sent(session))] == [1]


def test_cancellation_of_everything_sends_nothing() -> None:
    session = batching()
    session.receive_data(batch(request(1), request(2)) + cancel(1) + cancel(2))
    assert outcomes(session) == ["request"] * 2 + ["notification"] * 2
    assert sent(session) == b""


def test_cancellation_inside_the_batch() -> None:
    session = batching()
    session.receive_data(batch(request(1), cancel(1), request(2), cancel(3), request(3)))
    messages = take(session)
    assert [m.kind for m in messages].count("request") == 3
    assert [session.send_result(m, b"{}") for m in messages if m.kind == "request"] == [
        False, True, True,
    ]  # fmt: skip
    assert [m["id"] for m in json.loads(sent(session))] == [2, 3]


def test_two_batches_and_single_requests_at_once() -> None:
    session = batching()
    session.receive_data(batch(request(1), request(2)) + request(3) + batch(request(4)))
    one, two, three, four = session.events()
    for message in (three, two, four, one):
        session.send_result(message, b"{}")
    lines = [json.loads(line) for line in sent(session).splitlines()]
    assert [[m["id"] for m in x] if isinstance(x, list) else x["id"] for x in lines] == [
        3, [4], [1, 2][::-1],
    ]  # fmt: skip


def test_big_answers_are_not_copied() -> None:
    session = batching()
    session.receive_data(batch(request(1), request(2)))
    body = b'"' + b"x" * 100_000 + b'"'
    for message in take(session):
        session.send_result(message, body)
    before = session.counters["output_bytes_copied"]
    assert before == 0
    assert sent(session).count(body) == 2


def test_element_leases_are_exact() -> None:
    session = batching()
    line = b'[ {"jsonrpc":"2.0","id":1,"method":"m","params": {"name":"n"}} , 7 ]'
    session.receive_data(line + b"\n")
    first, second = session.events()
    assert first.raw == line[2 : line.index(b" , 7")]
    assert first.params == b'{"name":"n"}'
    assert first.text("params.name") == "n"
    assert second.raw == b"7"
    assert session.counters["payload_bytes_copied"] == 0


def test_a_batch_is_refused_where_none_was_negotiated() -> None:
    session = Session()
    session.receive_data(batch(request(1), request(2)) + b"[]\n[x\n")
    assert outcomes(session) == ["invalid request", "invalid request", "invalid parse"]
    codes = [json.loads(line)["error"]["code"] for line in sent(session).splitlines()]
    assert codes == [-32600, -32600, -32700]
    assert session.counters["requests_in_flight"] == 0
    session.batches = True
    session.receive_data(batch(request(1)))
    assert outcomes(session) == ["request"]


def test_a_client_takes_batches_of_responses() -> None:
    session = Session(role="client")
    session.batches = True
    ids = [session.send_request("m", token=i) for i in range(3)]
    sent(session)
    session.receive_data(batch(result(ids[2]), b"7", result(ids[0]), notification("n")))
    assert [(m.kind, m.token) for m in session.events()] == [
        ("result", 2), ("invalid", None), ("result", 0), ("notification", None),
    ]  # fmt: skip
    assert sent(session) == b""


def test_null_ids_are_left_out_inside_too() -> None:
    session = batching()
    session.null_ids = False
    session.receive_data(batch(b"1", b"2"))
    take(session)
    assert sent(session).count(b'"id"') == 0
