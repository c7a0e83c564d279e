"""A user logs in: the whole way from a 401 to a call, and each place where it can end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.authorization_server import ECHO, AuthorizationServer, User, auth, call, get, lab
from lab.client import until
from lab.rows import every
from lab.web import listening
from lab.wording import raises

from wirespeed import Client, Context, Http, Server, SyncClient, WebSocket
from wirespeed.auth import AccessToken, MemoryStorage, OAuth, ResourceServer
from wirespeed.errors import AuthorizationError, CallTimeout, ConnectionClosed, HttpStatusError
from wirespeed.litemcp import LiteClient


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_user_logs_in_once(legacy: bool) -> None:
    async with lab(legacy=legacy) as (server, protected, user):
        protected.scopes = {"": ["notes"]}
        await call(protected, auth(user), 20)
        assert len(user.pages) == 1
        assert user.seen[0] == 200
        assert "Login received" in user.seen[1]
        (token,) = set(protected.used()) - {""}
        assert protected.used().count("") == 1
        assert server.tokens[token].scopes == ["notes"]
        assert server.tokens[token].resource == protected.url
        (registered,) = server.asked("register")
        assert registered["application_type"] == "native"
        assert registered["grant_types"] == ["authorization_code", "refresh_token"]
        (asked,) = server.asked("authorize")
        assert asked["code_challenge_method"] == "S256"
        assert asked["scope"] == "notes"
        if legacy:
            assert [one.method for one in protected.exchanges if one.method == "DELETE"]
            assert protected.sent("GET")[-1].headers["authorization"] == f"Bearer {token}"


async def test_calls_that_need_a_login_at_once_ask_the_user_once() -> None:
    async with lab() as (_, protected, user):
        protected.open = {"server/discover"}
        await call(protected, auth(user), 30)
        assert len(user.pages) == 1


async def test_a_login_has_more_time_than_the_handshake() -> None:
    async with lab() as (_, protected, user):

        async def slowly(url: str) -> None:
            await asyncio.sleep(0.3)
            await user.browse(url)

        value = auth(user, open_url=slowly)
        options: Any = {"probe_timeout": 0.1, "handshake_timeout": 0.1}
        async with protected.client(auth=value, **options) as client:
            assert client.protocol_version == "2026-07-28"


async def test_a_login_goes_on_when_its_call_has_ended() -> None:
    async with lab() as (_, protected, user):
        protected.open = {"server/discover"}
        opened = asyncio.Event()

        async def slowly(url: str) -> None:
            await opened.wait()
            await user.browse(url)

        async with protected.client(auth=auth(user, open_url=slowly)) as client:
            with pytest.raises(CallTimeout):
                await client.call_tool(*ECHO, timeout=0.1)
            waiting = asyncio.ensure_future(client.call_tool(*ECHO))
            await asyncio.sleep(0)
            opened.set()
            await waiting
        assert len(user.pages) == 1


async def test_closing_ends_a_login(nothing_left: None) -> None:
    async with lab() as (_, protected, user):
        pages: list[str] = []
        client = protected.client(auth=auth(user, open_url=pages.append))
        opening = asyncio.ensure_future(client.open())
        await until(lambda: bool(pages))
        await client.close()
        with pytest.raises(ConnectionClosed):
            await opening
        port = int(pages[0].partition("127.0.0.1%3A")[2].partition("%2F")[0])
        with pytest.raises(OSError, match="onnect"):
            await get(f"http://127.0.0.1:{port}/callback")


def test_a_blocking_client_logs_in() -> None:
    async def serve() -> None:
        async with lab() as (_, protected, user):

            def work() -> None:
                with SyncClient(protected.url, auth=auth(user)) as client:
                    client.call_tool(*ECHO)

            await asyncio.to_thread(work)
            assert len(user.pages) == 1

    asyncio.run(serve())


# -- scopes ----------------------------------------------------------------------------------------


@every(
    ("challenged", "listed", "given", "supported", "expected"),
    [
        (["a"], ["b", "c"], None, None, "a"),
        ([], ["b", "c"], None, None, "b c"),
        ([], None, None, None, None),
        ([], [], None, ["offline_access"], None),
        (["a"], None, None, ["offline_access"], "a offline_access"),
        (["a"], ["b"], ["d"], None, "d a"),
    ],
)
async def test_which_scopes_are_asked_for(
    challenged: list[str],
    listed: list[str] | None,
    given: list[str] | None,
    supported: list[str] | None,
    expected: str | None,
) -> None:
    async with lab(scopes_supported=supported) as (server, protected, user):
        protected.changes = {"scopes_supported": listed}
        protected.scopes = {"": challenged}
        await call(protected, auth(user, scopes=given))
        assert server.asked("authorize")[0].get("scope") == expected


async def test_a_call_that_needs_more_scopes_asks_for_all() -> None:
    async with lab() as (server, protected, user):
        protected.scopes = {"": ["read"], "tools/call": ["write"]}
        async with protected.client(auth=auth(user)) as client:
            await asyncio.gather(*(client.call_tool(*ECHO) for _ in range(5)))
        assert [asked["scope"] for asked in server.asked("authorize")] == ["read", "read write"]


async def test_scopes_that_are_not_granted_end_the_call() -> None:
    async with lab() as (server, protected, user):
        server.redirect = lambda found: found
        protected.scopes = {"tools/call": ["admin"]}
        server.answer = {"scope": "none"}
        protected.rules["tools/call"] = refuse_scopes("admin")
        protected.scopes = {}
        async with protected.client(auth=auth(user)) as client:
            for _ in range(2):
                with raises(AuthorizationError) as caught:
                    await client.call_tool(*ECHO)
                assert caught.value.error == "insufficient_scope"
        assert len(user.pages) == 2


def refuse_scopes(*names: str) -> Any:
    """A rule that demands further scopes, one after another, whatever the token has."""
    left = list(names)

    async def rule(exchange: Any, message: Any) -> None:
        scope = left.pop(0) if len(left) > 1 else left[0]
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        exchange.reply(403, www_authenticate=challenge)

    return rule


async def test_a_server_that_demands_ever_more_scopes_is_given_up() -> None:
    async with lab() as (_, protected, user):
        protected.rules["tools/call"] = refuse_scopes(*"abcdefgh")
        async with protected.client(auth=auth(user)) as client:
            with raises(HttpStatusError):
                await client.call_tool(*ECHO)
        assert len(user.pages) == 4


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_our_client_logs_in_to_our_server(era: Any) -> None:
    async with listening(AuthorizationServer()) as authority:
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"

        def verify(text: str) -> AccessToken | None:
            token = authority.tokens.get(text)
            if token is None or token.resource != url:
                return None
            return AccessToken(subject="anne", scopes=frozenset(token.scopes))

        guard = ResourceServer(url, [authority.issuer], verifier=verify, scopes=["read"], keep=0)
        server, user = Server("notes", auth=guard), User()

        @server.tool
        async def read(ctx: Context) -> str:
            return str(ctx.user)

        @server.tool(scopes=["write"])
        async def write(ctx: Context) -> list[str]:
            assert ctx.user is not None
            return sorted(ctx.user.scopes)

        listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(server.serve(url, on_listening=listens.set_result))
        await asyncio.wait((listens, serving), return_when=asyncio.FIRST_COMPLETED)
        try:
            async with Client(url, auth=auth(user), era=era, timeout=10) as client:
                assert (await client.call_tool("read", {})).data == "anne"
                assert (await client.call_tool("write", {})).data == ["read", "write"]
                authority.tokens.clear()
                assert (await client.call_tool("read", {})).data == "anne"
        finally:
            serving.cancel()
            await asyncio.wait((serving,))
        scopes = [asked["scope"] for asked in authority.asked("authorize")]
        assert scopes == ["read", "read write"]
        assert authority.asked("token")[-1]["grant_type"] == "refresh_token"


# -- without a browser -----------------------------------------------------------------------------


async def test_a_redirect_is_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lab() as (_, protected, user):
        read_end, write_end = os.pipe()
        with os.fdopen(read_end) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            opening = asyncio.ensure_future(call(protected, auth(user, headless=True)))
            shown = ""

            def printed() -> bool:
                nonlocal shown
                shown += capsys.readouterr().err
                return "paste" in shown

            await until(printed)
            (url,) = [line.strip() for line in shown.splitlines() if "http" in line]
            os.write(write_end, f"\n {await user.follow(url)} \n".encode())
            await opening
            os.close(write_end)


async def test_neither_browser_nor_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    async with lab() as (_, protected, _user):
        monkeypatch.setattr(sys, "stdin", None)
        with raises(AuthorizationError):
            await call(protected, OAuth(storage=MemoryStorage()))


async def test_a_browser_gets_the_address_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with lab(authorization_endpoint="PLACE") as (server, protected, user):
        server.changes["authorization_endpoint"] = f"{server.origin}/authorize?hint=$(id)&x=%20"
        said = tmp_path / "said"
        program = tmp_path / "browser"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$1" > {said}\nenv >> {said}\n')
        program.chmod(0o755)
        monkeypatch.setenv("BROWSER", str(program))
        opening = asyncio.ensure_future(call(protected, OAuth(storage=MemoryStorage())))
        await until(lambda: said.exists() and "PATH=" in said.read_text())
        n, url, *environment = said.read_text().splitlines()
        assert n == "1"
        assert "?hint=$(id)&x=%20&response_type=code" in url
        await user.browse(url)
        await opening
        assert not [line for line in environment if any(token in line for token in server.tokens)]


# -- values ----------------------------------------------------------------------------------------


@every(
    ("options", "expected"),
    [
        ({"client_secret": "s"}, "needs client_id"),
        ({"client_id": "c", "client_metadata_url": "https://h/c"}, "not both"),
        ({"client_metadata_url": "http://h/c.json"}, "https URL with a path"),
        ({"client_metadata_url": "https://h"}, "https URL with a path"),
        ({"redirect_uri": "https://h/cb"}, "redirect must"),
        ({"redirect_uri": "javascript:x"}, "redirect must"),
        ({"login_timeout": 0}, "login_timeout"),
        ({"redirect": print, "headless": True}, "leave open_url"),
    ],
)
def test_arguments(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        OAuth(storage=MemoryStorage(), **options)


def test_where_auth_is_taken() -> None:
    value = OAuth("mine", "s3cret", storage=MemoryStorage())
    assert repr(value) == "OAuth('mine')"
    assert Client("https://h/mcp", auth=value).target == Http("https://h/mcp", auth=value)
    with raises(TypeError):
        OAuth(scopes="notes")
    with raises(TypeError):
        Http("https://h/mcp", auth=OAuth)  # type: ignore[arg-type]
    with raises(ValueError):
        Http("https://h/mcp", auth=value, token="t")
    with raises(ValueError):
        Http("https://h/mcp", auth=value, headers={"Authorization": "Basic x"})
    assert Client("wss://h/mcp", auth=value).target == WebSocket("wss://h/mcp", auth=value)
    with raises(TypeError):
        Client("unix:/tmp/x", auth=value)
    with raises(TypeError):
        LiteClient(Http("https://h/mcp", auth=value))
