"""A server of its own for each client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wirespeed.client.targets.remote import Http
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_MODERN, REVISIONS
from wirespeed.proxy.eras import modern_version
from wirespeed.proxy.supervision.upstream import Upstream

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.operation.meter import Meter
    from wirespeed.proxy.side import Side


class PerClient:
    """Each client has a server of its own: all that the two say passes, but for the ids."""

    serves_lanes = False

    def __init__(self, config: BackendConfig, limits: Limits, meter: Meter) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self._tasks: dict[Front, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Servers are started for their clients."""

    async def stop(self) -> None:
        """End all servers."""
        for front in list(self._tasks):
            self.left(front)
        if self._ending:
            await asyncio.wait(self._ending)

    def joined(self, front: Front) -> None:
        """Start a server for a client, whose requests wait for it."""
        if len(self._tasks) >= self._config.max_clients:
            front.session.refusal = (
                codes.OVERLOADED,
                f"{self._config.name} has {self._config.max_clients} clients: there may be no more",
            )
            return
        front.admits_legacy = True
        front.admits_modern = not isinstance(self._config.target, Http)
        front.session.pauses_requests = True
        upstream = Upstream(self._config, _Pair(front), self._limits, self._meter, restarts=False)
        self._tasks[front] = asyncio.ensure_future(upstream.run())

    def left(self, front: Front) -> None:
        """End the server of a client."""
        task = self._tasks.pop(front, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the client's own server."""
        if front.across is None:
            front.unreachable(message)
        elif modern_version(message) is not None:  # the first: HTTP needs to know the revision
            front.across.revision = REVISIONS[LATEST_MODERN]
            front.admits_modern = True
        return front.across

    def client_said(self, front: Front, message: Message) -> None:
        """Pass it on."""
        if front.across is not None:
            front.pass_notification(message, front.across)


class _Pair:
    """What the server of one client belongs to."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def opened(self, backend: Backend) -> None:
        backend.admits_legacy = backend.admits_modern = True
        # a server of 2025-03-26 may answer in a batch
        backend.session.batches = True
        backend.across, self._front.across = self._front, backend
        self._front.release()

    def closed(self, backend: Backend) -> None:
        if self._front.across is backend:
            self._end(backend.loss(None))

    def down(self, reason: str | None) -> None:
        if reason is not None:
            self._end(reason)

    def _end(self, reason: str) -> None:
        """The client leaves as well: what its server knew of it is lost."""
        self._front.session.refusal = (codes.SERVER_LOST, reason)
        self._front.release()
        self._front.drain()

    def server_asks(self, backend: Backend, message: Message) -> Side | None:
        return self._front

    def server_said(self, backend: Backend, message: Message) -> None:
        backend.pass_notification(message, self._front)
