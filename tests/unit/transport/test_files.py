"""FileLink: blocking descriptors behind two threads."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest
from lab.link import Ends, server_of
from lab.raw import call, encode, initialize, request

from wirespeed.transport.stdio import FileLink


class Files(Ends):
    """A server behind a FileLink whose ends are pipes, so that a test can hold them up."""

    make_link = FileLink

    def __init__(self, *, blocking: bool = True, **limits: Any) -> None:
        super().__init__(server_of(**limits), blocking=blocking)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.ask(initialize("init"))
        return self


async def test_questions_are_answered_until_the_end_of_input() -> None:
    async with Files() as files:
        for i in range(20):
            answer = await files.ask(call(i, "echo", {"text": "é" * i}))
            assert answer["result"]["content"][0]["text"] == "é" * i
        await files.send(call("last", "echo", {"text": "x"}))
        files.close("stdin")
        assert (await files.recv())["id"] == "last"
        await files.connection.closed


@pytest.mark.off_schema("answers to nothing")
async def test_the_last_line_needs_no_newline() -> None:
    async with Files() as files:
        await files.send(encode(request(1, "ping"))[:-1])
        files.close("stdin")
        assert (await files.recv())["id"] == 1
        await files.connection.closed


async def test_a_reader_that_is_held_up_holds_nobody_else_up() -> None:
    async with Files() as files:
        text = "x" * 200_000
        sending = asyncio.create_task(
            files.send(*(call(i, "echo", {"text": text}) for i in range(20)))
        )
        assert [(await files.recv())["id"] for _ in range(20)] == list(range(20))
        await sending


async def test_a_tool_that_waits_for_room_goes_on_when_it_is_written() -> None:
    async with Files(output_high=100_000, output_low=1000) as files:
        await files.send(call(1, "burst", {"n": 4}))
        seen = []
        while "id" not in (message := await files.recv()):
            seen.append(message["params"]["data"][0])
        assert seen == ["0", "1", "2", "3"]
        assert message["result"]["content"][0]["text"] == "burst"


async def test_reading_stops_while_too_many_wait() -> None:
    async with Files(max_in_flight=1, max_waiting=2) as files:
        await files.send(*(call(i, "echo", {"text": "x"}) for i in range(500)))
        assert {(await files.recv())["id"] for _ in range(500)} == set(range(500))


async def test_a_writer_that_fails_ends_the_connection() -> None:
    async with Files() as files:
        files.close("stdout")
        await files.send(request(1, "ping"))
        await files.connection.closed
        assert files.connection.link is None


@pytest.mark.parametrize("waiting", [True, False])
async def test_close_ends_both_threads(waiting: bool) -> None:
    async with Files() as files:
        if waiting:
            await files.send(call(1, "hang"))
        files.link.close()
        files.link.close()
        assert files.connection.closed.done()
        files.link.join(20)
    # leaving the block waits for the threads


async def test_non_blocking_descriptors_are_waited_for() -> None:
    """Somebody who shares the terminal may have made it non-blocking."""
    async with Files(blocking=False) as files:
        text = "x" * 500_000
        answer = await files.ask(call(1, "echo", {"text": text}))
        assert answer["result"]["content"][0]["text"] == text
