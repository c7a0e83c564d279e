"""Links and endpoints: what they need from each other, and what still runs after a loss."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from wirespeed._core.wire import Wire
from wirespeed.core import FrameStream, Limits, LineFramer, Session
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link


class Recorder(Endpoint):
    """Notes what the link tells, and the ids of requests."""

    def __init__(self, **limits: int) -> None:
        self.wire = self.session = Session(limits=Limits(**limits))
        self.told: list[Any] = []
        self.requests: list[Any] = []

    def on_data(self) -> None:
        for message in self.session:
            self.requests.append(message)
            self.told.append(message.id)

    def on_lost(self, exc: BaseException | None) -> None:
        self.told.append("lost")


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def test_a_request_that_waited_does_not_start_after_a_loss(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """An answer makes room for it, and the link is lost before the loop comes to the flush."""
    ours, theirs = sockets
    endpoint = Recorder(max_in_flight=1)
    link = FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno())
    link.start()
    theirs.send(b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % i for i in (1, 2)))
    async with asyncio.timeout(10):
        while not endpoint.requests:
            await asyncio.sleep(0)
    endpoint.session.send_result(endpoint.requests[0], b"{}")
    link.wrote()
    link.lose(ConnectionResetError("the peer is gone"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert endpoint.told == [1, "lost"]
    assert endpoint.session.counters["requests_waiting"] == 1


# -- mistakes of who writes a link or an endpoint: an exception, never a crash ----------------


def test_a_wire_alone_is_abstract() -> None:
    class Derived(Wire):
        pass

    for cls in (Wire, Derived):
        with pytest.raises(TypeError, match="abstract"):
            cls()
        with pytest.raises(TypeError, match="abstract"):
            cls.__new__(cls)
    assert FrameStream(LineFramer(100)).get_buffer().nbytes


async def test_an_endpoint_needs_a_wire_first() -> None:
    class Bare(Endpoint):
        pass

    endpoint = Bare()
    with pytest.raises(TypeError, match="needs a wire"):
        FdLink(asyncio.get_running_loop(), endpoint, 0, 1)
    assert endpoint.link is None


async def test_a_wire_that_is_taken_away_later() -> None:
    endpoint = Recorder()
    link = FdLink(asyncio.get_running_loop(), endpoint, 0, 1)
    endpoint.wire = None  # type: ignore[assignment]
    link.wrote()
    link.check_drained()
    assert link.idle
    link.close()
    assert endpoint.told == ["lost"]


async def test_a_link_that_was_never_set_up() -> None:
    class Hasty(Link):
        def __init__(self) -> None:
            pass

    link = Hasty()
    for use in (link.wrote, link.deliver, link.check_drained, link.pump, link.end, link.ended):
        with pytest.raises(AttributeError):
            use()
    with pytest.raises(AttributeError):
        _ = link.idle
