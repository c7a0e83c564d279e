"""Requests of ours: ids, responses, late and foreign ones, cancellation, deadlines."""

from __future__ import annotations

import json

import pytest
from lab.core import notification, outcome, outcomes, result, sent, take
from lab.rows import every
from lab.wording import raises

from wirespeed.core import Limits, Session


def call(session: Session, token: object = "t", **options: float) -> int:
    return session.send_request("m", b"{}", token=token, **options)


def test_the_messages() -> None:
    session = Session()
    first = session.send_request("tools/call", b'{"a":1}', token="a")
    second = session.send_request('é"\n', token="b")
    session.send_notification("notifications/x", b"[]")
    session.send_notification("y")
    assert sent(session) == (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"a":1}}\n'
        b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":[]}\n'.replace(b',"params":[]}', b"}")
        % (first, second, 'é\\"\\n'.encode())
        + b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}\n'
        b'{"jsonrpc":"2.0","method":"y"}\n'
    )
    assert session.counters["messages_out"] == 4


def test_ids_are_positive_exact_in_a_double_and_never_come_back() -> None:
    session = Session()
    seen = set()
    for i in range(3000):
        id = call(session)
        assert 0 < id < 2**52
        seen.add(id)
        if i % 3:
            session.forget(id)
    assert len(seen) == 3000
    assert session.counters["requests_outstanding"] == 1000


def test_responses_find_their_callers_in_any_order() -> None:
    session = Session()
    ids = {call(session, token=f"caller {i}"): f"caller {i}" for i in range(100)}
    for id in reversed(ids):
        session.receive_data(result(id, json.dumps({"for": ids[id]})))
    for message in take(session):
        assert isinstance(message.token, str)
        assert message.kind == "result"
        assert json.loads(bytes(message.result)) == {"for": message.token}  # type: ignore[arg-type]
    assert session.counters["requests_outstanding"] == 0


def test_an_error_finds_its_caller() -> None:
    session = Session()
    id = call(session)
    session.receive_data(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"no"}}\n' % id)
    (message,) = session.events()
    assert (message.kind, message.token) == ("error", "t")
    assert message.error == b'{"code":-1,"message":"no"}'


@every(
    "spell",
    ["{0}e0", "-{0}", "{0}0", "9007199254740993", "null", "true", "[{0}]",
     "12345678901234567890123", "0"],
)  # fmt: skip
def test_an_id_of_another_value_is_no_answer(spell: str) -> None:
    session = Session(role="client")
    id = call(session)
    session.receive_data(result(spell.format(id)))
    assert [m.token for m in session.events()] in ([], [None])
    assert session.counters["requests_outstanding"] == 1
    session.receive_data(result(id))
    assert [m.token for m in session.events()] == ["t"]


def test_an_id_beyond_ours_is_not_cut_to_one() -> None:
    """The generation is compared in full: 2**52 + id is not id."""
    session = Session()
    id = call(session)
    for foreign in (id + 2**52, id + 2**53 - 2**20, id + 2**20, 2**63 + id, 2**64 + id):
        session.receive_data(result(foreign))
        assert take(session) == []
    assert session.counters["late_responses"] == 5
    assert session.counters["requests_outstanding"] == 1


def test_late_unknown_and_second_responses_are_counted_and_not_shown() -> None:
    session = Session()
    done, given_up = call(session), call(session)
    session.cancel(given_up)
    session.receive_data(result(done) + result(done) + result(given_up) + result(777))
    assert [m.token for m in session.events()] == ["t"]
    assert session.counters["late_responses"] == 3
    assert session.counters["faults"] == 0


def test_late_responses_are_shown_to_those_who_ask() -> None:
    session = Session()
    session.shows_late_responses = True
    id = call(session)
    session.receive_data(result(id) + result(id) + result('"x"'))
    assert [(message.raw_id, message.token) for message in session] == [
        (b"%d" % id, "t"), (b"%d" % id, None), (b'"x"', None),
    ]  # fmt: skip
    assert session.counters["late_responses"] == 2


def test_a_new_call_is_not_answered_by_an_old_response() -> None:
    session = Session()
    old = call(session, "old")
    session.forget(old)
    new = call(session, "new")
    assert new != old
    session.receive_data(result(old))
    assert take(session) == []
    session.receive_data(result(new))
    assert [m.token for m in session.events()] == ["new"]


@every(
    ("body", "fails"),
    [
        ('"result":{},"error":{}', True),
        ('"nothing":1', True),
        ('"error":"text"', True),
        ('"error":null', True),
        ('"result":{},"result":{}', True),
        ('"result":null', False),
    ],
)
def test_a_broken_response_fails_its_call(body: str, fails: bool) -> None:
    for role in ("client", "server"):
        session = Session(role=role)
        id = call(session)
        sent(session)
        session.receive_data(f'{{"jsonrpc":"2.0","id":{id},{body}}}\n'.encode())
        (message,) = session.events()
        assert outcome(message) == ("invalid response" if fails else "result")
        assert message.token == "t"
        assert session.counters["requests_outstanding"] == 0
        assert sent(session) == b""


def test_errors_without_an_id_are_shown() -> None:
    session = Session(role="client")
    call(session)
    session.receive_data(b'{"jsonrpc":"2.0","id":null,"error":{}}\n{"jsonrpc":"2.0","error":{}}\n')
    assert [(m.kind, m.token, m.id) for m in session.events()] == [("error", None, None)] * 2
    assert session.counters["requests_outstanding"] == 1


# -- progress ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["notifications/progress", "notifications\\/progress"])
def test_progress_shows_its_caller(method: str) -> None:
    session = Session()
    id = session.reserve("t")
    session.send_reserved(id, "m", b'{"_meta":{"progressToken":%d}}' % id)
    session.receive_data(notification(method, f'{{"progressToken":{id},"progress":1}}') * 2)
    assert [m.token for m in session.events()] == ["t", "t"]
    for other in (f'"{id}"', "0", '""', f"{id + 1}", "null", "{}"):
        session.receive_data(notification(method, f'{{"progressToken":{other},"progress":1}}'))
        (message,) = session.events()
        assert message.token is None
        assert message.lease("params.progressToken") == other.encode()
    session.receive_data(result(id) + notification(method, f'{{"progressToken":{id}}}'))
    assert [m.token for m in session.events()] == ["t", None]


# -- giving up ---------------------------------------------------------------------------------


def test_cancel() -> None:
    session = Session()
    first, second = call(session, "a"), call(session, "b")
    sent(session)
    assert session.cancel(first) == "a"
    assert session.cancel(second, 'because "so"') == "b"
    assert sent(session) == (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/cancelled",'
        b'"params":{"requestId":%d,"reason":"because \\"so\\""}}\n' % (first, second)
    )
    for id in (first, 0, -1, 2**62):
        assert session.cancel(id) is None
        assert session.forget(id) is None
    assert sent(session) == b""


def test_forget_tells_nobody() -> None:
    session = Session()
    id = call(session)
    sent(session)
    assert session.forget(id) == "t"
    assert sent(session) == b""


def test_the_server_may_end_a_request_of_ours() -> None:
    """notifications/cancelled names a request of the other direction (subscriptions, 2026)."""
    session = Session(role="client")
    id = call(session)
    session.receive_data(notification("notifications/cancelled", f'{{"requestId":{id}}}'))
    (message,) = session.events()
    assert message.token == "t"
    assert session.counters["requests_outstanding"] == 1


def test_deadlines() -> None:
    session = Session()
    assert session.next_deadline() is None
    late, early, never = call(session, "late", deadline=9.5), call(session, "early", deadline=2), 0
    never = call(session, "never")
    assert session.next_deadline() == 2
    assert session.expire(1.999) == []
    assert session.expire(2) == [(early, "early")]
    assert session.next_deadline() == 9.5
    session.receive_data(result(late))
    assert [m.token for m in session.events()] == ["late"]
    assert session.next_deadline() is None
    assert session.expire(float("inf")) == []
    assert session.forget(never) == "never"
    session.receive_data(result(early))
    assert take(session) == []


@every("text", [b"7", b'"7"', b"-0", b'"a\\u0062"', b"1" * 5000, '"é"'.encode()])
def test_an_id_that_the_caller_chose(text: bytes) -> None:
    session = Session()
    number = session.send_request("m", token="chosen", id=text)
    assert sent(session) == b'{"jsonrpc":"2.0","id":%b,"method":"m"}\n' % text
    other = call(session, "other")
    session.receive_data(result(number) + result(text.decode()) + result(other))
    assert [message.token for message in session] == ["chosen", "other"]
    assert session.counters["late_responses"] == 1  # to the number, which was never sent
    session.send_request("again", token="t", id=text)


def test_a_chosen_string_is_found_in_any_spelling() -> None:
    session = Session()
    for text, spelled in (
        (b'"ab"', r'"a\u0062"'), (rb'"a\u0062"', '"ab"'), (rb'"\/\ud800"', r'"/\uD800"'),
        ('"é"'.encode(), r'"\u00e9"'),
    ):  # fmt: skip
        session.send_request("m", token=text, id=text)
        session.receive_data(result(spelled))
        assert [message.token for message in session] == [text]
    session.send_request("m", token="t", id=b"5")
    session.receive_data(result("05") + result('"5"'))
    assert outcomes(session) == ["invalid parse", "result"]
    assert session.pending.live == 0


@every(
    "text",
    [b"", b"1.5", b"null", b"[1]", b" 1", b"1 ", b'"a', b'1,"method":"x"', b"\n1", b'"\xff"'],
)
def test_ids_that_cannot_be_chosen(text: bytes) -> None:
    session = Session()
    with raises(ValueError):
        session.send_request("m", token="t", id=text)
    assert session.pending.live == 0
    assert sent(session) == b""


def test_an_id_is_outstanding_once() -> None:
    session = Session()
    minted = call(session)
    session.send_request("m", token="t", id=b'"ab"')
    for taken in (b"%d" % minted, b'"ab"', rb'"a\u0062"'):
        with raises(ValueError):
            session.reserve("t", id=taken)
    assert session.pending.live == 2
    # ids of our own making keep clear of it
    session.forget(minted)
    upcoming = Session()
    first, second = call(upcoming), call(upcoming)
    upcoming.receive_data(result(second))
    take(upcoming)
    upcoming.send_request("m", token="chosen", id=b"%d" % (second + (1 << 20)))
    later = [call(upcoming) for _ in range(3)]
    assert second + (1 << 20) not in later
    assert len({first, *later}) == 4


def test_a_chosen_id_in_all_that_ends_a_request() -> None:
    session = Session()
    ids = [session.reserve(i, float(i), id=b'"%d"' % i) for i in range(5)]
    assert session.pending.text(ids[2]) == b'"2"'
    assert session.cancel(ids[1], "why") == 1
    assert json.loads(sent(session))["params"] == {"requestId": "1", "reason": "why"}
    assert session.forget(ids[2]) == 2
    assert session.next_deadline() == 0
    assert session.expire(3.0) == [(ids[0], 0), (ids[3], 3)]
    session.receive_data(
        notification("notifications/progress", '{"progressToken":"4"}')
        + notification("notifications/cancelled", '{"requestId":"4"}')
        + notification("notifications/progress", '{"progressToken":"3"}')
    )
    assert [message.token for message in session] == [4, 4, None]
    assert session.fail_all() == [(ids[4], 4)]
    for i in range(5):  # all may be chosen again
        session.reserve("t", id=b'"%d"' % i)
    assert session.pending.text(ids[0]) is None


def test_a_lost_link_fails_every_call() -> None:
    session = Session()
    ids = [call(session, f"caller {i}", deadline=i) for i in range(10)]
    session.forget(ids[3])
    assert sorted(session.fail_all()) == [(id, f"caller {i}") for i, id in enumerate(ids) if i != 3]
    assert session.fail_all() == []
    assert session.next_deadline() is None


# -- limits and bad arguments ------------------------------------------------------------------


def test_too_many_outstanding() -> None:
    session = Session(limits=Limits(max_outstanding=2))
    ids = [call(session), call(session)]
    sent(session)
    with pytest.raises(OverflowError, match="2 requests"):
        call(session)
    with pytest.raises(OverflowError):
        session.reserve("t")
    assert sent(session) == b""
    session.forget(ids[0])
    call(session)


@pytest.mark.parametrize("params", ["{}", 5, b"", b"{\n}", memoryview(b"{{}}")[::2]])
def test_params_that_cannot_be_sent_leave_nothing_behind(params: object) -> None:
    session = Session()
    with pytest.raises((TypeError, ValueError, BufferError)):
        session.send_request("m", params, token="t")  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError, BufferError)):
        session.send_notification("m", params)  # type: ignore[arg-type]
    id = session.reserve("t")
    with pytest.raises((TypeError, ValueError, BufferError)):
        session.send_reserved(id, "m", params)  # type: ignore[arg-type]
    assert sent(session) == b""
    assert session.counters["requests_outstanding"] == 1
    assert session.counters["messages_out"] == 0


def test_arguments_that_cannot_be() -> None:
    session = Session()
    with pytest.raises(UnicodeEncodeError):
        session.send_request("\ud800", token="t")
    for token, deadline in ((None, 1.0), ("t", float("nan"))):
        with pytest.raises((TypeError, ValueError)):
            session.send_request("m", token=token, deadline=deadline)
    with pytest.raises(TypeError):
        session.send_request(None, token="t")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        session.send_request("m")  # type: ignore[call-arg]
    assert session.counters["requests_outstanding"] == 0
    assert sent(session) == b""
    with raises(ValueError):
        Session(role="peer")
    with pytest.raises(TypeError):
        Session(Limits())  # type: ignore[misc]
