"""The DPoP proofs of a client: it shows with each request that it has the key of its token
(RFC 9449). Loaded by clients with ``dpop=True``."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.auth.fetch import origin_key
from wirespeed.auth.jose import new_key, private_key, public_members, sign
from wirespeed.transport.address import Address, parse

if TYPE_CHECKING:
    from wirespeed.transport.options import Headers

MAX_NONCES = 16  # origins whose nonces are remembered
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")  # RFC 9449 section 8.1


class DpopKey:
    """A key, and the proofs that are made with it for one MCP server and its authorization server.

    Args:
        jwk: The private key, as `jwk` returned it; None makes one.
        algorithm: The algorithm of the proofs; for a new key.
        clock: Returns Unix seconds.

    Attributes:
        algorithm: The algorithm of the proofs.
    """

    def __init__(
        self,
        jwk: Mapping[str, Any] | None = None,
        *,
        algorithm: str = "ES256",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if jwk is None:
            self._key = new_key(algorithm)
        else:
            algorithm = jwk.get("alg", algorithm)
            self._key = private_key(jwk, algorithm)
        self.algorithm = algorithm
        self._clock = clock
        self._header = {
            "typ": "dpop+jwt",
            "alg": algorithm,
            "jwk": public_members(self._key.as_dict(private=False)),
        }
        self._nonces: dict[tuple[str, str, int], str] = {}

    def __repr__(self) -> str:
        return f"DpopKey(algorithm={self.algorithm!r}, thumbprint={self.thumbprint!r})"

    @property
    def thumbprint(self) -> str:
        """The SHA-256 thumbprint of the key (RFC 7638)."""
        return self._key.thumbprint()

    @property
    def jwk(self) -> dict[str, Any]:
        """The private key with its algorithm. A refresh token is bound to the key, so both are kept
        together."""
        return {**self._key.as_dict(private=True), "alg": self.algorithm}

    def field(self, method: str, url: str, token: str | None = None) -> str:
        """Return the field DPoP of one request: a fresh proof.

        ``token`` is the access token of a request to a resource server; None at the authorization
        server. ValueError: the URL is not one of HTTP.
        """
        address = _http(url)
        claims = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": f"{address.scheme}://{address.authority}{address.path}",
            "iat": int(self._clock()),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        nonce = self._nonces.get(origin_key(address))
        if nonce is not None:
            claims["nonce"] = nonce
        return sign(self._header, msgspec.json.encode(claims), self._key)

    def note(self, url: str, headers: Headers) -> bool:
        """Take the nonce of a response (the field DPoP-Nonce), which is for requests to the same
        origin. Return whether the response has one."""
        nonce = headers.get("dpop-nonce")
        if nonce is None or not _NONCE.fullmatch(nonce):
            return False
        origin = origin_key(_http(url))
        self._nonces.pop(origin, None)
        self._nonces[origin] = nonce  # the last one was noted last
        if len(self._nonces) > MAX_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return True


def _http(url: str) -> Address:
    address = parse(url)
    if not address.is_http:
        raise ValueError(f"{address} is not a URL of HTTP")
    return address
