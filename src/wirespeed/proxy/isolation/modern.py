"""One server of 2026-07-28 for all clients: its requests need nothing but themselves.

Requests wait here (`Waiting`) while the server is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from wirespeed.errors import VersionMismatch
from wirespeed.protocol import codes
from wirespeed.proxy.affinity import Tags, brings, of_server
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.isolation.choice import MarkedRequests
from wirespeed.proxy.isolation.handshake import discover, learn_tools
from wirespeed.proxy.isolation.instance import Instance, guarded
from wirespeed.proxy.list_cache import ListCache
from wirespeed.proxy.own_requests import CANCELLED, ProxyRequest
from wirespeed.proxy.upstream import is_down

if TYPE_CHECKING:
    from collections.abc import Collection

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.side import Route, Side
    from wirespeed.proxy.upstream import Upstream


class Modern(Instance):
    """A server without state for its clients.

    Progress and subscriptions name their request. A log message does not, so it is for the only
    request that asks for any, or for a client that is alone.
    """

    def __init__(
        self,
        config: BackendConfig,
        limits: Limits,
        pool: Pool,
        tag: int,
        address: Address | None,
    ) -> None:
        super().__init__(config, limits, is_one_of_several=not pool.has_one, address=address)
        self._pool = pool
        self.tag = tag
        self.downstreams: set[Downstream] = set()
        self._gone_over: set[Downstream] = set()  # with requests in flight, to a legacy era
        self._waiting = Waiting()
        self._marks: MarkedRequests | None = None  # if what it gives has marks, and it is alone

    @property
    def takes_all(self) -> bool:
        """Whether each request can go to it at once."""
        closed = self.breaker is None or self.breaker.state == "closed"
        return closed and self.upstream is not None and self.refusal is None

    @property
    def load(self) -> int:
        """The number of requests that it works on."""
        return 0 if self.upstream is None else self.upstream.session.pending.live

    async def opened(self, upstream: Upstream) -> None:
        """Ask whether the server is of this era."""
        if not await discover(upstream, self.config.start_timeout):
            raise VersionMismatch("the server does not speak 2026-07-28", [])
        await self.ready(upstream)

    async def ready(self, upstream: Upstream) -> None:
        """The server is of this era: let the requests go on."""
        await learn_tools(upstream, self.retries, self.config.start_timeout)
        upstream.expect_no_requests()
        seal, place = self._pool.seal if upstream.runs_tasks else None, self._pool.place
        if not self._pool.has_one:
            upstream.mark(Tags(f"{self.tag}~", seal, place), self._pool.changes)
        elif seal is not None or place:
            upstream.mark(Tags("", seal, place))
            self._marks = MarkedRequests(bool(place))
        if self.address is not None:
            upstream.has_others(self)
        self.use(upstream)
        self.attach_all()
        self._pool.came(self)

    def lists_of(self, upstream: Upstream) -> ListCache | None:
        """As of the base class."""
        return ListCache(None)

    def restore(self) -> None:
        """Subscriptions come first: the next request may change what they are about."""
        for downstream, message in self._pool.subscriptions + self._waiting.take_listens():
            with guarded(downstream, message):
                if downstream.is_open(message):
                    self.listen(downstream, message)

    def listen(self, downstream: Downstream, message: Message) -> None:
        """Pass a subscription of a client on, which other servers may have, too."""
        if self._pool.is_of_modern(downstream):
            self._meet(downstream)
        else:
            self.met(downstream)
            self._keep(downstream)
        tag = None if self._pool.has_one else self.tag
        text = of_server(message, tag, self._pool.opens(downstream))
        downstream.pass_request(message, self.upstream, text=text)

    def take(self, asker: Side, message: Message) -> bool:
        """Return whether another address gets a request that this one has failed."""
        if not self._pool.has_free(self):
            return False
        self.n_retries += 1
        downstream = cast("Downstream", asker)
        downstream.loop.call_soon(self._pool.replay, downstream, message, self)
        return True

    def take_unsent(self, upstream: Upstream, route: Route, text: bytes) -> bool:
        """Return whether another address gets a request of which nothing reached this one. What
        this address gave to the client stays here."""
        if brings(text) or route.listens or not self._pool.has_free(self):
            return False
        self.n_retries += 1
        message = upstream.unsent(route, text)

        def choose() -> None:
            downstream = cast("Downstream", route.asker)
            with guarded(downstream, message):
                other = self._pool.another(downstream, self)
                to = None if other is None else other.route(downstream, message)
                if to is not None:
                    upstream.pass_unsent(route, message, to)
                elif downstream.is_open(message):
                    downstream.refuse(message, codes.SERVER_LOST, is_down(self.config.name))

        upstream.loop.call_soon(choose)
        return True

    def give_up_waiting(self) -> None:
        """Have another server chosen for all that waits here."""
        for downstream, message in self._waiting.take():
            self._pool.replay(downstream, message)

    def closed(self, upstream: Upstream) -> None:
        """The server is gone: another server of the pool gets the requests that it has not
        answered."""
        super().closed(upstream)
        if self._pool.has_free(self):
            kept, self._kept = self._kept, []
            self.n_retries += len(kept)
            for downstream, message in kept:
                self._pool.replay(downstream, message)

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        self._pool.update_choice()
        for downstream in self.downstreams:
            self._attach(downstream)
        if self.upstream is not None or self.refusal is not None:
            self.give_up_waiting()

    def _attach(self, downstream: Downstream) -> None:
        """A client of one server needs no further look at its requests."""
        if self._pool.has_one:
            across = None if self.is_tried else self.upstream
            self.bind(
                downstream,
                Binding.to_modern(
                    self._pool,
                    downstream.service.flow,
                    self._pool.requests,
                    across,
                    self._marks,
                    passes=across is not None and self.refusal is None,
                ),
            )

    def _meet(self, downstream: Downstream) -> None:
        self.downstreams.add(downstream)
        self.met(downstream)

    @property
    def clients(self) -> Collection[Downstream]:
        """Those that it has had a request of."""
        return self.downstreams | self._gone_over

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Return the server, or None if the request waits or was refused."""
        if downstream not in self.downstreams:
            self._meet(downstream)
            self._attach(downstream)
        if self.refusal is not None:
            downstream.refuse(message, *self.refusal)
            return None
        if self.upstream is None:
            self._waiting.add(downstream, message)
        elif not self.admits(downstream, message):
            return None
        return self.upstream

    def left(self, downstream: Downstream) -> None:
        """A client has left, or has gone over to a legacy era."""
        if downstream in self.downstreams or downstream in self._gone_over:
            super().left(downstream)
        self._gone_over.discard(downstream)
        if downstream.link is None:
            self._waiting.left(downstream)
        elif downstream in self.downstreams and downstream.session.inflight.live > 1:
            self._keep(downstream)  # it has requests besides its `initialize`
        self.downstreams.discard(downstream)

    def _keep(self, downstream: Downstream) -> None:
        """A client has requests here, and has gone over to a legacy era: it is bound elsewhere."""
        if downstream not in self._gone_over:
            self._gone_over.add(downstream)
            downstream.closed.add_done_callback(lambda done: self.left(downstream))

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Pass a log message on if it can only be for one client."""
        if upstream.retired:
            self.drop(upstream, message)
        elif message.method != "notifications/message":
            self.dropped["no subscriber"] += 1
        elif (route := upstream.logs_for(self.config.delays.linger)) is not None:
            upstream.pass_notification(message, route.asker, route.ref)
        elif not upstream.is_late() and (downstream := self.only()) is not None:
            upstream.pass_notification(message, downstream)
        else:
            self.drop(upstream, message)


class Waiting:
    """Requests that wait for a server, those of each client in their order. One that is cancelled
    is dropped: its message holds the memory that it was read into."""

    def __init__(self) -> None:
        self._requests: dict[Downstream, dict[int, _Request]] = {}  # by client and `ref`

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._requests.values()))

    def add(self, downstream: Downstream, message: Message) -> None:
        """Let a request of a client wait."""
        requests = self._requests.setdefault(downstream, {})
        request = requests[message.ref] = _Request(downstream, message, requests)
        if message.method != "initialize":  # which must not be cancelled
            downstream.give_token(message, request)

    def take(self) -> list[tuple[Downstream, Message]]:
        """Return all, which wait no more."""
        found, self._requests = self._requests, {}
        return [
            (downstream, one.request)
            for downstream, requests in found.items()
            for one in requests.values()
        ]

    def take_listens(self) -> list[tuple[Downstream, Message]]:
        """Return the subscriptions among them, which wait no more."""
        found = [
            (downstream, one.request)
            for downstream, requests in self._requests.items()
            for one in requests.values()
            if one.request.method == "subscriptions/listen"
        ]
        for downstream, message in found:
            del self._requests[downstream][message.ref]
        return found

    def left(self, downstream: Downstream) -> None:
        """Drop what a client that has left had asked."""
        for request in self._requests.pop(downstream, {}).values():
            request.note(CANCELLED)


class _Request(ProxyRequest):
    """A request that waits. It is the token of its message.

    Args:
        requests: All requests of the client that wait.
    """

    request: Message
    waits = True

    def __init__(
        self, downstream: Downstream, request: Message, requests: dict[int, _Request]
    ) -> None:
        self.request = request
        self._downstream = downstream
        self._requests = requests

    def notified(self, message: Message) -> None:
        """The client has cancelled the request."""
        self._requests.pop(message.ref, None)
        self.note(CANCELLED)
        self._downstream.session.cancelled_done()
