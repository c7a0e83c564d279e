"""One server of 2026-07-28 for all clients: its requests need nothing but themselves.

Requests wait here (`Waiting`) while the server is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.errors import VersionMismatch
from wirespeed.proxy.affinity import Tags, of_server
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.isolation.handshake import discover, learn_tools
from wirespeed.proxy.isolation.instance import LINGER, Instance, guarded
from wirespeed.proxy.requests import CANCELLED, Ongoing

if TYPE_CHECKING:
    from collections.abc import Collection

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream


class Modern(Instance):
    """A server without state for its clients.

    Progress and subscriptions name their request. A log message does not, so it is for the only
    request that asks for any, or for a client that is alone.
    """

    def __init__(self, config: BackendConfig, limits: Limits, pool: Pool, index: int) -> None:
        super().__init__(config, limits, is_one_of_several=not pool.has_one)
        self._pool = pool
        self.index = index
        self.fronts: set[Downstream] = set()
        self._gone_over: set[Downstream] = set()  # with requests in flight, to a legacy era
        self._waiting = Waiting()

    @property
    def takes_all(self) -> bool:
        """Whether each request can go to it at once."""
        closed = self.breaker is None or self.breaker.state == "closed"
        return closed and self.backend is not None and self.refusal is None

    @property
    def load(self) -> int:
        """The number of requests that it works on."""
        return 0 if self.backend is None else self.backend.session.pending.live

    async def opened(self, backend: Upstream) -> None:
        """Ask whether the server is of this era."""
        if not await discover(backend, self.config.start_timeout):
            raise VersionMismatch("the server does not speak 2026-07-28", [])
        await self.ready(backend)

    async def ready(self, backend: Upstream) -> None:
        """The server is of this era: let the requests go on."""
        await learn_tools(backend, self.retries, self.config.start_timeout)
        backend.expect_no_requests()
        seal = self._pool.seal if backend.runs_tasks else None
        if not self._pool.has_one:
            backend.mark(Tags(f"{self.index}~", seal), self._pool.changes)
        elif seal is not None:
            backend.mark(Tags("", seal))
        self.use(backend)
        self.attach_all()

    def restore(self) -> None:
        """Subscriptions come first: the next request may change what they are about."""
        for front, message in self._pool.subscriptions + self._waiting.take_listens():
            with guarded(front, message):
                if front.is_open(message):
                    self.listen(front, message)

    def listen(self, front: Downstream, message: Message) -> None:
        """Pass a subscription of a client on, which other servers may have, too."""
        self._meet(front)
        n_servers = len(self._pool.modern)
        text = of_server(message, self.index, n_servers, self._pool.opens(front))
        front.pass_request(message, self.backend, text=text)

    def closed(self, backend: Upstream) -> None:
        """The server is gone: another server of the pool gets the requests that it has not
        answered."""
        super().closed(backend)
        if self._pool.has_free(self):
            kept, self._kept = self._kept, []
            self.n_retries += len(kept)
            for front, message in kept:
                self._pool.replay(front, message)

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        self._pool.update_choice()
        for front in self.fronts:
            self._attach(front)
        if self.backend is not None or self.refusal is not None:
            for front, message in self._waiting.take():
                self._pool.replay(front, message)

    def _attach(self, front: Downstream) -> None:
        """A client of one server needs no further look at its requests."""
        if self._pool.has_one:
            across = None if self.is_tried else self.backend
            has_seals = self.backend is not None and self.backend.tags is not None
            front.bind(
                Binding.to_modern(
                    self._pool,
                    front.service.flow,
                    self._pool.requests,
                    across,
                    self._pool.task_names if has_seals else None,
                    passes=across is not None and self.refusal is None,
                )
            )

    def _meet(self, front: Downstream) -> None:
        self.fronts.add(front)
        self.met(front)

    @property
    def clients(self) -> Collection[Downstream]:
        """Those that it has had a request of."""
        return self.fronts | self._gone_over

    def route(self, front: Downstream, message: Message) -> Side | None:
        """Return the server, or None if the request waits or was refused."""
        if front not in self.fronts:
            self._meet(front)
            self._attach(front)
        if self.refusal is not None:
            front.refuse(message, *self.refusal)
            return None
        if self.backend is None:
            self._waiting.add(front, message)
        elif not self.admits(front, message):
            return None
        return self.backend

    def left(self, front: Downstream) -> None:
        """A client has left, or has gone over to a legacy era."""
        if front in self.fronts or front in self._gone_over:
            super().left(front)
        self._gone_over.discard(front)
        if front.link is None:
            self._waiting.left(front)
        elif front in self.fronts and front.session.inflight.live > 1:  # besides its `initialize`
            self._gone_over.add(front)
            front.closed.add_done_callback(lambda done: self.left(front))
        self.fronts.discard(front)

    def server_said(self, backend: Upstream, message: Message) -> None:
        """Pass a log message on if it can only be for one client."""
        if backend.retired:
            self.drop(backend, message)
        elif message.method != "notifications/message":
            self.dropped["no subscriber"] += 1
        elif (route := backend.logs_for(LINGER)) is not None:
            backend.pass_notification(message, route.asker, route.ref)
        elif not backend.is_late() and (front := self.only()) is not None:
            backend.pass_notification(message, front)
        else:
            self.drop(backend, message)


class Waiting:
    """Requests that wait for a server, those of each client in their order. One that is cancelled
    is dropped: its message holds the memory that it was read into."""

    def __init__(self) -> None:
        self._requests: dict[Downstream, dict[int, _Request]] = {}  # by client and `ref`

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._requests.values()))

    def add(self, front: Downstream, message: Message) -> None:
        """Let a request of a client wait."""
        requests = self._requests.setdefault(front, {})
        request = requests[message.ref] = _Request(front, message, requests)
        if message.method != "initialize":  # which must not be cancelled
            front.give_token(message, request)

    def take(self) -> list[tuple[Downstream, Message]]:
        """Return all, which wait no more."""
        found, self._requests = self._requests, {}
        return [
            (front, one.request) for front, requests in found.items() for one in requests.values()
        ]

    def take_listens(self) -> list[tuple[Downstream, Message]]:
        """Return the subscriptions among them, which wait no more."""
        found = [
            (front, one.request)
            for front, requests in self._requests.items()
            for one in requests.values()
            if one.request.method == "subscriptions/listen"
        ]
        for front, message in found:
            del self._requests[front][message.ref]
        return found

    def left(self, front: Downstream) -> None:
        """Drop what a client that has left had asked."""
        for request in self._requests.pop(front, {}).values():
            request.note(CANCELLED)


class _Request(Ongoing):
    """A request that waits. It is the token of its message.

    Args:
        requests: All requests of the client that wait.
    """

    request: Message
    waits = True

    def __init__(self, front: Downstream, request: Message, requests: dict[int, _Request]) -> None:
        self.request = request
        self._front = front
        self._requests = requests

    def notified(self, message: Message) -> None:
        """The client has cancelled the request."""
        self._requests.pop(message.ref, None)
        self.note(CANCELLED)
        self._front.session.cancelled_done()
