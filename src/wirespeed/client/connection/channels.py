"""Channels: how a client launches or reaches its target, and why a link ended."""

from __future__ import annotations

import asyncio
import logging
import os
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from wirespeed.client.targets import Http, Socket, WebSocket
from wirespeed.client.timeouts import DELAYS, Delays
from wirespeed.errors import ConnectionClosed, TransportError
from wirespeed.transport.service import service_of

if TYPE_CHECKING:
    from wirespeed import Server
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.targets import Target
    from wirespeed.limits import Limits
    from wirespeed.transport.child.command import Stdio
    from wirespeed.transport.child.process import Child
    from wirespeed.transport.taskpool import TaskPool


logger = logging.getLogger("wirespeed.client")

# Seconds after the exit of a program within which its pipes end, unless another process holds them.
PIPES_END = 0.25
# Seconds in which a program whose output has ended exits.
SETTLED = 2.0
# Seconds of each step of the end of a program that could not be used.
HURRIED = 2.0

Join: TypeAlias = "Callable[[Framer | None], ClientConnection]"


class Channel(Protocol):
    """One life of a link. A new one is made for each start of the target."""

    probe_was_read: bool
    """Whether the target may have read what was sent before it ended."""

    async def open(self, join: Join, limits: Limits) -> None:
        """Launch or connect, and join the connection to the link. ``join`` makes the connection
        from the framing of this channel (None: lines). TransportError: the launch or the connect
        failed."""

    def hang_up(self) -> None:
        """Begin to close the link: send queued data as far as possible without waiting."""

    def released(self) -> None:
        """The link is gone. Called once for each link."""

    async def failure(
        self, reason: str, *, patient: bool = True
    ) -> TransportError | ConnectionClosed:
        """Return an error that tells why the link is gone, as far as the reason is known.
        ``patient``: Whether there is time to wait for the exit of a program."""

    async def close(self, *, hurry: bool = False) -> None:
        """Close the channel and release everything it holds. ``hurry``: It was of no use, so
        nothing can be lost."""


class StdioChannel:
    """A server that is a child process."""

    probe_was_read = True

    def __init__(self, target: Stdio, delays: Delays = DELAYS) -> None:
        self.target = target
        self._delays = delays
        self.child: Child | None = None
        self._connection: ClientConnection | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, join: Join, limits: Limits) -> None:
        from wirespeed.transport.child.process import Child
        from wirespeed.transport.fd import FdLink

        child = await Child.launch(self.target)
        self.child = child
        os.set_blocking(child.stdin_fd, False)
        os.set_blocking(child.stdout_fd, False)
        connection = self._connection = join(None)
        link = FdLink(asyncio.get_running_loop(), connection, child.stdout_fd, child.stdin_fd)
        child.release = lambda fd: link.close()
        link.start()
        child.on_exit = self._on_exit

    def _on_exit(self) -> None:
        if self._connection is not None and self._connection.link is not None:
            self._watching = asyncio.ensure_future(self._watch(self._connection))

    async def _watch(self, connection: ClientConnection) -> None:
        """Lose the link when the program has exited and no process answers on its pipes.

        The exit alone does not end the link: a wrapper may have left its pipes to the server.
        """
        from wirespeed.transport.child.process import describe_status

        assert self.child is not None
        connection.exit_note = f"; the server's program {describe_status(self.child.returncode)}"
        await asyncio.sleep(PIPES_END)
        wire = connection.wire
        seen = wire.bytes_in
        asked = connection.probe()
        seconds = self._delays.answer if seen else self._delays.first_answer
        if asked is None:
            await asyncio.sleep(seconds)
        else:
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait((asked,), timeout=seconds)
            if asked.done():
                return
        if wire.bytes_in == seen and connection.link is not None:
            connection.link.lose(
                TransportError("its program has exited, and no process answers on its pipes")
            )

    def hang_up(self) -> None:
        flush_and_close(self._connection)

    def released(self) -> None:
        # the child owns the descriptors
        if self._watching is not None:
            self._watching.cancel()

    async def failure(
        self, reason: str, *, patient: bool = True
    ) -> TransportError | ConnectionClosed:
        if self.child is None:
            return ConnectionClosed(reason)
        if await self.child.settle(SETTLED if patient else 0.0):
            self.probe_was_read = self._was_read(self.child)
            return self.child.error(reason, self._hint(self.child))
        return TransportError(self.child.failure(reason))

    def _was_read(self, child: Child) -> bool:
        """Whether the exited child read any of its input."""
        import fcntl
        import termios

        if self._connection is None:
            return False
        unread = array("i", [0])
        try:
            fcntl.ioctl(child.stdin_fd, termios.FIONREAD, unread)
        except (OSError, ValueError):  # not known here, or closed
            return True
        return self._connection.wire.bytes_out > unread[0]

    def _hint(self, child: Child) -> str:
        """The advice for the user after the end of the child."""
        if self._connection is None or self._connection.wire.bytes_in:
            if self.target.restart:
                return ""
            return "; Stdio(restart=…) or client.restart() starts it again"
        if child.returncode == 0:
            return "; it ended by itself without an answer: does the file call server.run()?"
        return ""

    async def close(self, *, hurry: bool = False) -> None:
        if self.child is not None:
            self.child.drain_stdout()
            grace = min(self.target.shutdown_grace, HURRIED) if hurry else None
            await self.child.shutdown(grace, grace)


class MemoryChannel:
    """A server in this process."""

    probe_was_read = True

    def __init__(self, server: Server) -> None:
        self._service = service_of(server)
        self._held: Any = None
        self._pool: TaskPool | None = None
        self._served: Any = None
        self._connection: ClientConnection | None = None

    async def open(self, join: Join, limits: Limits) -> None:
        from wirespeed.transport.memory import pair
        from wirespeed.transport.taskpool_choice import open_pool

        if hasattr(self._service, "hold"):  # a LiteServer is not kept alive
            self._held = await self._service.hold()
        loop = asyncio.get_running_loop()
        self._pool = open_pool(loop)
        connection = self._connection = join(None)
        links: list[Any] = []

        def make_link(served: Any) -> Any:
            links.extend(pair(loop, connection, served))
            return links[1]

        self._served = self._service.connect(make_link, loop=loop, pool=self._pool)
        for link in links:
            link.start()

    def hang_up(self) -> None:
        flush_and_close(self._connection)

    def released(self) -> None:
        pass

    async def failure(
        self, reason: str, *, patient: bool = True
    ) -> TransportError | ConnectionClosed:
        return ConnectionClosed(reason)

    async def close(self, *, hurry: bool = False) -> None:
        held, self._held = self._held, None
        try:
            await self._end()
        finally:
            if held is not None:
                await self._service.release(held)

    async def _end(self) -> None:
        # nothing can receive the answers of running handlers: no grace time
        if self._served is not None:
            self._served.abort()
        if self._pool is None:
            return
        closing = asyncio.ensure_future(self._pool.aclose())
        await asyncio.wait((closing,), timeout=self._service.shutdown_grace)
        if not closing.done():
            n = self._pool.abandon()
            logger.warning("%d handlers of %s ignore their cancellation", n, self._service.name)
            closing.cancel()
            await asyncio.wait((closing,))


def flush_and_close(connection: ClientConnection | None) -> None:
    """Send what can be sent without waiting, and stop reading."""
    if connection is not None and connection.link is not None:
        connection.link.flush()  # the write may find that the link is broken
    if connection is not None and connection.link is not None:
        connection.link.close()


def channel_for(target: Target, delays: Delays = DELAYS) -> Channel:
    """Return a new channel to the target, for one link."""
    from wirespeed.transport.child.command import Stdio

    if isinstance(target, Stdio):
        return StdioChannel(target, delays)

    if not isinstance(target, Http | WebSocket | Socket):
        return MemoryChannel(target)
    from wirespeed.client.connection import network_channels

    if isinstance(target, Http):
        return network_channels.HttpChannel(target)
    if isinstance(target, WebSocket):
        return network_channels.WebSocketChannel(target, delays)
    return network_channels.SocketChannel(target)
