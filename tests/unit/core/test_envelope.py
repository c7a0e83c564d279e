"""Reading one message: kinds, ids, points of interest, faults; nothing raises for bad input."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from lab.core import notification, request, result, take
from lab.rows import every
from lab.wording import raises

from wirespeed.core import POINTS, Message, Session, parse

FULL = (
    b'{"jsonrpc":"2.0","id":"i","method":"tools\\/call","params":{"name":"n\\u00e9","uri":"u",'
    b'"arguments":{"a":[1]},"requestId":7,"progressToken":"","_meta":{"progressToken":0,'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c"},'
    b'"io.modelcontextprotocol/logLevel":"debug",'
    b'"io.modelcontextprotocol/subscriptionId":"s"}}}'
)


def test_points_of_interest() -> None:
    message = parse(FULL)
    expected = {
        "jsonrpc": b'"2.0"',
        "id": b'"i"',
        "method": b'"tools\\/call"',
        "params.name": b'"n\\u00e9"',
        "params.uri": b'"u"',
        "params.arguments": b'{"a":[1]}',
        "params.requestId": b"7",
        "params.progressToken": b'""',
        "params._meta.progressToken": b"0",
        "params._meta.io.modelcontextprotocol/protocolVersion": b'"2026-07-28"',
        "params._meta.io.modelcontextprotocol/clientCapabilities": b"{}",
        "params._meta.io.modelcontextprotocol/clientInfo": b'{"name":"c"}',
        "params._meta.io.modelcontextprotocol/logLevel": b'"debug"',
        "params._meta.io.modelcontextprotocol/subscriptionId": b'"s"',
    }
    for point, text in expected.items():
        assert message.lease(point) == text, point
    assert set(POINTS) - set(expected) == {"params", "result", "error", "params._meta"}
    assert message.lease("params") == message.params
    assert message.lease("result") is message.lease("error") is None
    assert message.method == "tools/call"
    assert message.text("params.name") == "n\u00e9"
    assert message.text("params.progressToken") == ""
    assert message.text("params.requestId") is None
    assert message.text("params.arguments") is None
    assert message.text("result") is None
    for ask in (message.lease, message.text):
        with pytest.raises(KeyError):
            ask("params.nothing")


def test_points_are_members_of_their_object_only() -> None:
    for params in ('{"x":{"name":1}}', '{"_meta":[{"progressToken":1}]}', '{"_meta":"x"}', "{}"):
        message = parse(request(1, "m", params))
        assert message.kind == "request"
        for point in POINTS[6:]:
            assert message.lease(point) is None or point == "params._meta", params


@every(
    ("text", "value"),
    [
        (b"1", 1),
        (b"0", 0),
        (b"-5", -5),
        (b"12345678901234567890123", 12345678901234567890123),
        (b'"1"', "1"),
        (b'""', ""),
        ('"\u00e9"'.encode(), "\u00e9"),
        (b'"\\u00e9"', "\u00e9"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\ud800"', "\ud800"),
        (b'"\\"\\\\\\/\\n"', '"\\/\n'),
        (b'"' + b"x" * 5000 + b'"', "x" * 5000),
    ],
)
def test_ids(text: bytes, value: object) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % text)
    assert message.kind == "request"
    assert message.raw_id == text
    assert message.id == value
    assert type(message.id) is type(value)
    assert text.decode()[:40] in repr(message)


def test_an_id_of_more_digits_than_python_reads() -> None:
    digits = b"9" * (sys.get_int_max_str_digits() + 1)
    message = parse(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % digits)
    assert message.kind == "request"
    assert message.raw_id == digits
    with pytest.raises(ValueError, match="digits"):
        message.id  # noqa: B018
    assert "id=999" in repr(message)


def test_a_method_with_a_lone_surrogate() -> None:
    message = parse(request(1, "\\ud800"))
    assert message.kind == "request"
    assert message.method == "\ud800"


def test_bodies() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,"result":[1, 2]}')
    assert (message.kind, message.result, message.error) == ("result", b"[1, 2]", None)
    message = parse(b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}')
    assert (message.kind, message.result, message.error) == ("error", None, b'{"code":1}')
    for kind in (b"null", b"0", b'"s"', b"true"):
        assert parse(b'{"jsonrpc":"2.0","id":1,"result":%b}' % kind).kind == "result"


@every("text", [b"", b" ", b"\n", b"x", b"[]", b"[1]", b"nul", b'{"a"', b"\xff"])
def test_parse_raises_for_no_input(text: bytes) -> None:
    message = parse(text)
    assert message.kind in ("invalid", "batch")
    assert message.id is message.raw_id is message.method is message.params is None
    assert message.raw == text
    assert (message.fault is None) == (message.reason is None) == (message.kind == "batch")
    assert repr(message)


def test_reasons_say_where() -> None:
    assert parse(b'{"a":1,}').reason == "not JSON at byte 7"
    assert parse(b'{"a":"\xff"}').reason == "not UTF-8 at byte 6"
    assert parse(b"").reason == "an empty message"


@every("depth", [1, 2, 3, 100, 128, 1024])
def test_the_depth_limit_is_exact(depth: int) -> None:
    for n, kind in ((depth, "request"), (depth + 1, "invalid")):
        inner = "[" * (n - 2) + "]" * (n - 2)
        text = request(1, "m", f'{{"a":{inner}}}') if n > 2 else request(1, "m", "{}")
        if n == 1:
            text = request(1)
        message = parse(text, max_depth=depth)
        assert message.kind == kind, n
        if kind == "invalid":
            assert message.fault == "request"
            assert message.reason == f"nested deeper than {depth} levels"
            # the id stands before the fault
            assert message.raw_id == b"1"


def test_what_comes_first_decides() -> None:
    """A text that is too deep and no JSON gets what its first fault gets."""
    assert parse(b'{"a":[[x', max_depth=2).fault == "request"
    assert parse(b'{"a":x[[', max_depth=2).fault == "parse"


@pytest.mark.parametrize("depth", [0, -1, 1025])
def test_depth_limits_that_cannot_be(depth: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        parse(b"{}", max_depth=depth)


def test_parse_wants_bytes() -> None:
    for data in ("{}", 5, None):
        with pytest.raises(TypeError):
            parse(data)  # type: ignore[arg-type]
    assert parse(bytearray(b"[]")).kind == parse(memoryview(b"[]")).kind == "batch"


def test_messages_are_not_made_by_hand() -> None:
    with raises(TypeError):
        Message()
    empty = Message.__new__(Message)
    assert empty.raw is empty.id is empty.method is empty.params is None
    assert repr(empty)


# -- messages are used again -------------------------------------------------------------------


def test_nothing_of_a_message_shows_in_the_next() -> None:
    """Messages that nobody kept are used again."""
    session = Session()
    session.batches = True
    token = object()
    id = session.send_request("a", token=token)
    lines = [
        b"nonsense\n",
        request(1),
        notification("notifications/cancelled", '{"requestId":1}'),
        result(id),
        b"[]\n",
        b"[1,]\n",
        request(2, "m", '{"name":"n"}'),
        b"{}\n",
        b"[" * 200 + b"\n",
        notification("n"),
    ]
    seen = []
    for line in lines:
        session.receive_data(line)
        message = session.next_event()
        assert message is not None
        seen.append(
            (
                message.kind,
                message.fault,
                bool(message.reason),
                message.ref != 0,
                message.token is token,
                message.raw_id,
                message.lease("params.name") is not None,
            )
        )
        del message
        assert session.next_event() is None
    assert seen == [
        ("invalid", "parse", True, False, False, None, False),
        ("request", None, False, True, False, b"1", False),
        ("notification", None, False, True, False, None, False),
        ("result", None, False, False, True, str(id).encode(), False),
        ("invalid", "request", True, False, False, None, False),
        ("invalid", "parse", True, False, False, None, False),
        ("request", None, False, True, False, b"2", True),
        ("invalid", "request", True, False, False, None, False),
        ("invalid", "request", True, False, False, None, False),
        ("notification", None, False, False, False, None, False),
    ]


def test_a_message_that_is_kept_stays_as_it_is() -> None:
    session = Session()
    session.receive_data(b"".join(request(i, f"m{i}") for i in range(50)))
    kept = take(session)
    assert [(m.id, m.method) for m in kept] == [(i, f"m{i}") for i in range(50)]
    assert len({id(m) for m in kept}) == 50
    session.receive_data(request(50) * 3)
    take(session)
    assert [(m.id, m.method) for m in kept] == [(i, f"m{i}") for i in range(50)]


def test_an_iteration_that_is_left_keeps_its_message() -> None:
    session = Session()
    session.receive_data(request(1) + request(2) + request(3))
    message = next(session.events())
    assert [m.id for m in session.events()] == [2, 3]
    assert message.id == 1


class Token:
    pass


def test_a_session_holds_no_token_of_a_message_that_is_gone() -> None:
    session = Session()
    token = Token()
    alive = weakref.ref(token)
    id = session.send_request("a", token=token)
    session.receive_data(result(id))
    assert [m.token is token for m in session.events()] == [True]
    del token
    assert session.next_event() is None
    gc.collect()
    assert alive() is None


def test_a_token_that_holds_its_message_is_collected() -> None:
    """As a future does whose result is the response."""
    session = Session()
    refs = []
    for _ in range(10):
        token = Token()
        refs.append(weakref.ref(token))
        id = session.send_request("a", token=token)
        session.receive_data(result(id))
        token.response = session.next_event()  # type: ignore[attr-defined]
        del token
    assert session.next_event() is None
    gc.collect()
    assert [ref() for ref in refs] == [None] * 10


@pytest.mark.parametrize("kind", ["pending", "in flight"])
def test_a_session_that_its_own_tokens_hold_is_collected(kind: str) -> None:
    session = Session()
    token = Token()
    token.session = session  # type: ignore[attr-defined]
    alive = weakref.ref(token)
    if kind == "pending":
        session.send_request("a", token=token)
    else:
        session.receive_data(request(1))
        (message,) = session.events()
        assert session.set_token(message, token)
        del message
    del session, token
    gc.collect()
    assert alive() is None
