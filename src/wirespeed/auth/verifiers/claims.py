"""Checks the claims of a token: of a JWT, or of the response of an introspection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wirespeed.auth.access_token import AccessToken
from wirespeed.errors import InvalidToken

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
