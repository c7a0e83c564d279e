"""How a client becomes known to an authorization server."""

from __future__ import annotations

import socket

import pytest
from lab.authorization_server import auth, call, lab
from lab.wording import raises

from wirespeed.auth import MemoryStorage
from wirespeed.errors import AuthorizationError


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
            with raises(AuthorizationError):
                await call(protected, fixed)
        uris = [one["redirect_uris"] for one in server.asked("register")]
        assert len(uris) == 2
        assert uris[0] != uris[1]


async def test_a_refused_registration_says_what_to_do() -> None:
    async with lab(registration_endpoint="PLACE") as (server, protected, user):
        server.changes["registration_endpoint"] = f"{server.origin}/nothing"
        with raises(AuthorizationError):
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
