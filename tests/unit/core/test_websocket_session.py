"""JSON-RPC over WebSocket framing: bad texts, batches, long answers, and the end of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.core import batch, cancel, feed_buffer, feed_data, notification, outcomes, request, take
from lab.rows import every
from lab.websocket import BINARY, CLOSE, CONT, TEXT, Role, Sent, closing, frame, unframe

from wirespeed.core import Limits, MessageReader, Session, WebSocketFramer

doors = pytest.mark.parametrize("feed", [feed_data, feed_buffer])


def session(role: Role = "server", **limits: int) -> Session:
    limit = Limits(**limits)
    framer = WebSocketFramer(role, max_message=limit.max_message)
    return Session(limits=limit, role=role, framer=framer)


def frames(peer: Session, role: Role = "server") -> list[Sent]:
    return unframe(b"".join(map(bytes, peer.data_to_send())), role)


def answers(peer: Session, role: Role = "server") -> list[Any]:
    found = frames(peer, role)
    assert {sent.opcode for sent in found} <= {TEXT}
    return [json.loads(sent.payload) for sent in found]


def failure(peer: Session) -> tuple[int, str] | None:
    assert isinstance(peer.framer, WebSocketFramer)
    return peer.framer.failure


@doors
def test_one_message_a_text_message(feed: Any) -> None:
    peer = session()
    feed(peer, frame(TEXT, request(1)) + frame(TEXT, b" \r\n\t" + request(2) + b"\n\n "))
    first, second = take(peer)
    assert (bytes(first.raw), bytes(second.raw)) == (request(1).strip(), request(2).strip())
    peer.send_result(first, b"{}")
    peer.send_result(second, b"[]")
    assert answers(peer) == [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "result": []},
    ]
    if feed is feed_buffer:
        assert peer.counters["payload_bytes_copied"] == 0


@doors
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("text", [b"", b"  \n", b"nonsense", b"{", b"[1", b"{}{}", b"[", b'"\x00"'])
def test_what_is_no_json_is_answered_and_the_socket_stays(
    feed: Any, text: bytes, batches: bool
) -> None:
    peer = session()
    peer.batches = batches
    for stream in (frame(TEXT, text), frame(TEXT, text[:1], fin=False) + frame(CONT, text[1:])):
        feed(peer, stream)
        assert outcomes(peer) == ["invalid parse"]
        (answer,) = answers(peer)
        assert answer["error"]["code"] == -32700
    feed(peer, frame(TEXT, request(1)))
    assert outcomes(peer) == ["request"]
    assert not peer.over


@doors
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    "text", [b"\xff", b'{"a":"\xed\xa0\x80"}', b"nonsense \xff", b'[{"a":"\xc3']
)
def test_text_that_is_not_utf8_ends_it_with_1007(feed: Any, text: bytes, batches: bool) -> None:
    peer = session()
    peer.batches = batches
    feed(peer, frame(TEXT, notification("n")) + frame(TEXT, text) + frame(TEXT, request(1)))
    assert outcomes(peer) == ["notification"]
    assert failure(peer) == (1007, "not UTF-8")
    assert peer.over
    assert frames(peer) == [Sent(CLOSE, closing(1007, b"not UTF-8"))]
    assert peer.next_event() is None


def test_binary_ends_it_with_1003() -> None:
    peer = session()
    peer.receive_data(frame(BINARY, request(1)))
    assert outcomes(peer) == []
    assert (failure(peer) or (0,))[0] == 1003


def test_too_long_ends_it_with_1009() -> None:
    peer = session(max_message=100)
    peer.receive_data(frame(TEXT, request(1)) + frame(TEXT, length=101))
    assert outcomes(peer) == ["request"]
    assert (failure(peer) or (0,))[0] == 1009


def test_too_deep_is_answered() -> None:
    peer = session(max_depth=3)
    peer.receive_data(frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"m","params":[[[]]]}'))
    assert outcomes(peer) == ["invalid request"]
    (answer,) = answers(peer)
    assert answer["error"]["code"] == -32600
    assert not peer.over


@every("n", [1, 60, 100, 2000, 4095, 5000, 65_400, 70_000, 500_000])
def test_calls_of_any_length(n: int) -> None:
    ours, peer = session("client"), session("server")
    text = b'{"a":"' + b"x" * n + b'"}'
    for _ in range(3):
        ours.send_request("m", text, token="t")
        ours.send_notification("n", text)
        peer.receive_data(b"".join(map(bytes, ours.data_to_send())))
        called, noticed = take(peer)
        assert called.params == noticed.params == text
        peer.send_result(called, called.params)
        peer.send_notification("n", text)
        ours.receive_data(b"".join(map(bytes, peer.data_to_send())))
        answered, noticed = take(ours)
        assert answered.result == noticed.params == text


@every("n", [1, 50, 3000, 5000, 100_000])
@every("role", ["server", "client"])
def test_batches_are_answered_by_one_message(role: Role, n: int) -> None:
    """Their answers were written elsewhere, some of them are somebody's own bytes."""
    peer = session(role)
    peer.batches = True
    body = bytearray(b'"' + b"x" * n + b'"')
    text = b"\n " + batch(request(1), notification("n"), request(2), request(3), cancel(3))
    peer.receive_data(frame(TEXT, request(0), to=role) + frame(TEXT, text, to=role))
    events = [message for message in take(peer) if message.kind == "request"]
    for message in events[:3]:
        peer.send_result(message, body)
    found = answers(peer, role)
    assert [answer["id"] for answer in found[1]] == [1, 2]
    assert found[0]["id"] == 0
    assert {answer["result"] for answer in [found[0], *found[1]]} == {body[1:-1].decode()}
    assert body == b'"' + b"x" * n + b'"'
    body.append(0)  # nobody holds it


def test_no_answer_follows_our_goodbye() -> None:
    peer = session()
    peer.batches = True
    peer.receive_data(frame(TEXT, request(1)) + frame(TEXT, batch(request(2), request(3))))
    one, two, three = take(peer)
    peer.send_result(one, b"{}")
    peer.framer.goodbye(1001)  # type: ignore[attr-defined]
    for late in (two, three):
        assert peer.send_result(late, b'"' + b"x" * 9000 + b'"')
    peer.send_notification("late")
    peer.receive_data(frame(TEXT, request(4)))
    assert take(peer) == []
    assert [sent.opcode for sent in frames(peer)] == [TEXT, CLOSE]
    assert peer.outbox.size == 0
    peer.receive_data(frame(CLOSE, closing(1001)))
    assert take(peer) == []
    assert peer.over


def test_a_reader_alone_has_nowhere_to_answer() -> None:
    """A tap: pings and faults are noticed all the same."""
    framer = WebSocketFramer("server", max_message=1000)
    reader = MessageReader(framer=framer)
    reader.receive_data(frame(9, b"x") + frame(TEXT, request(1)) + frame(CLOSE, closing(1000)))
    assert [message.kind for message in reader] == ["request"]
    assert (framer.n_pings_in, framer.close_code, framer.over) == (1, 1000, True)
    framer = WebSocketFramer("server", max_message=1000)
    reader = MessageReader(framer=framer)
    reader.receive_data(frame(3))
    assert list(reader) == []
    assert framer.failure == (1002, "reserved opcode 3")
