"""Stores of tasks, each of all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.raw import initialize, notification
from lab.server import Peer
from lab.task import MakeStore, Workshop, bounded, make_store

from wirespeed import Server
from wirespeed.tasks import TaskStore
from wirespeed.transport.taskpool_choice import open_pool

Connect = Callable[..., Peer]


@pytest.fixture(params=["memory", "sqlite", "redis"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """``new_store(max_tasks=…)``: an empty store, to be used as ``async with``."""
    cluster = request.getfixturevalue("store_server").url if request.param == "redis" else ""

    def new(**limits: Any) -> TaskStore:
        return make_store(request.param, tmp_path, cluster, **limits)

    return new


@pytest.fixture
def connect(runner: asyncio.Runner) -> Iterator[Connect]:
    """``connect(server, version, capabilities)``: a connection to it, after the handshake."""
    peers: list[Peer] = []
    servers: list[Server] = []
    pool = open_pool(runner.get_loop())

    def connect(
        to: Workshop | Server, version: str | None = None, capabilities: Any = None
    ) -> Peer:
        server = to.server if isinstance(to, Workshop) else to
        peer = Peer(server, runner, pool)
        peers.append(peer)
        servers.append(server)
        if version is not None:
            hello = initialize("init", version)
            hello["params"]["capabilities"] = (
                {"roots": {}} if capabilities is None else capabilities
            )
            assert "result" in peer.ask(hello)
            peer.send(notification("notifications/initialized"))
        return peer

    yield connect

    async def close() -> None:
        for server in servers:
            if server.service.tasks.service is not None:
                await server.service.tasks.service.close()
        await pool.aclose()

    for peer in peers:
        peer.close()
    runner.run(bounded(close()))
