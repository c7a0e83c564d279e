"""Flow control and bounds of a server: what waits, what gets through, what never grows."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from lab.raw import META, Raw, call, cancel, modern, request, strict, tool_server
from lab.rows import every
from lab.server import Peer, text_of

from wirespeed import Context, Server
from wirespeed.limits import Limits

pytestmark = pytest.mark.compiled

MIB = 1024 * 1024


class Gate:
    """Tools that wait until they are let go, and count how many run."""

    def __init__(self, **limits: Any) -> None:
        self.event = asyncio.Event()
        self.now = self.most = self.total = 0
        self.server = Server("gate", limits=Limits(**limits))
        self.server.add_tool(self.wait)
        self.server.add_tool(self.quick, inline=True)

    async def wait(self, ctx: Context) -> str:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        try:
            await self.event.wait()
        finally:
            self.now -= 1
        return "done"

    def quick(self) -> str:
        return "quick"


def gated(connect: Any, **limits: Any) -> tuple[Gate, Peer]:
    """A gate, and a connection to its server."""
    gate = Gate(**limits)
    return gate, connect("2025-06-18", to=gate.server)


def test_no_more_run_than_the_limit_and_the_rest_wait_their_turn(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=4)
    peer.send(*(call(i, "wait") for i in range(50)))
    assert peer.fence() == []
    assert gate.now == 4
    assert peer.connection.session.counters["requests_waiting"] == 46
    gate.event.set()
    assert set(peer.answers(*range(50))) == set(range(50))
    assert gate.most <= 4
    assert gate.total == 50


def test_at_the_limit_a_ping_and_a_cancel_get_through(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=4)
    peer.send(*(call(i, "wait") for i in range(10)))
    assert peer.ask(request("p", "ping"))["id"] == "p"
    peer.send(cancel(0))
    peer.wait_for(lambda: gate.total == 5)  # the cancelled one made room
    assert gate.now == 4
    peer.send(call("quick", "quick"))
    assert peer.fence() == []  # waits behind the others
    gate.event.set()
    peer.answers(*range(1, 10), "quick")


def test_at_the_limit_a_response_and_a_bad_line_get_through(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=1)
    peer.send(call(1, "wait"), call(2, "wait"))
    peer.send({"jsonrpc": "2.0", "id": 5, "result": {}})
    assert peer.ask(b"hello\n")["error"]["code"] == -32700
    peer.wait_for(lambda: peer.connection.session.counters["late_responses"] == 1)
    assert peer.error(call(2, "wait"))[0] == -32600  # its id is taken although it waits
    gate.event.set()
    peer.answers(1, 2)


def test_a_request_that_is_cancelled_while_it_waits_never_starts(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=2)
    peer.send(*(call(i, "wait") for i in range(20)), *(cancel(i) for i in range(2, 19)))
    assert peer.fence() == []
    assert peer.connection.session.counters["requests_in_flight"] == 3
    gate.event.set()
    peer.answers(0, 1, 19)
    assert peer.fence() == []
    assert gate.total == 3


def test_cancelled_ones_that_waited_leave_no_room_behind(connect: Any) -> None:
    """Neither more nor fewer run afterwards."""
    gate, peer = gated(connect, max_in_flight=4)
    for _ in range(3):
        peer.send(*(call(i, "wait") for i in range(30)))
        peer.send(*(cancel(i) for i in range(10, 25)))
        assert peer.fence() == []
        assert gate.now == 4
        peer.send(*(call(i, "wait") for i in range(100, 110)))
        assert peer.fence() == []
        assert gate.now == 4
        gate.event.set()
        peer.answers(*range(10), *range(25, 30), *range(100, 110))
        gate.event.clear()
    assert gate.most == 4
    assert peer.connection.session.counters["requests_waiting"] == 0


def test_all_that_wait_are_cancelled_and_the_server_goes_on(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=2)
    peer.send(*(call(i, "wait") for i in range(100)), *(cancel(i) for i in range(100)))
    assert peer.fence() == []
    peer.wait_for(lambda: gate.now == 0)
    assert text_of(peer.result(call(1, "quick"))) == "quick"
    assert gate.total == 2


def test_a_cancelled_handler_counts_until_it_has_ended(connect: Any) -> None:
    server = Server("stubborn", limits=Limits(max_in_flight=2))
    gate = asyncio.Event()
    running: list[int] = []

    @server.tool
    async def stubborn(n: int) -> str:
        running.append(n)
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        running.remove(n)
        return "done"

    peer = connect("2025-06-18", to=server)
    peer.send(*(call(i, "stubborn", {"n": i}) for i in range(6)), *(cancel(i) for i in range(4)))
    assert peer.fence() == []
    assert running == [0, 1]
    gate.set()
    peer.answers(4, 5)
    assert running == []


def test_ids_are_free_again_after_a_cancellation_while_waiting(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=1)
    peer.send(call(0, "wait"))
    for _ in range(5):
        peer.send(call(1, "quick"), cancel(1))
    peer.send(call(1, "quick"))
    assert peer.fence() == []
    gate.event.set()
    peer.answers(0, 1)
    assert peer.fence() == []


def test_reading_stops_at_so_many_waiting_and_goes_on(connect: Any) -> None:
    gate, peer = gated(connect, max_in_flight=1, max_waiting=3)
    peer.send(call(0, "wait"), *(call(i, "quick") for i in range(1, 3)))
    peer.fence()
    peer.send(*(call(i, "quick") for i in range(3, 2000)))
    session = peer.connection.session
    peer.wait_for(lambda: not session.want_read)
    assert session.counters["requests_waiting"] == 3
    gate.event.set()
    assert set(peer.answers(*range(2000))) == set(range(2000))


def test_reading_stops_at_so_many_waiting_bytes(connect: Any) -> None:
    gate = Gate(max_in_flight=1, max_waiting_bytes=1000)
    server = gate.server

    @server.tool
    async def size(text: str) -> int:
        return len(text)

    peer = connect("2025-06-18", to=server)
    peer.send(call(0, "wait"), *(call(i, "size", {"text": "x" * 400}) for i in range(1, 50)))
    session = peer.connection.session
    peer.wait_for(lambda: not session.want_read)
    assert session.counters["requests_waiting"] == 2
    gate.event.set()
    peer.answers(*range(50))


def test_a_full_outbox_holds_requests_back_and_lets_the_rest_through(connect: Any) -> None:
    server = Server("full", limits=Limits(output_high=256 * 1024, output_low=64 * 1024))

    @server.tool(inline=True)
    def big(n: int) -> str:
        return "x" * 100_000

    noticed: list[str] = []

    @server.tool
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            noticed.append("cancelled")
        return "never"

    peer = connect("2025-06-18", to=server)
    peer.send(call("h", "hang"), *(call(i, "big", {"n": i}) for i in range(200)))
    session = peer.connection.session
    peer.wait_for(lambda: session.counters["requests_waiting"] > 150)
    assert session.counters["bytes_queued"] < 512 * 1024
    peer.send(cancel("h"))
    peer.wait_for(lambda: noticed)
    peer.answers(*range(200))
    assert peer.fence() == []


def test_requests_held_back_go_on_although_every_write_is_whole(connect: Any) -> None:
    """A reader that is as fast as the writer: no write is ever short, so nothing wakes them."""
    server = Server("full", limits=Limits(output_high=1000, output_low=100))

    @server.tool(inline=True)
    def big() -> str:
        return "x" * 1500

    peer = connect("2025-06-18", to=server)
    peer.send(*(call(i, "big") for i in range(20)))
    peer.answers(*range(20))


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n',
        b'{"jsonrpc":"2.0","id":"taken","method":"tools/list"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        b"[]\n",
    ],
)
def test_answers_to_bad_lines_do_not_pile_up_either(line: bytes, connect: Any) -> None:
    gate, peer = gated(connect, output_high=8192, output_low=1024, max_waiting=300)
    peer.send(call("taken", "wait"))
    peer.fence()
    n = 3000  # more than a pipe and the outbox hold
    peer.send(line * n)
    session = peer.connection.session
    peer.wait_for(lambda: not session.want_read)
    assert session.counters["bytes_queued"] < 4 * 8192
    for _ in range(n):
        answer = peer.recv()
        assert answer["id"] in (1, "taken", None)
    gate.event.set()
    assert peer.recv()["id"] == "taken"


# -- one write a tick -----------------------------------------------------------------------------


def test_many_small_answers_of_one_tick_leave_in_one_write(connect: Any) -> None:
    gate, peer = gated(connect)
    peer.send(*(call(i, "wait") for i in range(200)))
    peer.fence()
    ready = [0]
    writes: list[int] = []

    def look() -> None:
        """Before each turn: how much has left since the last."""
        sent = peer.connection.session.counters["bytes_out"]
        if sent != ready[0]:
            writes.append(sent - ready[0])
            ready[0] = sent
        if len(writes) < 1:
            peer.loop.call_soon(look)

    ready[0] = peer.connection.session.counters["bytes_out"]
    peer.loop.call_soon(look)
    gate.event.set()
    peer.answers(*range(200))
    assert len(writes) == 1  # 200 tasks ended in one turn, and one write took them all
    assert writes[0] == peer.connection.session.counters["bytes_out"] - (ready[0] - writes[0])


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_small_answers_of_one_chunk_arrive_together(loop: str) -> None:
    with Raw(tool_server(), env={"WIRESPEED_LOOP": loop}) as peer:
        peer.handshake()
        peer.ask(request("fence", "ping"))
        peer.reads.clear()
        peer.send(*(call(i, "add", {"a": i, "b": 1}) for i in range(300)))  # less than a pipe holds
        got = [peer.recv() for _ in range(300)]
        assert [text_of(m["result"]) for m in got] == [str(i + 1) for i in range(300)]
        assert len(peer.reads) <= 4  # the peer may have read in between, but not 300 times
        assert peer.end() == 0


# -- a peer that never reads ----------------------------------------------------------------------


@every(
    ("what", "loop"),
    [
        ("echo", "uvloop"),
        ("echo", "asyncio"),
        ("bad", "uvloop"),
        ("unknown", "asyncio"),
        ("ping", "uvloop"),
        ("modern", "asyncio"),
    ],
)
def test_a_peer_that_sends_and_never_reads(what: str, loop: str) -> None:
    with Raw(tool_server(), env={"WIRESPEED_LOOP": loop}) as peer:
        if what != "modern":
            peer.handshake()
        peer.ask(
            modern(0, "tools/call", {"name": "echo", "arguments": {"text": "x"}})
            if what == "modern"
            else call(0, "echo", {"text": "x"})
        )
        before = peer.rss()
        makers: dict[str, Any] = {
            "echo": lambda i: (
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
                b'{"name":"echo","arguments":{"text":"hello"}}}\n' % i
            ),
            "bad": lambda i: b'{"jsonrpc":"1.0","id":%d,"method":"ping"}\n' % i,
            "unknown": lambda i: b'{"jsonrpc":"2.0","id":%d,"method":"nope"}\n' % i,
            "ping": lambda i: b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % i,
            "modern": lambda i: (
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"_meta":{'
                b'"%bprotocolVersion":"2026-07-28","%bclientCapabilities":{}}}}\n'
                % (i, META.encode(), META.encode())
            ),
        }
        # more than two pipes of 256 KiB and twice `output_high` take
        n = 10_000 if what == "modern" else 100_000
        data = memoryview(b"".join(map(makers[what], range(n))))
        try:
            while data:  # until the server takes no more
                data = data[peer.write_some(data, reading=False, seconds=0.5) :]
        except TimeoutError:
            pass
        grown = peer.rss() - before
        assert grown <= 16 * MIB, f"{grown / MIB:.1f} MiB"
        assert data, "the server took everything and nobody read an answer"
        peer.send(bytes(data))
        seen = bytearray(n)
        for i in range(n):
            line = peer.line()
            assert line.startswith(b'{"jsonrpc":"2.0","id":'), line
            assert line.endswith(b"}}"), line
            if i % 50 == 0:
                strict(line)
            seen[int(line[22 : line.index(b",", 22)])] += 1
        assert seen == b"\1" * n
        assert peer.end() == 0


def test_a_peer_that_never_reads_notifications_makes_nothing_grow() -> None:
    with Raw(tool_server(limits={"output_high": 65536, "output_low": 1024})) as peer:
        peer.handshake()
        before = peer.rss()
        lines = [call(i, "report", {"steps": 1000}, progressToken=i) for i in range(20)]
        peer.send(*lines, reading=False)
        peer.send(request("p", "ping"), reading=False)
        got = peer.until("p")
        assert peer.rss() - before <= 16 * MIB
        answered = {m["id"] for m in got if "id" in m} - {"p"}
        for _ in range(20 - len(answered)):
            while "id" not in (message := peer.recv()):
                pass
            answered.add(message["id"])
        assert answered == set(range(20))


def test_descriptors_do_not_leak(connect: Any) -> None:
    connect("2025-06-18").fence()
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with Raw(tool_server()) as peer:
            peer.handshake()
            assert peer.end() == 0
    assert len(os.listdir("/dev/fd")) == before
