"""Servers in this thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab.caller import Caller
from lab.questions import add_askers
from lab.server import MODERN, LatePeer, Peer

from wirespeed import Server
from wirespeed.transport.taskpool_choice import open_pool

Connect = Callable[..., Peer]


@pytest.fixture
def server() -> Server:
    return Server("lab", "1.0")


@pytest.fixture
def asking(server: Server) -> Server:
    """The server, with tools that ask one thing each."""
    return add_askers(server)


@pytest.fixture
def connect(runner: asyncio.Runner, server: Server) -> Iterator[Connect]:
    """Makes connections to the server; with a legacy version, after the handshake for it."""
    peers: list[Peer] = []
    made = open_pool(runner.get_loop())

    def connect(version: str | None = None, *, to: Server | None = None) -> Peer:
        peer = Peer(server if to is None else to, runner, made)
        peers.append(peer)
        if version not in (None, MODERN):
            peer.handshake(version)
        return peer

    yield connect

    async def close() -> None:
        await asyncio.wait_for(made.aclose(), 20)

    for peer in peers:
        peer.close()
    runner.run(close())


@pytest.fixture
def peer(connect: Connect) -> Any:
    """A connection after the handshake for 2025-06-18."""
    return LatePeer(lambda: connect("2025-06-18"))


@pytest.fixture
def newest_peer(connect: Connect) -> Any:
    """A connection after the handshake for 2025-11-25."""
    return LatePeer(lambda: connect("2025-11-25"))


@pytest.fixture
def modern_peer(connect: Connect) -> Any:
    """A connection without handshake."""
    return LatePeer(connect)


@pytest.fixture
def any_peer(connect: Connect, version: str) -> Any:
    """A connection for the revision that the test is for."""
    return LatePeer(lambda: connect(version))


@pytest.fixture
def version(any_revision: str) -> str:
    """The revision that the test is for."""
    return any_revision


@pytest.fixture
def caller(connect: Connect, version: str) -> Callable[..., Caller]:
    """Makes clients of the revision that the test is for; ``version=…`` for another one."""

    def make(server: Server | None = None, version: str = version) -> Caller:
        return Caller(connect(version, to=server), version)

    return make
