"""The authorization server of the tests, and servers that accept its tokens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pairings
import peers
from programs import login

READER = "reader:reader-secret-1"


class Issuer:
    """An authorization server that runs.

    Attributes:
        url: Its issuer.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def journal(self, at: str = "") -> list[dict[str, Any]]:
        """What happened: all requests, or those of one method and path."""
        _, _, text = await asyncio.to_thread(login.fetched, f"{self.url}/journal")
        found: list[dict[str, Any]] = json.loads(text)
        return [entry for entry in found if at in ("", entry["at"])]


@asynccontextmanager
async def issuing(*options: str) -> AsyncIterator[Issuer]:
    """An authorization server: `authlib_server.py`."""
    python = await asyncio.to_thread(peers.python, "authlib")
    program = str(peers.PROGRAMS / "authlib_server.py")
    command = [python, program, "--reader", READER, *options]
    async with pairings.started(command, peers.environment()) as url:
        assert url, "the authorization server does not run"
        yield Issuer(url)


@asynccontextmanager
async def protected(peer: str, issuer: Issuer, *, introspects: bool = False) -> AsyncIterator[str]:
    """A server of ours or of a peer that accepts tokens of an authorization server: its URL."""
    env: dict[str, str] | None = dict(os.environ)
    if peer == "ours":
        command = [sys.executable, str(peers.PROGRAMS / "our_protected_server.py"), issuer.url]
        if introspects:
            command.append(READER)
    else:
        python = await asyncio.to_thread(peers.python, peer)
        program = str(peers.PROGRAMS / "python_auth_server.py")
        command = [python, program, peer, issuer.url, READER]
        env = peers.environment()
    async with pairings.started(command, env) as url:
        assert url, f"the server of {peer} does not run"
        yield url


def client_command(peer: str) -> list[str]:
    """What launches a peer's client, up to its last argument, the URL."""
    if peer.startswith("ts"):
        return [*peers.node("ts_auth_client.mjs"), peer]
    return [peers.python(peer), str(peers.PROGRAMS / "python_auth_client.py"), peer]
