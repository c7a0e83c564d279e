"""Verified access tokens, the interface of verifiers, and `AnyOf`, which joins verifiers."""

from collections.abc import Awaitable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import CannotVerify, InvalidToken


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
    """The check of the access tokens of a server's clients."""

    def verify(self, token: str) -> AccessToken | Awaitable[AccessToken]:
        """Verify a token and return its contents.

        Raises:
            wirespeed.errors.InvalidToken: The token is refused.
            wirespeed.errors.CannotVerify: The verifier itself failed.
        """
        ...


class AnyOf:
    """Verifies access tokens by several verifiers in turn: the first that accepts a token decides.
    It is for servers with several authorization servers, or with tokens of their own besides::

        AnyOf(TokenHashes(own), JwtVerifier("https://auth.example", "https://mcp.example/mcp"))

    An `IntrospectionVerifier` sends every token that it has to verify to its authorization server:
    name it last.

    ValueError: no verifier is given.
    """

    def __init__(self, *verifiers: Verifier) -> None:
        if not verifiers:
            raise ValueError("give one verifier or more")
        self._verifiers = verifiers

    def verify(self, token: str) -> AccessToken | Awaitable[AccessToken]:
        """Verify a token and return its contents, or an awaitable if a verifier returns one.

        Raises:
            wirespeed.errors.InvalidToken: Each verifier refuses the token.
            wirespeed.errors.CannotVerify: None accepts the token, and one cannot tell.
        """
        return self._try(token, iter(self._verifiers), [])

    def _try(
        self, token: str, rest: Iterator[Verifier], failures: list[Exception]
    ) -> AccessToken | Awaitable[AccessToken]:
        for verifier in rest:
            try:
                found = verifier.verify(token)
            except (InvalidToken, CannotVerify) as exc:
                failures.append(exc)
            else:
                return self._wait(token, found, rest, failures) if isawaitable(found) else found
        down = any(isinstance(one, CannotVerify) for one in failures)
        kind = CannotVerify if down else InvalidToken
        raise kind("; ".join(str(one) for one in failures if isinstance(one, kind)))

    async def _wait(
        self,
        token: str,
        found: Awaitable[AccessToken],
        rest: Iterator[Verifier],
        failures: list[Exception],
    ) -> AccessToken:
        try:
            return await found
        except (InvalidToken, CannotVerify) as exc:
            failures.append(exc)
        again = self._try(token, rest, failures)
        return await again if isawaitable(again) else again


set_public_home(globals())
