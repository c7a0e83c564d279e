"""Tasks in a SQLite file: they outlive the process, and several processes may share them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from wirespeed.tasks.model import OwnerTaskLimit, Task, TaskLimit, TaskStatus
from wirespeed.tasks.store import SMALL, Page, TaskStore, now_ms
from wirespeed.transport.workers import Workers

T = TypeVar("T")

SCHEMA = 2
BUSY_TIMEOUT = 10.0  # seconds that a statement waits for another process

INTERRUPTED = "The server ended while it worked on this task"
_INTERRUPTED_ERROR = msgspec.json.encode({"code": -32603, "message": INTERRUPTED})

_TABLES = """
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner BLOB NOT NULL,
    expires INTEGER,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    runner TEXT,
    holder TEXT,
    body BLOB NOT NULL
);
CREATE INDEX tasks_owner ON tasks (owner, number);
CREATE INDEX tasks_expires ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX tasks_runner ON tasks (runner) WHERE runner IS NOT NULL;
CREATE INDEX tasks_size ON tasks (size) WHERE size > 0;
CREATE INDEX tasks_holder ON tasks (holder) WHERE holder > '';
CREATE INDEX tasks_spare ON tasks (owner, number, size) WHERE holder IS NULL AND runner IS NULL;
"""
# runner: who works on it; NULL when it is over. holder: the runner whose client made it, while that
# client is there; '' for a principal's; NULL when the client is gone.

# What may be forgotten to make room, the first to go first: of who has most of it, the oldest.
_SPARE = """
SELECT number, size FROM (
    SELECT number, size, row_number() OVER (PARTITION BY owner ORDER BY number DESC) AS place
    FROM tasks WHERE holder IS NULL AND runner IS NULL
) ORDER BY place DESC, number
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Task).decode


class SQLiteTaskStore(TaskStore):
    """Keeps tasks in a SQLite file on a local disk, in WAL mode.

    Args:
        path: The file; made when it is not there, readable for its owner only. Beside it lie
            SQLite's own files and one lock file for each process that works on tasks.
        durable: Whether a change must survive a loss of power too (``synchronous = FULL``). What
            was written always survives the end of the process, however it ends.
        max_tasks, max_tasks_per_owner, max_bytes: As of `TaskStore`.

    Each open store is a runner: the tasks that it created are worked on by its process. A runner
    holds a lock on a file of its own, which the system takes away when the process ends, also by
    SIGKILL. Whoever opens the file next, or calls `expire`, finds the lock free, and marks the
    tasks that this runner left unfinished as failed.
    """

    shared = True

    def __init__(
        self, path: str | os.PathLike[str], *, durable: bool = True, **limits: Any
    ) -> None:
        super().__init__(**limits)
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ValueError("a SQLiteTaskStore needs the path of a file")
        self.path = Path(name).absolute()
        self._synchronous = "FULL" if durable else "NORMAL"
        self._runner = ""  # from `open` on: a store may be made before workers are forked
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None
        self._guard = threading.Lock()
        self._thread: Workers | None = None  # in which all happens, one after the other

    async def open(self) -> None:
        """OSError, sqlite3.Error: the file cannot be opened. ValueError: another version of this
        package wrote it."""
        try:
            await self._do(lambda: None)
        except Exception:
            await self.close()
            raise

    async def close(self) -> None:
        with self._guard:
            thread, self._thread = self._thread, None
        if thread is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(thread, self._close)
            finally:
                thread.shutdown()

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
        """Forget what is over; and mark as failed what runners that are gone left unfinished."""
        return await self._do(self._expire, now)

    async def leave(self, owner: bytes) -> None:
        await self._do(self._leave, owner)

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        """Run ``work`` in the store's thread, in the order of the calls, once it is open."""
        with self._guard:
            if self._thread is None:
                self._thread = Workers(1)
            job = self._thread.submit(self._opened, work, args)
        return await asyncio.wrap_future(job)

    # -- in the thread -----------------------------------------------------------------------------

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    def _opened(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        if self._database is None:
            self._open()
        return work(*args)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        # Only when it is not there: closing any descriptor of a database drops the locks that this
        # process holds on it. SQLite gives the files that it makes itself the same mode.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, flags | os.O_EXCL, 0o600))
        database = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None)
        try:
            _use_wal(database)
            database.execute(f"PRAGMA synchronous = {self._synchronous}")
            with _writing(database):
                version = database.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    for statement in filter(None, map(str.strip, _TABLES.split(";"))):
                        database.execute(statement)
                    database.execute(f"PRAGMA user_version = {SCHEMA}")
                elif version != SCHEMA:
                    raise ValueError(
                        f"{self.path} has tasks in version {version} of their tables; "
                        f"this version of wirespeed knows {SCHEMA}"
                    )
            self._runner = os.urandom(8).hex()
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
        """The tasks of this runner that are not over yet will never be."""
        if self._database is None:
            return  # it could not be opened
        try:
            with _writing(self._db):
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
        with _writing(self._db):
            owned = self._one("SELECT count(*) FROM tasks WHERE owner = ?", task.owner)
            if owned >= self.max_tasks_per_owner:
                raise OwnerTaskLimit(f"this requestor has {self.max_tasks_per_owner} tasks already")
            self._check_bytes(task.size)
            self._check_places()
            try:
                self._db.execute(
                    "INSERT INTO tasks (id, owner, expires, revision, size, runner, holder, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        task.id,
                        task.owner,
                        task.expires,
                        task.revision,
                        task.size,
                        None if task.status.terminal else self._runner,
                        "" if task.principal else self._runner,
                        _encode(task),
                    ),
                )
            except sqlite3.IntegrityError:
                raise ValueError("there is a task of this id already") from None

    def _get(self, task_id: str) -> Task | None:
        try:
            row = self._db.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
        except UnicodeEncodeError:  # a lone surrogate: no id of ours
            return None
        return None if row is None else _decode(row[0])

    def _replace(self, old: Task, new: Task) -> bool:
        with _writing(self._db):
            more = new.size - old.size
            self._check_bytes(more)
            changed = self._db.execute(
                "UPDATE tasks SET expires = ?, revision = ?, size = ?, body = ?,"
                " runner = CASE WHEN ? THEN NULL ELSE runner END"
                " WHERE id = ? AND revision = ?",
                (
                    new.expires,
                    new.revision,
                    new.size,
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
        with _writing(self._db):
            done = self._db.execute("DELETE FROM tasks WHERE id = ?", (task_id,))
            return done.rowcount == 1

    def _expire(self, now: int) -> list[str]:
        self._fail_abandoned()
        with _writing(self._db):
            rows = self._db.execute(
                "DELETE FROM tasks WHERE expires IS NOT NULL AND expires <= ? RETURNING id", (now,)
            ).fetchall()
        return [row[0] for row in rows]

    def _leave(self, owner: bytes) -> None:
        with _writing(self._db):
            self._db.execute(
                "UPDATE tasks SET holder = NULL WHERE owner = ? AND holder = ?",
                (owner, self._runner),
            )

    def _check_places(self) -> None:
        """Make room for one task more. TaskLimit: there is none."""
        if self._one("SELECT count(*) FROM tasks") >= self.max_tasks:
            spare = self._db.execute(f"{_SPARE} LIMIT ?", (self.max_tasks // 100 + 1,)).fetchall()
            if not spare:
                raise TaskLimit(f"there are {self.max_tasks} tasks already")
            # several, for to find them costs much more than to forget them
            self._db.executemany("DELETE FROM tasks WHERE number = ?", [row[:1] for row in spare])

    def _check_bytes(self, more: int) -> None:
        """Make room for so many bytes more. TaskLimit: there is none."""
        if more <= SMALL:
            return
        held = self._one("SELECT coalesce(sum(size), 0) FROM tasks WHERE size > 0")
        if held + more <= self.max_bytes:
            return
        left = held
        for number, size in self._db.execute(_SPARE).fetchall():
            if left + more <= self.max_bytes - self.max_bytes // 100:
                break
            self._db.execute("DELETE FROM tasks WHERE number = ?", (number,))
            left -= size
        if left + more > self.max_bytes:
            # nothing is forgotten after all: the transaction is taken back
            raise TaskLimit(f"tasks may hold {self.max_bytes} bytes, and hold {held} already")

    def _one(self, query: str, *args: Any) -> int:
        value: int = self._db.execute(query, args).fetchone()[0]
        return value

    # -- runners that are gone ---------------------------------------------------------------------

    def _fail_abandoned(self) -> None:
        rows = self._db.execute(
            "SELECT runner FROM tasks WHERE runner IS NOT NULL AND runner <> :own"
            " UNION SELECT holder FROM tasks WHERE holder > '' AND holder <> :own",
            {"own": self._runner},
        ).fetchall()
        for (runner,) in rows:
            path = self._lock_path(runner)
            with _lock_of_the_dead(path) as dead:
                if dead:
                    with _writing(self._db):
                        self._fail_tasks_of(runner)

    def _fail_tasks_of(self, runner: str) -> None:
        self._db.execute("UPDATE tasks SET holder = NULL WHERE holder = ?", (runner,))
        rows = self._db.execute("SELECT body FROM tasks WHERE runner = ?", (runner,)).fetchall()
        now = now_ms()
        for (body,) in rows:
            task = _decode(body).failed(_INTERRUPTED_ERROR, INTERRUPTED, now)
            assert task.status is TaskStatus.FAILED
            self._db.execute(
                "UPDATE tasks SET revision = ?, size = ?, runner = NULL, body = ? WHERE id = ?",
                (task.revision, task.size, _encode(task), task.id),
            )


def _use_wal(database: sqlite3.Connection) -> None:
    """For this statement alone SQLite does not wait while others hold the file."""
    until = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def _writing(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that may write, from its start: so it never has to be tried again."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


@contextlib.contextmanager
def _lock_of_the_dead(path: Path) -> Iterator[bool]:
    """Whether the runner that this lock file belongs to is gone. If so it is held meanwhile, so
    that only one of several processes cleans up, and then removed."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True  # it closed its store, or was cleaned up after
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
