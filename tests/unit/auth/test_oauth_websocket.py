"""A user logs in to a server at a WebSocket: the opening handshake carries the token."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.authorization_server import AuthorizationServer, User
from lab.client import until
from lab.grant import site
from lab.origin import Origin, Request, ok
from lab.process import free_port
from lab.serve import serving
from lab.web import listening
from lab.wording import raises

from wirespeed import Client, Context, Server, SyncClient, WebSocket
from wirespeed import User as Caller
from wirespeed.auth import AccessToken, ClientCredentials, MemoryStorage, OAuth, ResourceServer
from wirespeed.auth.dpop import DpopProofs
from wirespeed.errors import (
    AuthorizationError,
    ConnectionLost,
    HttpStatusError,
    InvalidToken,
    UpgradeRefused,
)


class Protected:
    """Our server at a WebSocket, and the authorization server that it trusts."""

    def __init__(self, authority: AuthorizationServer, port: int) -> None:
        self.authority = authority
        self.user = User()
        self.storage = MemoryStorage()
        self.resource = f"http://127.0.0.1:{port}/mcp"
        self.url = f"ws://127.0.0.1:{port}/mcp"
        self.shown: list[str] = []  # the tokens of all handshakes

    def verify(self, text: str) -> AccessToken:
        self.shown.append(text)
        found = self.authority.tokens.get(text)
        if found is None or found.resource != self.resource:
            raise InvalidToken("unknown")
        return AccessToken(subject="anne", scopes=frozenset(found.scopes), expires=found.expires)

    def auth(self, **options: Any) -> OAuth:
        return OAuth(**({"storage": self.storage, "open_url": self.user.browse} | options))

    def client(self, **options: Any) -> Client:
        options.setdefault("auth", self.auth())
        return Client(self.url, **({"timeout": 5.0} | options))


@contextlib.asynccontextmanager
async def protected(life: float = 3600.0, **options: Any) -> AsyncIterator[Protected]:
    async with listening(AuthorizationServer()) as authority:
        authority.life = life
        found = Protected(authority, free_port())
        issuers = [authority.issuer]
        auth = ResourceServer(found.resource, issuers, verifier=found.verify, keep=0, **options)
        server = Server("notes", auth=auth)

        @server.tool
        async def who(ctx: Context) -> str:
            assert isinstance(ctx.user, Caller)
            return f"{ctx.user} {' '.join(sorted(ctx.user.scopes))}".strip()

        async with serving(server, found.url, close_timeout=0.2):
            yield found


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_user_logs_in_once(era: Any) -> None:
    async with protected(scopes=["notes"]) as found:
        async with found.client(era=era) as client:
            assert (await client.call_tool("who")).text == "anne notes"
        assert len(found.user.pages) == 1
        [token] = found.shown
        assert found.authority.tokens[token].resource == found.resource
        assert found.storage.servers() == [found.resource]
        async with found.client(era=era) as client:  # the login is kept
            await client.call_tool("who")
        assert found.shown == [token, token]
        assert len(found.user.pages) == 1


async def test_a_login_has_more_time_than_the_handshake() -> None:
    async with protected() as found:

        async def slowly(url: str) -> None:
            await asyncio.sleep(0.3)
            await found.user.browse(url)

        target = WebSocket(found.url, auth=found.auth(open_url=slowly), open_timeout=0.2)
        async with Client(target, handshake_timeout=0.2) as client:
            assert (await client.call_tool("who")).text == "anne"


def test_a_blocking_client_logs_in() -> None:
    async def serve() -> None:
        async with protected() as found:

            def work() -> None:
                with SyncClient(found.url, auth=found.auth()) as client:
                    client.call_tool("who")

            await asyncio.to_thread(work)
            assert len(found.user.pages) == 1

    asyncio.run(serve())


async def test_the_server_demands_more_scopes() -> None:
    async with protected(scopes=["notes", "more"]) as found:
        poor = found.authority.issue(["notes"], found.resource)
        login = {
            "server": found.resource,
            "issuer": found.authority.issuer,
            "tokens": {"access_token": poor},
            "asked": ["notes"],
        }
        found.storage.save(found.resource, json.dumps(login))
        async with found.client() as client:
            assert (await client.call_tool("who")).text == "anne more notes"
        assert found.shown[0] == poor
        assert [asked["scope"] for asked in found.authority.asked("authorize")] == ["notes more"]


async def test_a_token_that_ended_is_refreshed() -> None:
    async with protected() as found:
        async with found.client():
            pass
        found.authority.tokens.clear()
        async with found.client() as client:
            await client.call_tool("who")
        assert len(found.user.pages) == 1
        assert len(set(found.shown)) == 2


async def test_the_client_comes_back_when_its_token_ends() -> None:
    async with protected(life=0.6) as found, found.client(era="modern") as client:
        await client.call_tool("who")
        [first] = found.shown
        found.authority.life = 3600.0
        ends = found.authority.tokens[first].expires
        with contextlib.suppress(ConnectionLost):
            while time.time() < ends + 0.5:
                await client.call_tool("who")
                await asyncio.sleep(0.05)
        assert (await client.call_tool("who")).text == "anne"
        assert found.shown[-1] != first
        assert len(found.user.pages) == 1


async def test_closing_ends_a_login(nothing_left: None) -> None:
    async with protected() as found:
        pages: list[str] = []
        client = found.client(auth=found.auth(open_url=pages.append))
        opening = asyncio.ensure_future(client.open())
        await until(lambda: bool(pages))
        await client.close()
        with pytest.raises(Exception, match="closed"):
            await opening


async def test_a_user_declines() -> None:
    async with protected() as found:
        found.authority.redirect = lambda said: {
            "error": "access_denied", "state": said["state"], "iss": said["iss"],
        }  # fmt: skip
        with pytest.raises(AuthorizationError) as caught:
            await found.client().open()
        assert caught.value.error == "access_denied"


async def test_a_token_that_is_refused_at_once_ends_the_attempts() -> None:
    async with protected() as found:
        found.resource += "/other"  # the verifier's
        with raises(AuthorizationError):
            await found.client().open()
        assert len(found.shown) == 1


async def test_a_storage_that_fails() -> None:
    class Broken(MemoryStorage):
        def load(self, server: str) -> str | None:
            raise OSError("the disk is gone")

    async with protected() as found:
        with raises(AuthorizationError) as caught:
            await found.client(auth=found.auth(storage=Broken())).open()
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("nonces", [False, True])
async def test_a_handshake_proves_the_key_of_its_token(nonces: bool) -> None:
    async with site() as found:
        found.proofs = DpopProofs()

        def verify(text: str) -> AccessToken:
            if text not in found.valid:
                raise InvalidToken("unknown")
            return AccessToken(subject="app", key_thumbprint=found.valid[text])

        port = free_port()
        resource = f"http://127.0.0.1:{port}/mcp"
        auth = ResourceServer(
            resource, [found.issuer], verifier=verify, dpop="required", dpop_nonces=nonces
        )
        server = Server("notes", auth=auth)
        url = f"ws://127.0.0.1:{port}/mcp"
        async with serving(server, url):
            async with Client(url, auth=ClientCredentials("app", "s3cret", dpop=True)) as client:
                assert await client.list_tools() == []
            [stolen] = found.valid
            with raises(UpgradeRefused):
                await Client(url, headers={"Authorization": f"DPoP {stolen}"}).open()
        assert len(found.asked) == 1


# -- attacks ---------------------------------------------------------------------------------------

TOKEN = "a-token-that-nobody-else-may-see"


class Stored(MemoryStorage):
    """A login at whatever server is asked for."""

    def load(self, server: str) -> str:
        return json.dumps({"server": server, "issuer": "i", "tokens": {"access_token": TOKEN}})


@contextlib.asynccontextmanager
async def refusing(status: bytes, fields: bytes, body: bytes = b"") -> AsyncIterator[Origin]:
    async def answer(request: Request) -> None:
        await request.write(ok(body, fields, status))

    async with Origin(answer) as origin:
        yield origin


def stored(port: int) -> Client:
    return Client(f"ws://127.0.0.1:{port}/mcp", auth=OAuth(storage=Stored(), headless=False))


async def test_a_token_does_not_follow_a_redirect() -> None:
    async with refusing(b"200 OK", b"") as other:
        location = b"Location: ws://localhost:%d/mcp\r\n" % other.port
        async with refusing(b"307 There", location) as origin:
            with raises(UpgradeRefused):
                await stored(origin.port).open()
            assert [one.headers["authorization"] for one in origin.requests] == [f"Bearer {TOKEN}"]
        assert not other.requests


async def test_a_challenge_leads_no_token_elsewhere() -> None:
    async with refusing(b"404 No", b"") as other:
        metadata = f"http://localhost:{other.port}/metadata"
        field = f'WWW-Authenticate: Bearer resource_metadata="{metadata}"\r\n'.encode()
        async with refusing(b"401 No", field) as origin:
            with pytest.raises(AuthorizationError):
                await stored(origin.port).open()
        assert other.requests
        assert not any("authorization" in one.headers for one in other.requests)


@pytest.mark.parametrize("length", [0, 180, 240, 1000])
@pytest.mark.parametrize("status", [b"403 No", b"500 Broken"])
async def test_no_text_shows_the_token(
    status: bytes, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server repeats the header fields of its client."""
    body = b"x" * length + b"Bearer " + TOKEN.encode()
    caplog.set_level(logging.DEBUG)
    async with refusing(status, b"Content-Type: text/plain\r\n", body) as origin:
        place = f"127.0.0.1:{origin.port}/mcp"
        clients = (
            stored(origin.port),
            Client(f"ws://{place}", token=TOKEN),
            Client(f"http://{place}", token=TOKEN),
        )
        for client in clients:
            with pytest.raises((UpgradeRefused, HttpStatusError)) as caught:
                await client.open()
            shown = f"{caught.value} {caught.value!r} {client!r}"
            assert TOKEN[:9] not in shown
    assert TOKEN[:9] not in caplog.text


@pytest.mark.parametrize("more", [{"token": "t"}, {"headers": {"Authorization": "Bearer t"}}])
def test_a_target_takes_one_token(more: dict[str, Any]) -> None:
    with raises(ValueError):
        WebSocket("ws://127.0.0.1:1/", auth=OAuth(), **more)
