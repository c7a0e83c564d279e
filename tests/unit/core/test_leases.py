"""Leases: read-only views that pin the input memory, and let it go."""

from __future__ import annotations

import gc
import io

import msgspec
import orjson
import pytest
from lab.core import feed_buffer, request, take
from lab.wording import raises

from wirespeed._core.slab import slabs_live
from wirespeed.core import Lease, Message, Session, parse

pytestmark = pytest.mark.smoke

TEXT = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","arguments":{"a":[1]}}}'


def params(text: bytes = TEXT) -> Lease:
    lease = parse(text).params
    assert lease is not None
    return lease


def test_what_it_holds() -> None:
    lease = params()
    expected = b'{"name":"n","arguments":{"a":[1]}}'
    assert bytes(lease) == lease.copy() == bytes(memoryview(lease)) == expected
    assert len(lease) == len(expected)
    assert msgspec.json.decode(lease) == orjson.loads(memoryview(lease)) == orjson.loads(expected)


def test_comparison() -> None:
    lease = params()
    text = lease.copy()
    assert lease == text
    assert lease == bytearray(text)
    assert lease == memoryview(text)
    assert lease == params()
    assert lease != b"{}"
    assert lease != parse(TEXT).raw
    assert lease != text.decode()
    assert lease != 5
    with pytest.raises(TypeError):
        hash(lease)


def test_the_view_is_of_the_memory_it_came_from() -> None:
    source = bytearray(TEXT)
    message = parse(source)
    lease = message.params
    assert lease is not None
    source[TEXT.index(b'"n"') + 1] = ord("N")
    assert bytes(lease).startswith(b'{"name":"N"')


def test_the_views_are_read_only() -> None:
    lease = params()
    view = memoryview(lease)
    assert view.readonly
    assert (view.format, view.itemsize, view.ndim, view.shape) == ("B", 1, 1, (len(lease),))
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 0


def test_a_writable_view_is_refused() -> None:
    with pytest.raises((TypeError, BufferError)):
        io.BytesIO(b"xx").readinto(params())


def test_the_input_memory_is_free_when_the_lease_is_gone() -> None:
    source = bytearray(TEXT)
    message = parse(source)
    lease = message.params
    assert lease is not None
    assert repr(lease) == f"<Lease of {len(lease)} bytes>"
    del message
    with pytest.raises(BufferError):
        source.append(0)
    del lease
    source.append(0)


def test_a_raw_value_keeps_its_text() -> None:
    """msgspec keeps the lease itself in a Raw, not a buffer of it: nothing may unpin it."""

    class Params(msgspec.Struct):
        arguments: msgspec.Raw

    session = Session()
    feed_buffer(session, TEXT + b"\n")
    (message,) = take(session)
    lease = message.params
    assert lease is not None
    assert not hasattr(lease, "release")
    decoded = msgspec.json.decode(lease, type=Params)
    del lease, message
    feed_buffer(session, request(2, "other", '{"arguments":"' + "x" * 200 + '"}'))
    assert bytes(decoded.arguments) == b'{"a":[1]}'


def test_a_view_keeps_everything_alive() -> None:
    source = bytearray(TEXT)
    view = memoryview(params(source))
    gc.collect()
    assert bytes(view) == b'{"name":"n","arguments":{"a":[1]}}'
    with pytest.raises(BufferError):
        source.append(0)
    view.release()
    source.append(0)


@pytest.mark.parametrize("keep", ["message", "lease", "view"])
def test_what_is_kept_stays_true_while_the_session_reads_on(keep: str) -> None:
    session = Session()
    kept: list[object] = []
    expected = []
    for i in range(500):
        line = request(i, "m", f'{{"n":{i},"pad":"{"x" * (i * 7 % 3000)}"}}')
        expected.append(line[line.index(b'"params":') + 9 : -2])
        feed_buffer(session, line)
        (message,) = session.events()
        lease = message.params
        assert lease is not None
        kept.append({"message": message, "lease": lease, "view": memoryview(lease)}[keep])
        del message, lease
    assert session.counters["payload_bytes_copied"] == 0
    for text, thing in zip(expected, kept, strict=True):
        found = thing.params if isinstance(thing, Message) else thing
        assert bytes(found) == text  # type: ignore[call-overload]


def test_slabs_are_freed() -> None:
    before = slabs_live()
    session = Session()
    kept = []
    for i in range(200):
        feed_buffer(session, request(i, "m" * 1000))
        kept += take(session)
    assert slabs_live() > before
    del kept
    del session
    gc.collect()
    assert slabs_live() <= max(before, 16)


def test_the_same_slab_is_used_again() -> None:
    session = Session()
    for i in range(5):
        feed_buffer(session, request(i))
        for message in session.events():
            session.send_result(message, b"{}")
        del message
    before = slabs_live()
    for i in range(500):
        feed_buffer(session, request(i))
        for message in session.events():
            session.send_result(message, b"{}")
        del message
    assert slabs_live() == before


def test_leases_are_not_made_by_hand() -> None:
    with raises(TypeError):
        Lease()
    empty = Lease.__new__(Lease)
    assert bytes(empty) == bytes(memoryview(empty)) == b""
