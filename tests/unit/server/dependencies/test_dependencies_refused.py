"""Dependencies that cannot be provided: said at registration, or when the server starts."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from lab.dependency import Database, Session, Settings, get_db, make_coroutine, make_plain, served
from lab.wording import raises

from wirespeed import Server
from wirespeed.errors import DependencyError, SignatureError, StartupError
from wirespeed.server.dependencies.provider import Depends


def takes_database(db: Database) -> str:
    return db.name


def takes_session(session: Session) -> str:
    return session.db.name


def refused(work: Any) -> str:
    with pytest.raises(DependencyError) as caught:
        work()
    return str(caught.value)


async def settings_of_session(session: Session) -> Settings:
    return Settings()


async def session_of_settings(settings: Settings) -> Session:
    return Session(Database())


async def session_of_database(db: Database) -> Session:
    return Session(db)


def test_a_cycle_is_refused_at_registration(server: Server) -> None:
    server.provide(settings_of_session)
    server.provide(session_of_settings)
    text = refused(lambda: server.add_tool(takes_session))
    assert "parameter 'session': a cycle: provider session_of_settings takes from" in text
    assert text.count("session_of_settings") == 2
    assert "takes_session" not in server.tools


def test_a_missing_provider_is_said_at_registration(server: Server) -> None:
    server.provide(session_of_database)
    text = refused(lambda: server.add_tool(takes_session))
    assert "tool 'takes_session'" in text
    assert "provider session_of_database: parameter 'db': nothing provides Database" in text


def test_a_type_that_is_no_argument_and_that_nothing_provides(server: Server) -> None:
    server.provide(make_coroutine)
    with raises(SignatureError):
        server.add_tool(takes_session)


def test_what_nothing_takes_is_looked_at_when_the_server_starts(peer: Any, server: Server) -> None:
    server.provide(session_of_database)
    with raises(StartupError), served(peer):
        pass
    assert server.service.life is None


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("connection", "request"), ("server", "request"), ("server", "connection")],
)
def test_a_wider_scope_cannot_take_from_a_narrower(server: Server, wide: Any, narrow: Any) -> None:
    server.provide(scope=narrow)(make_coroutine)
    server.provide(scope=wide)(session_of_database)
    text = refused(lambda: server.add_tool(takes_session))
    assert f"a value of scope {wide} cannot use one of scope {narrow}" in text
    assert "provider make_coroutine" in text


def test_only_requests_have_a_context(server: Server) -> None:
    server.provide(scope="connection")(get_db)
    text = refused(lambda: server.add_tool(takes_database))
    assert "cannot use one of scope request (the context of a request)" in text


def test_an_annotation_without_its_function_says_what_to_write(server: Server) -> None:
    def takes(db: Depends) -> str:  # type: ignore[valid-type]
        return ""

    assert refused(lambda: server.add_tool(takes)).endswith(
        "parameter 'db': write db: T = Depends(f)"
    )


def test_two_providers_of_one_type_are_refused(server: Server) -> None:
    server.provide(make_coroutine)
    text = refused(lambda: server.provide(make_plain))
    assert text == "provider make_plain: provider make_coroutine provides Database already"


def no_annotation():  # type: ignore[no-untyped-def]
    return Database()


def gives_text() -> str:
    return "text"


def gives_list() -> list[Database]:
    return []


def gives_either() -> Database | Session:
    return Database()


def gives_server() -> Server:
    return Server("other")


def gives_odd() -> Database:
    yield Database()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_annotation, "what it provides is not known"),
        (gives_text, "that is an argument's type"),
        (gives_list, "that is an argument's type"),
        (gives_either, "one of several types"),
        (gives_server, "every function can take that anyway"),
        (gives_odd, "a generator returns an Iterator, not Database"),
        (Database(), "cannot be called"),
    ],
)
def test_what_cannot_provide_is_refused(server: Server, function: Any, why: str) -> None:
    assert why in refused(lambda: server.provide(function))


def test_a_scope_has_one_of_three_names(server: Server) -> None:
    wrong: Any = "session"
    assert "request, connection, server" in refused(
        lambda: server.provide(scope=wrong)(make_coroutine)
    )
    assert "not 'session'" in refused(lambda: Depends(get_db, scope=wrong))


def test_providers_come_first(server: Server) -> None:
    @server.tool
    async def takes(point: Point) -> str:
        return "an argument"

    text = refused(lambda: server.provide(make_point))
    assert "tool 'takes' takes Point as an argument" in text


def test_a_registered_function_comes_before_depends_of_it(server: Server) -> None:
    @server.tool
    async def takes(db: Annotated[Database, Depends(make_coroutine)]) -> str:
        return db.name

    assert "taken already by Depends" in refused(lambda: server.provide(make_coroutine))


def test_two_depends_of_one_parameter_are_refused(server: Server) -> None:
    async def annotated(db: Annotated[Database, Depends(get_db), Depends(make_coroutine)]) -> str:
        return db.name

    async def default(db: Annotated[Database, Depends(get_db)] = Depends(get_db)) -> str:  # noqa: B008
        return db.name

    for takes in (annotated, default):
        assert "'db': more than one Depends" in refused(lambda f=takes: server.add_tool(f))


class Point(msgspec.Struct):
    x: int = 0


def make_point() -> Point:
    return Point()


def skips_one(name: str = "", db: Database = Database(), /) -> Session:  # noqa: B008
    return Session(db)


def test_positional_parameters_leave_no_gap(server: Server) -> None:
    server.provide(make_coroutine)
    server.provide(skips_one)
    assert "it is positional only, behind one with a default" in refused(
        lambda: server.add_tool(takes_session)
    )


def needs_a_word(word) -> Session:  # type: ignore[no-untyped-def]
    return Session(word)


def test_every_parameter_of_a_provider_comes_from_somewhere(server: Server) -> None:
    server.provide(needs_a_word)
    text = refused(lambda: server.add_tool(takes_session))
    assert "parameter 'word': it has no annotation, and it has no default" in text
