"""Verifies access tokens that are JWTs (RFC 7519, RFC 9068), by the public keys of an authorization
server (a JWK Set, RFC 7517 section 5)."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl as ssl_
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.access_token import AccessToken, ClaimRules, audiences_of
from wirespeed.auth.fetch import Fetcher, FetchError, checked_url, named_url
from wirespeed.auth.jose import (
    ASYMMETRIC,
    SYMMETRIC,
    extract,
    pem_key,
    public_key,
    secret_key,
    verify,
)
from wirespeed.auth.metadata import fetch_server_metadata
from wirespeed.errors import CannotVerify, InvalidToken
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from joserfc.jwk import Key
    from joserfc.jws import CompactSignature

MAX_TOKEN = 16384  # characters of a token
FRESH = 300.0  # seconds after which a signature is checked again: its key may have been withdrawn
MAX_KEYS = 100  # of one set
MAX_TRIED = 8  # of these, keys that one signature is checked with

# The types of RFC 9068 section 2.1 and RFC 7519 section 5.1, and none. A token of another type is
# for another purpose (RFC 8725 section 3.11).
_TYPES = ("at+jwt", "jwt", "")
# The type of key that algorithms need, by the beginning of their names (RFC 7518, RFC 8037).
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}

logger = logging.getLogger("wirespeed.auth")


class JwtVerifier:
    """Verifies access tokens that are signed JWTs. It needs ``pip install 'wirespeed[auth]'``::

        JwtVerifier("https://auth.example", "https://mcp.example/mcp")

    The public keys are those that the authorization server's metadata names, unless ``keys``,
    ``jwks_url`` or ``secret`` is given. They are fetched with the first token, fetched again every
    ``keys_max_age`` seconds, and when a token names a key that is not known.

    A token must have the issuer, one of the audiences and a time of expiry, and name a subject or a
    client. Its ``typ`` is ``at+jwt``, ``JWT`` or absent. Tokens with ``alg`` ``none``, critical
    header parameters or an encrypted payload are refused. `AccessToken.scopes` are those of
    ``scope`` and ``scp``, text or lists.

    Args:
        issuer: The authorization server, exactly as its tokens and its metadata name it.
        audience: The audience that a token must have, mostly the URL of the MCP server as clients
            name it; or a sequence of accepted ones.
        keys: The public keys: a JWK Set, or one key as PEM text.
        jwks_url: Where the JWK Set lies.
        secret: The secret of tokens that are signed with HS256, HS384 or HS512, at least 32 bytes.
        algorithms: The accepted algorithms. By default all asymmetric ones; with ``secret``, the
            three above. Asymmetric and symmetric ones cannot be accepted together.
        leeway: Seconds that the clocks of both sides may differ.
        require_at_jwt: Refuse tokens whose ``typ`` is not ``at+jwt`` (RFC 9068 section 4).
        scope_claims: The claims that name scopes.
        keys_max_age: Seconds after which the keys are fetched anew.
        keys_max_stale: Seconds that keys are used while the authorization server is down.
        keys_backoff: Seconds between two fetches, whatever tokens ask for; after a failure at first
            1 second, doubled with each further one.
        allow_private: The metadata may lead to private addresses. By default it may if the issuer's
            own address is private.
        timeout: Seconds of one request to the authorization server.
        ssl: The TLS context of these requests.
        clock: Returns Unix seconds.

    Raises:
        ValueError: An argument is wrong.
        ModuleNotFoundError: The extra is not installed.
    """

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str],
        *,
        keys: Mapping[str, Any] | str | bytes | None = None,
        jwks_url: str | None = None,
        secret: str | bytes | None = None,
        algorithms: Sequence[str] | None = None,
        leeway: float = 30.0,
        require_at_jwt: bool = False,
        scope_claims: Sequence[str] = ("scope", "scp"),
        keys_max_age: float = 600.0,
        keys_max_stale: float = 86_400.0,
        keys_backoff: float = 30.0,
        allow_private: bool = False,
        timeout: float = 10.0,
        ssl: ssl_.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if sum(one is not None for one in (keys, jwks_url, secret)) > 1:
            raise ValueError("give only one of keys, jwks_url and secret")
        allowed = ASYMMETRIC if secret is None else SYMMETRIC
        self._algorithms = allowed if algorithms is None else tuple(algorithms)
        if not self._algorithms or not set(self._algorithms) <= set(allowed):
            raise ValueError(f"algorithms are some of {', '.join(allowed)}")
        self._rules = ClaimRules(
            issuer=issuer,
            audiences=audiences_of(audience),
            leeway=leeway,
            scope_claims=tuple(scope_claims),
            must_be_whole=True,
        )
        self._types = _TYPES[:1] if require_at_jwt else _TYPES
        self._clock = clock
        self._keys: KeySet
        if secret is not None:
            self._keys = KeySet([VerifyingKey(None, None, secret_key(secret))])
        elif isinstance(keys, str | bytes):
            self._keys = KeySet([VerifyingKey(None, None, pem_key(keys))])
        elif keys is not None:
            self._keys = KeySet(read_key_set(keys))
        else:
            home = issuer if jwks_url is None else jwks_url
            self._keys = RemoteKeySet(
                Fetcher(home, allow_private=allow_private, timeout=timeout, ssl=ssl),
                issuer=issuer,
                url=jwks_url,
                max_age=keys_max_age,
                max_stale=keys_max_stale,
                backoff=keys_backoff,
                clock=clock,
            )

    def verify(self, token: str) -> AccessToken | Awaitable[AccessToken]:
        """Verify a token and return its contents, or an awaitable if keys have to be fetched first.

        Raises:
            wirespeed.errors.InvalidToken: The token is refused.
            wirespeed.errors.CannotVerify: The keys could not be fetched.
        """
        try:
            signed = extract(token, MAX_TOKEN)
        except ValueError:
            raise InvalidToken("the token is not a signed JWT") from None
        kid, algorithm = self._check_header(signed.headers())
        # checked first, so that a token of another server does not make keys be fetched
        access = self._check_claims(signed.payload)
        keys = self._keys.matching(kid, algorithm)
        if keys is not None and self._is_signed(signed, keys):
            return access
        if keys and kid is not None:
            raise InvalidToken("the token's signature is not valid")
        return self._wait(signed, kid, algorithm, access)

    async def close(self) -> None:
        """Close the connections to the authorization server. Idempotent."""
        await self._keys.close()

    async def _wait(
        self, signed: CompactSignature, kid: str | None, algorithm: str, access: AccessToken
    ) -> AccessToken:
        await self._keys.news()
        keys = self._keys.matching(kid, algorithm)
        if keys is None:
            raise CannotVerify("the keys of the authorization server are too old")
        if not self._is_signed(signed, keys):
            raise InvalidToken("the token is signed with a key that is not known")
        return access

    def _is_signed(self, signed: CompactSignature, keys: Sequence[VerifyingKey]) -> bool:
        return any(verify(signed, one.key, self._algorithms) for one in keys)

    def _check_header(self, header: Any) -> tuple[str | None, str]:
        """The id of the key and the algorithm. InvalidToken: the header is not that of a token."""
        if not isinstance(header, dict):
            raise InvalidToken("the token's header is not an object")
        algorithm, kid, typ = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidToken(f"the token's algorithm is not accepted: {algorithm!r:.50}")
        if not isinstance(kid, str | None):
            raise InvalidToken("the id of the token's key is not text")
        if not isinstance(typ, str | None):
            raise InvalidToken("the type of the token is not text")
        if (typ or "").lower().removeprefix("application/") not in self._types:
            raise InvalidToken(f"the token is not an access token: it is of the type {typ!r:.50}")
        if "crit" in header:
            raise InvalidToken("the token's header has critical parameters")
        return kid, algorithm

    def _check_claims(self, payload: bytes) -> AccessToken:
        try:
            claims = msgspec.json.decode(payload, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InvalidToken("the token has no claims") from None
        now = self._clock()
        access = self._rules.check(claims, now)
        assert access.expires is not None  # because the claims must be whole
        fresh = min(access.expires + self._rules.leeway, now + FRESH)
        return msgspec.structs.replace(access, fresh_until=fresh)


class VerifyingKey(NamedTuple):
    """A key that checks signatures: ``kid`` and ``algorithm`` are None where the set names none."""

    kid: str | None
    algorithm: str | None
    key: Key

    def fits(self, kid: str | None, algorithm: str) -> bool:
        """Whether the key may have made a signature whose header has these members."""
        return (
            (kid is None or self.kid in (None, kid))
            and self.algorithm in (None, algorithm)
            and self.key.key_type == _KINDS[algorithm[:2]]
        )


def read_key_set(document: Any) -> list[VerifyingKey]:
    """The keys of a JWK Set that check signatures; the others are left out (section 5). ValueError:
    it is not a JWK Set, has more than `MAX_KEYS` keys or none of use."""
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWK Set")
    if len(listed) > MAX_KEYS:
        raise ValueError(f"it has more than {MAX_KEYS} keys")
    found = [one for jwk in listed if (one := _read_key(jwk)) is not None]
    if not found:
        raise ValueError("none of its keys can be used")
    return found


def _read_key(jwk: Any) -> VerifyingKey | None:
    if not isinstance(jwk, Mapping) or jwk.get("use", "sig") != "sig":
        return None
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kid, algorithm = jwk.get("kid"), jwk.get("alg")
    if not (isinstance(kid, str | None) and isinstance(algorithm, str | None)):
        return None
    try:
        return VerifyingKey(kid, algorithm, public_key(jwk))
    except ValueError:
        return None  # a secret, a private key, a new kind of key, a weak one


class KeySet:
    """Keys that never change."""

    def __init__(self, keys: list[VerifyingKey]) -> None:
        self._keys = keys

    def matching(self, kid: str | None, algorithm: str) -> list[VerifyingKey] | None:
        """The keys that may have made a signature, at most `MAX_TRIED`; None if the keys have to be
        fetched first."""
        return [one for one in self._keys if one.fits(kid, algorithm)][:MAX_TRIED]

    async def news(self) -> None:
        """Fetch the keys again, unless that was done a short time ago. CannotVerify: the last fetch
        failed."""

    async def close(self) -> None:
        """End what is under way."""


class RemoteKeySet(KeySet):
    """Keys that are fetched, and fetched again.

    Args:
        fetcher: What fetches them.
        issuer: The authorization server whose metadata names the place of the keys.
        url: The place of the keys, instead of ``issuer``.
        max_age: Seconds after which the keys are fetched anew, while the old ones are still used.
        max_stale: Seconds that keys are used while the authorization server is down.
        backoff: The least seconds between two fetches. After a failure the least is one second,
            doubled for each further failure in a row, up to this time.
        clock: Returns Unix seconds.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        issuer: str,
        url: str | None,
        max_age: float,
        max_stale: float,
        backoff: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__([])
        named_url(issuer if url is None else url)
        self._fetcher = fetcher
        self._issuer = issuer
        self._url = url
        self._max_age = max_age
        self._max_stale = max_stale
        self._backoff = backoff
        self._clock = clock
        self._fetched = -math.inf
        self._tried = -math.inf
        self._n_failures = 0
        self._failure = ""
        self._task: asyncio.Task[None] | None = None

    def matching(self, kid: str | None, algorithm: str) -> list[VerifyingKey] | None:
        age = self._since(self._fetched)
        if age >= self._max_stale:
            return None
        if age >= self._max_age:
            self._start()  # the old keys are used meanwhile
        return super().matching(kid, algorithm)

    async def news(self) -> None:
        task = self._start()
        if task is not None:
            await asyncio.shield(task)
        if self._failure:
            raise CannotVerify(self._failure)

    async def close(self) -> None:
        await self._fetcher.close()
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])  # it ends, because its requests did

    def _start(self) -> asyncio.Task[None] | None:
        """The fetch that is under way, or a new one if the last one is long enough ago."""
        loop = asyncio.get_running_loop()
        if self._task is not None and not self._task.done() and self._task.get_loop() is loop:
            return self._task
        wait = self._backoff
        if self._failure:
            wait = Backoff(1.0, wait).pause(self._n_failures - 1)
        if self._since(self._tried) < wait:
            return None
        self._tried = self._clock()
        self._task = loop.create_task(self._renew())
        return self._task

    def _since(self, when: float) -> float:
        """Seconds since then; infinite if the clock was put back."""
        seconds = self._clock() - when
        return seconds if seconds >= 0 else math.inf

    async def _renew(self) -> None:
        try:
            keys = await self._fetch()
        except (FetchError, ValueError) as exc:
            self._n_failures += 1
            self._failure = f"the keys of {self._issuer} were not fetched: {exc}"
            logger.warning("%s", self._failure)
        else:
            self._keys, self._fetched = keys, self._clock()
            self._n_failures, self._failure = 0, ""

    async def _fetch(self) -> list[VerifyingKey]:
        url = self._url
        if url is None:
            metadata = await fetch_server_metadata(self._fetcher, self._issuer)
            if metadata is None:
                raise FetchError("the authorization server has no metadata")
            url = metadata.jwks_uri
        if url is None:
            raise FetchError("the metadata has no jwks_uri")
        found = await self._fetcher.get(url)
        if found.status != 200:
            raise FetchError(f"{checked_url(url)} answered {found.status}")
        try:
            return read_key_set(found.json())
        except ValueError as exc:
            raise FetchError(f"the JWK Set at {checked_url(url)} is refused: {exc}") from None


set_public_home(globals())
