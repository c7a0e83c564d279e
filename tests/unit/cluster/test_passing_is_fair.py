"""What one client or one process does on the connection between two hosts costs nobody else: the
one end is a host, the other one is played."""

from __future__ import annotations

import asyncio
import signal
import struct
from pathlib import Path

import pytest
from lab.hosts import Visitor, deployed, join
from lab.http import call
from lab.member import (
    ANSWER,
    END,
    LAST,
    PART,
    PAUSE,
    PROOF,
    REQUEST,
    RESUME,
    End,
    answer_of,
    answering,
    asking,
    head_of,
    said,
    tool_call,
)
from lab.store import StoreServer

from wirespeed.transport.http.members import MemberProofs

pytestmark = pytest.mark.compiled


async def test_a_long_proof(tmp_path: Path, store_server: StoreServer) -> None:
    """Who has not proved that it is a member makes no host hold a message."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        end = End(*await asyncio.open_connection("127.0.0.1", hosts.ports["a"]))
        end.writer.write(MemberProofs(b"").request("127.0.0.1")[0])
        await head_of(end.reader)
        end.writer.write(struct.pack("<IIB", 1_000_000, 0, PROOF))
        await end.over()
        end.writer.close()


async def test_a_request_that_is_too_long(tmp_path: Path, store_server: StoreServer) -> None:
    """It is refused, and others of the connection go on."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            end.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=0.3))
            assert (await end.frame())[:2] == (ANSWER, 1)
            end.send(REQUEST, 2, bytes(65 * 1024 * 1024))
            frames = [await end.frame()]
            while frames[-1][:2] != (END, 1):
                frames.append(await end.frame())
            (status,) = [data[0:4] for kind, of, data in frames if (kind, of) == (ANSWER, 2)]
            assert int.from_bytes(status, "little") == 413
            end.send(REQUEST, 3, tool_call(session, "who", said()))
            assert (await end.answer(3))[0] == 200


async def test_a_drain_with_clients_that_are_slow(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """Their requests are answered."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            end.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=0.5))
            assert (await end.frame())[:2] == (ANSWER, 1)
            end.send(PAUSE, 1)
            hosts.hosts["a"].signal(signal.SIGTERM)
            while (frame := await end.frame())[0] != LAST:
                assert frame[0] == PART
            end.send(RESUME, 1)
            rest = b""
            while (frame := await end.frame())[0] != END:
                assert frame[0] == PART
                rest += frame[2]
            assert b'"result"' in rest


async def test_streams_without_an_end(tmp_path: Path, store_server: StoreServer) -> None:
    """The answers to others are sent between their parts."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            # first: a host reads no requests while its output waits
            end.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=0.5))
            for number in range(2, 6):
                busy = await Visitor(hosts).initialize("a")
                end.send(REQUEST, number, tool_call(busy, "flood", said()))
            await asyncio.sleep(1)  # nothing is read meanwhile
            n, kind, number = 0, PART, 2
            while (kind, number) != (END, 1):
                kind, number, data = await end.frame()
                n += len(data)
                assert n < 16_000_000


async def test_the_drain_of_the_host_of_a_client(tmp_path: Path, store_server: StoreServer) -> None:
    """The streams that another host serves end, so that their clients go elsewhere."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        stream = await one.send("b", "GET", accept="text/event-stream")
        head = await stream.head()
        hosts.hosts["b"].signal(signal.SIGTERM)
        while await stream.more(head):  # it ends in order
            pass


async def test_long_requests_that_nobody_reads(tmp_path: Path, store_server: StoreServer) -> None:
    """Those of others find room."""
    go = asyncio.Event()

    async def serve(end: End) -> None:
        await go.wait()
        while True:
            _, number, _ = await end.frame()
            end.send(ANSWER, number, answer_of(202, 0))
            end.send(END, number)

    async with deployed(tmp_path, store_server.url, "b") as hosts, answering(serve) as url:
        one = await join(store_server, hosts, url)
        long = call("who", {"text": 12_000_000 * "x"}, 1)
        for _ in range(4):
            await one.send("b", body=long)
        await asyncio.sleep(1)  # until they are passed on, or refused
        short = await one.send("b", body=call("who", {}, 1))
        await asyncio.sleep(0.3)
        go.set()
        assert (await short.response()).status == 202
