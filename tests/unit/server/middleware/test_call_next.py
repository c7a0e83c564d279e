"""The awaitable of the last ``call_next`` behaves like a coroutine in every kind of awaiter."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from lab.raw import call
from lab.server import pass_on, text_of

from wirespeed import Server
from wirespeed.server.middleware.chain import HandlerAnswer
from wirespeed.server.middleware.inbound import InboundRequest, Reply

pytestmark = pytest.mark.compiled

TOOLS = pytest.mark.parametrize("tool", ["quick", "slow", "inline", "threaded"])


@pytest.fixture(autouse=True)
def tools(server: Server) -> list[str]:
    """The names of the tools that have run."""
    ran: list[str] = []

    @server.tool
    async def quick() -> str:
        ran.append("quick")
        return "x"

    @server.tool
    async def slow() -> str:
        ran.append("slow")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "x"

    @server.tool(inline=True)
    def inline() -> str:
        ran.append("inline")
        return "x"

    @server.tool
    def threaded() -> str:
        ran.append("threaded")
        return "x"

    @server.tool
    async def waits() -> str:
        await asyncio.Event().wait()
        return "never"

    return ran


def answer(connect: Any, tool: str) -> Any:
    return connect("2025-06-18").result(call(1, tool))


def given(request: InboundRequest, call_next: Any) -> Any:
    return call_next(request)


async def waited_for(request: InboundRequest, call_next: Any) -> Any:
    return await asyncio.wait_for(call_next(request), 10)


async def in_a_task(request: InboundRequest, call_next: Any) -> Any:
    return await asyncio.create_task(call_next(request))


async def gathered(request: InboundRequest, call_next: Any) -> Any:
    (reply,) = await asyncio.gather(call_next(request))
    return reply


async def stepped(request: InboundRequest, call_next: Any) -> Any:
    """By the methods of a coroutine."""
    ahead = call_next(request)
    while True:
        try:
            waits = ahead.send(None)
        except StopIteration as stop:
            return stop.value
        if waits is None:
            await asyncio.sleep(0)
        else:
            waits._asyncio_future_blocking = False
            await waits


@TOOLS
@pytest.mark.parametrize("middleware", [pass_on, given, waited_for, in_a_task, gathered, stepped])
def test_every_kind_of_awaiter(
    connect: Any, server: Server, tool: str, middleware: Callable[..., Any]
) -> None:
    server.add_middleware(middleware)
    assert text_of(answer(connect, tool)) == "x"


@TOOLS
def test_nothing_runs_before_it_is_awaited(
    connect: Any, server: Server, tool: str, tools: list[str]
) -> None:
    seen: list[Any] = []

    @server.add_middleware
    async def forgets(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        seen.append(call_next(request))
        return Reply.result({"content": [], "isError": False})

    assert answer(connect, tool)["content"] == []
    (ahead,) = seen
    assert isinstance(ahead, Coroutine)
    ahead.close()
    assert tools == []
    server.service.middleware.links = ()
    server.service.middleware.chain_changed()
    assert text_of(answer(connect, tool)) == "x"
    assert tools == [tool]


@TOOLS
def test_it_is_awaited_once(connect: Any, server: Server, tool: str) -> None:
    seen: list[Any] = []

    @server.add_middleware
    async def again(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        ahead = call_next(request)
        reply = await ahead
        with pytest.raises(RuntimeError) as failed:
            await ahead
        seen.append(failed.value)
        return reply

    assert text_of(answer(connect, tool)) == "x"
    assert len(seen) == 1


def test_an_exception_thrown_into_it_before_it_began_is_raised(
    connect: Any, server: Server
) -> None:
    seen: list[Any] = []

    @server.add_middleware
    async def throws(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        for exc in [(LookupError("mine"),), (LookupError, LookupError("mine"), None)]:
            ahead = call_next(request)
            with pytest.raises(LookupError, match="mine") as failed:
                ahead.throw(*exc)
            seen.append(failed.value)
            with pytest.raises(RuntimeError):
                ahead.send(None)
        ahead = call_next(request)
        ahead.close()
        with pytest.raises(RuntimeError):
            await ahead
        return await call_next(request)

    assert text_of(answer(connect, "quick")) == "x"
    assert len(seen) == 2


def test_closing_it_ends_the_handler(connect: Any, server: Server) -> None:
    ended: list[str] = []

    @server.tool
    async def tells() -> str:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("ended")
        return "never"

    @server.add_middleware
    async def closes(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        ahead = call_next(request)
        ahead.send(None)
        ahead.close()
        return Reply.result({"content": [], "isError": False})

    assert answer(connect, "tells")["content"] == []
    assert ended == ["ended"]


def test_a_failure_in_the_first_step_shows_where(connect: Any, server: Server, caplog: Any) -> None:
    """And is the tool's, not the middleware's."""
    seen: list[str] = []

    @server.tool
    async def fails() -> str:
        try:
            raise ValueError("no luck")
        except ValueError as exc:
            seen.extend(traceback.format_exception(exc))
            raise

    server.add_middleware(pass_on)
    assert answer(connect, "fails")["isError"] is True
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "tool fails failed" in record.message
    assert "no luck" in seen[-1]


def test_it_is_made_by_call_next_only() -> None:
    with pytest.raises(TypeError):
        HandlerAnswer()
