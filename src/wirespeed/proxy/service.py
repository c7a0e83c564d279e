"""The proxy as its listeners see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import msgspec

from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS
from wirespeed.proxy.front import Front
from wirespeed.proxy.isolation.assignment import WithoutSession
from wirespeed.proxy.isolation.per_client import PerClient
from wirespeed.proxy.isolation.pool import Pool
from wirespeed.proxy.operation.meter import Meter

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.proxy.config import BackendConfig, ProxyConfig
    from wirespeed.proxy.isolation.assignment import Assignment
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.proxy")

# Requests of all clients at once that a server may have: the ids of `Pending` allow more.
_OUTSTANDING = (1 << 20) - 1


class ProxyService:
    """A `wirespeed.transport.service.Service` that passes everything on to servers.

    Attributes:
        name: The server's, or the proxy's.
        config: The server's; None for the endpoint of all servers.
        assignment: What knows which server.
        fronts: The clients at this moment.
        meter: What is counted of them, and of the server.
    """

    subprotocol = "mcp"
    auth_headers = ("authorization",)
    refusal_status = 401
    auth = None
    # Over HTTP, where all requests of a client need the same server.
    legacy_versions = LEGACY_VERSIONS
    modern_versions = MODERN_VERSIONS
    has_sessions = True

    def __init__(
        self,
        config: ProxyConfig,
        name: str,
        assignment: Assignment,
        meter: Meter,
        backend: BackendConfig | None = None,
    ) -> None:
        self.name = name
        self.config = backend
        self.limits = config.limits
        self.shutdown_grace = config.shutdown_grace
        self.assignment = assignment
        self.fronts: set[Front] = set()
        self.meter = meter
        self._alone = len(config.backends) == 1
        self._holders = 0
        self._starting: asyncio.Future[None]

    @classmethod
    def of(cls, config: ProxyConfig, backend: BackendConfig) -> Self:
        """The service that passes everything on to one server."""
        limits = msgspec.structs.replace(config.limits, max_outstanding=_OUTSTANDING)
        kind = PerClient if backend.isolation == "session" else Pool
        meter = Meter()
        return cls(config, backend.name, kind(backend, limits, meter), meter, backend)

    async def hold(self) -> None:
        """Start the servers, for the first listener. TransportError: the only one cannot be
        started."""
        self._holders += 1
        if self._holders > 1:
            return
        self._starting = asyncio.ensure_future(self.assignment.start())
        if not self._alone:  # the others do not wait for it
            self._starting.add_done_callback(self._started)
            return
        try:
            await self._starting
        except BaseException:
            self._holders = 0
            await self.assignment.stop()
            raise

    def _started(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.warning("%s: %s", self.name, str(error).partition("\n")[0])

    async def release(self, held: None) -> None:
        """End the servers, after the last listener."""
        self._holders -= 1
        if self._holders == 0:
            self._starting.cancel()
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
        lane: bool = False,
    ) -> Front:
        """Serve one more client. ``lane``: the requests come from clients without sessions."""
        without = lane and not self.assignment.serves_lanes
        front = Front(self, loop, framer, WithoutSession() if without else self.assignment)
        front.shared = lane
        make_link(front)
        self.fronts.add(front)
        self.meter.n_clients += 1
        front.router.joined(front)
        return front

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """What answers HTTP requests. ValueError: an option is not for the proxy."""
        from wirespeed.server.http.endpoint import StreamableHttp

        if options.stateless:
            raise ValueError("the proxy needs sessions: it cannot be stateless")
        return StreamableHttp(self, options, loop, pool)

    def sse_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """What answers HTTP requests of clients of 2024-11-05."""
        from wirespeed.server.http.sse import SseEndpoint

        return SseEndpoint(self, options, loop, pool)
