"""A client and the tasks of servers that do things in their own way, or wrongly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lab.client import LEGACY, MODERN, Fake, Rules, discovered, failed, initialized, text_result
from lab.wording import raises

from wirespeed import TASKS, Client
from wirespeed.errors import InvalidResponse, RemoteError, TaskCancelled
from wirespeed.types import TaskState

STAMP = "2026-11-22T08:00:00Z"
CAPABILITIES = {"tools": {}, "tasks": {"list": {}, "requests": {"tools": {"call": {}}}}}


def old(status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    times = {"createdAt": STAMP, "lastUpdatedAt": STAMP}
    return {"taskId": "t1", "status": status, **times, "ttl": 60000, "pollInterval": 20, **more}


def new(status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of the extension, in a result."""
    times = {"createdAt": STAMP, "lastUpdatedAt": STAMP}
    task = {"taskId": "t1", "status": status, **times, "ttlMs": 60000, "pollIntervalMs": 20}
    return task | {"resultType": "complete"} | more


def result(value: Any) -> list[list[Any]]:
    return [["result", value]]


DONE = new("completed", result=text_result("done") | {"resultType": "complete"})
CREATED = result(new(resultType="task"))
OLD: Rules = LEGACY | {
    "initialize": initialized(capabilities=CAPABILITIES),
    "tools/call": result({"task": old()}),
    "tasks/get": result(old()),
    "tasks/result": result(text_result("done")),
}
NEW: Rules = MODERN | {
    "server/discover": discovered(capabilities={"tools": {}, "extensions": {TASKS: {}}}),
    "tools/call": CREATED,
    "tasks/get": result(DONE),
    "tasks/cancel": result({"resultType": "complete"}),
    "subscriptions/listen": failed(-32601),
}


def client_of(folder: Path, rules: Rules, **options: Any) -> tuple[Fake, Client]:
    fake = Fake(folder, rules)
    return fake, Client(fake.target, extensions=[TASKS], **options)


# -- 2025-11-25 -----------------------------------------------------------------------------------


async def test_what_is_sent_in_2025(tmp_path: Path) -> None:
    fake, client = client_of(tmp_path, OLD)
    async with client:
        task = await client.start_tool("crawl", {"n": 1}, ttl=1.5, meta={"com.example/x": 1})
        assert task.state == TaskState("t1", "working", None, STAMP, STAMP, 60.0, 0.02)
        assert (await task.result()).text == "done"
    [call] = fake.sent("tools/call")
    assert call["params"] == {
        "name": "crawl",
        "arguments": {"n": 1},
        "task": {"ttl": 1500},
        "_meta": {"com.example/x": 1},
    }
    [fetch] = fake.sent("tasks/result")
    assert fetch["params"] == {"taskId": "t1"}
    assert not fake.sent("tasks/get")
    # extensions are none of this revision's
    [hello] = fake.sent("initialize")
    assert hello["params"]["capabilities"] == {}


async def test_without_the_capability_no_task_is_asked_for(tmp_path: Path) -> None:
    fake, client = client_of(tmp_path, LEGACY)
    async with client:
        task = await client.start_tool("crawl", ttl=1.5)
        assert task.id is None and (await task.result()).text == "ok"
    [call] = fake.sent("tools/call")
    assert call["params"] == {"name": "crawl"}


async def test_a_tool_that_is_no_task_is_called(tmp_path: Path) -> None:
    refusal = {"tools/call#1": failed(-32601), "tools/call#2": result(text_result("plain"))}
    fake, client = client_of(tmp_path, OLD | refusal)
    async with client:
        task = await client.start_tool("plain")
        assert (await task.result()).text == "plain"
    assert [("task" in call["params"]) for call in fake.sent("tools/call")] == [True, False]


async def test_other_errors_are_errors(tmp_path: Path) -> None:
    fake, client = client_of(tmp_path, OLD | {"tools/call": failed(-32602)})
    async with client:
        with pytest.raises(RemoteError):
            await client.start_tool("crawl")
    assert len(fake.sent("tools/call")) == 1


async def test_a_server_that_takes_no_notice(tmp_path: Path) -> None:
    """It declared tasks, and answers with the result nevertheless."""
    _, client = client_of(tmp_path, OLD | {"tools/call": result(text_result("at once"))})
    async with client:
        task = await client.start_tool("crawl")
        assert task.id is None and (await task.result()).text == "at once"


async def test_states_are_polled_where_nothing_is_told(tmp_path: Path) -> None:
    rules = {
        "tasks/get#1": result(old()),
        "tasks/get#2": result(old(statusMessage="half")),
        "tasks/get": result(old("completed")),
    }
    fake, client = client_of(tmp_path, OLD | rules)
    async with client:
        task = await client.start_tool("crawl")
        states = [(state.status, state.message) async for state in task]
    assert states == [("working", None), ("working", "half"), ("completed", None)]
    assert len(fake.sent("tasks/get")) == 3


async def test_news_come_before_the_next_look(tmp_path: Path) -> None:
    """The server wants to be asked seldom, and tells by itself."""
    news = (
        '{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t1",'
        '"status":"completed","createdAt":"","lastUpdatedAt":"","ttl":null}}'
    )
    slow = old(pollInterval=600_000)
    rules = {
        "tools/call": result({"task": slow}),
        "ping": [["raw", news.replace("t1", "other")], ["raw", news], ["result", {}]],
    }
    fake, client = client_of(tmp_path, OLD | rules)
    async with client:
        task = await client.start_tool("crawl")
        seen = []
        async for state in task:
            seen.append(state.status)
            if not state.over:
                await client.ping()
    assert seen == ["working", "completed"] and not fake.sent("tasks/get")
    assert task.state.ttl is None and task.state.poll_interval is None


async def test_who_asks_while_it_wants_input_asks_for_the_result(tmp_path: Path) -> None:
    """2025-11-25: "the requestor SHOULD preemptively call tasks/result"."""
    rules = {
        "tasks/get#1": result(old("input_required")),
        "tasks/get": result(old("completed")),
    }
    fake, client = client_of(tmp_path, OLD | rules)
    async with client:
        task = await client.start_tool("crawl")
        states = [state.status async for state in task]
    assert states == ["working", "input_required", "completed"]
    assert fake.sent("tasks/result")


async def test_a_cancelled_task_without_a_result(tmp_path: Path) -> None:
    rules = {"tasks/result": failed(-32603), "tasks/get": result(old("cancelled"))}
    _, client = client_of(tmp_path, OLD | rules)
    async with client:
        task = await client.start_tool("crawl")
        with pytest.raises(TaskCancelled):
            await task.result()


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_an_empty_result_is_not_taken_for_success(tmp_path: Path, status: str) -> None:
    """Python SDK 1.x answers tasks/result so, whatever became of the task."""
    rules = {
        "tasks/result": result({"content": []}),
        "tasks/get": result(old(status, statusMessage="what it says")),
    }
    _, client = client_of(tmp_path, OLD | rules)
    async with client:
        task = await client.start_tool("crawl")
        for _ in range(2):
            if status == "cancelled":
                with pytest.raises(TaskCancelled, match="what it says"):
                    await task.result()
            else:
                found = await task.result()
                assert found.is_error == (status == "failed")
                assert found.text == ("what it says" if status == "failed" else "")


@pytest.mark.parametrize(
    "task",
    [{}, 1, old("paused"), {"taskId": 1, "status": "working"}, old(ttl="x")],
    ids=["empty", "number", "status", "id", "ttl"],
)
async def test_tasks_that_are_none_in_2025(tmp_path: Path, task: Any) -> None:
    _, client = client_of(tmp_path, OLD | {"tools/call": result({"task": task})})
    async with client:
        with pytest.raises(InvalidResponse):
            await client.start_tool("crawl")


async def test_pages_of_tasks_that_never_end(tmp_path: Path) -> None:
    page = {"tasks": [old()], "nextCursor": ""}
    fake, client = client_of(tmp_path, OLD | {"tasks/list": result(page)})
    async with client:
        with raises(InvalidResponse):
            await client.list_tasks()
    assert [one["params"] for one in fake.sent("tasks/list")] == [{}, {"cursor": ""}]


# -- the extension --------------------------------------------------------------------------------


async def test_what_is_sent_in_2026(tmp_path: Path) -> None:
    fake, client = client_of(tmp_path, NEW)
    async with client:
        task = await client.start_tool("crawl", {"n": 1}, ttl=1.5)
        assert task.state == TaskState("t1", "working", None, STAMP, STAMP, 60.0, 0.02)
        assert (await task.result()).text == "done"
    [call] = fake.sent("tools/call")
    declared = call["params"].pop("_meta")["io.modelcontextprotocol/clientCapabilities"]
    assert declared == {"extensions": {TASKS: {}}}
    assert call["params"] == {"name": "crawl", "arguments": {"n": 1}}
    assert fake.sent("tasks/get")[0]["params"]["taskId"] == "t1"
    assert not fake.sent("tasks/result")
    [listen] = fake.sent("subscriptions/listen")
    assert listen["params"]["notifications"] == {"taskIds": ["t1"]}


async def test_news_bring_the_result(tmp_path: Path) -> None:
    tag = '"_meta":{"io.modelcontextprotocol/subscriptionId":$LISTEN}}}'
    acknowledged = (
        '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",'
        '"params":{"notifications":{"taskIds":["t1"]},' + tag
    )
    news = (
        '{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1",'
        '"status":"completed","createdAt":"","lastUpdatedAt":"","ttlMs":null,'
        '"result":{"content":[{"type":"text","text":"told"}]},' + tag
    )
    rules = {
        "tools/call": result(new(resultType="task", pollIntervalMs=600_000)),
        "subscriptions/listen": [["raw", acknowledged], ["raw", news]],
    }
    fake, client = client_of(tmp_path, NEW | rules)
    async with client:
        task = await client.start_tool("crawl")
        assert (await task.result()).text == "told"
    assert not fake.sent("tasks/get")


async def test_a_task_that_is_over_from_its_start(tmp_path: Path) -> None:
    """The seed state need not be working; what came of it is asked for."""
    fake, client = client_of(
        tmp_path, NEW | {"tools/call": result(new("completed", resultType="task"))}
    )
    async with client:
        task = await client.start_tool("crawl")
        assert task.state.over
        assert (await task.result()).text == "done"
    assert len(fake.sent("tasks/get")) == 1


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        (new("failed", error={"code": -5, "message": "broken"}), "broken"),
        (new("cancelled", statusMessage="enough"), "enough"),
    ],
)
async def test_ends_without_a_result(tmp_path: Path, shown: Any, error: str) -> None:
    _, client = client_of(tmp_path, NEW | {"tasks/get": result(shown)})
    async with client:
        task = await client.start_tool("crawl")
        with pytest.raises(RemoteError, match=error) as caught:
            await task.result()
        assert isinstance(caught.value, TaskCancelled) == (error == "enough")


@pytest.mark.parametrize(
    "shown",
    [
        {"resultType": "complete"},
        new("paused"),
        new("completed"),
        new("completed", result={"content": 1}),
        new("completed", result={"resultType": "input_required"}),
        new("failed"),
    ],
    ids=["empty", "status", "no result", "bad result", "unfinished", "no error"],
)
async def test_tasks_that_are_none_in_2026(tmp_path: Path, shown: Any) -> None:
    _, client = client_of(tmp_path, NEW | {"tasks/get": result(shown)})
    async with client:
        task = await client.start_tool("crawl")
        with pytest.raises(InvalidResponse):
            await task.result()


async def test_a_task_that_was_not_negotiated(tmp_path: Path) -> None:
    """A result type that nobody declared makes the response invalid."""
    fake = Fake(tmp_path, NEW)
    async with Client(fake.target) as client:
        with raises(InvalidResponse):
            await client.call_tool("crawl")


async def test_the_server_forgets_it(tmp_path: Path) -> None:
    _, client = client_of(tmp_path, NEW | {"tasks/get": failed(-32602, "Task has expired")})
    async with client:
        task = await client.start_tool("crawl")
        with raises(RemoteError, code=-32602):
            await task.result()


async def test_a_question_is_answered_once(tmp_path: Path) -> None:
    """The same key in a later look is the same question."""
    asks = new("input_required", inputRequests={"k": {"method": "roots/list"}})
    rules = {
        "tasks/get#1": result(asks),
        "tasks/get#2": result(asks | {"statusMessage": "still"}),
        "tasks/get": result(DONE),
        "tasks/update": result({"resultType": "complete"}),
    }
    fake, client = client_of(tmp_path, NEW | rules, roots=[tmp_path])
    async with client:
        task = await client.start_tool("crawl")
        assert (await task.result()).text == "done"
    [update] = fake.sent("tasks/update")
    assert update["params"]["taskId"] == "t1"
    assert update["params"]["inputResponses"] == {"k": {"roots": [{"uri": tmp_path.as_uri()}]}}


async def test_a_client_started_again_finds_its_tasks(tmp_path: Path) -> None:
    fake = Fake(tmp_path, NEW)
    async with Client(fake.target, extensions=[TASKS]) as client:
        task_id = (await client.start_tool("crawl")).id
    assert task_id is not None
    async with Client(fake.target, extensions=[TASKS]) as client:
        task = await client.get_task(task_id)
        assert task.tool is None and (await task.result()).text == "done"


async def test_iteration_may_be_left(tmp_path: Path) -> None:
    fake, client = client_of(tmp_path, NEW | {"tasks/get": result(new())})
    async with client:
        task = await client.start_tool("crawl")
        states = aiter(task)
        assert (await anext(states)).status == "working"
        await states.aclose()  # type: ignore[attr-defined]
        n = len(fake.sent("tasks/get"))
        await client.list_tools()
        assert len(fake.sent("tasks/get")) == n
        await asyncio.sleep(0)
