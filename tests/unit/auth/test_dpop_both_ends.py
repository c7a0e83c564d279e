"""Tokens that are bound to a key, between our client and our server (RFC 9449)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.grant import Site, site
from lab.http import Place, serving

from wirespeed import Client, Context, Server, User
from wirespeed.auth import AccessToken, ClientCredentials, ResourceServer
from wirespeed.auth.dpop import DpopKey, DpopProofs
from wirespeed.errors import InvalidToken

pytestmark = pytest.mark.smoke


class Protected:
    """Our server, and the authorization server that it trusts."""

    def __init__(self, found: Site, place: Place, url: str) -> None:
        self.site = found
        self.place = place
        self.url = url

    def client(self, **options: Any) -> Client:
        auth = ClientCredentials("app", "s3cret", dpop=True)
        return Client(self.url, auth=auth, timeout=5.0, **options)


@contextlib.asynccontextmanager
async def protected(**options: Any) -> AsyncIterator[Protected]:
    async with site() as found:
        found.proofs = DpopProofs()

        def verify(token: str) -> AccessToken:
            if token not in found.valid:
                raise InvalidToken("unknown")
            return AccessToken(subject="app", key_thumbprint=found.valid[token])

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        auth = ResourceServer(url, [found.issuer], verifier=verify, **options)
        server = Server("notes", auth=auth)

        @server.tool
        async def who(ctx: Context) -> str:
            assert isinstance(ctx.user, User)
            return ctx.user

        @server.tool
        async def add() -> None:
            server.add_tool(lambda: "more", name="more")

        async with serving(server, url=url) as place:
            yield Protected(found, place, url)


@pytest.mark.parametrize(
    "options", [{"dpop": "required", "dpop_nonces": True}, {"dpop": "accepted"}]
)
async def test_calls_at_once_each_have_a_proof(options: dict[str, Any]) -> None:
    async with protected(**options) as found, found.client() as client:
        calls = [client.call_tool("who") for _ in range(20)]
        texts = [result.text for result in await asyncio.gather(*calls)]
        assert texts == ["app"] * 20
        assert len(found.site.asked) == 1


async def test_a_session_has_proofs_for_its_stream_and_its_end() -> None:
    async with protected(dpop="required", dpop_nonces=True) as found:
        async with found.client(era="legacy") as client, client.subscribe(tools=True) as events:
            await client.call_tool("add")
            async with asyncio.timeout(5):
                await anext(events)  # by the stream of a GET
        assert len(found.site.asked) == 1


async def test_a_stolen_token_and_a_stolen_proof_are_refused() -> None:
    async with protected(dpop="required") as found:
        async with found.client() as client:
            await client.call_tool("who")
        [stolen] = found.site.valid
        thief = DpopKey()
        peer = await found.place.connect()

        async def status(scheme: str, proof: str = "") -> tuple[int, str]:
            fields = {"authorization": f"{scheme} {stolen}", "dpop": proof}
            response = await peer.modern("tools/list", **fields)
            return response.status, response.headers["www-authenticate"]

        for scheme, proof, error in (
            ("Bearer", "", ""),
            ("DPoP", "", "invalid_dpop_proof"),
            ("DPoP", thief.field("POST", found.url, stolen), "invalid_token"),
            ("DPoP", thief.field("POST", found.url, "other"), "invalid_dpop_proof"),
            ("DPoP", thief.field("GET", found.url, stolen), "invalid_dpop_proof"),
            ("DPoP", thief.field("POST", f"{found.url}/x", stolen), "invalid_dpop_proof"),
        ):
            code, challenge = await status(scheme, proof)
            assert code == 401
            assert f'error="{error}"' in challenge if error else "error=" not in challenge
            assert stolen not in challenge


async def test_a_replayed_proof_is_refused() -> None:
    async with protected(dpop="required") as found:
        key = DpopKey()
        token = "t"
        found.site.valid[token] = key.thumbprint
        fields = {
            "authorization": f"DPoP {token}",
            "dpop": key.field("POST", found.url, token),
        }
        peer = await found.place.connect()
        statuses = [(await peer.modern("tools/list", **fields)).status for _ in range(2)]
        assert statuses == [200, 401]
        peer = await found.place.connect()  # what one connection sent is known to all
        assert (await peer.modern("tools/list", **fields)).status == 401
