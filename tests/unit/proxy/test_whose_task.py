"""A task of a server that clients share belongs to its maker: to others it is unknown."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.front import Http
from lab.http import Peer
from lab.principals import TOKENS, principal
from lab.proxy import ENVELOPE, MODERN
from lab.translated_task import RELATED, TASKS, TaskLab, answer_to, as_task
from lab.translation import request, tool

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
        # two changes of the task, one of them after its question was refused, and the question
        dropped = lab.assignment.legacy[0].dropped
        while dropped["not attributed"] < 3:
            await asyncio.sleep(0.01)
        await bob.silent()
        assert dropped["not attributed"] == 3


# -- 2026-07-28 ----------------------------------------------------------------------------------

DECLARED = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}


def declared(message: dict[str, Any]) -> dict[str, Any]:
    """A request of a client that declares the extension."""
    envelope = {**ENVELOPE, **DECLARED}
    return {**message, "params": {**message["params"], "_meta": envelope}}


async def told(client: Any, message: dict[str, Any] | str) -> Any:
    text = message if isinstance(message, str) else json.dumps(declared(message))
    await client.send(text)
    answer, _ = await answer_to(client, "m")
    return answer.get("error", answer.get("result"))


async def begun(client: Any) -> str:
    """Have a task made; return its id."""
    made = await told(client, tool("m", "make"))
    assert made["resultType"] == "task"
    return str(made["taskId"])


@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_ids_of_a_modern_server_cannot_be_guessed(tmp_path: Path, isolation: str) -> None:
    lab = TaskLab(tmp_path, isolation, modern=True, size=2)
    async with lab.serving():
        anne, bob = await lab.connect(MODERN), await lab.connect(MODERN)
        id = await begun(anne)
        assert id not in ("1", "0~1", "1~1")
        assert (await told(anne, request("m", "tasks/get", taskId=id)))["taskId"] == id
        guesses = ["1", "0~1", "1~1", id[:22] + "2", id[22:], "", "x" * 22 + id[22:]]
        for method in ("get", "update", "cancel"):
            for guess in guesses:
                more = {"inputResponses": {}} if method == "update" else {}
                asking = request("m", f"tasks/{method}", taskId=guess, **more)
                assert await told(bob, asking) == UNKNOWN
        # spelled otherwise
        plain = json.dumps(declared(request("m", "tasks/get", taskId="1")))
        for text in (
            plain.replace("tasks/get", r"tasks\/get"),
            plain.replace("tasks/get", r"\u0074asks/get"),
            plain.replace('"taskId"', r'"task\u0049d"'),
            plain.replace('"taskId"', r'"\u0074askId"'),
            plain.replace('"taskId"', '"taskId": "0", "taskId"'),
            plain.replace('"taskId"', r'"other": "\ud800", "taskId"'),
        ):
            assert text != plain
            assert await told(bob, text) == UNKNOWN
        assert len(lab.read("tasks/get")) == 1
        # an id is a secret, where there are no principals
        assert (await told(bob, request("m", "tasks/cancel", taskId=id)))["resultType"]
        state = await told(anne, request("m", "tasks/get", taskId=id))
        assert state["status"] == "cancelled"


@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_changes_of_others_tasks_cannot_be_subscribed_to(
    tmp_path: Path, isolation: str
) -> None:
    lab = TaskLab(tmp_path, isolation, modern=True, size=2)
    async with lab.serving():
        anne, bob = await lab.connect(MODERN), await lab.connect(MODERN)
        id = await begun(anne)
        for client, ids in ((bob, ["1", "0~1", "x" * 22 + id[22:], 7]), (anne, [id])):
            wanted = {"taskIds": ids}
            listen = declared(request("s", "subscriptions/listen", notifications=wanted))
            text = json.dumps(listen)
            await client.send(text.replace("taskIds", r"task\u0049ds") if client is bob else text)
            first = await client.recv()
            assert first["method"] == "notifications/subscriptions/acknowledged"
        state = await anne.recv()
        assert (state["method"], state["params"]["taskId"]) == ("notifications/tasks", id)
        (bobs, *_) = lab.read("subscriptions/listen")
        assert bobs["params"]["notifications"]["taskIds"] == []
        await bob.silent()


async def test_principals_of_a_modern_server(tmp_path: Path) -> None:
    """An id is good for the principal that has got it, over whatever connection."""
    lab = TaskLab(tmp_path, "shared", modern=True)
    who = (principal("anne"), principal("bob"))
    listen = ("http://127.0.0.1:0/mcp",)
    lab.proxy = Proxy(replace(lab.proxy.config, principals=who, listen=listen))

    async def post(name: str, asking: dict[str, Any]) -> Any:
        port = int(lab.urls[0].split(":")[2].split("/")[0])
        peer = Peer(port, *await asyncio.open_connection("127.0.0.1", port))
        method, params = asking["method"], declared(asking)["params"]
        fields = {"authorization": f"Bearer {TOKENS[name]}"}
        if "taskId" in params:
            fields["mcp_name"] = params["taskId"]
        response = await peer.modern(method, params, **fields)
        peer.close()
        return response.json.get("error", response.json.get("result"))

    async with lab.serving():
        id = (await post("anne", tool("m", "make")))["taskId"]
        for _ in range(2):
            assert await post("bob", request("m", "tasks/get", taskId=id)) == UNKNOWN
            state = await post("anne", request("m", "tasks/get", taskId=id))
            assert (state["taskId"], state["status"]) == (id, "working")


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
        assert (len(makers), makers._of_owner, makers._of_downstream) == (0, {}, {})
