"""Stores of tasks, each of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from raw import initialize, notification
from server_lab import Peer
from task_lab import MakeStore, Run, Workshop, bounded, make_store

from wirespeed import Server
from wirespeed.tasks import TaskStore
from wirespeed.transport.taskpool import TaskPool

Connect = Callable[..., Peer]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """On each loop in turn."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded(main))

    return run


@pytest.fixture
def once() -> Run:
    """For what has nothing to do with the loop."""
    return lambda main: asyncio.run(bounded(main))


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """``new_store(max_tasks=…)``: an empty store, to be used as ``async with``."""

    def new(**limits: Any) -> TaskStore:
        return make_store(request.param, tmp_path, **limits)

    return new


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def connect(runner: asyncio.Runner) -> Iterator[Connect]:
    """``connect(server, version, capabilities)``: a connection to it, after the handshake."""
    peers: list[Peer] = []
    servers: list[Server] = []
    pool = TaskPool(runner.get_loop())

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
            if server._task_books is not None:
                await server._task_books.close(runner.get_loop())
        await pool.aclose()

    for peer in peers:
        peer.close()
    runner.run(bounded(close()))
