"""The outgoing gather list: order, accounting, what is copied, and that chunks never change."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from lab.core import request, sent, take
from lab.rows import every
from lab.wording import raises

from wirespeed._core.outbox import Block, Chunk, Outbox
from wirespeed.core import Session


def answered(*bodies: object) -> Session:
    """A session that queued results with these bodies."""
    session = Session()
    session.receive_data(b"".join(request(i) for i in range(len(bodies))))
    for message, body in zip(take(session), bodies, strict=True):
        session.send_result(message, body)  # type: ignore[arg-type]
    return session


def text(n: int) -> bytes:
    return b'"' + b"x" * (n - 2) + b'"'


HEAD, TAIL = b'{"jsonrpc":"2.0","id":0,"result":', b"}\n"


def test_accounting() -> None:
    session = answered(b"{}", text(100_000))
    size = len(session.outbox)
    assert size == session.outbox.size == session.counters["bytes_queued"]
    chunks = session.data_to_send()
    assert sum(map(len, chunks)) == size == session.counters["bytes_out"]
    assert len(session.outbox) == 0
    assert session.data_to_send() == []
    assert session.counters["bytes_out"] == size


def test_small_pieces_are_packed() -> None:
    session = answered(*[b"{}"] * 1000)
    assert len(session.data_to_send()) == 1


@every("n", [4095, 4096, 4097])
@every("kind", [bytes, bytearray])
def test_big_payloads_are_referenced_short_ones_copied(n: int, kind: type) -> None:
    body = kind(text(n))
    references = sys.getrefcount(body)
    session = answered(body)
    copied = session.counters["output_bytes_copied"]
    assert copied == (n if n < 4096 else 0)
    assert (sys.getrefcount(body) > references) == (n >= 4096)
    chunks = session.data_to_send()
    assert [len(chunk) for chunk in chunks] == (
        [len(HEAD) + n + 2] if n < 4096 else [len(HEAD), n, 2]
    )
    assert b"".join(map(bytes, chunks)) == HEAD + body + TAIL
    del chunks
    assert sys.getrefcount(body) == references


def test_a_big_payload_is_sent_from_where_it_lies() -> None:
    body = bytearray(text(5000))
    session = answered(body)
    with pytest.raises(BufferError):
        body.append(0)
    _, chunk, _ = session.data_to_send()
    body[1:6] = b"moved"  # against the rules, to see where it lies
    assert bytes(chunk)[:7] == b'"movedx'
    with pytest.raises(BufferError):
        body.append(0)
    del chunk, _
    body.append(0)


def test_the_same_payload_many_times() -> None:
    body = text(5000)
    references = sys.getrefcount(body)
    session = answered(*[body] * 40)
    assert sys.getrefcount(body) == references + 40
    assert sent(session).count(body) == 40
    assert sys.getrefcount(body) == references


def test_chunks_never_change() -> None:
    session = Session()
    taken: list[tuple[list[Chunk], bytes]] = []
    for i in range(300):
        session.send_notification("m" * (i % 50), text(3 + i * 37 % 9000))
        if i % 3 == 0:
            chunks = session.data_to_send()
            taken.append((chunks, b"".join(map(bytes, chunks))))  # type: ignore[arg-type]
    for chunks, copy in taken:
        assert b"".join(map(bytes, chunks)) == copy


def test_chunks_are_read_only_buffers_that_own_their_memory() -> None:
    session = answered(b"{}", text(5000))
    chunks = session.data_to_send()
    expected = [bytes(chunk) for chunk in chunks]
    views = [memoryview(chunk) for chunk in chunks]
    del session, chunks
    gc.collect()
    assert list(map(bytes, views)) == expected
    for view in views:
        assert view.readonly
        assert view.format == "B"
        with pytest.raises(TypeError):
            view[0] = 0
    assert b"".join(views) == b"".join(expected)


class Body(bytearray):
    """A body that can be watched."""


def test_a_session_that_goes_lets_its_payloads_go() -> None:
    body = Body(text(5000))
    alive = weakref.ref(body)
    session = answered(body)
    del body
    assert alive() is not None
    del session
    gc.collect()
    assert alive() is None


def test_order_is_kept_between_small_and_big() -> None:
    session = Session()
    expected = b""
    for i in range(200):
        body = text(3 + (i * 7919) % 9000)
        session.send_notification(f"n{i}", body)
        expected += b'{"jsonrpc":"2.0","method":"n%d","params":%b}\n' % (i, body)
    assert sent(session) == expected
    assert session.counters["output_bytes_copied"] == sum(
        n for n in (3 + (i * 7919) % 9000 for i in range(200)) if n < 4096
    )


def test_one_message_longer_than_a_block() -> None:
    session = Session()
    session.send_notification("m" * 200_000)
    assert sent(session) == b'{"jsonrpc":"2.0","method":"%b"}\n' % (b"m" * 200_000)


def test_an_outbox_of_its_own() -> None:
    outbox = Outbox()
    assert (len(outbox), outbox.size, outbox.bytes_copied, outbox.take()) == (0, 0, 0, [])


def test_not_made_by_hand() -> None:
    for made in (Block, Chunk):
        with raises(TypeError):
            made()
    empty = Chunk.__new__(Chunk)
    assert (len(empty), bytes(empty)) == (0, b"")
