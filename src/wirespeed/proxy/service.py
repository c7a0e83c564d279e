"""The proxy as its listeners see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import msgspec

from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS
from wirespeed.proxy.backend import Backend, Owner
from wirespeed.proxy.front import Front
from wirespeed.proxy.isolation.assignment import WithoutSession
from wirespeed.proxy.isolation.per_client import PerClient
from wirespeed.proxy.isolation.pool import Pool
from wirespeed.transport.memory import pair

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
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
        assignment: What knows which server.
        fronts: The clients at this moment.
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
        self, config: ProxyConfig, name: str, assignment: Assignment, *, translate: bool = False
    ) -> None:
        self.name = name
        self.limits = config.limits
        self.shutdown_grace = config.shutdown_grace
        self.assignment = assignment
        self.fronts: set[Front] = set()
        self._translates = translate
        self._alone = len(config.backends) == 1
        self._holders = 0
        self._starting: asyncio.Future[None]

    @classmethod
    def of(cls, config: ProxyConfig, backend: BackendConfig) -> Self:
        """The service that passes everything on to one server."""
        limits = msgspec.structs.replace(config.limits, max_outstanding=_OUTSTANDING)
        kind = PerClient if backend.isolation == "session" else Pool
        return cls(config, backend.name, kind(backend, limits), translate=backend.translate)

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
        front.translates = self._translates
        make_link(front)
        self.fronts.add(front)
        front.router.joined(front)
        return front

    def join(self, owner: Owner, client: Front, *, translate: bool = True) -> Backend:
        """Return a connection of the proxy itself, for a client of it.

        ``owner``: Of the connection. ``translate``: Whether it may be of any era.
        """
        loop = client.loop
        backend = Backend(self.name, owner, self.limits, loop)
        front = Front(self, loop, None, self.assignment)
        front.shared, front.principal, front.peer = client.shared, client.principal, client.peer
        front.translates = translate and self._translates
        links = pair(loop, backend, front)
        self.fronts.add(front)
        front.router.joined(front)
        backend.lost.add_done_callback(lambda _: front.abort())
        for link in links:
            link.start()
        return backend

    def translate(self, front: Front, message: Message, own: Backend | None) -> None:
        """Serve a client of an era that the server does not speak, from this request on.

        ``own``: Its own connection to the server, or None.
        """
        from wirespeed.proxy.translation.start import translate

        def join(owner: Owner, client: Front) -> Backend:
            return self.join(owner, client, translate=False)

        translate(join, front, message, own)

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
