"""A client that runs tasks for a server of 2025-11-25 (basic/utilities/tasks, the other way)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from wirespeed import Client, Context, Server, report_progress
from wirespeed.client.answering import as_tasks as task_inbox
from wirespeed.errors import Declined, RemoteError
from wirespeed.protocol import codes
from wirespeed.types import SampleResult

RELATED = "io.modelcontextprotocol/related-task"
SAMPLE = {"messages": [], "maxTokens": 10}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

Ask = Callable[[str, Any], Awaitable[Any]]


def asking(test: Callable[[Ask], Awaitable[None]]) -> Server:
    """A server that does what a test says with its client."""
    server = Server("asks")

    @server.tool
    async def run() -> None:
        (connection,) = server.service.connections

        async def ask(method: str, params: Any) -> Any:
            text = json.dumps(params).encode()
            return json.loads(await connection.questions.ask(method, text))

        await test(ask)

    return server


async def play(test: Callable[[Ask], Awaitable[None]], **options: Any) -> None:
    options.setdefault("task_requests", True)
    async with Client(asking(test), era="legacy", **options) as client:
        result = await client.call_tool("run")
        assert not result.is_error, result.text


class Model:
    """A handler that answers when it is let to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, request: Any) -> SampleResult:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return SampleResult(content="hello", model="m")


async def test_a_task_from_its_start_to_its_result() -> None:
    model = Model()

    async def test(ask: Ask) -> None:
        created = await ask("sampling/createMessage", SAMPLE | {"task": {"ttl": 60000}})
        assert list(created) == ["task"]
        task = created["task"]
        assert task["status"] == "working" and task["ttl"] == 60000
        name = {"taskId": task["taskId"]}
        assert await ask("tasks/get", name) == task
        assert (await ask("tasks/list", {}))["tasks"] == [task]
        waiting = asyncio.ensure_future(ask("tasks/result", name))
        await ask("ping", {})
        model.gate.set()
        result = await waiting
        assert result["content"] == {"type": "text", "text": "hello"}
        assert result["_meta"] == {RELATED: name}
        assert (await ask("tasks/get", name))["status"] == "completed"
        with pytest.raises(RemoteError, match="already in terminal status 'completed'"):
            await ask("tasks/cancel", name)

    await play(test, on_sample=model)


async def test_cancelling() -> None:
    model = Model()

    async def test(ask: Ask) -> None:
        task = (await ask("sampling/createMessage", SAMPLE | {"task": {}}))["task"]
        name = {"taskId": task["taskId"]}
        waiting = asyncio.ensure_future(ask("tasks/result", name))
        await ask("ping", {})
        assert (await ask("tasks/cancel", name))["status"] == "cancelled"
        with pytest.raises(RemoteError) as caught:
            await waiting
        assert caught.value.code == codes.TASK_CANCELLED
        assert model.cancelled == 1

    await play(test, on_sample=model)


async def test_what_handlers_refuse_or_break() -> None:
    async def decline(request: Any) -> Any:
        raise Declined("no")

    async def broken(request: Any) -> Any:
        raise LookupError("secret")

    async def test(ask: Ask) -> None:
        for method, params, code in (
            ("sampling/createMessage", SAMPLE, codes.USER_REJECTED),
            ("elicitation/create", FORM, codes.INTERNAL_ERROR),
        ):
            task = (await ask(method, params | {"task": {}}))["task"]
            name = {"taskId": task["taskId"]}
            with pytest.raises(RemoteError) as caught:
                await ask("tasks/result", name)
            assert caught.value.code == code and "secret" not in caught.value.message
            assert (await ask("tasks/get", name))["status"] == "failed"

    await play(test, on_sample=decline, on_elicit=broken)


@pytest.mark.off_schema("the server asks for nonsense")
async def test_bad_requests() -> None:
    async def test(ask: Ask) -> None:
        for method, params in (
            ("tasks/get", {"taskId": "x"}),
            ("tasks/result", {"taskId": "x"}),
            ("tasks/cancel", {"taskId": "x"}),
            ("tasks/get", {}),
            ("tasks/list", {"cursor": "x"}),
            ("sampling/createMessage", SAMPLE | {"task": {"ttl": -1}}),
            ("sampling/createMessage", {"task": {}}),
        ):
            with pytest.raises(RemoteError) as caught:
                await ask(method, params)
            assert caught.value.code == -32602, method
        with pytest.raises(RemoteError) as caught:
            await ask("tasks/update", {"taskId": "x"})
        assert caught.value.code == -32601

    await play(test, on_sample=Model())


async def test_a_handler_that_works_on_a_task_reports_progress(recorder: Any) -> None:
    async def test(ask: Ask) -> None:
        meta = {"_meta": {"progressToken": "p"}}
        created = await ask("sampling/createMessage", SAMPLE | meta | {"task": {}})
        result = await ask("tasks/result", {"taskId": created["task"]["taskId"]})
        assert result["content"]["text"] == "hello"

    async def on_sample(request: Any) -> SampleResult:
        report_progress(1, 2)
        return SampleResult(content="hello", model="m")

    await play(test, on_sample=on_sample)
    assert ("client", "notification", "notifications/progress") in recorder.judged("2025-11-25")


async def test_too_many() -> None:
    async def test(ask: Ask) -> None:
        for _ in range(100):
            await ask("sampling/createMessage", SAMPLE | {"task": {}})
        with pytest.raises(RemoteError, match="Too many tasks") as caught:
            await ask("sampling/createMessage", SAMPLE | {"task": {}})
        assert caught.value.code == codes.OVERLOADED
        first = await ask("tasks/list", {})
        second = await ask("tasks/list", {"cursor": first["nextCursor"]})
        assert len(first["tasks"]) == len(second["tasks"]) == 50
        assert "nextCursor" not in second

    model = Model()
    await play(test, on_sample=model)
    while model.cancelled < 100:  # with their connection
        await asyncio.sleep(0)


async def test_finished_tasks_make_room() -> None:
    """The oldest one first. A task at work stays."""

    async def test(ask: Ask) -> None:
        async def start() -> Any:
            created = await ask("sampling/createMessage", SAMPLE | {"task": {}})
            return {"taskId": created["task"]["taskId"]}

        model.gate.set()
        old = await start()
        await ask("tasks/result", old)
        model.gate.clear()
        rest = [await start() for _ in range(99)]
        assert (await ask("tasks/get", old))["status"] == "completed"
        await start()
        with pytest.raises(RemoteError, match="Task not found"):
            await ask("tasks/get", old)
        with pytest.raises(RemoteError, match="Too many tasks"):
            await start()
        assert {(await ask("tasks/get", one))["status"] for one in rest} == {"working"}

    model = Model()
    await play(test, on_sample=model)


async def test_large_results_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(ask: Ask) -> None:
        names = []
        for _ in range(4):
            created = await ask("sampling/createMessage", SAMPLE | {"task": {}})
            names.append({"taskId": created["task"]["taskId"]})
            result = await ask("tasks/result", names[-1])
            assert len(result["content"]["text"]) == 6000
        with pytest.raises(RemoteError, match="not found"):
            await ask("tasks/get", names[0])
        assert (await ask("tasks/get", names[-1]))["status"] == "completed"

    async def talkative(request: Any) -> SampleResult:
        return SampleResult(content="x" * 6000, model="m")

    monkeypatch.setattr(task_inbox, "MAX_BYTES", 10_000)
    await play(test, on_sample=talkative)


async def test_a_handler_that_is_cancelled_by_itself_fails_its_task() -> None:
    async def test(ask: Ask) -> None:
        task = (await ask("sampling/createMessage", SAMPLE | {"task": {}}))["task"]
        with pytest.raises(RemoteError, match="Internal error"):
            await ask("tasks/result", {"taskId": task["taskId"]})

    async def gives_up(request: Any) -> SampleResult:
        raise asyncio.CancelledError

    await play(test, on_sample=gives_up)


async def test_a_task_whose_time_is_over() -> None:
    async def test(ask: Ask) -> None:
        task = (await ask("sampling/createMessage", SAMPLE | {"task": {"ttl": 20}}))["task"]
        with pytest.raises(RemoteError, match="Task not found"):
            await ask("tasks/result", {"taskId": task["taskId"]})

    await play(test, on_sample=Model())


async def test_what_is_not_offered_is_answered_plainly() -> None:
    """'Receivers that do not declare the task capability … MUST process … normally'."""
    model = Model()
    model.gate.set()

    async def plain(ask: Ask) -> None:
        result = await ask("sampling/createMessage", SAMPLE | {"task": {}})
        assert result["content"]["text"] == "hello"

    await play(plain, on_sample=model, task_requests=False)

    async def partly(ask: Ask) -> None:
        assert "task" in await ask("sampling/createMessage", SAMPLE | {"task": {}})
        assert await ask("roots/list", {}) == {"roots": []}

    await play(partly, on_sample=model, roots=[])


async def test_the_capability() -> None:
    server = Server("looks")

    @server.tool
    async def look(ctx: Context) -> Any:
        return ctx.client_capabilities.get("tasks", 0)

    for era, expected in (
        ("legacy", {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}}}),
        ("modern", 0),
    ):
        async with Client(
            server,
            era=era,  # type: ignore[arg-type]
            on_sample=Model(),
            task_requests=True,
        ) as client:
            assert json.loads((await client.call_tool("look")).text) == expected
    with pytest.raises(ValueError, match="task_requests needs"):
        Client(server, task_requests=True)
