"""How a client reaches its target: what launches, joins, ends and explains the link."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

from wirespeed.errors import ConnectionClosed, TransportError

if TYPE_CHECKING:
    from wirespeed.client.connection import ClientConnection
    from wirespeed.client.target import Stdio
    from wirespeed.server import Server
    from wirespeed.transport.process import Child
    from wirespeed.transport.tasks import TaskPool


logger = logging.getLogger("wirespeed.client")


class Channel(Protocol):
    """One life of a link. A new one is made for each start of the target."""

    async def open(self, connection: ClientConnection) -> None:
        """Launch or connect, and join the connection to it. TransportError says what failed."""

    async def failure(self, reason: str) -> TransportError | ConnectionClosed:
        """An error that tells why the link is gone, as much as can be known of it."""

    async def close(self) -> None:
        """End it; nothing is left behind."""


class StdioChannel:
    """A server that is a child process."""

    def __init__(self, target: Stdio) -> None:
        self.target = target
        self.child: Child | None = None

    async def open(self, connection: ClientConnection) -> None:
        from wirespeed.transport.fd import FdLink
        from wirespeed.transport.process import Child

        child = await Child.launch(self.target)
        self.child = child
        os.set_blocking(child.stdin_fd, False)
        os.set_blocking(child.stdout_fd, False)
        link = FdLink(asyncio.get_running_loop(), connection, child.stdout_fd, child.stdin_fd)
        child.release = lambda fd: link.close()
        link.start()

    async def failure(self, reason: str) -> TransportError | ConnectionClosed:
        if self.child is None:
            return ConnectionClosed(reason)
        if await self.child.settle():
            return self.child.error(reason)
        return TransportError(self.child.failure(reason))

    async def close(self) -> None:
        if self.child is not None:
            self.child.drain_stdout()
            await self.child.shutdown()


class MemoryChannel:
    """A server in this process."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._pool: TaskPool | None = None
        self._served: Any = None

    async def open(self, connection: ClientConnection) -> None:
        from wirespeed.transport.memory import pair
        from wirespeed.transport.tasks import TaskPool

        loop = asyncio.get_running_loop()
        self._pool = TaskPool(loop)
        links: list[Any] = []

        def join(served: Any) -> Any:
            links.extend(pair(loop, connection, served))
            return links[1]

        self._served = self.server.connect(join, loop=loop, pool=self._pool)
        for link in links:
            link.start()

    async def failure(self, reason: str) -> TransportError | ConnectionClosed:
        return ConnectionClosed(reason)

    async def close(self) -> None:
        # nobody would get what is still worked on: no grace time
        if self._served is not None:
            self._served.abort()
        if self._pool is None:
            return
        closing = asyncio.ensure_future(self._pool.aclose())
        await asyncio.wait((closing,), timeout=self.server.shutdown_grace)
        if not closing.done():
            n = self._pool.abandon()
            logger.warning("%d handlers of %s ignore their cancellation", n, self.server.name)
            closing.cancel()
            await asyncio.wait((closing,))


def channel_for(target: Any) -> Channel:
    """The channel of a target. TypeError or ValueError for what is none."""
    from wirespeed.client.target import Stdio

    if isinstance(target, Stdio):
        return StdioChannel(target)
    if isinstance(target, str):
        raise ValueError(
            f"cannot connect to {target!r}: a target is Stdio(command, args) or a Server"
        )
    from wirespeed.server import Server

    if isinstance(target, Server):
        return MemoryChannel(target)
    raise TypeError(f"a target is Stdio(command, args) or a Server, not {type(target).__name__}")
