"""The addresses of one server: several URLs, each with its share of the requests."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from wirespeed.proxy.isolation.choice import Share
from wirespeed.proxy.isolation.instance import Instance
from wirespeed.proxy.isolation.legacy import Legacy
from wirespeed.proxy.isolation.pool import RETIREMENT, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.config.servers import ServerUrl
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.isolation.modern import Modern
    from wirespeed.proxy.supervision.supervisor import RunningServer, Supervisor
    from wirespeed.proxy.upstream import UpstreamOwner

logger = logging.getLogger("wirespeed.proxy")

# Tags of addresses, which stand before what they give to clients (`wirespeed.proxy.affinity`).
_TAGS = 10_000


class Address:
    """One URL of a server.

    Attributes:
        target: How it is reached.
        url: The URL, its weight and its percentage, as the configuration says.
        tag: Its number. It depends on the URL, so other workers and other proxies with the same
            list have the same one.
        share: Its share of the requests.
    """

    def __init__(self, target: Http | WebSocket | Socket, url: ServerUrl, tag: int) -> None:
        self.target = target
        self.url = url
        self.tag = tag
        self.share = Share(url.weight)

    def take(self, url: ServerUrl, low: float) -> float:
        """Take its weight and percentage. ``low``: Where its part of the range of canaries begins.
        Returns where that ends."""
        self.url = url
        self.share.scale(url.weight)
        high = low + (url.percent or 0.0)
        self.share.reserve(*((-1.0, -1.0) if url.percent is None else (low, high)))
        return high


def addresses_of(
    config: BackendConfig, urls: Iterable[Any], known: Iterable[Address] = ()
) -> list[Address]:
    """Return the addresses of a server, those that are known already among them."""
    before = {one.url.url: one for one in known}
    taken: set[int] = {one.tag for one in known}
    found = []
    low = 0.0
    for url in urls:
        one = before.get(url.url)
        if one is None:
            target: Any = config.target
            tag = crc32(url.url.encode()) % _TAGS
            while tag in taken:
                tag = (tag + 1) % _TAGS
            taken.add(tag)
            target = msgspec.structs.replace(target, url=url.url, shown=url.shown)
            one = Address(target, url, tag)
        low = one.take(url, low)
        found.append(one)
    return found


# Seconds between two looks at addresses that have just come, and what such an address gets of its
# weight at first.
_STEP = 0.5
_FIRST = 0.1


class SlowStart:
    """Gives addresses that have just come little at first: a server that was started a moment ago
    has empty caches and no connections.

    Args:
        seconds: After which an address has its whole weight.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[Address, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        """An address can be used from now on."""
        self._began[address] = loop.time()
        self._look(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for address, began in list(self._began.items()):
            part = max((loop.time() - began) / self._seconds, _FIRST)
            if part >= 1:
                del self._began[address]
            address.share.scale(address.url.weight * min(1.0, part))
        self._timer = loop.call_later(_STEP, self._look, loop) if self._began else None

    def stop(self) -> None:
        """Look no more."""
        self._began.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_LOOK = 0.1  # seconds between two looks at an address that was removed


class AddressPool(Pool):
    """A pool whose servers are the addresses of one server. All of them are connected to from the
    beginning, and asked whether they work while nobody uses them (`BackendConfig.health`).

    A request goes to the address with the fewest for its weight. One that fails again and again
    gets none, until it has answered a request of the proxy. What may be sent twice is sent to
    another address where one has failed it.
    """

    def _set_up(self) -> None:
        config = self._config
        self._slow_start = SlowStart(config.delays.slow_start)
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
        """An address is neither old nor idle: it has no process of the proxy."""

    async def stop(self) -> None:
        """Leave all addresses."""
        self._slow_start.stop()
        await super().stop()

    # -- other addresses -------------------------------------------------------------------------

    def readdress(self, urls: tuple[Any, ...]) -> None:
        """Have these addresses from now on. One that is not among them any more gets no new
        requests and no new clients, and is left when its requests are answered and its clients of
        legacy eras have gone, after `RETIREMENT` at most."""
        if urls == tuple(one.url for one in self._addresses):
            return
        before, running = self._addresses, bool(self._running)
        self._addresses = addresses_of(self._config, urls, before)
        for i in reversed(range(len(before))):
            if before[i] not in self._addresses:
                self._remove(i, before[i])
        for address in self._addresses:
            if address not in before:
                self._add(address.tag, address)
                if running:
                    self._run(self._firsts[-1])
        order = {one.tag: i for i, one in enumerate(self._addresses)}
        places = zip(self.legacy, self.modern, self._firsts, strict=True)
        ordered = sorted(places, key=lambda place: order[place[1].tag])
        self.legacy = [one for one, _, _ in ordered]
        self.modern = [one for _, one, _ in ordered]
        self._firsts = [one for _, _, one in ordered]
        self.update_choice()

    def _remove(self, i: int, address: Address) -> None:
        legacy, modern, first = self.legacy.pop(i), self.modern.pop(i), self._firsts.pop(i)
        logger.info("%s: the address %s was removed", self._config.name, address.target.where)
        self._leaving += [legacy, modern]
        for owner in (first, legacy, modern):
            task = asyncio.ensure_future(self._leave(owner, self._running.pop(owner, None)))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        self.update_choice()
        modern.give_up_waiting()

    async def _leave(self, owner: UpstreamOwner, life: RunningServer | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + RETIREMENT
        try:
            if isinstance(owner, Legacy):
                while owner.n_clients and loop.time() < until:
                    await asyncio.sleep(_LOOK)
                owner.dismiss(f"{self._config.name} has other addresses")
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
        place = 0.0 if self._choice is None else self._choice.place_of(downstream)

        def order(i: int) -> tuple[bool, int, float]:
            home, share = self.legacy[i], self._addresses[i].share
            is_up = home.is_there if home in self._running else self.modern[i].takes_all
            return not is_up, share.rank(place), home.n_clients / share.weight

        return self.legacy[min(range(len(self.legacy)), key=order)]
