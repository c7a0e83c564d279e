"""A client that acts for itself: the grant ``client_credentials`` (RFC 6749 section 4.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import set_public_home
from wirespeed.auth.client.machine import MachineGrant

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import TokenSession
    from wirespeed.auth.client.tokens import Tokens

__all__ = ["ClientCredentials"]


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


set_public_home(globals())
