"""SQLite files of stores: opened in WAL mode, with the tables of one version of a store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

BUSY_TIMEOUT = 10.0  # seconds that a statement waits for another process


def path_of(path: str | os.PathLike[str], store: str) -> Path:
    """The absolute path of a store's file. ValueError: it names no file."""
    name = os.fspath(path)
    if not name or name == ":memory:" or name.startswith("file:"):
        raise ValueError(f"{store} needs the path of a file")
    return Path(name).absolute()


def connect(
    path: Path, *, tables: str, version: int, of: str, synchronous: str
) -> sqlite3.Connection:
    """Open a file for the calling thread, and make its tables (statements separated by blank
    lines) if the file is new. Only the owner may read a new file.

    OSError, sqlite3.Error: the file cannot be opened. ValueError: another version wrote it.
    """
    # Create the file only if it does not exist: closing any descriptor of a database drops the
    # locks of this process on the file. SQLite creates its other files with the same mode.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_EXCL, 0o600))
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        _use_wal(database)
        database.execute(f"PRAGMA synchronous = {synchronous}")
        with writing(database):
            found = database.execute("PRAGMA user_version").fetchone()[0]
            if found == 0:
                for statement in tables.strip().split("\n\n"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {version}")
            elif found != version:
                raise ValueError(
                    f"{path} has version {found} of the {of} tables; "
                    f"this version of wirespeed uses version {version}"
                )
    except BaseException:
        database.close()
        raise
    return database


def _use_wal(database: sqlite3.Connection) -> None:
    """Set WAL mode. Retries: SQLite does not wait for the locks of other processes here."""
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
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that locks the file for writing from its start, so that the transaction never
    needs a retry."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
