"""What the core itself writes and shows as JSON: methods, reasons, errors, strings with escapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec
import pytest
from lab.rows import every

from wirespeed._core.responder import encode_data_by
from wirespeed.core import Session, parse
from wirespeed.peer.error_data import encode_data

TEXTS = [
    "", "a", "tools/call", "é", "\u2028", "😀", "\x7f", "\"", "\\", "/", "\0", "a\nb\tc",
    "x" * 5000, "\n" * 3000, *map(chr, range(32)),
]  # fmt: skip


def sent(session: Session) -> bytes:
    return b"".join(bytes(chunk) for chunk in session.data_to_send())


@pytest.fixture
def core_alone() -> Iterator[None]:
    """Errors are encoded as where servers and clients of wirespeed are not loaded."""
    encode_data_by(None)
    yield
    encode_data_by(encode_data)


def refusing() -> tuple[Session, Any]:
    """A session with a request to refuse."""
    session = Session()
    session.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"m"}\n')
    (message,) = session
    return session, message


@every("text", TEXTS)
def test_a_method_is_written_as_msgspec_writes_it(text: str) -> None:
    session = Session(role="client")
    session.send_notification(text)
    assert sent(session) == b'{"jsonrpc":"2.0","method":%b}\n' % msgspec.json.encode(text)


def test_a_method_with_a_lone_surrogate_is_refused() -> None:
    session = Session(role="client")
    with pytest.raises(UnicodeEncodeError):
        session.send_notification("\ud800")
    with pytest.raises(UnicodeEncodeError):
        session.send_request("\ud800", token=1)
    assert sent(session) == b""
    assert session.pending.live == 0


@every("text", [*TEXTS, "\ud800", "\udc00\ud800", "a\ud83db"])
@every("ascii", [True, False])
def test_a_string_is_shown_as_it_was_meant(text: str, ascii: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    message = parse(b'{"jsonrpc":"2.0","id":%b,"method":%b}' % (raw, raw))
    if message.kind == "invalid":  # a surrogate that is no escape is not UTF-8
        assert "\\ud" in ascii_of(text)
        assert not ascii
    else:
        assert (message.id, message.method) == (text, text)


def ascii_of(text: str) -> str:
    return text.encode("unicode_escape").decode()


VALUES = [
    None, True, False, 0, -1, 2**70, 1.5, -0.0, "é\n", [], {}, [[]], {"a": {}}, [1, "2", None],
    {"a": [1, {"b": False}], "c": "d", "": 0}, (1, (2,)), float("nan"), float("inf"),
]  # fmt: skip


@every("value", VALUES)
def test_the_data_of_an_error_is_written_as_msgspec_writes_it(value: Any, core_alone: None) -> None:
    session, message = refusing()
    assert session.send_error(message, -5, "no", value)
    data = b"" if value is None else b',"data":' + msgspec.json.encode(value)
    assert sent(session) == (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no"%b}}\n' % data
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_data_that_is_no_json(core_alone: None) -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (b"ab", {1: 2}, date(2026, 1, 2), {"a": {1, 2}}, circle, deep(1025)):
        session, message = refusing()
        with pytest.raises((TypeError, ValueError)):
            session.send_error(message, -5, "no", value)
        assert session.send_error(message, -5, "no", deep(1000))


class Point(msgspec.Struct):
    x: int
    text: str = "\ud800"


def test_an_encoder_takes_more() -> None:
    session, message = refusing()
    assert session.send_error(message, -5, "no", date(2026, 1, 2))
    assert b'"data":"2026-01-02"' in sent(session)


def test_what_servers_and_clients_encode() -> None:
    assert encode_data(Point(1, "a")) == b'{"x":1,"text":"a"}'
    assert encode_data(Point(1)) == b'{"x":1,"text":"\\\\ud800"}'
    assert encode_data(1e16) == b"1e16"
