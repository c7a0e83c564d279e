"""Events of streams in a SQLite file. They outlive the process, and processes may share the file.

The tables count themselves: triggers keep the number and the bytes of the events of each stream.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from wirespeed._exports import set_public_home
from wirespeed.database import connect, path_of, writing
from wirespeed.peer.http.event_store import OVERHEAD, EventLimits, LimitedEventStore
from wirespeed.transport.loop import Workers

T = TypeVar("T")

VERSION = 1

_TABLES = """
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    stream TEXT NOT NULL,
    n INTEGER NOT NULL,
    at REAL NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (stream, n)
);

CREATE INDEX events_at ON events (at);

CREATE TABLE streams (name TEXT PRIMARY KEY, events INTEGER NOT NULL, size INTEGER NOT NULL);

CREATE TABLE held (size INTEGER NOT NULL);

INSERT INTO held VALUES (0);

CREATE TRIGGER event_kept AFTER INSERT ON events BEGIN
    INSERT INTO streams VALUES (NEW.stream, 1, NEW.size)
        ON CONFLICT (name) DO UPDATE SET events = events + 1, size = size + NEW.size;
    UPDATE held SET size = size + NEW.size;
END;

CREATE TRIGGER event_dropped AFTER DELETE ON events BEGIN
    UPDATE streams SET events = events - 1, size = size - OLD.size WHERE name = OLD.stream;
    DELETE FROM streams WHERE name = OLD.stream AND events = 0;
    UPDATE held SET size = size - OLD.size;
END;
"""


class SQLiteEventStore(LimitedEventStore):
    """Keeps events in a SQLite file on a local disk, in WAL mode.

    Args:
        path: The file, which is made now. Only its owner may read a new file.
        max_bytes, max_stream_bytes, max_stream_events, max_age: See `MemoryEventStore`.
        clock: Returns seconds since 1970.

    Events survive the end of the process, but perhaps not a loss of power. A thread of the store
    does the work.

    Raises:
        OSError, sqlite3.Error: The file cannot be opened.
        ValueError: Another version of this package wrote the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        **limits: Unpack[EventLimits],
    ) -> None:
        super().__init__(**limits)
        self.path = path_of(path, "a SQLiteEventStore")
        self._clock = clock
        self._database: sqlite3.Connection | None = None  # of the thread
        self._thread: Workers | None = None  # from the first use on: a store may outlive a fork
        self._connect().close()

    async def append(self, stream: str, n: int, data: bytes) -> None:
        await self._do(self._append, stream, n, data)

    async def after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        return await self._do(self._after, stream, n)

    async def forget(self, stream: str) -> None:
        await self._do(self._forget, stream)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                await asyncio.wrap_future(thread.submit(self._close))
            finally:
                thread.shutdown()

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        """Run ``work`` in the store's thread, in the order of the calls."""
        if self._thread is None:
            self._thread = Workers(1)
        return await asyncio.wrap_future(self._thread.submit(work, *args))

    # -- in the thread -----------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, tables=_TABLES, version=VERSION, of="event", synchronous="NORMAL")

    @property
    def _db(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = self._connect()
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _append(self, stream: str, n: int, data: bytes) -> None:
        db, now = self._db, self._clock()
        with writing(db):
            db.execute(
                "INSERT INTO events (stream, n, at, size, data) VALUES (?, ?, ?, ?, ?)",
                (stream, n, now, len(data) + OVERHEAD, data),
            )
            db.execute("DELETE FROM events WHERE at <= ?", (now - self.max_age,))
            over = "SELECT 1 FROM streams WHERE name = ? AND (size > ? OR events > ?)"
            bounds = (stream, self.max_stream_bytes, self.max_stream_events)
            while db.execute(over, bounds).fetchone():
                self._drop_oldest("stream = ?", stream)
            while db.execute("SELECT 1 FROM held WHERE size > ?", (self.max_bytes,)).fetchone():
                self._drop_oldest("true")

    def _drop_oldest(self, where: str, *args: Any) -> None:
        self._db.execute(
            "DELETE FROM events WHERE number ="
            f" (SELECT number FROM events WHERE {where} ORDER BY number LIMIT 1)",
            args,
        )

    def _after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        rows: list[tuple[int, bytes]] = self._db.execute(
            "SELECT n, data FROM events WHERE stream = ? AND n >= ? AND at > ? ORDER BY n",
            (stream, n, self._clock() - self.max_age),
        ).fetchall()
        if not rows or rows[0][0] > n + 1:
            return None
        return [(m, data) for m, data in rows if m > n]

    def _forget(self, stream: str) -> None:
        with writing(self._db):
            self._db.execute("DELETE FROM events WHERE stream = ?", (stream,))


set_public_home(globals())
