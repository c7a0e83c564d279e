"""A client's authorization, as a typed user writes it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import TYPE_CHECKING, assert_type

from wirespeed import Client, Http
from wirespeed.auth import (
    Authorization,
    AuthorizationSession,
    FileStorage,
    KeyringStorage,
    MemoryStorage,
    OAuth,
    TokenStorage,
)
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


class Session:
    n_tokens = 1

    def fields(self, method: str, url: str, *, long: bool = False) -> bytes | None:
        return b"Authorization: Bearer t\r\n" if method and url else None

    async def prepare(self) -> None:
        pass

    def answered(self, headers: Mapping[str, str]) -> None:
        pass

    async def challenged(
        self, status: int, headers: Mapping[str, str], n_tokens: int, n: int
    ) -> bool:
        return status == 401 and n < n_tokens and "www-authenticate" in headers

    def secrets(self) -> list[str]:
        return ["t"]

    async def close(self) -> None:
        pass


class Own:
    def session(self, url: str, *, ssl: SSLContext | None = None) -> AuthorizationSession:
        return Session()


class Texts:
    def load(self, server: str) -> str | None:
        return None

    def save(self, server: str, text: str) -> None:
        pass

    def delete(self, server: str) -> None:
        pass

    def servers(self) -> list[str]:
        return []

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        yield


async def own() -> None:
    auth: Authorization = Own()
    async with Client(Http("https://h/mcp", auth=auth)):
        pass
    try:
        await Client("https://h/mcp", auth=auth).open()
    except AuthorizationError as exc:
        assert_type(exc.error, str)


def storages() -> list[TokenStorage]:
    return [MemoryStorage(), FileStorage(), FileStorage("logins"), KeyringStorage(), Texts()]


async def log_in() -> None:
    async def follow(url: str) -> str:
        return url

    known = OAuth("id", "secret", issuer="https://as.example.com", scopes=["notes"])
    auth: list[Authorization] = [
        OAuth(storage=FileStorage("logins"), open_url=print, login_timeout=60),
        OAuth(client_metadata_url="https://h/client.json", redirect=follow),
        known,
    ]
    async with Client("https://h/mcp", auth=auth[0]), Client(Http("https://h/mcp", auth=known)):
        pass
