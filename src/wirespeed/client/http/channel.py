"""The channel to a server of HTTP: connections to one origin, and the link over them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wirespeed.client.http.link import HttpLink
from wirespeed.errors import ConnectionClosed, ConnectionLost, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.targets.remote import Http
    from wirespeed.limits import Limits
    from wirespeed.transport.http.pool import HttpPool


class HttpChannel:
    """A server of Streamable HTTP. Nothing is sent before the first message."""

    # An error of the probe is no verdict about the era: another connection would fail as well.
    probe_was_read = False

    def __init__(self, target: Http) -> None:
        self.target = target
        self._link: HttpLink | None = None

    async def open(self, join: Callable[[Framer | None], ClientConnection], limits: Limits) -> None:
        """Make the link, and load its token. The first message connects."""
        make_pool = pools_to(self.target, asyncio.get_running_loop(), limits)
        self._link = HttpLink(join(None), self.target, make_pool)
        if self._link.auth is not None:
            await self._link.auth.session.prepare()

    def hang_up(self) -> None:
        """Send what is queued, and end all requests."""
        link = self._link
        if link is not None and not link.lost:
            link.flush()
            link.close()

    def released(self) -> None:
        """The link is gone. Its connections are closed by `close`, or here if the loop is closed,
        which closes none."""
        link = self._link
        if link is not None and link.loop.is_closed():
            link.abandon()

    async def failure(
        self, reason: str, *, patient: bool = True
    ) -> TransportError | ConnectionClosed:
        """Return the error that tells why the link ended."""
        link = self._link
        if link is not None and link.failure is not None:
            return link.failure
        return ConnectionLost(f"{self.target.where}: {reason}")

    async def close(self, *, hurry: bool = False) -> None:
        """End the session, within the target's time limit, and close all connections."""
        link, self._link = self._link, None
        if link is None:
            return
        try:
            async with asyncio.timeout(self.target.close_timeout):
                await link.finish()
        except TimeoutError:
            pass
        finally:
            await link.release()


def pools_to(
    target: Http, loop: asyncio.AbstractEventLoop, limits: Limits
) -> Callable[[int], HttpPool]:
    """Return a function of n that makes a pool of at most n connections to a target.
    TransportError: the proxy that the environment names is not valid."""
    from wirespeed.transport.http.pool import HttpPool
    from wirespeed.transport.http.proxy import proxy_of

    try:
        proxy = proxy_of(target.address)
    except ValueError as exc:
        raise TransportError(f"cannot connect to {target.where}: {exc}") from None
    target.warn_if_exposed()

    def make_pool(max_connections: int) -> HttpPool:
        return HttpPool(
            target.address,
            loop=loop,
            ssl=target.ssl,
            proxy=proxy,
            limits=limits,
            max_connections=max_connections,
            connect_timeout=target.open_timeout,
        )

    return make_pool
