"""The few uses of joserfc: JSON Web Signatures (RFC 7515) and keys (RFC 7517). It takes a tenth of
a second to load."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

try:
    from joserfc import jwe, jws
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, OctKey, import_key
    from joserfc.util import urlsafe_b64decode
except ImportError as exc:
    raise ModuleNotFoundError(
        "authorization needs the package joserfc: pip install 'wirespeed[auth]'", name="joserfc"
    ) from exc

if TYPE_CHECKING:
    from joserfc.jwk import Key
    from joserfc.jws import CompactSignature

MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
MIN_SECRET = 32  # bytes (RFC 7518 section 3.2)

# Algorithms of signatures that a public key checks (RFC 7518, RFC 8037, RFC 9864), and of those
# that need a secret.
ASYMMETRIC = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
SYMMETRIC = ("HS256", "HS384", "HS512")
# The members of public keys (RFC 7518 section 6, RFC 8037 section 2), and of private ones.
PUBLIC = {"EC": ("crv", "x", "y"), "RSA": ("n", "e"), "OKP": ("crv", "x")}
PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")

# What signs, and the keys that are made for it.
NEW_KEYS: dict[str, tuple[Literal["EC", "OKP", "RSA"], str | int]] = {
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
    "PS256": ("RSA", 2048),
    "RS256": ("RSA", 2048),
}


class _Registry(jws.JWSRegistry):
    """Accepts the algorithms of an allow-list, without joserfc's warning about EdDSA, the name that
    most servers use for Ed25519. Other header parameters are ignored (RFC 7515 section 4)."""

    def __init__(self, algorithms: Collection[str], max_bytes: int) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self.max_header_length = self.max_payload_length = max_bytes
        self.max_signature_length = max_bytes

    def get_alg(self, name: str) -> Any:
        if not self.allowed or name not in self.allowed or name not in self.algorithms:
            raise ValueError("the algorithm is not allowed")
        return self.algorithms[name]


def extract(token: str, max_bytes: int) -> CompactSignature:
    """Take a compact serialization apart; nothing of it is trusted yet. ValueError: malformed."""
    try:
        return jws.extract_compact(token.encode("ascii"), registry=_Registry((), max_bytes))
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError("not a compact JSON Web Signature") from None


def verify(signed: CompactSignature, key: Key, algorithms: Collection[str]) -> bool:
    """Return whether a key made a signature by one of the algorithms."""
    try:
        return jws.validate_compact(signed, key, registry=_Registry(algorithms, 0))
    except (JoseError, ValueError, TypeError):
        return False


def public_key(jwk: Any) -> Key:
    """Return the asymmetric public key of a JWK. ValueError says what is wrong with it."""
    kty = jwk.get("kty") if isinstance(jwk, dict) else None
    if not isinstance(kty, str) or kty not in PUBLIC:
        raise ValueError("it is not an asymmetric JWK")
    if any(name in jwk for name in PRIVATE):
        raise ValueError("it holds a private part")
    if not all(isinstance(jwk.get(name), str) for name in PUBLIC[kty]):
        raise ValueError("a member of it is missing")
    try:
        # before cryptography looks at the key: the cost grows with its size
        bits = _bits(jwk["n"]) if kty == "RSA" else MIN_RSA_BITS
        key = import_key(public_members(jwk)) if MIN_RSA_BITS <= bits <= MAX_RSA_BITS else None
    except (JoseError, ValueError, TypeError, KeyError):
        raise ValueError("it cannot be read") from None
    if key is None:
        raise ValueError(f"an RSA key has {MIN_RSA_BITS} to {MAX_RSA_BITS} bits")
    return key


def pem_key(text: str | bytes) -> Key:
    """Return the public key of PEM text. ValueError: it is not one, or a weak one."""
    for kind in PUBLIC:  # PEM does not say which
        try:
            key = JWKRegistry.import_key(text, kind)
        except (JoseError, ValueError, TypeError):
            continue
        return public_key(key.as_dict(private=False))
    raise ValueError("the text is not a public key in PEM form")


def secret_key(secret: str | bytes) -> Key:
    """Return the key of a secret. ValueError: it has less than `MIN_SECRET` bytes."""
    raw = secret.encode() if isinstance(secret, str) else secret
    if len(raw) < MIN_SECRET:
        raise ValueError(f"a secret has at least {MIN_SECRET} bytes")
    return JWKRegistry.import_key(raw, "oct")


def _bits(number: str) -> int:
    return int.from_bytes(urlsafe_b64decode(number.encode()), "big").bit_length()


def public_members(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a JWK that make its public key: what its thumbprint is of (RFC 7638)."""
    return {"kty": jwk["kty"], **{name: jwk[name] for name in PUBLIC[jwk["kty"]]}}


def new_key(algorithm: str) -> Key:
    """Make a key for an algorithm of `NEW_KEYS`."""
    kind, size = _kind(algorithm)
    return JWKRegistry.generate_key(kind, size)


def private_key(source: str | bytes | Mapping[str, Any], algorithm: str) -> Key:
    """Read the private key for an algorithm of `NEW_KEYS`: PEM without a password, or a JWK.
    ValueError, whose text does not show the key: it is not one."""
    kind = _kind(algorithm)[0]
    try:
        key = import_key(dict(source) if isinstance(source, Mapping) else source, kind)
        sign({"alg": algorithm}, b"", key)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(
            f"the key is not a private key for {algorithm}: PEM without a password, or a JWK"
        ) from None
    return key


def _kind(algorithm: str) -> tuple[Literal["EC", "OKP", "RSA"], str | int]:
    found = NEW_KEYS.get(algorithm)
    if found is None:
        raise ValueError(f"{algorithm!r} is not one of {', '.join(NEW_KEYS)}")
    return found


def sign(header: dict[str, Any], payload: bytes, key: Key) -> str:
    """Return a signed compact serialization. ValueError: the key does not fit the algorithm."""
    try:
        return jws.serialize_compact(header, payload, key, registry=_Registry([header["alg"]], 0))
    except (JoseError, TypeError) as exc:
        raise ValueError(f"the key does not fit {header['alg']}: {type(exc).__name__}") from None


def seal(text: str, key: bytes, place: str) -> str:
    """Seal a text for a place (RFC 7516, AES-256-GCM). Only the key opens it, and only for that
    place."""
    header = {"alg": "dir", "enc": "A256GCM", "sub": _digest(place)}
    return jwe.encrypt_compact(header, text.encode(), OctKey.import_key(key), registry=_SEALS)


def unseal(sealed: str, key: bytes, place: str) -> str | None:
    """Return the text; None if it was sealed with another key or for another place."""
    try:
        found = jwe.decrypt_compact(sealed, OctKey.import_key(key), registry=_SEALS)
    except (JoseError, ValueError, TypeError):
        return None
    if found.headers().get("sub") != _digest(place) or found.plaintext is None:
        return None
    return found.plaintext.decode()


def _digest(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()


_SEALS = jwe.JWERegistry(algorithms=["dir", "A256GCM"], strict_check_header=False)
