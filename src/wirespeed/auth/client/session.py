"""The authorization of one connection over HTTP or WebSocket: its interface, its token, and when it
is renewed; and the base of all grants, the ways to get tokens, which ``Client(url, auth=…)`` takes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.client.discovery import Found, canonical, discover, server_metadata
from wirespeed.auth.client.storage import MemoryStorage, TokenStorage
from wirespeed.auth.client.tokens import ClientIdentity, Tokens, request_tokens
from wirespeed.auth.fetch import Fetcher, FetchError
from wirespeed.auth.metadata import read_challenges
from wirespeed.errors import AuthorizationError, shortened
from wirespeed.transport.address import as_http

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed.auth.client.tokens import Proofs
    from wirespeed.auth.metadata import Challenge
    from wirespeed.transport.headers import Headers


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


logger = logging.getLogger("wirespeed.client")

# Seconds before its end at which a token is renewed, for a message and for a stream; at most these
# parts of its whole life.
AHEAD, AHEAD_OF_STREAM = 30.0, 300.0
PART, PART_OF_STREAM = 0.1, 0.5
# Seconds for which a new token is used even if it expires sooner. Without this, a client would
# request tokens without a pause if they expire at once.
LEAST = 1.0
# Seconds until a renewal that failed is tried again.
PAUSE = 10.0
MAX_CLIENTS = 8  # registrations of one login, by issuer


class Login(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The login at one MCP server, as a storage keeps it.

    Attributes:
        server: The canonical URL of the MCP server.
        issuer: The authorization server that issued the tokens.
        bare: As of `Found`.
        resource: As of `Found`.
        tokens: The tokens; None for a login that ended.
        asked: The scopes that were asked for.
        clients: The identity of this client at each authorization server, by issuer.
        key: The private key of the tokens, a JWK (RFC 9449).
    """

    server: str
    issuer: str = ""
    bare: bool = False
    resource: str = ""
    tokens: Tokens | None = None
    asked: tuple[str, ...] = ()
    clients: dict[str, ClientIdentity] = {}
    key: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Login at {self.server}>"

    @property
    def is_bound(self) -> bool:
        """Whether the tokens are bound to `key`."""
        return self.tokens is not None and self.tokens.token_type == "DPoP"

    def keep_client(self, issuer: str, client: ClientIdentity) -> None:
        """Remember the identity of this client at an authorization server."""
        self.clients.pop(issuer, None)
        self.clients[issuer] = client
        while len(self.clients) > MAX_CLIENTS:
            del self.clients[next(iter(self.clients))]


def stored_login(storage: TokenStorage, server: str) -> Login | None:
    """Return the login that a storage keeps for an MCP server; None: there is none that can be
    read. ``server``: its canonical URL."""
    text = storage.load(server)
    if text is None:
        return None
    try:
        login = msgspec.json.decode(text, type=Login)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        logger.warning("%s: its stored login cannot be read, and is not used", server)
        return None
    return login if login.server == server else None


class TokenSession:
    """The token of one connection.

    Attributes:
        url: The URL of the MCP server; for a WebSocket, that of the request that opens it.
        server: Its canonical form, by which logins are stored.
        ssl: The TLS context of the connection; None for the authorities of the system.
        fetcher: What asks authorization servers.
        login: What is known.
        n_tokens: As of `AuthorizationSession`.
        proofs: The proofs of possession that go with the token; None for bearer tokens.
    """

    def __init__(self, grant: TokenGrant, url: str, ssl: SSLContext | None) -> None:
        self.grant = grant
        self.url = as_http(url)
        self.server = canonical(url)
        self.ssl = ssl
        self.fetcher = Fetcher(self.url, allow_private=grant.allow_private, ssl=ssl)
        self.login = Login(server=self.server)
        self.n_tokens = 0
        self.proofs: Proofs | None = None
        self._lock = asyncio.Lock()
        self._loaded = False
        self._line = b""
        self._token = ""
        self._fresh = False  # whether this session got the token by its grant
        self._n_failures = 0
        self._failure: Exception | None = None
        self._due = self._due_for_stream = 0.0  # when the token is to be renewed, in Unix seconds

    def __repr__(self) -> str:
        return f"<authorization of {self.server}>"

    # -- requests --------------------------------------------------------------------------------

    def fields(self, method: str, url: str, *, long: bool = False) -> bytes | None:
        """As `AuthorizationSession.fields`."""
        due = self._due_for_stream if long else self._due
        if time.time() >= due:
            return None
        if self.proofs is None or not self._token:
            return self._line
        proof = self.proofs.field(method, url, self._token)
        return b"%bDPoP: %b\r\n" % (self._line, proof.encode("ascii"))

    def secrets(self) -> list[str]:
        """As `AuthorizationSession.secrets`."""
        tokens = self.login.tokens
        if tokens is None:
            return []
        return [text for text in (tokens.access_token, tokens.refresh_token) if text]

    async def prepare(self) -> None:
        """As `AuthorizationSession.prepare`."""
        async with self._lock:
            if not self._loaded:
                self._use(self._load())
                self._loaded = True
            if time.time() >= self._due_for_stream:
                await self._renew_ahead()

    async def close(self) -> None:
        """As `AuthorizationSession.close`."""
        await self.fetcher.close()

    async def end(self) -> bool | None:
        """Delete the stored login, and revoke its tokens where the authorization server can.
        Returns whether it did; None if there was no login."""
        async with self._lock, self.grant.storage.lock(self.server):
            login = self._load()
            self.grant.storage.delete(self.server)
            self._use(Login(server=self.server))
            return None if login.tokens is None else await revoke(self.grant, login, self.fetcher)

    # -- challenges ------------------------------------------------------------------------------

    def answered(self, headers: Headers) -> None:
        """As `AuthorizationSession.answered`."""
        if self.proofs is not None:
            self.proofs.note(self.url, headers)

    async def challenged(self, status: int, headers: Headers, n_tokens: int, n: int) -> bool:
        """As `AuthorizationSession.challenged`. Requests that waited for a login fail with it."""
        n_failures = self._n_failures
        async with self._lock:
            nonce = self.proofs is not None and self.proofs.note(self.url, headers)
            if n_tokens != self.n_tokens:
                return True
            challenge = _challenge(headers)
            error = "" if challenge is None else challenge.params.get("error", "")
            if error == "use_dpop_nonce" and nonce:
                return True
            if status == 403 and error != "insufficient_scope":
                return False
            if n_failures != self._n_failures and self._failure is not None:
                raise self._failure
            try:
                await self._answer(status, challenge, n)
            except Exception as exc:
                self._failure = exc
                self._n_failures += 1
                raise
            finally:
                await self.fetcher.close()
            return True

    async def _answer(self, status: int, challenge: Challenge | None, n: int) -> None:
        """Get a token that fits a challenge."""
        grant, login = self.grant, self.login
        had = login.tokens
        if status == 401 and n and self._fresh:
            raise AuthorizationError(
                f"{self.server} refuses the token that {login.issuer} has just issued for it: its "
                "operator must accept tokens of this authorization server for the resource "
                f"{login.resource}"
            )
        asked = challenge.scopes if challenge is not None else []
        if status == 403 and had is not None:
            self._check_step_up(asked)
        async with grant.storage.lock(self.server):
            stored = self._load()
            if stored.tokens is not None and stored.tokens != had:
                self._use(stored)  # another client has stored a new token
                if status == 401 or set(asked) <= set(stored.asked):
                    return
            elif had is None:
                self._use(stored)
            found = await discover(
                self.fetcher, self.url, challenge, grant.issuer, self.login.issuer
            )
            if self.login.issuer != found.server.issuer:
                self._forget_tokens(found)
            if status == 401 and not n and await self._renew(found):
                return
            await self._obtain(found, asked)

    def _check_step_up(self, asked: list[str]) -> None:
        """A token lacks scopes. AuthorizationError: they were asked for already."""
        if asked and not set(asked) <= set(self.login.asked):
            return
        words = f"the scopes {shortened(' '.join(asked))}" if asked else "other scopes"
        issuer = self.login.issuer or "the authorization server"
        raise AuthorizationError(
            f"{self.server} demands {words}, which {issuer} did not grant when they were asked "
            "for: the user's account may lack them",
            "insufficient_scope",
        )

    async def _obtain(self, found: Found, asked: list[str]) -> None:
        """Get new tokens by the grant."""
        login = self.login
        scopes = self.grant.choose_scopes(found, asked, login.asked)
        login.issuer, login.bare, login.resource = found.server.issuer, found.bare, found.resource
        tokens = await self.grant.obtain(self, found, scopes)
        login.asked = scopes
        self._keep(tokens)
        self._fresh = True

    # -- renewal ---------------------------------------------------------------------------------

    async def _renew_ahead(self) -> None:
        """Renew a token that expires soon. If this fails, a valid token stays in use."""
        try:
            async with self.grant.storage.lock(self.server):
                stored = self._load()
                if stored.tokens is not None and stored.tokens != self.login.tokens:
                    self._use(stored)
                    if time.time() < self._due_for_stream:
                        return
                login = self.login
                server = await server_metadata(self.fetcher, login.issuer, bare=login.bare)
                found = Found(resource=login.resource, server=server, bare=login.bare)
                if not await self._renew(found):
                    self._due = self._due_for_stream = float("inf")  # the server will refuse it
        except AuthorizationError as exc:
            logger.warning("%s: its token was not renewed: %s", self.server, exc)
            # a server that refused would refuse again
            again = float("inf") if exc.error else time.time() + PAUSE
            self._due = self._due_for_stream = again
        finally:
            await self.fetcher.close()

    async def _renew(self, found: Found) -> bool:
        """Renew the tokens at the authorization server that issued them. Returns whether there are
        new ones. AuthorizationError: the server could not be asked."""
        tokens = self.login.tokens
        if tokens is None or not self.grant.can_renew(tokens):
            return False
        try:
            renewed = await self.grant.renew(self, found, tokens)
        except AuthorizationError as exc:
            if not exc.error or tokens.refresh_token is None:  # the grant itself was refused
                raise
            logger.info("%s: the login ended: %s", self.server, exc)
            self.login.tokens = msgspec.structs.replace(tokens, refresh_token=None)
            self.save()
            return False
        if renewed.refresh_token is None:  # RFC 6749 section 6: then the old one stays
            renewed = msgspec.structs.replace(renewed, refresh_token=tokens.refresh_token)
        self._keep(renewed)
        return True

    # -- the login -------------------------------------------------------------------------------

    def _forget_tokens(self, found: Found) -> None:
        """Drop the tokens: the MCP server now uses another authorization server."""
        self.login.tokens = None
        self.login.asked = ()
        self.login.issuer, self.login.bare = found.server.issuer, found.bare
        self._use(self.login)

    def _keep(self, tokens: Tokens) -> None:
        self.login.tokens = tokens
        self._use(self.login)
        soonest = time.time() + LEAST
        self._due = max(self._due, soonest)
        self._due_for_stream = max(self._due_for_stream, soonest)
        self.save()

    def _use(self, login: Login) -> None:
        """Make a login the current one: further requests carry its token."""
        tokens = login.tokens
        self.login = login
        if tokens is not None or self._token:
            self.n_tokens += 1
        self._fresh = False
        self.proofs = self.grant.proofs(login, self.proofs)
        if tokens is None:
            self._line, self._token = b"", ""
            self._due = self._due_for_stream = float("inf")
            return
        self._token = tokens.access_token
        self._line = f"Authorization: {tokens.token_type} {self._token}\r\n".encode("ascii")
        self._due = self._due_for_stream = float("inf")
        if tokens.expires is not None and self.grant.can_renew(tokens):
            life = max(0.0, tokens.expires - tokens.issued)
            self._due = tokens.expires - min(AHEAD, PART * life)
            self._due_for_stream = tokens.expires - min(AHEAD_OF_STREAM, PART_OF_STREAM * life)

    def _load(self) -> Login:
        """The stored login of this server; an empty one if no usable login is stored."""
        login = stored_login(self.grant.storage, self.server)
        if login is not None and self.grant.accepts(login):
            return login
        return Login(server=self.server)

    def save(self) -> None:
        """Store the login."""
        self.grant.storage.save(self.server, msgspec.json.encode(self.login).decode())


async def revoke(grant: TokenGrant, login: Login, fetcher: Fetcher) -> bool:
    """Revoke the tokens of a login at the authorization server that issued them. Returns whether
    the tokens were revoked; the log has the reason if they were not."""
    try:
        return await _revoke(grant, login, fetcher)
    except (AuthorizationError, FetchError) as exc:
        logger.warning("%s: its tokens were not revoked: %s", login.server, exc)
        return False


async def _revoke(grant: TokenGrant, login: Login, fetcher: Fetcher) -> bool:
    assert login.tokens is not None
    server = await server_metadata(fetcher, login.issuer, bare=login.bare)
    client = grant.client(login, login.issuer)
    if server.revocation_endpoint is None or client is None:
        return False
    # A refresh token ends the access tokens of its grant with it, where the server can do that.
    named = {"refresh_token": login.tokens.refresh_token, "access_token": login.tokens.access_token}
    for kind, token in named.items():
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        headers = client.authenticate(server, form)
        found = await fetcher.post(server.revocation_endpoint, form=form, headers=headers)
        if found.status != 200:
            raise AuthorizationError(f"{login.issuer} answered {found.status}")
    return True


def _challenge(headers: Headers) -> Challenge | None:
    """The first Bearer or DPoP challenge that has parameters, else the first one."""
    found = [
        one
        for one in read_challenges(headers.get("www-authenticate", ""))
        if one.scheme in ("bearer", "dpop")
    ]
    return next((one for one in found if one.params), found[0] if found else None)


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
        from wirespeed.auth.dpop import DpopKey

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


set_public_home(globals())
