"""WebSocket framing: what is moved, what is pinned, what is held, and what a peer can make grow."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from lab.core import chunkings, grown_by
from lab.rows import every
from lab.websocket import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    TEXT,
    Peer,
    Role,
    closing,
    deflater,
    frame,
)

from wirespeed._core.slab import slabs_live
from wirespeed.core import Lease

ROLES: tuple[Role, ...] = ("server", "client")
both_roles = pytest.mark.parametrize("role", ROLES)
READ = 256 * 1024  # what a first read finds room for


def text(n: int) -> bytes:
    return (b"0123456789abcdef" * (n // 16 + 1))[:n]


# -- what is moved -----------------------------------------------------------------------------


@both_roles
def test_whole_messages_are_not_moved(role: Role) -> None:
    peer = Peer(role, door="buffer")
    for _ in range(200):
        some = b"".join(frame(TEXT, text(n), to=role) for n in (0, 1, 100, 200, 5000))
        assert len(peer.feed(some + frame(PING, b"x", to=role))) == 5
    assert peer.framer.bytes_moved == 0


def test_a_chunk_is_copied_in_once() -> None:
    peer = Peer()
    data = frame(TEXT, text(1000)) * 20
    peer.feed(data)
    assert peer.framer.bytes_moved == len(data)


@both_roles
def test_only_later_fragments_are_moved(role: Role) -> None:
    peer = Peer(role, door="buffer")
    stream = (
        frame(TEXT, text(1000), to=role, fin=False)
        + frame(PING, b"abc", to=role)
        + frame(CONT, text(300), to=role, fin=False)
        + frame(CONT, text(20), to=role)
    )
    assert peer.feed(stream) == [(TEXT, text(1000) + text(300) + text(20))]
    assert peer.framer.bytes_moved == 320


@both_roles
def test_a_large_message_is_read_into_memory_of_its_size(role: Role) -> None:
    for n in (READ, 1 << 20, 3 << 20, 20 << 20):
        peer = Peer(role, max_message=n)
        data = frame(BINARY, text(n), to=role)
        at = 0
        reads = 0
        while at < len(data):
            view = peer.stream.get_buffer()
            step = min(len(view), len(data) - at)
            view[:step] = data[at : at + step]
            at += step
            view.release()
            peer.stream.buffer_updated(step)
            reads += 1
            if at < len(data):
                assert peer.take() == []
        ((_, got),) = peer.take()
        assert got == text(n)
        assert reads <= 4
        assert peer.framer.bytes_moved <= 2 * READ


def test_an_announcement_costs_nothing() -> None:
    """Memory grows with what came, not with what a header says."""
    peer = Peer(max_message=1 << 30)
    head = frame(BINARY, length=1 << 30)
    view = peer.stream.get_buffer()
    view[: len(head)] = head
    peer.stream.buffer_updated(len(head))
    assert peer.take() == []
    assert len(peer.stream.get_buffer()) <= 2 * READ
    peer.stream.buffer_updated(0)
    came = len(head)
    for _ in range(6):
        view = peer.stream.get_buffer()
        assert len(view) <= 17 * came + READ + (2 << 20)  # huge pages
        step = min(len(view), READ)
        view[:step] = bytes(step)
        peer.stream.buffer_updated(step)
        came += step
        assert peer.take() == []


def test_pings_inside_an_endless_message_do_not_fill_memory() -> None:
    for door in ("data", "buffer"):
        peer = Peer(door=door)
        peer.feed(frame(TEXT, text(1000), fin=False))
        for _ in range(3000):
            peer.feed(frame(PING, b"x" * 125) + frame(PING, b"x" * 20)[:9])
            peer.feed(frame(PING, b"x" * 20)[9:])
            peer.framer.allow_control()
            assert peer.framer.buffered == 1000
            peer.stream.data_to_send()
        assert not peer.stream.over
        assert peer.feed(frame(CONT, b"end")) == [(TEXT, text(1000) + b"end")]
        # nothing but the ends of messages and what came by a chunk
        assert peer.framer.bytes_moved < 3000 * 200 + 5000


# -- what is pinned ----------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("door", ["data", "buffer"])
def test_messages_stay_as_they_were(door: str, compressed: bool) -> None:
    peer = Peer(door=door, max_message=1 << 22, deflate=deflater() if compressed else None)
    sender = deflater()
    kept: list[Lease] = []
    expected = []

    for i in range(120):
        payload = bytes([i]) * (i * i * 7 % 40_000) + b"end"
        expected.append(payload)
        if compressed and i % 3:
            stream = frame(BINARY, bytes(sender.encode(payload)), rsv=4)
        elif i % 3 == 1:
            stream = frame(BINARY, payload[:50], fin=False) + frame(CONT, payload[50:])
        else:
            stream = frame(BINARY, payload)
        for at in range(0, len(stream), 1 + i * 997 % 9000):
            kept += peer.keep(stream[at : at + 1 + i * 997 % 9000])
    assert [bytes(lease) for lease in kept] == expected
    views = [memoryview(lease) for lease in kept]
    del peer, kept
    gc.collect()
    assert [bytes(view) for view in views] == expected


def test_an_echo_is_sent_from_where_it_was_read() -> None:
    peer = Peer(door="buffer")
    slabs = slabs_live()
    stream = frame(BINARY, text(50_000)) * 2
    view = peer.stream.get_buffer()
    view[: len(stream)] = stream
    view.release()
    peer.stream.buffer_updated(len(stream))
    for message in peer.stream:
        assert message is not None
        peer.framer.send_binary(message)
    del message
    assert peer.stream.outbox.bytes_copied == 0
    peer.feed(frame(TEXT, b"next"))
    chunks = peer.stream.data_to_send()
    assert [len(chunk) for chunk in chunks] == [4, 50_000, 4, 50_000]
    assert bytes(chunks[3]) == text(50_000)
    del chunks
    assert slabs_live() <= slabs + 2


# -- what is held ------------------------------------------------------------------------------

STREAMS = {
    "text": frame(TEXT, b"hello"),
    "empty": frame(TEXT),
    "fragments": frame(TEXT, b"a", fin=False) + frame(PING) + frame(CONT, b"b"),
    "large": frame(BINARY, text(300_000)),
    "pings": frame(PING, b"x" * 125) * 5,
}
ENDS = {
    "close": frame(CLOSE, closing(1000, b"bye")),
    "failure": frame(3),
    "not UTF-8": frame(TEXT, b"\xff"),
    "too big": frame(BINARY, size=8, length=1 << 50),
    "unfinished header": frame(TEXT, b"abc")[:3],
    "unfinished message": frame(TEXT, b"abc" * 100, fin=False),
    "unfinished large": frame(BINARY, text(200_000))[:150_000],
}


@both_roles
@pytest.mark.parametrize("door", ["data", "buffer"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_does_not_grow(name: str, door: str, role: Role) -> None:
    peer = Peer("server", door=door)
    slabs = slabs_live()

    def work() -> None:
        for _, payload in peer.feed(STREAMS[name]):
            peer.framer.send_binary(payload)
        peer.stream.data_to_send()

    assert grown_by(work) < 2000
    assert slabs_live() <= slabs + 2


@every("compressed", [False, True])
@every("name", [*STREAMS, *ENDS])
def test_streams_leave_nothing_behind(name: str, compressed: bool) -> None:
    def whole_life() -> None:
        peer = Peer(deflate=deflater() if compressed else None)
        peer.feed((STREAMS | ENDS)[name])
        peer.framer.send_text("never sent")
        peer.stream.send(text(6000))

    slabs = slabs_live()
    assert grown_by(whole_life) < 2000
    assert slabs_live() <= slabs + 2


def test_idle_connections_hold_no_block_and_no_slab() -> None:
    peers = [Peer() for _ in range(300)]
    slabs = slabs_live()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for peer in peers:
            peer.feed(frame(TEXT, text(500)) + frame(PING))
            peer.stream.send(text(500))
            assert len(peer.sent()) == 2
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert slabs_live() <= slabs + 2
    # the memory of 16 spare blocks is the process's
    assert grown < 16 * 65536 + 300 * 2048


@every("name", ENDS)
def test_nothing_is_kept_of_a_stream_that_ended(name: str) -> None:
    for chunks in chunkings(ENDS[name][:40]):
        peer = Peer()
        for chunk in chunks:
            peer.feed(chunk)
        if peer.stream.over:
            assert peer.framer.buffered == 0
            assert peer.take() == []
