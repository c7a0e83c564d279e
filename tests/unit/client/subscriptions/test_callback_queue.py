"""Callbacks of a client that are coroutine functions: in order, one at a time, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lab.client import Run, turns, until
from lab.feature import SUBSCRIPTION, peer, updated
from lab.peer import Talk

from wirespeed import Client
from wirespeed.client import callback_queue as callbacks
from wirespeed.client.callback_queue import CallbackQueue

PROGRESS = "notifications/progress"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many values may wait."""
    monkeypatch.setattr(callbacks, "MAX_WAITING", 3)
    return 3


class Slow:
    """A callback that takes its time: each call ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.go = asyncio.Semaphore(0)

    async def __call__(self, *values: Any) -> None:
        assert len(self.begun) == len(self.ended)
        value = values[0] if len(values) == 1 else values
        self.begun.append(value)
        await self.go.acquire()
        self.ended.append(value)

    def release(self, n: int = 1) -> None:
        for _ in range(n):
            self.go.release()


# -- alone -----------------------------------------------------------------------------------------


async def test_in_order_and_one_at_a_time() -> None:
    slow = Slow()
    told = CallbackQueue(slow, "it", asyncio.ensure_future)
    for n in range(5):
        told(n)
    slow.release(5)
    await until(lambda: slow.ended == [0, 1, 2, 3, 4])
    told(5)
    slow.release()
    await until(lambda: slow.ended[-1] == 5)


async def test_a_plain_function_is_called_at_once(once: Run) -> None:
    got: list[int] = []
    told = CallbackQueue(got.append, "it", asyncio.ensure_future)
    for n in range(3):
        told(n)
        assert got == list(range(n + 1))


async def test_what_comes_as_the_last_one_ends_is_not_lost() -> None:
    """In every turn of the loop around its end."""
    for n in range(8):
        got: list[str] = []

        async def note(value: str, got: list[str] = got) -> None:
            got.append(value)

        told = CallbackQueue(note, "it", asyncio.ensure_future)
        told("first")
        await turns(n)
        told("second")
        await until(lambda got=got: got == ["first", "second"])  # type: ignore[misc]


async def test_the_oldest_make_room(once: Run, few: int, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    told = CallbackQueue(slow, "on_that", asyncio.ensure_future)
    for _ in range(2):
        slow.begun.clear()
        slow.ended.clear()
        for n in range(10):
            told(n)
        await turns()
        slow.release(few + 1)
        await until(lambda: slow.ended == [0, 7, 8, 9])
    [record] = caplog.records
    assert record.getMessage() == (
        "on_that is slower than the server: 3 calls of it wait, and the oldest are left out from "
        "now on"
    )


async def test_equal_values_wait_once_where_that_is_enough(once: Run, few: int) -> None:
    slow = Slow()
    told = CallbackQueue(slow, "it", asyncio.ensure_future, once=True)
    for value in "aababbcab":
        told(value)
    slow.release(9)
    await until(lambda: slow.ended == ["a", "a", "b", "c"])
    await turns()
    assert slow.ended == ["a", "a", "b", "c"]


async def test_what_it_raises_is_logged_and_the_next_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[int] = []

    def fail(n: int) -> Any:
        got.append(n)
        if n == 1:
            raise ZeroDivisionError("at once")

        async def later() -> None:
            await asyncio.sleep(0)
            if n == 2:
                raise ZeroDivisionError("later")
            if n == 3:
                raise asyncio.CancelledError("by itself")

        return later()

    told = CallbackQueue(fail, "on_that", asyncio.ensure_future)
    for n in range(5):
        told(n)
    await until(lambda: got == [0, 1, 2, 3, 4])
    await turns()
    assert [record.getMessage() for record in caplog.records] == ["on_that failed"] * 3


@pytest.mark.parametrize("begun", [False, True])
async def test_it_ends_with_its_client(begun: bool) -> None:
    tasks: list[asyncio.Future[Any]] = []

    def spawn(work: Any) -> asyncio.Future[Any]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    slow = Slow()
    told = CallbackQueue(slow, "it", spawn)
    told(1)
    told(2)
    if begun:
        await turns()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    await turns()
    assert slow.begun == [1] * begun
    slow.begun.clear()
    told(3)
    slow.release()
    await until(lambda: slow.ended == [3])


# -- of a client -----------------------------------------------------------------------------------


async def test_a_flood_of_logs(tmp_path: Path, era: Any, few: int) -> None:
    server = peer(tmp_path, era)
    slow = Slow()
    async with server, Client(server.url, era=era, on_log=lambda log: slow(log.data)) as client:
        for n in range(100):
            params = {"level": "info", "data": n}
            await server.talks[0].send(method="notifications/message", params=params)
        tasks = len(asyncio.all_tasks())
        await client.list_tools()
        assert len(asyncio.all_tasks()) <= tasks + 2
        slow.release(100)
        await until(lambda: slow.ended == [0, 97, 98, 99])


async def test_updates_of_one_resource_wait_once(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    slow = Slow()
    async with server, Client(server.url, era=era, on_resource_updated=slow) as client:
        await client.subscribe_resource("x://a")
        await client.subscribe_resource("x://b")
        [talk] = server.talks
        for listen in talk.sent("subscriptions/listen")[:-1]:
            talk.messages.remove(listen)  # the last one took its place
        for uri in ("x://a", "x://a", "x://b", "x://a"):
            await updated(talk, uri)
        await client.list_tools()
        slow.release(4)
        await until(lambda: slow.ended == ["x://a", "x://a", "x://b"])


async def test_lists_are_told_one_at_a_time(tmp_path: Path) -> None:
    """While one is worked on, the list may change often: it is got once more after that."""
    server = peer(tmp_path, "legacy")
    slow = Slow()

    async def on_tools(tools: list[Any]) -> None:
        await slow(len(tools))

    async with server, Client(server.url, era="legacy", on_tools_changed=on_tools) as client:
        for _ in range(20):
            await server.talks[0].send(method="notifications/tools/list_changed")
            await client.ping()
        await until(lambda: slow.begun)
        assert len(server.sent("tools/list")) == 1
        slow.release(2)
        await until(lambda: len(slow.ended) == 2)
        await client.ping()
        assert len(server.sent("tools/list")) == 2


async def _steps(talk: Talk, message: dict[str, Any]) -> None:
    token = message["params"]["_meta"]["progressToken"]
    for n in range(10):
        await talk.send(method=PROGRESS, params={"progressToken": token, "progress": n})
    await talk.text(message, "done")


async def test_progress_in_order(tmp_path: Path, era: Any, few: int) -> None:
    server = peer(tmp_path, era, {"tools/call": _steps, "prompts/get": _steps_of_prompt})
    async with server, Client(server.url, era=era) as client:
        for call in (
            lambda slow: client.call_tool("t", on_progress=slow),
            lambda slow: client.get_prompt("p", on_progress=slow),
        ):
            slow = Slow()
            await call(lambda progress, *_, slow=slow: slow(progress))
            slow.release(10)
            await until(lambda slow=slow: slow.ended == [0, 7, 8, 9])  # type: ignore[misc]


async def _steps_of_prompt(talk: Talk, message: dict[str, Any]) -> None:
    token = message["params"]["_meta"]["progressToken"]
    for n in range(10):
        await talk.send(method=PROGRESS, params={"progressToken": token, "progress": n})
    await talk.result(message, {"messages": [], "resultType": "complete"})


async def test_completed_elicitations_in_order(tmp_path: Path) -> None:
    server = peer(tmp_path, "legacy")
    ids = ["a", "b", "c"]
    slow = Slow()
    async with (
        server,
        Client(
            server.url,
            era="legacy",
            on_elicit_url=lambda _: "accept",
            on_elicit_complete=slow,
        ) as client,
    ):
        [talk] = server.talks
        for id in ids:
            await talk.send(
                id=id,
                method="elicitation/create",
                params={
                    "mode": "url",
                    "message": "go",
                    "url": "https://a.b",
                    "elicitationId": id,
                },
            )
        await until(lambda: sum("result" in m for m in talk.messages) == 3)
        for id in ids:
            await talk.send(
                method="notifications/elicitation/complete", params={"elicitationId": id}
            )
        await client.ping()
        slow.release(3)
        await until(lambda: slow.ended == ids)


async def test_closing_ends_what_waits(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    slow = Slow()
    async with server:
        client = Client(server.url, era=era, on_resource_updated=slow)
        await client.open()
        await client.subscribe_resource("x://a")
        await updated(server.talks[0], "x://a")
        await updated(server.talks[0], "x://a")
        await until(lambda: slow.begun)
        await client.close()
        slow.release(5)
        await turns(20)
        assert slow.begun == ["x://a"] and slow.ended == []


async def test_a_callback_may_close_its_client(tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    closed: list[str] = []

    async def on_updated(uri: str) -> None:
        await client.close()
        closed.append(uri)

    async with server:
        client = Client(server.url, era=era, on_resource_updated=on_updated)
        await client.open()
        await client.subscribe_resource("x://a")
        for n in range(3):
            params: dict[str, Any] = {"uri": f"x://a/{n}"}
            if era == "modern":
                id = server.talks[0].sent("subscriptions/listen")[0]["id"]
                params["_meta"] = {SUBSCRIPTION: id}
            await server.talks[0].send(method="notifications/resources/updated", params=params)
        await until(lambda: closed)
        await turns(20)
        assert closed == ["x://a/0"]
