"""Messages of a wire without the state of a session."""

from __future__ import annotations

import asyncio
import os

import pytest
from lab.core import batch, notification, request, result
from lab.wording import raises

from wirespeed.core import Limits, MessageStream, WebSocketFramer
from wirespeed.transport import Endpoint, FdLink


def test_every_kind_of_message_is_shown_and_nothing_is_answered() -> None:
    stream = MessageStream()
    stream.receive_data(request(1) * 2 + notification("x") + result(7) + b"{]\n[1]\n")
    assert [message.kind for message in stream] == [
        "request", "request", "notification", "result", "invalid", "invalid",
    ]  # fmt: skip
    assert stream.messages_in == 6
    assert stream.data_to_send() == []


def test_elements_of_batches_are_messages() -> None:
    stream = MessageStream(batches=True)
    stream.receive_data(batch(request(1), result(2)) + b"[]\n" + request(3))
    found = [(message.kind, message.id) for message in stream]
    assert found == [("request", 1), ("result", 2), ("invalid", None), ("request", 3)]


def test_what_is_sent() -> None:
    stream = MessageStream()
    stream.send(b'{"a":1}')
    stream.send(bytearray(b"{%s}" % (b" " * 5000)))
    for wrong in (b"", b'{"a":\n1}'):
        with raises(ValueError):
            stream.send(wrong)
    stream.send((b'{"a":', b"1", bytearray(b"}"), b""))
    for wrong in ((), [b""], (b"{", b"\n}")):
        with raises(ValueError):
            stream.send(wrong)
    assert b"".join(stream.data_to_send()) == b'{"a":1}\n{%s}\n{"a":1}\n' % (b" " * 5000)
    assert stream.messages_out == 3


def test_another_framing() -> None:
    client = MessageStream(framer=WebSocketFramer("client", max_message=1000))
    server = MessageStream(framer=WebSocketFramer("server", max_message=1000))
    client.send(request(1).strip())
    server.receive_data(b"".join(client.data_to_send()))
    assert [message.id for message in server] == [1]


@pytest.mark.parametrize("reads_always", [False, True])
def test_reading_stops_while_output_waits_unless_it_never_stops(reads_always: bool) -> None:
    stream = MessageStream(
        limits=Limits(output_high=1000, output_low=100), reads_always=reads_always
    )
    stream.receive_data(request(1) + request(2))
    assert next(stream).id == 1
    stream.send(b"{%s}" % (b" " * 2000))
    assert stream.want_read is reads_always
    assert [message.id for message in stream] == [2] * reads_always
    stream.data_to_send()
    assert stream.want_read
    assert [message.id for message in stream] == [2] * (not reads_always)


def test_a_paused_stream_gives_nothing_and_loses_nothing() -> None:
    stream = MessageStream(batches=True, reads_always=True)
    stream.receive_data(batch(request(1), request(2)) + request(3))
    assert next(stream).id == 1
    stream.paused = True
    assert not stream.want_read
    assert list(stream) == []
    stream.paused = False
    assert [message.id for message in stream] == [2, 3]


class Bridge(Endpoint):
    """Sends all that arrives to another endpoint, as it came."""

    def __init__(self, *, reads_always: bool) -> None:
        limits = Limits(output_high=65536, output_low=4096)
        self.wire = self.stream = MessageStream(limits=limits, reads_always=reads_always)
        self.other: Bridge

    def on_data(self) -> None:
        for message in self.stream:
            self.other.stream.send(memoryview(message.raw))
        if self.other.link is not None:
            self.other.link.wrote()


async def test_two_peers_that_write_before_they_read_are_both_served() -> None:
    """Each sends 4 MiB before it reads; a side that waited for the other would wait for ever."""
    loop = asyncio.get_running_loop()
    line = request(1, params='{"text":"%s"}' % ("x" * 65000))
    one, other = Bridge(reads_always=True), Bridge(reads_always=True)
    one.other, other.other = other, one
    ends = []
    for bridge in (one, other):
        to_us, to_them = os.pipe(), os.pipe()
        for fd in (*to_us, *to_them):
            os.set_blocking(fd, False)
        FdLink(loop, bridge, to_us[0], to_them[1]).start()
        ends.append((to_us[1], to_them[0], to_us[0], to_them[1]))

    async def write(fd: int) -> None:
        rest = line * 64
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                await asyncio.sleep(0)

    async def read(fd: int) -> int:
        n = 0
        while n < 64 * len(line):
            try:
                n += len(os.read(fd, 1 << 16))
            except BlockingIOError:
                await asyncio.sleep(0)
        return n

    async with asyncio.timeout(60):
        await asyncio.gather(*(write(end[0]) for end in ends))
        assert await asyncio.gather(*(read(end[1]) for end in ends)) == [64 * len(line)] * 2
    for bridge in (one, other):
        assert bridge.link is not None
        bridge.link.close()
    for end in ends:
        for fd in end:
            os.close(fd)
