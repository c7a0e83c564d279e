"""Servers that all clients share: those of each era apart."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING
from zlib import crc32

from wirespeed.errors import ProtocolError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS
from wirespeed.proxy.affinity import addressed
from wirespeed.proxy.backend_config import RecycleConfig
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.downstream import principal_of
from wirespeed.proxy.isolation.changes import GatheredChanges
from wirespeed.proxy.isolation.choice import LeastLoaded
from wirespeed.proxy.isolation.first import FirstConnection
from wirespeed.proxy.isolation.instance import Instance, guarded, pong
from wirespeed.proxy.isolation.legacy import Legacy, asked_of
from wirespeed.proxy.isolation.modern import Modern, Waiting
from wirespeed.proxy.isolation.task_makers import MAX_OF_OWNER, MAX_TASKS
from wirespeed.proxy.own_requests import modern_version, params_of, unsupported
from wirespeed.proxy.supervision.checks import Idle, Recycling
from wirespeed.proxy.supervision.supervisor import RunningServer, Supervisor
from wirespeed.transport.child.command import Stdio

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.cluster.task_makers import RedisTaskMakers
    from wirespeed.limits import Limits
    from wirespeed.proxy.affinity import Seals
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.binding import Functions
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.isolation.per_client import PerClient
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.resilience import CircuitBreaker
    from wirespeed.proxy.supervision.supervisor import ServerMeter
    from wirespeed.proxy.upstream import Upstream, UpstreamOwner

logger = logging.getLogger("wirespeed.proxy")

# Seconds that the requests of a server that was replaced have to end.
RETIREMENT = 300.0


class Pool:
    """An `Assignment` of all clients to the same servers.

    A connection serves one era with most servers, so a server of both eras has one for each: the
    second is opened for the first client that needs it.

    With a size above one, a request of the modern era goes to the server with the fewest, and a
    client of a legacy era stays with one server. Further servers are started when those that run
    have work.

    Args:
        config: The server.
        limits: The limits of its connections.
        seals: Those of ids of tasks.
        per_client: What gets the clients of legacy eras instead; None: nothing does.

    Attributes:
        has_one: Whether there is one server for each era, for good.
        versions: The revisions that the server speaks, the oldest first; empty until known.
        legacy, modern: What serves clients of these eras.
        changes: What gathers the changes that the modern ones tell of.
        requests: What it answers itself (`Binding.requests`).
    """

    is_shared = True
    refuses_lanes = ""

    def __init__(
        self,
        config: BackendConfig,
        limits: Limits,
        meter: ServerMeter,
        seals: Seals,
        per_client: PerClient | None = None,
    ) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self.versions: tuple[str, ...] = ()
        self._per_client = per_client
        self.legacy: list[Legacy] = []
        self.modern: list[Modern] = []
        self._firsts: list[FirstConnection] = []
        self._leaving: list[Instance] = []  # no server any more, but have requests or clients
        self._gone: Counter[str] = Counter()  # messages dropped by those that have left
        self._n_gone_retries = 0
        self.has_one = False
        self._seals = seals
        self._set_up()
        self._choice = None if self.has_one else LeastLoaded(crc32(config.name.encode()))
        self.changes = GatheredChanges(
            lambda: sum(one.upstream is not None for one in self.modern), config.delays.gather
        )
        self._homes: dict[Downstream, Legacy | None] = {}
        self._waiting = Waiting()  # until the eras are known
        self._refusal: tuple[int, str] | None = None
        self.requests: Functions = {"initialize": self._initialize, "ping": pong}
        self._running: dict[UpstreamOwner, RunningServer] = {}
        self._replacing: dict[UpstreamOwner, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()  # of servers that were replaced
        self._ending: set[asyncio.Task[None]] = set()  # servers whose tasks were cancelled
        self._has_legacy = config.era != "modern"

    def _set_up(self) -> None:
        """Have as many servers as the configuration says, which are not started yet."""
        config = self._config
        several = config.isolation == "pool" or isinstance(config.target, Stdio)
        size = config.size if several and config.isolation != "shared" else 1
        self.has_one = size == 1
        for tag in range(size):
            self._add(tag)
        self._firsts = [self._first(self.legacy[0], self.modern[0])]

    def _add(self, tag: int, address: Address | None = None) -> None:
        self.legacy.append(Legacy(self._config, self._limits, self, address))
        self.modern.append(Modern(self._config, self._limits, self, tag, address))

    def _first(self, legacy: Legacy, modern: Modern) -> FirstConnection:
        return FirstConnection(self._config, asked_of(self._config), self, legacy, modern)

    # -- the servers -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the server. TransportError or another WirespeedError: it cannot be used yet, and is
        started again until `stop`."""
        self.stand_by()
        owner: UpstreamOwner = self._firsts[0]
        if self.versions:
            owner = self.modern[0] if self.is_modern else self.legacy[0]
        await asyncio.shield(self._run(owner).ready)

    def stand_by(self) -> None:
        """Start servers when there are requests for them. Where the configuration does not name the
        era, `start` finds it out."""
        if self._config.era != "auto":
            self.versions = LEGACY_VERSIONS if self._config.era == "legacy" else MODERN_VERSIONS

    async def prove(self) -> None:
        """`start` has done so."""

    @property
    def supervisors(self) -> list[Supervisor]:
        """The servers that run, or are started again."""
        return [life.supervisor for life in self._running.values()]

    def _run(self, owner: UpstreamOwner) -> Supervisor:
        """Start a connection, if it does not run yet."""
        if owner not in self._running:
            self._running[owner] = self._begin(owner)
        return self._running[owner].supervisor

    def _begin(self, owner: UpstreamOwner) -> RunningServer:
        address = getattr(owner, "address", None)
        target = None if address is None else address.target
        supervisor = Supervisor(
            self._config, owner, self._limits, self._meter, restarts=True, target=target
        )
        self.watch(supervisor)
        return RunningServer(supervisor, asyncio.ensure_future(supervisor.run()))

    def watch(self, supervisor: Supervisor) -> None:
        """Look at the age and the idleness of a server."""
        recycle, idle_timeout = self._config.recycle, self._config.idle_timeout
        if recycle != RecycleConfig():
            supervisor.checks.append(
                Recycling(
                    recycle,
                    lambda reason: self._recycle(supervisor.owner, reason),
                    lambda: supervisor.status.pid,
                )
            )
        if idle_timeout is not None:
            supervisor.checks.append(
                Idle(
                    idle_timeout,
                    lambda: any(
                        home is supervisor.owner and home.n_clients > 0 for home in self.legacy
                    ),
                    lambda: self._stop_idle(supervisor.owner),
                )
            )

    @property
    def dropped(self) -> Counter[str]:
        """The number of messages of the servers that were dropped, by reason."""
        found = self._gone.copy()
        for one in (*self.legacy, *self.modern, *self._leaving):
            found.update(one.dropped)
        return found

    @property
    def n_retries(self) -> int:
        """The number of requests that were sent again."""
        instances = (*self.legacy, *self.modern, *self._leaving)
        return self._n_gone_retries + sum(one.n_retries for one in instances)

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The breakers of servers that have failed."""
        found = [one.breaker for one in (*self.legacy, *self.modern)]
        return [one for one in found if one is not None]

    async def stop(self) -> None:
        """End all servers."""
        tasks = [life.task for life in self._running.values()]
        tasks += [*self._replacing.values(), *self._retiring]
        owners = list(self._running)
        self._running.clear()
        self.update_choice()
        self.versions, self._refusal = (), None
        self._firsts = [self._first(one.legacy, one.modern) for one in self._firsts]
        self._has_legacy = self._config.era != "modern"
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._ending:
            await asyncio.wait(self._ending)
        for owner in owners:
            if isinstance(owner, Instance):
                owner.stopped()

    def _stop_idle(self, owner: UpstreamOwner) -> None:
        """Stop a server that has nothing to do. The next request starts it."""
        life = self._running.pop(owner, None)
        self.update_choice()
        if life is not None:
            logger.info("%s: it is stopped, as it has nothing to do", self._config.name)
            self._end(life.task)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _recycle(self, owner: UpstreamOwner, reason: str) -> None:
        """Put a new server in the place of another."""
        if owner not in self._replacing and owner in self._running:
            logger.info("%s: it is replaced: %s", self._config.name, reason)
            task = self._replacing[owner] = asyncio.ensure_future(self._replace(owner))
            task.add_done_callback(lambda done: self._replacing.pop(owner, None))

    def restart(self, reason: str) -> None:
        """Replace the servers that run by new ones, once their requests are answered."""
        for owner in list(self._running):
            self._recycle(owner, reason)

    async def _replace(self, owner: UpstreamOwner) -> None:
        new = self._begin(owner)
        try:
            await asyncio.shield(new.supervisor.ready)
        except WirespeedError as exc:
            logger.warning("%s: it cannot be replaced: %s", self._config.name, exc)
            new.task.cancel()
            await asyncio.wait((new.task,))
            return
        except asyncio.CancelledError:
            self._end(new.task)
            raise
        old = self._running.get(owner)
        if old is None:  # it was stopped meanwhile
            self._end(new.task)
            return
        self._running[owner] = new
        self._meter.replaced()
        upstream = new.supervisor.upstream
        if isinstance(owner, Instance) and upstream is not None and owner.upstream is not upstream:
            owner.use(upstream)  # the old one has come back a moment ago
            owner.attach_all()
        retiring = asyncio.ensure_future(old.end(RETIREMENT))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    def give(self, first: FirstConnection, upstream: Upstream, owner: Instance) -> None:
        """Let an instance own a first connection."""
        self._give(upstream, self._running.pop(first), owner)

    def learned(self, versions: tuple[str, ...]) -> None:
        """A first connection has shown what the server speaks."""
        if not self.versions:
            self.versions = versions
        self._go_on()

    async def adopt(
        self, upstream: Upstream, life: RunningServer, versions: tuple[str, ...]
    ) -> None:
        """Take a connection to a server of the modern era."""
        self._give(upstream, life, self.modern[0])
        self.learned(versions)
        await self.modern[0].ready(upstream)

    def _give(self, upstream: Upstream, life: RunningServer, owner: Instance) -> None:
        self._running[owner] = life
        life.supervisor.pass_to(owner, upstream)

    def refused(self) -> None:
        """A first connection cannot be made, or can again. Refuse requests while none can be."""
        reasons = [one.reason for one in self._firsts]
        if reasons and all(one is not None for one in reasons):
            self._refusal = codes.SERVER_LOST, reasons[0] or ""
            self._go_on()

    def came(self, instance: Modern) -> None:
        """A server of the modern era can take requests from now on."""

    # -- clients ---------------------------------------------------------------------------------

    def joined(self, downstream: Downstream) -> None:
        """A client has connected. Its first request shows its era."""
        self._homes[downstream] = None
        self._bind(downstream)

    def _bind(self, downstream: Downstream) -> None:
        flow = downstream.service.flow
        downstream.bind(Binding.to_pool(self, flow, self.requests, self._choice))

    def left(self, downstream: Downstream) -> None:
        """A client has left."""
        self._waiting.left(downstream)
        home = self._homes.pop(downstream)
        if home is not None:
            home.left(downstream)
        else:
            self._leave_modern(downstream)

    def _leave_modern(self, downstream: Downstream) -> None:
        for one in (*self.modern, *self._leaving):
            if isinstance(one, Modern):
                one.left(downstream)

    def is_of_modern(self, downstream: Downstream) -> bool:
        """Whether a client is here, and has not gone over to a legacy era."""
        return downstream in self._homes and self._homes[downstream] is None

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Keep what a client says of itself. The server, which knows the proxy, needs it only where
        it may ask."""
        home = self._homes[downstream]
        if home is not None:
            home.client_said(downstream, message)

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it waits or was answered."""
        home = self._homes[downstream]
        if home is not None:
            return home.route(downstream, message)
        version = modern_version(message)
        if version is None:
            downstream.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        elif not self._is_known:
            self._wait(downstream, message)
        elif not self.is_modern and self._per_client is not None and not downstream.shared:
            self._hand_over(downstream, message, self._per_client)
        elif not self.is_modern:
            downstream.other_era(message, self.versions, version)
        else:
            return self._choose(downstream, message)
        return None

    def _choose(
        self, downstream: Downstream, message: Message, without: Modern | None = None
    ) -> Side | None:
        """Return the server of a modern request, or None if it waits or was answered."""
        if not self.modern:
            self._wait(downstream, message)
            return None
        there = [one for one in self.modern if one.upstream is not None and one is not without]
        ready = [one for one in there if one.is_free] or there
        tags = None if self.has_one else {one.tag for one in self.modern}
        try:
            found = addressed(message, tags, self.opens(downstream), placed=bool(self.place))
        except ProtocolError as exc:
            downstream.refuse(message, exc.code, exc.message)
            return None
        if found is not None:
            chosen = next(one for one in self.modern if self.has_one or one.tag == found[0])
        elif ready:
            chosen = self._least_loaded(downstream, ready, without)
            if message.method == "subscriptions/listen" and not self.has_one:
                for one in there:  # and those to come: `Modern.restore`
                    one.listen(downstream, message)
                return None
        else:
            chosen = min(self.modern, key=lambda one: (one is without, not one.is_free))
        self._run(chosen)
        to = chosen.route(downstream, message)
        if to is not None and message.method == "subscriptions/listen":
            chosen.listen(downstream, message)
            return None
        if found is None or to is None:
            return to
        downstream.pass_request(message, to, text=found[1])
        return None

    def another(self, downstream: Downstream, without: Modern) -> Modern | None:
        """Return a server that can take a request at once; None: there is none but this one."""
        ready = [one for one in self.modern if one.takes_all and one is not without]
        return self._least_loaded(downstream, ready, without) if ready else None

    def _least_loaded(
        self, downstream: Downstream, ready: list[Modern], without: Modern | None
    ) -> Modern:
        """Return one of the servers that are ready, and start another one if all have work."""
        chosen = min(ready, key=lambda one: one.load)
        if chosen.load:
            self._run(next((one for one in self.modern if one not in self._running), chosen))
        return chosen

    @property
    def place(self) -> str:
        """As of `Seals`."""
        return self._seals.place

    def seal(self, task_id: str, downstream: Downstream) -> str:
        """Return what a client gets for the id of a task."""
        return self._seals.seal(task_id, principal_of(downstream))

    def opens(self, downstream: Downstream) -> Callable[[str], str]:
        """Return what opens the seal of the id of a client's task. ProtocolError: the client has no
        such task."""
        return lambda id: self._seals.open(id, principal_of(downstream))

    def shared_makers(self, url: str | None) -> RedisTaskMakers | None:
        """Return what all hosts know of the makers of tasks; None: each host has servers of its
        own. ``url``: That of the address, if there are several."""
        make = self._seals.member.task_makers
        url = url or getattr(self._config.target, "url", None)
        if make is None or url is None:
            return None
        return make(self._config.name, url, MAX_TASKS, MAX_OF_OWNER)

    def update_choice(self) -> None:
        """A server may take requests now, or may not."""
        if self._choice is not None:
            running = [one for one in self.modern if one.takes_all and one in self._running]
            if len(running) < len(self.modern):
                running = []
            self._choice.take(
                [one.upstream for one in running], [one.downstreams for one in running]
            )

    def has_free(self, other: Instance) -> bool:
        """Whether another server of the modern era can take a request at once."""
        return any(
            one.upstream is not None and one.is_free for one in self.modern if one is not other
        )

    @property
    def subscriptions(self) -> list[tuple[Downstream, Message]]:
        """The subscriptions of all clients."""
        return [
            (downstream, one) for downstream in self._homes for one in downstream.subscriptions()
        ]

    def replay(
        self, downstream: Downstream, message: Message, without: Modern | None = None
    ) -> None:
        """Choose again for a request that has waited. ``without``: a server that has failed it."""
        with guarded(downstream, message):
            if not downstream.is_open(message):
                return
            if downstream not in self._homes:  # it has a server of its own since
                version = modern_version(message)
                downstream.refuse(message, *unsupported(LEGACY_VERSIONS, version))
            elif without is not None and self._homes[downstream] is None:
                if (to := self._choose(downstream, message, without)) is not None:
                    downstream.pass_request(message, to)
            elif (to := self.route(downstream, message)) is not None:
                downstream.pass_request(message, to)

    @property
    def _is_known(self) -> bool:
        """Whether there is a server, and it has said which eras it speaks."""
        return bool(self.versions and self.modern)

    @property
    def is_modern(self) -> bool:
        """Whether the server is known to speak 2026-07-28."""
        return bool(self.versions) and self.versions[-1] in MODERN_VERSIONS

    def without_legacy(self) -> None:
        """The server refuses ``initialize``: so do we. What a server names in the modern era does
        not tell: the official SDKs name none of the legacy versions that they speak."""
        self._has_legacy = False
        for home in self.legacy:
            for downstream, message in home.give_back():
                self._homes[downstream] = None
                self._bind(downstream)
                self._initialize(downstream, message)

    def _initialize(self, downstream: Downstream, message: Message) -> None:
        if self._per_client is not None and self.modern:
            self._hand_over(downstream, message, self._per_client)
        elif not self._is_known:
            if self._refusal is None:
                downstream.pause()  # what follows waits, too
            else:
                downstream.resume()
            self._wait(downstream, message)
        elif not self._has_legacy:
            params = params_of(message)
            downstream.other_era(message, self.versions, params.get("protocolVersion"))
        else:
            if self._homes[downstream] is None:
                self._leave_modern(downstream)
            home = self._homes[downstream] = self._choose_home(downstream)
            self._run(home)
            home.greet(downstream, message)

    def _hand_over(self, downstream: Downstream, message: Message, to: PerClient) -> None:
        """Have a client get a server of its own."""
        self._homes.pop(downstream)
        self._leave_modern(downstream)
        downstream.bind(Binding.to_router(to, downstream.service.flow))
        to.joined(downstream, message)

    def _choose_home(self, downstream: Downstream) -> Legacy:
        """Return the server that a client of a legacy era has for its life."""
        return min(
            self.legacy,
            key=lambda one: (not one.is_free, one.n_clients, one not in self._running),
        )

    def _wait(self, downstream: Downstream, message: Message) -> None:
        if self._refusal is None:
            self._waiting.add(downstream, message)
        else:
            downstream.refuse(message, *self._refusal)

    def _go_on(self) -> None:
        """Handle what has waited for the eras."""
        for downstream, message in self._waiting.take():
            if downstream.link is None:
                continue
            if message.method == "initialize" and modern_version(message) is None:
                downstream.resume()
                with guarded(downstream, message):
                    self._initialize(downstream, message)
                downstream.link.wrote()
            else:
                self.replay(downstream, message)
