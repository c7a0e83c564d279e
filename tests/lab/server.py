"""A client of bytes for servers in the same thread: everything crosses real pipes, and the loop
runs only while the test waits for a line."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any

from lab.raw import call, encode, initialize, modern, notification, request, strict

from wirespeed import Server
from wirespeed.server.connection import ServerConnection
from wirespeed.transport.fd import FdLink
from wirespeed.transport.taskpool import TaskPool

FOREVER = 20.0
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"


class Peer:
    """One connection of a server, seen from its client."""

    def __init__(
        self,
        server: Server,
        runner: asyncio.Runner,
        pool: TaskPool,
    ) -> None:
        self.server = server
        self.runner = runner
        self.loop = runner.get_loop()
        self.pool = pool
        theirs_in, self.stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        self.theirs = {theirs_in, theirs_out}
        self.mine = {self.stdin, self.stdout}
        for fd in self.theirs | self.mine:
            os.set_blocking(fd, False)
        self.buffer = bytearray()
        self.eof = False
        self.outgoing = bytearray()
        self.fences = 0
        self.connection: ServerConnection = self.run(self._connect(theirs_in, theirs_out))

    async def _connect(self, read_fd: int, write_fd: int) -> ServerConnection:
        connection = self.server.service.connect(
            lambda endpoint: FdLink(self.loop, endpoint, read_fd, write_fd),
            loop=self.loop,
            pool=self.pool,
        )
        assert connection.link is not None
        connection.link.start()
        return connection

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(FOREVER):
                return await work

        return self.runner.run(bounded())

    def close(self) -> None:
        self.run(self.leave())
        for fd in self.theirs | self.mine:
            os.close(fd)

    async def leave(self) -> None:
        """Close the connection, as its loss would."""
        self.loop.remove_writer(self.stdin)
        self.connection.abort()

    # -- writing -------------------------------------------------------------------------------

    def send(self, *messages: Any) -> None:
        """Write at once what goes; the rest leaves while the loop runs."""
        self.outgoing += b"".join(map(encode, messages))
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.outgoing:
                del self.outgoing[: os.write(self.stdin, self.outgoing)]
        if self.outgoing:
            self.loop.add_writer(self.stdin, self._write)
        else:
            self.loop.remove_writer(self.stdin)

    def end_input(self) -> None:
        self.run(self._sent())
        os.close(self.stdin)
        self.mine.discard(self.stdin)

    async def _sent(self) -> None:
        while self.outgoing:
            await asyncio.sleep(0)

    # -- reading -------------------------------------------------------------------------------

    def read_now(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.stdout, 1 << 20):
                self.buffer += data
            self.eof = True

    def buffered_line(self) -> bytes | None:
        end = self.buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return line

    async def next_line(self) -> bytes:
        while (line := self.buffered_line()) is None:
            if self.eof:
                raise EOFError(bytes(self.buffer))
            await self._readable()
            self.read_now()
        return line

    async def _readable(self) -> None:
        ready = asyncio.Event()
        self.loop.add_reader(self.stdout, ready.set)
        try:
            await ready.wait()
        finally:
            self.loop.remove_reader(self.stdout)

    def line(self) -> bytes:
        """The next line; the loop runs only if it has not come yet."""
        line = self.buffered_line()
        return self.run(self.next_line()) if line is None else line

    def recv(self) -> Any:
        """The next line, which must be strict JSON."""
        return strict(self.line())

    def ask(self, message: Any) -> Any:
        """Send one message; the next line."""
        self.send(message)
        return self.recv()

    def until(self, id: Any) -> list[Any]:
        """All messages up to and with the answer to a request."""
        got = []
        while True:
            got.append(self.recv())
            last = got[-1]
            if isinstance(last, dict) and "method" not in last and last.get("id") == id:
                return got

    def answers(self, *ids: Any) -> dict[Any, Any]:
        """The answers to these requests, in any order and nothing else; by id."""
        got: dict[Any, Any] = {}
        while len(got) < len(ids):
            answer = self.recv()
            assert answer["id"] in ids, answer
            assert answer["id"] not in got, answer
            got[answer["id"]] = answer
        return got

    def fence(self) -> list[Any]:
        """What came of all that was sent so far: an answered request marks the end.

        ``ping`` needs no handshake, and a server that knows none answers it nevertheless.
        """
        self.fences += 1
        id = f"fence-{self.fences}"
        self.send(request(id, "ping"))
        return self.until(id)[:-1]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Run the loop until a condition holds."""

        async def until_true() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.run(until_true())

    def handshake(self, version: str = "2025-06-18") -> Any:
        """The legacy handshake; what initialize gave."""
        answer = self.ask(initialize("init", version))
        self.send(notification("notifications/initialized"))
        return answer["result"]

    def result(self, message: Any) -> Any:
        """Ask, and get the result."""
        answer = self.ask(message)
        assert "result" in answer, answer
        assert answer["id"] == message["id"]
        return answer["result"]

    def error(self, message: Any) -> tuple[int, str]:
        """Ask, and get an error: its code and text."""
        answer = self.ask(message)
        assert "error" in answer, answer
        return answer["error"]["code"], answer["error"]["message"]


class LatePeer:
    """A connection that is made when the test first uses it, behind what the test registers."""

    def __init__(self, make: Callable[[], Peer]) -> None:
        self.make = make

    @functools.cached_property
    def peer(self) -> Peer:
        return self.make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.peer, name)


async def pass_on(request: Any, call_next: Any) -> Any:
    """A middleware that changes nothing."""
    return await call_next(request)


def tool_call(version: str, id: Any, tool: str, arguments: Any = None) -> Any:
    """A tools/call as the revision has it."""
    if version != MODERN:
        return call(id, tool, arguments)
    params = {"name": tool} if arguments is None else {"name": tool, "arguments": arguments}
    return modern(id, "tools/call", params)


def text_of(result: Any) -> str:
    """The one text of a tool's result."""
    (block,) = result["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    return text
