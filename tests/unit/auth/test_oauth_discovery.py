"""Which authorization server a login uses, and what of its metadata counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lab.authorization_server import (
    ECHO,
    OPENID,
    RESOURCE,
    AuthorizationServer,
    ProtectedServer,
    age,
    auth,
    call,
    lab,
)
from lab.rows import every
from lab.web import Exchange, listening, modern
from lab.wording import raises

from wirespeed.auth import MemoryStorage
from wirespeed.errors import AuthorizationError


@every("path", ["", "/tenant"])
@every("kind", ["oauth", "openid", "appended"])
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


@every("named", [RESOURCE, f"{RESOURCE}/mcp"])
@every("resource", ["", "/", "/mcp", "/mcp/"])
async def test_the_metadata_of_the_challenge_beside_other_metadata_of_the_origin(
    named: str, resource: str
) -> None:
    """It counts alone, and its resource is used as it is written."""
    async with lab() as (server, protected, user), listening(AuthorizationServer()) as other:
        text = f"{protected.origin}{resource}"
        document = {"resource": text, "authorization_servers": [server.issuer]}
        another = {"resource": protected.url, "authorization_servers": [other.issuer]}
        protected.places, protected.resource = [], text
        protected.others = {RESOURCE: another, f"{RESOURCE}/mcp": another, named: document}
        protected.challenge = {"resource_metadata": f"{protected.origin}{named}"}
        storage = MemoryStorage()
        await call(protected, auth(user, storage=storage))
        age(storage, protected.url)
        await call(protected, auth(user, storage=storage))
        asked = [e.target for e in protected.exchanges if e.target != "/mcp"]
        assert set(asked) == {named}
        requests = server.asked("authorize") + server.asked("token")
        assert [form["resource"] for form in requests] == [text] * 3
        assert other.requests == []


async def test_a_byte_order_mark_before_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the answers of the endpoints."""

    def json_with_mark(exchange: Exchange, value: Any, status: int = 200, **headers: str) -> None:
        text = f"\ufeff{json.dumps(value)}"
        exchange.reply(status, text, content_type="application/json", **headers)

    monkeypatch.setattr(Exchange, "json", json_with_mark)
    async with lab() as (server, protected, user):
        storage = MemoryStorage()
        await call(protected, auth(user, storage=storage))
        server.refuse = lambda form: "invalid_grant"
        server.tokens.clear()
        with pytest.raises(AuthorizationError) as caught:
            await call(protected, auth(user, storage=storage))
        assert caught.value.error == "invalid_grant"


@pytest.mark.parametrize("unknown", [(200, "<html>"), (500, "")])
async def test_other_answers_at_unknown_paths(unknown: tuple[int, str]) -> None:
    async with lab() as (server, protected, user):
        server.unknown = protected.unknown = unknown
        protected.challenge = {}
        protected.places = [RESOURCE]
        server.places = [OPENID]
        await call(protected, auth(user))
        protected.places = []
        with raises(AuthorizationError):
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
        with raises(AuthorizationError):
            await call(protected, value)
        bound = auth(user, client_id="mine", issuer=first.issuer)
        with raises(AuthorizationError):
            await call(protected, bound)
        assert not second.requests
        assert "s3cret" not in f"{value.storage.load(protected.url)}"


Change = Callable[[AuthorizationServer, ProtectedServer], None]


def metadata(**members: Any) -> Change:
    return lambda server, protected: server.changes.update(members)


def resource(**members: Any) -> Change:
    return lambda server, protected: protected.changes.update(members)


@every(
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
        with raises(AuthorizationError):
            await call(protected, auth(user))
        assert len(inside.exchanges) == 1
