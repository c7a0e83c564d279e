"""A handler that holds the event loop is named, once."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from wirespeed import Client, Server
from wirespeed.server.watchdog import Watchdog
from wirespeed.types import CallNext, InboundRequest, Reply


class Log(logging.Handler):
    """The lines of the server's log. A handler that is held goes on when one is there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.written = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if " than 1 s" not in line:  # on a busy machine the server's own watchdog may see it, too
            self.lines.append(line)
            self.written.set()

    def wait(self) -> None:
        """Hold the thread until a line is there."""
        assert self.written.wait(60)


@pytest.fixture
def log() -> Iterator[Log]:
    log, logger = Log(), logging.getLogger("wirespeed.server")
    logger.addHandler(log)
    yield log
    logger.removeHandler(log)


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog(look=0.002, hold=0.02)


def add_holders(server: Server, log: Log) -> None:
    def hold() -> None:
        log.wait()

    @server.tool
    async def held() -> str:
        hold()
        return "over"

    @server.tool(inline=True)
    def inline() -> str:
        hold()
        return "over"

    @server.tool(max_concurrency=2)
    async def limited() -> str:
        hold()
        return "over"

    @server.prompt
    async def asked() -> str:
        hold()
        return "over"

    @server.resource("lab://held")
    async def resource() -> str:
        hold()
        return "over"

    @server.resource("lab://{n}")
    async def template(n: str) -> str:
        hold()
        return "over"


@pytest.mark.parametrize(
    ("kind", "name", "label"),
    [
        ("tool", "held", "tool held"),
        ("tool", "inline", "tool inline"),
        ("tool", "limited", "tool limited"),
        ("prompt", "asked", "prompt asked"),
        ("resource", "lab://held", "resource lab://held"),
        ("resource", "lab://7", "resource template lab://{n}"),
    ],
)
async def test_the_handler_is_named_once(
    watchdog: Watchdog, log: Log, kind: str, name: str, label: str
) -> None:
    server = Server("lab")
    add_holders(server, log)
    with watchdog.watching(server.service):
        async with Client(server) as client:
            ask: Any = {
                "tool": client.call_tool,
                "prompt": client.get_prompt,
                "resource": client.read_resource,
            }[kind]
            await ask(name)
            [line] = log.lines
            assert line.startswith(f"lab: {label} has held the event loop for more than 0.02 s")
            assert "test_watchdog.py:" in line
            for _ in range(3):
                await ask(name)  # is not held any more
    assert log.lines == [line]


async def test_a_handler_that_is_held_again_is_not_named_again(
    watchdog: Watchdog, log: Log
) -> None:
    server = Server("lab")
    add_holders(server, log)
    with watchdog.watching(server.service):
        async with Client(server) as client:
            await client.call_tool("held")
            log.written.clear()
            again = threading.Thread(target=functools.partial(_release_later, log))
            again.start()
            await client.call_tool("held")
            again.join()
    assert len(log.lines) == 1


def _release_later(log: Log) -> None:
    time.sleep(0.3)  # many times what is named at the first time
    log.written.set()


async def test_middleware_is_named(watchdog: Watchdog, log: Log) -> None:
    server = Server("lab")
    server.add_tool(lambda: "done", name="quick")

    @server.add_middleware
    async def slow(request: InboundRequest, call_next: CallNext) -> Reply | None:
        if request.method == "tools/call":
            log.wait()
        return await call_next(request)

    with watchdog.watching(server.service):
        async with Client(server) as client:
            assert (await client.call_tool("quick")).text == "done"
    assert "middleware" in log.lines[0] and "slow has held" in log.lines[0]


async def test_a_thread_and_a_busy_loop_are_not_named(log: Log) -> None:
    server = Server("lab")
    watchdog = Watchdog(look=0.001, hold=20)

    @server.tool
    def blocks() -> str:
        time.sleep(0.05)
        return "over"

    @server.tool
    async def computes() -> int:
        return sum(range(10_000))

    with watchdog.watching(server.service):
        async with Client(server) as client:
            await client.call_tool("blocks")
            for _ in range(300):
                await client.call_tool("computes")
    assert log.lines == []


async def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_WATCHDOG", "0")
    with Watchdog(name="lab-off").watching(Server("a").service):
        assert "lab-off" not in [one.name for one in threading.enumerate()]


async def test_one_thread_watches_all_and_ends() -> None:
    def threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "lab-watchdog"]

    watchdog = Watchdog(look=0.001, name="lab-watchdog")
    with watchdog.watching(Server("a").service):
        with watchdog.watching(Server("b").service):
            [thread] = threads()
        assert threads() == [thread]
    thread.join(60)
    assert not thread.is_alive()


async def test_a_server_needs_no_watchdog(
    watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*args: Any, **options: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with watchdog.watching(Server("lab").service):
        pass
