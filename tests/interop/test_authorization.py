"""A real authorization server between clients and servers: ours, and those of others."""

from __future__ import annotations

import asyncio

import logins
import peers
import pytest


@pytest.mark.parametrize("peer", ["python2", "fastmcp", "ts1", "ts2"])
async def test_others_log_in_among_themselves(peer: str) -> None:
    """The authorization server is one that others accept."""
    command = await asyncio.to_thread(logins.client_command, peer)
    async with logins.issuing() as issuer, logins.protected("python2", issuer) as url:
        report = await peers.report([*command, url])
        (granted,) = await issuer.journal("POST /token")
    assert report == {"calls": [{"user": "ada", "scopes": ["mcp"], "logins": 1}]}
    assert (granted["status"], granted["resource"]) == (200, url)
