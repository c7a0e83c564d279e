"""The grant ``token-exchange`` (RFC 8693): a program that received a user's token gets a token for
another server, in the user's name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Unpack

from wirespeed._exports import set_public_home
from wirespeed.auth.client.client_credentials import MachineGrant, MachineOptions
from wirespeed.auth.client.jwt_bearer import TOKEN_EXCHANGE, TOKEN_TYPE, text_of

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import TokenSession
    from wirespeed.auth.client.tokens import Tokens


class TokenExchange(MachineGrant):
    """The authorization of a program in the middle. It received an access token from a user, and
    exchanges it for a token that the MCP server accepts, at the authorization server that the MCP
    server names. The user's token is sent to that authorization server only.

    Args:
        client_id: The name of the program at the authorization server.
        client_secret: As of `ClientCredentials`; None for a client without one.
        subject: The user's token, or a function that returns it or an awaitable of it. The
            function gets the issuer of the authorization server, and is called for each exchange.
        subject_type: The type of ``subject``: ``access_token``, ``id_token``, ``jwt``,
            ``refresh_token`` or ``saml2`` (RFC 8693 section 3).
        audience: The name of the MCP server at the authorization server, besides its URL.

    The further arguments are those of `ClientCredentials`. Name the ``issuer``: an authorization
    server that receives the user's token can use it.
    """

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        subject: str | Callable[[str], str | Awaitable[str]],
        subject_type: str = "access_token",
        audience: str | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        super().__init__(client_id, client_secret, **options)
        kinds = ("access_token", "id_token", "jwt", "refresh_token", "saml2")
        if subject_type not in kinds:
            raise ValueError(f"subject_type is one of {', '.join(kinds)}, not {subject_type!r}")
        self._subject = subject
        self._subject_type = subject_type
        self._audience = audience

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As of the base class."""
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": f"{TOKEN_TYPE}access_token",
            "subject_token": await text_of(self._subject, found.server.issuer),
            "subject_token_type": f"{TOKEN_TYPE}{self._subject_type}",
        }
        if self._audience is not None:
            form["audience"] = self._audience
        return await self.request(session, found, scopes, form)


set_public_home(globals())
