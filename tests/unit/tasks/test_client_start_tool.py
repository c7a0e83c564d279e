"""`Client.start_tool`: what it passes, how long it waits, and what is left of dropped handles."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from lab.client import text_result, until
from lab.peer import LinePeer, Talk
from lab.task import kept
from lab.task_peer import CREATED, DONE, FORM, OK, cancelled, legacy, modern, new, old
from lab.wording import raises

from wirespeed import TASKS, Client
from wirespeed.client.requests.middleware import OutboundRequest
from wirespeed.client.tasks.calls import ProgressSink
from wirespeed.client.tasks.task import TaskHandles
from wirespeed.errors import CallTimeout, InputNeeded, InvalidResponse, RemoteError
from wirespeed.types import ToolTask

pytestmark = pytest.mark.smoke

QUESTION = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}
INPUT = {"resultType": "input_required", "inputRequests": {"q": QUESTION}, "requestState": "s"}


def client_of(peer: LinePeer, era: Any = "modern", **options: Any) -> Client:
    return Client(peer.url, era=era, extensions=[TASKS], **options)


async def yes(request: Any) -> Any:
    return {"name": "Ada"}


async def asks_first(talk: Talk, message: dict[str, Any]) -> None:
    """A call that is asked about before it becomes a task."""
    answered = "inputResponses" in message["params"]
    await talk.result(message, CREATED if answered else INPUT)


# -- what it passes --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_it_passes_the_middleware(tmp_path: Path, era: str) -> None:
    seen: list[Any] = []

    async def stamp(request: OutboundRequest, call_next: Any) -> Any:
        if request.method == "tools/call":
            assert request.name == "crawl" and request.arguments == {"n": 1}
            request.arguments = {"n": 2}
            request.meta["com.example/x"] = 1
        result = await call_next(request)
        seen.append((request.method, type(result)))
        return result

    rules = legacy() if era == "legacy" else modern(DONE)
    async with (
        LinePeer(rules, tmp_path) as peer,
        client_of(peer, era, middleware=[stamp]) as client,
    ):
        task = await client.start_tool("crawl", {"n": 1})
        assert seen == [("tools/call", ToolTask)]
        assert (await task.result()).text == "done"
        [call] = peer.sent("tools/call")
        assert call["params"]["arguments"] == {"n": 2}
        assert call["params"]["_meta"]["com.example/x"] == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_its_result_is_checked(tmp_path: Path, at_once: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "crawl", "inputSchema": {"type": "object"}, "outputSchema": schema}
    bad = text_result("x") | {"structuredContent": {"n": "bad"}} | OK
    rules = modern(DONE | {"result": bad}) | {"tools/list": {"tools": [tool], **OK}}
    if at_once:
        rules["tools/call"] = bad
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, validate=True) as client:
        task = await client.start_tool("crawl")
        for _ in range(2):
            with raises(InvalidResponse):
                await task.result()


@pytest.mark.parametrize("method", ["call_tool", "start_tool"])
async def test_all_of_a_task_declares_the_extension(tmp_path: Path, method: str) -> None:
    """The client itself does not declare it, and no other request does. The caller answers the
    question, and gets the result of the task."""

    def declares(message: dict[str, Any]) -> bool:
        meta = message["params"]["_meta"]
        client = meta["io.modelcontextprotocol/clientCapabilities"]
        return client.get("extensions", {}).get(TASKS) == {} and "elicitation" in client

    async def call(talk: Talk, message: dict[str, Any]) -> None:
        if declares(message):
            await asks_first(talk, message)
        else:
            data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            error = {"code": -32021, "message": "tasks are needed", "data": data}
            await talk.send(id=message["id"], error=error)

    rules = modern(new(), DONE) | {"tools/call": call}
    options: Any = {"era": "modern", "capabilities": {"elicitation": {}}}
    async with LinePeer(rules, tmp_path) as peer, Client(peer.url, **options) as client:
        with pytest.raises(InputNeeded) as caught:
            await getattr(client, method)("crawl", {"n": 1}, meta={"com.example/x": 1})
        result = await client.resume(caught.value, {"q": {"name": "Ada"}})
        assert result.text == "done"
        calls = peer.sent("tools/call")
        assert [declares(one) for one in calls][-2:] == [True, True]
        assert len(calls) == (3 if method == "call_tool" else 2)
        assert {one["params"]["_meta"]["com.example/x"] for one in calls} == {1}
        assert all(map(declares, peer.sent("tasks/get") + peer.sent("subscriptions/listen")))
        assert peer.sent("tasks/get")
        assert peer.sent("subscriptions/listen")
        await client.list_tools()
        assert not declares(peer.sent("tools/list")[0])


async def test_another_missing_capability_is_an_error_at_once(tmp_path: Path) -> None:
    refusal = {"code": -32021, "message": "no", "data": {"requiredCapabilities": {"roots": {}}}}

    async def call(talk: Talk, message: dict[str, Any]) -> None:
        await talk.send(id=message["id"], error=refusal)

    rules = modern() | {"tools/call": call}
    async with LinePeer(rules, tmp_path) as peer, Client(peer.url, era="modern") as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("crawl")
        assert caught.value.code == -32021
        assert len(peer.sent("tools/call")) == 1
        refusal["data"] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("crawl")
        assert caught.value.code == -32021
        assert len(peer.sent("tools/call")) == 3


# -- how long it waits -----------------------------------------------------------------------------


async def test_it_returns_after_a_round_as_soon_as_there_is_a_task(tmp_path: Path) -> None:
    rules = modern(new(), DONE) | {"tools/call": asks_first}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=yes) as client:
        task = await client.start_tool("crawl", {"n": 1})
        assert task.id == "t1" and not peer.sent("tasks/get")
        _, second = peer.sent("tools/call")
        assert second["params"]["requestState"] == "s"
        assert (await task.result()).text == "done"


async def test_its_time_limit_is_not_the_tasks(tmp_path: Path) -> None:
    rules = modern(new()) | {"tools/call": asks_first}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=yes) as client:
        task = await client.start_tool("crawl", timeout=0.2)
        with pytest.raises(CallTimeout):
            await task.result(timeout=0.3)
        await client.list_tools()
        assert not peer.sent("tasks/cancel")


async def test_its_time_limit_stands_still_while_the_client_answers(tmp_path: Path) -> None:
    async def on_elicit(request: Any) -> Any:
        await asyncio.sleep(1.5)
        return await yes(request)

    rules = modern(new()) | {"tools/call": asks_first}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=on_elicit) as client:
        await client.start_tool("crawl", timeout=1.0)
        assert len(peer.sent("tools/call")) == 2


async def test_a_second_attempt_has_what_is_left_of_the_time(tmp_path: Path) -> None:
    """2025-11-25: where a tool does not run as a task (-32601) it is called without."""

    async def call(talk: Talk, message: dict[str, Any]) -> None:
        if "task" in message["params"]:
            await asyncio.sleep(0.2)
            error = {"code": -32601, "message": "no task"}
            await talk.send(id=message["id"], error=error)

    rules = legacy() | {"tools/call": call, "notifications/cancelled": {}}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, "legacy") as client:
        longer = asyncio.ensure_future(client.call_tool("other", timeout=0.7))
        with pytest.raises(CallTimeout):
            await client.start_tool("crawl", timeout=0.6)
        assert not longer.done()  # a second limit of 0.6 s would have ended behind it
        assert len(peer.sent("tools/call")) == 3
        with pytest.raises(CallTimeout):
            await longer


@pytest.mark.parametrize("how", ["call", "start"])
async def test_a_task_that_is_made_as_its_call_is_given_up(tmp_path: Path, how: str) -> None:
    """Nobody will ever ask for it, so it is cancelled."""

    async def both(talk: Talk, message: dict[str, Any]) -> None:
        progress = {
            "progressToken": message["params"]["_meta"]["progressToken"],
            "progress": 1,
        }
        told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
        made = {"jsonrpc": "2.0", "id": message["id"], "result": CREATED}
        await talk.write(json.dumps(told) + "\n" + json.dumps(made))  # read in one go

    def give_up(*args: Any) -> None:
        asyncio.get_running_loop().call_soon(work.cancel)

    rules = modern(new()) | {"tools/call": both}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer) as client:
        start = client.call_tool if how == "call" else client.start_tool
        work: asyncio.Task[Any] = asyncio.create_task(start("crawl", on_progress=give_up))
        with pytest.raises(asyncio.CancelledError):
            await work
        await cancelled(peer)
        assert not peer.sent("tasks/get") and not peer.sent("notifications/cancelled")


# -- what is left of it ----------------------------------------------------------------------------


async def test_dropped_handles_leave_nothing(tmp_path: Path) -> None:
    class Callback:
        alive = 0

        def __init__(self) -> None:
            Callback.alive += 1

        def __del__(self) -> None:
            Callback.alive -= 1

        def __call__(self, *args: Any) -> None: ...

    async with LinePeer(legacy(), tmp_path) as peer, client_of(peer, "legacy") as client:
        for _ in range(20):
            await client.start_tool("crawl", on_progress=Callback())
        assert not kept() and not Callback.alive


async def test_a_handle_that_is_kept_hears_on(tmp_path: Path) -> None:
    """Whoever else has let go of one of the same task."""
    heard: list[float] = []
    async with LinePeer(legacy(), tmp_path) as peer, client_of(peer, "legacy") as client:
        task = await client.start_tool("crawl", on_progress=lambda n, *_: heard.append(n))
        other: ToolTask | None = await client.get_task("t1")
        gc.collect()
        talk = await peer.talk(0)
        token = peer.sent("tools/call")[0]["params"]["_meta"]["progressToken"]
        for n in (1, 2):
            params = {"progressToken": token, "progress": n}
            await talk.send(method="notifications/progress", params=params)
        await until(lambda: heard == [1, 2])
        del other
        gc.collect()
        await talk.send(method="notifications/tasks/status", params=old("completed"))
        await until(lambda: task.state.over)
        assert not kept()


async def test_what_is_over_tells_no_progress_any_more(tmp_path: Path) -> None:
    """Though nobody told of its end but the result."""
    async with LinePeer(legacy(), tmp_path) as peer, client_of(peer, "legacy") as client:
        task = await client.start_tool("crawl", on_progress=lambda *_: None)
        assert {type(one) for one in kept()} == {TaskHandles, ProgressSink}
        assert (await task.result()).text == "done"
        assert {type(one) for one in kept()} == {TaskHandles}


async def test_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    rules = legacy() | {"tools/call": (-32602, "no")}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, "legacy") as client:
        with pytest.raises(RemoteError):
            await client.start_tool("crawl", on_progress=lambda *_: None)
        assert not kept()


async def test_the_result_of_2025_outlives_its_link(tmp_path: Path) -> None:
    """tasks/result waits; it may be asked for again."""
    from wirespeed import Socket

    async def result(talk: Talk, message: dict[str, Any]) -> None:
        if len(peer.talks) == 1:
            talk.vanish()
        else:
            await talk.result(message, text_result("done"))

    rules = legacy() | {"tasks/result": result}
    async with LinePeer(rules, tmp_path) as peer:
        target = Socket(peer.url, restart=3)
        async with Client(target, era="legacy") as client:
            task = await client.start_tool("crawl")
            assert (await task.result()).text == "done"
            assert len(peer.talks) == 2 and len(peer.sent("tools/call")) == 1
