"""Taps on sockets: each connection of a client gets one to the server."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl as ssl_
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from wirespeed.bench.tap import Cut, LineCodec, StreamSink
from wirespeed.transport.net.connect import reason_of
from wirespeed.transport.net.sockets import ConnectFailure, listen, resolve, sockets_of
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.bench.tap import ByteSource, Codec, Tap
    from wirespeed.bench.tap_file import From
    from wirespeed.transport.address import Address

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_CONNECT_TIMEOUT = 10.0
# Seconds that one end has to close after the other one has.
_GRACE = 5.0

logger = logging.getLogger("wirespeed.bench")


class TappedServer:
    """The server behind a tap.

    Args:
        address: Its address.
        ssl: For ``https://`` and ``wss://``; by default it trusts the authorities of the system.
    """

    def __init__(self, address: Address, ssl: ssl_.SSLContext | None = None) -> None:
        self.address = address
        self._ssl = ssl
        self._quiet = RateLimitedLog(logger)

    async def connect(self) -> Streams | None:
        """Open a connection; None, and a warning, if it cannot be reached."""
        address = self.address
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                sock = await sockets_of(address).connect(asyncio.get_running_loop(), address)
                if not address.secure:
                    return await streams_of(sock)
                context = ssl_.create_default_context() if self._ssl is None else self._ssl
                return await asyncio.open_connection(
                    sock=sock, ssl=context, server_hostname=address.host
                )
        except TimeoutError:
            reason = f"no answer within {_CONNECT_TIMEOUT:g} s"
        except ConnectFailure as exc:
            reason = str(exc)
        except OSError as exc:
            reason = reason_of(exc)
        self._quiet.log(logging.WARNING, "cannot connect to %s: %s", address, reason)
        return None


async def streams_of(sock: socket.socket) -> Streams:
    """Return the streams of a connected socket."""
    if sock.family == socket.AF_UNIX:
        return await asyncio.open_unix_connection(sock=sock)
    return await asyncio.open_connection(sock=sock)


async def tap_sockets(
    address: Address, handle: Handler, on_listening: Callable[[str], None]
) -> None:
    """Listen at an address, and handle each connection, until cancelled.

    ``on_listening`` gets the URL. TransportError: the address cannot be listened at.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, resolve, address)
    with listen(address, found, ListenOptions()) as listening:
        on_listening(str(listening.address))
        async with asyncio.TaskGroup() as group:

            async def accept(listener: socket.socket) -> None:
                while True:
                    try:
                        sock, _ = await loop.sock_accept(listener)
                    except OSError as exc:  # too many open files, say
                        logger.warning("cannot accept a connection: %s", reason_of(exc))
                        await asyncio.sleep(0.1)
                        continue
                    group.create_task(_serve(sock, handle))

            for listener in listening.sockets:
                group.create_task(accept(listener))


async def _serve(sock: socket.socket, handle: Handler) -> None:
    """Serve one connection to its end."""
    try:
        sock.setblocking(False)
        reader, writer = await streams_of(sock)
    except OSError:
        sock.close()
        return
    try:
        await handle(reader, writer)
    except (OSError, Cut):
        pass
    except Exception:
        logger.exception("a connection of the tap failed")
    finally:
        await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection when all is sent. The peer has a short time to take it."""
    writer.close()
    try:
        async with asyncio.timeout(_GRACE):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def tap_lines(tap: Tap, server: TappedServer) -> Handler:
    """Return the tap of connections with one message a line."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = await server.connect()
        if streams is not None:
            await join(tap, tap.connection(), (reader, writer), streams, LineCodec(), LineCodec())

    return handle


async def join(
    tap: Tap,
    number: int,
    client: tuple[ByteSource, asyncio.StreamWriter],
    server: tuple[ByteSource, asyncio.StreamWriter],
    client_codec: Codec,
    server_codec: Codec,
) -> None:
    """Pass all between two connections, until both have ended. OSError, Cut: both are closed."""
    to_client, to_server = StreamSink(client[1]), StreamSink(server[1])

    async def one_way(sender: From) -> None:
        if sender == "client":
            source, sink, back = client[0], to_server, to_client
            codecs = client_codec, server_codec
        else:
            source, sink, back = server[0], to_client, to_server
            codecs = server_codec, client_codec
        await tap.lane(sender, number).run(source, sink, *codecs, back)
        sink.end()

    ways = [asyncio.ensure_future(one_way("client")), asyncio.ensure_future(one_way("server"))]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if all(way.exception() is None for way in done):
            # the server may have more to say to a client that is done
            limit = None if ways[0] in done else _GRACE
            done, _ = await asyncio.wait(ways, timeout=limit)
        for way in done:
            way.result()
    finally:
        for way in ways:
            way.cancel()
        await close(server[1])
        await asyncio.wait(ways)
