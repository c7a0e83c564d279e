"""Storages of logins: the interface, in memory, in files, and in the keyring of the system."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.contents import replace_private
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

logger = logging.getLogger("wirespeed.client")

MAX_FILE = 1 << 20  # bytes of a login
_POLL = 0.05  # seconds between two attempts to lock a file
_MANY = 20  # attempts after which the log says why a client waits
_INDEX = "servers"  # a keyring does not list its entries


class TokenStorage(Protocol):
    """A place for logins: JSON texts by the URLs of their servers. The texts are secrets.

    Methods are called on the event loop of a client, seldom, and may block for a moment. Exceptions
    of a method fail the request that needs a token.
    """

    def load(self, server: str) -> str | None:
        """The text of a server; None if there is none."""

    def save(self, server: str, text: str) -> None:
        """Store the text of a server. It replaces an earlier one."""

    def delete(self, server: str) -> None:
        """Forget the text of a server, if there is one."""

    def servers(self) -> list[str]:
        """The servers that have a text."""

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """Lock the text of a server, also against other processes that share the storage. A refresh
        token can be used once, so only one client at a time may use it."""


class MemoryStorage:
    """Logins that end with the process. Clients of several loops and threads may share one."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._locked: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<MemoryStorage of {len(self._texts)} servers>"

    def load(self, server: str) -> str | None:
        """As `TokenStorage.load`."""
        return self._texts.get(server)

    def save(self, server: str, text: str) -> None:
        """As `TokenStorage.save`."""
        self._texts[server] = text

    def delete(self, server: str) -> None:
        """As `TokenStorage.delete`."""
        self._texts.pop(server, None)

    def servers(self) -> list[str]:
        """As `TokenStorage.servers`."""
        return list(self._texts)

    @contextlib.asynccontextmanager
    async def lock(self, server: str):  # type: ignore[no-untyped-def]
        """As `TokenStorage.lock`."""
        me = object()
        while self._locked.setdefault(server, me) is not me:  # loops of other threads share this
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            del self._locked[server]


class _StoredServer(msgspec.Struct):
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
        try:
            replace_private(path, text.encode())
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
                    found.append(msgspec.json.decode(text, type=_StoredServer).server)
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
            for attempt in itertools.count(1):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == _MANY:
                        text = "another process logs in to %s: waiting until it has ended"
                        logger.warning(text, server)
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
            raise AuthorizationError(f"{path} is not a login: it has more than {MAX_FILE} bytes")
        return data.decode(errors="replace")


def _default() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "wirespeed" / "logins"
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "wirespeed" / "logins"


def _failed(done: str, path: Path, exc: OSError) -> AuthorizationError:
    return AuthorizationError(f"{path} cannot be {done}: {exc.strerror}")


class KeyringStorage:
    """Logins in the system's keyring (Keychain, Secret Service, Credential Locker), by the package
    `keyring`: ``pip install 'wirespeed[keyring]'``.

    The files that hold processes off each other while a token is refreshed are those of a
    `FileStorage`; they have no content.

    Args:
        service: The name under which the keyring keeps the logins.
        locks: Where the locks lie; by default in the folder of `FileStorage`.

    Raises ImportError if the package is not installed.
    """

    def __init__(self, service: str = "wirespeed", *, locks: FileStorage | None = None) -> None:
        try:
            import keyring
        except ImportError:
            raise ImportError(
                "KeyringStorage needs the package keyring: pip install 'wirespeed[keyring]'"
            ) from None
        self.service = service
        self._keyring = keyring
        self._locks = FileStorage() if locks is None else locks

    def __repr__(self) -> str:
        return f"KeyringStorage({self.service!r})"

    def load(self, server: str) -> str | None:
        """As `TokenStorage.load`. AuthorizationError: the keyring cannot be read."""
        found: str | None = self._ask("get_password", server)
        return found

    def save(self, server: str, text: str) -> None:
        """As `TokenStorage.save`. AuthorizationError: the keyring cannot be written."""
        self._ask("set_password", server, text)
        known = self.servers()
        if server not in known:
            self._ask("set_password", _INDEX, json.dumps(sorted([*known, server])))

    def delete(self, server: str) -> None:
        """As `TokenStorage.delete`."""
        known = self.servers()
        if server in known:
            known.remove(server)
            self._ask("set_password", _INDEX, json.dumps(known))
        if self.load(server) is not None:
            self._ask("delete_password", server)

    def servers(self) -> list[str]:
        """As `TokenStorage.servers`."""
        text = self._ask("get_password", _INDEX)
        known = [] if text is None else json.loads(text)
        return [name for name in known if isinstance(name, str)]

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """As `TokenStorage.lock`."""
        return self._locks.lock(server)

    def _ask(self, method: str, *args: str) -> Any:
        try:
            return getattr(self._keyring, method)(self.service, *args)
        except self._keyring.errors.KeyringError as exc:
            raise AuthorizationError(
                f"the keyring of this system cannot be used ({type(exc).__name__}): unlock it, or "
                "use a FileStorage"
            ) from exc


set_public_home(globals())
