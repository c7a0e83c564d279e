"""What is written on HTTP connections, read by h11 and by our own client role."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from lab.http_corpus import head
from lab.http_parsers import pieces
from lab.rows import every
from lab.wording import raises

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.framing.http.writer import field_lines
from wirespeed.core import FrameStream

STREAM = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]


class Server:
    """A connection on which requests have come."""

    def __init__(self, *requests: bytes) -> None:
        self.framer = HttpFramer(max_body=1 << 20)
        self.stream = FrameStream(self.framer)
        self.stream.receive_data(b"".join(requests))

    def next(self, *, last: bool = False) -> None:
        """Go on to the next request."""
        assert next(self.stream) is not None
        self.framer.answer(last=last)

    def sent(self) -> bytes:
        return b"".join(map(bytes, self.stream.data_to_send()))


class Answer:
    """A response as h11 reads it."""

    def __init__(self, data: bytes, *, method: str = "POST") -> None:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        self.body = b""
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                self.status = event.status_code
                self.fields = {k.decode(): v.decode() for k, v in event.headers}
            elif isinstance(event, h11.Data):
                self.body += bytes(event.data)
            elif event is h11.NEED_DATA:
                client.receive_data(b"")  # the connection ends
            elif isinstance(event, h11.EndOfMessage):
                break
        self.rest, _ = client.trailing_data
        self.goes_on = client.their_state is h11.DONE


def answered(request: bytes, **options: Any) -> Server:
    server = Server(request)
    server.next(**options)
    return server


@pytest.mark.smoke
@every("n", [1, 9, 10, 2047, 2048, 4096, 100_000])
def test_responses_one_after_another(n: int) -> None:
    """The head is written before its body, whatever of the body is copied or referenced."""
    server = Server(head(), head(), head())
    bodies = [bytes([65 + i]) * n for i in range(3)]
    for body in bodies:
        server.next()
        server.stream.send(body)
    data = server.sent()
    for body in bodies:
        answer = Answer(data)
        assert (answer.status, answer.body, answer.goes_on) == (200, body, True)
        assert answer.fields == {
            "content-type": "application/json",
            "content-length": str(n),
        }
        data = answer.rest
    assert data == b""


def test_our_client_reads_what_our_server_writes() -> None:
    server = Server(head(), head(), head())
    server.next()
    server.stream.send(b'{"a":1}')
    server.next()
    server.framer.respond(202)
    server.next()
    server.framer.open_stream(fields=STREAM)
    server.stream.send(b"{}")
    server.framer.close_stream()
    data = server.sent()
    for step in (1, 10, 1000):
        framer = HttpFramer("client", max_body=1000)
        stream = FrameStream(framer)
        seen = []
        for piece in pieces(data, step):
            stream.receive_data(piece)
            seen += [(framer.head.status, bytes(body or b"")) for body in stream]
        assert seen == [(200, b'{"a":1}'), (202, b""), (200, b"data: {}\n\n")]
        assert framer.failure is None


@every(
    ("request_", "last", "connection"),
    [
        (head(), False, None),
        (head(), True, "close"),
        (head("Connection: close"), False, "close"),
        (head("Connection: keep-alive"), False, None),
        (head(line=b"POST / HTTP/1.0"), False, "close"),
        (head("Connection: keep-alive", line=b"POST / HTTP/1.0"), False, "keep-alive"),
        (head("Connection: keep-alive", line=b"POST / HTTP/1.0"), True, "close"),
    ],
)
def test_what_a_response_says_of_the_connection(
    request_: bytes, last: bool, connection: str | None
) -> None:
    server = answered(request_, last=last)
    server.stream.send(b"{}")
    assert Answer(server.sent()).fields.get("connection") == connection
    server.framer.respond(200, b"x")
    assert Answer(server.sent()).fields.get("connection") == connection


@every("status", [200, 202, 204, 304, 400, 401, 404, 413, 431, 500, 505, 299, 599])
def test_statuses(status: int) -> None:
    server = answered(head())
    server.framer.respond(status, fields=[("Allow", "POST")])
    data = server.sent()
    answer = Answer(data)
    assert (answer.status, answer.body) == (status, b"")
    assert answer.fields["allow"] == "POST"
    assert "content-type" not in answer.fields
    # RFC 9110 section 8.6: none with 204
    assert answer.fields.get("content-length") == (None if status in (204, 304) else "0")
    server.stream.send(b"{}")
    assert Answer(server.sent()).fields["content-type"] == "application/json"  # as before


@pytest.mark.parametrize("status", [-1, 0, 99, 600, 1000])
def test_numbers_that_are_not_statuses(status: int) -> None:
    server = answered(head())
    with raises(ValueError):
        server.framer.respond(status)
    assert server.sent() == b""


@pytest.mark.parametrize("status", [100, 204, 304])
def test_statuses_that_cannot_have_a_body(status: int) -> None:
    server = answered(head())
    with raises(ValueError):
        server.framer.respond(status, b"x")
    assert server.sent() == b""


@pytest.mark.parametrize("n", [0, 5, 5000])
def test_head_gets_no_body(n: int) -> None:
    server = answered(head(line=b"HEAD / HTTP/1.1"))
    if n:
        server.stream.send(b"x" * n)
        answer = Answer(server.sent(), method="HEAD")
        assert (answer.body, answer.rest) == (b"", b"")
        assert answer.fields["content-length"] == str(n)
    server.framer.respond(404, b"x" * n)
    answer = Answer(server.sent(), method="HEAD")
    assert (answer.status, answer.body, answer.rest) == (404, b"", b"")
    assert answer.fields["content-length"] == str(n)


def test_a_stream_of_events() -> None:
    server = Server(head(), head())
    server.next()
    framer = server.framer
    framer.open_stream(fields=STREAM)
    assert server.sent() == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    framer.stream_text(b": \n\n")
    assert server.sent() == b"4\r\n: \n\n\r\n"
    framer.next_event(b"id: 7\nretry: 10\n")
    server.stream.send(b'{"a":1}')
    assert server.sent() == b'25\r\nid: 7\nretry: 10\ndata: {"a":1}\n\n\r\n'.replace(
        b"25", b"%x" % 31
    )
    server.stream.send(b"x" * 5000)
    data = server.sent()
    assert data == b"%x\r\ndata: %b\n\n\r\n" % (5008, b"x" * 5000)
    framer.stream_text(b"")  # a chunk of no bytes would be the end
    assert server.sent() == b""
    framer.close_stream()
    framer.close_stream()
    assert server.sent() == b"0\r\n\r\n"
    server.next()
    server.stream.send(b"{}")
    assert Answer(server.sent()).body == b"{}"


def test_a_stream_in_1_0_ends_with_the_connection() -> None:
    server = answered(head("Connection: keep-alive", line=b"POST / HTTP/1.0"))
    server.framer.open_stream(fields=STREAM)
    server.framer.next_event(b"id: 1\n")
    server.stream.send(b"{}")
    server.framer.stream_text(b":\n\n")
    server.framer.close_stream()
    answer = Answer(server.sent())
    assert answer.body == b"id: 1\ndata: {}\n\n:\n\n"
    assert answer.fields["connection"] == "close"
    assert "transfer-encoding" not in answer.fields
    assert not answer.goes_on
    server.framer.respond(200, b"x")
    assert Answer(server.sent()).fields["connection"] == "close"  # not "keep-alive" again


def test_responses_and_streams_do_not_mix() -> None:
    server = answered(head())
    framer = server.framer
    with raises(RuntimeError):
        framer.stream_text(b":\n\n")
    framer.open_stream(fields=STREAM)
    server.sent()
    for again in (
        lambda: framer.respond(200),
        lambda: framer.open_stream(fields=STREAM),
        framer.send_continue,
    ):
        with raises(RuntimeError):
            again()
    assert server.sent() == b""


def test_a_client_writes_requests() -> None:
    framer = HttpFramer(
        "client",
        max_body=1000,
        line=b"POST /mcp HTTP/1.1\r\n",
        fields=field_lines([("Host", "a"), ("Accept", "application/json")]),
    )
    stream = FrameStream(framer)
    stream.send(b'{"x":1}')
    stream.send(b"[]")
    server = HttpFramer(max_body=1000)
    reading = FrameStream(server)
    reading.receive_data(b"".join(map(bytes, stream.data_to_send())))
    seen = [(server.head.path, server.head.fields, bytes(body or b"")) for body in reading]
    assert [(path, body) for path, _, body in seen] == [("/mcp", b'{"x":1}'), ("/mcp", b"[]")]
    assert seen[0][1] == [("Host", "a"), ("Accept", "application/json"), ("Content-Length", "7")]


def test_a_frame_that_fails_leaves_nothing() -> None:
    server = answered(head())
    with raises(ValueError):
        server.stream.send(b"")
    with pytest.raises(TypeError):
        server.framer.respond(404, "text")  # type: ignore[arg-type]
    with raises(ValueError):
        server.framer.respond(404, b"x", fields=[("X", "\n")])
    server.stream.send(b"{}")
    assert Answer(server.sent()).status == 200
    assert server.sent() == b""
    big = [("X", "y" * 5000)]
    server.framer.respond(200, b"whole", fields=big)
    answer = Answer(server.sent())
    assert (answer.body, answer.fields["x"]) == (b"whole", "y" * 5000)


@every("name", ["", "a b", "a:", "a\r\n", "ä", "é", "\0", "日"])
def test_names_that_fields_cannot_have(name: str) -> None:
    with raises(ValueError):
        field_lines([(name, "x")])


@every("value", [" a", "a ", "\ta", "a\r\nX: y", "a\nb", "a\rb", "\0", "a\x7f", "日"])
def test_values_that_fields_cannot_have(value: str) -> None:
    with raises(ValueError):
        field_lines([("X", value)])


def test_values_that_fields_can_have() -> None:
    lines = field_lines([("X", ""), ("y-Z", "a b\tc"), ("L", "é")])
    assert lines == b"X: \r\ny-Z: a b\tc\r\nL: \xe9\r\n"


def test_a_framer_of_its_own_writes_nothing() -> None:
    framer = HttpFramer(max_body=1)
    for write in (
        lambda: framer.respond(200),
        lambda: framer.open_stream(fields=STREAM),
        framer.send_continue,
        framer.close_stream,
    ):
        with raises(RuntimeError):
            write()


def test_finish_ends_the_connection() -> None:
    server = answered(head())
    server.stream.send(b"{}")
    server.framer.finish()
    assert server.stream.over
    assert Answer(server.sent()).body == b"{}"
    server.stream.receive_data(head())
    assert list(server.stream) == []
