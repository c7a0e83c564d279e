"""Verifies access tokens by asking their authorization server (RFC 7662)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import ssl as ssl_
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal
from urllib.parse import quote_plus

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.access_token import AccessToken, ClaimRules, audiences_of
from wirespeed.auth.fetch import Fetcher, FetchError, named_url
from wirespeed.errors import CannotVerify, InvalidToken
from wirespeed.transport.options import is_token

MAX_TOKEN = 16384  # characters
MAX_CACHED = 10_000  # tokens


class IntrospectionVerifier:
    """Verifies access tokens by asking the authorization server (RFC 7662)::

        IntrospectionVerifier(
            "https://auth.example/introspect",
            audience="https://mcp.example/mcp",
            client_id="mcp-server",
            client_secret=os.environ["CLIENT_SECRET"],
        )

    A token is accepted if the response says that it is active and names one of the audiences. The
    response is kept for ``cache_seconds``, but not after the token expires; a token that is revoked
    in this time is still accepted. The key of the cache is the SHA-256 of the token. While a token
    is being asked about, further requests with it wait for the same response. If the authorization
    server cannot be asked, a token without a kept response is refused.

    Args:
        url: The introspection endpoint.
        audience: The audience that a token must have, or a sequence of accepted ones. None accepts
            any audience; it is safe only if the authorization server says ``active`` of no token
            for another server.
        issuer: The value that ``iss`` must have, if the response has this member.
        client_id: This server, as a client of the authorization server.
        client_secret: Its secret.
        auth: How both are sent: as HTTP Basic, or in the form.
        token: A bearer token for the endpoint, instead of ``client_id`` and ``client_secret``.
        cache_seconds: Seconds that an answer is kept; 0 for none.
        max_requests: Requests at once. Further ones wait. If more than 256 run or wait, further
            clients get HTTP 503.
        leeway: Seconds that the clocks of both sides may differ.
        scope_claims: The members that name scopes.
        timeout: Seconds of one request, waiting included.
        ssl: The TLS context of the requests.
        clock: Returns Unix seconds.

    ValueError: an argument is wrong.
    """

    def __init__(
        self,
        url: str,
        *,
        audience: str | Sequence[str] | None,
        issuer: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        auth: Literal["basic", "post"] = "basic",
        token: str | None = None,
        cache_seconds: float = 60.0,
        max_requests: int = 16,
        leeway: float = 30.0,
        scope_claims: Sequence[str] = ("scope", "scp"),
        timeout: float = 5.0,
        ssl: ssl_.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if (token is None) == (client_id is None) or (client_id is None) != (client_secret is None):
            raise ValueError("give client_id and client_secret, or token")
        if token is not None and not is_token(token):
            raise ValueError("token is not a bearer token")
        if auth not in ("basic", "post"):
            raise ValueError(f'auth is "basic" or "post", not {auth!r}')
        if not 0 <= cache_seconds < math.inf:
            raise ValueError("cache_seconds is seconds, 0 or more")
        if max_requests < 1:
            raise ValueError("max_requests must be at least 1")
        self._url = named_url(url)
        self._form: dict[str, str] = {}
        self._headers: list[tuple[str, str]] = []
        if token is not None:
            self._headers = [("Authorization", f"Bearer {token}")]
        elif auth == "post":
            self._form = {"client_id": str(client_id), "client_secret": str(client_secret)}
        else:
            # RFC 6749 section 2.3.1: both are encoded as in a form
            pair = f"{quote_plus(str(client_id))}:{quote_plus(str(client_secret))}".encode()
            self._headers = [("Authorization", f"Basic {base64.b64encode(pair).decode()}")]
        self._rules = ClaimRules(
            issuer=issuer,
            audiences=None if audience is None else audiences_of(audience),
            leeway=leeway,
            scope_claims=tuple(scope_claims),
            must_be_whole=False,
        )
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._fetcher = Fetcher(url, timeout=timeout, ssl=ssl, max_connections=max_requests)
        self._cached: OrderedDict[bytes, AccessToken] = OrderedDict()  # the last used is the last
        self._asking: dict[bytes, asyncio.Task[AccessToken | InvalidToken | CannotVerify]] = {}

    def verify(self, token: str) -> AccessToken | Awaitable[AccessToken]:
        """Verify a token and return its contents, or an awaitable if the authorization server has
        to be asked.

        Raises:
            wirespeed.errors.InvalidToken: The token is refused.
            wirespeed.errors.CannotVerify: The authorization server could not be asked.
        """
        if not is_token(token) or len(token) > MAX_TOKEN:
            raise InvalidToken("the token is empty, too long or not printable ASCII")
        digest = hashlib.sha256(token.encode()).digest()
        access = self._cached.get(digest)
        if access is not None:
            assert access.fresh_until is not None
            # no longer than cache_seconds, even if the clock is put back
            if 0 < access.fresh_until - self._clock() <= self._cache_seconds:
                self._cached.move_to_end(digest)
                return access
            del self._cached[digest]
        return self._share(digest, token)

    async def close(self) -> None:
        """Close the connections to the authorization server. Idempotent."""
        await self._fetcher.close()

    async def _share(self, digest: bytes, token: str) -> AccessToken:
        loop = asyncio.get_running_loop()
        task = self._asking.get(digest)
        if task is None or task.get_loop() is not loop:
            self._asking[digest] = task = loop.create_task(self._work(digest, token))
        found = await asyncio.shield(task)  # the others still wait if this one is cancelled
        if isinstance(found, AccessToken):
            return found
        raise type(found)(str(found))

    async def _work(self, digest: bytes, token: str) -> AccessToken | InvalidToken | CannotVerify:
        """Exceptions are returned, not raised: the request that waits may have been cancelled."""
        try:
            return await self._ask(digest, token)
        except (InvalidToken, CannotVerify) as exc:
            return exc
        finally:
            self._asking.pop(digest, None)

    async def _ask(self, digest: bytes, token: str) -> AccessToken:
        try:
            form = {"token": token, "token_type_hint": "access_token", **self._form}
            found = await self._fetcher.post(self._url, form=form, headers=self._headers)
            if found.status in (401, 403):
                raise CannotVerify(f"the introspection refuses this server: {found.status}")
            if found.status != 200:
                raise CannotVerify(f"the introspection answered {found.status}")
            claims = found.json()
        except FetchError as exc:
            raise CannotVerify(f"the introspection failed: {exc}") from None
        active = claims.get("active") if isinstance(claims, dict) else None
        if not isinstance(active, bool):
            raise CannotVerify("the response of the introspection does not say active")
        if not active:
            raise InvalidToken("the token is not active")
        now = self._clock()
        access = self._rules.check(claims, now)
        fresh = now + self._cache_seconds
        if access.expires is not None:
            fresh = min(fresh, access.expires)
        access = msgspec.structs.replace(access, fresh_until=fresh)
        if fresh > now:
            if len(self._cached) >= MAX_CACHED:
                self._cached.popitem(last=False)
            self._cached[digest] = access
        return access


set_public_home(globals())
