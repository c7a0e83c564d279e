"""The addresses of one server: several URLs, each with its share of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from wirespeed.config.servers import ServerUrl
from wirespeed.proxy.isolation.choice import Share
from wirespeed.proxy.upstream import is_down

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.proxy.backend_config import BackendConfig

# Tags of addresses, which stand before what they give to clients (`wirespeed.proxy.affinity`).
_TAGS = 1_000_000_000


class NamedUrl(ServerUrl, frozen=True, kw_only=True):
    """One of the addresses that the name of a server has.

    Attributes:
        at: Where it is reached: the IP address and the port.
        named: The URL by which the server knows itself: Host, TLS and the path.
        priority: Addresses with the least are used as long as one of these can be.
    """

    at: str
    named: str
    priority: int = 0


class Address:
    """One URL of a server.

    Attributes:
        target: How it is reached.
        url: The URL, its weight and its percentage, as the configuration says.
        tag: Its number. It depends on the URL, so other workers and other proxies with the same
            list have the same one.
        share: Its share of the requests.
        priority: It is used while no address with a lower one can be.
    """

    def __init__(self, target: Http | WebSocket | Socket, url: ServerUrl, tag: int) -> None:
        self.target = target
        self.url = url
        self.tag = tag
        self.share = Share(url.weight)
        self.priority = 0

    def take(self, url: ServerUrl, low: float) -> float:
        """Take its weight and percentage. ``low``: Where its part of the range of canaries begins.
        Returns where that ends."""
        self.url = url
        self.priority = url.priority if isinstance(url, NamedUrl) else 0
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
            if isinstance(url, NamedUrl):
                target = msgspec.structs.replace(target, url=url.named, connect_to=url.at)
            else:
                target = msgspec.structs.replace(target, url=url.url, shown=url.shown)
            one = Address(target, url, tag)
        low = one.take(url, low)
        found.append(one)
    return found


def nowhere(name: str) -> str:
    """Return the text for clients of a server whose name has no address."""
    return f"{is_down(name)}: its name leads to no address"


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
