"""The connections of each principal to a server elsewhere, with the principal's own credentials.

A legacy session and a WebSocket belong to one principal for good. Each other request finds the
connections of the principal that sent it: over HTTP, requests of one lane come from several
principals.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import name_of, outermost
from wirespeed.proxy.identity.credentials import Who
from wirespeed.proxy.isolation.address_pool import AddressPool
from wirespeed.proxy.isolation.assignment import pool_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.affinity import Seals
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.identity.credentials import Credentials
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.supervision.resilience import CircuitBreaker
    from wirespeed.proxy.supervision.supervisor import ServerMeter, Supervisor

logger = logging.getLogger("wirespeed.proxy")


class _Place:
    """The connections of one principal, and its clients."""

    def __init__(self, who: Who, pool: Pool) -> None:
        self.who = who
        self.pool = pool
        self.downstreams: dict[Downstream, None] = {}
        self.used = 0.0


class PerPrincipal:
    """An `Assignment`: each principal has a pool of its own.

    Args:
        config: The server.
        limits: The limits of its connections.
        meter: Counts the connections.
        seals: Those of ids of tasks.
        credentials: The credentials of the principals.
    """

    is_shared = True
    refuses_lanes = ""

    def __init__(
        self,
        config: BackendConfig,
        limits: Limits,
        meter: ServerMeter,
        seals: Seals,
        credentials: Credentials,
    ) -> None:
        assert config.identity is not None
        self._config = config
        self._identity = config.identity
        self._limits = limits
        self._meter = meter
        self._seals = seals
        self._credentials = credentials
        self._urls = config.urls  # those of the last reload or look-up
        self._places: dict[bytes, _Place] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._gone: Counter[str] = Counter()  # dropped by connections that were ended
        self._n_retries = 0
        self._timer: asyncio.TimerHandle | None = None
        self._known: set[Downstream] = set()  # clients whose end `_closed` hears of

    # -- as an `Assignment` ------------------------------------------------------------------------

    async def start(self) -> None:
        """Do nothing: connections are opened for a principal's first request."""

    async def prove(self) -> None:
        """Do nothing: the server cannot be tried without a principal."""

    async def stop(self) -> None:
        """End all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in list(self._places.values()):
            self._drop(place)
        if self._ending:
            await asyncio.wait(self._ending)

    def readdress(self, urls: tuple[Any, ...]) -> None:
        """Have these addresses from now on, for all principals."""
        self._urls = urls
        for place in self._places.values():
            if isinstance(place.pool, AddressPool):
                place.pool.readdress(urls)

    def restart(self, reason: str) -> None:
        """Replace the connections by new ones."""
        for place in self._places.values():
            place.pool.restart(reason)

    @property
    def supervisors(self) -> list[Supervisor]:
        """The connections that go on."""
        return [one for place in self._places.values() for one in place.pool.supervisors]

    @property
    def dropped(self) -> Counter[str]:
        """The number of messages of the servers that were dropped, by reason."""
        found = self._gone.copy()
        for place in self._places.values():
            found.update(place.pool.dropped)
        return found

    @property
    def n_retries(self) -> int:
        """The number of requests that were sent again."""
        return self._n_retries + sum(one.pool.n_retries for one in self._places.values())

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The breakers of connections that have failed."""
        return [one for place in self._places.values() for one in place.pool.breakers]

    # -- clients -----------------------------------------------------------------------------------

    def joined(self, downstream: Downstream) -> None:
        """Do nothing: the client's first request tells who it is."""

    def left(self, downstream: Downstream) -> None:
        """Do nothing: the client left before its first request."""

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Drop a notification that a client sent before its first request."""

    def route(self, downstream: Downstream, message: Message) -> None:
        """Refuse a request that was not bound."""
        downstream.unreachable(message)

    def admits(self, downstream: Downstream, message: Message) -> bool:
        """Bind a client to the connections of the principal that sent a request. Returns whether
        the request may go on. If not, it was refused."""
        client = outermost(downstream)
        digest: bytes | None = client.principal
        peer = downstream.peer_of(message) if client is downstream else client.peer
        if digest is not None and digest == downstream.bound_to:
            place = self._places[digest]
            self._credentials.see(place.who, peer)
            place.used = downstream.loop.time()
            return True
        self._leave(downstream)
        name = name_of(client)
        if digest is None or name is None:
            text = f"{self._config.name} is for clients with a name"
            downstream.refuse(message, codes.INVALID_REQUEST, text)
            return False
        who = Who.of(digest, str(name), peer)
        self._credentials.see(who, peer)
        found = self._places.get(digest)
        if found is None:
            fault = self._credentials.missing(who)
            if fault is not None:
                downstream.refuse(message, fault.code, fault.message, fault.data)
                return False
            found = self._begin(who, downstream)
            if found is None:
                text = f"too many clients of {self._config.name} work at once"
                downstream.refuse(message, codes.OVERLOADED, text)
                return False
        self._bind(downstream, found)
        return True

    def _bind(self, downstream: Downstream, place: _Place) -> None:
        place.downstreams[downstream] = None
        place.used = downstream.loop.time()
        downstream.bound_to = place.who.digest
        downstream.bind(Binding.to_router(place.pool, downstream.service.flow))
        place.pool.joined(downstream)
        if downstream not in self._known:
            self._known.add(downstream)
            downstream.closed.add_done_callback(lambda _: self._closed(downstream))

    def _closed(self, downstream: Downstream) -> None:
        self._known.discard(downstream)
        place = None if downstream.bound_to is None else self._places.get(downstream.bound_to)
        if place is not None:
            self._gone_from(place, downstream)

    def _leave(self, downstream: Downstream) -> None:
        """Unbind a client from the connections of the principal of its last request."""
        if downstream.bound_to is None:
            return
        place = self._places.get(downstream.bound_to)
        downstream.bound_to = None
        downstream.router.left(downstream)
        downstream.bind(Binding.to_router(self, downstream.service.flow))
        if place is not None:
            self._gone_from(place, downstream)

    def _gone_from(self, place: _Place, downstream: Downstream) -> None:
        place.downstreams.pop(downstream, None)
        place.used = downstream.loop.time()

    # -- places ------------------------------------------------------------------------------------

    def _begin(self, who: Who, downstream: Downstream) -> _Place | None:
        """Open the connections of a principal. None: there are too many."""
        if len(self._places) >= self._identity.max_principals:
            idle = [one for one in self._places.values() if not _is_used(one)]
            if not idle:
                return None
            self._drop(min(idle, key=lambda one: one.used))
        authorization = self._credentials.authorization(who, lambda: self._lost(who))
        target: Any = self._config.target
        pooled = self._config.has_addresses or self._config.isolation == "pool"
        config = replace(
            self._config,
            target=msgspec.structs.replace(target, auth=authorization),
            isolation="pool" if pooled else "shared",
            identity=None,
        )
        pool = pool_of(config, self._limits, self._meter, self._seals)
        if isinstance(pool, AddressPool):
            pool.readdress(self._urls)
        place = self._places[who.digest] = _Place(who, pool)
        place.used = downstream.loop.time()
        starting = asyncio.ensure_future(pool.start())
        starting.add_done_callback(self._started)
        self._look_later(downstream.loop)
        return place

    def _started(self, done: asyncio.Future[None]) -> None:
        if done.cancelled() or (error := done.exception()) is None:
            return
        if not isinstance(error, WirespeedError):
            logger.error("internal error of the proxy", exc_info=error)
        logger.warning("%s: %s", self._config.name, str(error).partition("\n")[0])

    def _lost(self, who: Who) -> None:
        """End the connections of a principal whose credentials have ended. The error of its next
        request says what to do."""
        place = self._places.get(who.digest)
        if place is not None and place.who == who:
            asyncio.get_running_loop().call_soon(self._drop, place)

    def forget(self, who: Who) -> None:
        """End the connections of a principal whose credentials changed. New ones are opened at its
        next request."""
        for place in [one for one in self._places.values() if one.who.owner == who.owner]:
            self._drop(place)

    def _drop(self, place: _Place) -> None:
        """End the connections of a principal. Its clients stay."""
        if self._places.get(place.who.digest) is not place:
            return
        for downstream in list(place.downstreams):
            self._leave(downstream)
            if downstream.shared:
                continue
            if downstream.outer is not None:  # a part of a client, which makes a new one
                downstream.abort()
            else:  # its state at the server is lost
                text = f"the credentials at the server {self._config.name} have changed"
                downstream.turn_away(codes.SERVER_LOST, text)
                downstream.drain()
        del self._places[place.who.digest]
        self._gone.update(place.pool.dropped)
        self._n_retries += place.pool.n_retries
        task = asyncio.ensure_future(place.pool.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and self._places:
            self._timer = loop.call_later(self._identity.idle_timeout / 4, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the connections that have no clients."""
        self._timer = None
        least = loop.time() - self._identity.idle_timeout
        for place in list(self._places.values()):
            if not _is_used(place) and place.used <= least:
                self._drop(place)
        self._look_later(loop)


def _is_used(place: _Place) -> bool:
    """Whether a client has requests here or stays connected. A lane counts only by its
    requests."""
    return any(not one.shared or one.session.inflight.live for one in place.downstreams)
