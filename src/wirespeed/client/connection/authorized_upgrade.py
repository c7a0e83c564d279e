"""The opening handshake of a WebSocket with an access token: asked for again when the server
demands another one. Loaded by targets with ``auth``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from wirespeed.client.http.authorization import MAX_CHALLENGES, described
from wirespeed.client.http.statuses import CHALLENGES
from wirespeed.errors import UpgradeRefused, WirespeedError
from wirespeed.transport.address import as_http
from wirespeed.transport.options import Headers

if TYPE_CHECKING:
    from wirespeed.auth.client.authorization import AuthorizationSession
    from wirespeed.client.targets.remote import WebSocket

T = TypeVar("T")

__all__ = ["open_authorized"]


async def open_authorized(
    target: WebSocket, upgrade: Callable[[Mapping[str, str]], Awaitable[T]]
) -> T:
    """Return what ``upgrade`` returns, which is called with the header fields of a request. A user
    may log in meanwhile: the time limit of a request does not run.

    UpgradeRefused: the server refused for another reason than the token. AuthorizationError: there
    is no token that the server accepts.
    """
    assert target.auth is not None
    url = as_http(target.url)
    session = target.auth.session(url, ssl=target.ssl)
    try:
        n = 0
        while True:
            fields = {**target.request_headers(), **await _fields(session, url)}
            n_tokens = session.n_tokens
            try:
                return await upgrade(fields)
            except UpgradeRefused as exc:
                if exc.status not in CHALLENGES or n == MAX_CHALLENGES:
                    raise
                headers = Headers(exc.headers)
                if not await _described(session.challenged(exc.status, headers, n_tokens, n)):
                    raise
            n += 1
    finally:
        await session.close()


async def _fields(session: AuthorizationSession, url: str) -> dict[str, str]:
    """The header fields of a token. A connection lasts, so the token must not end soon."""
    await _described(session.prepare())
    while (lines := session.fields("GET", url, long=True)) is None:
        await _described(session.prepare())
    return dict(line.split(": ", 1) for line in lines.decode("ascii").splitlines())


async def _described(work: Awaitable[T]) -> T:
    """Wait for work of a session. A storage or a handler of the user may raise anything."""
    try:
        return await work
    except WirespeedError:
        raise
    except Exception as exc:
        raise described(exc) from exc
