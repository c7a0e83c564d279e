"""A login's tokens: stored, refreshed, refused, shown to nobody."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.authorization_server import ECHO, age, auth, call, lab
from lab.client import until
from lab.web import modern
from lab.wording import raises

from wirespeed.auth import FileStorage, MemoryStorage
from wirespeed.errors import AuthorizationError, HttpStatusError


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
            await until(lambda: len(gets) >= 5)
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
            with raises(AuthorizationError):
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


CALLS = """
import asyncio, sys
from wirespeed import Client
from wirespeed.auth import FileStorage, OAuth

async def nobody(url):
    raise AssertionError(f"the user is asked: {url}")

async def call(url, folder):
    value = OAuth(storage=FileStorage(folder), open_url=nobody)
    async with Client(url, auth=value, era="modern") as client:
        for line in iter(sys.stdin.readline, ""):
            await asyncio.gather(*(client.call_tool("echo", {"text": "x"}) for _ in range(20)))
            print("done", flush=True)

print("here", flush=True)
sys.stdin.readline()
asyncio.run(call(*sys.argv[1:]))
"""


class Caller:
    """A process with a client that calls when it is told to."""

    def __init__(self, url: str, folder: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", CALLS, url, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def says(self) -> str:
        assert self.child.stdout is not None
        return await asyncio.to_thread(self.child.stdout.readline)

    def go(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("go\n")
        self.child.stdin.flush()


async def test_calls_of_two_processes_refresh_a_login_once(tmp_path: Path) -> None:
    """With a token that has ended, then with one that the server no longer takes."""
    async with lab() as (server, protected, user):
        folder = tmp_path / "logins"
        await call(protected, auth(user, storage=FileStorage(folder)))
        age(FileStorage(folder), protected.url)
        with contextlib.ExitStack() as stack:
            callers = [Caller(protected.url, folder) for _ in range(2)]
            for caller in callers:
                stack.enter_context(caller.child)
                stack.callback(caller.child.kill)
            assert [await caller.says() for caller in callers] == ["here\n"] * 2
            for n in (2, 3):
                for caller in callers:
                    if n == 2:
                        caller.go()  # connects
                    caller.go()
                assert [await caller.says() for caller in callers] == ["done\n"] * 2
                assert len(server.asked("token")) == n
                server.tokens.clear()
        assert len(user.pages) == 1


async def test_a_token_that_is_refused_at_once_is_an_error() -> None:
    async with lab() as (_, protected, user):
        protected.changes = {"resource": protected.origin}
        with raises(AuthorizationError):
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
