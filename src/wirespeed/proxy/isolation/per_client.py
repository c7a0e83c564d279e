"""A server of its own for each client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from wirespeed.client.targets.remote import Http
from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_MODERN, REVISIONS
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.eras import modern_version
from wirespeed.proxy.isolation.handshake import discover
from wirespeed.proxy.supervision.upstream import Upstream

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.side import Side


class PerClient:
    """Each client has a server of its own: all that the two say passes, but for the ids."""

    serves_lanes = False

    def __init__(self, config: BackendConfig, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._tasks: dict[Front, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._probes: dict[Front, asyncio.Task[None]] = {}

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
        front.admits_legacy = not front.translates
        front.admits_modern = not front.translates and not isinstance(self._config.target, Http)
        front.session.pauses_requests = True
        upstream = Upstream(self._config, _Pair(front), self._limits, restarts=False)
        self._tasks[front] = asyncio.ensure_future(upstream.run())

    def left(self, front: Front) -> None:
        """End the server of a client."""
        probe = self._probes.pop(front, None)
        if probe is not None:
            probe.cancel()
        task = self._tasks.pop(front, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the client's own server."""
        backend = front.across
        if backend is None:
            front.unreachable(message)
            return None
        modern = modern_version(message) is not None
        if front.translates and not self._passes(front, backend, message, modern):
            return None
        if modern:  # the first: HTTP needs to know the revision
            backend.revision = REVISIONS[LATEST_MODERN]
            front.admits_modern = True
        return backend

    # -- the era of a server, where the eras are translated --------------------------------------

    def _passes(self, front: Front, backend: Side, message: Message, modern: bool) -> bool:
        """Return whether the server speaks the era of a client's first request. If not, or if that
        is not known yet, the request was taken."""
        era = self._config.era
        if era == ("modern" if modern else "legacy"):
            return True
        if era != "auto":
            front.other_era(message, (), None, cast("Backend", backend))
        elif modern:
            front.session.pauses_requests = True  # what follows waits, too
            self._probe(front, cast("Backend", backend), message, None)
        elif message.method != "initialize":
            return True
        else:
            front.pass_request(message, backend, after=self._greeted(front, backend, message))
        return False

    def _greeted(self, front: Front, backend: Side, message: Message) -> Any:
        """What looks at the answer to ``initialize``: who refuses is asked for its era."""

        def after(answer: Message) -> Message | None:
            if answer.error is None:
                front.admits_legacy = True
                return answer
            refusal = remote_error(answer.error)
            self._probe(front, cast("Backend", backend), message, refusal)
            return None

        return after

    def _probe(
        self, front: Front, backend: Backend, message: Message, refusal: RemoteError | None
    ) -> None:
        """Ask the server whether it is of 2026-07-28.

        ``refusal``: What it says to a client of a legacy era, which gets it if the server is not.
        """

        async def probe() -> None:
            fault: WirespeedError | None = refusal
            found: tuple[str, ...] = ()
            try:
                found = await discover(backend, self._config.start_timeout / 2)
            except WirespeedError as exc:
                fault = fault or exc
            self._probes.pop(front, None)
            front.session.pauses_requests = False
            if refusal is None and found:
                front.admits_modern = True
                front.pass_request(message, backend)
            elif bool(found) is (refusal is not None) and (found or fault is None):
                front.other_era(message, found, None, backend)
            elif isinstance(fault, RemoteError):
                front.refuse(message, fault.code, fault.message, fault.data)
            else:
                front.refuse(message, codes.SERVER_LOST, str(fault).partition("\n")[0])
            front.release()

        self._probes[front] = asyncio.ensure_future(probe())

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
