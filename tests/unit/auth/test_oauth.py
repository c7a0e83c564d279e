"""A user logs in: the whole way from a 401 to a call, and each place where it can end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from authorization_server import lab

from wirespeed.auth import MemoryStorage, OAuth


def auth(user: Any, **options: Any) -> OAuth:
    return OAuth(**({"storage": MemoryStorage(), "open_url": user.browse} | options))


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_user_logs_in_once(legacy: bool) -> None:
    async with lab(legacy=legacy) as (server, protected, user):
        protected.scopes = {"": ["notes"]}
        async with protected.client(auth=auth(user)) as client:
            calls = (client.call_tool("echo", {"text": str(i)}) for i in range(20))
            await asyncio.gather(*calls)
        assert len(user.pages) == 1
        assert user.seen[0] == 200
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
