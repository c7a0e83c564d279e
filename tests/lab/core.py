"""Helpers of the core's tests: lines, doors, and short names for what came of them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

from wirespeed.core import Message, Session

Feed = Callable[[Session, bytes], None]


def request(id: object, method: str = "x", params: str = "") -> bytes:
    tail = f',"params":{params}' if params else ""
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}"{tail}}}\n'.encode()


def notification(method: str, params: str = "") -> bytes:
    tail = f',"params":{params}' if params else ""
    return f'{{"jsonrpc":"2.0","method":"{method}"{tail}}}\n'.encode()


def cancel(id: object) -> bytes:
    return notification("notifications/cancelled", f'{{"requestId":{id}}}')


def result(id: object, body: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},"result":{body}}}\n'.encode()


def batch(*lines: bytes) -> bytes:
    return b"[" + b",".join(line.rstrip(b"\n") for line in lines) + b"]\n"


def feed_data(session: Session, data: bytes) -> None:
    session.receive_data(data)


def feed_buffer(session: Session, data: bytes) -> None:
    """As a transport reads straight into the session's memory."""
    while data:
        view = session.get_buffer()
        n = min(len(view), len(data))
        view[:n] = data[:n]
        view.release()
        session.buffer_updated(n)
        data = data[n:]


DOORS: dict[str, Feed] = {"data": feed_data, "buffer": feed_buffer}


def chunkings(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, in two at every offset."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    for i in range(1, len(data)):
        yield [data[:i], data[i:]]


def outcome(message: Message) -> str:
    """An event in one word or two: its kind, and for a fault whose fault."""
    if message.kind == "invalid":
        return f"invalid {message.fault}"
    return message.kind


def take(session: Session) -> list[Message]:
    return list(session.events())


def outcomes(session: Session) -> list[str]:
    return [outcome(message) for message in session.events()]


def sent(session: Session) -> bytes:
    return b"".join(map(bytes, session.data_to_send()))


def feed_all(session: Session, chunks: Iterable[bytes], feed: Feed) -> list[str]:
    """Outcomes of chunks, with the events taken after each."""
    found: list[str] = []
    for chunk in chunks:
        feed(session, chunk)
        found += outcomes(session)
    return found


def grown_by(work: Callable[[], object]) -> int:
    """Bytes of Python's allocator that a thousand rounds leave behind, the first ones apart."""
    for _ in range(50):
        work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
