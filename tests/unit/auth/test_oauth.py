"""A user logs in: the whole way from a 401 to a call, and each place where it can end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from authorization_server import (
    OPENID,
    RESOURCE,
    AuthorizationServer,
    ProtectedServer,
    User,
    get,
    lab,
)
from client_lab import until
from web_lab import listening, modern

from wirespeed import Client, Context, Http, Server, SyncClient, WebSocket
from wirespeed.auth import AccessToken, FileStorage, MemoryStorage, OAuth, ResourceServer
from wirespeed.errors import AuthorizationError, CallTimeout, ConnectionClosed, HttpStatusError
from wirespeed.litemcp import LiteClient

ECHO = "echo", {"text": "hello"}


def auth(user: User, **options: Any) -> OAuth:
    if "redirect" not in options and "headless" not in options:
        options.setdefault("open_url", user.browse)
    return OAuth(**({"storage": MemoryStorage()} | options))


async def call(protected: ProtectedServer, value: OAuth, n: int = 1) -> None:
    """Open a client, and call a tool."""
    async with protected.client(auth=value) as client:
        await asyncio.gather(*(client.call_tool(*ECHO) for _ in range(n)))


def age(storage: MemoryStorage | FileStorage, server: str) -> None:
    """Make the token of a stored login old."""
    login = json.loads(storage.load(server) or "")
    login["tokens"] |= {"issued": 1.0, "expires": 2.0}
    storage.save(server, json.dumps(login))


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


# -- tokens ----------------------------------------------------------------------------------------


async def test_a_stored_login_is_used_and_refreshed() -> None:
    async with lab() as (server, protected, user):
        storage = MemoryStorage()
        await call(protected, auth(user, storage=storage))
        first = protected.used()[-1]
        before = len(protected.exchanges)
        await call(protected, auth(user, storage=storage))
        assert set(protected.used()[-2:]) == {first}
        assert not [e for e in protected.exchanges[before:] if e.target != "/mcp"]
        age(storage, protected.url)
        await call(protected, auth(user, storage=storage), 10)
        assert protected.used()[-1] not in ("", first)
        assert [form["grant_type"] for form in server.asked("token")] == [
            "authorization_code",
            "refresh_token",
        ]
        assert server.asked("token")[1]["resource"] == protected.url
        assert len(user.pages) == 1


async def test_a_token_that_the_server_no_longer_takes_is_refreshed() -> None:
    async with lab() as (server, protected, user), protected.client(auth=auth(user)) as client:
        await client.call_tool(*ECHO)
        server.tokens.clear()
        await asyncio.gather(*(client.call_tool(*ECHO) for _ in range(10)))
        assert len(server.asked("token")) == 2
        assert len(user.pages) == 1


async def test_a_challenge_of_a_ping_is_answered() -> None:
    async with lab() as (server, protected, user), protected.client(auth=auth(user)) as client:
        server.tokens.clear()
        await client.ping()
        assert len(server.asked("token")) == 2


async def test_a_stream_begins_with_a_token_that_lasts() -> None:
    async with lab() as (server, protected, user):
        server.answer = {"expires_in": 4}

        async def listen(exchange: Any, message: Any) -> None:
            exchange.open()

        protected.rules["subscriptions/listen"] = listen
        async with protected.client(auth=auth(user)) as client:
            first = protected.used()[-1]
            await asyncio.sleep(2.1)
            waiting = asyncio.ensure_future(client.subscribe(tools=True).__aenter__())
            (listened,) = await protected.got("subscriptions/listen")
            assert listened.headers["authorization"] != f"Bearer {first}"
            waiting.cancel()
            await asyncio.wait((waiting,))


async def test_a_client_uses_the_token_that_another_one_refreshed() -> None:
    async with lab() as (server, protected, user):
        value = auth(user)
        async with protected.client(auth=value) as one, protected.client(auth=value) as two:
            server.tokens.clear()
            await one.call_tool(*ECHO)
            await two.call_tool(*ECHO)
        assert len(server.asked("token")) == 2
        assert len(user.pages) == 1


async def test_a_stream_survives_any_number_of_tokens() -> None:
    async with lab(legacy=True) as (server, protected, user):
        gets: list[str] = []

        async def stream(exchange: Any) -> None:
            gets.append(exchange.headers["authorization"])
            exchange.open()
            exchange.raw("retry: 1\n\n")
            server.tokens.clear()
            exchange.end()

        protected.get = stream
        async with protected.client(auth=auth(user)):
            await until(lambda: len(gets) >= 6)
        assert len(set(gets)) == len(gets)


async def test_a_stream_without_a_token_is_not_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lab(legacy=True) as (server, protected, user):

        async def stream(exchange: Any) -> None:
            server.tokens.clear()
            server.refuse = lambda form: "invalid_scope"
            exchange.reply(401, www_authenticate="Bearer")

        protected.get = stream
        async with protected.client(auth=auth(user)):
            await until(lambda: "sends no events" in caplog.text)
        assert "invalid_scope: that is why" in caplog.text
        assert len(user.pages) == 2


async def test_a_storage_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Storage(MemoryStorage):
        broken = False

        def lock(self, server: str) -> Any:
            if self.broken:
                raise OSError("no space")
            return super().lock(server)

    async with lab(legacy=True) as (server, protected, user):
        storage = Storage()
        server.answer = {"expires_in": 0}

        async def stream(exchange: Any) -> None:
            exchange.open()
            exchange.raw("retry: 1\n\n")
            await asyncio.sleep(1.1)
            storage.broken = True
            exchange.end()

        protected.get = stream
        async with protected.client(auth=auth(user, storage=storage)) as client:
            await until(lambda: "sends no events: getting a token failed: OSError" in caplog.text)
            with pytest.raises(AuthorizationError, match="OSError"):
                await client.call_tool(*ECHO)
            storage.broken = False
            await client.call_tool(*ECHO)


async def test_a_refresh_token_that_ended_needs_a_login() -> None:
    async with lab() as (server, protected, user), protected.client(auth=auth(user)) as client:
        await client.call_tool(*ECHO)
        server.tokens.clear()
        refresh = server.asked("token")
        server.refuse = lambda form: (
            "invalid_grant" if form["grant_type"] == "refresh_token" else ""
        )
        await client.call_tool(*ECHO)
        assert len(user.pages) == 2
        assert len(server.asked("register")) == 1
        assert refresh


async def test_tokens_without_a_life_are_not_refreshed_for_each_message() -> None:
    async with lab() as (server, protected, user):
        server.answer = {"expires_in": 0}
        await call(protected, auth(user), 20)
        assert len(server.asked("token")) <= 3


async def test_two_processes_use_a_refresh_token_once(tmp_path: Path) -> None:
    async with lab() as (server, protected, user):
        folder = tmp_path / "logins"
        await call(protected, auth(user, storage=FileStorage(folder)))
        age(FileStorage(folder), protected.url)
        values = [auth(user, storage=FileStorage(folder)) for _ in range(5)]
        await asyncio.gather(*(call(protected, value) for value in values))
        assert len(server.asked("token")) == 2
        assert len(user.pages) == 1


async def test_a_token_that_is_refused_at_once_is_an_error() -> None:
    async with lab() as (_, protected, user):
        protected.changes = {"resource": protected.origin}
        with pytest.raises(AuthorizationError, match=r"refuses the token that .* has just"):
            await call(protected, auth(user))
        assert len(user.pages) == 1


async def test_another_refusal_is_not_a_challenge() -> None:
    async with lab() as (_, protected, user):

        async def forbid(exchange: Any, message: Any) -> None:
            exchange.reply(403, "not you", content_type="text/plain")

        protected.rules["tools/call"] = forbid
        with pytest.raises(HttpStatusError, match="not you"):
            await call(protected, auth(user))
        assert len(user.pages) == 1


async def test_no_text_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with lab() as (server, protected, user):

        async def echo(exchange: Any, message: Any) -> None:
            said = f"cannot take {exchange.headers['authorization']}"
            exchange.reply(500, said, content_type="text/plain")

        protected.rules["tools/call"] = echo
        value = auth(user, storage=MemoryStorage())
        async with protected.client(auth=value) as client:
            with pytest.raises(HttpStatusError) as caught:
                await client.call_tool(*ECHO)
            shown = [str(caught.value), repr(client), repr(client.target), repr(value)]
        (token,) = server.tokens
        (form,) = server.asked("token")
        texts = [*shown, caplog.text, repr(value.storage)]
        for secret in (token, form["code"], form["code_verifier"]):
            assert not [text for text in texts if secret in text]
        assert "cannot take Bearer …" in shown[0]
        assert "auth=<…>" in shown[2]


async def test_no_error_shows_what_a_server_repeats() -> None:
    async with lab(token_endpoint_auth_methods_supported=["client_secret_post"]) as (
        server,
        protected,
        user,
    ):
        server.refuse = lambda form: "invalid_request"
        with pytest.raises(AuthorizationError, match="that is why") as caught:
            await call(protected, auth(user))
        (form,) = server.asked("token")
        for name in ("code", "code_verifier", "client_secret"):
            assert form[name] not in str(caught.value)


async def test_a_token_does_not_go_to_another_origin() -> None:
    async with lab() as (_, protected, user), modern() as other:

        async def elsewhere(exchange: Any, message: Any) -> None:
            exchange.reply(307, location=other.url)

        protected.rules["tools/call"] = elsewhere
        with pytest.raises(Exception, match="another origin"):
            await call(protected, auth(user))
        assert not other.exchanges


async def test_one_value_keeps_servers_apart() -> None:
    async with lab() as (_, one, user), lab() as (_, two, _):
        value = auth(user)
        await call(one, value)
        await call(two, value)
        assert not set(one.used()) & set(two.used()) - {""}


# -- scopes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
                with pytest.raises(AuthorizationError, match="admin") as caught:
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
            with pytest.raises(HttpStatusError, match="403"):
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


# -- discovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/tenant"])
@pytest.mark.parametrize("kind", ["oauth", "openid", "appended"])
async def test_where_metadata_lies(path: str, kind: str) -> None:
    async with lab(path) as (server, protected, user):
        if kind != "oauth":
            server.places = [f"{OPENID}{path}" if kind == "openid" else f"{path}{OPENID}"]
        protected.challenge = {}
        protected.places = [RESOURCE if kind == "openid" else f"{RESOURCE}/mcp"]
        if kind == "appended":
            protected.places = ["/elsewhere.json"]
            protected.challenge = {"resource_metadata": f"{protected.origin}/elsewhere.json"}
        await call(protected, auth(user))
        asked = [e.target for e in protected.exchanges if e.target != "/mcp"]
        if kind == "appended":
            assert asked == ["/elsewhere.json"]
        elif kind == "openid":
            assert asked == [f"{RESOURCE}/mcp", RESOURCE]


@pytest.mark.parametrize("unknown", [(200, "<html>"), (500, "")])
async def test_other_answers_at_unknown_paths(unknown: tuple[int, str]) -> None:
    async with lab() as (server, protected, user):
        server.unknown = protected.unknown = unknown
        protected.challenge = {}
        protected.places = [RESOURCE]
        server.places = [OPENID]
        await call(protected, auth(user))
        protected.places = []
        with pytest.raises(AuthorizationError, match="oauth-protected-resource/mcp"):
            await call(protected, auth(user))


@pytest.mark.parametrize("metadata", [True, False])
async def test_a_server_of_2025_03_26_is_its_own_authorization_server(metadata: bool) -> None:
    async with lab(legacy=True) as (_, protected, user):
        protected.places = []
        own = protected.own = AuthorizationServer()
        protected.servers = [own]
        if not metadata:
            own.places = []
            own.redirect = lambda found: {k: v for k, v in found.items() if k != "iss"}
        storage = MemoryStorage()
        await call(protected, auth(user, storage=storage))
        assert len(own.asked("register")) == 1
        age(storage, protected.url)
        await call(protected, auth(user, storage=storage))
        assert len(own.asked("token")) == 2


async def test_another_authorization_server_gets_nothing_of_the_first() -> None:
    async with lab() as (first, protected, user), listening(AuthorizationServer()) as second:
        storage = MemoryStorage()
        async with protected.client(auth=auth(user, storage=storage)) as client:
            await client.call_tool(*ECHO)
            protected.servers = [second]
            await client.call_tool(*ECHO)
        old = first.asked("authorize")[0]["client_id"]
        assert len(second.asked("register")) == 1
        assert second.asked("authorize")[0]["client_id"] != old
        assert [form["grant_type"] for form in second.asked("token")] == ["authorization_code"]
        assert len(first.asked("token")) == 1
        protected.servers = [first]  # the registration there is still known
        await call(protected, auth(user, storage=storage))
        assert len(first.asked("register")) == 1
        assert [form["grant_type"] for form in first.asked("token")] == ["authorization_code"] * 2


async def test_the_authorization_server_of_a_login_stays() -> None:
    async with lab() as (first, protected, user), listening(AuthorizationServer()) as second:
        async with protected.client(auth=auth(user)) as client:
            protected.servers = [second, first]
            first.tokens.clear()
            await client.call_tool(*ECHO)
        assert not second.requests
        protected.servers = [first, second]
        await call(protected, auth(user, issuer=second.issuer))
        assert second.asked("token")


async def test_a_registered_client_is_not_used_elsewhere() -> None:
    async with lab() as (first, protected, user), listening(AuthorizationServer()) as second:
        value = auth(user, client_id="mine", client_secret="s3cret")
        await call(protected, value)
        (form,) = first.asked("token")
        assert (form["by"], form["client_id"], form["client_secret"]) == ("basic", "mine", "s3cret")
        assert not first.asked("register")
        protected.servers = [second]
        with pytest.raises(AuthorizationError, match="the client mine is not known"):
            await call(protected, value)
        bound = auth(user, client_id="mine", issuer=first.issuer)
        with pytest.raises(AuthorizationError, match="does not use the authorization server"):
            await call(protected, bound)
        assert not second.requests
        assert "s3cret" not in f"{value.storage.load(protected.url)}"


Change = Callable[[AuthorizationServer, ProtectedServer], None]


def metadata(**members: Any) -> Change:
    return lambda server, protected: server.changes.update(members)


def resource(**members: Any) -> Change:
    return lambda server, protected: protected.changes.update(members)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (resource(resource="https://evil.example.com/mcp"), "that of another resource"),
        (resource(resource="http://127.0.0.1:1/mcp"), "that of another resource"),
        (resource(authorization_servers=[]), "names no authorization server"),
        (resource(authorization_servers=["http://169.254.169.254"]), "is not secure"),
        (resource(authorization_servers=["https://169.254.169.254"]), "169.254.169.254"),
        (resource(authorization_servers=["file:///etc/passwd"]), "passwd"),
        (metadata(issuer="https://attacker.example.com"), "has the issuer"),
        (metadata(code_challenge_methods_supported=None), "PKCE"),
        (metadata(code_challenge_methods_supported=["plain"]), "PKCE"),
        (metadata(authorization_endpoint=None), "no authorization endpoint"),
        (metadata(authorization_endpoint="javascript:alert(1)"), r"not an https URL \(javascript:"),
        (metadata(authorization_endpoint="file:///bin/sh"), "not an https URL"),
        (metadata(authorization_endpoint="http://as.example.com/a"), "not an https URL"),
        (metadata(authorization_endpoint="https://as.example.com/';sh"), "not an https URL"),
        (metadata(authorization_endpoint="https://a.example/?state=x"), "parameters of a login"),
        (metadata(token_endpoint=None), "no token endpoint"),
        (metadata(token_endpoint="http://169.254.169.254/token"), "is not secure"),
        (metadata(registration_endpoint=None), "does not register clients"),
        (metadata(registration_endpoint="http://10.0.0.1/register"), "is not secure"),
        (metadata(scopes_supported=["x" * 300_000]), "256 KiB|262144|larger|long|limit"),
    ],
)
async def test_documents_that_are_not_used(change: Change, expected: str) -> None:
    async with lab() as (server, protected, user):
        change(server, protected)
        with pytest.raises(AuthorizationError, match=expected):
            await call(protected, auth(user))
        assert len(user.pages) <= 1
        assert not [text for text in protected.used() if text]


async def test_a_redirect_of_metadata_is_not_followed() -> None:
    async with lab() as (_, protected, user), modern() as inside:

        async def moved(exchange: Any) -> None:
            exchange.reply(302, location=inside.url)

        inside.get = moved
        protected.challenge = {"resource_metadata": f"http://127.0.0.1:{inside.port}/x"}
        with pytest.raises(AuthorizationError, match="redirect"):
            await call(protected, auth(user))
        assert len(inside.exchanges) == 1


# -- registration ----------------------------------------------------------------------------------


async def test_a_metadata_document_names_the_client() -> None:
    document = "https://app.example.com/client.json"
    async with lab(client_id_metadata_document_supported=True) as (server, protected, user):
        await call(protected, auth(user, client_metadata_url=document))
        assert server.asked("authorize")[0]["client_id"] == document
        assert not server.asked("register")
        server.changes = {}
        await call(protected, auth(user, client_metadata_url=document))
        assert len(server.asked("register")) == 1


@pytest.mark.parametrize(
    ("supported", "by"),
    [(["none"], None), (["client_secret_basic"], "basic"), (["client_secret_post"], None)],
)
async def test_how_a_client_authenticates_itself(supported: list[str], by: str | None) -> None:
    async with lab(token_endpoint_auth_methods_supported=supported) as (server, protected, user):
        await call(protected, auth(user))
        (registered,) = server.asked("register")
        assert [registered["token_endpoint_auth_method"]] == supported
        (form,) = server.asked("token")
        assert form.get("by") == by
        assert ("client_secret" in form) is (supported != ["none"])


async def test_a_port_that_is_taken_needs_another_registration() -> None:
    async with lab() as (server, protected, user):
        storage = MemoryStorage()
        server.issues_refresh = False
        for _ in range(2):
            server.tokens.clear()
            await call(protected, auth(user, storage=storage))
        (registered,) = server.asked("register")
        (uri,) = registered["redirect_uris"]
        port = int(uri.rpartition(":")[2].partition("/")[0])
        server.tokens.clear()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            await call(protected, auth(user, storage=storage))
            server.tokens.clear()
            fixed = auth(user, redirect_uri=uri)
            with pytest.raises(AuthorizationError, match="choose another redirect_uri"):
                await call(protected, fixed)
        uris = [one["redirect_uris"] for one in server.asked("register")]
        assert len(uris) == 2
        assert uris[0] != uris[1]


async def test_a_refused_registration_says_what_to_do() -> None:
    async with lab(registration_endpoint="PLACE") as (server, protected, user):
        server.changes["registration_endpoint"] = f"{server.origin}/nothing"
        with pytest.raises(AuthorizationError, match=r"answered 404; register a client at .* by"):
            await call(protected, auth(user))


async def test_a_forgotten_registration_is_made_again() -> None:
    async with lab() as (server, protected, user):
        storage = MemoryStorage()
        await call(protected, auth(user, storage=storage))
        server.tokens.clear()
        old = server.asked("register")
        server.refuse = lambda form: "invalid_client" if len(old) else ""
        with pytest.raises(AuthorizationError) as caught:
            await call(protected, auth(user, storage=storage))
        assert caught.value.error == "invalid_client"
        server.refuse = lambda form: ""
        await call(protected, auth(user, storage=storage))
        assert len(server.asked("register")) >= 2


# -- the response ----------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [False, True])
@pytest.mark.parametrize(
    ("advertised", "iss", "expected"),
    [
        (True, "{}", ""),
        (True, None, "names no authorization server"),
        (True, "https://evil.example.com", "names another"),
        (True, "{}/", "names another"),
        (None, "{}", ""),
        (None, None, ""),
        (None, "https://evil.example.com", "names another"),
    ],
)
async def test_the_issuer_of_a_response(
    advertised: bool | None, iss: str | None, expected: str, handler: bool
) -> None:
    changes = {"authorization_response_iss_parameter_supported": advertised}
    async with lab(**changes) as (server, protected, user):
        said = {} if iss is None else {"iss": iss.format(server.issuer)}
        server.redirect = lambda found: {k: v for k, v in found.items() if k != "iss"} | said
        value = auth(user, redirect=user.follow) if handler else auth(user)
        if not expected:
            await call(protected, value)
            return
        with pytest.raises(AuthorizationError, match=expected):
            await call(protected, value)
        assert not server.asked("token")


async def test_an_error_of_a_wrong_issuer_is_not_shown() -> None:
    async with lab() as (server, protected, user):
        server.redirect = lambda found: {
            "state": found["state"],
            "iss": "https://evil.example.com",
            "error": "access_denied",
            "error_description": "call +1 555",
        }
        with pytest.raises(AuthorizationError, match="names another") as caught:
            await call(protected, auth(user))
        assert "555" not in str(caught.value)


async def test_a_user_who_declines() -> None:
    async with lab() as (server, protected, user):
        agree = server.redirect
        server.redirect = lambda found: {
            "state": found["state"],
            "iss": found["iss"],
            "error": "access_denied",
            "error_description": "no\nthanks",
        }
        protected.open = {"server/discover"}
        async with protected.client(auth=auth(user)) as client:
            calls = [client.call_tool(*ECHO) for _ in range(5)]
            failures: Any = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(exc) for exc in failures} == {AuthorizationError}, failures[0]
            assert "access_denied: no thanks" in str(failures[0])
            assert len(user.pages) == 1
            assert "Login refused" in user.seen[1]
            server.redirect = agree
            await client.call_tool(*ECHO)


async def test_a_forged_redirect_does_not_end_a_login() -> None:
    async with lab() as (server, protected, user):
        answers: list[int] = []

        async def attacked(url: str) -> None:
            asked = server.requests
            redirect = url.partition("redirect_uri=")[2].partition("&")[0]
            place = redirect.replace("%3A", ":").replace("%2F", "/")
            queries = ("", "?code=x", "?code=x&state=forged", "?code=x&state=a&state=b")
            answers.extend([(await get(place + query))[0] for query in queries])
            answers.append((await get(place.replace("callback", "other")))[0])
            assert not asked or asked[-1][0] == "register"
            await user.browse(url)

        await call(protected, auth(user, open_url=attacked))
        assert answers == [400, 400, 400, 400, 404]


@pytest.mark.parametrize(
    "redirected",
    ["http://127.0.0.1/callback?code=x", "http://127.0.0.1/callback?code=x&state=forged", "", "x"],
)
async def test_a_redirect_of_another_login_is_refused(redirected: str) -> None:
    async with lab() as (server, protected, user):

        async def other(url: str) -> str:
            return redirected

        with pytest.raises(AuthorizationError, match="does not answer this login"):
            await call(protected, auth(user, redirect=other))
        assert not server.asked("token")


async def test_a_code_of_another_login_is_of_no_use() -> None:
    async with lab() as (server, protected, user):
        stolen: list[str] = []

        def keep(found: dict[str, str]) -> dict[str, str]:
            stolen.append(found["code"])
            return found | {"code": stolen[0]}

        server.redirect = keep
        server.refuse = lambda form: "" if len(stolen) > 1 else "temporarily_unavailable"
        with pytest.raises(AuthorizationError):
            await call(protected, auth(user))
        with pytest.raises(AuthorizationError) as caught:
            await call(protected, auth(user))
        assert caught.value.error == "invalid_grant"
        assert stolen[0] not in str(caught.value)


async def test_a_user_who_does_nothing() -> None:
    async with lab() as (server, protected, user):
        storage = MemoryStorage()
        pages: list[str] = []
        value = auth(user, storage=storage, open_url=pages.append, login_timeout=0.1)
        with pytest.raises(AuthorizationError, match=r"did not log in at .* within 0.1 s"):
            await call(protected, value)
        assert pages
        await call(protected, auth(user, storage=storage))
        assert len(server.asked("register")) == 2  # the user may have seen that it was forgotten


async def test_a_handler_that_fails() -> None:
    async with lab() as (_, protected, user):
        protected.open = {"server/discover"}

        def fail(url: str) -> None:
            raise OSError("no display")

        async with protected.client(auth=auth(user, open_url=fail)) as client:
            with pytest.raises(AuthorizationError, match="OSError") as caught:
                await client.call_tool(*ECHO)
            assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    "answer", [{"token_type": "mac"}, {"access_token": "a b"}, {"expires_in": []}]
)
async def test_tokens_that_cannot_be_used(answer: dict[str, Any]) -> None:
    async with lab() as (server, protected, user):
        server.answer = answer
        with pytest.raises(AuthorizationError, match="token"):
            await call(protected, auth(user))


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
        with pytest.raises(AuthorizationError, match="wirespeed login URL"):
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


@pytest.mark.parametrize(
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
    with pytest.raises(TypeError, match="scopes is a sequence"):
        OAuth(scopes="notes")
    with pytest.raises(TypeError, match=r"auth is a value of wirespeed\.auth"):
        Http("https://h/mcp", auth=OAuth)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave token"):
        Http("https://h/mcp", auth=value, token="t")
    with pytest.raises(ValueError, match="leave token"):
        Http("https://h/mcp", auth=value, headers={"Authorization": "Basic x"})
    assert Client("wss://h/mcp", auth=value).target == WebSocket("wss://h/mcp", auth=value)
    with pytest.raises(TypeError, match="neither headers nor tokens"):
        Client("unix:/tmp/x", auth=value)
    with pytest.raises(TypeError, match="LiteMCP has no authorization"):
        LiteClient(Http("https://h/mcp", auth=value))
