"""A storage of logins that are unreadable without a key."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from wirespeed._exports import set_public_home
from wirespeed.auth.jose import seal, unseal
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from wirespeed.auth.client.storage import TokenStorage

MIN_KEY = 32  # characters


class SealedStorage:
    """Seals the logins in another storage (JWE, AES-256-GCM). A sealed login opens for its own
    server and owner only. Needs ``pip install 'wirespeed[auth]'``.

    Args:
        under: The other storage.
        keys: Secrets of at least 32 characters each: the first one seals, all of them open.
        owner: The user whose logins these are, if the storage has those of several users.

    Raises ValueError for a key that is too short.
    """

    def __init__(self, under: TokenStorage, *keys: str, owner: str = "") -> None:
        if not keys or any(len(key) < MIN_KEY for key in keys):
            raise ValueError(f"a key has at least {MIN_KEY} characters")
        self._under = under
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._owner = owner

    def __repr__(self) -> str:
        return f"<SealedStorage of {self._under!r}>"

    def _place(self, server: str) -> str:
        return f"{server} {self._owner}" if self._owner else server

    def load(self, server: str) -> str | None:
        """As `TokenStorage.load`. AuthorizationError: no key opens the text."""
        text = self._under.load(self._place(server))
        if text is None:
            return None
        for key in self._keys:
            found = unseal(text, key, self._place(server))
            if found is not None:
                return found
        raise AuthorizationError(
            "a stored login cannot be opened: it was sealed with another key, or for another "
            "server or user"
        )

    def save(self, server: str, text: str) -> None:
        """As `TokenStorage.save`."""
        place = self._place(server)
        self._under.save(place, seal(text, self._keys[0], place))

    def delete(self, server: str) -> None:
        """As `TokenStorage.delete`."""
        self._under.delete(self._place(server))

    def servers(self) -> list[str]:
        """As `TokenStorage.servers`. Of a storage in files this is empty: the files are sealed."""
        end = f" {self._owner}" if self._owner else ""
        return [one.removesuffix(end) for one in self._under.servers() if one.endswith(end)]

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """As `TokenStorage.lock`."""
        return self._under.lock(self._place(server))


set_public_home(globals())
