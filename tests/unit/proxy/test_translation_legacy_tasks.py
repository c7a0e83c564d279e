"""Tasks of clients of 2025-11-25 with a server of 2026-07-28: docs/explanation/translation.md,
"Tasks"."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proxy.translated_task_lab import RELATED, TASKS, TaskLab, about, answer_to, as_task
from tests.unit.proxy.translation_lab import request, text_in, tool
from wirespeed.proxy.translation import kept_tasks, legacy_tasks

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

META = "io.modelcontextprotocol/"
ISOLATIONS = ["shared", "pool", "session"]
MADE = {
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00.5Z",
    "ttl": 60000,
    "pollInterval": 20,
}
DONE = {"content": [{"type": "text", "text": "done"}]}


async def made(client: Any, **arguments: Any) -> str:
    """The id of a new task of the server."""
    got, _ = await _asked(client, as_task("make", "make", **arguments))
    task = got["result"]["task"]
    assert task["status"] == "working"
    found: str = task["taskId"]
    return found


async def _asked(client: Any, message: dict[str, Any]) -> tuple[Any, list[Any]]:
    await client.send(message)
    return await answer_to(client, message["id"])


async def become(client: Any, n: str, **state: Any) -> None:
    """Let the server's task be in another state."""
    await _asked(client, tool("set", "set", of=n, state=state))


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_task_of_the_server(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=True, size=1)
    async with lab.serving():
        one, hello = await lab.legacy()
        assert hello["result"]["capabilities"]["tasks"] == {
            "cancel": {}, "requests": {"tools": {"call": {}}},
        }  # fmt: skip
        listed = await one.ask(request(1, "tools/list"))
        assert [t["execution"] for t in listed["result"]["tools"]] == [
            {"taskSupport": "optional"}
        ] * 3
        id = await made(one, state={"statusMessage": "at it"})
        got, _ = await _asked(one, about(2, "get", id))
        assert got["result"] == {
            "taskId": id, "status": "working", "statusMessage": "at it", **MADE,
        }  # fmt: skip
        await one.send(about(3, "result", id))
        await become(one, "1", status="completed", result=DONE)
        got, _ = await answer_to(one, 3)
        assert got["result"] == {**DONE, "_meta": {RELATED: {"taskId": id}}}
        got, _ = await _asked(one, about(4, "get", id))
        assert got["result"]["status"] == "completed"
        assert "result" not in got["result"]
    (called,) = [m for m in lab.read("tools/call") if m["params"]["name"] == "make"]
    assert "task" not in called["params"]
    declared = called["params"]["_meta"][META + "clientCapabilities"]
    assert declared == {"extensions": {TASKS: {}}}


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_call_without_a_task(tmp_path: Path, isolation: str) -> None:
    """The extension is not declared, so no task can be made."""
    lab = TaskLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        assert text_in(await one.ask(tool(1, "plain"))) == [None, False]
        inner = tool(2, "plain", structuredContent={"task": {}, '"task"': 1})
        assert text_in(await one.ask(inner)) == [None, False]
        named = tool(3, "plain")
        named["params"]["_meta"] = {"task": 5}
        assert text_in(await one.ask(named)) == [None, False]
        nothing = tool(4, "plain")
        nothing["params"]["task"] = None
        assert text_in(await one.ask(nothing)) == [None, False]
        odd = {**tool(6, "plain"), "params": ["task"]}
        assert (await one.ask(odd))["error"]["code"] == -32600
        got = (await one.ask(tool(5, "make")))["error"]
        assert got["code"] == -32601
        assert got["message"] == "tasks, please (it only runs as a task)"


async def test_a_call_without_a_task_is_not_decoded(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        await one.ask(tool(0, "plain"))
        counters = next(iter(lab.fronts)).session.counters
        for n in range(10):
            await one.ask(tool(n, "plain", structuredContent={"task": "x" * 5000}))
        after = next(iter(lab.fronts)).session.counters
        assert after["values_shown"] == counters["values_shown"]


@pytest.mark.parametrize(
    ("params", "is_task"),
    [
        ('{"task":{},"name":"plain","arguments":{}}', True),
        ('{ "name" : "plain" , "task" : { "ttl" : 5.5 } }', True),
        ('{"arguments":{"task":{}},"name":"plain","task":{}}', True),
        ('{"arguments":{"structuredContent":{"task":{}}},"name":"plain"}', False),
        ('{"name":"plain","x":{"task":{}}}', False),
        ('{"name":"plain","x":"task"}', False),
    ],
)
async def test_where_a_call_asks_for_a_task(tmp_path: Path, params: str, is_task: bool) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        text = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'
        got = (await one.ask(text % params))["result"]
        assert ("task" in got) is is_task
    (called,) = lab.read("tools/call")
    assert "task" not in called["params"]


async def test_a_result_at_once(tmp_path: Path) -> None:
    """The server makes no task: the proxy holds the result."""
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        got = await one.ask(as_task(1, "plain", ttl=5000))
        task = got["result"]["task"]
        assert task["status"] == "completed"
        assert 5000 <= task["ttl"] < 60000
        id = task["taskId"]
        assert (await one.ask(about(2, "get", id)))["result"] == task
        for n in (3, 4):
            got = await one.ask(about(n, "result", id))
            assert text_in(got) == [None, True]
            assert "resultType" not in got["result"]
            assert got["result"]["_meta"][RELATED] == {"taskId": id}
        got = (await one.ask(about(5, "cancel", id)))["error"]
        assert got["code"] == -32602
        assert "'completed'" in got["message"]
        got = await one.ask(as_task(6, "plain", isError=True, structuredContent=[1]))
        failed = got["result"]["task"]
        assert failed["status"] == "failed"
        assert failed["ttl"] >= 3_600_000
        got = (await one.ask(about(7, "result", failed["taskId"])))["result"]
        assert got["isError"] is True
        assert "structuredContent" not in got
    assert not lab.read("tasks/get")


async def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tasks, "MAX_HELD_BYTES", 20_000)
    monkeypatch.setattr(kept_tasks, "MAX_HELD_BY_CLIENT", 2)
    monkeypatch.setattr(kept_tasks, "SWEEP_EVERY", 0.02)
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        large = await one.ask(as_task(1, "plain", structuredContent={"x": "x" * 30_000}))
        task = large["result"]["task"]
        assert task["status"] == "failed"
        got = (await one.ask(about(2, "result", task["taskId"])))["error"]
        assert got["code"] == -32603
        ids = [(await one.ask(as_task(n, "plain")))["result"]["task"]["taskId"] for n in (3, 4, 5)]
        found = [await one.ask(about(6, "get", id)) for id in (task["taskId"], *ids)]
        assert ["error" in got for got in found] == [True, True, False, False]
        short = await one.ask(as_task(7, "plain", ttl=1))
        await asyncio.sleep(0.1)
        got = await one.ask(about(8, "result", short["result"]["task"]["taskId"]))
        assert got["error"]["code"] == -32602
        kept = lab.proxy.services["b"].kept_tasks
        assert len(kept._store._tasks) == 1


@pytest.mark.parametrize(
    ("task", "text"), [(5, "must be an object"), ({"ttl": "x"}, "ttl"), ({"ttl": -1}, "ttl")]
)
async def test_a_malformed_wish(tmp_path: Path, task: Any, text: str) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        call = tool(1, "plain")
        call["params"]["task"] = task
        got = (await one.ask(call))["error"]
        assert got["code"] == -32602
        assert text in got["message"]
    assert not lab.read("tools/call")


async def test_errors(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        error = {"code": 7, "message": "seven", "data": [1]}
        assert (await one.ask(as_task(1, "fail", error=error)))["error"] == error
        bad = [
            {"resultType": "task"},
            {"resultType": "task", "taskId": "1", "status": "odd", **MADE},
            {"resultType": "other"},
            [1],
        ]
        for result in bad:
            got = (await one.ask(as_task(2, "raw", result=result)))["error"]
            assert got["code"] == -32603
        for method in ("get", "result", "cancel"):
            for id in ("1", "", "x" * 30, "é~" * 30):
                got = (await one.ask(about(3, method, id)))["error"]
                assert got == {
                    "code": -32602, "message": "Failed to retrieve task: Task not found",
                }  # fmt: skip
            got = (await one.ask(about(4, method, 5)))["error"]
            assert got["code"] == -32602
        for method in ("list", "update"):
            got = (await one.ask(request(5, f"tasks/{method}")))["error"]
            assert got["code"] == -32601
            assert "cannot be listed" in got["message"]


async def test_how_tasks_end(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        ids = [await made(one) for _ in range(5)]
        error = {"code": -32603, "message": "no", "data": {"a": 1.5}}
        await become(one, "1", status="failed", error=error, statusMessage="it broke")
        await become(one, "2", status="completed", result={**DONE, "isError": True})
        await become(one, "3", status="cancelled", statusMessage="by the server")
        await become(one, "4", status="completed")
        await become(one, "5", status="failed")
        states, results = [], []
        for id in ids:
            got, _ = await _asked(one, about(8, "get", id))
            states.append(got["result"]["status"])
            got, _ = await _asked(one, about(9, "result", id))
            results.append(got.get("error", got.get("result")))
        assert states == ["failed", "failed", "cancelled", "completed", "failed"]
        assert results[0] == error
        assert results[1] == {
            **DONE, "isError": True, "_meta": {RELATED: {"taskId": ids[1]}},
        }  # fmt: skip
        assert results[2] == {"code": -31002, "message": "by the server"}
        assert [one["code"] for one in results[3:]] == [-32603, -32603]
        for id, status in zip(ids[:3], states, strict=False):
            got, _ = await _asked(one, about(10, "cancel", id))
            assert got["error"]["code"] == -32602
            assert f"'{status}'" in got["error"]["message"]
        done, _ = await _asked(
            one, as_task(11, "make", state={"status": "completed", "result": DONE})
        )
        assert done["result"]["task"]["status"] == "completed"


@pytest.mark.parametrize("code", [1 << 40, True, 1.5])
async def test_a_task_with_an_error_that_is_not_valid(tmp_path: Path, code: Any) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one)
        await become(one, "1", status="failed", error={"code": code, "message": "no"})
        got, _ = await _asked(one, about(1, "result", id))
        assert got["error"]["code"] == -32603


@pytest.mark.parametrize("kind", ["kind", "stubborn"])
async def test_cancellation(tmp_path: Path, kind: str) -> None:
    """A server that goes on all the same: for the client the task is cancelled, and stays so."""
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one, state={"kind": kind}, poll=60_000)
        await one.send(about(1, "result", id))
        await lab.until_read("tasks/get", 1)
        got, _ = await _asked(one, about(2, "cancel", id))
        assert got["result"]["status"] == "cancelled"
        assert got["result"]["taskId"] == id
        got, _ = await answer_to(one, 1)
        assert got["error"]["code"] == -31002
        again, _ = await _asked(one, about(3, "cancel", id))
        assert again["error"]["code"] == -32602
        await become(one, "1", status="completed", result=DONE)
        if kind == "stubborn":
            got, _ = await _asked(one, about(4, "get", id))
            assert got["result"]["status"] == "cancelled"
            got, _ = await _asked(one, about(5, "result", id))
            assert got["error"]["code"] == -31002
    assert len(lab.read("tasks/cancel")) == 1


async def test_a_cancelled_wait(tmp_path: Path) -> None:
    """`notifications/cancelled` for tasks/result ends the wait, and not the task."""
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one)
        await one.send(about(1, "result", id))
        while not lab.read("tasks/get"):
            await asyncio.sleep(0.01)
        await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 1}})  # fmt: skip
        got, before = await _asked(one, about(2, "get", id))
        assert got["result"]["status"] == "working"
        assert not [m for m in before if "id" in m]
        n = len(lab.read("tasks/get"))
        await asyncio.sleep(0.1)
        assert len(lab.read("tasks/get")) == n
    assert not lab.read("tasks/cancel")


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_changes_are_told(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        first, second = await made(one, poll=60_000), await made(one, poll=60_000)
        listens = await lab.until_read("subscriptions/listen", 2)
        assert [m["params"]["notifications"] for m in listens] == [
            {"taskIds": ["1"]}, {"taskIds": ["1", "2"]},
        ]  # fmt: skip
        await one.send(about(1, "result", second))
        await lab.until_read("tasks/get", 1)
        await one.send(tool(2, "set", of="2", state={"status": "completed", "result": DONE}))
        _, before = await answer_to(one, 1)
        told = [m["params"] for m in before if m.get("method") == "notifications/tasks/status"]
        assert told == [{"taskId": second, "status": "completed", **MADE, "pollInterval": 60000}]
        await one.send(tool(3, "set", of="1", state={"statusMessage": "half"}))
        _, before = await answer_to(one, 3)
        told = [m["params"] for m in before if "method" in m]
        assert [(m["taskId"], m["statusMessage"]) for m in told] == [(first, "half")]
        await made(one)
        await lab.until_read("subscriptions/listen", 3)
        last = lab.read("subscriptions/listen")[-1]
        assert last["params"]["notifications"] == {"taskIds": ["1", "3"]}
        assert TASKS in last["params"]["_meta"][META + "clientCapabilities"]["extensions"]


async def test_a_late_subscription_does_not_end_the_news(tmp_path: Path) -> None:
    """A server that is busy once tells of tasks still."""
    lab = TaskLab(tmp_path, "shared", modern=True, config={"request_timeout": 30.0})
    busy = (
        'if name == "nap":\n        time.sleep(1)\n        text(i, "woke")\n    elif name == "pid":'
    )
    script = tmp_path / "backend.py"
    script.write_text(script.read_text().replace('if name == "pid":', busy))
    async with lab.serving():
        one, _ = await lab.legacy()
        (front,) = lab.fronts
        updates: Any = front.router._updates  # type: ignore[attr-defined]
        updates._patience = 0.3
        await one.send(as_task(1, "make", poll=100_000))
        await one.send(tool(2, "nap"))
        await answer_to(one, 1)
        await answer_to(one, 2)
        await lab.until_read("notifications/cancelled", 1)  # the subscription that was late
        updates._patience = 30.0
        await one.send(as_task(3, "make", poll=100_000))
        await answer_to(one, 3)
        listens = await lab.until_read("subscriptions/listen", 2)
        assert listens[-1]["params"]["notifications"]["taskIds"] == ["1", "2"]


async def test_a_server_that_does_not_tell(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True, offers="nolisten")
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one)
        await lab.until_read("subscriptions/listen", 1)
        await one.send(about(1, "result", id))
        await become(one, "1", status="completed", result=DONE)
        got, _ = await answer_to(one, 1)
        assert got["result"]["content"] == DONE["content"]
        await made(one)
    assert len(lab.read("subscriptions/listen")) == 1


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_questions_of_a_task(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=True, size=1)
    async with lab.serving():
        one, _ = await lab.legacy(elicitation={}, roots={})
        asks = {"a": {"method": "elicitation/create", "params": {"message": "who?"}},
                "b": {"method": "roots/list"}}  # fmt: skip
        id = await made(one, state={"status": "working", "inputRequests": asks})
        await become(one, "1", status="input_required")
        await one.send(about(1, "result", id))
        got: dict[str, Any] = {}
        while len(got) < 2:
            message = await one.recv()
            if "id" in message:
                got[message["method"]] = message
        for method, params in (("elicitation/create", {"message": "who?"}), ("roots/list", {})):
            params = {**params, "_meta": {RELATED: {"taskId": id}}}
            assert got[method]["params"] == params
            answer = {"of": method, "_meta": {RELATED: {"taskId": id}}}
            await one.send({"jsonrpc": "2.0", "id": got[method]["id"], "result": answer})
        await lab.until_read("tasks/update", 2)
        await become(one, "1", status="completed", result=DONE)
        final, before = await answer_to(one, 1)
        assert final["result"]["content"] == DONE["content"]
        assert not [m for m in before if "id" in m]
    given: dict[str, Any] = {}
    for update in lab.read("tasks/update"):
        given |= update["params"]["inputResponses"]
    assert given == {"a": {"of": "elicitation/create"}, "b": {"of": "roots/list"}}


async def test_many_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all are asked at once."""
    monkeypatch.setattr(legacy_tasks, "MAX_QUESTIONS", 2)
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(roots={})
        id = await made(one)
        asks = {str(n): {"method": "roots/list"} for n in range(5)}
        await become(one, "1", status="input_required", inputRequests=asks)
        await one.send(about(1, "result", id))
        open_: list[Any] = []
        for answered in range(5):
            while len(open_) < min(2, 5 - answered):
                message = await one.recv()
                open_ += [message["id"]] if "id" in message else []
            answer = {"jsonrpc": "2.0", "id": open_.pop(0), "result": {"roots": []}}
            await one.send(answer)
        await lab.until_read("tasks/update", 5)
        await become(one, "1", status="completed", result=DONE)
        got, _ = await answer_to(one, 1)
        assert got["result"]["content"] == DONE["content"]


async def test_a_server_with_too_much_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is refused for that reason ends no wait."""
    monkeypatch.setattr(legacy_tasks, "POLL", 0.01)
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one, state={"kind": "busy"})
        await one.send(about(1, "result", id))
        while len(lab.read("tasks/get")) < 3:
            await asyncio.sleep(0.01)
        await become(one, "1", status="completed", result=DONE, kind="")
        got, _ = await answer_to(one, 1)
        assert got["result"]["content"] == DONE["content"]


async def test_questions_without_an_answer(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(roots={})
        ask = {"method": "sampling/createMessage", "params": {}}
        id = await made(one)
        await become(one, "1", status="input_required", inputRequests={"a": ask})
        got, _ = await _asked(one, about(1, "result", id))
        assert got["error"]["code"] == -32602
        assert "does not offer" in got["error"]["message"]
        ask = {"method": "roots/list"}
        await become(one, "1", inputRequests={"b": ask})
        for n in (2, 3):  # the client may try again
            await one.send(about(n, "result", id))
            while "id" not in (question := await one.recv()):
                pass
            error = {"code": -1, "message": "the user says no"}
            await one.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
            got, _ = await answer_to(one, n)
            assert got["error"]["code"] == -1
        await one.send(about(4, "result", id))
        while "id" not in (question := await one.recv()):
            pass
        await become(one, "1", status="working", inputRequests={})  # it is withdrawn
        gone: Any = {}
        while gone.get("method") != "notifications/cancelled":
            gone = await one.recv()
        assert gone["params"]["requestId"] == question["id"]
    assert not lab.read("tasks/update")


async def test_questions_before_a_task(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(roots={})
        asked = await one.ask(as_task(1, "make", ask=True))
        assert asked["method"] == "roots/list"
        got = await one.ask({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
        assert got["result"]["task"]["status"] == "working"
        assert got["result"]["_meta"]["got"] == {"k": {"roots": []}}
    _, second = lab.read("tools/call")
    assert "task" not in second["params"]
    assert TASKS in second["params"]["_meta"][META + "clientCapabilities"]["extensions"]


async def test_another_client_does_not_get_the_task(tmp_path: Path) -> None:
    """Without principals the id is enough, and cannot be guessed from the server's."""
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        two, _ = await lab.legacy()
        id = await made(one)
        assert id != "1"
        other = await made(two)
        for guess in ("1", "2", other[:-1] + "1", id[:-1] + "2"):
            got, _ = await _asked(two, about(1, "get", guess))
            assert got["error"]["code"] == -32602
        got, _ = await _asked(two, about(2, "get", id))  # over another connection
        assert got["result"]["status"] == "working"
    held = kept_tasks.KeptTasks("b", asyncio.get_running_loop())
    sealed = held.seal("1", b"one")
    assert held.open(sealed, b"one") == "1"
    for principal in (b"two", None, b""):
        with pytest.raises(Exception, match="not found"):
            held.open(sealed, principal)
    with pytest.raises(Exception, match="not found"):
        held.open(held.seal("1", None), b"one")


async def test_a_pool(tmp_path: Path) -> None:
    """Requests about a task go to the process that made it."""
    lab = TaskLab(tmp_path, "pool", modern=True, size=2)
    async with lab.serving():
        one, _ = await lab.legacy()
        made: dict[str, str] = {}  # and the process of each
        while len(set(made.values())) < 2:
            await one.send(*(as_task(n, "make", pid=True) for n in range(10)))
            for n in range(10):
                got, _ = await answer_to(one, n)
                task = got["result"]["task"]
                made[task["taskId"]] = task["statusMessage"]
        two, _ = await lab.legacy()
        for client in (one, two):
            for id, pid in made.items():
                got, _ = await _asked(client, about("g", "get", id))
                assert got["result"]["statusMessage"] == pid


async def test_a_server_that_is_lost(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "session", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one)
        await one.send(about(1, "result", id))
        while not lab.read("tasks/get"):
            await asyncio.sleep(0.01)
        for upstream in lab.assignment.upstreams:
            import os
            import signal

            os.kill(upstream.status.pid, signal.SIGKILL)
        got, _ = await answer_to(one, 1)
        assert got["error"]["code"] == -31004


async def test_a_server_that_takes_too_long(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True, config={"request_timeout": 0.2})
    async with lab.serving():
        one, _ = await lab.legacy()
        id = await made(one, state={"kind": "silent"})
        for method in ("get", "result", "cancel"):
            got, _ = await _asked(one, about(1, method, id))
            assert got["error"]["code"] == -31005


async def test_older_clients_have_no_tasks(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, hello = await lab.legacy("2025-06-18")
        assert "tasks" not in hello["result"]["capabilities"]
        (first, *_) = (await one.ask(request(1, "tools/list")))["result"]["tools"]
        assert "execution" not in first
        assert text_in(await one.ask(as_task(2, "plain")))[1] is False
        got = (await one.ask(about(3, "get", "1")))["error"]
        assert got["code"] == -32601
        assert (await one.ask(tool(4, "make")))["error"]["code"] == -32602
