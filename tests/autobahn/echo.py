"""An echo server and an echo client on the sans-I/O core, over asyncio's sockets.

Also an example of `wirespeed.core.WebSocketFramer` and `FrameStream` under a transport that is not
ours: input is read straight into the core's memory, a message is sent back from where it was read,
and a peer that does not read is not read from.

    python tests/autobahn/echo.py serve                 prints its port and serves until it ends
    python tests/autobahn/echo.py run HOST:PORT AGENT   echoes in every case of a fuzzing server
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    ServerPerMessageDeflateFactory,
)
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from wirespeed.core import FrameStream, WebSocketFramer
from wirespeed.transport.websocket.upgrade import MessageDeflate

MAX_MESSAGE = 64 * 2**20
MAX_FRAGMENTS = 2**17  # one case sends 4 MiB by 64 bytes
LINGER = 5.0  # seconds that the peer gets to close its end
HEAD_END = b"\r\n\r\n"


class Handshake(Protocol):
    """An opening handshake; `reply` is None when it failed, but for what is to be sent then."""

    def begin(self) -> bytes: ...
    def take_head(self, head: bytes) -> tuple[bytes, Sequence[Any] | None]: ...


class Accepts:
    """The server's side: any path is taken."""

    def begin(self) -> bytes:
        return b""

    def take_head(self, head: bytes) -> tuple[bytes, Sequence[Any] | None]:
        protocol = ServerProtocol(extensions=[ServerPerMessageDeflateFactory()])
        protocol.receive_data(head)
        for request in protocol.events_received():
            assert isinstance(request, Request)
            response = protocol.accept(request)
            protocol.send_response(response)
            reply = b"".join(protocol.data_to_send())
            return reply, protocol.extensions if response.status_code == 101 else None
        return b"", None


class Asks:
    """The client's side."""

    def __init__(self, url: str) -> None:
        offers = [
            ClientPerMessageDeflateFactory(client_max_window_bits=True),
            # for a server that wants to be asked before it says so
            ClientPerMessageDeflateFactory(
                client_max_window_bits=True, client_no_context_takeover=True
            ),
        ]
        self.protocol = ClientProtocol(parse_uri(url), extensions=offers)

    def begin(self) -> bytes:
        self.protocol.send_request(self.protocol.connect())
        return b"".join(self.protocol.data_to_send())

    def take_head(self, head: bytes) -> tuple[bytes, Sequence[Any] | None]:
        self.protocol.receive_data(head)
        if self.protocol.handshake_exc is not None:
            raise self.protocol.handshake_exc
        return b"", self.protocol.extensions


class Echo(asyncio.BufferedProtocol):
    """One connection: sends every message back. `closed` is the last message when it is over."""

    def __init__(self, role: str, handshake: Handshake) -> None:
        self.role = role
        self.handshake = handshake
        self.head = bytearray()
        self.head_buffer = bytearray(4096)
        self.stream: FrameStream | None = None
        self.ending = False
        self.can_write = True
        self.last = b""
        self.closed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.handshake.begin())

    def get_buffer(self, sizehint: int) -> Any:
        return self.head_buffer if self.stream is None else self.stream.get_buffer()

    def buffer_updated(self, n: int) -> None:
        if self.stream is not None:
            self.stream.buffer_updated(n)
            self.pump()
            return
        self.head += self.head_buffer[:n]
        head, found, rest = bytes(self.head).partition(HEAD_END)
        if not found:
            return
        reply, extensions = self.handshake.take_head(head + found)
        self.transport.write(reply)
        if extensions is None:
            self.transport.close()
            return
        self.framer = WebSocketFramer(
            self.role,  # type: ignore[arg-type]
            max_message=MAX_MESSAGE,
            max_fragments=MAX_FRAGMENTS,
            binary=True,
            deflate=MessageDeflate(extensions[0]) if extensions else None,
        )
        self.stream = FrameStream(self.framer)
        if rest:
            self.stream.receive_data(rest)
        self.pump()

    def pump(self) -> None:
        """Work on what there is, send what can be sent, and say whether to read on."""
        stream = self.stream
        if stream is None:
            return
        while True:
            for message in stream:
                assert message is not None
                if self.framer.is_binary:
                    self.framer.send_binary(message)
                else:
                    self.framer.send_text(message)
                self.last = bytes(message) if len(message) < 100 else b""
            if not self.can_write or not stream.outbox:
                break
            self.transport.writelines(stream.data_to_send())
        if stream.over and not stream.outbox and not self.ending:
            # the rest of what it sends is read and dropped: a reset could overtake our last words
            self.ending = True
            if self.role == "server":
                self.transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, self.transport.abort)
        if stream.want_read:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        self.pump()

    def eof_received(self) -> None:
        if self.stream is not None:
            self.stream.receive_eof()
            self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(self.last)


async def serve() -> None:
    """Serve on a free port of this machine; the first line written is its number."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo("server", Accepts()), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def connect(url: str) -> bytes:
    """Echo until the server ends it; gives the last message, if it was short."""
    uri = parse_uri(url)
    loop = asyncio.get_running_loop()
    _, echo = await loop.create_connection(lambda: Echo("client", Asks(url)), uri.host, uri.port)
    return await echo.closed


async def run(address: str, agent: str) -> None:
    """Be the client in every case that a fuzzing server has."""
    count = int(await connect(f"ws://{address}/getCaseCount"))
    for case in range(1, count + 1):
        await connect(f"ws://{address}/runCase?case={case}&agent={agent}")
    await connect(f"ws://{address}/updateReports?agent={agent}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            asyncio.run(serve())
        case ["run", address, agent]:
            asyncio.run(run(address, agent))
        case _:
            sys.exit(__doc__)
