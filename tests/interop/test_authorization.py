"""A real authorization server between clients and servers: ours, and those of others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import logins
import peers
import pytest
from lab.wording import raises
from programs import login

from wirespeed import Client
from wirespeed.auth import MemoryStorage, OAuth
from wirespeed.errors import AuthorizationError

THEIR_CLIENTS = ["python2", "fastmcp", "ts1", "ts2"]
THEIR_SERVERS = ["python2", "fastmcp"]


class Person:
    """Who logs in when our client asks for it: follows the form with plain requests."""

    def __init__(self, form: dict[str, str] = login.ADA) -> None:
        self.form = form
        self.logins: list[str] = []

    async def __call__(self, url: str) -> str:
        self.logins.append(url)
        return await asyncio.to_thread(login.log_in, url, self.form)

    def auth(self, **more: Any) -> OAuth:
        """The value for a client."""
        return OAuth(redirect=self, storage=MemoryStorage(), **more)


async def asked(client: Client, name: str = "whoami") -> Any:
    """What the server says of the caller."""
    return json.loads((await client.call_tool(name, {})).text)


@pytest.mark.parametrize("peer", THEIR_CLIENTS)
async def test_others_log_in_among_themselves(peer: str) -> None:
    """The authorization server is one that others accept."""
    command = await asyncio.to_thread(logins.client_command, peer)
    async with logins.issuing() as issuer, logins.protected("python2", issuer) as url:
        report = await peers.report([*command, url])
        (granted,) = await issuer.journal("POST /token")
    assert report == {"calls": [{"user": "ada", "scopes": ["mcp"], "logins": 1}]}
    assert (granted["status"], granted["resource"]) == (200, url)


@pytest.mark.parametrize("peer", THEIR_CLIENTS)
async def test_their_client_logs_in_to_our_server(peer: str) -> None:
    command = await asyncio.to_thread(logins.client_command, peer)
    async with logins.issuing() as issuer, logins.protected("ours", issuer) as url:
        report = await peers.report([*command, url])
        tokens = await issuer.journal("POST /token")
    first, second = report["calls"]
    assert first == {"user": "ada", "scopes": ["mcp"], "logins": 1}
    # the scope of the tool is asked for when the tool is called
    if peer == "ts1":  # sdk 1.x renews its token then, which gets no further scope
        assert "403 after trying upscoping" in second["error"]
        return
    assert second == {"user": "ada", "scopes": ["mcp", "tools:write"], "logins": 2}
    assert [entry["status"] for entry in tokens] == [200, 200]
    assert {entry["resource"] for entry in tokens} == {url}


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("peer", THEIR_SERVERS)
async def test_our_client_logs_in_to_their_server(peer: str, era: Any) -> None:
    person = Person()
    async with logins.issuing() as issuer, logins.protected(peer, issuer) as url:
        async with Client(url, auth=person.auth(), era=era) as client:
            assert await asked(client) == {"user": "ada", "scopes": ["mcp"]}
        (registered,) = await issuer.journal("POST /register")
    assert len(person.logins) == 1
    assert registered["application_type"] == "native"
    assert registered["token_endpoint_auth_method"] == "none"


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_our_client_logs_in_to_our_server(alg: str) -> None:
    person = Person()
    async with logins.issuing("--alg", alg) as issuer, logins.protected("ours", issuer) as url:
        async with Client(url, auth=person.auth()) as client:
            assert await asked(client) == {"user": "ada", "scopes": ["mcp"]}
            assert await asked(client, "write") == {"user": "ada", "scopes": ["mcp", "tools:write"]}
            assert await asked(client) == {"user": "ada", "scopes": ["mcp", "tools:write"]}
        tokens = await issuer.journal("POST /token")
    assert len(person.logins) == 2
    assert {entry["resource"] for entry in tokens} == {url}


async def test_tokens_are_renewed_without_the_person() -> None:
    person = Person()
    auth = person.auth()
    async with logins.issuing("--lifetime", "2") as issuer, logins.protected("ours", issuer) as url:
        async with asyncio.timeout(60), Client(url, auth=auth) as client:
            for _ in range(10):
                assert (await asked(client))["user"] == "ada"
                await asyncio.sleep(0.5)
        async with Client(url, auth=auth) as client:  # the login is kept
            assert (await asked(client))["user"] == "ada"
        tokens = await issuer.journal("POST /token")
    assert len(person.logins) == 1
    grants = [entry["grant_type"] for entry in tokens]
    assert grants[0] == "authorization_code"
    assert len(grants) >= 3
    assert set(grants[1:]) == {"refresh_token"}
    # each refresh token was used once: the server ends the login of one that is used again
    assert {entry["status"] for entry in tokens} == {200}


async def test_a_client_that_is_registered_beforehand() -> None:
    person = Person()
    options = ("--no-registration", "--client", "desk:a-secret-of-desk")
    async with logins.issuing(*options) as issuer, logins.protected("ours", issuer) as url:
        auth = person.auth(client_id="desk", client_secret="a-secret-of-desk")
        async with Client(url, auth=auth) as client:
            assert (await asked(client))["user"] == "ada"
        with raises(AuthorizationError):
            async with Client(url, auth=person.auth()):
                pass
    assert len(person.logins) == 1


async def test_the_person_refuses() -> None:
    person = Person({"deny": "yes"})
    async with logins.issuing() as issuer, logins.protected("ours", issuer) as url:
        with raises(AuthorizationError):
            async with Client(url, auth=person.auth()):
                pass
        assert await issuer.journal("POST /token") == []


async def test_a_token_that_is_revoked_is_refused() -> None:
    person = Person()
    auth = person.auth()
    async with (
        logins.issuing() as issuer,
        logins.protected("ours", issuer, introspects=True) as url,
        Client(url, auth=auth) as client,
    ):
        assert (await asked(client))["user"] == "ada"
        assert await auth.log_out(url) is True
        assert await auth.log_out(url) is None
        # the refresh token and the access token
        assert [found["status"] for found in await issuer.journal("POST /revoke")] == [200, 200]
        assert (await asked(client))["user"] == "ada"  # after another login
    assert len(person.logins) == 2
