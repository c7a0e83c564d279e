"""unix: and tcp://: one message a line, as over stdio."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from lab.raw import call, encode, initialize, strict
from lab.serve import Place, descriptors, lab_server, serving, slabs

LIMIT = 1 << 20  # bytes of a line


class Lines:
    """A client of bare lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, place: Place) -> Lines:
        if place.listener.address.scheme == "unix":
            return cls(
                *await asyncio.open_unix_connection(place.listener.address.path, limit=LIMIT)
            )
        return cls(*await asyncio.open_connection("127.0.0.1", place.port, limit=LIMIT))

    def send(self, *messages: Any) -> None:
        self.writer.write(b"".join(map(encode, messages)))

    async def recv(self) -> Any:
        line = await self.reader.readline()
        assert line.endswith(b"\n"), line
        return strict(line.rstrip(b"\n"))

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@pytest.fixture(params=["unix", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s" if request.param == "unix" else "tcp://127.0.0.1:0"


async def test_round_trip(url: str) -> None:
    async with serving(lab_server(), url) as place:
        lines = await Lines.connect(place)
        lines.send(initialize(0), call(1, "echo", {"text": "é" * 100_000}))
        assert (await lines.recv())["id"] == 0
        assert (await lines.recv())["result"]["content"][0]["text"] == "é" * 100_000
        await lines.close()
        await place.empty()


async def test_half_close_gets_the_answers_of_what_is_in_flight(url: str) -> None:
    server: Any = lab_server()
    async with serving(server, url) as place:
        lines = await Lines.connect(place)
        lines.send(initialize(0), call(1, "wait", {"name": "last"}))
        lines.writer.write_eof()
        assert (await lines.recv())["id"] == 0
        await place.until(lambda: server.waiting)
        server.waiting[0].set_result(None)
        assert (await lines.recv())["result"]["content"][0]["text"] == "last"
        assert await lines.reader.read() == b""
        await place.empty()
        await lines.close()


async def test_drain_and_abort(url: str) -> None:
    server: Any = lab_server()
    async with serving(server, url) as place:
        busy, idle = await Lines.connect(place), await Lines.connect(place)
        busy.send(initialize(0), call(1, "wait", {"name": "x"}))
        assert (await busy.recv())["id"] == 0
        await place.until(lambda: server.waiting and place.listener.n_connections == 2)
        place.listener.drain()
        assert await idle.reader.read() == b""
        assert not place.task.done()
        place.listener.abort()
        assert await busy.reader.read() == b""
        await place.task
        assert server.cancelled == ["x"]
        await busy.close()
        await idle.close()


async def test_too_many(url: str) -> None:
    async with serving(lab_server(), url, max_connections=1) as place:
        one = await Lines.connect(place)
        one.send(initialize(0))
        await one.recv()
        two = await Lines.connect(place)
        with contextlib.suppress(ConnectionError):
            assert await two.reader.read() == b""
        await two.close()
        await one.close()
        await place.empty()
        three = await Lines.connect(place)
        three.send(initialize(0))
        assert (await three.recv())["id"] == 0
        await three.close()


async def test_a_slow_reader_is_cut_off(url: str) -> None:
    async with serving(lab_server(), url, slow_reader_timeout=0.1) as place:
        before = slabs()
        lines = await Lines.connect(place)
        lines.writer.transport.pause_reading()  # type: ignore[attr-defined]
        lines.send(initialize(0))
        lines.send(*(call(id, "fill", {"size": 200_000}) for id in range(200)))
        await place.until(lambda: is_full(place))
        await place.empty()
        assert slabs() <= before
        await lines.close()


def is_full(place: Place) -> bool:
    wires = [served.endpoint.wire for served in place.listener.served()]
    return any(len(wire.outbox) >= wire.limits.output_high for wire in wires)


async def test_connections_that_come_and_go_leave_nothing(url: str) -> None:
    async with serving(lab_server(shutdown_grace=0.01), url) as place:

        async def visit(n: int) -> None:
            lines = await Lines.connect(place)
            lines.send(initialize(0))
            await lines.recv()
            if n % 3 == 1:
                lines.send(call(1, "wait", {"name": "x"}))
            elif n % 3 == 2:
                lines.writer.write(b'{"jsonrpc": ')
            await lines.close()

        async def round_of(n: int) -> None:
            await asyncio.gather(*(visit(i) for i in range(n)))
            await place.empty()

        await round_of(30)
        fds, tasks, before = descriptors(), len(asyncio.all_tasks()), slabs()
        for _ in range(3):
            await round_of(30)
        assert descriptors() <= fds
        assert len(asyncio.all_tasks()) <= tasks
        assert slabs() <= before
