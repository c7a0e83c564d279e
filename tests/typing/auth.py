"""Authorization, as a typed user writes it."""

from __future__ import annotations

from typing import assert_type

from wirespeed.auth import (
    AccessToken,
    AnyOf,
    IntrospectionVerifier,
    JwtVerifier,
    TokenHash,
    TokenHashes,
    Verifier,
    hash_token,
    new_token,
)
from wirespeed.errors import CannotVerify, InvalidToken


class Own:
    def verify(self, token: str) -> AccessToken:
        if not token:
            raise InvalidToken("the token is empty")
        if token == "down":
            raise CannotVerify("the table of tokens is not there")
        return AccessToken(subject="anne", scopes=frozenset({"notes"}), expires=2e9)


async def verifiers() -> None:
    verifier: Verifier = Own()
    verifier = jwt = JwtVerifier("https://auth.example", ["a", "b"], algorithms=["ES256"], leeway=5)
    await jwt.close()
    verifier = asked = IntrospectionVerifier(
        "https://auth.example/introspect", audience=None, client_id="a", client_secret="b"
    )
    await asked.close()
    entry = TokenHash(hash=hash_token(new_token()), subject="anne", scopes=frozenset({"notes"}))
    hashes = TokenHashes([entry])
    assert_type(hashes.verify("x"), AccessToken)
    verifier = AnyOf(hashes, jwt, asked, Own())
    found = verifier.verify("x")
    token = found if isinstance(found, AccessToken) else await found
    assert_type(token.scopes, frozenset[str])
