"""Links and endpoints: what they need from each other, and what still runs after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from lab import raw
from lab.wording import raises

from wirespeed import Server
from wirespeed._core.wire import Wire
from wirespeed.client.connection.connection import ClientConnection
from wirespeed.core import FrameStream, Limits, LineFramer, Session
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link
from wirespeed.transport.memory import pair
from wirespeed.transport.stdio import FileLink
from wirespeed.transport.taskpool_choice import open_pool


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


async def test_a_link_closes_another_while_quiet_links_are_peeked_at() -> None:
    """uvloop misses resets, so links peek at their sockets after a second, all in one turn."""

    class Closing(Recorder):
        def on_data(self) -> None:
            super().on_data()
            if self.told == [1, 2]:
                for link in links:
                    if link.endpoint is not self:
                        link.close()

    loop = asyncio.get_running_loop()
    failed: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: failed.append(context))
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(2)]
        endpoints = [Closing() for _ in pairs]
        links = []
        for endpoint, (ours, theirs) in zip(endpoints, pairs, strict=True):
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
            links.append(FdLink(loop, endpoint, ours.fileno(), ours.fileno()))
            links[-1].start()
            theirs.send(b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')
        async with asyncio.timeout(10):
            while [endpoint.told for endpoint in endpoints] != [[1], [1]]:
                await asyncio.sleep(0)
        # Both timers are due in one turn, so the data comes behind the poll and before the peek.
        second = b'{"jsonrpc":"2.0","id":2,"method":"x"}\n'
        loop.call_later(0.1, lambda: [theirs.send(second) for _, theirs in pairs])
        time.sleep(1.1)
        async with asyncio.timeout(10):
            while [1, 2] not in [endpoint.told for endpoint in endpoints]:
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert sorted(map(str, (endpoint.told for endpoint in endpoints))) == [
            "[1, 'lost']",
            "[1, 2]",
        ]
        assert not failed
        for link in links:
            link.close()


# -- when output leaves ---------------------------------------------------------------------------


class Noting(Link):
    """Notes in a list, which several links may share, what each of them sends."""

    def __init__(self, endpoint: Endpoint, sent: list[Any], loop: Any = None) -> None:
        super().__init__(loop or asyncio.get_running_loop(), endpoint)
        self.sent = sent
        self.fault: BaseException | None = None

    def flush(self) -> None:
        if self.fault is not None:
            raise self.fault
        if data := b"".join(self.wire.data_to_send()):
            self.sent.append((self.endpoint, data.count(b"\n")))

    def update_reading(self) -> None:
        pass

    def lose(self, exc: BaseException | None) -> None:
        self.detach()
        self.endpoint.on_lost(exc)


class Relay(Recorder):
    """Answers its requests, and writes a notification to other endpoints for each."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.others: list[Relay] = []

    def on_data(self) -> None:
        for message in self.session:
            self.told.append(message.id)
            self.session.send_result(message, b"{}")
            for other in self.others:
                other.tell()

    def tell(self) -> None:
        self.session.send_notification("x")
        if self.link is not None:
            self.link.wrote()


def requests(*ids: int) -> bytes:
    return b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % i for i in ids)


def relays(n: int, loop: Any = None) -> tuple[list[Relay], list[Noting], list[Any]]:
    sent: list[Any] = []
    endpoints = [Relay() for _ in range(n)]
    return endpoints, [Noting(endpoint, sent, loop) for endpoint in endpoints], sent


def deliver(endpoint: Relay, *ids: int) -> None:
    endpoint.session.receive_data(requests(*ids))
    assert endpoint.link is not None
    endpoint.link.deliver()


async def test_what_other_links_are_given_leaves_with_the_delivery() -> None:
    (one, *others), _, sent = relays(3)
    one.others = others
    deliver(one, 1, 2, 3)
    assert sent == [(one, 3), (others[0], 3), (others[1], 3)]
    await asyncio.sleep(0)
    assert len(sent) == 3


async def test_output_outside_a_delivery_leaves_in_the_next_turn() -> None:
    (one, _), _, sent = relays(2)
    one.tell()
    one.tell()
    assert not sent
    await asyncio.sleep(0)
    assert sent == [(one, 2)]


async def test_a_link_that_is_lost_before_its_flush() -> None:
    (one, two, three), links, sent = relays(3)
    one.others = [two, three]
    two.on_data()
    three.tell = lambda: (Relay.tell(three), links[1].lose(None))  # type: ignore[method-assign]
    deliver(one, 1)
    assert sent == [(one, 1), (three, 1)]
    assert two.told == ["lost"]


async def test_a_flush_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (one, *others), links, sent = relays(4)
    one.others = others
    links[2].fault = OSError("full")
    deliver(one, 1)
    assert sent == [(one, 1), (others[0], 1), (others[2], 1)]
    assert [endpoint.told for endpoint in others] == [[], ["lost"], []]
    assert caplog.text.count("a connection is closed: internal error") == 1
    others[0].tell()
    await asyncio.sleep(0)
    assert sent[3:] == [(others[0], 1)]


async def test_events_that_fail_do_not_stop_other_links(caplog: pytest.LogCaptureFixture) -> None:
    (one, two), _, sent = relays(2)
    one.others = [two]
    two.tell = lambda: (Relay.tell(two), 1 / 0)  # type: ignore[method-assign]
    deliver(one, 1)
    assert sent == [(two, 1)]
    assert one.told == [1, "lost"]
    assert caplog.text.count("a connection is closed: internal error") == 1
    deliver(two, 1)
    assert sent[1:] == [(two, 1)]


async def test_an_interrupt_leaves_the_rest_to_the_next_turn() -> None:
    (one, *others), links, sent = relays(4)
    one.others = others
    links[1].fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        deliver(one, 1)
    assert sent == [(one, 1)]
    await asyncio.sleep(0)
    assert sorted(map(str, sent[1:])) == sorted(map(str, [(others[1], 1), (others[2], 1)]))


class Partner(Recorder):
    """Answers the other's request when one of its own comes."""

    other: Partner

    def on_data(self) -> None:
        for message in self.session:
            self.told.append(message.id)
            self.requests.append(message)
            if self.other.requests and self.other.link is not None:
                self.other.session.send_result(self.other.requests.pop(), b"{}")
                self.other.link.wrote()


async def test_links_that_make_room_for_each_other_let_the_loop_go_on() -> None:
    """What a flush at the end of a delivery writes elsewhere leaves in the next turn."""
    one, two = Partner(max_in_flight=1), Partner(max_in_flight=1)
    one.other, two.other = two, one
    for endpoint in (two, one):
        link = Noting(endpoint, [])
        endpoint.session.receive_data(requests(1, 2, 3))
        link.deliver()
    assert (one.told, two.told) == ([1], [1, 2])
    for _ in range(10):
        await asyncio.sleep(0)
    assert (one.told, two.told) == ([1, 2, 3], [1, 2, 3])


async def test_requests_that_waited_for_the_output_let_the_loop_go_on() -> None:
    class Talker(Recorder):
        def on_data(self) -> None:
            for message in self.session:
                self.told.append(message.id)
                self.session.send_result(message, b'"%s"' % (b"x" * Limits().output_high))

    endpoint = Talker()
    link = Noting(endpoint, [])
    endpoint.session.receive_data(requests(1, 2))
    link.deliver()
    assert endpoint.told == [1]
    await asyncio.sleep(0)
    assert endpoint.told == [1, 2]


async def test_output_of_a_delivery_above_the_mark_that_leaves_at_once_is_drained() -> None:
    class Talker(Recorder):
        def on_data(self) -> None:
            for message in self.session:
                self.session.send_result(message, b'"%s"' % (b"x" * Limits().output_high))

        def on_drained(self) -> None:
            self.told.append("drained")

    endpoint = Talker()
    link = Noting(endpoint, [])
    endpoint.session.receive_data(requests(1))
    link.deliver()
    link.check_drained()
    assert endpoint.told == ["drained"]
    link.check_drained()
    assert endpoint.told == ["drained"]  # once


async def test_a_loop_without_weak_references() -> None:
    class Bare:
        __slots__ = ("calls",)

        def __init__(self) -> None:
            self.calls: list[Any] = []

        def call_soon(self, callback: Any) -> None:
            self.calls.append(callback)

    loop = Bare()
    (one, two), _, sent = relays(2, loop)
    one.others = [two]
    deliver(one, 1)
    assert sent == [(one, 1)]
    (callback,) = loop.calls
    callback()
    assert sent[1:] == [(two, 1)]


async def test_a_loop_is_not_kept_by_its_callbacks() -> None:
    class Loop:
        def call_soon(self, callback: Any) -> None:
            self.callback = callback

    loop = Loop()
    (one,), _, _ = relays(1, loop)
    one.tell()
    last = weakref.ref(loop)
    del loop, one, _
    gc.collect()
    assert last() is None


async def test_flush_now_goes_on_with_requests_that_waited() -> None:
    sent: list[Any] = []
    endpoint = Recorder(max_in_flight=1)
    link = Noting(endpoint, sent)
    endpoint.session.receive_data(requests(1, 2))
    link.deliver()
    assert endpoint.told == [1]
    endpoint.session.send_result(endpoint.requests[0], b"{}")
    link.flush_now()
    assert (endpoint.told, sent) == ([1, 2], [(endpoint, 1)])
    link.lose(None)
    endpoint.session.send_result(endpoint.requests[1], b"{}")
    link.flush_now()
    assert len(sent) == 1


async def test_flush_now_in_an_event_only_flushes() -> None:
    class Eager(Recorder):
        def on_data(self) -> None:
            for message in self.session:
                self.told.append(message.id)
                self.session.send_result(message, b"{}")
                assert self.link is not None
                self.link.flush_now()

    sent: list[Any] = []
    endpoint = Eager(max_in_flight=1)
    link = Noting(endpoint, sent)
    endpoint.session.receive_data(requests(1, 2, 3))
    link.deliver()
    assert endpoint.told == [1, 2, 3]
    assert sent == [(endpoint, 1)] * 3


class Watched:
    """A loop that counts the callbacks that its links schedule."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.scheduled = 0

    def call_soon(self, *arguments: Any, **options: Any) -> Any:
        self.scheduled += 1
        return self.loop.call_soon(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


async def start(connection: ClientConnection, n: int) -> Any:
    return connection.call_tool("x", {"n": n}, 5, None)


async def quiet() -> None:
    """Nothing but this task is ready to run afterwards."""
    await asyncio.sleep(0.01)


async def test_calls_that_start_together_leave_in_one_write() -> None:
    connection = ClientConnection(asyncio.get_running_loop(), Limits(), None)
    sent: list[Any] = []
    link = Noting(connection, sent)
    await quiet()
    await asyncio.gather(*(start(connection, n) for n in range(64)))
    await quiet()
    assert sent == [(connection, 64)]
    link.detach()


async def test_a_call_over_a_link_that_fails() -> None:
    class Owner:
        def lost(self, connection: Any, reason: str) -> None:
            lost.append(connection.closed)

    loop = asyncio.get_running_loop()
    lost: list[Any] = []
    connection = ClientConnection(loop, Limits(), Owner())
    link = Noting(connection, [])
    link.fault = OSError("full")
    await start(connection, 1)
    await quiet()
    assert [one.result().__cause__ for one in lost] == [link.fault]


@pytest.mark.parametrize("calls", [1, 3])
async def test_answers_to_calls_that_end_together_leave_in_one_write(calls: int) -> None:
    server = Server("slow")
    morning = asyncio.Event()

    @server.tool
    async def nap() -> str:
        await morning.wait()
        return "awake"

    loop = asyncio.get_running_loop()
    watched = Watched(loop)
    sent: list[Any] = []
    pool = open_pool(loop)
    connection = server.service.connect(
        lambda endpoint: Noting(endpoint, sent, watched), loop=loop, pool=pool
    )
    link = connection.link
    naps = [raw.call(n, "nap") for n in range(1, calls + 1)]
    await quiet()
    link.wire.receive_data(b"".join(map(raw.encode, [raw.initialize(0), *naps])))
    link.deliver()
    await quiet()
    before = watched.scheduled
    morning.set()  # all calls end in one turn of the loop
    await quiet()
    assert sent == [(connection, 1), (connection, calls)]
    assert watched.scheduled - before == 1
    link.lose(None)
    await pool.aclose()


# -- mistakes of who writes a link or an endpoint: an exception, never a crash ----------------


def test_a_wire_alone_is_abstract() -> None:
    class Derived(Wire):
        pass

    for cls in (Wire, Derived):
        with raises(TypeError):
            cls()
        with raises(TypeError):
            cls.__new__(cls)
    assert FrameStream(LineFramer(100)).get_buffer().nbytes


async def test_an_endpoint_needs_a_wire_first() -> None:
    class Bare(Endpoint):
        pass

    endpoint = Bare()
    with raises(TypeError):
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
    for use in (link.wrote, link.deliver, link.check_drained, link.flush_now, link.pump, link.end):
        with pytest.raises(AttributeError):
            use()
    with pytest.raises(AttributeError):
        _ = link.idle


# -- the end -------------------------------------------------------------------------------------


class Teller(Recorder):
    """Has a large answer for each request, and notes its loss in a future."""

    def __init__(self, size: int = 1_000_000, **limits: int) -> None:
        super().__init__(**limits)
        self.size = size
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def on_data(self) -> None:
        for message in self.session:
            self.told.append(message.id)
            if message.kind == "request":
                self.session.send_result(message, b'"%b"' % (b"x" * self.size))

    def on_lost(self, exc: BaseException | None) -> None:
        self.lost.set_result(exc)


async def received(end: socket.socket) -> bytes:
    """What a socket receives up to the end."""
    loop = asyncio.get_running_loop()
    found = b""
    async with asyncio.timeout(20):
        while data := await loop.sock_recv(end, 65536):
            found += data
    return found


async def test_queued_output_leaves_before_a_link_ends(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """With a framing that has no goodbye."""
    ours, theirs = sockets
    endpoint = Teller(max_in_flight=1)
    link = FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno())
    endpoint.lost.add_done_callback(lambda _: ours.close())
    link.start()
    theirs.send(requests(1))
    async with asyncio.timeout(20):
        while not endpoint.told:
            await asyncio.sleep(0)
    link.end()
    link.end()
    assert endpoint.link is link and not link.ending and link.closing
    theirs.send(requests(2))  # no events come any more
    assert len(await received(theirs)) > 1_000_000
    assert await endpoint.lost is None
    assert endpoint.told == [1]


async def test_a_peer_that_does_not_read_is_waited_for_so_long(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    endpoint = Teller()
    link = FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno())
    link.start()
    theirs.send(requests(1))
    async with asyncio.timeout(20):
        while not endpoint.told:
            await asyncio.sleep(0)
        link.end(timeout=0.01)
        assert not endpoint.lost.done()
        assert await endpoint.lost is None


async def test_an_idle_link_ends_at_once(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = sockets
    endpoint = Teller()
    link = FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno())
    link.start()
    link.end()
    assert endpoint.lost.done() and endpoint.link is None


async def test_a_link_of_files_writes_all_before_it_ends() -> None:
    read_fd, client_out = os.pipe()
    client_in, write_fd = os.pipe()
    endpoint = Teller()
    link = FileLink(asyncio.get_running_loop(), endpoint, read_fd, write_fd)
    link.start()
    os.write(client_out, requests(1))
    async with asyncio.timeout(20):
        while not endpoint.told:
            await asyncio.sleep(0.001)
        link.end()

        def read() -> int:
            n = 0
            while n <= endpoint.size:
                n += len(os.read(client_in, 65536))
            return n

        assert await asyncio.to_thread(read) > endpoint.size
        assert await endpoint.lost is None
    os.close(client_out)
    link.join(5)
    for fd in (read_fd, write_fd, client_in):
        os.close(fd)


async def test_a_link_in_memory_ends_when_its_peer_has_taken_all() -> None:
    endpoint, other = Teller(), Recorder()
    ours, theirs = pair(asyncio.get_running_loop(), endpoint, other)
    ours.start()
    theirs.start()
    endpoint.session.send_notification("a")
    ours.flush()
    endpoint.session.send_notification("b")  # the peer has not taken the first
    ours.end()
    assert endpoint.link is ours
    async with asyncio.timeout(20):
        assert await endpoint.lost is None
        while len(other.requests) < 2:
            await asyncio.sleep(0)
    assert [message.method for message in other.requests] == ["a", "b"]
