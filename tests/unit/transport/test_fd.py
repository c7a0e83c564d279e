"""FdLink: non-blocking descriptors, read into the slab and written from the gather list."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from lab.link import Ends, server_of, text_for
from lab.raw import call, encode, initialize, request
from lab.rows import every

from wirespeed.transport.fd import FdLink
from wirespeed.transport.taskpool_choice import open_pool


@every("one_socket", [True, False])
@every("high", [1000, 65536, 1 << 20])
@every("step", [997, 65536])
async def test_answers_of_all_sizes_arrive_whole_and_in_turn(
    one_socket: bool, high: int, step: int
) -> None:
    """A slow reader: writes are short at every place of the gather list, which is packed,
    referenced, compacted and grown meanwhile."""
    sizes = [1, 300, 5000, 70_000, 40, 4095, 4096, 9, 200_000, 30_000, 8191, 8192, 16]
    server = server_of(output_high=high, output_low=min(1000, high))
    async with Ends(server, one_socket=one_socket) as ends:
        assert "result" in await ends.ask(initialize("init"))
        n = 120

        async def ask() -> None:
            for i in range(n):
                await ends.send(call(i, "fill", {"n": i, "size": sizes[i % len(sizes)]}))

        asking = asyncio.create_task(ask())
        for i in range(n):
            answer = await ends.recv(step)
            assert answer["id"] == i
            wanted = text_for(i, sizes[i % len(sizes)])
            assert answer["result"]["content"][0]["text"] == wanted
        await asking
        assert len(ends.connection.session.outbox) == 0


async def test_small_answers_to_a_reader_that_starts_late() -> None:
    """More than a pipe holds, in many blocks, while more is queued behind it."""
    async with Ends(server_of()) as ends:
        n, method = 5000, "nope" * 40
        sending = asyncio.create_task(ends.send(*(request(i, f"{method}{i}") for i in range(n))))
        session = ends.connection.session
        while len(session.outbox) < 900_000:
            await asyncio.sleep(0)
        for i in range(n):
            answer = await ends.recv(50_000)
            assert (answer["id"], answer["error"]["code"]) == (i, -32601)
            assert f"{method}{i}" in answer["error"]["message"]
        await sending


async def test_a_long_answer_leaves_without_being_copied() -> None:
    async with Ends(server_of()) as ends:
        await ends.ask(initialize("init"))
        before = ends.connection.session.counters["output_bytes_copied"]
        await ends.ask(call(1, "fill", {"n": 1, "size": 3_000_000}))
        copied = ends.connection.session.counters["output_bytes_copied"] - before
        assert copied < 4096


async def test_a_message_that_arrives_whole_is_not_copied() -> None:
    async with Ends(server_of()) as ends:
        await ends.ask(initialize("init"))
        for i in range(50):
            await ends.ask(call(i, "fill", {"n": i, "size": 10}))
        assert ends.connection.session.counters["payload_bytes_copied"] == 0


async def test_a_descriptor_that_cannot_be_polled_is_refused(tmp_path: Any) -> None:
    with (tmp_path / "file").open("w+b") as file:
        loop = asyncio.get_running_loop()
        pool = open_pool(loop)
        links: list[FdLink] = []

        def link(endpoint: Any) -> FdLink:
            links.append(FdLink(loop, endpoint, file.fileno(), file.fileno()))
            return links[0]

        connection = server_of().service.connect(link, loop=loop, pool=pool)
        with pytest.raises((OSError, RuntimeError)):
            links[0].start()
        connection.abort()
        await pool.aclose()


@pytest.mark.off_schema("answers to nothing")
async def test_the_end_of_input_is_told_after_what_came_before() -> None:
    async with Ends(server_of()) as ends:
        await ends.send(request(1, "ping"), encode(request(2, "ping"))[:-1])
        ends.close("stdin")
        assert [(await ends.recv())["id"] for _ in range(2)] == [1, 2]
        await ends.connection.closed


@pytest.mark.parametrize("in_flight", [True, False])
async def test_a_broken_pipe_ends_the_connection(in_flight: bool) -> None:
    async with Ends(server_of()) as ends:
        await ends.ask(initialize("init"))
        if in_flight:
            await ends.send(call(1, "hang"))
        ends.close("stdout")
        await ends.send(request(2, "ping"))
        await ends.connection.closed
        assert ends.connection.link is None
        while ends.connection.running:
            await asyncio.sleep(0)


async def test_a_reset_socket_ends_the_connection() -> None:
    server = server_of()
    server.service.shutdown_grace = 0.01
    async with Ends(server, one_socket=True) as ends:
        await ends.ask(initialize("init"))
        await ends.send(call(1, "hang"), request(2, "ping"))
        await ends.recv()
        ends.close("stdin", "stdout")
        await ends.connection.closed


async def test_close_can_be_called_twice_and_tells_once() -> None:
    async with Ends(server_of()) as ends:
        await ends.ask(request(1, "ping"))
        ends.link.close()
        ends.link.close()
        assert ends.connection.closed.done()
        assert ends.connection.link is None
        await ends.send(request(2, "ping"))
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            os.read(ends.stdout, 1)
        ends.link.flush()  # nothing happens any more
        ends.link.update_reading()
        assert not ends.loop.remove_reader(ends.theirs_in)


async def test_a_close_while_writing_leaves_no_callback_behind() -> None:
    async with Ends(server_of()) as ends:
        await ends.ask(initialize("init"))
        await ends.send(call(1, "fill", {"n": 1, "size": 1_000_000}))
        while not len(ends.connection.session.outbox):
            await asyncio.sleep(0)
        ends.connection.abort()
        assert not ends.loop.remove_writer(ends.theirs_out)
        assert not ends.loop.remove_reader(ends.theirs_in)


async def test_one_connection_does_not_starve_another() -> None:
    """A peer that always has more to say is read in turns."""
    server = server_of()
    async with Ends(server) as loud, Ends(server) as quiet:
        stop = False

        async def shout() -> None:
            noise = encode({"jsonrpc": "2.0", "method": "notifications/noise"}) * 2000
            while not stop:
                with contextlib.suppress(BlockingIOError):
                    os.write(loud.stdin, noise)
                await asyncio.sleep(0)

        shouting = asyncio.create_task(shout())
        for i in range(50):
            assert (await quiet.ask(request(i, "ping")))["id"] == i
        stop = True
        await shouting
