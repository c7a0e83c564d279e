"""Tokens that the authorization server is asked about."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from typing import Any, Self
from urllib.parse import parse_qs

import pytest
from lab.issuer import AUDIENCE, NOW, Clock, verified
from lab.origin import Origin, Request, ok
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import AccessToken, IntrospectionVerifier
from wirespeed.errors import CannotVerify, InvalidToken

pytestmark = pytest.mark.smoke


class Lab:
    """An authorization server, whose answer a test sets, and a verifier that asks it."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.options = {"audience": AUDIENCE, "token": "own", **options}
        self.answer: Any = {"active": True, "sub": "anne", "aud": AUDIENCE, "exp": NOW + 3600}
        self.status = b"200 OK"
        self.asked: list[dict[str, list[str]]] = []
        self.fields: list[Any] = []
        self.n_at_once = self.most_at_once = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __aenter__(self) -> Self:
        self.origin = Origin(self.serve)
        await self.origin.__aenter__()
        url = f"http://127.0.0.1:{self.origin.port}/introspect"
        self.verifier = IntrospectionVerifier(url, clock=self.clock, **self.options)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.go.set()
        await self.verifier.close()
        await self.origin.__aexit__(*exc)

    async def serve(self, request: Request) -> None:
        assert (request.method, request.target) == ("POST", "/introspect")
        self.asked.append(parse_qs(request.body.decode()))
        self.fields.append(request.headers)
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        await self.go.wait()
        self.n_at_once -= 1
        body = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()
        await request.write(ok(body, status=self.status))

    async def verify(self, token: str = "t0ken") -> AccessToken:
        return await verified(self.verifier, token)


async def test_what_the_server_says() -> None:
    async with Lab() as lab:
        lab.answer |= {"scope": "a b", "client_id": "c", "cnf": {"jkt": "k"}, "more": 1}
        access = await lab.verify()
        assert (access.subject, access.client_id, access.scopes) == ("anne", "c", {"a", "b"})
        assert (access.expires, access.key_thumbprint) == (NOW + 3600, "k")
        assert access.claims["more"] == 1
        assert lab.asked == [{"token": ["t0ken"], "token_type_hint": ["access_token"]}]
        assert lab.fields[0]["authorization"] == "Bearer own"
        assert lab.fields[0]["accept"] == "application/json"


async def test_how_this_server_names_itself() -> None:
    client = {"token": None, "client_id": "a b:c", "client_secret": "s&é"}
    async with Lab(**client) as lab:
        await lab.verify()
        scheme, _, pair = lab.fields[0]["authorization"].partition(" ")
        assert (scheme, base64.b64decode(pair)) == ("Basic", b"a+b%3Ac:s%26%C3%A9")
        assert "client_id" not in lab.asked[0]
        assert "s&" not in repr(lab.verifier)
    async with Lab(**client, auth="post") as lab:
        await lab.verify()
        assert "authorization" not in lab.fields[0]
        assert (lab.asked[0]["client_id"], lab.asked[0]["client_secret"]) == (["a b:c"], ["s&é"])


async def test_an_answer_is_kept_for_some_time() -> None:
    async with Lab(cache_seconds=60) as lab:
        access = await lab.verify()
        assert access.fresh_until == NOW + 60
        lab.clock.now += 59
        assert lab.verifier.verify("t0ken") is access  # without waiting
        lab.answer = {"active": False}
        lab.clock.now += 1
        for _ in range(2):  # a refusal is not kept
            with raises(InvalidToken):
                await lab.verify()
        assert len(lab.asked) == 3


async def test_an_answer_is_not_kept_beyond_the_expiry() -> None:
    async with Lab(leeway=0) as lab:
        lab.answer["exp"] = NOW + 10
        assert (await lab.verify()).fresh_until == NOW + 10
        lab.clock.now += 10
        with raises(InvalidToken):
            await lab.verify()


async def test_nothing_is_kept() -> None:
    async with Lab(cache_seconds=0) as lab:
        for _ in range(2):
            assert (await lab.verify()).fresh_until == NOW
        assert len(lab.asked) == 2


async def test_a_clock_that_is_put_back() -> None:
    async with Lab() as lab:
        await lab.verify()
        lab.clock.now -= 1000
        await lab.verify()
        assert len(lab.asked) == 2


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.auth.verifiers.introspection.MAX_CACHED", 2)
    async with Lab() as lab:
        for token in ("a", "b", "a", "c", "a"):  # "b" was used longest ago
            await lab.verify(token)
        assert [one["token"] for one in lab.asked] == [["a"], ["b"], ["c"]]
        await lab.verify("b")
        assert len(lab.asked) == 4


async def test_requests_about_one_token_are_one() -> None:
    async with Lab() as lab:
        lab.go.clear()
        tasks = [asyncio.create_task(lab.verify()) for _ in range(20)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()  # the others still get their answer
        lab.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert all(isinstance(one, AccessToken) for one in found[1:])
        assert len(lab.asked) == 1


async def test_requests_at_once_are_bounded() -> None:
    async with Lab(max_requests=3) as lab:
        lab.go.clear()
        tasks = [asyncio.create_task(lab.verify(f"t{n}")) for n in range(300)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), CannotVerify)
        while lab.n_at_once < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        lab.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, AccessToken) for one in found) == 256
        assert sum(isinstance(one, CannotVerify) for one in found) == 44
        assert lab.most_at_once == 3
        assert (await lab.verify("another")).subject == "anne"


async def test_nobody_waits_for_a_failure() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, one: reported.append(one))
    async with Lab() as lab:
        lab.go.clear()
        lab.status = b"500 X"
        task = asyncio.create_task(lab.verify())
        while not lab.asked:
            await asyncio.sleep(0.001)
        task.cancel()
        lab.go.set()
        await asyncio.sleep(0.05)
        gc.collect()
        assert reported == []


@every(
    ("answer", "status", "reason"),
    [
        ({"active": True, "sub": "a", "aud": AUDIENCE}, b"500 X", "answered 500"),
        ({}, b"404 X", "answered 404"),
        ({"active": True}, b"201 X", "answered 201"),
        ({"error": "invalid_client"}, b"401 X", "refuses this server: 401"),
        ({}, b"403 X", "refuses this server: 403"),
        (b"<html>", b"200 OK", "is not JSON"),
        (b'{"active": true, "sub": "%b"}' % (b"a" * 300_000), b"200 OK", "262144"),
        ({}, b"200 OK", "does not say active"),
        ([], b"200 OK", "does not say active"),
        ({"active": "true"}, b"200 OK", "does not say active"),
        ({"active": 1}, b"200 OK", "does not say active"),
        ({"active": None}, b"200 OK", "does not say active"),
    ],
)
async def test_it_fails_closed(answer: Any, status: bytes, reason: str) -> None:
    async with Lab() as lab:
        lab.answer, lab.status = answer, status
        with pytest.raises(CannotVerify, match=reason) as caught:
            await lab.verify("s3cret")
        assert "s3cret" not in str(caught.value)


@every(
    ("members", "reason"),
    [
        ({"active": False}, "is not active"),
        ({"aud": None}, "has the audience None"),
        ({"aud": "https://other.example"}, "has the audience"),
        ({"exp": NOW - 31}, "has expired"),
        ({"nbf": NOW + 31}, "from the future"),
        ({"sub": None}, "neither a subject nor a client"),
        ({"iss": "https://evil.example"}, "has the issuer"),
        ({"cnf": {"jwk": {}}}, "bound to something"),
    ],
)
async def test_answers_that_refuse_the_token(members: dict[str, Any], reason: str) -> None:
    async with Lab(issuer="https://auth.example") as lab:
        lab.answer |= members
        with pytest.raises(InvalidToken, match=reason):
            await lab.verify()


async def test_members_that_may_be_absent() -> None:
    async with Lab(audience=None, issuer="https://auth.example") as lab:
        lab.answer = {"active": True, "client_id": "c"}
        access = await lab.verify()
        assert (access.subject, access.issuer) == ("client:c", "https://auth.example")
        assert (access.expires, access.fresh_until) == (None, NOW + 60)


@every("token", ["", "a b", "é", "a\r\nb", "x" * 20_000])
async def test_texts_that_nobody_is_asked_about(token: str) -> None:
    async with Lab() as lab:
        with raises(InvalidToken):
            await lab.verify(token)
        assert lab.asked == []


async def test_a_server_that_is_down_or_silent() -> None:
    async with Lab(timeout=0.2) as lab:
        lab.go.clear()
        with raises(CannotVerify):
            await lab.verify()
    with raises(CannotVerify):
        await lab.verify()


@every(
    ("options", "reason"),
    [
        ({}, "give client_id and client_secret, or token"),
        ({"client_id": "a"}, "give client_id and client_secret, or token"),
        (
            {"token": "a", "client_id": "a", "client_secret": "b"},
            "give client_id and client_secret",
        ),
        ({"token": "a\r\nb"}, "is not a bearer token"),
        ({"client_id": "a", "client_secret": "b", "auth": "none"}, 'auth is "basic" or "post"'),
        ({"token": "a", "cache_seconds": -1}, "cache_seconds is seconds"),
        ({"token": "a", "max_requests": 0}, "max_requests must be at least 1"),
        ({"token": "a", "url": "http://auth.example/x"}, "https is needed"),
        ({"token": "a", "audience": ""}, "audience is one or more texts"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], reason: str) -> None:
    arguments = {"url": "https://auth.example/x", "audience": AUDIENCE, **options}
    with pytest.raises(ValueError, match=reason):
        IntrospectionVerifier(**arguments)
