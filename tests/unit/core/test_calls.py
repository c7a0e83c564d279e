"""Requests of ours: ids, responses, late and foreign ones, cancellation, deadlines."""

from __future__ import annotations

import json

import pytest
from core_lab import notification, outcome, result, sent, take

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


@pytest.mark.parametrize(
    "spell",
    ['"{0}"', "{0}.0", "{0}e0", "-{0}", "{0}0", "9007199254740993", "null", "true", "[{0}]",
     "12345678901234567890123", '"\\u0031"', "0"],
)  # fmt: skip
def test_only_the_exact_id_is_an_answer(spell: str) -> None:
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


@pytest.mark.parametrize(
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
    with pytest.raises(ValueError, match="role"):
        Session(role="peer")
    with pytest.raises(TypeError):
        Session(Limits())  # type: ignore[misc]
