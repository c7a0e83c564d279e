"""Rival: a raw uvloop socket echo, which gives every byte back as it came."""

import asyncio

import uvloop
from _port import tell


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.write(data)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
