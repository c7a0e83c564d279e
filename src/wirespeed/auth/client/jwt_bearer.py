"""The grant ``jwt-bearer`` (RFC 7523 section 2.1): `JwtBearer` with the JWT of a platform, and
`EnterpriseManaged` with a grant of an organization's identity provider (the MCP extension
``io.modelcontextprotocol/enterprise-managed-authorization``)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.client.client_credentials import (
    JWT_BEARER,
    MachineGrant,
    MachineOptions,
    authentication,
)
from wirespeed.auth.client.discovery import server_metadata
from wirespeed.auth.client.tokens import ask_token_endpoint
from wirespeed.auth.fetch import Fetcher
from wirespeed.auth.metadata import ServerMetadata
from wirespeed.errors import AuthorizationError
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import TokenSession
    from wirespeed.auth.client.tokens import Tokens

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
MAX_REFUSED = 16  # assertions that are not sent again


class JwtBearer(MachineGrant):
    """A workload that logs in with a JWT of its platform, such as the token of a Kubernetes service
    account or a SPIFFE identity (workload identity federation). It needs no further credentials.

    An assertion that an authorization server rejected is not sent to it again, and no other grant
    is tried.

    Args:
        assertion: The JWT, or a function that returns it, or an awaitable of it. The function gets
            the issuer of the authorization server, and is called for each token request.
        client_id: The name of the client, if the authorization server wants one.
        client_secret: As of `ClientCredentials`; for servers that authenticate the client, too.

    The further arguments are those of `ClientCredentials`. Name the ``issuer``, because a server
    that receives an assertion can use it.
    """

    def __init__(
        self,
        assertion: str | Callable[[str], str | Awaitable[str]],
        *,
        client_id: str = "",
        client_secret: str | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        super().__init__(client_id, client_secret, **options)
        self._assertion = assertion
        self._refused: dict[bytes, AuthorizationError] = {}

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As of the base class."""
        assertion = await text_of(self._assertion, found.server.issuer)
        sent = hashlib.sha256(f"{found.server.issuer} {assertion}".encode()).digest()
        if sent in self._refused:
            known = self._refused[sent]
            raise AuthorizationError(f"{known}; the same assertion is not sent again", known.error)
        form = {"grant_type": JWT_BEARER, "assertion": assertion}
        try:
            return await self.request(session, found, scopes, form)
        except AuthorizationError as exc:
            if exc.error:
                self._refused[sent] = exc
                if len(self._refused) > MAX_REFUSED:
                    del self._refused[next(iter(self._refused))]
            raise


class EnterpriseManaged(MachineGrant):
    """A client whose user is logged in at the identity provider of an organization. The provider
    exchanges the user's identity assertion for a grant (ID-JAG) for one MCP server, if its policy
    permits that (RFC 8693), and the server's authorization server exchanges the grant for a token
    (RFC 7523). The user is not asked.

    Args:
        client_id: The name of the client at the authorization server of the MCP server.
        client_secret: As of `ClientCredentials`; None for a client without one.
        identity: The identity assertion: the user's ID token from the single sign-on. Or a function
            that returns it, or an awaitable of it; the function gets the issuer of the MCP server's
            authorization server, and is called for each exchange.
        identity_type: The type of ``identity``: ``id_token``, ``refresh_token`` or ``saml2`` (RFC
            8693 section 3); or ``access_token``, for providers that exchange access tokens.
        idp: The issuer of the identity provider, whose metadata names its token endpoint.
        idp_token_endpoint: Its token endpoint, in place of its metadata.
        idp_client_id: The name of the client at the identity provider.
        idp_client_secret: Its secret there; None for a client without one.

    The further arguments are those of `ClientCredentials`.
    """

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        identity: str | Callable[[str], str | Awaitable[str]],
        identity_type: str = "id_token",
        idp: str | None = None,
        idp_token_endpoint: str | None = None,
        idp_client_id: str = "",
        idp_client_secret: str | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        super().__init__(client_id, client_secret, **options)
        if (idp is None) == (idp_token_endpoint is None):
            raise ValueError("name the identity provider by idp or by idp_token_endpoint")
        if identity_type not in ("id_token", "refresh_token", "saml2", "access_token"):
            raise ValueError(
                "identity_type is id_token, refresh_token, saml2 or access_token, not "
                f"{identity_type!r}"
            )
        self._identity = identity
        self._identity_type = identity_type
        self._idp = idp
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_authenticate = authentication(idp_client_id, idp_client_secret)

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As of the base class."""
        grant = await self._exchange(session, found, scopes)
        form = {"grant_type": JWT_BEARER, "assertion": grant}
        return await self.request(session, found, scopes, form)

    async def _exchange(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> str:
        """Ask the identity provider for an ID-JAG for the MCP server."""
        issuer = found.server.issuer
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": f"{TOKEN_TYPE}id-jag",
            "audience": issuer,
            "resource": found.resource,
            "subject_token": await text_of(self._identity, issuer),
            "subject_token_type": f"{TOKEN_TYPE}{self._identity_type}",
        }
        if scopes:
            form["scope"] = " ".join(scopes)
        # The caller named the provider, so it may have an address that metadata must not name.
        home = self._idp or self._idp_token_endpoint
        fetcher = Fetcher(home, allow_private=self.allow_private, ssl=session.ssl)
        try:
            if self._idp is not None:
                server = await server_metadata(fetcher, self._idp, bare=False)
            else:
                server = ServerMetadata(issuer="", token_endpoint=self._idp_token_endpoint)
            url, body = await ask_token_endpoint(fetcher, server, form, self._idp_authenticate)
        finally:
            await fetcher.close()
        return _grant_of(body, url)


async def text_of(source: str | Callable[[str], str | Awaitable[str]], issuer: str) -> str:
    """Return the source if it is a text, else what the function returns for an issuer. TypeError:
    the function does not return a text."""
    found = source if isinstance(source, str) else source(issuer)
    text = await found if inspect.isawaitable(found) else found
    if not isinstance(text, str):
        raise TypeError(f"an assertion is a string, not {type(text).__name__}")
    return text.strip()


class _Exchanged(msgspec.Struct):
    access_token: str
    issued_token_type: str


def _grant_of(body: bytes, url: str) -> str:
    """The ID-JAG in the answer to an exchange (RFC 8693 section 2.2.1)."""
    try:
        answer = msgspec.json.decode(body, type=_Exchanged)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = None
    if answer is None or answer.issued_token_type != f"{TOKEN_TYPE}id-jag":
        raise AuthorizationError(
            f"the identity provider ({public(url)}) answered without an ID-JAG: it does not know "
            "the exchange of identity assertions for grants"
        )
    return answer.access_token


set_public_home(globals())
