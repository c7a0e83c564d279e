"""The one place where the benchmarks touch the engine's own API (`wirespeed.core`)."""

import os
from typing import Any

from wirespeed import core

# the id's JSON text, the method, the text of the params
Seen = tuple[bytes, str, bytes]


def new_session(max_message: int = 128 << 20) -> Any:
    """A server's session that takes one corpus case whole.  Not timed."""
    limits = core.Limits(
        max_message=max_message,
        max_in_flight=100_000,
        max_waiting_bytes=256 << 20,
    )
    return core.Session(limits=limits, role="server")


def new_reader() -> Any:
    """Framing and envelopes alone: what the rival loop does.  Not timed."""
    return core.MessageReader(limits=core.Limits(max_message=128 << 20))


def consume_messages(reader: Any, chunk: bytes) -> int:
    """Feeds a chunk and takes its messages; how many came.  Timed."""
    reader.receive_data(chunk)
    count = 0
    for _message in reader:
        count += 1
    return count


def consume(session: Any, chunk: bytes) -> int:
    """Feeds a chunk and takes its events; how many came.  Timed."""
    session.receive_data(chunk)
    count = 0
    for _event in session.events():
        count += 1
    return count


def read_events(session: Any, source: int) -> int:
    """One read of a descriptor into the session, and its events, each answered.  Timed."""
    with session.get_buffer() as buffer:
        n = os.readv(source, [buffer])
    if n == 0:
        raise EOFError("the writer ended")
    session.buffer_updated(n)
    count = 0
    for event in session.events():
        session.send_result(event, b"{}")
        count += 1
    return count


def requests(session: Any, chunk: bytes) -> list[Seen]:
    """What the engine saw in a chunk, to be checked against the decoder.  Not timed."""
    session.receive_data(chunk)
    seen = []
    for event in session.events():
        if event.kind != "request":
            raise ValueError(f"{event.kind}: {event!r}")
        seen.append((event.raw_id, event.method, bytes(event.params)))
    return seen


def bytes_copied(session: Any) -> int:
    """Payload bytes that the session copied so far."""
    return int(session.counters["payload_bytes_copied"])


def simd_level() -> str:
    """The kernels in use: scalar, sse2, avx2, avx512 or neon."""
    return str(core.simd_level())
