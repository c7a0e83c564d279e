"""Keeps the addresses of a server those of its DNS name."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, Protocol, cast
from zlib import crc32

from wirespeed.errors import TransportError
from wirespeed.proxy.backend_config import MAX_URLS
from wirespeed.proxy.isolation.addresses import NamedUrl
from wirespeed.proxy.name_config import nameserver, without_service

if TYPE_CHECKING:
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.names.records import Answer, Place
    from wirespeed.transport.address import Address

logger = logging.getLogger("wirespeed.proxy")

_MAX_WEIGHT = 1000  # of a `ServerUrl`
_JITTER = 0.1  # of a pause, so that many proxies do not ask at once


class Addressed(Protocol):
    """An `Assignment` whose addresses can be changed."""

    async def start(self) -> None:
        """As of `Assignment`."""

    async def stop(self) -> None:
        """As of `Assignment`."""

    def readdress(self, urls: tuple[NamedUrl, ...]) -> None:
        """Use these addresses from now on."""


class NameWatch:
    """Looks the name of a server up again and again, and sets the server's addresses.

    A look-up that fails changes nothing. Answers without addresses count after
    `NameDelays.stays` seconds.

    Args:
        config: The server.
        assignment: Gets the addresses, and is started and stopped with the look-ups.

    Attributes:
        counts: How many look-ups there were, by outcome.
    """

    def __init__(self, config: BackendConfig, assignment: Addressed) -> None:
        from wirespeed.proxy.names.records import NameRecords  # most proxies need no dnspython

        self._config = config
        self._assignment = assignment
        self._delays = config.delays.names
        self._target = cast("Any", config.target)
        self._address: Address = self._target.address
        self._name = self._address.host
        self._records = NameRecords(
            self._name,
            is_srv=config.resolve == "srv",
            nameservers=[nameserver(one) for one in config.resolver],
        )
        self._is_lost = False
        self._empty_since: float | None = None
        self._n_left_out = 0
        self._task: asyncio.Task[None] | None = None
        self.counts = {"ok": 0, "empty": 0, "failed": 0}

    async def start(self) -> None:
        """Look the name up, and again until `stop`, and start the assignment after the first time.
        WirespeedError: none of its addresses can be used yet."""
        pause = await self._look_up()
        self._task = asyncio.ensure_future(self._go_on(pause))
        await self._assignment.start()

    async def stop(self) -> None:
        """Stop the look-ups and the assignment."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        await self._assignment.stop()

    async def _go_on(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause * random.uniform(1.0, 1.0 + _JITTER))
            try:
                pause = await self._look_up()
            except Exception:  # the next look-up may find what this one did not
                logger.exception("internal error while looking up %s", self._name)

    async def _look_up(self) -> float:
        """Look the name up once. Returns the seconds until the next time."""
        delays, name = self._delays, self._config.name
        try:
            answer = await self._records.look_up(delays.timeout)
        except TransportError as exc:
            self.counts["failed"] += 1
            if not self._is_lost:
                self._is_lost = True
                logger.warning("%s: %s; the addresses that are known stay", name, exc)
            return delays.least
        if self._is_lost:
            self._is_lost = False
            logger.info("%s: %s can be looked up again", name, self._name)
        if not answer.places:
            self.counts["empty"] += 1
            self._nothing_found()
            return delays.least
        self.counts["ok"] += 1
        self._empty_since = None
        self._assignment.readdress(self._urls(answer))
        return min(max(answer.ttl, delays.least), delays.most)

    def _nothing_found(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._empty_since is None:
            self._empty_since = now
            logger.warning(
                "%s: %s has no addresses; those that are known stay for %g s",
                *(self._config.name, self._name, self._delays.stays),
            )
        if now - self._empty_since >= self._delays.stays:
            self._assignment.readdress(())

    def _urls(self, answer: Answer) -> tuple[NamedUrl, ...]:
        """Return the addresses of an answer. Of too many, every proxy takes the same ones. An
        address that is added or removed changes one other address at most."""
        found: dict[str, Place] = {}
        for place in sorted(answer.places, key=lambda one: (one.priority, -one.weight)):
            ip = f"[{place.ip}]" if ":" in place.ip else place.ip
            found.setdefault(f"{ip}:{place.port or self._address.port}", place)
        ranked = sorted(found, key=lambda at: (found[at].priority, crc32(at.encode()), at))
        n_left_out = max(0, len(ranked) - MAX_URLS)
        if n_left_out and not self._n_left_out:
            logger.warning(
                "%s: %s has %d addresses, of which %d are used",
                *(self._config.name, self._name, len(ranked), MAX_URLS),
            )
        self._n_left_out = n_left_out
        used = sorted(ranked[:MAX_URLS])
        scale = max(found[at].weight for at in used) / _MAX_WEIGHT
        return tuple(self._url(at, found[at], max(scale, 1.0)) for at in used)

    def _url(self, at: str, place: Place, scale: float) -> NamedUrl:
        address, url = self._address, self._target.url
        path = "" if self._target.shown else address.path
        return NamedUrl(
            f"{address.scheme}://{at}{path}",
            weight=max(1.0, place.weight / scale),
            at=at,
            named=without_service(url) if self._config.resolve == "srv" else url,
            priority=place.priority,
        )
