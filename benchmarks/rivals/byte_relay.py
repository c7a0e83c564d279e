"""Rival: a bare uvloop relay of bytes between a TCP connection and a child's pipes.

byte_relay.py COMMAND …    # a child for each connection
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import uvloop
from _port import tell


class Output(asyncio.Protocol):
    """What a child says goes to the client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self.write = client.write

    def data_received(self, data: bytes) -> None:
        self.write(data)


class Relay(asyncio.Protocol):
    """What a client says goes to its child."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.early: list[bytes] = []
        self.write: Callable[[bytes], None] = self.early.append
        self.to_child: asyncio.WriteTransport | None = None
        self.joining = asyncio.ensure_future(self.join(transport))

    def data_received(self, data: bytes) -> None:
        self.write(data)

    async def join(self, client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self.child = subprocess.Popen(
            sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        await loop.connect_read_pipe(lambda: Output(client), self.child.stdout)
        self.to_child, _ = await loop.connect_write_pipe(asyncio.Protocol, self.child.stdin)
        self.write = self.to_child.write
        self.write(b"".join(self.early))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.to_child is not None:
            self.to_child.close()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Relay, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
