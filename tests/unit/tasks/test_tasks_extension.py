"""The extension io.modelcontextprotocol/tasks of 2026-07-28: the server decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.extension_tasks import TASKS, ask, call, finished, get, start
from lab.raw import META, cancel, modern, request
from lab.server import Peer
from lab.task import ANNE, BOB, MakeStore, Workshop, book_of

from wirespeed import Server
from wirespeed.limits import Limits
from wirespeed.protocol import codes

REQUIRED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def peer(connect: Any, shop: Workshop) -> Peer:
    peer: Peer = connect(shop)
    return peer


# -- negotiation ----------------------------------------------------------------------------------


def test_the_server_says_so(connect: Any, peer: Peer) -> None:
    capabilities = peer.result(modern(1, "server/discover"))["capabilities"]
    assert capabilities["extensions"] == {TASKS: {}}
    assert "tasks" not in capabilities
    bare = connect(Server("bare")).result(modern(1, "server/discover"))["capabilities"]
    assert "extensions" not in bare


def test_tools_do_not_say_it(peer: Peer) -> None:
    tools = peer.result(modern(1, "tools/list"))["tools"]
    assert not any("execution" in tool for tool in tools)


def test_no_task_for_a_client_without_the_extension(shop: Workshop, peer: Peer) -> None:
    result = peer.result(modern(1, "tools/call", {"name": "blocking", "arguments": {"n": 1}}))
    assert result["resultType"] == "complete" and "taskId" not in result
    # nor because an earlier request declared it
    assert peer.result(call(2, "blocking", {"n": 1}))["resultType"] == "task"
    result = peer.result(modern(3, "tools/call", {"name": "blocking", "arguments": {"n": 1}}))
    assert result["resultType"] == "complete"


def test_the_task_param_is_ignored(peer: Peer) -> None:
    params = {"name": "plain", "task": {"ttl": 5}}
    assert peer.result(ask(1, "tools/call", params))["resultType"] == "complete"
    params = {"name": "blocking", "arguments": {"n": 1}, "task": {"ttl": 5}}
    assert peer.result(modern(2, "tools/call", params))["resultType"] == "complete"
    task = peer.result(ask(3, "tools/call", params))
    assert task["resultType"] == "task" and task["ttlMs"] == 3_600_000


def test_a_tool_that_must_be_a_task_needs_the_extension(shop: Workshop, peer: Peer) -> None:
    error = peer.ask(modern(1, "tools/call", {"name": "must"}))["error"]
    assert error["code"] == -32021 and error["data"] == REQUIRED
    assert not shop.started
    assert peer.result(call(2, "must"))["resultType"] == "task"


@pytest.mark.parametrize("settings", [None, 1, "x", [1]])
def test_a_declaration_is_an_object(peer: Peer, settings: Any) -> None:
    broken = {META + "clientCapabilities": {"extensions": {TASKS: settings}}}
    error = peer.ask(modern(1, "tools/call", {"name": "must"}, **broken))["error"]
    assert error["code"] == -32021


def test_extensions_are_an_object(peer: Peer) -> None:
    broken = {META + "clientCapabilities": {"extensions": [TASKS]}}
    code, text = peer.error(modern(1, "tools/call", {"name": "must"}, **broken))
    assert code == -32602 and "clientCapabilities" in text


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_requests_of_clients_without_the_extension(peer: Peer, method: str) -> None:
    task = start(peer, "double", {"n": 1})
    error = peer.ask(modern(1, method, {"taskId": task, "inputResponses": {}}))["error"]
    assert error["code"] == -32021 and error["data"] == REQUIRED


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_task_methods_of_the_older_form_are_unknown(peer: Peer, method: str) -> None:
    task = start(peer, "double", {"n": 1})
    assert peer.error(get(1, task, method))[0] == -32601


def test_without_tasks_there_are_no_methods(connect: Any) -> None:
    peer = connect(Server("bare"))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert peer.error(get(1, "x", method))[0] == -32601


def test_update_is_not_there_in_2025(connect: Any, shop: Workshop) -> None:
    peer = connect(shop, "2025-11-25")
    params = {"taskId": "x", "inputResponses": {}}
    assert peer.error(request(1, "tasks/update", params))[0] == -32601


# -- life -----------------------------------------------------------------------------------------


def test_a_task_from_its_start_to_its_result(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(), poll_interval=0.25, ttl=60)
    peer = connect(shop)
    created = peer.result(call(1, "double", {"n": 21}, progressToken="p"))
    assert created.pop("resultType") == "task"
    assert created.pop("_meta")[META + "serverInfo"]["name"] == "workshop"
    assert set(created) == {
        "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"
    }  # fmt: skip
    assert created["status"] == "working"
    assert created["ttlMs"] == 60_000 and created["pollIntervalMs"] == 250
    task = created["taskId"]
    shown = peer.result(get(2, task))
    assert shown["resultType"] == "complete"
    assert shown["status"] == "working" and not {"result", "error"} & set(shown)
    shop.gate.set()
    done = finished(peer, task)
    assert done["status"] == "completed" and done["resultType"] == "complete"
    assert done["result"]["structuredContent"] == {"result": 42}
    assert done["createdAt"] == created["createdAt"]
    # no progress, no status: nobody asked for news, and progress is none of a task's
    assert all("method" not in message for message in peer.fence())


def test_a_result_with_is_error_is_a_completed_task(peer: Peer) -> None:
    done = finished(peer, start(peer, "fails"))
    assert done["status"] == "completed" and "error" not in done
    assert done["result"]["isError"] is True
    assert done["result"]["content"] == [{"type": "text", "text": "out of ink"}]


def test_an_error_is_a_failed_task(peer: Peer) -> None:
    done = finished(peer, start(peer, "refuses"))
    assert done["status"] == "failed" and "result" not in done
    assert done["error"] == {"code": -31500, "message": "not today", "data": {"why": "sunday"}}
    assert done["statusMessage"] == "not today"


def test_a_call_that_ends_in_time_is_no_task(shop: Workshop, peer: Peer) -> None:
    peer.send(call(1, "patient", {"n": 3}))
    peer.wait_for(lambda: shop.started)
    shop.gate.set()
    result = peer.recv()["result"]
    assert result["resultType"] == "complete"
    assert result["structuredContent"] == {"result": 3}


def test_a_call_that_takes_its_time_becomes_a_task(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store())

    @shop.server.tool(task="optional", task_after=0.01)
    async def slow(n: int) -> int:
        await shop.wait("slow")
        return n

    peer = connect(shop)
    task = start(peer, "slow", {"n": 3})
    assert shop.started == ["slow"]  # once, and before
    shop.gate.set()
    assert finished(peer, task)["result"]["structuredContent"] == {"result": 3}
    assert shop.started == ["slow"]


def test_when_there_are_too_many_an_optional_task_stays_a_call(
    connect: Any, new_store: MakeStore
) -> None:
    shop = Workshop(new_store(max_tasks=1))
    done = asyncio.Event()

    @shop.server.tool(task="optional", task_after=0.01)
    async def slow() -> str:
        await done.wait()
        return "slow"

    peer = connect(shop)
    start(peer, "double", {"n": 1})
    code, text = peer.error(call(1, "double", {"n": 1}))
    assert code == codes.OVERLOADED and "Too many tasks" in text
    peer.send(call(2, "slow"))
    peer.loop.call_later(0.1, done.set)
    assert peer.recv()["result"]["resultType"] == "complete"


def test_a_call_may_be_cancelled_until_it_is_a_task(shop: Workshop, peer: Peer) -> None:
    peer.send(call(1, "patient", {"n": 3}))
    peer.wait_for(lambda: shop.started)
    peer.send(cancel(1))
    peer.wait_for(lambda: shop.cancelled == ["patient"])
    task = start(peer, "double", {"n": 3})
    peer.send(cancel("start"))
    peer.result(get(2, task))
    assert shop.cancelled == ["patient"]


def test_arguments_that_do_not_fit_make_no_task(peer: Peer) -> None:
    result = peer.result(call(1, "double", {"n": "x"}))
    assert result["resultType"] == "complete" and result["isError"]


# -- cancellation ---------------------------------------------------------------------------------


def test_cancelling(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store())
    peer = connect(shop)
    task = start(peer, "double", {"n": 1})
    peer.wait_for(lambda: shop.started)
    acknowledged = peer.result(get(1, task, "tasks/cancel"))
    assert set(acknowledged) == {"resultType", "_meta"}
    assert acknowledged["resultType"] == "complete"
    done = finished(peer, task)
    assert done["status"] == "cancelled" and not {"result", "error"} & set(done)
    peer.wait_for(lambda: shop.cancelled == ["double"])
    # of one that is over the wish is acknowledged too
    assert peer.result(get(2, task, "tasks/cancel"))["resultType"] == "complete"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_tasks_that_are_not_there(peer: Peer, method: str) -> None:
    for unknown in ("x", ""):
        params = {"taskId": unknown, "inputResponses": {}}
        code, text = peer.error(ask(1, method, params))
        assert (code, text) == (-32602, "Failed to retrieve task: Task not found")
    for params in ({}, {"taskId": 1, "inputResponses": {}}, {"taskId": None}):
        code, text = peer.error(ask(1, method, params))
        assert code == -32602 and text.startswith("Invalid params")


def test_a_principal_has_its_tasks_for_itself(connect: Any, shop: Workshop) -> None:
    anne, bob = connect(shop), connect(shop)
    anne.connection.principal, bob.connection.principal = ANNE, BOB
    task = start(anne, "double", {"n": 1})
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        params = {"taskId": task, "inputResponses": {}}
        assert bob.error(ask(1, method, params))[0] == -32602
    assert not shop.cancelled
    assert anne.result(get(1, task))["status"] == "working"


# -- input ----------------------------------------------------------------------------------------


def test_questions_and_answers(connect: Any, new_store: MakeStore) -> None:
    peer = connect(Workshop(new_store()))
    task = start(peer, "ask_roots", {"times": 2})
    shown = asked(peer, task, 2)
    assert shown["status"] == "input_required"
    first, second = shown["inputRequests"]
    for n, question in enumerate(shown["inputRequests"].values()):
        assert question == {"method": "roots/list", "params": {"_meta": {"com.example/n": n}}}
    # strangers are ignored, a part is taken
    update = {"taskId": task, "inputResponses": {"stranger": {}, first: {"roots": []}}}
    acknowledged = peer.result(ask(2, "tasks/update", update))
    assert set(acknowledged) == {"resultType", "_meta"}
    shown = asked(peer, task, 1)
    assert list(shown["inputRequests"]) == [second] and shown["status"] == "input_required"
    # an answer that came already is not taken again
    update = {"taskId": task, "inputResponses": {first: {"roots": [1]}, second: {"roots": []}}}
    peer.result(ask(3, "tasks/update", update))
    done = finished(peer, task)
    assert done["result"]["structuredContent"] == {"result": [{"roots": []}, {"roots": []}]}
    assert "inputRequests" not in done
    # nor when all is over
    assert peer.result(ask(4, "tasks/update", update))["resultType"] == "complete"


def asked(peer: Peer, task: str, n: int) -> Any:
    """The task once it asks so many things."""
    for _ in range(10_000):
        shown = peer.result(get("poll", task))
        if len(shown.get("inputRequests", ())) == n:
            return shown
    raise AssertionError(shown)


@pytest.mark.parametrize("responses", [None, [], "x", 1])
def test_responses_are_an_object(peer: Peer, responses: Any) -> None:
    task = start(peer, "ask_roots", {"times": 1})
    code, text = peer.error(ask(1, "tasks/update", {"taskId": task, "inputResponses": responses}))
    assert code == -32602 and "inputResponses" in text


def test_responses_that_are_too_large(connect: Any, new_store: MakeStore) -> None:
    peer = connect(Workshop(new_store(max_bytes=20_000)))
    task = start(peer, "ask_roots", {"times": 1})
    (key,) = asked(peer, task, 1)["inputRequests"]
    large = {"taskId": task, "inputResponses": {key: {"roots": ["x" * 30_000]}}}
    code, text = peer.error(ask(1, "tasks/update", large))
    assert code == codes.OVERLOADED and "Too much to keep" in text
    assert asked(peer, task, 1)["status"] == "input_required"


# -- news -----------------------------------------------------------------------------------------


def listen(id: Any, *tasks: Any, **more: Any) -> Any:
    return ask(id, "subscriptions/listen", {"notifications": {"taskIds": list(tasks), **more}})


def test_news_of_tasks_that_were_asked_for(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store())
    peer, other = connect(shop), connect(shop)
    quiet = start(peer, "double", {"n": 1})
    task = start(peer, "ask_roots", {"times": 1})
    (key,) = asked(peer, task, 1)["inputRequests"]
    other.send(listen("news", task, toolsListChanged=True))
    acknowledged = other.recv()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "taskIds": [task]}
    meta = {META + "subscriptionId": "news"}
    first = other.recv()
    assert first["method"] == "notifications/tasks"
    assert first["params"].pop("_meta") == meta
    # just what tasks/get would have given
    shown = peer.result(get(1, task))
    assert first["params"] == {k: v for k, v in shown.items() if k not in ("resultType", "_meta")}
    update = {"taskId": task, "inputResponses": {key: {"roots": []}}}
    peer.result(ask(2, "tasks/update", update))
    working, done = other.recv(), other.recv()
    assert working["params"]["status"] == "working"
    assert done["params"]["status"] == "completed" and done["params"]["_meta"] == meta
    assert done["params"]["result"]["structuredContent"] == {"result": [{"roots": []}]}
    # a subscription hears of nothing else
    shop.gate.set()
    finished(peer, quiet)
    assert other.fence() == []


def test_what_is_over_is_told_at_once(peer: Peer) -> None:
    task = start(peer, "blocking", {"n": 1})
    finished(peer, task)
    peer.send(listen(1, task))
    peer.recv()
    assert peer.recv()["params"]["status"] == "completed"


def test_a_subscription_that_ended_hears_nothing(shop: Workshop, peer: Peer) -> None:
    task = start(peer, "double", {"n": 1})
    peer.send(listen(7, task))
    assert peer.recv()["method"] == "notifications/subscriptions/acknowledged"
    assert peer.recv()["params"]["status"] == "working"
    peer.send(cancel(7))
    shop.gate.set()
    finished(peer, task)
    assert peer.fence() == []


def test_nobody_hears_of_the_tasks_of_others(connect: Any, shop: Workshop) -> None:
    anne, bob = connect(shop), connect(shop)
    anne.connection.principal, bob.connection.principal = ANNE, BOB
    task = start(anne, "double", {"n": 1})
    bob.send(listen(1, task, "unknown"))
    # whether there is such a task is not told
    assert bob.recv()["params"]["notifications"] == {"taskIds": [task, "unknown"]}
    shop.gate.set()
    finished(anne, task)
    assert bob.fence() == []


def test_listening_needs_the_extension(peer: Peer) -> None:
    params = {"notifications": {"taskIds": []}}
    error = peer.ask(modern(1, "subscriptions/listen", params))["error"]
    assert error["code"] == -32021 and error["data"] == REQUIRED
    assert not peer.connection.listens


@pytest.mark.parametrize("wanted", ["x", 1, [1], {"a": 1}])
def test_task_ids_are_strings(peer: Peer, wanted: Any) -> None:
    params = {"notifications": {"taskIds": wanted}}
    code, text = peer.error(ask(1, "subscriptions/listen", params))
    assert code == -32602 and "taskIds" in text
    assert not peer.connection.listens


def test_not_too_many_on_one_subscription(peer: Peer) -> None:
    code, text = peer.error(listen(1, *map(str, range(1001))))
    assert code == codes.OVERLOADED and "1000" in text


def test_a_server_without_tasks_ignores_task_ids(connect: Any) -> None:
    peer = connect(Server("bare"))
    peer.send(listen(1, "x"))
    assert peer.recv()["params"]["notifications"] == {}


def test_a_subscription_leaves_nothing_behind(connect: Any, shop: Workshop) -> None:
    """Ended by its client, or with its connection, though its tasks do not change."""
    peer, other = connect(shop), connect(shop)
    tasks = [start(peer, "double", {"n": 1}) for _ in range(2)]
    for id in range(20):
        peer.send(listen(id, *tasks))
        while peer.recv()["params"].get("taskId") != tasks[1]:
            pass
        peer.send(cancel(id))
    other.send(listen("stays", tasks[0]))
    assert other.recv()["params"] and other.recv()["params"]["status"] == "working"
    peer.fence()
    book = book_of(peer.server, peer.loop)
    assert book.listeners.listened == {tasks[0]}
    other.run(other.leave())
    peer.wait_for(lambda: not book.listeners.listened)


def test_a_client_that_does_not_read_gets_the_last_state_once_it_does(connect: Any) -> None:
    """Each subscription would be told the whole result: that must not pile up."""
    shop = Workshop(server={"limits": Limits(output_high=65536, output_low=16384)})

    @shop.server.tool(task="required")
    async def report() -> str:
        await shop.wait("report")
        return "x" * 200_000

    peer = connect(shop)
    task = start(peer, "report")
    n = 30
    for id in range(n):
        peer.send(listen(id, task))
        while peer.recv()["method"] != "notifications/tasks":
            pass
    shop.gate.set()
    session = peer.connection.session
    peer.wait_for(lambda: session.outbox.size > 65536)
    peer.run(asyncio.sleep(0))
    assert session.outbox.size < 1_000_000
    told = [peer.recv()["params"] for _ in range(n)]
    assert {params["_meta"][META + "subscriptionId"] for params in told} == set(range(n))
    assert all(len(params["result"]["content"][0]["text"]) == 200_000 for params in told)
    assert peer.fence() == []


def test_ids_of_tasks_are_not_long(peer: Peer) -> None:
    code, text = peer.error(listen(1, "x" * 65))
    assert code == -32602 and "longer than 64" in text
    assert not peer.connection.listens
