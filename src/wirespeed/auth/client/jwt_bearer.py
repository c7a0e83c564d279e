"""A workload shows the JWT of its platform: the grant ``jwt-bearer`` (RFC 7523 section 2.1)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Unpack

from wirespeed._exports import set_public_home
from wirespeed.auth.client.machine import JWT_BEARER, MachineGrant, MachineOptions
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import TokenSession
    from wirespeed.auth.client.tokens import Tokens

__all__ = ["JwtBearer"]

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


async def text_of(source: str | Callable[[str], str | Awaitable[str]], issuer: str) -> str:
    """Return the source if it is a text, else what the function returns for an issuer. TypeError:
    the function does not return a text."""
    found = source if isinstance(source, str) else source(issuer)
    text = await found if inspect.isawaitable(found) else found
    if not isinstance(text, str):
        raise TypeError(f"an assertion is a string, not {type(text).__name__}")
    return text.strip()


set_public_home(globals())
