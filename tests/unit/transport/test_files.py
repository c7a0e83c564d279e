"""FileLink: blocking descriptors behind two threads."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, Self

import pytest
from raw import call, encode, request, strict

from wirespeed import Context, Server
from wirespeed.limits import Limits
from wirespeed.transport.files import FileLink
from wirespeed.transport.taskpool_choice import open_pool

HANDSHAKE = request(
    "init",
    "initialize",
    {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
)


class Files:
    """A server behind a FileLink whose ends are pipes, so that a test can hold them up."""

    def __init__(self, server: Server) -> None:
        self.theirs_in, self.stdin = os.pipe()
        self.stdout, self.theirs_out = os.pipe()
        self.server = server
        self.buffer = b""
        self.threads = set(threading.enumerate())

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self.pool = open_pool(self.loop)
        self.connection = self.server.service.connect(
            lambda endpoint: FileLink(self.loop, endpoint, self.theirs_in, self.theirs_out),
            loop=self.loop,
            pool=self.pool,
        )
        self.link: Any = self.connection.link
        self.link.start()
        await self.ask(HANDSHAKE)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.connection.abort()
        await self.pool.aclose()
        for fd in {self.stdin, self.stdout} - {-1}:
            os.close(fd)
        while set(threading.enumerate()) - self.threads - self.helpers():
            await asyncio.sleep(0.001)
        os.close(self.theirs_in)
        os.close(self.theirs_out)

    def helpers(self) -> set[threading.Thread]:
        """The loop's own threads."""
        return {t for t in threading.enumerate() if not t.name.startswith("wirespeed-")}

    async def send(self, *messages: Any) -> None:
        data = b"".join(map(encode, messages))
        await self.loop.run_in_executor(None, self._write, data)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.stdin, data) :]

    async def recv(self) -> Any:
        while b"\n" not in self.buffer:
            data = await self.loop.run_in_executor(None, os.read, self.stdout, 65536)
            if not data:
                raise EOFError
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return strict(line)

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.recv()

    def end_input(self) -> None:
        os.close(self.stdin)
        self.stdin = -1


def server_of(**limits: Any) -> Server:
    server = Server("files", limits=Limits(**limits))

    @server.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def burst(n: int, ctx: Context) -> str:
        for i in range(n):
            last = ctx.error(f"{i}" + "x" * 65536)
        await last
        return "burst"

    return server


async def test_questions_are_answered_until_the_end_of_input() -> None:
    async with Files(server_of()) as files:
        for i in range(20):
            answer = await files.ask(call(i, "echo", {"text": "é" * i}))
            assert answer["result"]["content"][0]["text"] == "é" * i
        await files.send(call("last", "echo", {"text": "x"}))
        files.end_input()
        assert (await files.recv())["id"] == "last"
        await files.connection.closed


@pytest.mark.off_schema("answers to nothing")
async def test_the_last_line_needs_no_newline() -> None:
    async with Files(server_of()) as files:
        await files.send(encode(request(1, "ping"))[:-1])
        files.end_input()
        assert (await files.recv())["id"] == 1
        await files.connection.closed


async def test_a_reader_that_is_held_up_holds_nobody_else_up() -> None:
    async with Files(server_of()) as files:
        text = "x" * 200_000
        sending = asyncio.create_task(
            files.send(*(call(i, "echo", {"text": text}) for i in range(20)))
        )
        assert [(await files.recv())["id"] for _ in range(20)] == list(range(20))
        await sending


async def test_a_tool_that_waits_for_room_goes_on_when_it_is_written() -> None:
    async with Files(server_of(output_high=100_000, output_low=1000)) as files:
        await files.send(call(1, "burst", {"n": 4}))
        seen = []
        while "id" not in (message := await files.recv()):
            seen.append(message["params"]["data"][0])
        assert seen == ["0", "1", "2", "3"]
        assert message["result"]["content"][0]["text"] == "burst"


async def test_reading_stops_while_too_many_wait() -> None:
    async with Files(server_of(max_in_flight=1, max_waiting=2)) as files:
        await files.send(*(call(i, "echo", {"text": "x"}) for i in range(500)))
        assert {(await files.recv())["id"] for _ in range(500)} == set(range(500))


async def test_a_writer_that_fails_ends_the_connection() -> None:
    async with Files(server_of()) as files:
        os.close(files.stdout)
        files.stdout = -1
        await files.send(request(1, "ping"))
        await files.connection.closed
        assert files.connection.link is None


@pytest.mark.parametrize("waiting", [True, False])
async def test_close_ends_both_threads(waiting: bool) -> None:
    async with Files(server_of()) as files:
        if waiting:
            await files.send(call(1, "hang"))
        files.link.close()
        files.link.close()
        assert files.connection.closed.done()
        files.link.join(20)
    # leaving the block waits for the threads


async def test_non_blocking_descriptors_are_waited_for() -> None:
    """Somebody who shares the terminal may have made it non-blocking."""
    files = Files(server_of())
    os.set_blocking(files.theirs_in, False)
    os.set_blocking(files.theirs_out, False)
    async with files:
        text = "x" * 500_000
        answer = await files.ask(call(1, "echo", {"text": text}))
        assert answer["result"]["content"][0]["text"] == text
