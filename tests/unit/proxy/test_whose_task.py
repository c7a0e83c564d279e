"""A task of a server that clients share belongs to whoever has made it: to others it is unknown."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from front_lab import Http

from tests.unit.proxy.test_principals import TOKENS, principal
from tests.unit.proxy.translated_task_lab import RELATED, TaskLab, answer_to, as_task
from tests.unit.proxy.translation_lab import request, tool
from wirespeed import Stdio
from wirespeed.proxy import Proxy, ToolRules
from wirespeed.proxy.isolation import task_makers

pytestmark = pytest.mark.off_schema

LEGACY = "2025-11-25"
UNKNOWN = {"code": -32602, "message": "Failed to retrieve task: Task not found"}
QUESTIONS = ("get", "result", "cancel")


async def made(client: Any, name: str = "make", **arguments: Any) -> str:
    """Have a task made; return its id."""
    await client.send(as_task("made", name, **arguments))
    answer, _ = await answer_to(client, "made")
    return str(answer["result"]["task"]["taskId"])


async def asked(client: Any, method: str, task_id: str = "", **more: Any) -> Any:
    """What a client gets for a request about tasks."""
    params = {"taskId": task_id, **more} if task_id else more
    await client.send(request("about", f"tasks/{method}", **params))
    answer, _ = await answer_to(client, "about")
    return answer.get("error", answer.get("result"))


async def listed(client: Any) -> list[str]:
    found = await asked(client, "list")
    assert found["_meta"] == {"kept": True}
    return [task["taskId"] for task in found["tasks"]]


async def is_unknown(client: Any, task_id: str) -> None:
    for method in QUESTIONS:
        assert await asked(client, method, task_id) == UNKNOWN


async def test_the_tasks_of_other_clients(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        anne, bob = await lab.connect(), await lab.connect()
        assert await made(anne) == "1"
        assert await made(bob) == "2"
        await is_unknown(bob, "1")
        await is_unknown(bob, "3")
        await is_unknown(bob, "x" * 1000)
        assert [m for name in QUESTIONS for m in lab.read(f"tasks/{name}")] == []
        assert (await listed(anne), await listed(bob)) == (["1"], ["2"])
        assert (await asked(anne, "get", "1"))["status"] == "working"
        assert (await asked(anne, "cancel", "1"))["status"] == "cancelled"
        assert (await asked(bob, "get", "2"))["status"] == "working"
        await anne.close()  # and nobody may have its tasks
        again = await lab.connect()
        await is_unknown(again, "1")
        assert await listed(again) == []


async def test_a_pool(tmp_path: Path) -> None:
    """Each process counts its tasks from 1."""
    lab = TaskLab(tmp_path, "pool", modern=False, size=2)
    async with lab.serving():
        clients = [await lab.connect() for _ in range(3)]
        for client in clients:
            mine = await made(client)
            assert await listed(client) == [mine]
            assert (await asked(client, "get", mine))["taskId"] == mine


async def test_a_task_is_unknown_where_its_call_hid_that_it_asks_for_one(tmp_path: Path) -> None:
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        anne = await lab.connect()
        text = anne.text_of(as_task("made", "make")).replace('"task"', r'"\u0074ask"')
        await anne.send(text)
        answer, _ = await answer_to(anne, "made")
        assert answer["result"]["task"]["taskId"] == "1"
        await is_unknown(anne, "1")
        assert await listed(anne) == []


async def test_a_server_without_tasks(tmp_path: Path) -> None:
    """What the server does not declare is not asked for."""
    lab = TaskLab(tmp_path, "shared", modern=False)
    program = (
        (tmp_path / "backend.py").read_text().replace('"tasks": {k: able', '"other": {k: able')
    )
    (tmp_path / "backend.py").write_text(program)
    async with lab.serving():
        anne = await lab.connect()
        assert await made(anne) == "1"
        for method in QUESTIONS:
            assert await asked(anne, method, "1") == UNKNOWN
        assert (await asked(anne, "list"))["code"] == -32601


async def test_changes_and_questions_of_a_task(tmp_path: Path) -> None:
    """They reach the client that has made the task, and nobody once it has left."""
    lab = TaskLab(tmp_path, "shared", modern=False, config={"ask": True})
    async with lab.serving():
        anne, bob = await lab.connect(), await lab.connect()
        task_id = await made(anne, state={"kind": "told"})
        await bob.send(tool(1, "set", of=task_id, state={"status": "input_required"}))
        answer, before = await answer_to(bob, 1)
        assert "result" in answer and before == []
        status = await anne.recv()
        assert status["method"] == "notifications/tasks/status"
        assert status["params"]["taskId"] == task_id
        wish = {"of": task_id, "method": "sampling/createMessage", "params": {}}
        await bob.send(tool(2, "question", its="q", **wish))
        answer, before = await answer_to(bob, 2)
        assert before == []
        question = await anne.recv()
        assert question["params"]["_meta"][RELATED] == {"taskId": task_id}
        await anne.send({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "user"}})
        assert (await anne.recv())["params"]["status"] == "completed"
        await anne.close()
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        await bob.send(tool(3, "set", of=task_id, state={"status": "working"}))
        assert (await answer_to(bob, 3))[1] == []
        await bob.send(tool(4, "question", its="r", **wish))
        assert (await answer_to(bob, 4))[1] == []
        await bob.silent()
        assert lab.assignment.legacy[0].dropped["not attributed"] == 2


@pytest.mark.parametrize("endpoint", ["one server", "one of several", "several"])
async def test_principals(tmp_path: Path, endpoint: str) -> None:
    """A task belongs to a principal, whichever session it asks from, as long as the principal may
    call the tool."""
    lab = TaskLab(tmp_path, "shared", modern=False)
    who = (principal("anne"), principal("bob", tools=ToolRules(deny=("*make",))))
    config = replace(lab.proxy.config, principals=who, listen=("http://127.0.0.1:0/mcp",))
    path, prefix = "/mcp", ""
    if endpoint != "one server":
        program = (tmp_path / "backend.py").read_text().replace('"tasks": {k', '"other": {k')
        (tmp_path / "other.py").write_text(program)
        target = Stdio(sys.executable, [str(tmp_path / "other.py"), str(tmp_path / "other")])
        other = replace(config.backends[0], name="other", target=target, era="legacy")
        config = replace(config, backends=(*config.backends, other))
        path, prefix = ("/servers/b", "") if endpoint == "one of several" else ("/mcp", "b_")
    lab.proxy = Proxy(config)

    async def session(name: str) -> Http:
        port = int(lab.urls[0].split(":")[2].split("/")[0])
        client = Http(port, LEGACY, path=path)
        client.fields["authorization"] = f"Bearer {TOKENS[name]}"
        lab.clients.append(client)
        await client.initialize()
        return client

    async with lab.serving():
        anne, bob = await session("anne"), await session("bob")
        one = await made(anne, f"{prefix}make")
        two = await made(bob, f"{prefix}late")
        await is_unknown(bob, one)
        assert (await listed(anne), await listed(bob)) == ([one], [two])
        await anne.close()
        again = await session("anne")
        assert await listed(again) == [one]
        assert (await asked(again, "get", one))["status"] == "working"
        denied = principal("bob", tools=ToolRules(deny=("*make", "*late")))
        await lab.proxy.reload(replace(config, principals=(who[0], denied)))
        await is_unknown(bob, two)
        assert await listed(bob) == []
        assert await listed(again) == [one]


async def test_the_memory_of_tasks_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_makers, "MAX_TASKS", 5)
    monkeypatch.setattr(task_makers, "MAX_OF_OWNER", 3)
    lab = TaskLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        anne, bob, carol = [await lab.connect() for _ in range(3)]
        for _ in range(4):
            await made(anne)
        assert await listed(anne) == ["2", "3", "4"]
        await made(bob), await made(bob)
        await made(carol)
        assert await listed(anne) == ["3", "4"]  # the one that has most
        assert (await listed(bob), await listed(carol)) == (["5", "6"], ["7"])
        makers = lab.assignment.legacy[0]._makers
        assert len(makers) == 5
        for client in (anne, bob, carol):
            await client.close()
        while lab.fronts:
            await asyncio.sleep(0.01)
        assert (len(makers), makers._of_owner, makers._of_front) == (0, {}, {})
