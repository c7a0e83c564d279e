"""Dependency injection: who gets what, and torn down with the request."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Annotated, Any, NewType

import anyio
import pytest
from lab.dependency import (
    Database,
    Session,
    Settings,
    get_db,
    get_session,
    make_async,
    make_async_generator,
    make_async_manager,
    make_coroutine,
    make_generator,
    make_held,
    make_manager,
    make_plain,
    never,
    served,
    twice,
    which,
)
from lab.raw import call, cancel, request
from lab.server import text_of

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError
from wirespeed.server.dependencies.provider import Depends

WAYS: list[tuple[Any, dict[str, Any], str]] = [
    (make_async, {}, "awaitable"),
    (make_plain, {}, "plain False"),
    (make_plain, {"inline": True}, "plain True"),
    (make_coroutine, {}, "coroutine"),
    (make_async_generator, {}, "async generator"),
    (make_generator, {}, "generator False"),
    (make_generator, {"inline": True}, "generator True"),
    (make_async_manager, {}, "async manager"),
    (make_manager, {}, "manager False"),
    (make_manager, {"inline": True}, "manager True"),
    (make_held, {}, "held"),
    (Database, {}, "main"),
]


def tool_of(peer: Any, name: str) -> Any:
    listed = peer.result(request("list", "tools/list"))["tools"]
    (tool,) = [tool for tool in listed if tool["name"] == name]
    return tool


# -- what is injected -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["request", "connection", "server"])
@pytest.mark.parametrize(("function", "options", "name"), WAYS)
def test_every_way_to_provide_a_value(
    peer: Any, server: Server, function: Any, options: dict[str, Any], name: str, scope: Any
) -> None:
    server.provide(scope=scope, **options)(function)
    server.add_tool(which)
    with served(peer):
        assert text_of(peer.result(call(1, "which"))) == name


def test_what_is_injected_is_no_argument(peer: Any, server: Server) -> None:
    server.provide(make_coroutine)

    @server.tool
    async def rows(table: str, db: Database, ctx: Context, /, *, limit: int = 3) -> str:
        """Count rows.

        Args:
            table: Its name.
            db: The database.
        """
        return f"{table} {limit} {db.name} {ctx.protocol_version}"

    tool = tool_of(peer, "rows")
    assert tool["description"] == "Count rows."
    assert list(tool["inputSchema"]["properties"]) == ["table", "limit"]
    assert tool["inputSchema"]["required"] == ["table"]
    assert tool["inputSchema"]["properties"]["table"]["description"] == "Its name."
    text = text_of(peer.result(call(1, "rows", {"table": "t"})))
    assert text == "t 3 coroutine 2025-06-18"
    text = text_of(peer.result(call(2, "rows", {"table": "t", "limit": 1})))
    assert text == "t 1 coroutine 2025-06-18"


def test_what_a_client_sends_never_takes_the_place(connect: Any, server: Server) -> None:
    server.provide(make_coroutine)
    server.add_tool(which, extra="ignore")
    server.add_tool(which, name="closed")
    peer = connect("2025-06-18")
    sent = {"db": {"name": "evil"}}
    assert text_of(peer.result(call(1, "which", sent))) == "coroutine"
    assert peer.error(call(2, "closed", sent))[1].endswith("unknown argument 'db'")


def test_parameters_may_stand_in_any_order(connect: Any, server: Server) -> None:
    server.provide(make_coroutine)
    server.provide(Settings, inline=True)

    @server.tool
    async def first(
        db: Database, a: int, ctx: Context, b: int, *, settings: Settings, c: int
    ) -> str:
        return f"{db.name} {a} {b} {c} {settings.debug} {ctx.request_id}"

    @server.tool
    async def last(a: int, *, c: int, ctx: Context, db: Database, b: int = 2) -> str:
        return f"{db.name} {a} {b} {c} {ctx.request_id}"

    peer = connect("2025-06-18")
    given = {"a": 1, "b": 2, "c": 3}
    assert text_of(peer.result(call(1, "first", given))) == "coroutine 1 2 3 True 1"
    assert text_of(peer.result(call(2, "last", {"a": 1, "c": 3}))) == "coroutine 1 2 3 2"


def test_every_kind_of_tool_can_take_something(newest_peer: Any, server: Server) -> None:
    server.provide(make_coroutine)
    main = threading.get_ident()

    @server.tool
    def thread(db: Database) -> str:
        return f"{db.name} {threading.get_ident() == main}"

    @server.tool(inline=True)
    def inline(db: Database) -> str:
        return f"{db.name} {threading.get_ident() == main}"

    @server.tool
    def generator(n: int, db: Database) -> Iterator[str]:
        for i in range(n):
            yield f"{db.name} {i}"

    @server.tool
    async def async_generator(n: int, db: Database) -> AsyncIterator[str]:
        for i in range(n):
            yield f"{db.name} {i}"

    @server.tool
    def awaitable(db: Database) -> Awaitable[str]:
        async def later() -> str:
            return db.name

        return later()

    assert text_of(newest_peer.result(call(1, "thread"))) == "coroutine False"
    assert text_of(newest_peer.result(call(2, "inline"))) == "coroutine True"
    for id, name in ((3, "generator"), (4, "async_generator")):
        structured = newest_peer.result(call(id, name, {"n": 2}))["structuredContent"]
        assert structured == {"result": ["coroutine 0", "coroutine 1"]}
    assert text_of(newest_peer.result(call(5, "awaitable"))) == "coroutine"


def test_depends_needs_no_registration_and_gives_one_value(peer: Any, server: Server) -> None:
    @server.tool
    async def same(
        session: Annotated[Session, Depends(get_session)],
        db: Annotated[Database, "described", Depends(get_db)],
    ) -> str:
        return f"{session.db is db} {db.name}"

    assert text_of(peer.result(call(7, "same"))) == "True for 7"
    assert text_of(peer.result(call(8, "same"))) == "True for 8"


def test_depends_as_a_default_is_depends_in_the_annotation(peer: Any, server: Server) -> None:
    def label(db: Database = Depends(get_db), bare=Depends(get_db)) -> str:  # type: ignore[no-untyped-def]  # noqa: B008
        return f"{db is bare} {db.name}"

    @server.tool
    async def same(
        n: int,
        session: Session = Depends(get_session),  # noqa: B008
        db: Annotated[Database, Depends(get_db)] = Database("for callers"),  # noqa: B008
        *,
        said: str = Depends(label),
        times: int = 1,
    ) -> str:
        return f"{n} {session.db is db} {said}" * times

    assert set(tool_of(peer, "same")["inputSchema"]["properties"]) == {"n", "times"}
    assert text_of(peer.result(call(7, "same", {"n": 3}))) == "3 True True for 7"


def test_depends_may_be_the_annotation(peer: Any, server: Server) -> None:
    @server.tool
    async def label(db: Depends(get_db), n: int) -> str:  # type: ignore[valid-type]
        return f"{db.name} {n}"  # type: ignore[attr-defined]

    assert list(server.tools["label"].entry.inputSchema["properties"]) == ["n"]
    with served(peer):
        assert text_of(peer.result(call(7, "label", {"n": 3}))) == "for 7 3"


def test_depends_comes_before_the_context(peer: Any, server: Server) -> None:
    """A parameter gets the value of its `Depends`, also where its type is Context."""

    class Fake:
        request_id = "none"

    def fake() -> Fake:
        return Fake()

    def label(real: Context, ctx: Context = Depends(fake)) -> str:  # noqa: B008
        return f"{ctx.request_id} {real.request_id}"

    @server.tool
    async def both(
        real: Context,
        ctx: Context = Depends(fake),  # noqa: B008
        said: str = Depends(label),
    ) -> str:
        return f"{ctx.request_id} {real.request_id} {said}"

    assert text_of(peer.result(call(7, "both"))) == "none 7 none 7"


def test_depends_of_a_registered_function_is_its_provider(peer: Any, server: Server) -> None:
    server.provide(scope="connection")(make_coroutine)

    @server.tool
    async def same(
        db: Database,
        other: Annotated[Database, Depends(make_coroutine)],
        own: Annotated[Database, Depends(make_coroutine, scope="request")],
    ) -> str:
        return f"{db is other} {db is own}"

    assert text_of(peer.result(call(1, "same"))) == "True False"


def test_types_are_found_through_annotated_none_and_new_types(peer: Any, server: Server) -> None:
    Token = NewType("Token", str)

    def token() -> Token:
        return Token("secret")

    token.__annotations__["return"] = Token
    server.provide(inline=True)(token)
    server.provide(make_coroutine)

    async def look(
        token: Token, db: Annotated[Database, "documented"], maybe: Database | None = None
    ) -> str:
        return f"{token} {db.name} {maybe is db}"

    look.__annotations__["token"] = Token
    server.tool(look)
    assert tool_of(peer, "look")["inputSchema"]["properties"] == {}
    assert text_of(peer.result(call(1, "look"))) == "secret coroutine True"


def test_a_provider_may_take_the_server_and_have_defaults(peer: Any, server: Server) -> None:
    @server.provide(scope="server")
    async def database(server: Server, name: str = "default", *rest: Any) -> Database:
        return Database(f"{server.name} {name}")

    server.add_tool(which)

    with served(peer):
        assert text_of(peer.result(call(1, "which"))) == "lab default"


def test_provides_says_the_type_instead_of_the_annotation(connect: Any, server: Server) -> None:
    class Derived(Database):
        pass

    @server.provide(provides=Database)
    async def unannotated():  # type: ignore[no-untyped-def]
        return Derived("derived")

    @server.tool
    async def which(db: Database) -> str:
        return type(db).__name__

    assert text_of(connect("2025-06-18").result(call(1, "which"))) == "Derived"


# -- the scope of a request -----------------------------------------------------------------------


def test_resources_of_a_request_end_behind_the_handler_in_reverse(
    peer: Any, server: Server
) -> None:
    events: list[str] = []
    tasks: set[Any] = set()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @server.provide
    async def database() -> AsyncIterator[Database]:
        tasks.add(asyncio.current_task())
        variable.set("set")
        async with anyio.create_task_group() as group:  # must end in the task where it began
            events.append("db opened")
            await asyncio.sleep(0)
            yield Database()
            await asyncio.sleep(0)
            group.cancel_scope.cancel()
        events.append("db closed")
        tasks.add(asyncio.current_task())

    @server.provide
    def session(db: Database) -> Iterator[Session]:
        events.append("session opened")
        yield Session(db)
        events.append(f"session closed, db {db.open}")

    @server.tool
    async def use(session: Session, db: Database) -> str:
        tasks.add(asyncio.current_task())
        events.append("handler")
        return f"{session.db is db} {variable.get()}"

    assert text_of(peer.result(call(1, "use"))) == "True set"
    assert events == [
        "db opened",
        "session opened",
        "handler",
        "session closed, db True",
        "db closed",
    ]
    assert len(tasks) == 1


class Open:
    """A database whose end is noted, and a session that ends in one of several ways."""

    def __init__(self, server: Server, how: str) -> None:
        self.how = how
        self.seen: list[str] = []
        server.provide(self.database)
        server.provide(self.session)
        server.add_tool(self.use)

    async def database(self) -> AsyncIterator[Database]:
        try:
            yield Database()
        except (ValueError, OSError) as exc:
            self.seen.append(f"rolled back: {exc}")
        finally:
            self.seen.append("closed")

    async def session(self, db: Database) -> AsyncIterator[Session]:
        if self.how == "cannot be made":
            raise ProtocolError(-31999, "not today", {"db": db.name})
        try:
            yield Session(db)
        except ValueError as exc:
            self.seen.append(f"swallowed: {exc}")
        finally:
            if "cannot close" in self.how:
                raise OSError("cannot close")

    async def use(self, session: Session) -> str:
        if "tool fails" in self.how:
            raise ValueError("no such row")
        return "done"


@pytest.mark.parametrize(
    ("how", "text", "seen", "logged"),
    [
        (
            "tool fails",  # raised at each yield, where it cannot be swallowed
            "no such row",
            ["swallowed: no such row", "rolled back: no such row", "closed"],
            ["tool use failed"],
        ),
        (
            "cannot close",
            "cannot close",
            ["rolled back: cannot close", "closed"],
            ["tool use failed"],
        ),
        (
            "tool fails and cannot close",
            "no such row",
            ["swallowed: no such row", "rolled back: no such row", "closed"],
            ["the teardown of provider", "tool use failed"],
        ),
        ("cannot be made", None, ["closed"], []),
    ],
)
def test_what_was_opened_is_closed_whatever_fails(
    peer: Any, server: Server, caplog: Any, how: str, text: Any, seen: Any, logged: Any
) -> None:
    opened = Open(server, how)
    if text is None:
        assert peer.error(call(1, "use")) == (-31999, "not today")
    else:
        result = peer.result(call(1, "use"))
        assert (result["isError"], text_of(result)) == (True, text)
    assert opened.seen == seen
    assert len(caplog.records) == len(logged)
    for record, words in zip(caplog.records, logged, strict=True):
        assert words in record.getMessage()
        assert "session failed" in record.getMessage() or words == "tool use failed"


@pytest.mark.parametrize("kind", ["handler", "provider"])
def test_a_cancelled_request_tears_down(peer: Any, server: Server, kind: str) -> None:
    events: list[str] = []
    reached = asyncio.Event()

    @server.provide
    async def database() -> AsyncIterator[Database]:
        try:
            yield Database()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    @server.provide
    async def session(db: Database) -> Session:
        if kind == "provider":
            reached.set()
            await asyncio.Event().wait()
        return Session(db)

    @server.tool
    async def wait(session: Session) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    peer.send(call(1, "wait"))
    peer.wait_for(reached.is_set)
    peer.send(cancel(1))
    assert peer.fence() == []  # and no answer
    peer.wait_for(lambda: len(events) == 2)
    assert events == ["cancelled", "closed"]


def test_a_timeout_includes_the_dependencies(peer: Any, server: Server, caplog: Any) -> None:
    closed: list[bool] = []

    @server.provide
    async def database() -> AsyncIterator[Database]:
        try:
            await asyncio.Event().wait()
            yield Database()
        finally:
            closed.append(True)

    @server.tool(timeout=0.01)
    async def use(db: Database) -> str:
        return "never"

    assert text_of(peer.result(call(1, "use"))) == "Tool use timed out after 0.01 s"
    assert closed == [True]


def test_what_a_thread_enters_after_the_cancellation_is_left(peer: Any, server: Server) -> None:
    entered, go_on, left = threading.Event(), threading.Event(), threading.Event()

    @server.provide
    def database() -> Iterator[Database]:
        entered.set()
        assert go_on.wait(20)
        yield Database()
        left.set()

    @server.tool
    async def use(db: Database) -> str:
        return "never"

    peer.send(call(1, "use"))
    peer.wait_for(entered.is_set)
    peer.send(cancel(1))
    assert peer.fence() == []
    go_on.set()
    assert left.wait(20)


def test_a_generator_that_yields_twice_or_never_is_an_error(peer: Any, server: Server) -> None:
    @server.tool
    async def one(db: Annotated[Database, Depends(twice)]) -> str:
        return "one"

    @server.tool
    async def two(db: Annotated[Database, Depends(never)]) -> str:
        return "two"

    assert text_of(peer.result(call(1, "one"))) == "generator didn't stop"
    assert text_of(peer.result(call(2, "two"))) == "generator didn't yield"
