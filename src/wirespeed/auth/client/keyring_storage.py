"""Logins in the keyring of the user's system. Loaded with the extra ``keyring``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wirespeed._exports import set_public_home
from wirespeed.auth.client.file_storage import FileStorage
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["KeyringStorage"]

_INDEX = "servers"  # a keyring does not list its entries


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
