"""The public keys of an authorization server (a JWK Set, RFC 7517 section 5)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.auth.fetch import Fetcher, FetchError, checked_url, named_url
from wirespeed.auth.jose import public_key
from wirespeed.auth.metadata import fetch_server_metadata
from wirespeed.errors import CannotVerify

if TYPE_CHECKING:
    from joserfc.jwk import Key

MAX_KEYS = 100  # of one set
MAX_TRIED = 8  # of these, keys that one signature is checked with

# The type of key that algorithms need, by the beginning of their names (RFC 7518, RFC 8037).
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}

logger = logging.getLogger("wirespeed.auth")


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
            wait = min(wait, 2.0 ** min(self._n_failures - 1, 30))
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
