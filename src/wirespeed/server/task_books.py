"""The tasks of one server in this process: a book for each event loop, and the store they share.

A server may run on several event loops at once, each in its own thread (every `SyncClient` of a
server in this process has one). What works, waits and listens belongs to one loop, so each has a
`TaskBook`; the store is opened by the first book that needs it and closed with the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from wirespeed.server.task_book import TaskBook
from wirespeed.tasks.store import TaskStore

logger = logging.getLogger("wirespeed.server")


class TaskSettings(msgspec.Struct, frozen=True):
    """How long tasks live and how often they are to be asked for; milliseconds.

    Attributes:
        ttl: Of a task whose client wishes nothing; None for no end.
        max_ttl: The longest that a client may wish for; None for any.
        poll: What clients are told to let pass between two looks.
    """

    ttl: int | None
    max_ttl: int | None
    poll: int

    def lifetime(self, wished: float | None) -> int | None:
        """The time to live of a task whose client wishes for so many milliseconds."""
        ttl = self.ttl if wished is None else max(1, int(min(wished, 1 << 52)))
        if self.max_ttl is None:
            return ttl
        return self.max_ttl if ttl is None else min(ttl, self.max_ttl)


class TaskBooks:
    """How a server keeps its tasks. Its methods may be called from any thread.

    Attributes:
        store: What keeps them.
        settings: How long they live.
    """

    def __init__(self, store: TaskStore, settings: TaskSettings) -> None:
        self.store = store
        self.settings = settings
        self._books: dict[asyncio.AbstractEventLoop, TaskBook] = {}
        self._sending: dict[tuple[str, str], object] = {}  # questions on their way to a client
        self._guard = threading.Lock()
        self._holders: set[TaskBook] = set()  # that have the store open
        self._moving: Future[None] | None = None  # done when the store was opened or closed

    def of(self, loop: asyncio.AbstractEventLoop) -> TaskBook:
        """The book of an event loop, begun now if there is none. To be called in its thread."""
        book = self._books.get(loop)
        if book is None:
            for other in list(self._books):
                if other.is_closed():  # nothing can be ended there any more
                    self._books.pop(other, None)
            book = self._books[loop] = TaskBook(self, loop)
        return book

    def elsewhere(self, book: TaskBook, work: Callable[[TaskBook], object]) -> None:
        """Do something with each other book, on its loop."""
        if len(self._books) > 1:
            for other in list(self._books.values()):
                if other is not book:
                    with contextlib.suppress(RuntimeError):  # its loop was closed
                        other.loop.call_soon_threadsafe(work, other)

    async def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what works on the running loop, and close the store unless others use it."""
        book = self._books.get(loop)
        if book is not None:
            await book.close()
            self._books.pop(loop, None)

    # -- the store -------------------------------------------------------------------------------

    async def hold(self, book: TaskBook) -> None:
        """Have the store open until `release`. Raises what `TaskStore.open` does; the next one who
        wants it open has it tried again."""
        while True:
            with self._guard:
                self._holders -= {other for other in self._holders if other.loop.is_closed()}
                if self._moving is None and self._holders:
                    self._holders.add(book)
                    return
                mine, moving = self._moving is None, self._moving or Future()
                self._moving = moving
            if mine:
                break
            await asyncio.shield(asyncio.wrap_future(moving))
        try:
            await self.store.open()
            with self._guard:
                self._holders.add(book)
        finally:
            self._moved(moving)

    async def release(self, book: TaskBook) -> None:
        """Need the store no longer; what fails when the last one closes it is logged."""
        with self._guard:
            if book not in self._holders:
                return
            self._holders.discard(book)
            if any(not other.loop.is_closed() for other in self._holders):
                return
            moving = self._moving = Future()
        try:
            await self.store.close()
        except Exception:
            logger.exception("the store of tasks failed")
        finally:
            self._moved(moving)

    def _moved(self, moving: Future[None]) -> None:
        with self._guard:
            self._moving = None
        moving.set_result(None)

    # -- questions that go out as requests ---------------------------------------------------------

    def claim(self, task_id: str, key: str) -> bool:
        """Whether the caller is the one to send this question to a client; `unclaim` it then."""
        mine = object()
        return self._sending.setdefault((task_id, key), mine) is mine

    def unclaim(self, task_id: str, key: str) -> None:
        """Let somebody else send it, unless it was answered."""
        self._sending.pop((task_id, key), None)
