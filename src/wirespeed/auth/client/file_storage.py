"""Logins in files that only their user can read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["FileStorage"]

MAX_FILE = 1 << 20  # bytes of a login
_POLL = 0.05  # seconds between two attempts to lock


class _Named(msgspec.Struct):
    server: str


class FileStorage:
    """Logins in a folder: a file of mode 0600 for each server, in a folder of mode 0700.

    A file is written whole or not at all, and is locked between processes while a token is
    refreshed. A file that others can read is not used.

    Args:
        folder: The folder; by default ``$XDG_STATE_HOME/wirespeed/logins``, where the variable is
            not set ``~/.local/state/wirespeed/logins``, on macOS ``~/Library/Application
            Support/wirespeed/logins``.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = _default() if folder is None else Path(folder)

    def __repr__(self) -> str:
        return f"FileStorage({str(self.folder)!r})"

    def load(self, server: str) -> str | None:
        """As `TokenStorage.load`. AuthorizationError: others can read the file."""
        return self._read(self._path(server))

    def save(self, server: str, text: str) -> None:
        """As `TokenStorage.save`. AuthorizationError: the folder cannot be written, or belongs to
        others."""
        path = self._path(server)
        self._make_folder()
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(file, "w", encoding="utf-8") as out:
                    out.write(text)
                    out.flush()
                    os.fsync(out.fileno())
                os.replace(new, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new)
                raise
        except OSError as exc:
            raise _failed("written", path, exc) from exc

    def delete(self, server: str) -> None:
        """As `TokenStorage.delete`."""
        path = self._path(server)
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise _failed("deleted", path, exc) from exc

    def servers(self) -> list[str]:
        """As `TokenStorage.servers`. Files that cannot be read are left out."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(AuthorizationError, msgspec.MsgspecError, UnicodeDecodeError):
                text = self._read(path)
                if text is not None:
                    found.append(msgspec.json.decode(text, type=_Named).server)
        return sorted(found)

    @contextlib.asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        """As `TokenStorage.lock`."""
        import fcntl

        path = self._path(server).with_suffix(".lock")
        self._make_folder()
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise _failed("locked", path, exc) from exc
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_POLL)
            yield
        finally:
            os.close(file)  # which unlocks

    def _path(self, server: str) -> Path:
        return self.folder / f"{hashlib.sha256(server.encode()).hexdigest()[:40]}.json"

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = self.folder.stat()
        except OSError as exc:
            raise _failed("made", self.folder, exc) from exc
        if state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise AuthorizationError(
                f"others can look into {self.folder}, which is for logins: chmod 700 it, or give "
                "FileStorage another folder"
            )

    def _read(self, path: Path) -> str | None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _failed("read", path, exc) from exc
        with os.fdopen(file, "rb") as source:
            state = os.fstat(file)
            if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
                raise AuthorizationError(
                    f"others can read {path}, which has tokens: delete it, and log in again"
                )
            data = source.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise AuthorizationError(f"{path} is no login: it has more than {MAX_FILE} bytes")
        return data.decode(errors="replace")


def _default() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "wirespeed" / "logins"
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "wirespeed" / "logins"


def _failed(done: str, path: Path, exc: OSError) -> AuthorizationError:
    return AuthorizationError(f"{path} cannot be {done}: {exc.strerror}")


set_public_home(globals())
