"""A server of its own for each client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wirespeed.client.targets.remote import Http
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_MODERN, REVISIONS
from wirespeed.proxy.eras import modern_version
from wirespeed.proxy.isolation.pair import Pair
from wirespeed.proxy.isolation.spares import Spares
from wirespeed.proxy.supervision.breaker import Breaker

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.upstream import Life, Upstream


class PerClient:
    """Each client has a server of its own: all that the two say passes, but for the ids.

    Attributes:
        breaker: What counts failures of all servers; None: nothing does, or there were none.
    """

    serves_lanes = False

    def __init__(self, config: BackendConfig, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._pairs: dict[Front, Pair] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._spares = Spares(config, limits)
        self.breaker: Breaker | None = None
        self._n_answered = 0

    async def start(self) -> None:
        """Servers are started for their clients, and as spares."""
        self._spares.fill()

    async def stop(self) -> None:
        """End all servers."""
        for front in list(self._pairs):
            self.left(front)
        for pair in self._spares.take_all():
            self._end(pair)
        if self.breaker is not None:
            self.breaker.close()
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def upstreams(self) -> list[Upstream]:
        """The servers of clients, and those that wait for clients."""
        pairs = [*self._pairs.values(), *self._spares.pairs]
        return [pair.life.upstream for pair in pairs]

    def adopt(self, backend: Backend, life: Life) -> None:
        """Take a server that was started to find out its era: it is for the first client. If it
        ends before, another one is started when that client comes."""
        life.upstream.restarts = self._config.spares > 0
        self._spares.add(Pair.of(life, backend))

    def joined(self, front: Front, first: Message | None = None) -> None:
        """Give a client a server, which its requests wait for. ``first``: one of these, which was
        read already."""
        config = self._config
        refusal: tuple[int, str] | None = None
        if len(self._pairs) >= config.max_clients:
            refusal = (
                codes.OVERLOADED,
                f"{config.name} has {config.max_clients} clients: there may be no more",
            )
        elif self.breaker is not None and not self.breaker.is_free(self._answered()):
            refusal = codes.SERVER_LOST, f"the server is down: {self.breaker.reason}"
        if refusal is not None:
            front.session.refusal = refusal
            if first is not None:
                front.refuse(first, *refusal)
            return
        front.admits_legacy = True
        front.admits_modern = not isinstance(config.target, Http)
        front.session.pauses_requests = True
        pair = self._pairs[front] = self._spares.take()
        pair.join(front, first, self.failed)
        self._spares.fill()

    def left(self, front: Front) -> None:
        """End the server of a client."""
        pair = self._pairs.pop(front, None)
        if pair is not None:
            if pair.backend is not None:
                self._n_answered += pair.backend.n_answered
            self._end(pair)

    def _end(self, pair: Pair) -> None:
        task = pair.life.task
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def failed(self, pair: Pair) -> None:
        """The server of a client has ended, could not be started, or took too long."""
        if self.breaker is None and self._config.breaker is not None:
            self.breaker = Breaker(self._config.breaker, asyncio.get_running_loop(), lambda: None)
        if self.breaker is not None:
            self.breaker.failed(self._answered())

    def _answered(self) -> int:
        """How many requests all servers have answered."""
        running = (one.backend for one in self._pairs.values())
        return self._n_answered + sum(one.n_answered for one in running if one is not None)

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
