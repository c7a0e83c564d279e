"""Where a client keeps tokens and registrations: the interface, and the storage in memory."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["MemoryStorage", "TokenStorage"]


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


set_public_home(globals())
