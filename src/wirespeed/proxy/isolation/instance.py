"""A connection to a server that several clients share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, cast

from wirespeed.errors import RemoteError
from wirespeed.protocol import codes
from wirespeed.proxy.backend_config import BreakerConfig
from wirespeed.proxy.binding import UNBOUND, Binding
from wirespeed.proxy.downstream import outermost, principal_of
from wirespeed.proxy.supervision.resilience import MAX_KEPT, CircuitBreaker, Retries
from wirespeed.proxy.upstream import is_down
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.list_cache import ListCache
    from wirespeed.proxy.side import Route, Side
    from wirespeed.proxy.upstream import Upstream

logger = logging.getLogger("wirespeed.proxy")
quiet = RateLimitedLog(logger)


@contextlib.contextmanager
def guarded(downstream: Downstream, message: Message) -> Iterator[None]:
    """Handle a request that has waited. An exception refuses it, and stops nothing else."""
    try:
        yield
    except Exception as exc:
        quiet.log(logging.ERROR, "internal error of the proxy at %s: %r", message, exc)
        downstream.refuse(message, codes.INTERNAL_ERROR, "Internal error")


def pong(downstream: Downstream, message: Message) -> None:
    """Answer a ping."""
    downstream.session.send_result(message, b"{}")


class Instance:
    """The base of `Legacy` and `Modern`: an `UpstreamOwner` of one connection after another.

    Args:
        config: The server.
        limits: The limits of its connections.
        is_one_of_several: Whether others can take its requests: when it fails again and again, it
            gets none.
        address: The address, if the server has several.

    Attributes:
        upstream: The connection; None while there is none, or it is not ready.
        refusal: What requests get while the server cannot be used: code and text.
        dropped: How many messages of the server were dropped, by reason.
        breaker: Counts its failures; None: nothing does.
        n_retries: How many requests were sent again.
        n_failures: How often it has failed.
    """

    def __init__(
        self,
        config: BackendConfig,
        limits: Limits,
        *,
        is_one_of_several: bool,
        address: Address | None = None,
    ) -> None:
        self.address = address
        self.n_failures = 0
        self.config = config
        self.upstream: Upstream | None = None
        self.refusal: tuple[int, str] | None = None
        self.dropped = {
            "not attributed": 0,
            "no subscriber": 0,
            "below the level": 0,
            "not supported": 0,
        }
        self.n_retries = 0
        self.retries = Retries(config.retry)
        self.breaker: CircuitBreaker | None = None
        self._ejects = is_one_of_several
        self._tries = False
        self._binding = UNBOUND
        self._down: str | None = None
        self._n_answered = 0  # by the connections before
        self._kept: list[tuple[Downstream, Message]] = []
        self._left: Downstream | None = None  # the only client that has left lately
        self._alone_from = 0.0  # when nothing is said any more of those that have left
        self._principals: set[bytes | None] = set()  # two of this process at most
        self._unattributed = RateLimitedLog(logger, lines=1, seconds=config.delays.linger)

    async def opened(self, upstream: Upstream) -> None:
        """Shake hands. WirespeedError or TimeoutError: the server cannot be used."""
        raise NotImplementedError

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        raise NotImplementedError

    @property
    def clients(self) -> Collection[Downstream]:
        """Those whose requests the server may work on."""
        raise NotImplementedError

    def bind(self, downstream: Downstream, binding: Binding) -> None:
        """Bind a client. Those in the same state have the same object: there may be thousands."""
        if binding != self._binding:
            self._binding = binding
        downstream.bind(self._binding)

    def met(self, downstream: Downstream) -> None:
        """A client has come."""
        principal = principal_of(downstream)
        if len(self._principals) > 1:
            return
        self._principals.add(principal)
        if downstream.shared and principal is not None:
            self._principals.add(None)  # its next request may be of another one

    def left(self, downstream: Downstream) -> None:
        """A client that came has left. The server may still work for it."""
        now = downstream.loop.time()
        client: Downstream | None = outermost(downstream)
        if now < self._alone_from and client is not self._left:
            client = None  # it is one of several
        self._left, self._alone_from = client, now + self.config.delays.linger
        if downstream.link is None:
            self._kept = [one for one in self._kept if one[0] is not downstream]

    def closed(self, upstream: Upstream) -> None:
        """The server is gone: requests wait for the next one."""
        self._n_answered += upstream.n_answered
        if self._binding.across is upstream:
            self._binding = UNBOUND  # else the last clients of the connection keep it
        if self.upstream is upstream:
            self.upstream = None
            self.attach_all()
        elif self.upstream is not None:  # it was replaced
            self.send_kept()

    def stopped(self) -> None:
        """The server is not started again until there is a request for it."""
        self._refuse_kept(codes.SERVER_LOST, f"the server {self.config.name} was stopped")
        if self.breaker is not None:
            self.breaker.close()

    def use(self, upstream: Upstream) -> None:
        """The server is ready: the requests go to it, the kept ones first."""
        upstream.retry(self.retries, calls=self.retries.has_calls)
        if self.config.cache_lists:
            upstream.lists = self.lists_of(upstream)
        self.upstream = upstream
        if self.address is not None and self.breaker is not None:
            self.breaker.close()  # it could not be reached, and has answered just now
        self._left, self._alone_from = None, 0.0
        self._principals.clear()
        for downstream in self.clients:
            self.met(downstream)
        self.restore()
        self.send_kept()

    def lists_of(self, upstream: Upstream) -> ListCache | None:
        """Return the cache for the lists of a server; None: nothing tells how long its lists are
        valid."""
        raise NotImplementedError

    def restore(self) -> None:
        """Bring a new process to the state that the clients know, before it gets their requests."""

    # -- requests that are sent again ------------------------------------------------------------

    def again(self, asker: Side, message: Message) -> bool:
        """Keep a request that the lost server has not answered, for the next one."""
        if len(self._kept) >= MAX_KEPT or self.refusal is not None:
            return False
        self._kept.append((cast("Downstream", asker), message))
        return True

    def send_kept(self) -> None:
        """Send the kept requests, now that the server is there."""
        kept, self._kept = self._kept, []
        self.n_retries += len(kept)
        for downstream, message in kept:
            with guarded(downstream, message):
                downstream.pass_request(message, self.upstream)

    def _refuse_kept(self, code: int, text: str) -> None:
        kept, self._kept = self._kept, []
        for downstream, message in kept:
            if downstream.is_open(message):
                downstream.refuse(message, code, text)

    # -- when it fails ---------------------------------------------------------------------------

    @property
    def n_answered(self) -> int:
        """The number of requests that it has answered so far."""
        return self._n_answered + (0 if self.upstream is None else self.upstream.n_answered)

    @property
    def is_free(self) -> bool:
        """Whether it may get a request now."""
        if self._down is not None:
            return False
        return self.breaker is None or self.breaker.is_free(self.n_answered)

    def failed(self) -> None:
        """Count a failure."""
        self.n_failures += 1
        if self.config.breaker is not None or self._ejects:
            self._own_breaker().failed(self.n_answered)

    def eject(self, why: str) -> None:
        """Give it no requests from now on, until it has answered one of the proxy. ``why``: what it
        has done, for clients."""
        self.n_failures += 1
        self._own_breaker().trip(why)

    def _own_breaker(self) -> CircuitBreaker:
        if self.breaker is None:
            self.breaker = CircuitBreaker(
                self.config.breaker or BreakerConfig(), asyncio.get_running_loop(), self._update
            )
        return self.breaker

    def down(self, reason: str | None) -> None:
        """Refuse requests while the server cannot be started."""
        self._down = reason
        self._update()

    @property
    def ends_silent(self) -> bool:
        """Whether an address that answers nothing is ended."""
        return self.config.health is not None

    def take(self, asker: Side, message: Message) -> bool:
        """Return whether another address gets a request that this one has failed."""
        return False

    def take_unsent(self, upstream: Upstream, route: Route, text: bytes) -> bool:
        """Return whether another address gets a request of which nothing reached this one."""
        return False

    @property
    def is_there(self) -> bool:
        """Whether it is connected, and refuses nothing."""
        return self.upstream is not None and self.refusal is None and not self.is_ejected

    @property
    def is_ejected(self) -> bool:
        """Whether it is an address that has failed again and again, and gets no requests."""
        return (
            self.address is not None and self.breaker is not None and self.breaker.state != "closed"
        )

    def _try(self) -> None:
        """Ask an address that had failed whether it works again: no request of a client is tried
        there."""
        upstream, breaker = self.upstream, self.breaker
        if self._tries or upstream is None or breaker is None or breaker.state != "half open":
            return

        def tried(done: asyncio.Future[object]) -> None:
            self._tries = False
            failed = done.cancelled() or done.exception()
            if self.upstream is upstream and failed and not isinstance(failed, RemoteError):
                self.failed()
            elif self.upstream is upstream:
                breaker.close()
                self._update()

        asked = upstream.probe()
        if asked is not None:
            self._tries = True
            asked.add_done_callback(tried)

    def _update(self) -> None:
        """Set what requests get, which may have changed."""
        if self.is_ejected:
            self._try()
        refusal = None
        if self._down is not None:
            refusal = codes.SERVER_LOST, self._down
        elif self.config.breaker is not None and self._is_broken:
            assert self.breaker is not None
            refusal = codes.SERVER_LOST, f"{is_down(self.config.name)}: {self.breaker.reason}"
        if refusal != self.refusal:
            self.refusal = refusal
            if refusal is not None:
                self._refuse_kept(*refusal)
        self.attach_all()

    @property
    def _is_broken(self) -> bool:
        return self.breaker is not None and self.breaker.state == "open"

    @property
    def is_tried(self) -> bool:
        """Whether each request is to be looked at: `admits`."""
        return (
            self.config.breaker is not None
            and self.breaker is not None
            and self.breaker.state == "half open"
            and self.address is None
        )

    def admits(self, downstream: Downstream, message: Message) -> bool:
        """Whether a request may pass. If not, it was refused."""
        if self.breaker is None or not self.is_tried or message.method == "subscriptions/listen":
            return True  # a subscription would be a trial without an end
        if not self.is_free:
            downstream.refuse(
                message, codes.SERVER_LOST, f"{is_down(self.config.name)}: {self.breaker.reason}"
            )
            return False
        self.breaker.passes(downstream, message)
        return True

    # -- what the server says --------------------------------------------------------------------

    def server_asks(self, upstream: Upstream, message: Message) -> Side | None:
        """Answer a ping, and refuse all else."""
        if message.method == "ping":
            upstream.session.send_result(message, b"{}")
            assert upstream.link is not None
            upstream.link.wrote()
        else:
            upstream.refuse(
                message, "several clients share this server, so none of them can be asked"
            )
        return None

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Take a notification that belongs to no request."""
        raise NotImplementedError

    def only(self) -> Downstream | None:
        """The client that a message can only be for, if there is one. No other one was connected in
        the last minute, and none of another principal since the process of the server started."""
        if len(self.clients) != 1 or len(self._principals) > 1:
            return None
        (downstream,) = self.clients
        if downstream.shared:
            return None
        was_alone = (
            downstream.loop.time() >= self._alone_from or outermost(downstream) is self._left
        )
        return downstream if was_alone else None

    def drop(self, upstream: Upstream, message: Message) -> None:
        """Count a message of the server that nobody gets, as it is not certain whose it is."""
        self.dropped["not attributed"] += 1
        self._unattributed.log(
            logging.WARNING,
            "%s: nobody gets its %s: several clients share the server, and the message does not "
            "say whose it is",
            upstream.name,
            message.method,
        )
