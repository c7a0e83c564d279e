"""Verified access tokens, and the interface of verifiers."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec

from wirespeed._exports import set_public_home


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a verified access token, without the token itself. ``repr`` shows no claims.

    Attributes:
        subject: Who the token is about (``sub``): the user. Of a token without ``sub``,
            ``client:`` and the client.
        client_id: The OAuth client that the token was issued to.
        issuer: The authorization server.
        scopes: What the token permits.
        claims: All claims of the token, or all members of the introspection's response.
        expires: When the token ends, in Unix seconds; None for never.
        fresh_until: When the token has to be verified again, in Unix seconds; None if it need not
            be verified again before it expires.
        key_thumbprint: The key that the token is bound to (RFC 9449 section 6, ``cnf.jkt``).
        certificate_thumbprint: The client certificate that the token is bound to (RFC 8705 section
            3.1, ``cnf["x5t#S256"]``).
    """

    subject: str
    client_id: str | None = None
    issuer: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = msgspec.field(default_factory=dict)
    expires: float | None = None
    fresh_until: float | None = None
    key_thumbprint: str | None = None
    certificate_thumbprint: str | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows the claims
        shown = ("subject", "client_id", "issuer", "scopes", "expires")
        return [(name, value) for name in shown if (value := getattr(self, name))]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"AccessToken({shown})"


class Verifier(Protocol):
    """What checks the access tokens of a server's clients."""

    def verify(self, token: str) -> AccessToken | Awaitable[AccessToken]:
        """Verify a token and return its contents.

        Raises:
            wirespeed.errors.InvalidToken: The token is refused.
            wirespeed.errors.CannotVerify: The verifier itself failed.
        """
        ...


set_public_home(globals())
