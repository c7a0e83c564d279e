"""Servers that all clients share: those of each era apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS
from wirespeed.proxy.eras import modern_version, unsupported
from wirespeed.proxy.isolation.handshake import discover, learn_fields
from wirespeed.proxy.isolation.legacy import Legacy
from wirespeed.proxy.isolation.modern import Modern
from wirespeed.proxy.supervision.upstream import StartAgain, Upstream
from wirespeed.proxy.tags import addressed

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend, Owner
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.isolation.instance import Instance
    from wirespeed.proxy.operation.meter import Meter
    from wirespeed.proxy.side import Side


class Pool:
    """An `Assignment` of all clients to the same servers.

    A connection serves one era with most servers, so a server of both eras has one for each: the
    second is opened for the first client that needs it. The pool is the owner of the first
    connection until the server has said which eras it speaks.

    With a size above one, a request of the modern era goes to the server with the fewest, and a
    client of a legacy era stays with one server. Further servers are started when those that run
    have work.

    Attributes:
        has_one: Whether there is one server for each era.
        versions: What the server speaks, the oldest first; empty until it is known.
        legacy, modern: What serves clients of these eras.
        subscriptions: Those of clients of several servers.
    """

    serves_lanes = True

    def __init__(self, config: BackendConfig, limits: Limits, meter: Meter) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self.versions: tuple[str, ...] = ()
        size = config.size if config.isolation == "pool" else 1
        self.has_one = size == 1
        self.legacy = [Legacy(config, limits, self) for _ in range(size)]
        self.modern = [Modern(config, limits, self, index) for index in range(size)]
        self.subscriptions: list[tuple[Front, Message]] = []
        self._homes: dict[Front, Legacy | None] = {}
        self._waiting: list[tuple[Front, Message]] = []  # until the eras are known
        self._refusal: tuple[int, str] | None = None
        self._requests: dict[str, Callable[[Any, Message], None]] = {
            "initialize": self._initialize,
            "ping": self._ping,
        }
        self._running: dict[Owner, tuple[Upstream, asyncio.Task[None]]] = {}
        self._is_probed = False
        self._has_legacy = config.era != "modern"

    # -- the servers -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the server. TransportError or another WirespeedError: it cannot be used yet, and is
        started again until `stop`."""
        if self._config.era == "legacy":
            self.versions = LEGACY_VERSIONS
            upstream = self._run(self.legacy[0])
        elif self._config.era == "modern":
            self.versions = MODERN_VERSIONS
            upstream = self._run(self.modern[0])
        else:
            upstream = self._run(self)
        await asyncio.shield(upstream.ready)

    def _run(self, owner: Owner) -> Upstream:
        """Start a connection, if it does not run yet."""
        if owner not in self._running:
            upstream = Upstream(self._config, owner, self._limits, self._meter, restarts=True)
            self._running[owner] = upstream, asyncio.ensure_future(upstream.run())
        return self._running[owner][0]

    @property
    def dropped(self) -> Counter[str]:
        """How many messages of the servers were dropped, by reason."""
        found: Counter[str] = Counter()
        for one in (*self.legacy, *self.modern):
            found.update(one.dropped)
        return found

    async def stop(self) -> None:
        """End all servers."""
        tasks = [task for _, task in self._running.values()]
        self._running.clear()
        self.versions, self._refusal, self._is_probed = (), None, False
        self._has_legacy = self._config.era != "modern"
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def opened(self, backend: Backend) -> None:
        """The first connection is there: find out the eras. StartAgain: the server ended at the
        probe, as some legacy servers do."""
        versions: tuple[str, ...] = ()
        if not self._is_probed:
            self._is_probed = True
            try:
                versions = await discover(backend, self._config.start_timeout / 2)
            except TransportError as exc:
                if backend.lost.done():
                    raise StartAgain(str(exc)) from exc
                self._is_probed = False  # a server elsewhere that is not there yet
                raise
        if versions:
            await learn_fields(backend)
            self._give(backend, self.modern[0])
            self.modern[0].ready(backend)
        else:
            await self.legacy[0].opened(backend)
            versions = self.legacy[0].versions
            self._give(backend, self.legacy[0])
        self.versions = versions
        self._go_on()

    def _give(self, backend: Backend, owner: Instance) -> None:
        upstream, task = self._running.pop(self)
        self._running[owner] = upstream, task
        upstream.owner = backend.owner = owner

    def closed(self, backend: Backend) -> None:
        """The first connection was lost in its handshake."""

    def down(self, reason: str | None) -> None:
        """Refuse requests while the server cannot be started."""
        if reason is not None:
            self._refusal = codes.SERVER_LOST, f"the server is down: {reason}"
            self._go_on()

    def server_asks(self, backend: Backend, message: Message) -> None:
        """Take a request of a server in its handshake."""
        self.legacy[0].server_asks(backend, message)

    def server_said(self, backend: Backend, message: Message) -> None:
        """Drop a notification in its handshake."""

    # -- clients ---------------------------------------------------------------------------------

    def joined(self, front: Front) -> None:
        """A client has connected. Its first request shows its era."""
        self._homes[front] = None
        front.requests = self._requests

    def left(self, front: Front) -> None:
        """A client has left."""
        home = self._homes.pop(front)
        if home is not None:
            home.left(front)
        else:
            self._leave_modern(front)

    def _leave_modern(self, front: Front) -> None:
        for one in self.modern:
            one.left(front)

    def client_said(self, front: Front, message: Message) -> None:
        """What a client says of itself is not the server's business: it knows the proxy."""

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it waits or was answered."""
        home = self._homes[front]
        if home is not None:
            return home.route(front, message)
        version = modern_version(message)
        if version is None:
            front.refuse(message, codes.INVALID_PARAMS, "the connection is not initialized")
        elif not self.versions:
            self._wait(front, message)
        elif not self.is_modern:
            front.refuse(message, *unsupported(self.versions, version))
        else:
            return self._choose(front, message)
        return None

    def _choose(self, front: Front, message: Message) -> Side | None:
        """Return the server of a modern request, or None if it waits or was answered."""
        if self.has_one:
            self._run(self.modern[0])
            return self.modern[0].route(front, message)
        ready = [one for one in self.modern if one.backend is not None]
        found = addressed(message, len(self.modern))
        if found is not None:
            chosen = self.modern[found[0]]
        elif ready:
            chosen = min(ready, key=lambda one: one.load)
            if chosen.load:
                self._run(next((one for one in self.modern if one not in self._running), chosen))
            if message.method == "subscriptions/listen":
                self._listen(front, message, ready)
                return None
        else:
            chosen = min(self.modern, key=lambda one: (one.refusal is not None, one.index))
        self._run(chosen)
        to = chosen.route(front, message)
        if found is None or to is None:
            return to
        front.pass_request(message, to, text=found[1])
        return None

    def _listen(self, front: Front, message: Message, ready: list[Modern]) -> None:
        """Subscribe a client at all servers, and at those to come."""
        self.subscriptions[:] = [one for one in self.subscriptions if one[0].is_open(one[1])]
        self.subscriptions.append((front, message))
        for one in ready:
            one.listen(front, message)

    def replay(self, front: Front, message: Message) -> None:
        """Choose again for a request that has waited."""
        if front.is_open(message) and (to := self.route(front, message)) is not None:
            front.pass_request(message, to)

    @property
    def is_modern(self) -> bool:
        """Whether the server is known to speak 2026-07-28."""
        return bool(self.versions) and self.versions[-1] in MODERN_VERSIONS

    def without_legacy(self) -> None:
        """The server refuses ``initialize``: so do we. What a server names in the modern era does
        not tell: the official SDKs name none of the legacy versions that they speak."""
        self._has_legacy = False
        for home in self.legacy:
            for front, message in home.give_back():
                self._homes[front] = None
                front.requests = self._requests
                self._initialize(front, message)

    def _initialize(self, front: Front, message: Message) -> None:
        if not self.versions:
            front.session.pauses_requests = self._refusal is None  # what follows waits, too
            self._wait(front, message)
        elif not self._has_legacy:
            params = msgspec.json.decode(message.params or b"{}")
            front.refuse(message, *unsupported(self.versions, params.get("protocolVersion")))
        else:
            if self._homes[front] is None:
                self._leave_modern(front)
            home = self._homes[front] = min(
                self.legacy,
                key=lambda one: (one.refusal is not None, one.n_clients, one not in self._running),
            )
            self._run(home)
            home.greet(front, message)

    def _ping(self, front: Front, message: Message) -> None:
        front.session.send_result(message, b"{}")

    def _wait(self, front: Front, message: Message) -> None:
        if self._refusal is None:
            self._waiting.append((front, message))
        else:
            front.refuse(message, *self._refusal)

    def _go_on(self) -> None:
        """Handle what has waited for the eras."""
        waiting, self._waiting = self._waiting, []
        for front, message in waiting:
            if front.link is None:
                continue
            if message.method == "initialize" and modern_version(message) is None:
                front.session.pauses_requests = False
                self._initialize(front, message)
                front.link.wrote()
            else:
                self.replay(front, message)
