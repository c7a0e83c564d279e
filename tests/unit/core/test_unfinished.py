"""What is left when a message cannot be read to its end, or written to its end."""

from __future__ import annotations

from typing import Any

import pytest
from lab.core import batch, request, result, sent, take
from lab.rows import every

from wirespeed.core import FrameStream, Limits, Session, WebSocketFramer

DEEP = '{"a":' + "[" * 20 + "]" * 20 + "}"
LONG = '{"a":"' + "x" * 400 + '"}'


def asking(**limits: int) -> tuple[Session, int]:
    session = Session(role="client", limits=Limits(max_depth=8, max_message=300, **limits))
    id = session.send_request("x", token="caller")
    sent(session)
    return session, id


# -- read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [DEEP, LONG])
@pytest.mark.parametrize("member", ["result", "error"])
def test_an_answer_that_is_not_read_fails_its_call(body: str, member: str) -> None:
    session, id = asking()
    session.receive_data(
        b'{"jsonrpc":"2.0","id":%d,"%b":%b}\n' % (id, member.encode(), body.encode())
    )
    (message,) = take(session)
    assert (message.kind, message.fault, message.token) == ("invalid", "response", "caller")
    assert message.reason in ("nested deeper than 8 levels", "longer than the limit of 300 bytes")
    assert message.raw_id == b"%d" % id
    assert (message.raw is None) == (body is LONG)
    assert session.counters["requests_outstanding"] == 0


@every("body", [DEEP, LONG])
@every("order", ["id behind it", "a request", "id twice", "another id"])
def test_an_unread_message_that_is_no_answer_of_ours(body: str, order: str) -> None:
    session, id = asking()
    text = {
        "id behind it": f'{{"result":{body},"id":{id}}}',
        "a request": f'{{"id":{id},"params":{body},"method":"x"}}',
        "id twice": f'{{"id":{id},"id":{id},"result":{body}}}',
        "another id": f'{{"id":{id + 1},"result":{body}}}',
    }[order]
    session.receive_data(text.encode() + b"\n" + result(id))
    unread, answer = take(session)
    assert (unread.kind, unread.token, unread.method) == ("invalid", None, None)
    assert (answer.kind, answer.token) == ("result", "caller")


@pytest.mark.parametrize("body", [DEEP, LONG])
def test_a_request_that_is_not_read_is_refused_by_its_id(body: str) -> None:
    session = Session(limits=Limits(max_depth=8, max_message=300, max_id=10))
    session.receive_data(request('"é"', "x", body) + request('"' + "i" * 50 + '"', "x", LONG))
    first, second = take(session)
    assert first.raw_id == '"é"'.encode()
    assert second.raw_id is None
    answers = sent(session).splitlines()
    assert ['"id":"é"' in a.decode() for a in answers] == [True, False]
    assert all(b"-32600" in answer for answer in answers)


def test_chunks_do_not_change_what_an_unread_message_tells() -> None:
    for size in (1, 7, 299, 300, 301, 1000):
        session, id = asking()
        text = b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (id, LONG.encode())
        found = []
        for i in range(0, len(text), size):
            session.receive_data(text[i : i + size])
            found += take(session)
        assert [m.token for m in found] == ["caller"]


# -- written -----------------------------------------------------------------------------------


class Failing:
    """A deflate that fails on demand."""

    def __init__(self) -> None:
        self.fails = False

    def encode(self, data: bytes) -> bytes:
        if self.fails:
            raise MemoryError("no memory for deflate")
        return data

    def decode(self, data: bytes, max_size: int) -> bytes:
        return data


def compressed() -> tuple[Session, Failing]:
    deflate = Failing()
    framer = WebSocketFramer("server", max_message=10_000, deflate=deflate)
    return Session(framer=framer), deflate


def text_frame(payload: bytes) -> bytes:
    n = len(payload)
    head = bytes([0x81, 0x80 | n]) if n < 126 else bytes([0x81, 0xFE]) + n.to_bytes(2, "big")
    return head + bytes(4) + payload


@pytest.mark.parametrize("answer", ["result", "error"])
def test_an_answer_that_cannot_be_written(answer: str) -> None:
    session, deflate = compressed()
    session.receive_data(text_frame(request(1).strip()) + text_frame(request(2).strip()))
    first, second = take(session)
    deflate.fails = True
    with pytest.raises(MemoryError):
        if answer == "result":
            session.send_result(first, b"{}")
        else:
            session.send_error(first, -1, "no")
    assert session.counters["bytes_queued"] == 0
    assert session.counters["requests_in_flight"] == 1
    deflate.fails = False
    assert session.send_result(second, b"{}")
    assert sent(session)[2:] == b'{"jsonrpc":"2.0","id":2,"result":{}}'


def test_a_batch_a_request_and_a_notification_that_cannot_be_written() -> None:
    session, deflate = compressed()
    session.batches = True
    session.receive_data(text_frame(batch(request(1)).strip()))
    (message,) = take(session)
    deflate.fails = True
    calls: list[Any] = [
        lambda: session.send_request("x", token="t"),
        lambda: session.send_notification("x"),
        lambda: session.send_result(message, b"{}"),
    ]
    for call in calls:
        with pytest.raises(MemoryError):
            call()
        assert session.counters["bytes_queued"] == 0
    assert session.counters["requests_outstanding"] == 0
    assert session.counters["requests_in_flight"] == 0
    deflate.fails = False
    session.send_notification("x")
    assert sent(session)[2:] == b'{"jsonrpc":"2.0","method":"x"}'


def test_a_frame_that_cannot_be_written() -> None:
    deflate = Failing()
    framer = WebSocketFramer("server", max_message=10_000, deflate=deflate)
    stream = FrameStream(framer)
    deflate.fails = True
    with pytest.raises(MemoryError):
        stream.send(b"first")
    deflate.fails = False
    stream.send(b"second")
    assert b"".join(map(bytes, stream.data_to_send()))[2:] == b"second"
