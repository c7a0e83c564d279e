"""The base of all ways to get tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirespeed.auth.client.session import TokenSession
from wirespeed.auth.client.storage import MemoryStorage, TokenStorage
from wirespeed.auth.client.tokens import request_tokens
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import Login
    from wirespeed.auth.client.tokens import ClientIdentity, Proofs, Tokens

__all__ = ["TokenGrant"]


class TokenGrant:
    """A way to get tokens: the base of `OAuth`, `ClientCredentials` and the others.

    A subclass implements `obtain`, which gets tokens, and `client`, which names the OAuth client.

    Attributes:
        origin: The part of a configuration that it was made of; None without one.
    """

    origin: object = None

    def __init__(
        self,
        *,
        scopes: Sequence[str] | None = None,
        storage: TokenStorage | None = None,
        issuer: str | None = None,
        dpop: bool = False,
        allow_private: bool = False,
    ) -> None:
        if isinstance(scopes, str):
            raise TypeError("scopes is a sequence of strings, not one string")
        self.scopes = None if scopes is None else tuple(scopes)
        self.storage: TokenStorage = MemoryStorage() if storage is None else storage
        self.issuer = issuer
        self.dpop = dpop
        self.allow_private = allow_private

    def session(self, url: str, *, ssl: SSLContext | None = None) -> TokenSession:
        """As `Authorization.session`."""
        return TokenSession(self, url, ssl)

    async def log_out(self, url: str, *, ssl: SSLContext | None = None) -> bool | None:
        """Delete the stored login at a server, and revoke its tokens (RFC 7009) where the
        authorization server can. Returns whether the tokens were revoked; None if there was no
        login. A connected client keeps the token until the server refuses it."""
        session = self.session(url, ssl=ssl)
        try:
            return await session.end()
        finally:
            await session.close()

    # -- what subclasses change ------------------------------------------------------------------

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """Get tokens from the authorization server. ``scopes``: the scopes to ask for; if empty,
        the request has no such parameter. AuthorizationError: the server issued no tokens."""
        raise NotImplementedError

    def client(self, login: Login, issuer: str) -> ClientIdentity | None:
        """The identity of this client at an authorization server; None if it has none there."""
        raise NotImplementedError

    def can_renew(self, tokens: Tokens) -> bool:
        """Whether tokens can be replaced without asking the user."""
        return tokens.refresh_token is not None

    async def renew(self, session: TokenSession, found: Found, tokens: Tokens) -> Tokens:
        """Replace tokens without asking the user: by their refresh token (RFC 6749 section 6)."""
        client = self.client(session.login, found.server.issuer)
        if client is None or tokens.refresh_token is None:
            raise AuthorizationError("the client is no longer registered", "invalid_client")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": tokens.refresh_token,
            "resource": found.resource,
        }
        return await request_tokens(
            session.fetcher,
            found.server,
            form,
            client.authenticate,
            scopes=tokens.scopes,
            proofs=session.proofs,
        )

    def accepts(self, login: Login) -> bool:
        """Whether this value can use a stored login: the client is the same, and the tokens are
        bound to a key only if ``dpop`` is True."""
        return login.tokens is None or login.is_bound == self.dpop

    def proofs(self, login: Login, before: Proofs | None) -> Proofs | None:
        """The proofs of possession for the tokens of a login, which keeps their key; None for
        bearer tokens. ``before``: the previous ones of the session, which remember nonces."""
        if not self.dpop:
            return None
        from wirespeed.auth.client.dpop import DpopKey

        if isinstance(before, DpopKey) and login.key in (None, before.jwk):
            login.key = before.jwk
            return before
        found = DpopKey(login.key)
        login.key = found.jwk
        return found

    def choose_scopes(
        self, found: Found, asked: Sequence[str], before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The scopes to ask for (2026-07-28 basic/authorization, "Scope Selection Strategy",
        "Step-Up Authorization Flow").

        Args:
            found: What discovery found.
            asked: The scopes of the challenge.
            before: The scopes that were asked for before.
        """
        wanted = list(self.scopes or asked or found.scopes or ())
        return tuple(dict.fromkeys([*before, *wanted, *asked]))
