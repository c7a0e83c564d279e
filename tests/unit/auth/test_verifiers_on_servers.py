"""Servers with the verifiers of the package: tokens of a real issuer, over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from lab.http import Peer, serving
from lab.issuer import Issuer
from lab.origin import Origin, Request, ok

from wirespeed import Context, Server, User
from wirespeed.auth import (
    IntrospectionVerifier,
    JwtVerifier,
    ResourceServer,
    TokenHash,
    TokenHashes,
    hash_token,
    new_token,
)
from wirespeed.auth.jose import new_key

pytestmark = pytest.mark.smoke

RESOURCE = "https://notes.example/mcp"


def notes(auth: ResourceServer) -> Server:
    server = Server("notes", auth=auth)

    @server.tool
    async def who(ctx: Context) -> str:
        assert isinstance(ctx.user, User)
        return f"{ctx.user} {' '.join(sorted(ctx.user.scopes))}"

    return server


async def asked(peer: Peer, token: str) -> tuple[int, str]:
    """The status of a call, and its text or the error of its challenge."""
    response = await peer.modern("tools/call", {"name": "who"}, authorization=f"Bearer {token}")
    if response.status == 200:
        return 200, response.json["result"]["content"][0]["text"]
    return response.status, response.headers.get("www-authenticate", "")


def token_of(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"aud": RESOURCE, "exp": time.time() + 600, **claims})


async def test_the_keys_are_found_by_the_metadata_of_the_issuer() -> None:
    async with Issuer() as issuer, serving(notes(ResourceServer(RESOURCE, [issuer.url]))) as place:
        peer = await place.connect()
        assert await asked(peer, token_of(issuer, scope="a b")) == (200, "anne a b")
        for claims in ({"aud": "https://other.example"}, {"exp": 1}, {"iss": "https://x.example"}):
            status, challenge = await asked(peer, token_of(issuer, **claims))
            assert status == 401
            assert 'error="invalid_token"' in challenge
            assert "other.example" not in challenge
        assert issuer.n_fetched == 1


async def test_a_flood_of_unknown_keys_on_many_connections() -> None:
    async with Issuer() as issuer, serving(notes(ResourceServer(RESOURCE, [issuer.url]))) as place:
        good = token_of(issuer)
        issuer.keys["forged"] = new_key("ES256")
        flood = [token_of(issuer, kid="forged", header={"kid": f"k{n}"}) for n in range(60)]
        del issuer.keys["forged"]
        peers = [await place.connect() for _ in range(6)]

        async def one(peer: Peer, tokens: list[str]) -> list[int]:
            return [(await asked(peer, token))[0] for token in tokens]

        found = await asyncio.gather(*(one(p, flood[n::6]) for n, p in enumerate(peers)))
        assert {status for statuses in found for status in statuses} == {401}
        assert (await asked(peers[0], good))[0] == 200
        assert issuer.n_fetched == 1


async def test_an_issuer_that_is_down_at_first() -> None:
    async with Issuer() as issuer:
        now = [time.time()]
        verifier = JwtVerifier(issuer.url, RESOURCE, clock=lambda: now[0])
        server = notes(ResourceServer(RESOURCE, [issuer.url], verifier=verifier))
        async with serving(server) as place:
            peer = await place.connect()
            issuer.status = b"503 X"
            assert (await asked(peer, token_of(issuer)))[0] == 503
            issuer.status = b"200 OK"
            assert (await asked(peer, token_of(issuer)))[0] == 503
            now[0] += 1
            assert await asked(peer, token_of(issuer)) == (200, "anne ")


async def test_introspection() -> None:
    active: dict[str, Any] = {"active": True, "sub": "anne", "aud": RESOURCE, "scope": "a"}
    answers = [b"500 X", b"200 OK"]

    async def answer(request: Request) -> None:
        status = answers.pop(0) if answers else b"200 OK"
        good = b"token=good&" in request.body
        body = json.dumps(active if good else {"active": False}).encode()
        await request.write(ok(body, status=status))

    async with Origin(answer) as origin:
        url = f"http://127.0.0.1:{origin.port}/introspect"
        verifier = IntrospectionVerifier(url, audience=RESOURCE, token="own")
        auth = ResourceServer(RESOURCE, ["https://login.example"], verifier=verifier)
        async with serving(notes(auth)) as place:
            peer = await place.connect()
            assert (await asked(peer, "good"))[0] == 503
            assert await asked(peer, "good") == (200, "anne a")
            assert await asked(peer, "good") == (200, "anne a")
            assert (await asked(peer, "bad"))[0] == 401
            assert await asked(peer, "good") == (200, "anne a")
            assert len(origin.requests) == 3


async def test_tokens_of_ones_own() -> None:
    token = new_token()
    entry = TokenHash(hash=hash_token(token), subject="anne", scopes=frozenset({"a"}))
    auth = ResourceServer(RESOURCE, [], verifier=TokenHashes([entry]))
    async with serving(notes(auth)) as place:
        peer = await place.connect()
        assert await asked(peer, token) == (200, "anne a")
        assert (await asked(peer, new_token()))[0] == 401
        assert (await asked(peer, entry.hash.removeprefix("sha256:")))[0] == 401
