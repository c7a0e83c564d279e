"""The server of one client, and servers that wait for clients."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.supervision.supervisor import RunningServer, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.supervisor import ServerMeter
    from wirespeed.proxy.upstream import Upstream

# Seconds between two looks for the first answer of a server to its client.
_LOOK = 0.02


class Pair:
    """The owner of the server of one client. A spare server has no client yet.

    Attributes:
        life: The server.
        upstream: The connection to it, once there is one.
        address: The address, if the server has several.
    """

    life: RunningServer

    def __init__(self, address: Address | None = None) -> None:
        self.address = address
        self.upstream: Upstream | None = None
        self._downstream: Downstream | None = None
        self._first: Message | None = None
        self._failed: Callable[[Pair], None] | None = None
        self._silent_since: float | None = None
        self._limit: asyncio.TimerHandle | None = None

    @classmethod
    def start(
        cls,
        config: BackendConfig,
        limits: Limits,
        meter: ServerMeter,
        *,
        restarts: bool,
        address: Address | None = None,
    ) -> Self:
        """Start a server. ``restarts``: until it has a client. ``address``: that of the server, if
        it has several."""
        pair = cls(address)
        target = None if address is None else address.target
        supervisor = Supervisor(config, pair, limits, meter, restarts=restarts, target=target)
        pair.life = RunningServer(supervisor, asyncio.ensure_future(supervisor.run()))
        return pair

    @classmethod
    def of(cls, life: RunningServer, upstream: Upstream) -> Self:
        """Take a server that runs already and has had no handshake."""
        pair = cls()
        pair.life = life
        if not upstream.session.messages_in:
            pair._silent_since = upstream.began
        pair._take(upstream)
        life.supervisor.pass_to(pair, upstream)
        return pair

    def join(
        self, downstream: Downstream, first: Message | None, failed: Callable[[Pair], None]
    ) -> None:
        """Give the server to a client. ``first``: a request of the client, which waits for the
        server. ``failed``: called when the server fails."""
        self._downstream, self._first, self._failed = downstream, first, failed
        self.life.supervisor.go_on(False)  # a restart would lose its state of the client
        if self.upstream is not None:
            self._connect(downstream, self.upstream)

    def _connect(self, downstream: Downstream, upstream: Upstream) -> None:
        upstream.bind(Binding.to_client(downstream))
        downstream.bind(downstream.binding.joined_to(upstream))
        first, self._first = self._first, None
        if first is not None and downstream.is_open(first):
            to = downstream.route(first)
            if to is not None:
                downstream.pass_request(first, to)
        downstream.release()

    def greets(self, seconds: float) -> None:
        """Await the handshake: the server is ended if `greeted` is not called in time. For a
        server that has said nothing since its start, that time counts, too."""
        upstream = self.upstream
        if upstream is None:
            return
        loop = upstream.loop
        left = seconds
        if self._silent_since is not None:
            left = max(self._silent_since + seconds - loop.time(), seconds / 2)
        text = f"it did not answer initialize within {seconds:g} s"
        self.greeted()
        self._limit = loop.call_later(left, upstream.end, text)

    def greeted(self) -> None:
        """Take note that the server has answered its handshake, or that its client has left."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _take(self, upstream: Upstream) -> None:
        upstream.bind(Binding.to_client(None))
        upstream.speak(upstream.revision, batches=True)  # one of 2025-03-26 may answer in a batch
        self.upstream = upstream

    async def opened(self, upstream: Upstream) -> None:
        """The server is there."""
        self._take(upstream)
        if self._downstream is None:
            return
        self._connect(self._downstream, upstream)
        most = self.life.supervisor.config.delays.first_answer
        await asyncio.sleep(_LOOK)
        # its start ends with its first answer, and lets others start
        while upstream.session.pending.live and not upstream.session.messages_in:
            if upstream.loop.time() >= upstream.began + most:
                break
            await asyncio.sleep(_LOOK)
        if upstream.closed.done():
            raise TransportError("it ended in its handshake")

    def closed(self, upstream: Upstream) -> None:
        """The server is gone."""
        self.greeted()
        if self._downstream is None:
            self.upstream = None
        elif self._downstream.across is upstream:
            self.failed()
            self._end(upstream.loss(None))

    def failed(self) -> None:
        """The server has failed. Where the client stays, the end of the server is reported twice;
        it counts once."""
        if self._failed is not None and not (
            self.upstream is not None and self.upstream.closed.done()
        ):
            self._failed(self)

    def again(self, asker: Side, message: Message) -> bool:
        """Send nothing again: the next server would not know the client."""
        return False

    def down(self, reason: str | None) -> None:
        """The server cannot be started."""
        if reason is not None:
            self._end(reason)

    def _end(self, reason: str) -> None:
        """Disconnect the client: its state at the server is lost."""
        if self._downstream is not None:
            self._downstream.turn_away(codes.SERVER_LOST, reason)
            if self._first is not None and self._downstream.is_open(self._first):
                self._downstream.refuse(self._first, codes.SERVER_LOST, reason)
            self._first = None
            self._downstream.release()
            self._downstream.drain()

    def server_asks(self, upstream: Upstream, message: Message) -> Side | None:
        """Ask the client."""
        if self._downstream is None:
            upstream.refuse(message, "there is no client yet")
        return self._downstream

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Tell the client."""
        if self._downstream is None:
            return
        if message.method == "notifications/message" or upstream.stream() is not None:
            upstream.pass_on(message, self._downstream)
        else:
            upstream.pass_notification(message, self._downstream)


class Spares:
    """Spare servers, as many as the configuration says. A spare that ends is started again.

    Attributes:
        pairs: The servers, the oldest first.
    """

    def __init__(self, config: BackendConfig, limits: Limits, meter: ServerMeter) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self.pairs: deque[Pair] = deque()

    def fill(self) -> None:
        """Start the servers that are missing."""
        while len(self.pairs) < self._config.spares:
            self.pairs.append(self._start(restarts=True))

    def first(self) -> Supervisor:
        """Return the life of a spare server. If there is none, a server is started."""
        if not self.pairs:
            self.pairs.append(self._start(restarts=True))
        return self.pairs[0].life.supervisor

    def add(self, pair: Pair) -> None:
        """Take a server as a spare."""
        self.pairs.appendleft(pair)

    def take(self, address: Address | None = None) -> Pair:
        """Return a server for a client: a spare that is ready or starting, or else a new
        server. ``address``: That of the server, if it has several."""
        if address is not None:
            return self._start(restarts=False, address=address)
        for state in ("ready", "starting"):
            for pair in self.pairs:
                if pair.life.supervisor.status.state == state:
                    self.pairs.remove(pair)
                    return pair
        for pair in [one for one in self.pairs if one.life.task.done()]:
            self.pairs.remove(pair)
        return self._start(restarts=False)

    def _start(self, *, restarts: bool, address: Address | None = None) -> Pair:
        return Pair.start(
            self._config, self._limits, self._meter, restarts=restarts, address=address
        )

    def take_all(self) -> list[Pair]:
        """Remove all spares, and return them. The caller ends them."""
        found = list(self.pairs)
        self.pairs.clear()
        return found
