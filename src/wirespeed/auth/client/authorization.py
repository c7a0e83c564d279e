"""The interface of the values of ``Client(url, auth=…)``, for clients over HTTP and WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed.transport.options import Headers

__all__ = ["Authorization", "AuthorizationSession"]


class Authorization(Protocol):
    """A way to get tokens, as ``Client(url, auth=…)`` takes it. One value may serve several clients
    and servers: all that belongs to one connection is in its session."""

    def session(self, url: str, *, ssl: SSLContext | None = None) -> AuthorizationSession:
        """The authorization of one connection to the server at ``url``; for a WebSocket, that of
        the request that opens it, with ``http:`` or ``https:``. Nothing is sent yet."""


class AuthorizationSession(Protocol):
    """The authorization of one connection. All methods are called on the connection's loop."""

    n_tokens: int
    """The number of tokens so far. It changes whenever `fields` has another token."""

    def fields(self, method: str, url: str, *, long: bool = False) -> bytes | None:
        """The header lines of a request, each with its CR LF; empty while no token is known. None:
        `prepare` must run first. ``long``: the answer is a stream that lasts, so that the token
        must not end soon."""

    async def prepare(self) -> None:
        """Load the token, or refresh it. The user is not asked."""

    def answered(self, headers: Headers) -> None:
        """Read the header fields of an answer of any status: they may have a nonce for further
        requests (RFC 9449 section 8.2)."""

    async def challenged(self, status: int, headers: Headers, n_tokens: int, n: int) -> bool:
        """The server answered 401 or 403. Returns whether the request is to be sent again.

        AuthorizationError: a token was needed, and there is none.

        Args:
            status: The status.
            headers: The header fields of the answer.
            n_tokens: `n_tokens` at the time when the request was sent.
            n: How often the same request was challenged before.
        """

    def secrets(self) -> list[str]:
        """The secrets that no text may show."""

    async def close(self) -> None:
        """Release what is held. Tokens are kept in their storage."""


set_public_home(globals())
