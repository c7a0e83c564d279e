"""Deadlines and cancellation: who is told, how often, and which of two wins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import FOREVER, LEGACY, MODERN, Fake, Run, text_result, turns, until
from lab.peer import LEGACY_PEER, MODERN_PEER, TOOL, LinePeer, Talk, nothing
from lab.wording import raises

from wirespeed import Client
from wirespeed.client.connection.connection import ClientConnection
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    LocalError,
    RemoteError,
    TransportError,
)
from wirespeed.limits import Limits
from wirespeed.transport.link import Link

Make = Callable[..., Fake]

HANGS = LEGACY | {
    "tools/call:hang": [],
    "tools/call:later": [["later", [["result", text_result("late")]]]],
    "tools/call:release": [["release"], ["result", text_result("released")]],
}


def cancelled_ids(server: Fake) -> list[int]:
    return [m["params"]["requestId"] for m in server.sent("notifications/cancelled")]


def ids(server: Fake, tool: str) -> list[int]:
    return [m["id"] for m in server.sent("tools/call") if m["params"]["name"] == tool]


@pytest.mark.parametrize("base", [{}, MODERN], ids=["legacy", "modern"])
async def test_a_timeout_is_local_and_tells_the_server(fake: Make, base: Any) -> None:
    server = fake(HANGS | base)
    async with Client(server.target) as client:
        with raises(CallTimeout) as caught:
            await client.call_tool("hang", timeout=0.02)
        assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, LocalError)
        assert not isinstance(caught.value, RemoteError)
        await server.got("notifications/cancelled")
        assert client.counters["requests_outstanding"] == 0
        assert (await client.call_tool("echo")).text == "ok"
    [message] = server.sent("notifications/cancelled")
    assert message["params"] == {"requestId": ids(server, "hang")[0], "reason": "timed out"}


async def test_a_late_answer_is_ignored(fake: Make) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy") as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("later", timeout=0.02)
        assert (await client.call_tool("release")).text == "released"
        assert client.counters["late_responses"] == 1


async def test_the_clients_timeout_is_the_default(once: Run, fake: Make) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy", timeout=0.02) as client:
        for request in (
            client.call_tool("hang"),
            client.request("nothing/answers"),
            client.list_tools_page(timeout=0.0),
        ):
            with pytest.raises(CallTimeout):
                await request
        await client.call_tool("echo", timeout=FOREVER)


async def test_no_timeout(once: Run, fake: Make) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy", timeout=None) as client:
        waiting = [
            asyncio.create_task(client.call_tool("later")),
            asyncio.create_task(client.call_tool("later", timeout=None)),
            asyncio.create_task(client.call_tool("later", timeout=float("inf"))),
        ]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        await client.call_tool("release", timeout=None)
        assert [task.result().text for task in waiting] == ["late"] * 3
    assert not cancelled_ids(server)


@pytest.mark.parametrize("what", ["timeout", "handshake_timeout", "probe_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, -0.5])
def test_timeouts_of_a_client_are_above_nothing(fake: Make, what: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"^{what} must be seconds above 0"):
        Client(fake(LEGACY).target, **{what: seconds})


async def test_not_a_number_is_no_timeout(once: Run, fake: Make) -> None:
    async with Client(fake(LEGACY).target, era="legacy") as client:
        with raises(ValueError):
            await client.call_tool("echo", timeout=float("nan"))
        with pytest.raises(TypeError):
            await client.call_tool("echo", timeout="5")  # type: ignore[arg-type]
        assert client.counters["requests_outstanding"] == 0


async def test_many_deadlines_pass_in_their_order(fake: Make) -> None:
    server = fake(HANGS)
    ended: list[int] = []

    async def wait(client: Client, i: int) -> None:
        # the later a call starts, the earlier it ends; ten at once each time
        with pytest.raises(CallTimeout):
            await client.call_tool("hang", {"i": i}, timeout=0.05 * (12 - i // 10))
        ended.append(i // 10)

    async with Client(server.target, era="legacy") as client:
        waiting = [asyncio.create_task(wait(client, i)) for i in range(100)]
        forever = asyncio.create_task(client.call_tool("hang", timeout=3600))
        assert (await client.call_tool("echo")).text == "ok"
        await asyncio.wait(waiting)
        assert ended == sorted(ended, reverse=True)
        assert client.counters["requests_outstanding"] == 1
        forever.cancel()
        await asyncio.wait([forever])
        await server.got("notifications/cancelled", 101)
    assert sorted(cancelled_ids(server)) == sorted(ids(server, "hang"))


class Owner:
    """Of a connection of which nothing is to be told."""

    def notified(self, connection: Any, message: Any) -> None: ...
    def skipped(self, message: Any) -> None: ...
    def lost(self, connection: Any, reason: str) -> None: ...


class Nowhere(Link):
    """A link that keeps what it is given."""

    def flush(self) -> None: ...
    def update_reading(self) -> None: ...


async def test_one_timer_for_all_deadlines(once: Run) -> None:
    loop = asyncio.get_running_loop()
    armed: list[Any] = []
    original = loop.call_at

    class Counting:
        """The loop, with its timers counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def call_at(self, when: float, *args: Any) -> Any:
            handle = original(when, *args)
            armed.append(handle)
            return handle

    connection = ClientConnection(Counting(), Limits(), Owner())  # type: ignore[arg-type]
    link = Nowhere(loop, connection)
    waiters = [connection.call_tool("x", None, 1000.0 + i, None) for i in range(1000)]
    assert len(armed) == 1
    early = connection.call_tool("x", None, 0.01, None)
    assert len(armed) == 2 and armed[0].cancelled()
    with pytest.raises(CallTimeout):
        await early.future
    assert len(armed) == 3 and not armed[2].cancelled()
    connection.fail(RuntimeError("over"))
    assert armed[2].cancelled()
    for waiter in waiters:
        with pytest.raises(RuntimeError, match="over"):
            await waiter.future
    link.detach()


# -- cancellation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [{}, MODERN], ids=["legacy", "modern"])
async def test_cancelling_a_task_tells_the_server_once(fake: Make, base: Any) -> None:
    server = fake(HANGS | base)
    async with Client(server.target) as client:
        task = asyncio.create_task(client.call_tool("hang"))
        await server.got("tools/call")
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.got("notifications/cancelled")
        await client.call_tool("echo")
        assert client.counters["requests_outstanding"] == 0
    assert cancelled_ids(server) == ids(server, "hang")


async def test_wait_for_timeout_and_task_group(fake: Make) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy") as client:
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(client.call_tool("hang"), 0.02)
        assert not isinstance(caught.value, CallTimeout)
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02):
                await client.call_tool("hang")
        assert not isinstance(caught.value, CallTimeout)
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(client.call_tool("hang"))
                group.create_task(client.call_tool("hang"))
                await client.call_tool("echo")
                raise ZeroDivisionError
        await server.got("notifications/cancelled", 4)
        await client.call_tool("echo")
    assert sorted(cancelled_ids(server)) == sorted(ids(server, "hang"))


async def test_a_call_cancelled_before_it_was_written_is_not_forgotten(
    once: Run, fake: Make
) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy") as client:
        task = asyncio.create_task(client.call_tool("hang"))
        task.cancel()  # before its first step: nothing is ever sent
        await asyncio.wait([task])
        task = asyncio.create_task(client.call_tool("hang"))
        await turns(1)
        task.cancel()  # in the tick in which it is written
        await asyncio.wait([task])
        await client.call_tool("echo")
    assert len(ids(server, "hang")) == 1
    assert cancelled_ids(server) == ids(server, "hang")


@pytest.mark.parametrize("first", ["answer", "cancellation"])
async def test_an_answer_in_the_tick_of_the_cancellation(
    fake: Make, first: str, connections: list[ClientConnection]
) -> None:
    """Whichever is first, the caller sees one end, and the server is told nothing: it answered."""
    server = fake(HANGS)
    async with Client(server.target, era="legacy") as client:
        task = asyncio.create_task(client.call_tool("later"))
        await server.got("tools/call")
        [connection] = connections
        line = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n' % ids(server, "later")[0]

        def answer() -> None:
            connection.session.receive_data(line)
            connection.on_data()

        steps = [answer, task.cancel]
        for step in steps if first == "answer" else reversed(steps):
            step()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.counters["requests_outstanding"] == 0
        assert client.counters["late_responses"] == 0
        await client.call_tool("echo")
    assert not cancelled_ids(server)


async def test_a_cancelled_call_does_not_wait_for_an_answer(once: Run, fake: Make) -> None:
    server = fake(HANGS)
    async with Client(server.target, era="legacy") as client:
        tasks = [asyncio.create_task(client.call_tool("hang")) for _ in range(50)]
        await server.got("tools/call", 50)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await server.got("notifications/cancelled", 50)
        assert client.counters["requests_outstanding"] == 0


async def test_cancelling_after_the_end_says_nothing(once: Run, fake: Make) -> None:
    server = fake(HANGS)
    client = Client(server.target, era="legacy")
    await client.open()
    task = asyncio.create_task(client.call_tool("hang"))
    await server.got("tools/call")
    closing = asyncio.create_task(client.close())
    await turns(1)
    task.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await task
    await closing
    assert not cancelled_ids(server)


# -- more than one request -------------------------------------------------------------------------


async def test_the_pages_of_a_list_share_its_time_limit(once: Run, tmp_path: Path) -> None:
    """Each comes at once, and they never end."""

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        page = {"tools": [TOOL], "resultType": "complete", "nextCursor": str(len(talk.messages))}
        await talk.result(message, page)

    async with (
        LinePeer(MODERN_PEER | {"tools/list": give}, tmp_path) as peer,
        Client(peer.url, timeout=FOREVER) as client,
    ):
        # the error names the limit, and not the rest of it that was left for a page
        with pytest.raises(CallTimeout, match=r"^tools/list: no answer within 0\.05 s$"):
            await client.list_tools(timeout=0.05)
        assert peer.sent("tools/list")


async def test_the_time_limit_of_the_first_request_is_also_that_of_the_start(
    once: Run, tmp_path: Path
) -> None:
    released = asyncio.Event()

    async def slow(talk: Talk, message: dict[str, Any]) -> None:
        await released.wait()
        await talk.result(message, MODERN_PEER["server/discover"])  # type: ignore[arg-type]

    async with LinePeer(MODERN_PEER | {"server/discover": slow}, tmp_path) as peer:
        async with Client(peer.url, auto_start=False, timeout=None) as client:
            for n in range(3):
                with raises(CallTimeout):
                    await client.call_tool("echo", timeout=0.02 * (n + 1))
            waiting = asyncio.create_task(client.call_tool("echo"))
            await turns()
            released.set()
            assert (await waiting).text == "ok"
        assert len(peer.talks) == 1  # it is started once, and who gives up does not end that


async def test_a_client_that_is_closed_while_it_starts(once: Run, tmp_path: Path) -> None:
    async with LinePeer(MODERN_PEER | {"server/discover": nothing}, tmp_path) as peer:
        async with Client(peer.url, auto_start=False) as client:
            waiting = asyncio.create_task(client.call_tool("echo"))
            await peer.got("server/discover")
            await client.close()
            with pytest.raises(ConnectionClosed):
                await waiting
        async with Client(peer.url, auto_start=False) as client:
            waiting = asyncio.create_task(client.call_tool("echo"))
            await asyncio.sleep(0)  # it has not begun
        with pytest.raises(ConnectionClosed):
            await waiting
        assert client.counters == {}  # it is closed


async def test_a_start_that_fails_is_told_to_everybody(once: Run, tmp_path: Path) -> None:
    async with Client(f"unix:{tmp_path}/none", auto_start=False) as client:
        calls = [asyncio.create_task(client.call_tool("echo")) for _ in range(2)]
        for call in calls:
            with pytest.raises(TransportError):
                await call
        async with LinePeer(MODERN_PEER, tmp_path) as peer:
            assert peer.path is not None
            peer.path.rename(tmp_path / "none")
            assert (await client.call_tool("echo")).text == "ok"


@pytest.mark.parametrize("base", [LEGACY_PEER, MODERN_PEER], ids=["legacy", "modern"])
@pytest.mark.parametrize("ask", ["ping", "set_log_level", "subscribe_resource", "discover"])
async def test_any_request_starts_the_client(
    once: Run, tmp_path: Path, base: Any, ask: str
) -> None:
    async with LinePeer(base, tmp_path) as peer:
        async with Client(peer.url, auto_start=False) as client:
            call = getattr(client, ask)
            arguments = {"set_log_level": ("info",), "subscribe_resource": ("file:///x",)}
            with contextlib.suppress(RemoteError, LocalError):
                await call(*arguments.get(ask, ()), timeout=0.2)
            assert client.protocol_version
        assert len(peer.talks) == 1


@pytest.mark.parametrize("answer", ["none", "error", "nonsense"])
async def test_a_legacy_server_that_sets_no_log_level_can_be_used(
    once: Run, tmp_path: Path, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    rule: Any = {"none": nothing, "error": (-32603, "no"), "nonsense": nonsense}[answer]
    async with LinePeer(LEGACY_PEER | {"logging/setLevel": rule}, tmp_path) as peer:
        options: Any = {"handshake_timeout": 0.2} if answer == "none" else {}
        async with Client(peer.url, era="legacy", log_level="info", **options) as client:
            assert (await client.call_tool("echo")).text == "ok"
            await until(lambda: "did not set the log level info" in caplog.text)


async def nonsense(talk: Talk, message: dict[str, Any]) -> None:
    await talk.send(id=message["id"], result="nonsense")
