"""Grants without a user: their base, client authentication, and the grant ``client_credentials``
(RFC 6749 section 4.4)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.client.session import TokenGrant
from wirespeed.auth.client.tokens import BASIC, POST, ClientIdentity, request_tokens

if TYPE_CHECKING:
    from joserfc.jwk import Key

    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import Login, TokenSession
    from wirespeed.auth.client.storage import TokenStorage
    from wirespeed.auth.client.tokens import Authenticate, Tokens
    from wirespeed.auth.metadata import ServerMetadata

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 60  # that a client assertion is valid


class MachineOptions(TypedDict, total=False):
    """Keyword arguments that all grants without a user take; `ClientCredentials` explains them."""

    key: str | bytes | Mapping[str, Any] | None
    key_id: str | None
    algorithm: str
    method: str | None
    scopes: Sequence[str] | None
    storage: TokenStorage | None
    issuer: str | None
    dpop: bool
    allow_private: bool


class MachineGrant(TokenGrant):
    """A grant without a user. Tokens that expire are replaced by the same grant, without refresh
    tokens. Tokens are kept in memory, unless there is a ``storage``."""

    needs_credentials = False

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        key: str | bytes | Mapping[str, Any] | None = None,
        key_id: str | None = None,
        algorithm: str = "ES256",
        method: str | None = None,
        scopes: Sequence[str] | None = None,
        storage: TokenStorage | None = None,
        issuer: str | None = None,
        dpop: bool = False,
        allow_private: bool = False,
    ) -> None:
        super().__init__(
            scopes=scopes, storage=storage, issuer=issuer, dpop=dpop, allow_private=allow_private
        )
        if self.needs_credentials and client_secret is None and key is None:
            raise ValueError("the client has a secret or a key: client_secret or key")
        self.client_id = client_id
        self._authenticate = authentication(
            client_id, client_secret, key=key, key_id=key_id, algorithm=algorithm, method=method
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.client_id!r})"

    def can_renew(self, tokens: Tokens) -> bool:
        return True

    async def renew(self, session: TokenSession, found: Found, tokens: Tokens) -> Tokens:
        return await self.obtain(session, found, session.login.asked)

    async def request(
        self, session: TokenSession, found: Found, scopes: tuple[str, ...], form: Mapping[str, str]
    ) -> Tokens:
        """Ask for tokens by a grant: ``form`` has its parameters."""
        full = {**form, "resource": found.resource}
        if scopes:
            full["scope"] = " ".join(scopes)
        tokens = await request_tokens(
            session.fetcher,
            found.server,
            full,
            self._authenticate,
            scopes=scopes,
            proofs=session.proofs,
        )
        issuer = found.server.issuer
        session.login.keep_client(issuer, ClientIdentity(client_id=self.client_id, issuer=issuer))
        return msgspec.structs.replace(tokens, refresh_token=None)

    def client(self, login: Login, issuer: str) -> ClientIdentity | None:
        return login.clients.get(issuer)

    def accepts(self, login: Login) -> bool:
        client = login.clients.get(login.issuer)
        known = client is not None and client.client_id == self.client_id
        return known and super().accepts(login)


class ClientCredentials(MachineGrant):
    """A program that logs in as itself, with a secret or a private key that its operator registered
    (the MCP extension ``io.modelcontextprotocol/oauth-client-credentials``).

    Args:
        client_id: The name of the client at the authorization server.
        client_secret: Its secret.
        key: Its private key, in place of a secret: PEM without a password, or a JWK. Each token
            request is authenticated by a fresh signature (``private_key_jwt``), for this
            authorization server alone. Needs ``pip install 'wirespeed[auth]'``.
        key_id: The name of the key at the authorization server (``kid``).
        algorithm: The algorithm of the key: ``ES256``, ``ES384``, ``ES512``, ``RS256``, ``PS256``,
            ``EdDSA`` or ``Ed25519``.
        method: How the secret is sent: ``client_secret_basic`` or ``client_secret_post``. By
            default the first of these that the authorization server supports.
        scopes: The scopes to ask for. By default those that the server demands.
        storage: Where tokens are kept. By default in memory.
        issuer: The authorization server of the client. Without it, credentials go to the one that
            the MCP server names; with it, they go to no other.
        dpop: Tokens are bound to a key that this value makes (RFC 9449). Needs
            ``pip install 'wirespeed[auth]'``.
        allow_private: Metadata may lead to private addresses, although the MCP server has a public
            one.
    """

    needs_credentials = True

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As of the base class."""
        return await self.request(session, found, scopes, {"grant_type": "client_credentials"})


def authentication(
    client_id: str,
    client_secret: str | None,
    *,
    key: str | bytes | Mapping[str, Any] | None = None,
    key_id: str | None = None,
    algorithm: str = "ES256",
    method: str | None = None,
) -> Authenticate:
    """Return what authenticates a client at a token endpoint: by its private key, by its secret, or
    by its name alone. Without a name nothing is added."""
    if key is not None:
        if client_secret is not None or method is not None:
            raise ValueError("a client has a key or a secret, not both, and no method for a key")
        return _KeyAuthentication(client_id, key, key_id, algorithm)
    if method not in (None, BASIC, POST):
        raise ValueError(f"method is {BASIC!r} or {POST!r}, not {method!r}")
    if client_secret is not None and not client_id:
        raise ValueError("a client with a secret has a client_id")
    if not client_id:
        return lambda server, form: []
    identity = ClientIdentity(client_id=client_id, client_secret=client_secret, method=method or "")
    return identity.authenticate


class _KeyAuthentication:
    """``private_key_jwt`` (RFC 7523 section 2.2): an assertion of the client about itself, signed
    anew for each request. Its audience is the issuer of the authorization server: an assertion for
    one server is of no use at another."""

    def __init__(
        self,
        client_id: str,
        key: str | bytes | Mapping[str, Any],
        key_id: str | None,
        algorithm: str,
    ) -> None:
        from wirespeed.auth.jose import private_key

        if not client_id:
            raise ValueError("a client with a key has a client_id")
        self._client_id = client_id
        self._key: Key = private_key(key, algorithm)
        self._header = {"typ": "JWT", "alg": algorithm}
        if key_id is None and isinstance(key, Mapping):
            key_id = key.get("kid")
        if key_id is not None:
            self._header["kid"] = key_id

    def __call__(self, server: ServerMetadata, form: dict[str, str]) -> list[tuple[str, str]]:
        from wirespeed.auth.jose import sign

        now = int(time.time())
        claims = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": server.issuer,
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        }
        form["client_assertion_type"] = CLIENT_ASSERTION
        form["client_assertion"] = sign(self._header, msgspec.json.encode(claims), self._key)
        return []


set_public_home(globals())
