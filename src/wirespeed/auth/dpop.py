"""DPoP (RFC 9449), for both sides: a client shows with each request that it has the key of its
token, and a server checks the proofs (section 4.3). Loaded by clients with ``dpop=True``, and by
servers that accept DPoP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from wirespeed.auth.fetch import origin_key
from wirespeed.auth.jose import (
    NEW_KEYS,
    extract,
    new_key,
    private_key,
    public_key,
    public_members,
    sign,
    verify,
)
from wirespeed.errors import CannotVerify, InvalidToken
from wirespeed.transport.address import Address, parse
from wirespeed.transport.schemes import SCHEMES, http_scheme

if TYPE_CHECKING:
    from joserfc.jwk import Key

    from wirespeed.single_use import SingleUse
    from wirespeed.transport.headers import Headers

# -- of a client ----------------------------------------------------------------------------------

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


# -- of a server ----------------------------------------------------------------------------------

ALGORITHMS = tuple(NEW_KEYS)
"""The algorithms of proofs, as a challenge names them."""

MAX_PROOF = 8192  # bytes of one proof
MAX_TIME = 1e12  # of a claim, in Unix seconds
MAX_JTI = 512  # characters of a proof's identifier
MAX_KEYS = 1024  # of clients, kept as they were read
MAX_REMEMBERED = 1_000_000  # proofs
CLOCKS = 600.0  # seconds by which the clocks of hosts may differ
NONCE_BYTES = 8  # of the time in a nonce

_USED = "the DPoP proof was used before (jti)"
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")


class InvalidProof(InvalidToken):
    """A request is refused because of its DPoP proof.

    Attributes:
        error: The error of the challenge: ``invalid_dpop_proof``, ``invalid_token`` for a token of
            another key, or ``use_dpop_nonce``.
        nonce: The nonce that the client shall use (the field DPoP-Nonce); None without one.
    """

    def __init__(
        self, message: str, error: str = "invalid_dpop_proof", nonce: str | None = None
    ) -> None:
        super().__init__(message)
        self.error = error
        self.nonce = nonce


class Proof(NamedTuple):
    """A proof that is valid.

    Attributes:
        thumbprint: The SHA-256 thumbprint of its key (RFC 7638), as ``cnf.jkt`` of tokens has it.
        nonce: A new nonce for the client, if the nonce of the proof expires soon; else None.
        use: Uses the proof up on all hosts; None: this process knows that it is new.
    """

    thumbprint: str
    nonce: str | None
    use: Callable[[], Awaitable[None]] | None = None


class _Claims(msgspec.Struct):
    jti: str
    htm: str
    htu: str
    iat: int | float
    ath: str | None = None
    nonce: str | None = None


_read_claims = msgspec.json.Decoder(_Claims).decode


class Nonces:
    """The nonces of one server: each is the time at which it was made, sealed by a secret, so that
    nothing is kept for each client (RFC 9449 section 8).

    Args:
        lifetime: Seconds for which one nonce is handed out. It is valid for twice this time.
        secret: The key of the seal. Servers that share it take each other's nonces.
    """

    def __init__(
        self,
        lifetime: float = 300.0,
        *,
        secret: bytes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not lifetime > 0:
            raise ValueError("the lifetime of a nonce is a number of seconds above 0")
        self._lifetime = lifetime
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._clock = clock

    def current(self) -> str:
        """Return the nonce that clients shall use now."""
        return self._sealed(self._period())

    def age(self, nonce: str) -> int | None:
        """Return 0 for the nonce of now, 1 for the one before it; None for any other text."""
        period = self._period()
        given = nonce.encode()
        for age in (0, 1):
            if hmac.compare_digest(given, self._sealed(period - age).encode()):
                return age
        return None

    def _period(self) -> int:
        return int(self._clock() // self._lifetime)

    def _sealed(self, period: int) -> str:
        seal = hmac.digest(self._secret, period.to_bytes(NONCE_BYTES, "big", signed=True), "sha256")
        return _encoded(seal[:24])


class Replays:
    """The proofs that were seen, so that none is accepted twice.

    Args:
        seconds: How long each is remembered, at least.
        limit: Proofs that are remembered at once.
    """

    def __init__(self, seconds: float, limit: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()
        self._since = clock()

    def add(self, thumbprint: str, jti: str) -> bool:
        """Remember a proof; False if it was seen before. CannotVerify: ``limit`` proofs are
        remembered, and it is too early to forget one of them."""
        now = self._clock()
        if now - self._since >= self._seconds:
            whole = now - self._since < 2 * self._seconds
            self._older = self._newer if whole else set()
            self._newer = set()
            self._since = now
        key = _name_of(thumbprint, jti)
        if key in self._newer or key in self._older:
            return False
        if len(self._newer) + len(self._older) >= self._limit:
            raise CannotVerify(
                f"{self._limit} DPoP proofs came within {2 * self._seconds:.0f} seconds: further "
                "ones are refused"
            )
        self._newer.add(key)
        return True


def _name_of(thumbprint: str, jti: str) -> bytes:
    """The name of a proof. The separator is a character that no thumbprint has."""
    return hashlib.sha256(f"{thumbprint} {jti}".encode()).digest()[:16]


class DpopProofs:
    """Checks the proofs of the clients of one server.

    Args:
        algorithms: The signature algorithms that are taken; asymmetric ones alone.
        window: Seconds by which a proof may be older or newer than the server's clock. MCP's DPoP
            profile wants five minutes.
        nonces: Proofs must have a nonce of the server; None: a proof needs none.
        max_remembered: Proofs that are remembered at once. A proof is remembered for two to four
            times ``window``. Where there is no room, requests are refused (`CannotVerify`).
    """

    def __init__(
        self,
        *,
        algorithms: Sequence[str] = ALGORITHMS,
        window: float = 300.0,
        nonces: Nonces | None = None,
        max_remembered: int = MAX_REMEMBERED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names = [algorithms] if isinstance(algorithms, str) else list(algorithms)
        wrong = [name for name in names if name not in ALGORITHMS]
        if wrong or not names or isinstance(algorithms, str):
            raise ValueError(
                f"{', '.join(wrong) or algorithms!r}: the algorithms of DPoP proofs are some of "
                f"{', '.join(ALGORITHMS)}"
            )
        self.algorithms = tuple(names)
        self.nonces = nonces
        self._window = window
        self._clock = clock
        self._seen = Replays(2 * window + 1, max_remembered, clock)
        self._shared: SingleUse | None = None
        self._keys: OrderedDict[str, tuple[Key, str]] = OrderedDict()

    def share(self, single_use: SingleUse, secret: bytes) -> None:
        """Accept a proof once on all hosts, not in each process: see `Proof.use`. Nonces, where
        proofs need them, are those of all hosts with this secret."""
        self._shared = single_use
        if self.nonces is not None:
            key = hmac.digest(secret, b"wirespeed nonces of DPoP 1", "sha256")
            self.nonces = Nonces(secret=key)

    def check(
        self,
        proof: str,
        *,
        method: str,
        url: str,
        token: str | None = None,
        thumbprint: str | None = None,
    ) -> Proof:
        """Check the field DPoP of a request.

        Args:
            proof: The value of the field. A request with two such fields is refused before.
            method: The method of the request.
            url: The URL of the request, as clients know it. Its query is not compared.
            token: The access token of the request; None where there is none (at an authorization
                server).
            thumbprint: The key that the token is bound to (``cnf.jkt``).

        InvalidProof: the proof does not fit. CannotVerify: as of `Replays.add`.
        """
        header, payload, signed = self._read(proof)
        key, found = self._key_of(proof.partition(".")[0], header)
        if not verify(signed, key, self.algorithms):
            raise InvalidProof("the signature of the DPoP proof is wrong")
        claims = self._claims_of(payload)
        if claims.htm != method:
            raise InvalidProof("the DPoP proof is for another method (htm)")
        if not _same(claims.htu, url):
            raise InvalidProof("the DPoP proof is for another URL (htu)")
        if not abs(self._clock() - claims.iat) <= self._window:
            raise InvalidProof("the DPoP proof is too old, or from the future (iat)")
        if token is not None:
            hashed = _encoded(hashlib.sha256(token.encode()).digest())
            if not hmac.compare_digest(hashed, _ascii(claims.ath)):
                raise InvalidProof("the DPoP proof is for another access token (ath)")
            if not hmac.compare_digest(found, _ascii(thumbprint)):
                raise InvalidProof("the access token is bound to another key", "invalid_token")
        fresh = self._nonce_for(claims)
        if self._shared is not None:
            name = _name_of(found, claims.jti)
            return Proof(found, fresh, partial(self._use, self._shared, name))
        if not self._seen.add(found, claims.jti):
            raise InvalidProof(_USED)
        return Proof(found, fresh)

    async def _use(self, shared: SingleUse, name: bytes) -> None:
        """InvalidProof: another request used the proof, at any host. StoreUnavailable."""
        if not await shared.use("proof", name, 2 * self._window + CLOCKS):
            raise InvalidProof(_USED)

    def _read(self, proof: str) -> tuple[dict[str, Any], bytes, Any]:
        if len(proof) > MAX_PROOF:
            raise InvalidProof(f"the DPoP proof has more than {MAX_PROOF} characters")
        try:
            signed = extract(proof, MAX_PROOF)
        except ValueError:
            raise InvalidProof("the DPoP proof is not a JWT") from None
        header = signed.headers()
        if header.get("typ") != "dpop+jwt":
            raise InvalidProof('the type of the DPoP proof is not "dpop+jwt"')
        if header.get("alg") not in self.algorithms:
            raise InvalidProof("the algorithm of the DPoP proof is not allowed")
        if "crit" in header:
            raise InvalidProof("the DPoP proof needs extensions that are not known (crit)")
        return header, signed.payload, signed

    def _key_of(self, encoded: str, header: dict[str, Any]) -> tuple[Key, str]:
        """The key in the header of a proof, and its thumbprint. A client sends the same header with
        each proof."""
        known = self._keys.get(encoded)
        if known is not None:
            self._keys.move_to_end(encoded)
            return known
        try:
            key = public_key(header.get("jwk"))
        except ValueError as exc:
            raise InvalidProof(f"the key of the DPoP proof: {exc}") from None
        known = self._keys[encoded] = key, key.thumbprint()
        if len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return known

    def _claims_of(self, payload: bytes) -> _Claims:
        try:
            claims = _read_claims(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise InvalidProof(
                "the DPoP proof lacks a claim (jti, htm, htu, iat), or one has a wrong type"
            ) from None
        if not 0 < len(claims.jti) <= MAX_JTI or not abs(claims.iat) < MAX_TIME:
            raise InvalidProof(
                f"jti of a DPoP proof has 1 to {MAX_JTI} characters, and iat is a time"
            )
        return claims

    def _nonce_for(self, claims: _Claims) -> str | None:
        """The nonce to send with the response."""
        if self.nonces is None:
            return None
        age = None if claims.nonce is None else self.nonces.age(claims.nonce)
        if age is None:
            raise InvalidProof(
                "the DPoP proof needs a nonce of this server",
                "use_dpop_nonce",
                self.nonces.current(),
            )
        return self.nonces.current() if age else None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _ascii(text: str | None) -> str:
    """A text that `hmac.compare_digest` takes."""
    return text if text is not None and text.isascii() else ""


def _same(htu: str, url: str) -> bool:
    """Whether two URLs are the same without query and fragment, normalised as RFC 3986 sections
    6.2.2 and 6.2.3 say."""
    try:
        return _normal(htu) == _normal(url)
    except ValueError:
        return False


@lru_cache(64)
def _normal(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url)
    scheme = http_scheme(parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("not a URL of HTTP")
    port = SCHEMES[scheme].port if parts.port is None else parts.port
    return scheme, parts.hostname, port, _ENCODED.sub(_decoded, parts.path) or "/"


def _decoded(found: re.Match[str]) -> str:
    """A percent-encoded character: plain where it is unreserved, else in upper case."""
    char = chr(int(found[1], 16))
    plain = char.isascii() and (char.isalnum() or char in "-._~")
    return char if plain else found[0].upper()
