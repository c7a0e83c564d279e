"""The proxy as its listeners see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import msgspec

from wirespeed.proxy.assignment import PerClient
from wirespeed.proxy.front import Front
from wirespeed.proxy.shared import Shared

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.proxy.assignment import Assignment
    from wirespeed.proxy.config import BackendConfig, ProxyConfig
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

# Requests of all clients at once that a server may have: the ids of `Pending` allow more.
_OUTSTANDING = (1 << 20) - 1


class ProxyService:
    """A `wirespeed.transport.service.Service` that passes everything on to servers.

    Attributes:
        name: The server's, or the proxy's.
        assignment: What knows which server.
        fronts: The clients at this moment.
    """

    subprotocol = "mcp"
    auth_headers = ("authorization",)
    refusal_status = 401
    auth = None

    def __init__(self, config: ProxyConfig, name: str, assignment: Assignment) -> None:
        self.name = name
        self.limits = config.limits
        self.shutdown_grace = config.shutdown_grace
        self.assignment = assignment
        self.fronts: set[Front] = set()
        self._holders = 0

    @classmethod
    def of(cls, config: ProxyConfig, backend: BackendConfig) -> Self:
        """The service that passes everything on to one server."""
        limits = msgspec.structs.replace(config.limits, max_outstanding=_OUTSTANDING)
        kind = Shared if backend.isolation == "shared" else PerClient
        return cls(config, backend.name, kind(backend, limits))

    async def hold(self) -> None:
        """Start the servers, for the first listener. TransportError: one cannot be started."""
        self._holders += 1
        if self._holders == 1:
            try:
                await self.assignment.start()
            except BaseException:
                self._holders = 0
                raise

    async def release(self, held: None) -> None:
        """End the servers, after the last listener."""
        self._holders -= 1
        if self._holders == 0:
            await self.assignment.stop()

    def stream_framer(self) -> None:
        """One message a line on a byte stream."""

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> Front:
        """Serve one more client."""
        front = Front(self, loop, framer)
        make_link(front)
        self.fronts.add(front)
        self.assignment.joined(front)
        return front
