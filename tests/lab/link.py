"""Servers behind links of this process, and our ends of their pipes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
from typing import Any, Self

from lab.raw import encode, strict

from wirespeed import Context, Server
from wirespeed.limits import Limits
from wirespeed.transport.fd import FdLink
from wirespeed.transport.taskpool_choice import open_pool


class Ends:
    """A server behind a link, and our ends of its pipes (or of its socket)."""

    make_link: Any = FdLink

    def __init__(self, server: Server, *, one_socket: bool = False, blocking: bool = False) -> None:
        if one_socket:
            ours, theirs = socket.socketpair()
            self.stdin = self.stdout = ours.detach()
            self.theirs_in = self.theirs_out = theirs.detach()
        else:
            self.theirs_in, self.stdin = os.pipe()
            self.stdout, self.theirs_out = os.pipe()
        for fd in (self.stdin, self.stdout):
            os.set_blocking(fd, False)
        for fd in (self.theirs_in, self.theirs_out):
            os.set_blocking(fd, blocking)
        self.server = server
        self.buffer = b""
        self.threads = self.of_links()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self.pool = open_pool(self.loop)
        self.connection = self.server.service.connect(
            lambda endpoint: self.make_link(self.loop, endpoint, self.theirs_in, self.theirs_out),
            loop=self.loop,
            pool=self.pool,
        )
        self.link: Any = self.connection.link
        self.link.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.connection.abort()
        await self.pool.aclose()
        for fd in {self.stdin, self.stdout} - {-1}:
            os.close(fd)
        while self.of_links() - self.threads:
            await asyncio.sleep(0.001)
        for fd in {self.theirs_in, self.theirs_out}:
            os.close(fd)

    def of_links(self) -> set[threading.Thread]:
        """Threads of links: a FileLink has two."""
        return {t for t in threading.enumerate() if t.name.startswith("wirespeed-")}

    def close(self, *names: str) -> None:
        for fd in {getattr(self, name) for name in names}:
            os.close(fd)
        for name in names:
            setattr(self, name, -1)

    async def send(self, *messages: Any) -> None:
        data = b"".join(map(encode, messages))
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self.stdin, data) :]
            await asyncio.sleep(0)

    async def read(self, n: int = 65536) -> bytes:
        while True:
            with contextlib.suppress(BlockingIOError):
                return os.read(self.stdout, n)
            await asyncio.sleep(0)

    async def recv(self, n: int = 65536) -> Any:
        while b"\n" not in self.buffer:
            data = await self.read(n)
            if not data:
                raise EOFError
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return strict(line)

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.recv()


def server_of(**limits: Any) -> Server:
    server = Server("linked", limits=Limits(**limits))

    @server.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @server.tool(inline=True)
    def fill(size: int, n: int = 0) -> str:
        return text_for(n, size)

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def burst(n: int, ctx: Context) -> str:
        for i in range(n):
            last = ctx.error(f"{i}:" + "x" * 100_000)
        await last
        return "burst"

    return server


def text_for(n: int, size: int) -> str:
    """Text that shows where it is cut or mixed up."""
    unit = hashlib.sha256(str(n).encode()).hexdigest()
    return (unit * (size // 64 + 1))[:size]
