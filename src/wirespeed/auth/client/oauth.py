"""The authorization code grant: `OAuth`, and one authorization request with its response (OAuth 2.1
section 4.1, RFC 7636, RFC 9207), and the registration of the client (RFC 7591)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.client import browser
from wirespeed.auth.client.browser import Loopback, check_endpoint, is_loopback_redirect, port_of
from wirespeed.auth.client.session import TokenGrant
from wirespeed.auth.client.tokens import (
    BASIC,
    NONE,
    POST,
    ClientIdentity,
    _Refusal,
    oauth_words,
    refused,
    request_tokens,
)
from wirespeed.auth.fetch import FetchError
from wirespeed.errors import AuthorizationError
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import Login, TokenSession
    from wirespeed.auth.client.storage import TokenStorage
    from wirespeed.auth.client.tokens import Tokens
    from wirespeed.auth.fetch import Fetcher
    from wirespeed.auth.metadata import ServerMetadata

logger = logging.getLogger("wirespeed.client")

OpenUrl: TypeAlias = Callable[[str], object]
"""Shows the user a page. Called with its address; may be a coroutine function."""
Redirect: TypeAlias = Callable[[str], Awaitable[str]]
"""Logs the user in. Called with the address of the page; returns the whole address to which the
authorization server redirected the user."""

MAX_CODE = 8192  # characters of an authorization code
# An error of the authorization server after which a registration of this client is forgotten.
FORGOTTEN = ("invalid_client", "unauthorized_client")


class OAuth(TokenGrant):
    """A user logs in with a browser (the authorization code grant of OAuth 2.1, with PKCE)::

        async with Client("https://mcp.example.com/mcp", auth=OAuth()) as client:

    Nothing happens until the server demands a token. Then the authorization server is found by the
    metadata of the MCP server, the client registers itself, and the user's browser is opened. The
    redirect is received on 127.0.0.1. The tokens are stored, refreshed before they expire, and sent
    to this MCP server only. If a call needs more scopes, the user is asked again.

    Args:
        client_id: The id of a client that is registered at the authorization server. Without it the
            client uses ``client_metadata_url``, if the authorization server supports it, or
            registers itself (RFC 7591).
        client_secret: The secret of that client; None for a public client.
        issuer: The authorization server, exactly as its metadata names it, where the MCP server
            names several, or where ``client_id`` must not be used at another one.
        client_metadata_url: The https URL of this client's metadata document, which is the client's
            id at authorization servers that support such documents. ``redirect_uri`` must be in it.
        client_name: The name that users see where they log in.
        scopes: The scopes to ask for; by default those that the server demands, else those that its
            metadata names.
        storage: Where logins are kept; by default a `FileStorage`.
        redirect_uri: Where the authorization server sends the user: a URI of this machine. If it
            has no port, a free port is used. Any other URI needs ``redirect``.
        open_url: A function that shows the page, in place of the browser. The redirect is received
            on this machine, as it is with a browser.
        redirect: A function that logs the user in, in place of the browser and of receiving the
            redirect: see `Redirect`.
        headless: True prints the address, and takes the address of the redirect from the terminal;
            False opens a browser; None does the first where there is no browser.
        login_timeout: Seconds that the user has for a login.
        dpop: Tokens are bound to a key that this value makes and stores with them (RFC 9449). Needs
            ``pip install 'wirespeed[auth]'``.
        allow_private: Whether documents of a public server may lead to private addresses.

    Raises TypeError or ValueError for an argument of the wrong type or value. ``repr`` shows no
    secret.
    """

    def __init__(
        self,
        client_id: str | None = None,
        client_secret: str | None = None,
        *,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "wirespeed",
        scopes: Sequence[str] | None = None,
        storage: TokenStorage | None = None,
        redirect_uri: str = "http://127.0.0.1/callback",
        open_url: OpenUrl | None = None,
        redirect: Redirect | None = None,
        headless: bool | None = None,
        login_timeout: float = 300.0,
        dpop: bool = False,
        allow_private: bool = False,
    ) -> None:
        if storage is None:
            from wirespeed.auth.client.storage import FileStorage

            storage = FileStorage()
        super().__init__(
            scopes=scopes, storage=storage, issuer=issuer, dpop=dpop, allow_private=allow_private
        )
        if client_secret is not None and client_id is None:
            raise ValueError("client_secret needs client_id")
        if client_id is not None and client_metadata_url is not None:
            raise ValueError("give either client_id or client_metadata_url, not both")
        if client_metadata_url is not None:
            _check_metadata_url(client_metadata_url)
        if redirect is not None and (open_url is not None or headless is not None):
            raise ValueError("redirect logs the user in: leave open_url and headless out")
        if not is_loopback_redirect(redirect_uri):
            if redirect is None:
                raise ValueError(
                    "redirect_uri must lead to this machine (http://127.0.0.1/…), or redirect must "
                    "be given"
                )
            browser.check_endpoint(redirect_uri, "redirect_uri")
        if not login_timeout > 0:
            raise ValueError(f"login_timeout must be seconds above 0, not {login_timeout!r}")
        self.client_id = client_id
        self._client_secret = client_secret
        self.client_metadata_url = client_metadata_url
        self.client_name = client_name
        self.redirect_uri = redirect_uri
        self.login_timeout = login_timeout
        self._open_url = open_url
        self._redirect = redirect
        self._headless = headless

    def __repr__(self) -> str:
        known = self.client_id or self.client_metadata_url
        return f"OAuth({'' if known is None else repr(known)})"

    # -- the client ------------------------------------------------------------------------------

    def client(self, login: Login, issuer: str) -> ClientIdentity | None:
        """As `TokenGrant.client`."""
        known = login.clients.get(issuer)
        if self.client_id is not None and known is not None:
            return ClientIdentity(
                client_id=self.client_id, issuer=issuer, client_secret=self._client_secret
            )
        return known

    def accepts(self, login: Login) -> bool:
        """As `TokenGrant.accepts`."""
        client = login.clients.get(login.issuer)
        if not super().accepts(login):
            return False
        if self.issuer is not None and login.issuer != self.issuer:
            return False
        if client is None:
            return True
        if self.client_id is not None:
            return client.client_id == self.client_id
        registered = bool(client.redirect_uri)  # by itself
        return registered or client.client_id == self.client_metadata_url

    async def _identify(
        self, session: TokenSession, found: Found, redirect_uri: str, scopes: tuple[str, ...]
    ) -> ClientIdentity:
        """The identity of this client at an authorization server, in the order of preference of
        2026-07-28 basic/authorization/client-registration."""
        login, server = session.login, found.server
        if self.client_id is not None:
            others = [
                issuer
                for issuer, known in login.clients.items()
                if known.client_id == self.client_id and issuer != server.issuer
            ]
            if others and self.issuer is None:
                raise AuthorizationError(
                    f"{session.server} moved from the authorization server {others[-1]} to "
                    f"{server.issuer}, where the client {self.client_id} is not known: register a "
                    "client there, and give it with issuer=…"
                )
            client = ClientIdentity(client_id=self.client_id, issuer=server.issuer)
            login.keep_client(server.issuer, client)  # without the secret
            return ClientIdentity(
                client_id=self.client_id, issuer=server.issuer, client_secret=self._client_secret
            )
        if self.client_metadata_url is not None and server.client_id_metadata_document_supported:
            client = ClientIdentity(client_id=self.client_metadata_url)
            login.keep_client(server.issuer, client)
            return client
        known = login.clients.get(server.issuer)
        if known is not None and known.redirect_uri == redirect_uri and is_current(known):
            return known
        if server.registration_endpoint is None:
            raise AuthorizationError(
                f"the authorization server {server.issuer} does not register clients by itself: "
                + give_client(server)
            )
        client = await register(
            session.fetcher, server, name=self.client_name, redirect_uri=redirect_uri, scopes=scopes
        )
        login.keep_client(server.issuer, client)
        session.save()
        return client

    # -- the login -------------------------------------------------------------------------------

    def choose_scopes(
        self, found: Found, asked: Sequence[str], before: tuple[str, ...]
    ) -> tuple[str, ...]:
        """As `TokenGrant.choose_scopes`; with ``offline_access`` where the authorization server
        supports it, for a refresh token (2026-07-28 basic/authorization, "Refresh Tokens")."""
        scopes = super().choose_scopes(found, asked, before)
        offline = "offline_access"
        if scopes and offline not in scopes and offline in (found.server.scopes_supported or ()):
            scopes = (*scopes, offline)
        return scopes

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As `TokenGrant.obtain`."""
        issuer = found.server.issuer
        known = session.login.clients.get(issuer)
        port = 0 if known is None else port_of(known.redirect_uri)
        try:
            async with contextlib.AsyncExitStack() as stack:
                redirect_uri, loopback = self.redirect_uri, None
                if self._redirect is None:
                    loopback = await stack.enter_async_context(Loopback(redirect_uri, port))
                    redirect_uri = loopback.uri
                client = await self._identify(session, found, redirect_uri, scopes)
                request = AuthorizationRequest(found, client.client_id, redirect_uri, scopes)
                async with asyncio.timeout(self.login_timeout):
                    redirected = await self._log_in(request, loopback)
            code = request.code(redirected)
            return await request_tokens(
                session.fetcher,
                found.server,
                request.form(code, found.resource),
                client.authenticate,
                scopes=scopes,
                proofs=session.proofs,
            )
        except TimeoutError:
            # The server may have forgotten this client, and have told only the user.
            self._forget(session, issuer)
            raise AuthorizationError(
                f"the user did not log in at {issuer} within {self.login_timeout:g} s"
            ) from None
        except AuthorizationError as exc:
            if exc.error in FORGOTTEN:
                self._forget(session, issuer)
            raise

    async def renew(self, session: TokenSession, found: Found, tokens: Tokens) -> Tokens:
        """As `TokenGrant.renew`."""
        try:
            return await super().renew(session, found, tokens)
        except AuthorizationError as exc:
            if exc.error in FORGOTTEN:
                self._forget(session, found.server.issuer)
            raise

    def _forget(self, session: TokenSession, issuer: str) -> None:
        """The next login registers this client again."""
        if session.login.clients.pop(issuer, None) is not None:
            session.save()

    async def _log_in(self, request: AuthorizationRequest, loopback: Loopback | None) -> str:
        """Send the user to the authorization server, and return the address of the redirect."""
        if self._redirect is not None:
            return await self._redirect(request.url)
        assert loopback is not None
        received = asyncio.ensure_future(loopback.receive(request.accepts))
        shown = asyncio.ensure_future(self._show(request.url))
        try:
            await asyncio.wait((received, shown), return_when=asyncio.FIRST_COMPLETED)
            if not received.done():
                pasted = shown.result()
                if pasted is not None:
                    return pasted
            return await received
        finally:
            received.cancel()
            shown.cancel()
            await asyncio.wait((received, shown))

    async def _show(self, url: str) -> str | None:
        """Show the page of the login. Returns an address that the user pasted, or None."""
        if self._open_url is not None:
            opened: Any = self._open_url(url)
            if inspect.isawaitable(opened):
                await opened
            return None
        if not self._headless and await browser.in_daemon(lambda: browser.browser(url)):
            logger.info("the login continues in the browser")
            return None
        if self._headless is False or not (self._headless or browser.has_terminal()):
            raise AuthorizationError(
                "there is no browser, and no terminal to print the address of the login to: run "
                "'wirespeed login URL' in a terminal first, or give OAuth(redirect=…)"
            )
        return await browser.from_terminal(url)


class AuthorizationRequest:
    """One authorization request, and what its response must match.

    AuthorizationError: the authorization server cannot be used.

    Attributes:
        url: The page at which the user logs in.
        verifier: Proves to the token endpoint that this client began the login (RFC 7636).
    """

    def __init__(
        self, found: Found, client_id: str, redirect_uri: str, scopes: tuple[str, ...]
    ) -> None:
        server = found.server
        where = f"the authorization server {server.issuer}"
        endpoint = server.authorization_endpoint
        if endpoint is None:
            raise AuthorizationError(f"{where} has no authorization endpoint")
        check_endpoint(endpoint, f"the authorization endpoint of {where}")
        if "S256" not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationError(
                f"{where} does not say that it supports PKCE with S256 "
                "(code_challenge_methods_supported): the login would not be safe"
            )
        self._issuer = server.issuer
        self._has_issuer = bool(server.authorization_response_iss_parameter_supported)
        self._state = secrets.token_urlsafe(32)
        self._redirect_uri = redirect_uri
        self.verifier = secrets.token_urlsafe(64)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_uri,
            "state": self._state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": found.resource,
        }
        if scopes:
            query["scope"] = " ".join(scopes)
        own = urlsplit(endpoint)
        if own.fragment or {name for name, _ in parse_qsl(own.query)} & query.keys():
            raise AuthorizationError(
                f"the authorization endpoint of {where} has parameters of a login already"
            )
        mark = "&" if own.query else "?"
        url = endpoint + mark + urlencode(query)
        self.url = check_endpoint(url, f"the authorization endpoint of {where}")

    def accepts(self, query: str) -> str:
        """Return "done" or "refused" if the query of a redirect answers this request, "" if it
        answers another request."""
        values = parse_qs(query)
        state = values.get("state", [""])
        if len(state) != 1 or not hmac.compare_digest(state[0].encode(), self._state.encode()):
            return ""
        return "done" if "code" in values else "refused"

    def code(self, redirected: str) -> str:
        """The code in the address to which the user was redirected. AuthorizationError: the
        response is of another request or of another server, or refuses."""
        parts = urlsplit(redirected)
        values = parse_qs(parts.query)
        twice = [name for name, found in values.items() if len(found) > 1]
        if not self.accepts(parts.query) or twice:
            raise AuthorizationError(
                "the redirect does not answer this login (its state differs): begin again, and "
                "paste the whole address"
            )
        issuer = values.get("iss", [""])[0]
        if issuer != self._issuer and (issuer or self._has_issuer):
            said = "another authorization server" if issuer else "no authorization server"
            raise AuthorizationError(
                f"the response to the login at {self._issuer} names {said} (iss): it may be forged "
                "(RFC 9207), and its code is not used"
            )
        if "error" in values:
            error = values["error"][0]
            said = oauth_words(error, values.get("error_description", [""])[0])
            raise AuthorizationError(f"the login at {self._issuer} was refused{said}", error)
        code = values.get("code", [""])[0]
        if not code or len(code) > MAX_CODE:
            raise AuthorizationError(f"the response to the login at {self._issuer} has no code")
        return code

    def form(self, code: str, resource: str) -> dict[str, str]:
        """The token request (RFC 6749 section 4.1.3, RFC 8707)."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": self.verifier,
            "resource": resource,
        }


def _check_metadata_url(url: str) -> None:
    """The URL of a client metadata document has https and a path
    (draft-ietf-oauth-client-id-metadata-document section 3)."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment:
        raise ValueError(
            "client_metadata_url is an https URL with a path, such as "
            "https://app.example.com/client.json"
        )


class _Registered(msgspec.Struct):
    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


def is_current(client: ClientIdentity) -> bool:
    """Whether the secret of a registered client is still valid."""
    return client.secret_expires == 0 or client.secret_expires > time.time()


async def register(
    fetcher: Fetcher,
    server: ServerMetadata,
    *,
    name: str,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> ClientIdentity:
    """Register this client. AuthorizationError: the server refused."""
    endpoint = server.registration_endpoint
    assert endpoint is not None
    where = f"the registration endpoint {public(endpoint)}"
    method = _method(server)
    asked = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    try:
        found = await fetcher.post(endpoint, json=asked)
    except FetchError as exc:
        raise AuthorizationError(f"this client cannot be registered: {exc}") from exc
    if found.status not in (200, 201):
        try:
            refusal = msgspec.json.decode(found.body, type=_Refusal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            refusal = _Refusal("")
        failed = refused(where, found.status, refusal)
        raise AuthorizationError(f"{failed}; {give_client(server)}", failed.error)
    try:
        answer = msgspec.json.decode(found.body, type=_Registered)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AuthorizationError(f"{where} answered without a client_id") from None
    return ClientIdentity(
        client_id=answer.client_id,
        issuer=server.issuer,
        client_secret=answer.client_secret,
        method=answer.token_endpoint_auth_method or method,
        secret_expires=answer.client_secret_expires_at or 0,
        redirect_uri=redirect_uri,
    )


def give_client(server: ServerMetadata) -> str:
    """The advice to a user where a client cannot register itself."""
    return (
        f"register a client at {server.issuer} by hand, and give its id: "
        "OAuth(client_id=…, client_secret=…)"
    )


def _method(server: ServerMetadata) -> str:
    """The method by which a registered client authenticates itself: none if the server allows that,
    because a program on a user's machine cannot keep a secret (RFC 8252 section 8.4)."""
    supported = server.token_endpoint_auth_methods_supported
    if supported is None:
        return BASIC  # RFC 8414 section 2
    return next((one for one in (NONE, BASIC, POST) if one in supported), NONE)


set_public_home(globals())
