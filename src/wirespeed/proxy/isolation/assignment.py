"""The assignment of clients to servers, as the isolation of a server says; `Auto` asks the server
for its era, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from wirespeed.protocol import codes
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import Router, WithoutSession
from wirespeed.proxy.isolation.address_pool import AddressPool
from wirespeed.proxy.isolation.handshake import Probe, ping
from wirespeed.proxy.isolation.per_client import PerClient
from wirespeed.proxy.isolation.pool import Pool
from wirespeed.proxy.supervision.supervisor import RunningServer, StartAgain, Supervisor

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.affinity import Seals
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.resilience import CircuitBreaker
    from wirespeed.proxy.supervision.supervisor import ServerMeter
    from wirespeed.proxy.upstream import Upstream


class Assignment(Router, Protocol):
    """Joins clients to connections of servers, and knows what the two may see of each other.

    Attributes:
        refuses_lanes: Why it does not serve requests of 2026-07-28 that come one by one over HTTP,
            from any client, and what to set; "" if it serves them.
    """

    @property
    def refuses_lanes(self) -> str:
        """See above."""

    @property
    def supervisors(self) -> list[Supervisor]:
        """The servers that it keeps running."""

    async def start(self) -> None:
        """Get ready for clients. TransportError: the server cannot be started; `stop` is due all
        the same."""

    async def prove(self) -> None:
        """See that a server can be started, where `start` has not done so. WirespeedError: none
        can, and it is tried again."""

    async def stop(self) -> None:
        """End all servers."""


def assignment_of(
    config: BackendConfig, limits: Limits, meter: ServerMeter, seals: Seals
) -> Assignment:
    """Return what assigns clients to a server as its isolation says."""
    if config.isolation == "auto" and config.era != "modern":
        return Auto(config, limits, meter, seals)
    if config.isolation == "session":
        return PerClient(config, limits, meter, seals.member)
    return pool_of(config, limits, meter, seals)


def pool_of(config: BackendConfig, limits: Limits, meter: ServerMeter, seals: Seals) -> Pool:
    """Return what assigns all clients to the same servers."""
    kind = AddressPool if config.has_addresses else Pool
    return kind(config, limits, meter, seals)


class Auto:
    """An `Assignment` by era. A client that uses ``initialize`` has a server of its own, requests
    of 2026-07-28 go to a pool, where the server speaks that revision. Where it does not, they are
    translated: a client with a connection has a server of its own, requests that come one by one
    over HTTP share one.

    It asks the server once, unless the configuration names the era. Until it knows, clients wait.
    The server that was asked is used: it is the first of the pool, or that of the first client.

    Of a server with several addresses, the pool asks each, and knows which can be used.
    """

    is_shared = False  # until the era is known

    def __init__(
        self, config: BackendConfig, limits: Limits, meter: ServerMeter, seals: Seals
    ) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self._seals = seals
        self._per_client = PerClient(config, limits, meter, seals.member)
        self._pool: Pool | None = None
        self._lanes: Pool | None = None  # of a server of legacy eras
        self._is_known = False
        self._life: RunningServer | None = None
        self._probe = Probe(config, None)
        self._downstreams: dict[Downstream, None] = {}  # that wait
        self._refusal: tuple[int, str] | None = None
        self._urls = config.urls  # those of the last reload

    async def start(self) -> None:
        """Start a server, and ask it. WirespeedError: it cannot be used yet, and is started again
        until `stop`."""
        self._per_client.begin()
        if self._config.has_addresses:
            pool = AddressPool(
                self._config, self._limits, self._meter, self._seals, self._per_client
            )
            pool.readdress(self._urls)
            self._pool = pool
            self._per_client.use(pool.address_for)
            self._go_on()
            await pool.start()
            return
        if self._config.era == "legacy":
            await self._serve_legacy()
            return
        supervisor = Supervisor(self._config, self, self._limits, self._meter, restarts=True)
        self._life = RunningServer(supervisor, asyncio.ensure_future(supervisor.run()))
        await asyncio.shield(supervisor.ready)

    async def prove(self) -> None:
        """`start` has done so."""

    async def stop(self) -> None:
        """End all servers, and forget what was found out."""
        life, self._life = self._life, None
        pools = self._pools
        self._pool = self._lanes = None
        self._probe = Probe(self._config, None)
        self._is_known, self._refusal = False, None
        if life is not None:
            life.task.cancel()
            await asyncio.wait((life.task,))
        for pool in pools:
            await pool.stop()
        await self._per_client.stop()

    def readdress(self, urls: tuple[Any, ...]) -> None:
        """Have these addresses from now on."""
        self._urls = urls
        if isinstance(self._pool, AddressPool):
            self._pool.readdress(urls)

    def restart(self, reason: str) -> None:
        """Replace the servers that run by new ones."""
        if self._is_known:
            self._per_client.restart(reason)
        for pool in self._pools:
            pool.restart(reason)

    @property
    def refuses_lanes(self) -> str:
        """Why requests that come one by one are not served; "": they are, or wait until the era
        is known."""
        if not self._is_known or self._pool is not None or self._lanes is not None:
            return ""
        return "the server is of a legacy era, and translate is off: set translate to true"

    @property
    def _pools(self) -> list[Pool]:
        return [one for one in (self._pool, self._lanes) if one is not None]

    @property
    def supervisors(self) -> list[Supervisor]:
        """The servers that run, or are started again."""
        found = [] if self._life is None else [self._life.supervisor]
        found += self._per_client.supervisors
        for pool in self._pools:
            found += pool.supervisors
        return found

    @property
    def dropped(self) -> Counter[str]:
        """The number of messages of the servers that were dropped, by reason."""
        found: Counter[str] = Counter()
        for pool in self._pools:
            found.update(pool.dropped)
        return found

    @property
    def n_retries(self) -> int:
        """The number of requests that were sent again."""
        return sum(pool.n_retries for pool in self._pools)

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The breakers of servers that have failed."""
        found = self._per_client.breakers
        for pool in self._pools:
            found = found + pool.breakers
        return found

    # -- the first server ------------------------------------------------------------------------

    async def opened(self, upstream: Upstream) -> None:
        """The server is there: ask it. StartAgain: it ended at the question."""
        versions = await self._probe.ask(upstream)
        if upstream.greeting is not None:  # the first client says itself who it is
            raise StartAgain("it has had an initialize of the proxy")
        if self._probe.was_fatal:  # a program that always fails looks like that, too
            await ping(upstream, self._config.start_timeout / 2)
        life, self._life = self._life, None
        assert life is not None
        if versions:
            self._pool = Pool(
                self._config, self._limits, self._meter, self._seals, self._per_client
            )
            self._pool.watch(life.supervisor)
            self._go_on()
            await self._pool.adopt(upstream, life, versions)
        else:
            self._per_client.adopt(upstream, life)
            await self._serve_legacy()

    async def _serve_legacy(self) -> None:
        """The server is of a legacy era."""
        if self._config.translate:
            config = replace(self._config, isolation="shared", era="legacy")
            self._lanes = Pool(config, self._limits, self._meter, self._seals)
            self._lanes.stand_by()
        await self._per_client.start()
        self._go_on()

    def _go_on(self) -> None:
        """The era is known."""
        self._is_known, self._refusal = True, None
        downstreams, self._downstreams = self._downstreams, {}
        for downstream in downstreams:
            downstream.resume()
            self.joined(downstream)
            if downstream.link is not None:
                downstream.link.wrote()

    def closed(self, upstream: Upstream) -> None:
        """The first server was lost before its era was known."""

    def failed(self) -> None:
        """The first start has failed."""

    def again(self, asker: Side, message: Message) -> bool:
        """Nothing was passed on yet."""
        return False

    def down(self, reason: str | None) -> None:
        """Refuse requests while the server cannot be started."""
        self._refusal = None if reason is None else (codes.SERVER_LOST, reason)
        for downstream in self._downstreams:
            self._hold(downstream)

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Refuse what a server asks before it has a client."""
        upstream.refuse(message, "there is no client yet")

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Drop what a server says before it has a client."""

    # -- clients ---------------------------------------------------------------------------------

    def joined(self, downstream: Downstream) -> None:
        """A client has connected. Once the era is known, another assignment serves it."""
        if not self._is_known:
            self._downstreams[downstream] = None
            self._hold(downstream)
            return
        router: Router
        if self._pool is not None:
            router = self._pool
        elif not downstream.shared:
            router = self._per_client
        else:
            router = self._lanes or WithoutSession(self.refuses_lanes)
        downstream.bind(Binding.to_router(router, downstream.service.flow))
        router.joined(downstream)

    def _hold(self, downstream: Downstream) -> None:
        """Let the requests of a client wait, or refuse them while the server cannot be started."""
        downstream.bind(Binding.to_router(self, downstream.service.flow, self._refusal))
        if self._refusal is None:
            downstream.pause()
        else:
            downstream.release()

    def left(self, downstream: Downstream) -> None:
        """A client has left before the era was known."""
        self._downstreams.pop(downstream, None)

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Nothing is passed on before the era is known."""
        downstream.unreachable(message)
        return None

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Drop what a client says before the era is known."""
