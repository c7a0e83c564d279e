"""Dependency injection: what lives as long as a connection or a server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from lab.dependency import Database, Session, Settings, make_coroutine, served, which
from lab.raw import call, cancel, modern, request
from lab.server import text_of

from wirespeed import Server
from wirespeed.server.dependencies import scope as scopes

pytestmark = pytest.mark.smoke


class Counted:
    """Makes databases, numbered, when it is let."""

    def __init__(self) -> None:
        self.n = 0
        self.events: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def database(self) -> AsyncIterator[Database]:
        self.n += 1
        name = f"db {self.n}"
        self.events.append(f"opening {name}")
        await self.gate.wait()
        try:
            yield Database(name)
        finally:
            await asyncio.sleep(0)
            self.events.append(f"closed {name}")


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_the_value_of_a_connection_is_made_once_and_ends_with_it(
    connect: Any, server: Server, counted: Counted, version: str
) -> None:
    server.provide(scope="connection")(counted.database)
    server.add_tool(which)

    make = call if version != "2026-07-28" else _modern_call
    one = connect(None if version == "2026-07-28" else version)
    other = connect(None if version == "2026-07-28" else version)
    assert [text_of(one.result(make(i, "which"))) for i in range(3)] == ["db 1"] * 3
    assert text_of(other.result(make(1, "which"))) == "db 2"
    one.end_input()
    one.wait_for(lambda: "closed db 1" in counted.events)
    assert text_of(other.result(make(2, "which"))) == "db 2"
    other.end_input()
    other.wait_for(lambda: "closed db 2" in counted.events)


def _modern_call(id: Any, name: str) -> Any:
    return modern(id, "tools/call", {"name": name})


@pytest.mark.parametrize("scope", ["connection", "server"])
def test_many_who_want_a_value_at_once_share_one(
    peer: Any, server: Server, counted: Counted, scope: Any
) -> None:
    server.provide(scope=scope)(counted.database)
    counted.gate.clear()
    server.add_tool(which)

    with served(peer):
        peer.send(*(call(i, "which") for i in range(20)), cancel(0))
        peer.wait_for(lambda: counted.events)
        assert peer.fence() == []
        counted.gate.set()
        answers = peer.answers(*range(1, 20))
        assert {text_of(answer["result"]) for answer in answers.values()} == {"db 1"}


def test_whoever_comes_first_may_be_cancelled(peer: Any, server: Server, counted: Counted) -> None:
    server.provide(scope="connection")(counted.database)
    counted.gate.clear()
    server.add_tool(which)

    peer.send(call(1, "which"))
    peer.wait_for(lambda: counted.events)
    peer.send(cancel(1), call(2, "which"))
    assert peer.fence() == []
    counted.gate.set()
    assert text_of(peer.recv()["result"]) == "db 1"


def test_a_failure_is_for_all_who_wait_and_is_not_kept(peer: Any, server: Server) -> None:
    gate = asyncio.Event()
    tries: list[int] = []

    @server.provide(scope="connection")
    async def database() -> Database:
        tries.append(1)
        if len(tries) == 1:
            await gate.wait()
            raise OSError("no route")
        return Database("second")

    server.add_tool(which)

    peer.send(call(1, "which"), call(2, "which"))
    peer.wait_for(lambda: tries)
    gate.set()
    for answer in peer.answers(1, 2).values():
        assert text_of(answer["result"]) == "no route"
    assert text_of(peer.result(call(3, "which"))) == "second"
    assert len(tries) == 2


def test_values_of_a_server_end_with_it_in_reverse_order(
    connect: Any, server: Server, counted: Counted
) -> None:
    server.provide(scope="server")(counted.database)

    @server.provide(scope="connection")
    async def session(db: Database) -> AsyncIterator[Session]:
        yield Session(db)
        counted.events.append(f"session closed, {db.name} {len(counted.events)}")

    @server.tool
    async def which(session: Session, db: Database) -> str:
        return f"{session.db is db} {db.name}"

    one, other = connect("2025-06-18"), connect("2025-06-18")
    with served(one):
        assert text_of(one.result(call(1, "which"))) == "True db 1"
        assert text_of(other.result(call(1, "which"))) == "True db 1"
        one.end_input()
        one.wait_for(lambda: len(counted.events) == 2)
        other.end_input()
    assert counted.events == [
        "opening db 1",
        "session closed, db 1 1",
        "session closed, db 1 2",
        "closed db 1",
    ]


def test_a_group_of_tasks_may_live_in_a_wide_resource(peer: Any, server: Server) -> None:
    ticks: list[int] = []

    @server.provide(scope="connection")
    async def database() -> AsyncIterator[Database]:
        async with asyncio.TaskGroup() as group:
            ticker = group.create_task(tick())
            async with anyio.create_task_group() as inner:
                yield Database("ticking")
                inner.cancel_scope.cancel()
            ticker.cancel()
        ticks.append(-1)

    async def tick() -> None:
        while True:
            ticks.append(len(ticks))
            await asyncio.sleep(0)

    @server.tool
    async def which(db: Database) -> str:
        await asyncio.sleep(0)
        return db.name

    assert text_of(peer.result(call(1, "which"))) == "ticking"
    assert ticks
    peer.end_input()
    peer.wait_for(lambda: ticks[-1] == -1)


def test_a_wide_resource_that_ends_early_is_made_again(
    peer: Any, server: Server, caplog: Any
) -> None:
    breaks: list[asyncio.Event] = []

    @server.provide(scope="connection")
    async def database() -> AsyncIterator[Database]:
        broken = asyncio.Event()
        breaks.append(broken)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch(broken))
            yield Database(f"db {len(breaks)}")
            watching.cancel()

    async def watch(broken: asyncio.Event) -> None:
        await broken.wait()
        raise OSError("the line is broken")

    server.add_tool(which)

    assert text_of(peer.result(call(1, "which"))) == "db 1"
    breaks[0].set()
    peer.wait_for(lambda: caplog.records)
    (record,) = caplog.records
    assert "ended early" in record.getMessage()
    assert text_of(peer.result(call(2, "which"))) == "db 2"


def test_context_variables_of_a_request_do_not_reach_what_outlives_it(
    peer: Any, server: Server
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @server.provide
    async def settings() -> Settings:
        variable.set("of a request")
        return Settings()

    @server.provide(scope="connection")
    async def database() -> Database:
        return Database(variable.get())

    @server.tool
    async def which(settings: Settings, db: Database) -> str:
        return f"{variable.get()}, {db.name}"

    assert text_of(peer.result(call(1, "which"))) == "of a request, unset"


def test_handlers_that_are_cancelled_with_their_connection_still_have_its_values(
    peer: Any, server: Server, counted: Counted
) -> None:
    server.provide(scope="connection")(counted.database)
    started = asyncio.Event()

    @server.tool
    async def wait(db: Database) -> str:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            counted.events.append(f"handler ended with {db.name}")
        return "never"

    peer.send(call(1, "wait"))
    peer.wait_for(started.is_set)
    peer.connection.abort()
    peer.wait_for(lambda: len(counted.events) == 3)
    assert counted.events == ["opening db 1", "handler ended with db 1", "closed db 1"]


def test_a_teardown_that_fails_in_a_wider_scope_is_logged_and_the_rest_goes_on(
    peer: Any, server: Server, counted: Counted, caplog: Any
) -> None:
    server.provide(scope="connection")(counted.database)

    @server.provide(scope="connection")
    async def session(db: Database) -> AsyncIterator[Session]:
        yield Session(db)
        raise OSError("cannot say goodbye")

    @server.tool
    async def which(session: Session) -> str:
        return session.db.name

    assert text_of(peer.result(call(1, "which"))) == "db 1"
    peer.end_input()
    peer.wait_for(lambda: "closed db 1" in counted.events)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the teardown of provider" in record.getMessage()


def test_a_teardown_of_a_connection_has_a_time_limit(connect: Any, caplog: Any) -> None:
    server = Server("hasty", shutdown_grace=0.01)
    ended: list[str] = []

    @server.provide(scope="connection")
    async def database() -> AsyncIterator[Database]:
        yield Database()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    server.add_tool(which)

    peer = connect("2025-06-18", to=server)
    assert text_of(peer.result(call(1, "which"))) == "main"
    peer.end_input()
    peer.wait_for(lambda: ended)
    assert "took more than 0.01 s" in caplog.text


def test_a_value_of_the_server_wants_it_to_be_served(peer: Any, server: Server) -> None:
    server.provide(scope="server")(make_coroutine)
    server.add_tool(which)
    text = text_of(peer.result(call(1, "which")))
    assert "is not served, so it has no values of scope 'server'" in text
    assert "server.running()" in text


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_that_goes_on_as_a_task_keeps_the_values_of_its_connection(
    connect: Any, server: Server, counted: Counted, monkeypatch: Any, cancelled: bool
) -> None:
    """Until the task is cancelled: a handler that ignores this gets as long as any other."""
    monkeypatch.setattr(scopes, "LAST_WAIT", 0.0)
    server.provide(scope="connection")(counted.database)
    go = asyncio.Event()

    @server.tool(task="required")
    async def work(db: Database) -> str:
        counted.events.append("begun")
        with contextlib.suppress(asyncio.CancelledError):
            await go.wait()
        await go.wait()
        counted.events.append(f"worked with {db.name}")
        return "done"

    peer = connect("2025-11-25")
    params = {"name": "work", "arguments": {}, "task": {}}
    task = peer.result(request(1, "tools/call", params))["task"]
    peer.wait_for(lambda: "begun" in counted.events)
    if cancelled:
        peer.send(request(2, "tasks/cancel", {"taskId": task["taskId"]}))
        assert peer.recv()["params"]["status"] == "cancelled"
        assert peer.recv()["result"]["status"] == "cancelled"
    peer.connection.abort()
    dependencies = server.service.dependencies
    assert dependencies is not None
    peer.wait_for(lambda: dependencies.endings)
    for _ in range(50):  # more than what a handler gets that was cancelled
        peer.run(asyncio.sleep(0))
    assert ("closed db 1" in counted.events) == cancelled
    go.set()
    last = ["closed db 1", "worked with db 1"] if cancelled else ["worked with db 1", "closed db 1"]
    peer.wait_for(lambda: len(counted.events) == 4)
    assert counted.events == ["opening db 1", "begun", *last]
