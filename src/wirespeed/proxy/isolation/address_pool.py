"""A pool whose servers are the addresses of one server."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.proxy.isolation.addresses import Address, SlowStart, addresses_of, nowhere
from wirespeed.proxy.isolation.instance import Instance
from wirespeed.proxy.isolation.legacy import Legacy
from wirespeed.proxy.isolation.pool import RETIREMENT, Pool
from wirespeed.proxy.supervision.checks import LivenessCheck

if TYPE_CHECKING:
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.modern import Modern
    from wirespeed.proxy.supervision.supervisor import RunningServer, Supervisor
    from wirespeed.proxy.upstream import UpstreamOwner

logger = logging.getLogger("wirespeed.proxy")

_LOOK = 0.1  # seconds between two looks at an address that was removed


class AddressPool(Pool):
    """A pool whose servers are the addresses of one server. All of them are connected to from the
    beginning, and asked whether they work while nobody uses them.

    A request goes to the address with the fewest for its weight. One that fails again and again
    gets none, until it has answered a request of the proxy. What may be sent twice is sent to
    another address where one has failed it.
    """

    def _set_up(self) -> None:
        config = self._config
        self._slow_start = SlowStart(config.delays.slow_start)
        self._is_started = False
        self._addresses = addresses_of(config, config.urls)
        for address in self._addresses:
            self._add(address.tag, address)

    def _add(self, tag: int, address: Address | None = None) -> None:
        super()._add(tag, address)
        self._firsts.append(self._first(self.legacy[-1], self.modern[-1]))

    async def start(self) -> None:
        """Connect to all addresses. Returns when one can be used. WirespeedError: none can be used
        yet; all are tried again until `stop`."""
        self.stand_by()
        self._is_started = True
        if not self._addresses:
            raise TransportError(self._lose_all())
        owners: list[UpstreamOwner] = [*self._firsts]
        if self.versions:
            owners = [*(self.modern if self.is_modern else self.legacy)]
        left = {self._run(owner).ready for owner in owners}
        while True:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if not left or one.exception() is None:
                    return one.result()

    def watch(self, supervisor: Supervisor) -> None:
        """Ask an address whether it works. It is neither old nor idle: the proxy has not started
        it."""
        if self._config.health is None:
            supervisor.checks.append(LivenessCheck(self._config.delays.address))

    async def stop(self) -> None:
        """Leave all addresses."""
        self._is_started = False
        self._slow_start.stop()
        await super().stop()

    # -- other addresses -------------------------------------------------------------------------

    def readdress(self, urls: tuple[Any, ...]) -> None:
        """Have these addresses from now on. One that is not among them any more gets no new
        requests and no new clients, and is left when its requests are answered and its clients of
        legacy eras have gone, after `RETIREMENT` at most. They lose their sessions sooner if it
        cannot be reached."""
        if urls == tuple(one.url for one in self._addresses):
            return
        before, had_none = self._addresses, not self._addresses
        self._addresses = addresses_of(self._config, urls, before)
        for i in reversed(range(len(before))):
            if before[i] not in self._addresses:
                self._remove(i, before[i])
        for address in self._addresses:
            if address not in before:
                self._add(address.tag, address)
                if self._is_started:
                    self._run(self._firsts[-1])
        order = {one.tag: i for i, one in enumerate(self._addresses)}
        places = zip(self.legacy, self.modern, self._firsts, strict=True)
        ordered = sorted(places, key=lambda place: order[place[1].tag])
        self.legacy = [one for one, _, _ in ordered]
        self.modern = [one for _, one, _ in ordered]
        self._firsts = [one for _, _, one in ordered]
        self.update_choice()
        if not self._addresses and self._is_started:
            self._lose_all()
        elif had_none:
            self._refusal = None
            self._go_on()

    def _lose_all(self) -> str:
        """The server has no address: refuse requests until it has one. Returns why."""
        text = nowhere(self._config.name)
        self._refusal = codes.SERVER_LOST, text
        self._go_on()
        return text

    def _remove(self, i: int, address: Address) -> None:
        legacy, modern, first = self.legacy.pop(i), self.modern.pop(i), self._firsts.pop(i)
        logger.info("%s: the address %s was removed", self._config.name, address.target.where)
        self._leaving += [legacy, modern]
        if self._per_client is not None:
            self._per_client.leave_at(address)
        for owner in (first, legacy, modern):
            life = self._running.pop(owner, None)
            if life is not None:
                life.supervisor.leave()
            task = asyncio.ensure_future(self._leave(owner, life))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        self.update_choice()
        modern.give_up_waiting()

    async def _leave(self, owner: UpstreamOwner, life: RunningServer | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + RETIREMENT
        try:
            if isinstance(owner, Legacy):
                while self._n_clients(owner) and loop.time() < until and not _is_lost(life):
                    await asyncio.sleep(_LOOK)
                reason = f"{self._config.name} has other addresses"
                owner.dismiss(reason)
                if self._per_client is not None and owner.address is not None:
                    self._per_client.dismiss_at(owner.address, reason)
            if life is not None:
                await life.end(max(until - loop.time(), 0.0))
        finally:
            if life is not None:
                self._end(life.task)
            if isinstance(owner, Instance):
                owner.stopped()
                self._leaving.remove(owner)
                self._gone.update(owner.dropped)
                self._n_gone_retries += owner.n_retries

    # -- clients ---------------------------------------------------------------------------------

    def came(self, instance: Modern) -> None:
        """An address can take requests from now on, also those that wait for another one."""
        if instance.address is not None:
            self._slow_start.begin(instance.address, asyncio.get_running_loop())
        for other in self.modern:
            if other.upstream is None:
                other.give_up_waiting()

    def update_choice(self) -> None:
        """An address may take requests now, or may not."""
        running = [one for one in self.modern if one.takes_all and one in self._running]
        first = min((_priority(one) for one in running), default=0)
        running = [one for one in running if _priority(one) == first]
        if self._choice is not None:
            self._choice.take(
                [one.upstream for one in running],
                [one.downstreams for one in running],
                [one.address.share for one in running if one.address is not None],
            )

    def _least_loaded(
        self, downstream: Downstream, ready: list[Modern], without: Modern | None
    ) -> Modern:
        to = None
        if self._choice is not None:
            to = self._choice.pick(downstream, None if without is None else without.upstream)
        found = [one for one in ready if to is not None and one.upstream is to]
        return found[0] if found else min(ready, key=lambda one: one.load)

    def _choose_home(self, downstream: Downstream) -> Legacy:
        return self.legacy[self._home_at(downstream)]

    def address_for(self, downstream: Downstream) -> Address | None:
        """Return the address that a client gets a connection of its own to; None: there is none."""
        return self._addresses[self._home_at(downstream)] if self._addresses else None

    def _home_at(self, downstream: Downstream) -> int:
        """Return the index of the address with the fewest clients for its weight, of those that
        can be used."""
        place = 0.0 if self._choice is None else self._choice.place_of(downstream)

        def order(i: int) -> tuple[bool, int, int, float]:
            home, address = self.legacy[i], self._addresses[i]
            running = [one for one in (home, self.modern[i]) if one in self._running]
            is_up = bool(running) and all(one.is_there for one in running)
            load = self._n_clients(home) / address.share.weight
            return not is_up, address.priority, address.share.rank(place), load

        return min(range(len(self.legacy)), key=order)

    def _n_clients(self, home: Legacy) -> int:
        """Return how many clients of legacy eras have an address."""
        if self._per_client is None or home.address is None:
            return home.n_clients
        return home.n_clients + self._per_client.n_clients_at(home.address)


def _priority(one: Modern) -> int:
    return 0 if one.address is None else one.address.priority


def _is_lost(life: RunningServer | None) -> bool:
    """Whether an address that was removed cannot be reached any more."""
    return life is not None and life.supervisor.status.state not in ("starting", "ready")
