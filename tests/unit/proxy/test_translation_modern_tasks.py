"""Tasks of clients of 2026-07-28 with a server of 2025-11-25: docs/explanation/translation.md,
"Tasks"."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proxy.translated_task_lab import RELATED, TASKS, TaskLab, about, answer_to
from tests.unit.proxy.translation_lab import request, text_in, tool
from wirespeed.proxy.translation import modern_tasks

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

META = "io.modelcontextprotocol/"
ISOLATIONS = ["shared", "pool", "session"]
INFO = {META + "serverInfo": {"name": "scripted", "version": "7"}}
DECLARED: dict[str, Any] = {"extensions": {TASKS: {}}}
MADE = {
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00.5Z",
    "ttlMs": 60000,
    "pollIntervalMs": 20,
}
DONE = {"content": [{"type": "text", "text": "done"}]}
COMPLETE = {"resultType": "complete", "_meta": INFO}


async def asked(client: Any, message: dict[str, Any]) -> Any:
    await client.send(message)
    return (await answer_to(client, message["id"]))[0]


async def joined(lab: TaskLab, capabilities: dict[str, Any] | None = None) -> Any:
    """A client whose server is there."""
    client = await lab.client(capabilities)
    await client.ask(request("hello", "server/discover"))
    return client


async def made(client: Any, **arguments: Any) -> str:
    """The id of a new task of the server."""
    got = (await asked(client, tool("make", "make", **arguments)))["result"]
    assert got["resultType"] == "task"
    assert got["status"] == "working"
    found: str = got["taskId"]
    return found


async def become(client: Any, n: str, **state: Any) -> None:
    """Let the server's task be in another state."""
    await asked(client, tool("set", "set", of=n, state=state))


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_task_of_the_server(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=False, size=1)
    async with lab.serving():
        one = await lab.client(DECLARED)
        found = (await one.ask(request(0, "server/discover")))["result"]
        assert found["capabilities"] == {"tools": {}, **DECLARED}
        got = (await one.ask(tool(1, "make", state={"statusMessage": "at it"})))["result"]
        id = got.pop("taskId")
        assert got == {
            **MADE, "status": "working", "statusMessage": "at it", "resultType": "task",
            "_meta": INFO,
        }  # fmt: skip
        got = (await one.ask(about(2, "get", id)))["result"]
        assert got == {
            **MADE, **COMPLETE, "taskId": id, "status": "working", "statusMessage": "at it",
        }  # fmt: skip
        await become(one, "1", status="completed", result={**DONE, "_meta": {"a": 1}})
        got = (await one.ask(about(3, "get", id)))["result"]
        assert got["status"] == "completed"
        assert got["result"] == {**DONE, "_meta": {"a": 1}}
        assert got["resultType"] == "complete"
    first, second = [m for m in lab.read("tools/call") if m["params"]["name"] == "make"]
    assert "task" not in first["params"]  # the server refuses that, so it has not run
    assert second["params"]["task"] == {}
    assert second["params"]["_meta"] == {}


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_which_calls_are_tasks(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=False, size=1)
    async with lab.serving():
        one = await lab.client(DECLARED)
        listed = (await one.ask(request(1, "tools/list")))["result"]["tools"]
        assert not any("execution" in entry for entry in listed)
        assert text_in(await one.ask(tool(2, "plain"))) == [None, False]
        await made(one)
        assert len(lab.read("tools/call")) == 2
        ignored = tool(3, "plain")
        ignored["params"]["task"] = {"ttl": 5}  # 2026-07-28 does not know it
        assert text_in(await one.ask(ignored)) == [None, False]
        wished = tool(4, "make")
        wished["params"]["task"] = {"ttl": 5}
        assert (await one.ask(wished))["result"]["resultType"] == "task"
        assert lab.read("tools/call")[-1]["params"]["task"] == {}
        for n in (5, 6):  # it is known after the first call
            got = (await one.ask(tool(n, "late")))["result"]
            assert got["resultType"] == "task"
        assert len(lab.read("tools/call")) == 6
    assert len(lab.read("tools/list")) == 1


async def test_a_call_without_a_task_costs_the_same(tmp_path: Path) -> None:
    """No more is decoded than for a server without tasks."""
    shown = []
    for offers in ("list cancel", "list cancel requests"):
        (tmp_path / offers).mkdir()
        lab = TaskLab(tmp_path / offers, "shared", modern=False, offers=offers)
        async with lab.serving():
            one = await joined(lab)
            await one.ask(tool(0, "pid"))
            before = next(iter(lab.fronts)).session.counters["values_shown"]
            for n in range(10):
                await one.ask(tool(n, "pid"))
            shown.append(next(iter(lab.fronts)).session.counters["values_shown"] - before)
    assert shown[0] == shown[1]


async def test_first_calls_at_once(tmp_path: Path) -> None:
    """All wait for the same list of tools."""
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await joined(lab, DECLARED)
        await one.send(*(tool(n, "make") for n in range(5)))
        for n in range(5):
            got, _ = await answer_to(one, n)
            assert got["result"]["resultType"] == "task"
    assert len(lab.read("tools/list")) == 1


async def test_refusals_with_other_reasons(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client(DECLARED)
        for code in (-32601, -32600):
            error = {"code": code, "message": "no", "data": [1]}
            assert (await one.ask(tool(1, "fail", error=error)))["error"] == error
        assert len(lab.read("tools/list")) == 1  # a moment ago is soon enough
        error = {"code": 7, "message": "seven"}
        assert (await one.ask(tool(2, "fail", error=error)))["error"] == error
        assert len(lab.read("tools/call")) == 3
        kept = lab.proxy.services["b"].kept_tasks
        assert kept.required == {"make", "late"}
        kept.require("plain")  # it was one, and is one no more
        assert text_in(await one.ask(tool(3, "plain"))) == [{}, False]
        await one.ask(request(4, "tools/list"))
        assert text_in(await one.ask(tool(5, "plain"))) == [None, False]
        kept.require("raw")
        bad = await one.ask(tool(6, "raw", result={"task": {"taskId": 1}}))
        assert bad["error"]["code"] == -32603
        kept.require("fail")
        assert (await one.ask(tool(7, "fail", error=error)))["error"] == error


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_client_without_the_extension(tmp_path: Path, isolation: str) -> None:
    """The proxy waits for the task, and gives the result."""
    lab = TaskLab(tmp_path, isolation, modern=False, size=1)
    async with lab.serving():
        one = await joined(lab)
        await one.send(tool(1, "make"))
        await lab.until_read("tasks/result", 1)
        await become(one, "1", status="completed", result=DONE)
        got, _ = await answer_to(one, 1)
        assert got["result"] == {**DONE, **COMPLETE}
        await one.send(tool(2, "make"))
        await lab.until_read("tasks/result", 2)
        error = {"code": -32603, "message": "no", "data": {"a": 1.5}}
        await become(one, "2", status="failed", error=error)
        got, _ = await answer_to(one, 2)
        assert got["error"] == error
        done = await one.ask(tool(3, "make", state={"status": "completed", "result": DONE}))
        assert done["result"]["content"] == DONE["content"]
        for method in ("get", "cancel"):
            got = (await one.ask(about(4, method, "1")))["error"]
            assert got["code"] == -32021
            assert got["data"] == {"requiredCapabilities": DECLARED}
        got = (await one.ask(about(5, "update", "1", inputResponses={})))["error"]
        assert got["code"] == -32021
        wanted = {"taskIds": ["1"]}
        got = await one.ask(request(6, "subscriptions/listen", notifications=wanted))
        assert got["error"]["code"] == -32021
    assert not lab.read("tasks/cancel")


@pytest.mark.parametrize("isolation", ["shared", "pool"])
@pytest.mark.parametrize("how", ["cancels", "leaves"])
async def test_a_client_that_does_not_wait(tmp_path: Path, isolation: str, how: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=False, size=2, shutdown_grace=0.1)
    async with lab.serving():
        one = await joined(lab)
        await one.send(tool(1, "make"))
        await lab.until_read("tasks/result", 1)
        if how == "cancels":
            await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                            "params": {"requestId": 1}})  # fmt: skip
        else:
            await one.close()
        (cancelled,) = await lab.until_read("tasks/cancel", 1)
        assert cancelled["params"] == {"taskId": "1"}
        if how == "cancels":
            await one.silent()
            assert not modern_tasks_of(lab)._running


def modern_tasks_of(lab: TaskLab) -> Any:
    """The tasks of the only client."""
    (front,) = [one for one in lab.fronts if one.translation is not None]
    router: Any = front.router
    return router._tasks


async def test_how_tasks_end(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client(DECLARED)
        ids = [await made(one) for _ in range(4)]
        error = {"code": -32603, "message": "no", "data": {"a": 1.5}}
        await become(one, "1", status="failed", error=error, statusMessage="it broke")
        await become(one, "2", status="failed", result={**DONE, "isError": True})
        await become(one, "3", status="cancelled", statusMessage="by the server")
        await become(one, "4", status="failed", result={"content": []}, statusMessage="why")
        got = [(await one.ask(about(5, "get", id)))["result"] for id in ids]
        assert [state["status"] for state in got] == [
            "failed", "completed", "cancelled", "failed",
        ]  # fmt: skip
        assert got[0]["error"] == error
        assert got[0]["statusMessage"] == "it broke"
        assert got[1]["result"] == {**DONE, "isError": True}
        assert "result" not in got[2]
        assert "error" not in got[2]
        assert got[3]["error"] == {"code": -32603, "message": "why"}
        seed = await one.ask(tool(6, "make", state={"status": "cancelled"}))
        assert seed["result"]["status"] == "cancelled"


@pytest.mark.parametrize("offers", ["requests cancel", "requests"])
async def test_cancellation(tmp_path: Path, offers: str) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False, offers=offers)
    async with lab.serving():
        one = await lab.client(DECLARED)
        id = await made(one)
        for n in (1, 2):  # it is acknowledged for one that has ended, too
            assert (await one.ask(about(n, "cancel", id)))["result"] == COMPLETE
        status = (await one.ask(about(3, "get", id)))["result"]["status"]
        assert status == ("cancelled" if "cancel" in offers else "working")
    assert len(lab.read("tasks/cancel")) == (2 if "cancel" in offers else 0)


async def test_errors(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client(DECLARED)
        id = await made(one)
        for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            for guess in ("1", "0~1", "", "x" * 30, id[:-1] + "2"):
                got = (await one.ask(about(1, method, guess, **more)))["error"]
                assert got == {
                    "code": -32602, "message": "Failed to retrieve task: Task not found",
                }  # fmt: skip
            assert (await one.ask(about(2, method, 5, **more)))["error"]["code"] == -32602
        bad = await one.ask(about(3, "update", id, inputResponses={"1": 5}))
        assert bad["error"]["code"] == -32602
        for method in ("tasks/result", "tasks/list", "tasks/other"):
            got = (await one.ask(request(4, method, taskId=id)))["error"]
            assert got["code"] == -32601
            assert "2026-07-28" in got["message"]
        assert (await one.ask(about(5, "update", id, inputResponses={})))["result"] == COMPLETE
        kept = lab.proxy.services["b"].kept_tasks
        gone = kept.seal("0~9", None)
        for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            got = (await one.ask(about(6, method, gone, **more)))["error"]
            assert got["code"] == -32602
        wanted = {"taskIds": [id], "toolsListChanged": True}
        await one.send(request("L", "subscriptions/listen", notifications=wanted))
        taken = await one.recv()
        assert taken["params"]["notifications"] == {}  # the client polls


async def test_a_server_without_tasks_of_tools(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False, offers="list cancel")
    async with lab.serving():
        one = await lab.client(DECLARED)
        found = (await one.ask(request(0, "server/discover")))["result"]
        assert found["capabilities"] == {"tools": {}}
        assert (await one.ask(tool(1, "make")))["error"]["code"] == -32601
        assert (await one.ask(about(2, "get", "1")))["error"]["code"] == -32601
    assert len(lab.read("tools/call")) == 1


ALL = {**DECLARED, "roots": {}, "elicitation": {}}


def question(of: Any, its: str, method: str = "roots/list") -> dict[str, Any]:
    """Let the server ask for a task."""
    return tool("q", "question", of=of, its=its, method=method, params={"message": "who?"})


async def test_questions_of_a_task(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        id = await made(one)
        await become(one, "1", status="input_required")
        got = (await one.ask(about(1, "get", id)))["result"]
        assert got["status"] == "working"  # the question is not here yet: the proxy waits for it
        await lab.until_read("tasks/result", 1)
        await asked(one, question("1", "x", "elicitation/create"))
        got = (await one.ask(about(2, "get", id)))["result"]
        assert got["status"] == "input_required"
        assert got["inputRequests"] == {
            "1": {"method": "elicitation/create", "params": {"message": "who?"}}
        }
        given = {"2": {"other": 1}, "1": {"action": "accept", "content": {"n": 10**30}}}
        got = await one.ask(about(3, "update", id, inputResponses=given))
        assert got["result"] == COMPLETE
        while (got := (await one.ask(about(4, "get", id)))["result"])["status"] == "working":
            await asyncio.sleep(0.01)
        related = {"_meta": {RELATED: {"taskId": "1"}}}
        assert got["result"]["structuredContent"] == {**given["1"], **related}
        again = await one.ask(about(5, "update", id, inputResponses=given))
        assert again["result"] == COMPLETE


async def test_questions_that_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modern_tasks, "MAX_QUESTIONS", 1)
    monkeypatch.setattr(modern_tasks, "MAX_RUNNING", 2)
    lab = TaskLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        id = await made(one)
        await asked(one, question("1", "x", "sampling/createMessage"))
        got = (await one.ask(about(1, "get", id)))["result"]
        assert got["result"]["structuredContent"]["code"] == -32601
        id = await made(one)
        await asked(one, question("2", "y"))
        await asked(one, question("2", "z"))
        await one.ask(about(2, "get", id))  # it has ended: its other question is declined
        await asked(one, question("9", "w", "sampling/createMessage"))  # of no task that is known
        await asked(one, question({"no": "id"}, "v", "sampling/createMessage"))
        for _ in range(3):
            await made(one)
    refused = [json.loads(line) for line in lab.seen.read_text().splitlines()]
    codes = {m["id"]: m["error"]["code"] for m in refused if "error" in m}
    assert codes == {"x": -32601, "y": -1, "z": -32601, "w": -32601, "v": -32601}


async def test_questions_while_the_proxy_waits(tmp_path: Path) -> None:
    """They are a round of the call."""
    lab = TaskLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await joined(lab, {"roots": {}})
        await one.send(tool(1, "make"))
        await lab.until_read("tasks/result", 1)
        await one.send(question("1", "x"))
        got, _ = await answer_to(one, 1)
        await answer_to(one, "q")
        result = got["result"]
        assert result["resultType"] == "input_required"
        assert result["inputRequests"]["1"]["method"] == "roots/list"
        other = tool(2, "plain")
        other["params"]["requestState"] = result["requestState"]
        assert (await one.ask(other))["error"]["message"].endswith("another request")
        again = tool(3, "make")
        again["params"] |= {"requestState": result["requestState"], "inputResponses": {"1": 5}}
        assert (await one.ask(again))["error"]["code"] == -32602
        again["params"]["inputResponses"] = {"1": {"roots": []}}
        got = await asked(one, {**again, "id": 4})
        related = {"_meta": {RELATED: {"taskId": "1"}}}
        assert got["result"]["structuredContent"] == {"roots": [], **related}
        assert got["result"]["resultType"] == "complete"
        used = await one.ask({**again, "id": 5})
        assert used["error"]["code"] == -32602
    assert len(lab.read("tasks/result")) == 1


async def test_a_round_whose_client_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modern_tasks, "ROUND_TTL", 0.05)
    lab = TaskLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await joined(lab, {"roots": {}})
        await one.send(tool(1, "make"))
        await lab.until_read("tasks/result", 1)
        await one.send(question("1", "x"))
        await lab.until_read("tasks/cancel", 1)
        monkeypatch.setattr(modern_tasks, "MAX_ROUNDS", 0)
        await one.send(tool(2, "make"))
        await lab.until_read("tasks/result", 2)
        await one.send(question("2", "y"))
        got, _ = await answer_to(one, 2)
        assert got["error"]["code"] == -31000
        await lab.until_read("tasks/cancel", 2)


async def test_another_client_does_not_get_the_task(tmp_path: Path) -> None:
    """Without principals the id is enough, and cannot be guessed from the server's."""
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one, two = await lab.client(DECLARED), await lab.client(DECLARED)
        id, other = await made(one), await made(two)
        for guess in ("1", id[:-1] + "2", other[:-1] + "1"):
            assert (await two.ask(about(1, "get", guess)))["error"]["code"] == -32602
        assert (await two.ask(about(2, "get", id)))["result"]["status"] == "working"


async def test_a_pool(tmp_path: Path) -> None:
    """Requests about a task go to the process that made it, over any connection."""
    lab = TaskLab(tmp_path, "pool", modern=False, size=3)
    async with lab.serving():
        clients = [await lab.client(DECLARED) for _ in range(3)]
        pids = [text_in(await one.ask(tool(1, "pid"))) for one in clients]
        assert len(set(pids)) == 3
        ids = [await made(one, state={"statusMessage": str(n)}) for n, one in enumerate(clients)]
        for client in clients:
            for n, id in enumerate(ids):
                got = (await client.ask(about("g", "get", id)))["result"]
                assert got["statusMessage"] == str(n)
        await clients[0].close()
        await clients[1].ask(about("c", "cancel", ids[0]))
        got = (await clients[2].ask(about("g", "get", ids[0])))["result"]
        assert got["status"] == "cancelled"


async def test_a_server_that_takes_too_long(tmp_path: Path) -> None:
    """The deadline is one of requests, and not of the wait for a task."""
    config = {"request_timeout": 0.2}
    lab = TaskLab(tmp_path, "shared", modern=False, config=config)
    async with lab.serving():
        one = await lab.client(DECLARED)
        id = await made(one, state={"kind": "silent"})
        for method in ("get", "cancel"):
            assert (await one.ask(about(1, method, id)))["error"]["code"] == -31005
        two = await lab.client()
        await two.send(tool(2, "make"))
        await asyncio.sleep(0.4)
        await become(two, "2", status="completed", result=DONE)
        got, _ = await answer_to(two, 2)
        assert got["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("declared", [DECLARED, {}])
async def test_a_server_that_is_lost(tmp_path: Path, declared: dict[str, Any]) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client(declared)
        id = ""
        if declared:
            id = await made(one)
        else:
            await one.send(tool(1, "make"))
            await lab.until_read("tasks/result", 1)
        for upstream in lab.assignment.upstreams:
            assert upstream.status.pid is not None
            os.kill(upstream.status.pid, signal.SIGKILL)
        if not declared:
            got, _ = await answer_to(one, 1)
            assert got["error"]["code"] == -31004
        else:
            got = await one.ask(about(2, "get", id))
            assert got["error"]["code"] in (-31004, -32602)
