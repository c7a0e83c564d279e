"""Several verifiers, of which one has to accept a token."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from inspect import isawaitable

from wirespeed._exports import set_public_home
from wirespeed.auth.access_token import AccessToken, Verifier
from wirespeed.errors import CannotVerify, InvalidToken


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
