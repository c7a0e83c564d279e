"""An exception in a callback of the loop ends the connection that has it, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from lab.serve import Bare, lab_server, serving

from wirespeed.core import Limits, Session
from wirespeed.transport import link as link_module
from wirespeed.transport.child.stderr import Drain
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint
from wirespeed.transport.rate_limited_log import RateLimitedLog
from wirespeed.transport.stdio import FileLink

pytestmark = [pytest.mark.both_loops]


class Failing(Endpoint):
    """Fails in each of its callbacks that is named."""

    def __init__(self, where: str, exc: Exception) -> None:
        self.wire = self.session = Session(limits=Limits())
        self.where, self.exc = where, exc
        self.n = 0
        self.lost: list[BaseException | None] = []

    def _call(self, where: str) -> None:
        if self.where == where:
            self.n += 1
            raise self.exc

    def on_data(self) -> None:
        self._call("data")
        for _ in self.session:
            pass

    def on_eof(self) -> None:
        self._call("eof")
        self.link.close()  # type: ignore[union-attr]

    def on_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(
        link_module, "_quiet", RateLimitedLog(logging.getLogger("wirespeed.transport"))
    )
    return lambda: [one.getMessage() for one in caplog.records if one.name == "wirespeed.transport"]


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("exc", [MemoryError(), MemoryError("no memory for it"), ValueError("oh")])
@pytest.mark.parametrize("where", ["data", "eof"])
async def test_a_link_whose_endpoint_fails_is_lost_once(
    where: str, exc: Exception, lines: Any
) -> None:
    loop = asyncio.get_running_loop()
    failed: list[Any] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        endpoint = Failing(where, exc)
        FdLink(loop, endpoint, ours.fileno(), ours.fileno()).start()
        theirs.send(b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')
        if where == "eof":
            theirs.shutdown(socket.SHUT_WR)
        await until(lambda: endpoint.lost)
        for _ in range(10):
            await asyncio.sleep(0)
        assert endpoint.n == len(endpoint.lost) == len(lines()) == 1
        assert isinstance(endpoint.lost[0], ConnectionAbortedError)
        assert endpoint.lost[0].__cause__ is exc
        why = {"": "out of memory", "oh": "internal error"}.get(str(exc), str(exc))
        assert lines() == [f"a connection is closed: {why}"]
        assert not failed


async def test_a_link_of_files_whose_endpoint_fails_is_lost_once(lines: Any) -> None:
    loop = asyncio.get_running_loop()
    read, write = os.pipe()
    endpoint = Failing("data", MemoryError())
    link = FileLink(loop, endpoint, read, write)
    link.start()
    os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')
    await until(lambda: endpoint.lost)
    assert endpoint.n == len(lines()) == 1
    os.close(write)
    await asyncio.to_thread(link.join, 5.0)
    os.close(read)


class Short(socket.socket):
    """Accepts nothing."""

    n = 0

    def accept(self) -> Any:
        type(self).n += 1
        raise self.fault

    fault: Exception = MemoryError()


@pytest.mark.parametrize("fault", [MemoryError(), OSError(errno.EMFILE, "too many open files")])
async def test_a_listener_that_cannot_accept_waits(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(lab_server()) as place:
        real = place.listener.listening.sockets[0]
        short = Short(real.family, real.type, real.proto, os.dup(real.fileno()))
        monkeypatch.setattr(Short, "fault", fault)
        monkeypatch.setattr(Short, "n", 0)
        with short:
            place.listener._accept(short, place.listener._take)
        assert Short.n == 1
        assert len([one for one in caplog.records if "accepted for 1 s" in one.getMessage()]) == 1
        peer = await Bare.connect(place.port)  # it was in the queue meanwhile
        await peer.handshake()
        await peer.close()


# -- stderr of a child -----------------------------------------------------------------------------


class Heap:
    """A place for what a child writes, which has no room at first."""

    def __init__(self, n_failures: int = 0) -> None:
        self.n_failures = n_failures
        self.data = bytearray()

    def feed(self, data: memoryview) -> None:
        if self.n_failures:
            self.n_failures -= 1
            raise MemoryError
        self.data += data

    def close(self) -> None:
        pass


async def test_a_flood_of_stderr_is_read_in_portions() -> None:
    loop = asyncio.get_running_loop()
    read, write = os.pipe()
    heap = Heap()
    drain = Drain(loop, read, heap, max_rate=100_000, period=0.1)
    begun = loop.time()
    writing = asyncio.create_task(asyncio.to_thread(_write, write, b"x" * 1_000_000))
    await until(lambda: drain.closed)
    await writing
    assert bytes(heap.data) == b"x" * 1_000_000
    # 65,536 bytes at a time: two reads in each period but the last
    assert loop.time() - begun >= 0.1 * 6


def _write(fd: int, data: bytes) -> None:
    with open(fd, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


async def test_stderr_that_cannot_be_read_now_is_read_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read, write = os.pipe()
    heap = Heap(1)
    drain = Drain(asyncio.get_running_loop(), read, heap, period=0.05)
    os.write(write, b"one\n")
    await until(lambda: not heap.n_failures)
    os.write(write, b"two\n")
    os.close(write)
    await until(lambda: drain.closed)
    assert bytes(heap.data) == b"two\n"
    assert drain.lines() == ["one", "two"]
    assert caplog.text.count("reading a child's stderr failed") == 1


@pytest.mark.parametrize("paused", [False, True])
async def test_a_drain_is_closed(paused: bool) -> None:
    read, write = os.pipe()
    drain = Drain(asyncio.get_running_loop(), read, None, max_rate=1 if paused else 1000)
    os.write(write, b"one\n")
    await until(lambda: drain.lines())
    drain.close()
    assert drain.closed
    with pytest.raises(BrokenPipeError):
        os.write(write, b"two\n")
    os.close(write)
    assert not Path(f"/proc/self/fd/{read}").exists()
