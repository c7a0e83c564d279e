"""What comes back of a login: its issuer, its state, its code, its tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.authorization_server import ECHO, auth, call, get, lab
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import MemoryStorage
from wirespeed.errors import AuthorizationError


@every("handler", [False, True])
@every(
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
        with raises(AuthorizationError) as caught:
            await call(protected, auth(user))
        assert "+1 555" not in str(caught.value)


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

        with raises(AuthorizationError):
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
        with raises(AuthorizationError):
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
            with raises(AuthorizationError) as caught:
                await client.call_tool(*ECHO)
            assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    "answer", [{"token_type": "mac"}, {"access_token": "a b"}, {"expires_in": []}]
)
async def test_tokens_that_cannot_be_used(answer: dict[str, Any]) -> None:
    async with lab() as (server, protected, user):
        server.answer = answer
        with raises(AuthorizationError):
            await call(protected, auth(user))
