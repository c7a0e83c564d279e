"""Tasks as a client sees them: the same calls in both eras, against our own server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.peer import LEGACY_PEER, LinePeer, Talk
from lab.task import MakeStore, Workshop, book_of, kept
from lab.task_peer import legacy as legacy_rules
from lab.task_peer import modern as modern_rules
from lab.wording import raises

from wirespeed import Client, Context, Server, Stdio, SyncClient
from wirespeed.client.tasks.calls import TASKS
from wirespeed.client.tasks.messages import TaskState
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InputNeeded,
    InvalidResponse,
    LocalError,
    RemoteError,
    TaskCancelled,
)


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


@contextlib.asynccontextmanager
async def client_of(shop: Workshop | Server, era: str, **options: Any) -> Any:
    server = shop.server if isinstance(shop, Workshop) else shop
    async with Client(server, era=era, extensions=[TASKS], **options) as client:
        yield client
    if server.service.tasks.service is not None:
        await server.service.tasks.service.close()


async def test_a_task_from_its_start_to_its_result(era: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(), poll_interval=0.02)
    async with client_of(shop, era) as client:
        task = await client.start_tool("double", {"n": 21})
        assert isinstance(task.id, str) and task.tool == "double"
        assert task.state.status == "working" and not task.state.over
        assert task.state.poll_interval == 0.02
        assert (await task.status()).status == "working"
        seen: list[str] = []
        async for state in task:
            seen.append(state.status)
            shop.gate.set()
        assert seen == ["working", "completed"]
        result = await task.result()
        assert result.structured_content == {"result": 42}
        assert await task.result() == result
        # found again by its id
        again = await client.get_task(task.id)
        assert again.state.over
        assert (await again.result()).structured_content == {"result": 42}


async def test_the_result_is_waited_for(era: Any) -> None:
    shop = Workshop()  # polled once a second: news make it quick
    async with client_of(shop, era) as client:
        task = await client.start_tool("double", {"n": 4})
        asyncio.get_running_loop().call_soon(shop.gate.set)
        both = await asyncio.gather(task.result(), task.result())
        assert [one.structured_content for one in both] == [{"result": 8}] * 2


async def test_a_failing_tool_is_no_error(era: Any) -> None:
    """A tool's error ends its task as any result does, seen from the client."""
    async with client_of(Workshop(poll_interval=0.02), era) as client:
        task = await client.start_tool("fails")
        result = await task.result()
        assert result.is_error and result.text == "out of ink"
        assert task.state.status in ("working", "failed" if era == "legacy" else "completed")


async def test_an_error_is_one(era: Any) -> None:
    async with client_of(Workshop(poll_interval=0.02), era) as client:
        task = await client.start_tool("refuses")
        with raises(RemoteError, code=-31500) as caught:
            await task.result()
        assert caught.value.code == -31500 and caught.value.data == {"why": "sunday"}
        assert (await task.status()).status == "failed"


async def test_cancelling(era: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(), poll_interval=0.02)
    async with client_of(shop, era) as client:
        task = await client.start_tool("double", {"n": 4})
        while not shop.started:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(task.result())
        await asyncio.sleep(0)
        state = await task.cancel()
        assert state.status == "cancelled" and task.state.over
        with raises(TaskCancelled, code=-31002):
            await waiting
        with pytest.raises(TaskCancelled):
            await task.result()
        while not shop.cancelled:
            await asyncio.sleep(0)
        if era == "legacy":
            with raises(RemoteError, code=-32602):
                await task.cancel()
        else:
            assert (await task.cancel()).status == "cancelled"


async def test_waiting_has_its_own_time_limit(era: Any) -> None:
    shop = Workshop(poll_interval=0.02)
    async with client_of(shop, era) as client:
        task = await client.start_tool("double", {"n": 4})
        with raises(CallTimeout):
            await task.result(timeout=0.05)
        assert not shop.cancelled
        shop.gate.set()
        assert (await task.result()).structured_content == {"result": 8}


async def test_questions_go_to_the_handlers(era: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(), poll_interval=0.02)
    async with client_of(shop, era, roots=["file:///srv"]) as client:
        task = await client.start_tool("ask_roots", {"times": 2})
        result = await task.result()
        (first, second) = result.structured_content["result"]
        assert first["roots"] == second["roots"] == [{"uri": "file:///srv"}]
        # also when nobody waits for the result, but for its states
        task = await client.start_tool("ask_roots", {"times": 1})
        states = [state.status async for state in task]
        assert states[-1] == "completed"


async def test_answers_by_hand() -> None:
    shop = Workshop(poll_interval=0.02)
    async with client_of(shop, "modern", capabilities={"roots": {}}) as client:
        task = await client.start_tool("ask_roots", {"times": 1})
        with pytest.raises(InputNeeded) as caught:
            await task.result()
        (key,) = caught.value.requests
        with raises(ValueError):
            await task.answer({"x": []})
        await task.answer({key: ["file:///srv"]})
        result = await task.result()
        assert result.structured_content["result"][0]["roots"] == [{"uri": "file:///srv"}]


async def test_what_was_not_declared_is_not_answered() -> None:
    async with client_of(Workshop(poll_interval=0.02), "modern") as client:
        task = await client.start_tool("ask_roots", {"times": 1})
        with raises(InvalidResponse):
            await task.result()


async def test_a_plain_call_of_what_becomes_a_task() -> None:
    """`call_tool` gives the result, however the server came to it."""
    shop = Workshop(poll_interval=0.02)
    async with client_of(shop, "modern", roots=["file:///srv"]) as client:
        asyncio.get_running_loop().call_soon(shop.gate.set)
        result = await client.call_tool("must", {"n": 3})
        assert result.structured_content == {"result": 3}
        result = await client.call_tool("ask_roots", {"times": 1})
        assert result.structured_content["result"][0]["roots"] == [{"uri": "file:///srv"}]
        result = await client.call_tool("fails")
        assert result.is_error
        with raises(RemoteError, code=-31500):
            await client.call_tool("refuses")


async def test_a_plain_call_that_is_given_up_cancels_its_task() -> None:
    shop = Workshop(poll_interval=0.02)
    async with client_of(shop, "modern") as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("must", {"n": 3}, timeout=0.1)
        while shop.cancelled != ["must"]:
            await asyncio.sleep(0.001)
        call = asyncio.create_task(client.call_tool("must", {"n": 3}))
        while len(shop.started) < 2 or not book_of(shop.server).listeners.listened:
            await asyncio.sleep(0.001)  # until the client knows that it is a task
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while shop.cancelled != ["must", "must"]:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("listed", [False, True])
async def test_a_call_that_runs_as_a_task_reports_progress(listed: bool) -> None:
    server = Server("lab")
    seen: list[Any] = []

    @server.tool(task="required")
    async def crawl(ctx: Context) -> int:
        await ctx.progress(1, 2, "half")
        await ctx.progress(2, 2)
        return 7

    async with client_of(server, "legacy") as client:
        if listed:
            await client.list_tools()
        result = await client.call_tool("crawl", on_progress=lambda *report: seen.append(report))
        assert result.text == "7"
        assert seen == [(1.0, 2.0, "half"), (2.0, 2.0, None)]


async def test_any_other_refusal_is_raised_as_it_is(tmp_path: Path) -> None:
    async def refuse(talk: Talk, message: dict[str, Any]) -> None:
        text = "no task" if "task" in message["params"] else "no such tool"
        await talk.send(id=message["id"], error={"code": -32601, "message": text})

    for rules, calls in ((legacy_rules(), 2), (LEGACY_PEER, 1), (modern_rules(), 1)):
        async with (
            LinePeer({**rules, "tools/call": refuse}, tmp_path) as peer,
            Client(peer.url, extensions=[TASKS]) as client,
        ):
            with pytest.raises(RemoteError, match="no such tool"):
                await client.call_tool("t")
            assert len(peer.sent("tools/call")) == calls


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("listed", [False, True])
async def test_a_tool_that_only_runs_as_a_task_is_called_as_one(
    middleware: bool, listed: bool
) -> None:
    """2025-11-25 basic/utilities/tasks, "Tool-Level Negotiation": a listed tool at once, any other
    when the server refuses the plain call."""
    shop = Workshop(poll_interval=0.02)

    async def through(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    options: dict[str, Any] = {"middleware": [through]} if middleware else {}
    async with client_of(shop, "legacy", **options) as client:
        if listed:
            await client.list_tools()
        with raises(CallTimeout):
            await client.call_tool("must", {"n": 3}, timeout=0.1)
        while shop.cancelled != ["must"]:
            await asyncio.sleep(0.001)
        shop.gate.set()
        before = client.counters["messages_out"]
        result = await client.call_tool("must", {"n": 3})
        assert result.structured_content == {"result": 3}
        sent = client.counters["messages_out"] - before
        assert sent == (2 if listed else 3)  # tools/call and tasks/result, tools/list for `data`
        assert await client.call_tool("must", {"n": 4}, type=int) == 4
        assert (await client.call_tool("plain")).text == "plain"
        assert {state.status for state in await client.list_tasks()} == {
            "cancelled",
            "completed",
        }


async def test_without_the_extension_nothing_is_a_task() -> None:
    shop = Workshop()
    async with Client(shop.server, era="modern") as client:
        await client.list_tools()
        before = client.counters["messages_out"]
        assert (await client.call_tool("blocking", {"n": 1})).structured_content == {"result": 2}
        assert client.counters["messages_out"] == before + 1
        with pytest.raises(RemoteError) as caught:
            await client.request("tools/call", {"name": "must", "arguments": {}})
        assert caught.value.code == -32021


async def test_a_tool_that_only_runs_as_a_task_needs_no_declared_extension() -> None:
    """2026-07-28: the server refuses the plain call, and gets one that declares the extension."""
    shop = Workshop(poll_interval=0.02)
    async with Client(shop.server, era="modern") as client:
        with raises(CallTimeout):
            await client.call_tool("must", {"n": 3}, timeout=0.1)
        while shop.cancelled != ["must"]:
            await asyncio.sleep(0.001)
        shop.gate.set()
        assert await client.call_tool("must", {"n": 3}, type=int) == 3
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("nothing")
        assert caught.value.code == -32602


CHILD = """
from wirespeed import Context, Server

server = Server("mill")

@server.tool(task="required")
async def grind(bags: int, ctx: Context) -> str:
    answer = await ctx.elicit("How fine?", str)
    return f"{bags} bags of {answer.content} flour"

server.run()
"""


async def test_a_server_process_runs_a_tool_as_a_task(tmp_path: Path, era: Any) -> None:
    """Its question reaches the client's handler."""
    (tmp_path / "mill.py").write_text(CHILD)

    async def on_elicit(request: Any) -> Any:
        return {"value": "rye"}

    target = Stdio(sys.executable, [tmp_path / "mill.py"])
    async with Client(target, era=era, on_elicit=on_elicit) as client:
        result = await client.call_tool("grind", {"bags": 2})
        assert result.text == "2 bags of rye flour"


async def test_a_started_tool_needs_no_declared_extension() -> None:
    shop = Workshop(poll_interval=0.02)
    async with Client(shop.server, era="modern") as client:
        for tool in ("double", "must"):
            shop.gate.clear()
            task = await client.start_tool(tool, {"n": 4})
            assert task.state.status == "working"
            shop.gate.set()
            assert (await task.result()).structured_content is not None
            again = await client.get_task(task.id)
            assert (await again.status()).status == "completed"


async def test_servers_and_tools_without_tasks(era: Any) -> None:
    """The handle is over from the start."""
    bare = Server("bare")

    @bare.tool
    async def plain(n: int = 1) -> int:
        return n

    for server in (bare, Workshop().server):
        async with client_of(server, era) as client:
            task = await client.start_tool("plain")
            assert task.id is None and task.state == TaskState(None, "completed")
            assert [state.status async for state in task] == ["completed"]
            assert not (await task.result()).is_error
            assert (await task.status()).over and (await task.cancel()).over


async def test_progress_of_a_task() -> None:
    """In 2025-11-25 the token lives as long as the task."""
    shop = Workshop()
    seen: list[Any] = []
    async with client_of(shop, "legacy") as client:
        task = await client.start_tool(
            "double", {"n": 1}, on_progress=lambda *args: seen.append(args)
        )
        shop.gate.set()
        await task.result()
        assert seen == [(1.0, 2.0, "begun"), (2.0, 2.0, None)]
        assert not kept()


async def test_the_time_to_live_is_wished_for() -> None:
    async with client_of(Workshop(), "legacy") as client:
        task = await client.start_tool("blocking", {"n": 1}, ttl=90)
        assert task.state.ttl == 90.0
        await task.result()
        with raises(ValueError):
            await client.start_tool("blocking", {"n": 1}, ttl=-1)


async def test_listing() -> None:
    shop = Workshop(server={"page_size": 2})
    async with client_of(shop, "legacy") as client:
        tasks = [await client.start_tool("double", {"n": n}) for n in range(5)]
        assert [state.id for state in await client.list_tasks()] == [t.id for t in tasks]
    async with client_of(shop, "modern") as client:
        with raises(LocalError):
            await client.list_tasks()
    async with Client(shop.server, era="modern") as client:
        with pytest.raises(RemoteError) as caught:
            await client.get_task("x")
        assert caught.value.code == -32602


async def test_arguments(era: Any) -> None:
    async with client_of(Workshop(poll_interval=0.02), era) as client:
        task = await client.start_tool("blocking", b'{"n":\n 1}')
        assert (await task.result()).structured_content == {"result": 2}
        for bad in (b"[1]", b"{", b"\xff"):
            with raises(ValueError):
                await client.start_tool("blocking", bad)
        with raises(TypeError):
            await client.start_tool("blocking", [1])
        with pytest.raises((RemoteError, AssertionError)):
            # not a task in 2025-11-25, a result there
            task = await client.start_tool("blocking", {"n": "x"})
            assert not (await task.result()).is_error


async def test_tasks_that_are_not_there(era: Any) -> None:
    async with client_of(Workshop(), era) as client:
        with raises(RemoteError, code=-32602) as caught:
            await client.get_task("x")
        assert caught.value.code == -32602


async def test_a_client_that_closes_ends_the_waiting(era: Any) -> None:
    shop = Workshop()
    async with client_of(shop, era) as client:
        task = await client.start_tool("double", {"n": 1})
        waiting = asyncio.create_task(task.result())
        while not shop.started:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionClosed):
            await waiting


@pytest.mark.parametrize("bad", ["io.modelcontextprotocol/tasks", {"x/y": 1}, [1]])
def test_extensions_are_names_and_settings(bad: Any) -> None:
    with raises(TypeError):
        Client(Server("x"), extensions=bad)


def test_without_an_event_loop(era: Any) -> None:
    server = Server("lab")
    server.use_tasks(poll_interval=0.02)

    @server.tool(task="required")
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    with SyncClient(server, era=era, extensions=[TASKS]) as client:
        task = client.start_tool("double", {"n": 4})
        assert task.id is not None and task.tool == "double"
        states = list(task)
        assert states[-1].status == "completed" and task.state.over
        assert task.result().structured_content == {"result": 8}
        again = client.get_task(task.id)
        assert again.status().over and again.result().structured_content == {"result": 8}
        if era == "legacy":
            assert [state.id for state in client.list_tasks()] == [task.id]
            with raises(RemoteError, code=-32602):
                task.cancel()
        else:
            assert task.cancel().status == "completed"
        with raises(ValueError):
            task.answer({"x": 1})
        assert "completed" in repr(task)
