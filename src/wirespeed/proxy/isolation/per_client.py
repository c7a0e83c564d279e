"""A server of its own for each client."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from wirespeed.client.targets import Http
from wirespeed.errors import RemoteError, TransportError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    REVISIONS,
    declared,
    understood,
)
from wirespeed.proxy.binding import Binding
from wirespeed.proxy.flow.rates import credentials_of
from wirespeed.proxy.isolation.addresses import nowhere
from wirespeed.proxy.isolation.handshake import discover, hello_to
from wirespeed.proxy.isolation.instance import guarded, quiet
from wirespeed.proxy.isolation.pair import Pair, Spares
from wirespeed.proxy.own_requests import modern_version, params_of
from wirespeed.proxy.supervision.resilience import CircuitBreaker
from wirespeed.proxy.supervision.supervisor import RunningServer, Supervisor
from wirespeed.proxy.upstream import is_down, remote_error, told
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.binding import Functions
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.flow.places import Places
    from wirespeed.proxy.hosts.membership import Membership
    from wirespeed.proxy.isolation.addresses import Address
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.supervisor import ServerMeter
    from wirespeed.proxy.upstream import Upstream

logger = logging.getLogger("wirespeed.proxy")

_OPENING = 2  # `initialize` and the notification behind it
_LOOKS = 4  # how often a client is looked at in the time that it may be silent
_CLAIMS = 1.0  # seconds between two looks whether another process needs a place


class PerClient:
    """Each client has a server of its own: all that the two say passes, but for the ids.

    Attributes:
        breaker: Counts failures of all servers; None: nothing does, or there were none.
    """

    is_shared = False
    refuses_lanes = (
        'with isolation "session" each client needs a session, which clients of 2026-07-28 do not '
        'have over HTTP: set isolation to "auto", "shared" or "pool"'
    )

    def __init__(
        self, config: BackendConfig, limits: Limits, meter: ServerMeter, member: Membership
    ) -> None:
        self._config = config
        self._member = member
        self._asking: set[Downstream] = set()  # whether there is a place for them
        self._limits = limits
        self._pairs: dict[Downstream, Pair] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._spares = Spares(config, limits, meter)
        self.breaker: CircuitBreaker | None = None
        self._n_answered = 0
        self._probes: dict[Downstream, asyncio.Task[None]] = {}
        self._quiet = RateLimitedLog(logger, lines=2)
        self._look_timer: asyncio.TimerHandle | None = None
        self._claims_timer: asyncio.TimerHandle | None = None
        self._choose: Callable[[Downstream], Address | None] | None = None
        self._at: Counter[Address] = Counter()  # clients
        self._requests: Functions = {"initialize": self._initialize}

    async def start(self) -> None:
        """Servers are started for their clients, and as spares."""
        self.begin()
        self._spares.fill()

    def begin(self) -> None:
        """This process serves clients from now on: the places of a worker that it replaces are
        free."""
        self._member.places(self._config.name)

    def use(self, choose: Callable[[Downstream], Address | None]) -> None:
        """The server has several addresses: ``choose`` returns the one that a client gets; None:
        there is none now."""
        self._choose = choose

    def n_clients_at(self, address: Address) -> int:
        """Return how many clients have an address."""
        return self._at[address]

    def leave_at(self, address: Address) -> None:
        """An address was removed. A client that has it loses its session when the address cannot be
        reached any more: it gets another address with the next one."""
        for pair in self._pairs.values():
            if pair.address is address and pair.upstream is not None:
                pair.upstream.end_when_unreachable()

    def dismiss_at(self, address: Address, reason: str) -> None:
        """End the sessions of the clients that have an address, once their requests are
        answered."""
        for downstream in [one for one, pair in self._pairs.items() if pair.address is address]:
            downstream.turn_away(codes.SHUTTING_DOWN, reason)
            downstream.drain()

    async def prove(self) -> None:
        """Start a server for the first client, and see that it goes on. TransportError: it does
        not, and is started again."""
        if not isinstance(self._config.target, Stdio):
            return
        supervisor = self._spares.first()
        await asyncio.shield(supervisor.ready)
        while not supervisor.is_settled:
            if supervisor.status.error:
                raise TransportError(supervisor.status.error)
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End all servers."""
        for timer in (self._look_timer, self._claims_timer):
            if timer is not None:
                timer.cancel()
        self._look_timer = self._claims_timer = None
        for downstream in list(self._pairs):
            self.left(downstream)
        for pair in self._spares.take_all():
            self._end(pair)
        if self.breaker is not None:
            self.breaker.close()
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def supervisors(self) -> list[Supervisor]:
        """The servers of clients, and those that wait for clients."""
        pairs = [*self._pairs.values(), *self._spares.pairs]
        return [pair.life.supervisor for pair in pairs]

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The breaker of all servers, if any has failed."""
        return [] if self.breaker is None else [self.breaker]

    def adopt(self, upstream: Upstream, life: RunningServer) -> None:
        """Take a server that was started to find out its era: it is for the first client. If it
        ends before, another one is started when that client comes."""
        life.supervisor.go_on(self._config.spares > 0)
        self._spares.add(Pair.of(life, upstream))

    def joined(self, downstream: Downstream, first: Message | None = None) -> None:
        """Give a client a server, which its requests wait for. ``first``: one of these, which was
        read already: who the client is, is known then. Where no server can be had, the next
        request asks again."""
        config = self._config
        if self.breaker is not None and not self.breaker.is_free(self._answered()):
            text = f"{is_down(config.name)}: {self.breaker.reason}"
            self._refuse(downstream, first, codes.SERVER_LOST, text)
            return
        address = None if self._choose is None else self._choose(downstream)
        if self._choose is not None and address is None:
            self._refuse(downstream, first, codes.SERVER_LOST, nowhere(config.name))
            return
        self._ask_for_place(_Coming(downstream, first, address), makes_room=first is not None)

    def _refuse(self, downstream: Downstream, first: Message | None, code: int, text: str) -> None:
        if first is not None and downstream.is_open(first):
            downstream.refuse(first, code, text)

    def _ask_for_place(self, coming: _Coming, *, makes_room: bool) -> None:
        """Give a client a server, if there is a place. ``makes_room``: Whether another client may
        lose its place."""
        limit = self._config.max_clients
        over = self._places.take(limit, self._member.part_of(limit))
        if isinstance(over, int):
            self._answer(coming, over, makes_room)
            return
        downstream = coming.downstream

        def known(over: asyncio.Future[int]) -> None:
            is_there = downstream in self._asking
            self._asking.discard(downstream)
            try:
                n = 1 if over.cancelled() else over.result()
                if is_there:
                    self._answer(coming, n, makes_room)
                elif not n:  # the client has left
                    self._places.give_back()
            except Exception as exc:
                text = "internal error of the proxy at a new client of %s: %r"
                quiet.log(logging.ERROR, text, self._config.name, exc)
                self._refuse(downstream, coming.first, codes.INTERNAL_ERROR, "Internal error")
            if is_there and downstream not in self._pairs and downstream not in self._asking:
                downstream.release()

        self._asking.add(downstream)
        downstream.pause()
        over.add_done_callback(known)

    def _answer(self, coming: _Coming, over: int, makes_room: bool) -> None:
        """There is a place for a client, or ``over`` others would have to leave before."""
        if not over:
            self._serve(*coming)
        elif over == 1 and makes_room and self._make_room(coming.downstream):
            self._ask_for_place(coming, makes_room=False)
        else:
            config = self._config
            text = f"{config.name} has {config.max_clients} clients: there may be no more"
            self._refuse(coming.downstream, coming.first, codes.OVERLOADED, text)

    def _serve(
        self, downstream: Downstream, first: Message | None, address: Address | None
    ) -> None:
        """Give a server to a client that has a place."""
        config = self._config
        legacy, flow = not downstream.translates, downstream.service.flow
        modern = legacy and not isinstance(config.target, Http)
        downstream.bind(Binding.to_own(self, flow, self._requests, legacy=legacy, modern=modern))
        downstream.pause()
        pair = self._pairs[downstream] = self._spares.take(address)
        if address is not None:
            self._at[address] += 1
        pair.join(downstream, first, self.failed)
        self._spares.fill()
        if self._look_timer is None:
            self._look_later()
        limit = self._config.max_clients
        if self._claims_timer is None and self._member.part_of(limit) < limit:
            self._look_at_claims()

    @property
    def _places(self) -> Places:
        """The places of all clients of the server."""
        return self._member.places(self._config.name)

    def _make_room(self, downstream: Downstream) -> bool:
        """End the session of another client, where there is no place for one more. Returns whether
        there is one now."""
        other = self._who_makes_room(downstream)
        if other is None:
            self._quiet.log(
                logging.WARNING,
                "%s is full: none of its %d clients makes room, and another one is refused",
                self._config.name,
                self._config.max_clients,
            )
            return False
        self._replace(other)
        return True

    def _replace(self, downstream: Downstream) -> None:
        """End the session of a client that makes room for another one."""
        self._quiet.log(
            logging.WARNING,
            "%s is full: of its %d clients, one that was silent for %d s makes room for another",
            self._config.name,
            self._config.max_clients,
            _idle(downstream),
        )
        self._dismiss(downstream, "replaced", "another client needs its place")

    def _look_at_claims(self) -> None:
        """End the session of a client where another process needs the place."""
        self._claims_timer = None
        if self._places.is_claimed():
            other = self._who_makes_room(None)
            if other is not None:
                self._replace(other)
        if self._pairs:
            loop = asyncio.get_running_loop()
            self._claims_timer = loop.call_later(_CLAIMS, self._look_at_claims)

    def _who_makes_room(self, downstream: Downstream | None) -> Downstream | None:
        """Return whose place a client gets; None: nobody's. Who has the most places gives one to
        who has fewer. Otherwise only silent clients do, and none of a principal or address that
        has fewer than this client's. ``downstream``: None for a client of another process, which
        has no place here."""
        holders = {one: credentials_of(_own(one)) for one in self._pairs}
        held = Counter(holders.values())
        own = 0 if downstream is None else held[credentials_of(_own(downstream))]

        def order(one: Downstream) -> tuple[int, float, int]:
            return held[holders[one]], _idle(one), -_own(one).session.inflight.live

        for one in sorted(holders, key=order, reverse=True):
            n = held[holders[one]]
            if n > own + 1 or (n >= own and self._is_silent(one)):
                return one
        return None

    def _is_silent(self, downstream: Downstream) -> bool:
        """Return whether any other client may have the place of this one."""
        delays = self._config.delays
        is_unused = _own(downstream).session.messages_in <= _OPENING
        return 0 < _idle(downstream) >= (delays.unused if is_unused else delays.idle)

    def _dismiss(self, downstream: Downstream, reason: str, text: str) -> None:
        """End the session of a client."""
        downstream.service.cut[reason] += 1
        _own(downstream).cut_off(text)
        self.left(downstream)

    def _look_later(self) -> None:
        seconds = self._config.session_idle
        if seconds is not None and self._pairs:
            self._look_timer = asyncio.get_running_loop().call_later(seconds / _LOOKS, self._look)

    def _look(self) -> None:
        """End the sessions of clients that were silent for too long."""
        self._look_timer = None
        seconds = self._config.session_idle
        assert seconds is not None
        silent = [downstream for downstream in self._pairs if _idle(downstream) >= seconds]
        for downstream in silent:
            self._dismiss(downstream, "idle", "the session was not used for too long")
        self._look_later()

    def left(self, downstream: Downstream) -> None:
        """End the server of a client."""
        self._asking.discard(downstream)
        probe = self._probes.pop(downstream, None)
        if probe is not None:
            probe.cancel()
        pair = self._pairs.pop(downstream, None)
        if pair is not None:
            if pair.address is not None:
                self._at[pair.address] -= 1
                self._at += Counter()  # without those that nobody has
            pair.greeted()
            if pair.upstream is not None:
                self._n_answered += pair.upstream.n_answered
            self._end(pair)
            self._places.give_back()

    def restart(self, reason: str) -> None:
        """End the spare servers at once, and the server of each client when its requests are
        answered. The client gets a new one with its next session."""
        for downstream in list(self._pairs):
            downstream.turn_away(codes.SHUTTING_DOWN, f"{self._config.name} is restarted: {reason}")
            downstream.drain()
        for pair in self._spares.take_all():
            self._end(pair)
        self._spares.fill()

    def _end(self, pair: Pair) -> None:
        task = pair.life.task
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def failed(self, pair: Pair) -> None:
        """The server of a client has ended, could not be started, or took too long. Of one with
        several addresses, the pool of these knows which can be used."""
        if self._choose is not None:
            return
        if self.breaker is None and self._config.breaker is not None:
            self.breaker = CircuitBreaker(
                self._config.breaker, asyncio.get_running_loop(), lambda: None
            )
        if self.breaker is not None:
            self.breaker.failed(self._answered())

    def _answered(self) -> int:
        """Return how many requests all servers have answered."""
        running = (one.upstream for one in self._pairs.values())
        return self._n_answered + sum(one.n_answered for one in running if one is not None)

    def route(self, downstream: Downstream, message: Message) -> Side | None:
        """Return the client's own server."""
        if downstream in self._asking:
            downstream.unreachable(message)
            return None
        if downstream not in self._pairs:
            self.joined(downstream, message)
            return None
        upstream = downstream.across
        if upstream is None:
            downstream.unreachable(message)
            return None
        modern = modern_version(message) is not None
        if message.method == "initialize" and not modern:
            self._initialize(downstream, message)
            return None
        if downstream.translates and not self._passes(downstream, upstream, message, modern):
            return None
        if modern:  # the first: HTTP needs to know the revision
            cast("Upstream", upstream).speak(REVISIONS[LATEST_MODERN])
            downstream.bind(downstream.binding.admitting(modern=True))
        return upstream

    def _initialize(self, downstream: Downstream, message: Message) -> None:
        """Pass the handshake on. The server has `start_timeout` for it. Where the eras are
        translated, one that refuses is asked for its era."""
        upstream, era = downstream.across, self._config.era
        if upstream is None:
            downstream.unreachable(message)
            return
        if downstream.translates and era == "modern":
            downstream.other_era(message, (), None, cast("Upstream", upstream))
            return
        probes = downstream.translates and era == "auto"
        pair = self._pairs[downstream]

        def after(answer: Message) -> Message | None:
            pair.greeted()
            if answer.error is None:
                downstream.bind(downstream.binding.admitting(legacy=True))
            elif probes and not downstream.admits_legacy:
                self._probe(
                    downstream, cast("Upstream", upstream), message, remote_error(answer.error)
                )
                return None
            return answer

        pair.greets(self._config.start_timeout)
        downstream.pass_request(message, upstream, after=after)

    # -- the era of a server, where the eras are translated --------------------------------------

    def _passes(
        self, downstream: Downstream, upstream: Side, message: Message, modern: bool
    ) -> bool:
        """Return whether the server speaks the era of a client's first request. If not, or if that
        is not known yet, the request was taken."""
        era = self._config.era
        if era == ("modern" if modern else "legacy"):
            return True
        if era != "auto":
            downstream.other_era(message, (), None, cast("Upstream", upstream))
        elif modern:
            downstream.pause()  # what follows waits, too
            self._probe(downstream, cast("Upstream", upstream), message, None)
        else:
            return True
        return False

    def _probe(
        self,
        downstream: Downstream,
        upstream: Upstream,
        message: Message,
        refusal: RemoteError | None,
    ) -> None:
        """Ask the server whether it is of 2026-07-28.

        ``refusal``: The server's refusal of ``initialize``; the client gets it if the server does
        not speak 2026-07-28 either.
        """

        async def probe() -> None:
            fault: WirespeedError | None = refusal
            found: tuple[str, ...] = ()
            with guarded(downstream, message):
                try:
                    found = await self._discover(upstream, message, refusal)
                except WirespeedError as exc:
                    fault = fault or exc
                finally:
                    self._probes.pop(downstream, None)
                    downstream.resume()
                if refusal is None and found:
                    downstream.bind(downstream.binding.admitting(modern=True))
                    downstream.pass_request(message, upstream)
                elif bool(found) is (refusal is not None) and (found or fault is None):
                    downstream.other_era(message, found, None, upstream)
                elif isinstance(fault, RemoteError):
                    downstream.refuse(message, fault.code, fault.message, fault.data)
                else:
                    assert fault is not None
                    quiet.log(logging.WARNING, "%s: %s", self._config.name, fault)
                    downstream.refuse(message, codes.SERVER_LOST, told(self._config.name, fault))
            downstream.release()

        self._probes[downstream] = asyncio.ensure_future(probe())

    async def _discover(
        self, upstream: Upstream, message: Message, refusal: RemoteError | None
    ) -> tuple[str, ...]:
        """Return the versions as `discover` does; none also of a server that speaks both eras and
        has accepted ``initialize``."""
        timeout = self._config.start_timeout / 2
        if refusal is not None:
            return await discover(upstream, timeout)
        meta = params_of(message).get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        capabilities = declared(understood(meta.get(META_CLIENT_CAPABILITIES)), LATEST_LEGACY)
        greet = partial(hello_to, upstream, capabilities, meta.get(META_CLIENT_INFO))
        found = await discover(upstream, timeout, greet, self._config.delays.silence)
        return () if upstream.greeting is not None else found

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Pass it on."""
        if downstream.across is not None:
            downstream.pass_notification(message, downstream.across)


class _Coming(NamedTuple):
    """A client that needs a server.

    Attributes:
        first: A request of the client that waits for the server; or None.
        address: The address that it will have; None: the server has one.
    """

    downstream: Downstream
    first: Message | None
    address: Address | None


def _own(downstream: Downstream) -> Side:
    """Return the client's own connection: one that is translated or of several servers has others
    besides."""
    own: Side = downstream
    while own.outer is not None:
        own = own.outer
    return own


def _idle(downstream: Downstream) -> float:
    """Return the seconds since a client's last request or stream was at an end. 0: it works, or it
    has a connection of its own, which ends when it leaves."""
    session = getattr(_own(downstream).link, "session", None)
    return 0.0 if session is None else session.idle
