"""Tasks in a SQLite file. They outlive the process, and several processes may share the file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.database import connect, path_of, writing
from wirespeed.tasks.model import Task, TaskLimit
from wirespeed.tasks.store import SMALL, Page, StoreLimits, TaskStore, interrupted, now_ms
from wirespeed.transport.loop import Workers

T = TypeVar("T")

SCHEMA = 3

_TABLES = """
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner BLOB NOT NULL,
    expires INTEGER,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    runner TEXT,
    ended INTEGER,
    body BLOB NOT NULL
);

CREATE INDEX tasks_owner ON tasks (owner, number);

CREATE INDEX tasks_expires ON tasks (expires) WHERE expires IS NOT NULL;

CREATE INDEX tasks_runner ON tasks (runner) WHERE runner IS NOT NULL;

CREATE INDEX tasks_size ON tasks (size) WHERE size > 0;

CREATE INDEX tasks_ended ON tasks (ended, number) WHERE ended IS NOT NULL;

CREATE TABLE secret (value BLOB NOT NULL);
"""
# runner: the open store whose process works on the task. ended: when the task ended, in
# milliseconds since 1970. One of the two is NULL.

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Task).decode


class SQLiteTaskStore(TaskStore):
    """Keeps tasks in a SQLite file on a local disk, in WAL mode.

    Args:
        path: The file. Only its owner may read a new file. SQLite's own files, and one lock file
            for each open store, are in the same folder.
        durable: Whether changes also survive a loss of power (``synchronous = FULL``). Changes
            always survive the end of the process, also by SIGKILL.
        max_tasks, max_tasks_per_owner, max_bytes: See `TaskStore`.

    Each open store is a runner: its process works on the tasks that the store created. A runner
    holds a lock on a file of its own. The system releases the lock when the process ends, also by
    SIGKILL. The next `open` or `expire` in any process finds the lock free, and marks the
    unfinished tasks of this runner as failed.

    The file holds no principal: the owner of a task is an HMAC-SHA256 of the principal's digest,
    with a key that is random for each file.
    """

    shared = True

    def __init__(
        self, path: str | os.PathLike[str], *, durable: bool = True, **limits: Unpack[StoreLimits]
    ) -> None:
        super().__init__(**limits)
        self.path = path_of(path, "a SQLiteTaskStore")
        self._synchronous = "FULL" if durable else "NORMAL"
        self._runner = ""  # from `open` on: a store may be created before a fork
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None
        self._secret = b""  # from `open` on
        self._thread: Workers | None = None  # runs all work, one job after the other

    async def open(self) -> None:
        """OSError, sqlite3.Error: the file cannot be opened. ValueError: another version of this
        package wrote it."""
        if self._thread is None:
            self._thread = Workers(1)
            try:
                await self._do(self._open)
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(thread, self._close)
            finally:
                thread.shutdown()

    def owner_of(self, principal: bytes) -> bytes:
        return hmac.digest(self._secret, principal, "sha256")

    async def create(self, task: Task) -> None:
        await self._do(self._create, task)

    async def get(self, task_id: str) -> Task | None:
        return await self._do(self._get, task_id)

    async def replace(self, old: Task, new: Task) -> bool:
        return await self._do(self._replace, old, new)

    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        return await self._do(self._page, owner, after, limit)

    async def delete(self, task_id: str) -> bool:
        return await self._do(self._delete, task_id)

    async def expire(self, now: int) -> list[str]:
        """Forget expired tasks, and mark the unfinished tasks of dead runners as failed."""
        return await self._do(self._expire, now)

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        """Run ``work`` in the store's thread, in the order of the calls. RuntimeError: the store is
        not open."""
        if self._thread is None:
            raise RuntimeError(f"the task store {self.path} is not open")
        return await asyncio.wrap_future(self._thread.submit(work, *args))

    # -- in the thread -----------------------------------------------------------------------------

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    def _open(self) -> None:
        database = connect(
            self.path, tables=_TABLES, version=SCHEMA, of="task", synchronous=self._synchronous
        )
        try:
            with writing(database):  # the process that made the tables may have ended before this
                database.execute(
                    "INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)",
                    (os.urandom(32),),
                )
            self._secret = database.execute("SELECT value FROM secret").fetchone()[0]
            self._runner = os.urandom(8).hex()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(self._lock_path(self._runner), flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._database = database
            self._fail_abandoned()
        except BaseException:
            self._database = None
            self._unlock()
            database.close()
            raise

    def _close(self) -> None:
        """Fail the unfinished tasks of this runner, then close the file."""
        if self._database is None:
            return  # the file could not be opened
        try:
            with writing(self._db):
                self._fail_tasks_of(self._runner)
            self._db.close()
        finally:
            self._database = None
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock_path(self._runner).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _lock_path(self, runner: str) -> Path:
        return self.path.with_name(f"{self.path.name}-runner-{runner}")

    def _create(self, task: Task) -> None:
        with writing(self._db):
            if self._count("owner = ?", task.owner) >= self.max_tasks_per_owner:
                if not self._forget_oldest("owner = ?", task.owner):
                    raise TaskLimit(f"this requestor has {self.max_tasks_per_owner} working tasks")
            elif self._count("true") >= self.max_tasks and not self._forget_oldest("true"):
                raise TaskLimit(f"the store has {self.max_tasks} working tasks")
            self._make_room(task.size)
            try:
                self._db.execute(
                    "INSERT INTO tasks (id, owner, expires, revision, size, runner, ended, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        task.id,
                        task.owner,
                        task.expires,
                        task.revision,
                        task.size,
                        None if task.status.terminal else self._runner,
                        _ended(task),
                        _encode(task),
                    ),
                )
            except sqlite3.IntegrityError:
                raise ValueError("a task with this id exists already") from None

    def _get(self, task_id: str) -> Task | None:
        try:
            row = self._db.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
        except UnicodeEncodeError:  # a lone surrogate
            return None
        return None if row is None else _decode(row[0])

    def _replace(self, old: Task, new: Task) -> bool:
        with writing(self._db):
            self._make_room(new.size - old.size)
            changed = self._db.execute(
                "UPDATE tasks SET expires = ?, revision = ?, size = ?, ended = ?, body = ?,"
                " runner = CASE WHEN ? THEN NULL ELSE runner END"
                " WHERE id = ? AND revision = ?",
                (
                    new.expires,
                    new.revision,
                    new.size,
                    _ended(new),
                    _encode(new),
                    new.status.terminal,
                    old.id,
                    old.revision,
                ),
            )
            return changed.rowcount == 1

    def _page(self, owner: bytes, after: int, limit: int) -> Page:
        rows = self._db.execute(
            "SELECT number, body FROM tasks WHERE owner = ? AND number > ? ORDER BY number LIMIT ?",
            (owner, after, limit + 1),
        ).fetchall()
        tasks = [_decode(body) for _, body in rows[:limit]]
        return Page(tasks, rows[limit - 1][0] if len(rows) > limit else None)

    def _delete(self, task_id: str) -> bool:
        with writing(self._db):
            done = self._db.execute("DELETE FROM tasks WHERE id = ?", (task_id,))
            return done.rowcount == 1

    def _expire(self, now: int) -> list[str]:
        self._fail_abandoned()
        with writing(self._db):
            rows = self._db.execute(
                "DELETE FROM tasks WHERE expires IS NOT NULL AND expires <= ? RETURNING id", (now,)
            ).fetchall()
        return [row[0] for row in rows]

    def _count(self, where: str, *args: Any) -> int:
        count: int = self._db.execute(f"SELECT count(*) FROM tasks WHERE {where}", args).fetchone()[
            0
        ]
        return count

    def _forget_oldest(self, where: str, *args: Any) -> bool:
        """Forget the task that ended first, among those that ``where`` selects. False: none of
        them has ended."""
        done = self._db.execute(
            "DELETE FROM tasks WHERE number = (SELECT number FROM tasks"
            f" WHERE ended IS NOT NULL AND {where} ORDER BY ended, number LIMIT 1)",
            args,
        )
        return done.rowcount == 1

    def _make_room(self, more: int) -> None:
        """Make room for `more` bytes. TaskLimit: forgetting every finished task is not enough."""
        if more <= SMALL:
            return
        query = "SELECT coalesce(sum(size), 0) FROM tasks WHERE size > 0"
        held: int = self._db.execute(query).fetchone()[0]
        excess = held + more - self.max_bytes
        if excess <= 0:
            return
        finished = self._db.execute(
            "SELECT number, size FROM tasks WHERE ended IS NOT NULL ORDER BY ended, number"
        )
        for number, size in finished.fetchall():
            self._db.execute("DELETE FROM tasks WHERE number = ?", (number,))
            excess -= size
            if excess <= 0:
                return
        # the transaction is rolled back, so no task is lost
        raise TaskLimit(f"tasks hold {held} of at most {self.max_bytes} bytes")

    # -- dead runners -----------------------------------------------------------------------------

    def _fail_abandoned(self) -> None:
        rows = self._db.execute(
            "SELECT DISTINCT runner FROM tasks WHERE runner IS NOT NULL AND runner <> ?",
            (self._runner,),
        ).fetchall()
        for (runner,) in rows:
            path = self._lock_path(runner)
            with _lock_of_the_dead(path) as dead:
                if dead:
                    with writing(self._db):
                        self._fail_tasks_of(runner)

    def _fail_tasks_of(self, runner: str) -> None:
        rows = self._db.execute("SELECT body FROM tasks WHERE runner = ?", (runner,)).fetchall()
        now = now_ms()
        for (body,) in rows:
            task = interrupted(_decode(body), now)
            self._db.execute(
                "UPDATE tasks SET revision = ?, size = ?, runner = NULL, ended = ?, body = ?"
                " WHERE id = ?",
                (task.revision, task.size, _ended(task), _encode(task), task.id),
            )


def _ended(task: Task) -> int | None:
    return task.updated if task.status.terminal else None


@contextlib.contextmanager
def _lock_of_the_dead(path: Path) -> Iterator[bool]:
    """Yields whether the runner of a lock file is dead. The block holds the lock of a dead runner,
    so that only one process cleans up. The file is removed afterwards."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True  # the runner closed its store, or another process cleaned up
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)


set_public_home(globals())
