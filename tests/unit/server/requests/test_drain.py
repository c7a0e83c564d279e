"""A server that shuts down: what was asked in time is answered, and for that it listens on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.questions import ROOTS, enter, reply
from lab.raw import call, cancel, encode, modern, notification, request
from lab.server import text_of

from wirespeed import Context, Server
from wirespeed.limits import Limits

pytestmark = pytest.mark.compiled

REFUSED = {"code": -31001, "message": "The server is shutting down"}


class Held:
    """Tools that wait until they are let go, or for their client."""

    def __init__(self, **options: Any) -> None:
        self.go = asyncio.Event()
        self.notes: list[str] = []
        self.server = Server("held", shutdown_grace=60, **options)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.ask)
        self.server.add_tool(self.late)

    async def wait(self) -> str:
        self.notes.append("began")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            raise
        return "done"

    async def ask(self, ctx: Context) -> str:
        return (await ctx.roots())[0].uri

    async def late(self, ctx: Context) -> str:
        await self.go.wait()
        return await self.ask(ctx)

    def draining(self, peer: Any, *messages: Any) -> Any:
        """The peer, once the calls have begun and the server shuts down."""
        peer.send(*messages or [call(1, "wait")])
        peer.fence()
        peer.connection.drain()
        return peer


@pytest.fixture
def held() -> Held:
    return Held()


def closed(peer: Any) -> bool:
    done: bool = peer.connection.closed.done()
    return done


def test_an_answer_to_a_question_is_read(connect: Any, held: Held) -> None:
    peer = enter(lambda: connect(to=held.server), "2025-06-18")
    question = peer.ask(call(1, "ask"))
    peer.connection.drain()
    peer.send(reply(question, ROOTS))
    assert text_of(peer.recv()["result"]) == "file:///a"
    peer.wait_for(lambda: closed(peer))


def test_a_question_may_be_asked_even_then(connect: Any, held: Held) -> None:
    peer = held.draining(enter(lambda: connect(to=held.server), "2025-06-18"), call(1, "late"))
    held.go.set()
    question = peer.recv()
    peer.send(reply(question, ROOTS))
    assert text_of(peer.recv()["result"]) == "file:///a"


def test_a_cancellation_is_read(connect: Any, held: Held) -> None:
    peer = held.draining(connect("2025-06-18", to=held.server))
    peer.send(cancel(1))
    peer.wait_for(lambda: closed(peer))
    assert held.notes == ["began", "cancelled"]


@pytest.mark.parametrize("method", ["tools/list", "ping", "nope"])
def test_a_request_that_still_comes_is_refused(method: str, connect: Any, held: Held) -> None:
    peer = held.draining(connect("2025-06-18", to=held.server))
    for id in (2, 3):
        assert peer.ask(request(id, method)) == {"jsonrpc": "2.0", "id": id, "error": REFUSED}
    assert peer.error(call(1, "wait"))[0] == -32600  # that one is in flight
    held.go.set()
    assert text_of(peer.recv()["result"]) == "done"
    peer.wait_for(lambda: closed(peer))
    assert peer.connection.session.counters["refused"] == 2


def test_modern_requests_too(connect: Any, held: Held) -> None:
    peer = connect(to=held.server)
    peer.send(modern(1, "tools/call", {"name": "wait"}))
    peer.wait_for(lambda: held.notes)
    peer.connection.drain()
    assert peer.ask(modern(2, "tools/list"))["error"] == REFUSED
    held.go.set()
    assert text_of(peer.recv()["result"]) == "done"


def test_those_of_a_batch_are_refused_together(connect: Any, held: Held) -> None:
    peer = held.draining(connect("2025-03-26", to=held.server))
    batch = [request(2, "ping"), notification("notifications/x"), call(3, "wait")]
    assert peer.ask(batch) == [
        {"jsonrpc": "2.0", "id": 2, "error": REFUSED},
        {"jsonrpc": "2.0", "id": 3, "error": REFUSED},
    ]
    held.go.set()
    assert text_of(peer.recv()["result"]) == "done"


def test_what_waited_for_room_came_in_time(connect: Any) -> None:
    held = Held(limits=Limits(max_in_flight=1))
    peer = held.draining(
        connect("2025-06-18", to=held.server), *(call(i, "wait") for i in range(3))
    )
    assert peer.ask(call(3, "wait"))["error"] == REFUSED
    held.go.set()
    got = peer.answers(0, 1, 2)
    assert [text_of(got[id]["result"]) for id in range(3)] == ["done"] * 3
    peer.wait_for(lambda: closed(peer))


def test_refusals_do_not_pile_up(connect: Any) -> None:
    """A client that goes on asking and reads nothing is not read on."""
    held = Held(limits=Limits(output_high=65536, output_low=1024))
    peer = held.draining(connect("2025-06-18", to=held.server), call("w", "wait"))
    n = 6000
    peer.send(b"".join(encode(request(i, "tools/list")) for i in range(n)))
    session = peer.connection.session
    peer.wait_for(lambda: not session.want_read)
    assert session.counters["bytes_queued"] < 4 * 65536
    for i in range(n):
        assert peer.recv() == {"jsonrpc": "2.0", "id": i, "error": REFUSED}
    held.go.set()
    assert text_of(peer.recv()["result"]) == "done"
    peer.wait_for(lambda: closed(peer))


def test_with_nothing_under_way_it_ends_at_once(connect: Any, held: Held) -> None:
    peer = connect("2025-06-18", to=held.server)
    peer.fence()
    peer.connection.drain()
    assert closed(peer)


def test_who_leaves_meanwhile_answers_no_question(connect: Any, held: Held) -> None:
    peer = enter(lambda: connect(to=held.server), "2025-06-18")
    peer.ask(call(1, "ask"))
    peer.connection.drain()
    peer.end_input()
    assert text_of(peer.recv()["result"]) == "the client is gone"
    peer.wait_for(lambda: closed(peer))


def test_a_question_to_a_client_that_has_left_fails_at_once(connect: Any, held: Held) -> None:
    peer = enter(lambda: connect(to=held.server), "2025-06-18")
    peer.send(call(1, "late"))
    peer.fence()
    peer.end_input()
    peer.wait_for(lambda: peer.connection.draining)
    held.go.set()
    assert text_of(peer.recv()["result"]) == "the client is gone"
    peer.wait_for(lambda: closed(peer))


def test_a_subscription_that_was_held_up_is_refused(connect: Any, held: Held) -> None:
    came = asyncio.Event()

    @held.server.add_middleware
    async def slow(request: Any, call_next: Any) -> Any:
        came.set()
        await held.go.wait()
        return await call_next(request)

    peer = connect(to=held.server)
    peer.send(modern(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    peer.wait_for(came.is_set)
    peer.connection.drain()
    held.go.set()
    assert peer.recv()["error"] == REFUSED
    peer.wait_for(lambda: closed(peer))
    assert peer.connection.listens == {}
