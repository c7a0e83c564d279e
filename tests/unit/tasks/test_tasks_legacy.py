"""Tasks of 2025-11-25: the client asks for them (basic/utilities/tasks)."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from lab.legacy_tasks import answer, as_task, get, start
from lab.raw import call, cancel, notification, request
from lab.server import Peer
from lab.task import ANNE, BOB, MakeStore, Workshop, book_of, bounded

from wirespeed import Server
from wirespeed.protocol import codes
from wirespeed.tasks import MemoryTaskStore, Task

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def answers_to(peer: Peer, *ids: Any) -> dict[Any, Any]:
    """The answers to these requests, in any order, whatever is told in between."""
    got: dict[Any, Any] = {}
    while len(got) < len(ids):
        message = peer.recv()
        if "method" not in message:
            got[message["id"]] = message
    return got


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def peer(connect: Any, shop: Workshop) -> Peer:
    peer: Peer = connect(shop, VERSION)
    return peer


# -- negotiation ----------------------------------------------------------------------------------


def test_the_capability_is_there_while_tools_may_be_tasks(connect: Any, shop: Workshop) -> None:
    offered = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert connect(shop).handshake(VERSION)["capabilities"]["tasks"] == offered
    for older in ("2024-11-05", "2025-03-26", "2025-06-18"):
        assert "tasks" not in connect(shop).handshake(older)["capabilities"]
    assert "tasks" not in connect(Server("bare")).handshake(VERSION)["capabilities"]


def test_tools_say_whether_they_may_be_tasks(connect: Any, shop: Workshop) -> None:
    tools = connect(shop, VERSION).result(request(1, "tools/list"))["tools"]
    support = {tool["name"]: tool.get("execution") for tool in tools}
    assert support["double"] == {"taskSupport": "optional"}
    assert support["must"] == {"taskSupport": "required"}
    assert support["plain"] is None
    older = connect(shop, "2025-06-18").result(request(1, "tools/list"))["tools"]
    assert not any("execution" in tool for tool in older)


def test_tools_that_are_no_tasks(peer: Peer) -> None:
    assert peer.error(as_task(1, "plain")) == (-32601, "Tool plain does not run as a task")


def test_tools_that_must_be_tasks(connect: Any, shop: Workshop, peer: Peer) -> None:
    assert peer.error(call(1, "must")) == (-32601, "Tool must only runs as a task")
    older = connect(shop, "2025-06-18")
    code, text = older.error(call(1, "must"))
    assert code == -32601 and "2025-06-18 has no tasks" in text
    assert not shop.started


def test_an_optional_one_is_called_plainly(peer: Peer) -> None:
    assert peer.result(call(1, "blocking", {"n": 1}))["structuredContent"] == {"result": 2}


def test_without_the_capability_the_wish_is_ignored(connect: Any) -> None:
    """'Receivers that do not declare the task capability … MUST process requests of that type
    normally, ignoring any task-augmentation metadata'."""
    bare = Server("bare")

    @bare.tool
    async def plain() -> str:
        return "plain"

    peer = connect(bare, VERSION)
    assert peer.result(as_task(1, "plain"))["content"][0]["text"] == "plain"
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list"):
        assert peer.error(get(2, "x", method))[0] == -32601


def test_older_revisions_have_no_tasks(connect: Any, shop: Workshop) -> None:
    peer = connect(shop, "2025-06-18")
    assert peer.result(as_task(1, "blocking", {"n": 1}))["structuredContent"] == {"result": 2}
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list"):
        assert peer.error(get(2, "x", method))[0] == -32601


# -- life -----------------------------------------------------------------------------------------


def test_a_task_from_its_start_to_its_result(
    runner: asyncio.Runner, connect: Any, new_store: MakeStore
) -> None:
    shop = Workshop(new_store())
    peer = connect(shop, VERSION)
    peer.send(as_task(1, "double", {"n": 21}, ttl=5000, progressToken="p"))
    said = peer.until(1)
    task = said[-1]["result"]["task"]
    assert list(said[-1]["result"]) == ["task"]
    assert task["status"] == "working"
    assert task["ttl"] == 5000 and task["pollInterval"] == 1000
    assert STAMP.fullmatch(task["createdAt"]) and STAMP.fullmatch(task["lastUpdatedAt"])
    (progress,) = said[:-1] or [peer.recv()]
    assert progress["params"]["progressToken"] == "p"
    assert progress["params"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
    assert peer.result(get(2, task["taskId"])) == task

    # it blocks; other requests do not
    peer.send(get(3, task["taskId"], "tasks/result"))
    assert peer.result(get(4, task["taskId"]))["status"] == "working"
    runner.get_loop().call_soon(shop.gate.set)
    *news, last = peer.until(3)
    assert [message["method"] for message in news] == [
        "notifications/progress",  # the token lives as long as the task
        "notifications/tasks/status",
    ]
    assert news[1]["params"]["status"] == "completed"
    assert "_meta" not in news[1]["params"]
    result = last["result"]
    assert result["structuredContent"] == {"result": 42}
    assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
    done = peer.result(get(5, task["taskId"]))
    assert done["status"] == "completed" and done["createdAt"] == task["createdAt"]
    # again and again
    assert peer.result(get(6, task["taskId"], "tasks/result")) == result


def test_a_result_with_is_error_is_a_failed_task(peer: Peer) -> None:
    task = start(peer, "fails")
    answered = answer(peer, get(1, task, "tasks/result"))
    assert answered["result"]["isError"] is True
    assert answered["result"]["content"] == [{"type": "text", "text": "out of ink"}]
    assert answered["result"]["_meta"] == {RELATED: {"taskId": task}}
    shown = peer.result(get(2, task))
    assert shown["status"] == "failed" and shown["statusMessage"] == "out of ink"


def test_an_error_is_the_answer_to_tasks_result(peer: Peer) -> None:
    task = start(peer, "refuses")
    error = answer(peer, get(1, task, "tasks/result"))["error"]
    assert error == {"code": -31500, "message": "not today", "data": {"why": "sunday"}}
    shown = peer.result(get(2, task))
    assert shown["status"] == "failed" and shown["statusMessage"] == "not today"


def test_a_blocking_function(peer: Peer) -> None:
    task = start(peer, "blocking", {"n": 1})
    result = answer(peer, get(1, task, "tasks/result"))["result"]
    assert result["structuredContent"] == {"result": 2}


def test_arguments_that_do_not_fit_make_no_task(shop: Workshop, peer: Peer) -> None:
    """Who asked for a task does not wait for a result."""
    code, text = peer.error(as_task(1, "double", {"n": "x"}))
    assert code == -32602 and "Invalid arguments for tool double" in text
    assert peer.result(request(2, "tasks/list"))["tasks"] == []


@pytest.mark.parametrize("ttl", ["x", -1, True, [], {}])
def test_a_bad_wish(peer: Peer, ttl: Any) -> None:
    code, text = peer.error(as_task(1, "double", {"n": 1}, ttl=ttl))
    assert code == -32602 and "params.task.ttl" in text


@pytest.mark.parametrize("wish", [1, "x", [1], True])
def test_a_wish_that_is_no_object(peer: Peer, wish: Any) -> None:
    message = call(1, "double", {"n": 1})
    message["params"]["task"] = wish
    code, text = peer.error(message)
    assert code == -32602 and "params.task" in text


def test_the_longest_life(connect: Any) -> None:
    peer = connect(Workshop(ttl=None, max_ttl=10.0), VERSION)
    ids = [start(peer, "blocking", {"n": 1}, ttl=ttl) for ttl in (None, 10_001, 9_999.5, 1e300)]
    ttls = [answer(peer, get(i, task))["result"]["ttl"] for i, task in enumerate(ids)]
    assert ttls == [10_000, 10_000, 9_999, 10_000]
    forever = connect(Workshop(ttl=None, max_ttl=None), VERSION)
    task = start(forever, "blocking", {"n": 1})
    assert answer(forever, get(1, task))["result"]["ttl"] is None


def test_a_task_whose_time_is_over(
    runner: asyncio.Runner, connect: Any, new_store: MakeStore
) -> None:
    """Its handler is cancelled, and whoever waits for its result is told."""
    shop = Workshop(new_store())
    peer = connect(shop, VERSION)
    task = start(peer, "double", {"n": 1}, ttl=30)
    peer.send(get(1, task, "tasks/result"))
    assert answers_to(peer, 1)[1]["error"]["code"] == -32602
    peer.wait_for(lambda: shop.cancelled == ["double"])
    peer.send(get(2, task))
    peer.send(request(3, "tasks/list"))
    answers = answers_to(peer, 2, 3)
    assert answers[2]["error"]["code"] == -32602
    assert answers[2]["error"]["message"].startswith("Failed to retrieve task: Task")
    assert answers[3]["result"]["tasks"] == []


# -- cancellation ---------------------------------------------------------------------------------


def test_cancelling(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store())
    peer = connect(shop, VERSION)
    task = start(peer, "double", {"n": 1})
    peer.wait_for(lambda: shop.started)
    peer.send(get(1, task, "tasks/result"))
    peer.send(get(2, task, "tasks/cancel"))
    answers = answers_to(peer, 1, 2)
    assert answers[2]["result"]["status"] == "cancelled"
    assert answers[2]["result"]["statusMessage"] == "The task was cancelled by request"
    peer.wait_for(lambda: shop.cancelled == ["double"])
    # there is no result to give
    assert answers[1]["error"] == {
        "code": codes.TASK_CANCELLED,
        "message": "The task was cancelled by request",
    }
    # it stays so
    code, text = peer.error(get(3, task, "tasks/cancel"))
    assert (code, text) == (-32602, "Cannot cancel task: already in terminal status 'cancelled'")
    assert peer.result(get(4, task))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [("blocking", {"n": 1}, "completed"), ("fails", None, "failed"), ("refuses", None, "failed")],
)
def test_what_is_over_cannot_be_cancelled(
    peer: Peer, tool: str, arguments: Any, status: str
) -> None:
    task = start(peer, tool, arguments)
    answer(peer, get(1, task, "tasks/result"))
    code, text = peer.error(get(2, task, "tasks/cancel"))
    assert (code, text) == (-32602, f"Cannot cancel task: already in terminal status '{status}'")


def test_the_cancellation_of_the_request_does_not_touch_the_task(
    shop: Workshop, peer: Peer
) -> None:
    task = start(peer, "double", {"n": 4})
    peer.send(cancel("start"))
    peer.fence()
    assert not shop.cancelled
    shop.gate.set()
    result = answer(peer, get(1, task, "tasks/result"))["result"]
    assert result["structuredContent"] == {"result": 8}


def test_cancelling_tasks_result_cancels_only_the_waiting(shop: Workshop, peer: Peer) -> None:
    task = start(peer, "double", {"n": 4})
    peer.send(get(1, task, "tasks/result"), cancel(1))
    peer.fence()
    assert not shop.cancelled
    shop.gate.set()
    result = answer(peer, get(2, task, "tasks/result"))["result"]
    assert result["structuredContent"] == {"result": 8}


def test_a_tools_own_timeout_holds_for_tasks(connect: Any, shop: Workshop) -> None:
    @shop.server.tool(task="optional", timeout=0.02)
    async def slow() -> None:
        await shop.wait("slow")

    peer = connect(shop, VERSION)
    task = start(peer, "slow")
    result = answer(peer, get(1, task, "tasks/result"))["result"]
    assert result["isError"] and "timed out after 0.02 s" in result["content"][0]["text"]


# -- connections and principals -------------------------------------------------------------------


def test_a_task_outlives_its_connection(connect: Any, new_store: MakeStore) -> None:
    """Without a principal, the id is enough."""
    shop = Workshop(new_store())
    first = connect(shop, VERSION)
    task = start(first, "double", {"n": 5})
    first.run(first.leave())
    second = connect(shop, VERSION)
    assert second.result(get(1, task))["status"] == "working"
    shop.gate.set()
    result = answer(second, get(2, task, "tasks/result"))["result"]
    assert result["structuredContent"] == {"result": 10}
    # but what others made is not listed
    assert second.result(request(3, "tasks/list"))["tasks"] == []
    assert not shop.cancelled


def test_a_principal_has_its_tasks_for_itself(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store())
    anne, also_anne, bob, nobody = (connect(shop, VERSION) for _ in range(4))
    for peer, principal in ((anne, ANNE), (also_anne, ANNE), (bob, BOB)):
        peer.connection.principal = principal
    task = start(anne, "double", {"n": 5})
    assert also_anne.result(get(1, task))["taskId"] == task
    assert [t["taskId"] for t in also_anne.result(request(2, "tasks/list"))["tasks"]] == [task]
    for other in (bob, nobody):
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert other.error(get(1, task, method)) == (
                -32602,
                "Failed to retrieve task: Task not found",
            )
        assert other.result(request(2, "tasks/list"))["tasks"] == []
    # and nobody's tasks are not hers
    loose = start(nobody, "double", {"n": 5})
    assert anne.error(get(3, loose))[0] == -32602


def test_listing_in_pages(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(), server={"page_size": 2})
    peer = connect(shop, VERSION)
    tasks = [start(peer, "double", {"n": n}) for n in range(5)]
    found: list[str] = []
    cursor = None
    pages = 0
    while pages == 0 or cursor is not None:
        pages += 1
        page = peer.result(request(1, "tasks/list", cursor and {"cursor": cursor}))
        assert len(page["tasks"]) <= 2
        found += [task["taskId"] for task in page["tasks"]]
        cursor = page.get("nextCursor")
    assert pages == 3 and found == tasks
    for bad in ("", "nonsense", "dGFzazoy\n", "dGFzazp4"):
        assert peer.error(request(2, "tasks/list", {"cursor": bad})) == (-32602, "Invalid cursor")


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_tasks_that_are_not_there(peer: Peer, method: str) -> None:
    for unknown in ("x", "", "../tasks", "\u0000"):
        code, text = peer.error(get(1, unknown, method))
        assert (code, text) == (-32602, "Failed to retrieve task: Task not found")
    for params in (None, {}, {"taskId": 1}, {"taskId": None}):
        code, text = peer.error(request(1, method, params))
        assert code == -32602 and text.startswith("Invalid params")


def test_too_many_tasks(connect: Any, new_store: MakeStore) -> None:
    shop = Workshop(new_store(max_tasks_per_owner=2))
    peer = connect(shop, VERSION)
    start(peer, "double", {"n": 1})
    start(peer, "double", {"n": 1})
    code, text = peer.error(as_task(1, "double", {"n": 1}))
    assert code == codes.OVERLOADED and "Too many tasks" in text
    assert shop.started == ["double", "double"]


def test_a_result_that_is_too_large_to_keep(
    connect: Any, new_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    peer = connect(Workshop(new_store(max_bytes=20_000)), VERSION)
    task = start(peer, "large", {"size": 50_000})
    error = answer(peer, get(1, task, "tasks/result"))["error"]
    assert error == {"code": -32603, "message": "The result is too large to keep"}
    assert "cannot be kept" in caplog.text


def test_logs_do_not_tell_ids(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads the log cannot fetch the results."""
    with caplog.at_level(logging.INFO, "wirespeed.server"):
        task = start(peer, "blocking", {"n": 1})
        answer(peer, get(1, task, "tasks/result"))
    assert "of tool blocking was created" in caplog.text
    assert "of tool blocking: completed" in caplog.text
    assert task not in caplog.text


# -- input ----------------------------------------------------------------------------------------


def test_questions_go_to_whoever_asks_for_the_result(peer: Peer) -> None:
    task = start(peer, "ask_roots", {"times": 2})
    assert not any(message.get("method") == "roots/list" for message in peer.fence())
    peer.send(get(2, task, "tasks/result"))
    for n in range(2):
        asked = question(peer)
        assert asked["params"]["_meta"] == {RELATED: {"taskId": task}, "com.example/n": n}
        result = {"roots": [], "_meta": {"com.example/n": n}}
        peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    *news, last = peer.until(2)
    assert last["result"]["structuredContent"] == {
        "result": [{"roots": [], "_meta": {"com.example/n": n}} for n in range(2)]
    }
    statuses = [m["params"]["status"] for m in news if "tasks/status" in m["method"]]
    assert statuses[-2:] == ["working", "completed"]


def test_a_client_that_only_polls_is_asked(connect: Any, new_store: MakeStore) -> None:
    peer = connect(Workshop(new_store()), VERSION)
    task = start(peer, "ask_roots", {"times": 2})
    asked: list[Any] = []
    while len(asked) < 2:
        peer.send(get(1, task))
        *said, shown = peer.until(1)
        said += peer.fence()
        asked += [message for message in said if message.get("method") == "roots/list"]
    assert shown["result"]["status"] == "input_required"
    for one in asked:
        assert one["params"]["_meta"][RELATED] == {"taskId": task}
    peer.send(get(2, task))  # asks nothing a second time
    assert peer.until(2)[-1]["result"]["status"] == "input_required"
    assert not any(message.get("method") == "roots/list" for message in peer.fence())
    for one in asked:
        peer.send({"jsonrpc": "2.0", "id": one["id"], "result": {"roots": []}})
    while answer(peer, get(3, task))["result"]["status"] != "completed":
        pass
    result = answer(peer, get(4, task, "tasks/result"))["result"]
    assert result["structuredContent"] == {"result": [{"roots": []}] * 2}


def test_the_question_to_a_client_that_only_polls_ends_with_its_task(peer: Peer) -> None:
    task = start(peer, "ask_roots", {"times": 1})
    peer.send(get(1, task))
    asked = question(peer)
    peer.send(get(2, task, "tasks/cancel"))
    while (said := peer.recv()).get("method") != "notifications/cancelled":
        pass
    assert said["params"]["requestId"] == asked["id"]


class Listing(MemoryTaskStore):
    """A store that says when it has a new task, and waits before `create` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.made: asyncio.Queue[str] = asyncio.Queue()
        self.gate = asyncio.Event()

    async def create(self, task: Task) -> None:
        await super().create(task)
        self.made.put_nowait(task.id)
        await self.gate.wait()


def test_a_task_is_cancelled_before_its_request_is_answered(connect: Any) -> None:
    """Its client finds it in tasks/list. The handler does not begin."""
    store = Listing()
    shop = Workshop(store)
    peer = connect(shop, VERSION)
    peer.send(as_task("call", "double", {"n": 1}))
    (shown,) = answer(peer, request(1, "tasks/list"))["result"]["tasks"]
    assert answer(peer, get(2, shown["taskId"], "tasks/cancel"))["result"]["status"] == "cancelled"
    store.gate.set()
    assert peer.until("call")[-1]["result"]["task"]["taskId"] == shown["taskId"]
    assert answer(peer, get(3, shown["taskId"]))["result"]["status"] == "cancelled"
    peer.fence()
    assert not shop.started
    assert not list(book_of(shop.server, peer.loop).workers.task_ids)


def question(peer: Peer) -> Any:
    while True:
        message = peer.recv()
        if message.get("method") == "roots/list":
            return message


def test_a_client_that_refuses_to_answer(peer: Peer) -> None:
    task = start(peer, "ask_roots", {"times": 1})
    peer.send(get(1, task, "tasks/result"))
    asked = question(peer)
    error = {"code": -1, "message": "no"}
    peer.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
    result = peer.until(1)[-1]["result"]
    assert result["isError"] and result["content"][0]["text"] == "no (code -1)"


def test_two_who_wait_for_one_task_are_not_both_asked(connect: Any, shop: Workshop) -> None:
    one, other = connect(shop, VERSION), connect(shop, VERSION)
    task = start(one, "ask_roots", {"times": 1})
    one.send(get(1, task, "tasks/result"))
    asked = question(one)
    other.send(get(1, task, "tasks/result"))
    assert other.fence() == []
    one.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
    assert other.until(1)[-1]["result"]["structuredContent"] == {"result": [{"roots": []}]}


def test_a_question_is_asked_again_when_its_client_goes(connect: Any, shop: Workshop) -> None:
    one = connect(shop, VERSION)
    task = start(one, "ask_roots", {"times": 1})
    one.send(get(1, task, "tasks/result"))
    question(one)
    one.run(one.leave())
    other = connect(shop, VERSION)
    other.send(get(1, task, "tasks/result"))
    asked = question(other)
    other.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
    assert other.until(1)[-1]["result"]["structuredContent"] == {"result": [{"roots": []}]}


def test_another_who_waits_is_asked_when_the_first_goes(connect: Any, shop: Workshop) -> None:
    one, other = connect(shop, VERSION), connect(shop, VERSION)
    task = start(one, "ask_roots", {"times": 1})
    one.send(get(1, task, "tasks/result"))
    question(one)
    other.send(get(1, task, "tasks/result"))
    assert other.fence() == []
    one.run(one.leave())
    asked = question(other)
    other.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
    assert other.until(1)[-1]["result"]["structuredContent"] == {"result": [{"roots": []}]}


def test_a_client_is_not_asked_what_it_did_not_declare(connect: Any, shop: Workshop) -> None:
    """Who asks for the result need not be whom the task was made for."""
    one, other = connect(shop, VERSION), connect(shop, VERSION, {})
    task = start(one, "ask_roots", {"times": 1})
    other.send(get(1, task, "tasks/result"))
    assert answer(other, get(2, task))["result"]["status"] == "input_required"
    assert other.fence() == []
    one.send(get(1, task, "tasks/result"))
    asked = question(one)
    one.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
    for peer in (one, other):
        assert "structuredContent" in peer.until(1)[-1]["result"]


def test_cancelling_a_task_takes_its_question_back(peer: Peer) -> None:
    task = start(peer, "ask_roots", {"times": 1})
    peer.send(get(1, task, "tasks/result"))
    asked = question(peer)
    peer.send(get(2, task, "tasks/cancel"))
    said = [peer.recv()]
    while not any(m.get("method") == "notifications/cancelled" for m in said):
        said.append(peer.recv())
    taken = next(m for m in said if m.get("method") == "notifications/cancelled")
    assert taken["params"]["requestId"] == asked["id"]


def test_a_connection_that_is_gone_is_told_nothing(connect: Any, shop: Workshop) -> None:
    one, other = connect(shop, VERSION), connect(shop, VERSION)
    task = start(one, "double", {"n": 1})
    book = book_of(shop.server, one.loop)
    assert book.listeners.listened == {task}
    one.run(one.leave())
    other.wait_for(lambda: not book.listeners.listened)
    assert other.result(get(1, task))["status"] == "working"


# -- shutting down --------------------------------------------------------------------------------


def test_a_task_does_not_hold_the_connection(
    runner: asyncio.Runner, shop: Workshop, peer: Peer
) -> None:
    start(peer, "double", {"n": 1})
    peer.end_input()
    peer.run(bounded(asyncio.wait_for(asyncio.shield(peer.connection.closed), 20)))
    assert not shop.cancelled


def test_notifications_of_tasks_by_clients_are_ignored(peer: Peer) -> None:
    peer.send(notification("notifications/tasks/status", {"taskId": "x", "status": "completed"}))
    assert peer.fence() == []
