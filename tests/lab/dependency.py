"""What servers provide in the tests, in every way there is; and a server held alive."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Annotated, Any

from wirespeed import Context, Server
from wirespeed.server.dependencies.provider import Depends


class Database:
    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.open = True


class Session:
    def __init__(self, db: Database) -> None:
        self.db = db


class Settings:
    def __init__(self, debug: bool = True) -> None:
        self.debug = debug


def make_async() -> Awaitable[Database]:
    async def later() -> Database:
        return Database("awaitable")

    return later()


def make_plain() -> Database:
    return Database(f"plain {threading.current_thread() is threading.main_thread()}")


async def make_coroutine() -> Database:
    await asyncio.sleep(0)
    return Database("coroutine")


async def make_async_generator() -> AsyncIterator[Database]:
    yield Database("async generator")


def make_generator() -> Iterator[Database]:
    yield Database(f"generator {threading.current_thread() is threading.main_thread()}")


@contextlib.asynccontextmanager
async def make_async_manager() -> AsyncIterator[Database]:
    yield Database("async manager")


@contextlib.contextmanager
def make_manager() -> Iterator[Database]:
    yield Database(f"manager {threading.current_thread() is threading.main_thread()}")


class Held(contextlib.AbstractAsyncContextManager[Database]):
    async def __aenter__(self) -> Database:
        return Database("held")

    async def __aexit__(self, *exc: object) -> None:
        return None


def make_held() -> contextlib.AbstractAsyncContextManager[Database]:
    return Held()


async def get_db(ctx: Context) -> Database:
    return Database(f"for {ctx.request_id}")


async def get_session(db: Annotated[Database, Depends(get_db)]) -> Session:
    return Session(db)


async def which(db: Database) -> str:
    """A tool."""
    return db.name


async def twice() -> AsyncIterator[Database]:
    yield Database()
    yield Database()


async def never() -> AsyncIterator[Database]:
    if False:
        yield Database()


@contextlib.contextmanager
def served(peer: Any, server: Server | None = None) -> Iterator[Any]:
    """Hold the server alive, as what serves it would."""
    running = (peer.server if server is None else server).running()
    state = peer.run(running.__aenter__())
    try:
        yield state
    finally:
        peer.run(running.__aexit__(None, None, None))
