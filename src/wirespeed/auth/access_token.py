"""Access tokens as a server sees them: the interface of verifiers, `AnyOf`, which joins verifiers,
the rules for claims, and tokens that an operator hands out, of which a server knows only hashes."""

import hashlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import CannotVerify, InvalidToken
from wirespeed.transport.options import is_token


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


# The beginning of the subject of a token without ``sub``, before the name of its client.
CLIENT_SUBJECT = "client:"
CLIENT_CLAIMS = ("client_id", "azp", "cid", "appid")
"""The claims that name the client to which a token was issued, the standard claim first."""


class ClaimRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the claims of a valid token.

    Attributes:
        issuer: The authorization server; None for any.
        audiences: One of them must be in ``aud``; None for any audience.
        leeway: Seconds that clocks may differ.
        scope_claims: The claims that name scopes.
        must_be_whole: ``iss`` and ``exp`` must be present.
    """

    issuer: str | None
    audiences: tuple[str, ...] | None
    leeway: float
    scope_claims: tuple[str, ...]
    must_be_whole: bool

    def __post_init__(self) -> None:
        if self.audiences is not None and not (self.audiences and all(self.audiences)):
            raise ValueError("audience is one or more texts that are not empty")
        if not 0 <= self.leeway < math.inf:
            raise ValueError("leeway is seconds, 0 or more")

    def check(self, claims: Mapping[str, Any], now: float) -> AccessToken:
        """Return the contents of a token with these claims. InvalidToken: a claim is missing or
        malformed, or the token is not valid now, not of the issuer or not for this server."""
        issuer = _text(claims, "iss")
        if self.issuer is not None and issuer != self.issuer and (issuer or self.must_be_whole):
            raise InvalidToken(f"the token has the issuer {_short(issuer)}")
        self._check_audience(claims)
        expires = _time(claims, "exp")
        if expires is None and self.must_be_whole:
            raise InvalidToken("the token has no time of expiry")
        if expires is not None and now >= expires + self.leeway:
            raise InvalidToken("the token has expired")
        for name in ("nbf", "iat"):
            begins = _time(claims, name)
            if begins is not None and now < begins - self.leeway:
                raise InvalidToken(f"the token is from the future ({name})")
        client_ids = (_text(claims, name) for name in CLIENT_CLAIMS)
        client_id = next((one for one in client_ids if one), None)
        subject = _text(claims, "sub")
        if subject and subject.startswith(CLIENT_SUBJECT):
            raise InvalidToken("the claim sub of the token begins as the subject of a client does")
        if not subject and client_id:
            subject = CLIENT_SUBJECT + client_id  # no user, also if one has that name
        if not subject:
            raise InvalidToken("the token names neither a subject nor a client")
        key, certificate = _confirmation(claims)
        return AccessToken(
            subject=subject,
            client_id=client_id,
            issuer=issuer or self.issuer,
            scopes=self._scopes(claims),
            claims=claims,
            expires=expires,
            key_thumbprint=key,
            certificate_thumbprint=certificate,
        )

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        if self.audiences is None:
            return
        found = claims.get("aud")
        listed = found if isinstance(found, list) else [found]
        if not any(isinstance(one, str) and one in self.audiences for one in listed):
            shown = ", ".join(_short(one) for one in listed[:3])
            raise InvalidToken(f"the token has the audience {shown}")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        scopes: set[str] = set()
        for name in self.scope_claims:
            value = claims.get(name)
            if isinstance(value, str):
                scopes.update(value.split())
            elif isinstance(value, list):
                scopes.update(one for one in value if isinstance(one, str))
        return frozenset(scopes)


def audiences_of(audience: str | Sequence[str]) -> tuple[str, ...]:
    """One audience or several."""
    return (audience,) if isinstance(audience, str) else tuple(audience)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidToken(f"the claim {name} of the token is not text")
    return value


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise InvalidToken(f"the claim {name} of the token is not a time")
    return float(value)


def _confirmation(claims: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The key and the certificate that a token is bound to (RFC 7800 section 3.1). A token
    with another binding is refused, because nothing would check the binding."""
    found = claims.get("cnf")
    if found is None:
        return None, None
    if not isinstance(found, dict):
        raise InvalidToken("the claim cnf of the token is not an object")
    key, certificate = found.get("jkt"), found.get("x5t#S256")
    if not (key or certificate) or not all(isinstance(x, str | None) for x in (key, certificate)):
        raise InvalidToken("the token is bound to something that is not known here (cnf)")
    return key, certificate


def _short(value: object) -> str:
    return repr(value)[:100]


PREFIX = "sha256:"
MIN_TOKEN = 32  # characters: a shorter token could be found from its hash by trying
MAX_HASHES = 100_000


class TokenHash(msgspec.Struct, frozen=True, kw_only=True):
    """A token of `TokenHashes`.

    Attributes:
        hash: What `hash_token` returned: ``sha256:`` and 64 hexadecimal digits.
        subject: Who uses the token.
        client_id: The program that uses it.
        scopes: What the token permits.
        expires: When the token ends, in Unix seconds; None for never.
    """

    hash: str
    subject: str
    client_id: str | None = None
    scopes: frozenset[str] = frozenset()
    expires: float | None = None


class TokenHashes:
    """Verifies access tokens that you hand out yourself, by their SHA-256 hashes::

        token = new_token()  # for the client alone
        TokenHashes([TokenHash(hash=hash_token(token), subject="anne", scopes={"notes"})])

    The hashes have no salt: a token of `new_token` cannot be found by trying, and is not used
    elsewhere.

    Args:
        tokens: The tokens, at most 100,000.
        clock: Returns Unix seconds.

    ValueError: an entry has no valid hash or no subject, or a hash comes twice.
    """

    def __init__(
        self, tokens: Iterable[TokenHash], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._tokens: dict[bytes, AccessToken] = {}
        for one in tokens:
            digest = _digest(one.hash)
            if not one.subject:
                raise ValueError("a token has no subject")
            if digest in self._tokens:
                raise ValueError(f"the hash of {one.subject!r} comes twice")
            if len(self._tokens) == MAX_HASHES:
                raise ValueError(f"there are more than {MAX_HASHES} tokens")
            self._tokens[digest] = AccessToken(
                subject=one.subject,
                client_id=one.client_id,
                scopes=frozenset(one.scopes),
                expires=one.expires,
            )

    def verify(self, token: str) -> AccessToken:
        """Return the contents of a token. `wirespeed.errors.InvalidToken`: the token is not known,
        or has expired."""
        # The time of the look-up may reveal bits of a hash, but no token follows from them.
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        access = self._tokens.get(digest)
        if access is None:
            raise InvalidToken("the token is not known")
        if access.expires is not None and self._clock() >= access.expires:
            raise InvalidToken("the token has expired")
        return access

    async def close(self) -> None:
        """Does nothing; other verifiers have connections."""


def new_token() -> str:
    """Return a new access token: 43 characters that encode 256 random bits."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return the hash of a token for a `TokenHash`. ValueError: the token has less than 32
    characters, or characters that a bearer token does not have."""
    if not is_token(token) or len(token) < MIN_TOKEN:
        raise ValueError(f"a token is at least {MIN_TOKEN} printable ASCII characters")
    return PREFIX + hashlib.sha256(token.encode()).hexdigest()


def _digest(text: str) -> bytes:
    digits = text.removeprefix(PREFIX)
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if digits == text or len(digest) != 32 or len(digits) != 64:
        raise ValueError("the hash of a token is not one of hash_token")
    return digest


set_public_home(globals())
