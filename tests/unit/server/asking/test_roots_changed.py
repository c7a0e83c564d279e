"""Handlers of `Server.on_roots_changed` (client/roots, "Root List Changes")."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.raw import CHILDREN, call, initialize, modern, notification, surroundings
from lab.server import LEGACY, LatePeer, Peer
from lab.wording import raises

from wirespeed import Client, Server, Stdio
from wirespeed.types import RootsChange

CHANGED = notification("notifications/roots/list_changed")
DECLARED = {"roots": {"listChanged": True}}


class Heard:
    """A handler that asks for the roots, and notes what it gets."""

    def __init__(self, server: Server) -> None:
        self.begun = 0
        self.got: list[Any] = []
        server.on_roots_changed(self.changed)

    async def changed(self, change: RootsChange) -> None:
        self.begun += 1
        try:
            self.got.append([root.uri for root in await change.roots()])
        except BaseException as exc:
            self.got.append(type(exc).__name__)
            raise


@pytest.fixture
def heard(server: Server) -> Heard:
    return Heard(server)


def joined(
    connect: Any, version: str = "2025-11-25", capabilities: Any = DECLARED, **to: Any
) -> Peer:
    peer: Peer = connect(**to)
    hello = initialize("init", version)
    hello["params"]["capabilities"] = capabilities
    peer.result(hello)
    peer.send(notification("notifications/initialized"))
    return peer


@pytest.fixture
def peer(connect: Any) -> Any:
    return LatePeer(lambda: joined(connect))


def asked(peer: Peer) -> Any:
    """The server asks for the roots: the id of its request."""
    question = peer.recv()
    assert question["method"] == "roots/list"
    return question["id"]


def tell(peer: Peer, id: Any, *uris: str) -> None:
    roots = [{"uri": uri} for uri in uris]
    peer.send({"jsonrpc": "2.0", "id": id, "result": {"roots": roots}})


@pytest.mark.parametrize("version", LEGACY)
def test_a_change_is_heard_and_the_roots_asked(
    version: str, connect: Any, server: Server, heard: Heard
) -> None:
    seen: list[Any] = []

    @server.on_roots_changed
    async def look(change: RootsChange) -> None:
        client = change.client_info
        assert client is not None
        seen.append((change.protocol_version, client["name"], change.client_capabilities))
        seen.append((change.connection_id, change.principal))

    peer = joined(connect, version)
    assert peer.fence() == []
    for n in (1, 2):
        peer.send(CHANGED)
        tell(peer, asked(peer), f"file:///{n}")
        peer.wait_for(lambda n=n: len(seen) == 2 * n)
        assert seen[-2:] == [
            (version, "raw", DECLARED),
            (peer.connection.serial, None),
        ]
    assert heard.got == [["file:///1"], ["file:///2"]]
    assert server.service.roots.being_told == {}


def test_a_client_that_is_gone_before_a_handler_begins_is_forgotten(
    peer: Any, server: Server, heard: Heard
) -> None:
    peer.fence()

    async def in_a_task() -> None:  # where handlers begin one turn later
        server.service.roots.changed(peer.connection)
        assert list(server.service.roots.being_told) == [peer.connection]
        peer.connection.abort()
        await peer.connection.closed
        await asyncio.sleep(0)

    peer.run(in_a_task())
    peer.wait_for(lambda: not server.service.roots.being_told)


def test_changes_that_come_meanwhile_are_one(peer: Any, server: Server, heard: Heard) -> None:
    peer.send(*[CHANGED] * 1000)
    first = asked(peer)
    assert peer.fence() == []
    tell(peer, first, "file:///1")
    tell(peer, asked(peer), "file:///2")
    assert peer.fence() == []
    assert heard.got == [["file:///1"], ["file:///2"]]
    peer.send(CHANGED)  # and it is heard again
    tell(peer, asked(peer))
    assert peer.fence() == []
    assert heard.got[2:] == [[]]


def test_each_client_by_itself(connect: Any, heard: Heard) -> None:
    one, other = joined(connect), joined(connect)
    one.send(CHANGED)
    other.send(CHANGED)
    first, second = asked(one), asked(other)
    tell(other, second, "file:///other")
    other.wait_for(lambda: heard.got)
    tell(one, first, "file:///one")
    one.wait_for(lambda: len(heard.got) == 2)
    assert heard.got == [["file:///other"], ["file:///one"]]


@pytest.mark.parametrize("capabilities", [{}, {"roots": None}, {"roots": 1}])
def test_who_declares_no_roots_is_not_heard(capabilities: Any, connect: Any, heard: Heard) -> None:
    peer = joined(connect, "2025-06-18", capabilities)
    peer.send(CHANGED)
    assert peer.fence() == []
    assert heard.begun == 0


def test_nor_is_anybody_without_a_handshake(connect: Any, heard: Heard) -> None:
    early, current = connect(), connect()
    early.send(CHANGED)
    current.result(modern(1, "tools/list"))
    current.send(CHANGED)
    for peer in (early, current):
        assert peer.fence() == []
    assert heard.begun == 0


def test_without_a_handler_nothing_happens(peer: Any, server: Server) -> None:
    peer.send(CHANGED)
    assert peer.fence() == []


def test_a_plain_handler_runs_in_a_thread_and_cannot_ask(peer: Any, server: Server) -> None:
    seen: list[Any] = []
    done = threading.Event()

    @server.on_roots_changed
    def plain(change: RootsChange) -> None:
        seen.append((threading.current_thread() is threading.main_thread(), change.connection_id))
        try:
            change.roots().send(None)
        except RuntimeError as exc:
            seen.append(str(exc))
        done.set()

    peer.send(CHANGED)
    peer.wait_for(done.is_set)
    assert seen == [
        (False, peer.connection.serial),
        "only the event loop's thread can ask the client: make the handler async",
    ]


def test_the_end_of_the_connection_ends_the_handler(peer: Any, server: Server) -> None:
    notes: list[str] = []

    @server.on_roots_changed
    async def slow(change: RootsChange) -> None:
        notes.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("ended")

    peer.send(CHANGED, CHANGED)
    peer.wait_for(lambda: notes)
    peer.connection.abort()
    peer.wait_for(lambda: not server.service.roots.being_told)
    assert notes == ["begun", "ended"]


def test_a_handler_does_not_hold_a_shutdown(peer: Any, server: Server, heard: Heard) -> None:
    peer.send(CHANGED)
    asked(peer)
    peer.connection.drain()
    peer.wait_for(peer.connection.closed.done)
    peer.wait_for(lambda: not server.service.roots.being_told)
    assert heard.got in (["ConnectionClosed"], ["CancelledError"])


def test_while_the_server_shuts_down_no_change_is_heard(connect: Any, heard: Heard) -> None:
    server, go = heard, asyncio.Event()
    peer = joined(connect)

    async def wait() -> str:
        await go.wait()
        return "done"

    peer.server.add_tool(wait)
    peer.fence()
    peer.send(call(1, "wait"))
    peer.fence()
    peer.connection.drain()
    peer.send(CHANGED, call(2, "wait"))
    assert peer.recv()["error"]["code"] == -31001
    assert server.begun == 0
    go.set()
    assert peer.recv()["id"] == 1


@pytest.mark.parametrize(
    ("answer", "logged"),
    [
        ({"error": {"code": -32603, "message": "no roots"}}, "does not tell its roots: no roots"),
        ({"result": {"roots": 5}}, "does not tell its roots: "),
    ],
)
def test_a_client_that_does_not_tell(
    answer: Any, logged: str, peer: Any, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    peer.send(CHANGED)
    peer.send({"jsonrpc": "2.0", "id": asked(peer), **answer})
    assert peer.fence() == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert logged in record.getMessage()
    peer.send(CHANGED)
    tell(peer, asked(peer), "file:///1")
    peer.wait_for(lambda: len(heard.got) == 2)


def test_a_handler_that_fails_is_logged_and_the_next_one_called(
    peer: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.on_roots_changed
    async def fails(change: RootsChange) -> None:
        raise LookupError("own words")

    heard = Heard(server)
    peer.send(CHANGED)
    tell(peer, asked(peer), "file:///1")
    peer.wait_for(lambda: heard.got)
    assert "a handler of changed roots failed" in caplog.text
    assert "own words" in caplog.text


def test_a_mounted_server_hears_of_the_clients_of_the_other(connect: Any, runner: Any) -> None:
    outer, inner = Server("outer"), Server("inner", lifespan=lifespan)
    seen: list[Any] = []

    @inner.on_roots_changed
    async def changed(change: RootsChange) -> None:
        roots = await change.roots()
        seen.append((change.lifespan_state, [root.uri for root in roots]))

    outer.mount("in", inner)
    peer = joined(connect, to=outer)

    async def alive() -> None:
        async with outer.running():
            peer.send(CHANGED)
            question = await peer.next_line()
            assert b"roots/list" in question
            tell(peer, 1, "file:///1")
            while not seen:
                await asyncio.sleep(0)

    peer.run(alive())
    assert seen == [("alive", ["file:///1"])]


async def lifespan(server: Server) -> AsyncIterator[str]:
    yield "alive"


def test_a_handler_must_be_callable(server: Server) -> None:
    with raises(TypeError):
        server.on_roots_changed("x")  # type: ignore[type-var]


# -- with the package's own client ----------------------------------------------------------------


def test_a_client_in_memory(run: Any, server: Server, heard: Heard) -> None:
    async def main() -> None:
        async with Client(server, era="legacy", roots=["file:///a"]) as client:
            await client.add_root("file:///b")
            while not heard.got:
                await asyncio.sleep(0)
            await client.remove_root("file:///a")
            while len(heard.got) < 2:
                await asyncio.sleep(0)
        assert heard.got == [["file:///a", "file:///b"], ["file:///b"]]

    run(main())


def test_a_client_over_stdio(run: Any) -> None:
    async def main() -> None:
        target = Stdio(sys.executable, [str(CHILDREN / "roots_server.py")], env=surroundings())
        async with Client(target, era="legacy", roots=["file:///a"]) as client:
            for uris in (["file:///a", "file:///b"], ["file:///a", "file:///b", "file:///c"]):
                await client.add_root(uris[-1])
                assert (await client.call_tool("next_change")).structured_content == {
                    "result": uris
                }

    run(main())
