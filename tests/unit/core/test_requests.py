"""Requests of the peer: ids come back as they came, each gets one answer, cancelled ones none."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from lab.core import cancel, notification, outcomes, request, sent, take
from lab.rows import every
from lab.wording import raises

from wirespeed.core import Limits, Message, Session, WebSocketFramer

Refer = Callable[[Message], Message | int]
by_message_or_ref = pytest.mark.parametrize("refer", [lambda m: m, lambda m: m.ref])
IDS = [
    "1",
    "0",
    "-0",
    "-17",
    "12345678901234567890123",
    '"1"',
    '""',
    '"é"',
    '"\\u0041\\\\"',
    '"\\ud800"',
    '"' + "x" * 30 + '"',  # around the length that the table keeps in place
    '"' + "x" * 29 + '"',
    '"' + "x" * 31 + '"',
    '"' + "long" * 255 + '"',
]


@by_message_or_ref
@pytest.mark.parametrize("id", IDS)
def test_an_id_comes_back_as_it_came(id: str, refer: Refer) -> None:
    session = Session()
    session.receive_data(request(id) + request('"other"'))
    first, second = session.events()
    assert session.send_result(refer(second), b'{"n":2}')
    assert session.send_error(refer(first), -5, "no", {"why": [None]})
    assert sent(session) == (
        b'{"jsonrpc":"2.0","id":"other","result":{"n":2}}\n'
        b'{"jsonrpc":"2.0","id":%b,"error":{"code":-5,"message":"no","data":{"why":[null]}}}\n'
        % id.encode()
    )


def test_where_there_are_no_answers() -> None:
    """As for a client of 2026-07-28: requests are seen, in any number, and nothing else."""
    limits = Limits(max_in_flight=1, max_waiting=1)
    session = Session(role="client", limits=limits)
    session.receive_data(request('"old"'))
    (old,) = session.events()
    session.answers_requests = False
    session.send_request("call", token=object())  # so that those which are too many are refused
    call = sent(session)
    session.receive_data(request("1") * 5 + request("2"))
    seen = list(session.events())
    assert [m.method for m in seen] == ["x"] * 6
    assert not any(session.send_result(m, b"{}") for m in seen)
    assert session.send_result(old, b"{}")
    assert b'"call"' in call and sent(session) == b'{"jsonrpc":"2.0","id":"old","result":{}}\n'
    assert len(session.inflight) == 0


SPELLINGS = [
    ('"x"', r'"\u0078"'),
    (r'"a\/b"', '"a/b"'),
    ('"é"', r'"\u00e9"'),
    (r'"\ud83d\ude00"', '"\U0001f600"'),
    (r'"\uD800"', r'"\ud800"'),
    (r'"\\u0078"', r'"\u005cu0078"'),
    (r'"%s\n"' % ("long" * 20), r'"%s\u000A"' % ("long" * 20)),
]


@every(("one", "other"), [*SPELLINGS, *(pair[::-1] for pair in SPELLINGS)])
def test_two_spellings_of_a_string_are_one_id(one: str, other: str) -> None:
    """A duplicate is refused, a cancellation finds its request. Each is answered with the text that
    it came with."""
    session = Session()
    session.receive_data(request(one, "first") + request(other, "second"))
    (first,) = session.events()
    assert sent(session).startswith(b'{"jsonrpc":"2.0","id":%b,"error":{' % other.encode())
    assert session.send_result(first, b"{}")
    assert sent(session) == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % one.encode()
    session.receive_data(request(one) + cancel(other) + request(other))
    found = list(session.events())
    assert found[1].ref == found[0].ref
    assert not session.send_result(found[0], b"{}")
    assert session.send_result(found[2], b"{}")
    assert sent(session) == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % other.encode()
    # those that flow control holds back are found, too
    session = Session(limits=Limits(max_in_flight=1))
    session.receive_data(request(1) + request(one) + request('"z"') + cancel(other))
    held, _ = session.events()
    session.send_result(held, b"{}")
    assert [m.raw_id for m in session.events()] == [b'"z"']


def test_ids_differ_by_what_they_say() -> None:
    """`1` and `"1"` are two ids, and each comes back as it came."""
    session = Session()
    session.receive_data(b"".join(map(request, IDS)))
    found = take(session)
    assert [m.raw_id for m in found] == [id.encode() for id in IDS]
    for message in reversed(found):
        assert session.send_result(message, b"{}")
    ids = [line.split(b'"id":')[1].split(b',"result"')[0] for line in sent(session).splitlines()]
    assert ids == [id.encode() for id in reversed(IDS)]


@every("id", IDS)
def test_a_second_request_with_an_id_in_flight(id: str) -> None:
    session = Session()
    session.receive_data(request(id, "first") + request(id, "second") + request(id, "third"))
    (first,) = session.events()
    assert first.method == "first"
    refusals = sent(session).splitlines()
    assert len(refusals) == session.counters["duplicate_ids"] == 2
    for line in refusals:
        assert line.startswith(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32600,' % id.encode())
    assert session.send_result(first, b"{}")
    assert sent(session) == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % id.encode()
    # the id is free again
    session.receive_data(request(id, "fourth"))
    assert [m.method for m in session.events()] == ["fourth"]


@by_message_or_ref
def test_only_the_first_answer_counts(refer: Refer) -> None:
    session = Session()
    session.receive_data(request(1))
    (message,) = session.events()
    refered = refer(message)
    assert session.send_result(refered, b"{}")
    assert not session.send_result(refered, b"{}")
    assert not session.send_error(refered, 1, "x")
    # nor does a late one answer the next request with the same id
    session.receive_data(request(1))
    (again,) = session.events()
    assert again.ref != message.ref
    assert not session.send_result(refered, b"{}")
    assert session.send_error(again, 1, "x")
    assert sent(session).count(b"\n") == session.counters["messages_out"] == 2


def test_what_is_no_request_is_not_answered() -> None:
    session = Session()
    session.receive_data(notification("n") + b"nonsense\n")
    for message in session.events():
        assert message.ref == 0
        sent(session)
        assert not session.send_result(message, b"{}")
        assert not session.send_error(message, 1, "x")
    assert not session.send_result(0, b"{}")
    assert not session.send_result(2**64 - 1, b"{}")
    assert not session.set_token(12345, "t")
    assert sent(session) == b""
    for bad in (None, "1", 1.5, -1, 2**64):
        with pytest.raises((TypeError, OverflowError)):
            session.send_result(bad, b"{}")  # type: ignore[arg-type]


# -- bodies ------------------------------------------------------------------------------------


@every("n", [10, 4094, 4095, 4096, 4097, 100_000])
@every("kind", [bytes, bytearray, memoryview])
def test_bodies_of_any_size_and_kind(n: int, kind: type) -> None:
    body = b'"' + b"x" * (n - 2) + b'"'
    session = Session()
    session.receive_data(request(1))
    (message,) = session.events()
    assert session.send_result(message, kind(body))
    assert sent(session) == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % body


def test_a_lease_may_be_the_body() -> None:
    session = Session()
    session.receive_data(request(1, "echo", '{"a":[1,2,{}]}'))
    (message,) = session.events()
    assert message.params is not None
    assert session.send_result(message, message.params)
    assert sent(session) == b'{"jsonrpc":"2.0","id":1,"result":{"a":[1,2,{}]}}\n'


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("framer", [None, "websocket"])
def test_a_body_of_parts(kind: type, framer: str | None) -> None:
    """Long parts, leases among them, are referenced and not copied."""
    session = Session(
        framer=None if framer is None else WebSocketFramer("server", max_message=10**6)
    )
    text = "x" * 10_000
    session.receive_message(request(1, "echo", f'{{"t":"{text}"}}'))
    (message,) = session
    parts = [b'{"a":', message.params, b"", bytearray(b',"b":"'), text.encode(), b'"}']
    ref = message.ref
    del message
    assert session.send_result(ref, kind(parts))
    del parts
    answer = sent(session)
    assert answer.rstrip(b"\n").endswith(
        b'{"jsonrpc":"2.0","id":1,"result":{"a":{"t":"%b"},"b":"%b"}}'
        % (text.encode(), text.encode())
    )
    assert session.counters["output_bytes_copied"] < 100


def test_an_error_as_another_peer_wrote_it() -> None:
    session = Session()
    session.receive_data(request(1) + request(2) + request(3))
    one, two, three = session
    assert session.send_error_object(one, b'{"code":5,"message":"m","more":1.0}')
    assert session.send_error_object(two.ref, [b'{"code":5,', b'"message":"m"}'])
    assert session.set_token(three, "t")
    assert not session.send_error_object(one, b"{}")
    assert sent(session) == (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m","more":1.0}}\n'
        b'{"jsonrpc":"2.0","id":2,"error":{"code":5,"message":"m"}}\n'
    )
    with raises(ValueError):
        session.send_error_object(three, b"")


def test_params_of_parts() -> None:
    session = Session()
    session.send_notification("n", (b'{"a":', b"1", b"}"))
    id = session.send_request("m", [b"{", b"}"], token="t")
    assert sent(session) == (
        b'{"jsonrpc":"2.0","method":"n","params":{"a":1}}\n'
        b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}\n' % id
    )


@every(
    "body",
    [
        "{}",
        None,
        {},
        b"",
        b"{\n}",
        b'{"a":1}\n',
        bytearray(b"\n"),
        memoryview(b"abcd")[::2],
        (),
        [b""],
        (b"{", b"\n}"),
        (b"{", "}"),
        [b"{}", None],
    ],
)
def test_a_body_that_cannot_be_sent_leaves_nothing_behind(body: object) -> None:
    """The request is still in flight, and no half message is queued."""
    session = Session()
    session.batches = True
    session.receive_data(request(1) + b"[" + request(2).rstrip() + b"]\n")
    messages = take(session)
    for message in messages:
        with pytest.raises((TypeError, ValueError, BufferError)):
            session.send_result(message, body)  # type: ignore[arg-type]
    assert sent(session) == b""
    for message in messages:
        assert session.send_result(message, b"{}")
    assert sent(session) == (
        b'{"jsonrpc":"2.0","id":1,"result":{}}\n[{"jsonrpc":"2.0","id":2,"result":{}}]\n'
    )


@pytest.mark.parametrize("text", ["", 'é\u2028\n"\\', "\ud800", "\0", "x" * 10_000])
def test_texts_of_errors(text: str) -> None:
    session = Session()
    session.receive_data(request(1))
    (message,) = session.events()
    assert session.send_error(message, -31000, text)
    line = sent(session)
    assert line.count(b"\n") == 1
    got = json.loads(line.decode())["error"]
    assert got["message"] == text.encode("utf-8", "backslashreplace").decode()
    assert got["code"] == -31000


@pytest.mark.parametrize("data", ["\ud800", {"a": ["\ud800", 1]}, {"\ud800": None}])
def test_lone_surrogates_in_the_data_of_an_error(data: object) -> None:
    session = Session()
    session.receive_data(request(1))
    (message,) = session.events()
    assert session.send_error(message, 1, "\ud800", data)
    error = json.loads(sent(session).decode())["error"]
    assert error["message"] == "\\ud800"
    assert json.dumps(error["data"]) == json.dumps(data).replace("\\ud800", "\\\\ud800")


@pytest.mark.parametrize("data", [object(), {"a": object()}, ["\ud800", object()]])
def test_data_of_an_error_that_is_no_json(data: object) -> None:
    session = Session()
    session.receive_data(request(1))
    (message,) = session.events()
    with pytest.raises((TypeError, ValueError)):
        session.send_error(message, 1, "x", data)
    assert sent(session) == b""
    assert session.send_error(message, 1, "x", float("nan"))
    assert b"NaN" not in sent(session)


# -- cancellation ------------------------------------------------------------------------------


@by_message_or_ref
@pytest.mark.parametrize("id", IDS)
def test_a_cancelled_request_gets_no_answer(id: str, refer: Refer) -> None:
    session = Session()
    session.receive_data(request(id) + cancel(id))
    message, cancellation = session.events()
    assert cancellation.kind == "notification"
    assert cancellation.ref == message.ref
    assert cancellation.token is None
    assert not session.send_result(refer(message), b"{}")
    assert not session.send_error(refer(message), 1, "x")
    assert sent(session) == b""
    counters = session.counters
    assert counters["cancelled"] == 1
    assert counters["requests_in_flight"] == 0
    session.receive_data(request(id))
    assert outcomes(session) == ["request"]


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications\\/cancelled"])
def test_a_cancellation_shows_who_works_on_it(method: str) -> None:
    session = Session()
    session.receive_data(request(1) + request(2))
    for message in take(session):
        assert session.set_token(message, "nobody")
        assert session.set_token(message, f"worker {message.id}")
    session.receive_data(notification(method, '{"requestId":2,"reason":"tired"}'))
    (cancellation,) = session.events()
    assert cancellation.token == "worker 2"
    assert cancellation.method == "notifications/cancelled"
    assert cancellation.params is not None


@every(
    "params", ["", "{}", '{"requestId":null}', '{"requestId":2}', '{"requestId":"1"}',
               '{"requestId":1.0}', '{"requestId":{}}', '{"requestId":[1]}'],
)  # fmt: skip
def test_a_cancellation_of_nothing_in_flight_is_silent(params: str) -> None:
    session = Session()
    session.receive_data(request(1) + notification("notifications/cancelled", params))
    message, cancellation = session.events()
    assert cancellation.kind == "notification"
    assert cancellation.ref == 0
    assert session.counters["cancelled"] == 0
    assert session.send_result(message, b"{}")
    assert sent(session).count(b"\n") == 1


def test_cancellation_races() -> None:
    session = Session()
    # answered before the cancellation comes
    session.receive_data(request(1))
    (message,) = session.events()
    session.send_result(message, b"{}")
    session.receive_data(cancel(1))
    (late,) = session.events()
    assert late.ref == 0
    # twice
    session.receive_data(request(2) + cancel(2) + cancel(2))
    assert [m.ref != 0 for m in session.events()] == [True, True, False]
    # before the request
    session.receive_data(cancel(3) + request(3))
    early, message = session.events()
    assert early.ref == 0
    assert session.send_result(message, b"{}")
    # a new request with the id of a cancelled one
    session.receive_data(request(4) + cancel(4) + request(4))
    first, _, second = session.events()
    assert not session.send_result(first, b'{"first":1}')
    assert session.send_result(second, b'{"second":1}')
    assert sent(session).count(b"second") == 1


def test_a_broken_cancellation_is_not_one() -> None:
    session = Session()
    session.receive_data(request(1) + notification("notifications/cancelled", "[1]"))
    message, fault = session.events()
    assert fault.fault == "notification"
    assert session.send_result(message, b"{}")


# -- many --------------------------------------------------------------------------------------


def test_many_in_flight_in_any_order() -> None:
    n = 5000
    session = Session(limits=Limits(max_in_flight=n, output_high=10**9))
    session.receive_data(b"".join(request(f'"{i}-{"x" * (i % 40)}"') for i in range(n)))
    found = take(session)
    order = sorted(found, key=lambda m: hash((m.ref, 7)))
    for message in order:
        assert session.send_result(message, b"{}")
    ids = [json.loads(line)["id"] for line in sent(session).splitlines()]
    assert ids == [m.id for m in order]
    assert len(set(ids)) == n
    assert session.counters["requests_in_flight"] == 0
