"""An authorization server that signs tokens and shows its keys, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any, Self

from lab.origin import Origin, Request, ok

from wirespeed.auth.access_token import AccessToken, Verifier
from wirespeed.auth.jose import new_key, sign

AUDIENCE = "https://mcp.example/mcp"
METADATA = "/.well-known/oauth-authorization-server"
NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Issuer:
    """``keys``: JWKs by their id, private parts included. ``body`` and ``status``: what is answered
    instead of the JWK Set. ``go``: responses wait for it."""

    def __init__(self, algorithm: str = "ES256") -> None:
        self.algorithm = algorithm
        self.keys = {"1": new_key(algorithm)}
        self.body: bytes | None = None
        self.status = b"200 OK"
        self.metadata: dict[str, Any] = {}
        self.n_fetched = 0
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __aenter__(self) -> Self:
        self.origin = Origin(self.answer)
        await self.origin.__aenter__()
        self.url = f"http://127.0.0.1:{self.origin.port}"
        self.metadata = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.origin.__aexit__(*exc)

    async def answer(self, request: Request) -> None:
        self.asked.append(request.target)
        if request.target == METADATA:
            await request.write(ok(json.dumps(self.metadata).encode()))
        elif request.target == "/keys":
            self.n_fetched += 1
            await self.go.wait()
            body = json.dumps(self.key_set()).encode() if self.body is None else self.body
            await request.write(ok(body, status=self.status))
        else:
            await request.write(ok(b"", status=b"404 X"))

    def key_set(self) -> dict[str, Any]:
        return {"keys": [public(key, kid) for kid, key in self.keys.items()]}

    def token(self, *, kid: str | None = "1", header: Any = None, **claims: Any) -> str:
        """A token. Claims and header parameters that are None are left out."""
        url = getattr(self, "url", "https://auth.example")
        whole = {"iss": url, "aud": AUDIENCE, "exp": NOW + 60, "sub": "anne", **claims}
        head = {"alg": self.algorithm, "kid": kid, "typ": "at+jwt", **(header or {})}
        return signed(head, whole, self.keys.get(kid or "1") or new_key(self.algorithm))


def public(key: Any, kid: str | None = None) -> dict[str, Any]:
    found = dict(key.as_dict(private=False))
    found.pop("kid", None)
    return found if kid is None else {**found, "kid": kid}


def signed(header: dict[str, Any], claims: dict[str, Any], key: Any) -> str:
    kept = [{k: v for k, v in one.items() if v is not None} for one in (header, claims)]
    return sign(kept[0], json.dumps(kept[1]).encode(), key)


async def verified(verifier: Verifier, token: str) -> AccessToken:
    found = verifier.verify(token)
    return await found if inspect.isawaitable(found) else found
