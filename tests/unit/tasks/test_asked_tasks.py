"""A server that asks clients of 2025-11-25 by tasks of theirs (basic/utilities/tasks)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from questions_lab import ACCEPT, CAPABILITIES, SAMPLED, enter, reply
from raw import call, cancel, notification, request
from server_lab import LEGACY, Peer, text_of
from task_lab import Run

from wirespeed import Client, Context, Limits, Server
from wirespeed.client import SampleResult
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    Declined,
    InvalidResponse,
    RemoteError,
    TaskCancelled,
    WirespeedError,
)
from wirespeed.server import ElicitRequest, InputRequired, asked_tasks

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"
REQUESTS = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
TASKS = {"list": {}, "cancel": {}, "requests": REQUESTS}
MODEL = "sampling/createMessage"
NEWS = "notifications/tasks/status"


class Seat(msgspec.Struct):
    row: int


class Asking:
    """A server with a tool that asks, and how its question ended."""

    def __init__(self, **options: Any) -> None:
        self.server = server = Server("asks", **options)
        self.ends: list[str] = []

        @server.tool
        async def ask(ctx: Context, ttl: float | None = 60.0, timeout: float | None = None) -> str:
            try:
                answer = await ctx.sample("Hi", max_tokens=9, ttl=ttl, timeout=timeout)
            except BaseException as exc:
                self.ends.append(type(exc).__name__)
                if isinstance(exc, WirespeedError):
                    return f"{type(exc).__name__}: {exc}"
                raise
            self.ends.append("answered")
            return answer.text

        @server.tool
        async def seat(ctx: Context) -> str:
            answer = await ctx.elicit("Which?", Seat, ttl=0.5)
            return f"{answer.action} {answer.content}"

        @server.tool
        async def link(ctx: Context) -> str:
            return (await ctx.elicit_url("Go", "https://a.example", ttl=1)).action

        @server.tool
        async def both(ctx: Context) -> str:
            seat, model = await asyncio.gather(
                ctx.elicit("Which?", Seat, ttl=1), ctx.sample("Hi", max_tokens=9, ttl=1)
            )
            return f"{seat.content} {model.text}"

        @server.tool
        async def listed(ctx: Context, timeout: float | None = None) -> str:
            try:
                found = await ctx.client_tasks(timeout=timeout)
            except WirespeedError as exc:
                return f"{type(exc).__name__}: {exc}"
            return json.dumps([f"{task.task_id} {task.status}" for task in found])

        @server.tool
        async def explicit(ctx: Context) -> str | InputRequired:
            if not ctx.input_responses:
                return InputRequired({"seat": ElicitRequest("Which?", Seat)})
            return str(ctx.input_responses["seat"].as_form(Seat))


@pytest.fixture
def asking() -> Asking:
    return Asking()


@pytest.fixture
def enters(connect: Any, asking: Asking) -> Callable[..., Peer]:
    """Makes clients with what of ``tasks`` they declare."""

    def enters(tasks: Any = TASKS, version: str = VERSION) -> Peer:
        capabilities = CAPABILITIES if version == VERSION else {"sampling": {}, "roots": {}}
        if tasks is not None:
            capabilities = capabilities | {"tasks": tasks}
        peer: Peer = enter(lambda: connect(asking.server), version, capabilities)
        return peer

    return enters


@pytest.fixture
def peer(enters: Any) -> Any:
    return enters()


def a_task(id: Any = "t1", status: str = "working", **members: Any) -> dict[str, Any]:
    moment = "2025-11-25T10:30:00Z"
    times = {"createdAt": moment, "lastUpdatedAt": moment, "ttl": 60000}
    return {"taskId": id, "status": status} | times | members


def made(question: Any, id: Any = "t1", **members: Any) -> dict[str, Any]:
    """The answer to a question that has become a task."""
    return reply(question, {"task": a_task(id, **{"pollInterval": 0} | members)})


def refusal(question: Any, code: int, message: str = "no") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": message}}


def told(id: str, status: str, **members: Any) -> dict[str, Any]:
    return notification(NEWS, a_task(id, status, **members))


def of_task(result: Any, id: str = "t1") -> Any:
    return result | {"_meta": {RELATED: {"taskId": id}}}


def expect(peer: Peer, method: str, id: str = "t1") -> Any:
    """The next message asks for this, of this task."""
    message = peer.recv()
    assert message.get("method") == method, message
    assert message["params"] == {"taskId": id}  # and no related-task: the id is in the params
    return message


def outcome(peer: Peer, id: Any = 1) -> str:
    """What the tool says, and that nothing else comes before."""
    answer = peer.recv()
    assert answer.get("id") == id, answer
    return text_of(answer["result"])


# -- as the page has it ---------------------------------------------------------------------------


def test_a_question_as_a_task_is_polled_and_fetched(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    assert question["method"] == MODEL
    assert question["params"]["task"] == {"ttl": 60000}
    assert question["params"]["maxTokens"] == 9
    peer.send(made(question))
    for _ in range(2):
        look = expect(peer, "tasks/get")
        peer.send(reply(look, a_task(pollInterval=1)))
    look = expect(peer, "tasks/get")
    peer.send(reply(look, a_task(status="completed")))
    fetch = expect(peer, "tasks/result")
    peer.send(reply(fetch, of_task(SAMPLED)))
    assert outcome(peer) == "Paris"
    assert peer.fence() == []


def test_a_form_and_a_link(peer: Peer) -> None:
    question = peer.ask(call(1, "seat"))
    assert question["method"] == "elicitation/create"
    assert question["params"]["task"] == {"ttl": 500}
    peer.send(made(question, status="completed"))  # over from the start: no look is needed
    peer.send(reply(expect(peer, "tasks/result"), of_task(ACCEPT)))
    assert outcome(peer) == "accept Seat(row=5)"
    question = peer.ask(call(2, "link"))
    assert question["params"]["mode"] == "url" and "task" in question["params"]
    peer.send(made(question, "t2", status="failed"))
    peer.send(reply(expect(peer, "tasks/result", "t2"), of_task({"action": "decline"}, "t2")))
    assert outcome(peer, 2) == "decline"


def test_the_client_tells_of_the_end_by_itself(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000))
    peer.fence()
    peer.send(told("t1", "working"), told("other", "completed"))
    assert peer.fence() == []
    peer.send(told("t1", "completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_news_may_come_together_with_the_task(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000), told("t1", "completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"
    connection = peer.connection
    tasks = connection.state.asked_tasks
    assert tasks is not None and not tasks._tasks and not tasks._early


def test_a_task_that_waits_for_input_is_asked_for_its_result(peer: Peer) -> None:
    """'When the requestor encounters the input_required status, it SHOULD preemptively call
    tasks/result', and what the receiver asks meanwhile is served."""
    question = peer.ask(call(1, "ask"))
    peer.send(made(question))
    peer.send(reply(expect(peer, "tasks/get"), a_task(status="input_required")))
    fetch = expect(peer, "tasks/result")
    assert peer.fence() == []  # and does not look any more
    peer.send(told("t1", "working"), told("t1", "completed"))
    peer.send(reply(fetch, of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_several_at_once_are_told_apart(peer: Peer) -> None:
    peer.send(call(1, "both"))
    form, model = peer.recv(), peer.recv()
    peer.send(made(form, "a", pollInterval=60000), made(model, "b", pollInterval=60000))
    peer.send(told("b", "completed"))
    peer.send(reply(expect(peer, "tasks/result", "b"), of_task(SAMPLED, "b")))
    peer.send(told("a", "completed"))
    peer.send(reply(expect(peer, "tasks/result", "a"), of_task(ACCEPT, "a")))
    assert outcome(peer) == "Seat(row=5) Paris"


# -- clients without ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tasks",
    [None, {}, {"list": {}, "cancel": {}}, {"requests": {"elicitation": {"create": {}}}}],
    ids=repr,
)
def test_what_is_not_declared_is_asked_plainly(enters: Any, tasks: Any) -> None:
    peer = enters(tasks)
    question = peer.ask(call(1, "ask"))
    assert "task" not in question["params"]
    peer.send(reply(question, SAMPLED))
    assert outcome(peer) == "Paris"


@pytest.mark.parametrize("requests", [5, {"sampling": None}, {"sampling": {"createMessage": True}}])
def test_a_capability_that_is_malformed_is_none(enters: Any, requests: Any) -> None:
    for tasks in ({"requests": requests}, requests):
        peer = enters(tasks)
        question = peer.ask(call(1, "ask"))
        assert "task" not in question["params"]
        peer.send(reply(question, SAMPLED))
        assert outcome(peer) == "Paris"


@pytest.mark.parametrize("version", LEGACY[:-1])
def test_older_revisions_have_no_tasks(enters: Any, version: str) -> None:
    peer = enters(version=version)
    question = peer.ask(call(1, "ask"))
    assert "task" not in question["params"]
    peer.send(reply(question, SAMPLED))
    assert outcome(peer) == "Paris"


def test_without_a_ttl_the_question_is_plain(peer: Peer) -> None:
    question = peer.ask(call(1, "ask", {"ttl": None}))
    assert "task" not in question["params"]
    peer.send(reply(question, SAMPLED))
    assert outcome(peer) == "Paris"


@pytest.mark.parametrize("more", [{}, {"task": None}, {"task": "x"}, {"task": [1]}], ids=repr)
def test_a_client_may_answer_at_once(peer: Peer, more: Any) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(reply(question, SAMPLED | more))
    assert outcome(peer) == "Paris"


def test_a_client_may_refuse_at_once(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(refusal(question, -1, "User rejected"))
    assert outcome(peer) == "RemoteError: User rejected (code -1)"


def test_a_client_may_take_a_request_as_a_task_only(peer: Peer) -> None:
    """'Receivers … MAY return an error for non-task-augmented requests': -32600."""
    question = peer.ask(call(1, "ask", {"ttl": None}))
    peer.send(refusal(question, -32600, "Task augmentation required"))
    again = peer.recv()
    assert again["params"] == question["params"] | {"task": {}}
    peer.send(made(again, status="completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_the_explicit_form_asks_such_a_client_too(peer: Peer) -> None:
    question = peer.ask(call(1, "explicit"))
    peer.send(refusal(question, -32600))
    again = peer.recv()
    peer.send(made(again, status="completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(ACCEPT)))
    assert outcome(peer) == "Seat(row=5)"


def test_the_question_of_a_tool_that_is_a_task_too(enters: Any, asking: Asking) -> None:
    @asking.server.tool(task="required")
    async def long(ctx: Context) -> str:
        return (await ctx.sample("Hi", max_tokens=9)).text

    peer = enters()
    message = call(1, "long")
    message["params"]["task"] = {}
    task = peer.result(message)["task"]
    peer.send(request(2, "tasks/result", {"taskId": task["taskId"]}))
    while (question := peer.recv()).get("method") != MODEL:
        assert question["method"] == NEWS
    assert question["params"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
    assert "task" not in question["params"]
    peer.send(refusal(question, -32600))
    again = peer.recv()
    assert again["params"] == question["params"] | {"task": {}}
    peer.send(made(again, status="completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert text_of(peer.until(2)[-1]["result"]) == "Paris"


def test_other_refusals_of_a_plain_question_are_final(enters: Any, peer: Peer) -> None:
    question = peer.ask(call(1, "ask", {"ttl": None}))
    peer.send(refusal(question, -32603))
    assert outcome(peer) == "RemoteError: no (code -32603)"
    plain = enters(None)
    question = plain.ask(call(1, "ask", {"ttl": None}))
    plain.send(refusal(question, -32600))
    assert outcome(plain) == "RemoteError: no (code -32600)"


# -- how it may end -------------------------------------------------------------------------------


def test_the_error_of_the_question_comes_by_the_task(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, status="failed", statusMessage="no"))
    peer.send(refusal(expect(peer, "tasks/result"), -1, "User rejected sampling request"))
    assert outcome(peer) == "RemoteError: User rejected sampling request (code -1)"
    assert peer.fence() == []  # nothing is left to cancel


def test_the_client_cancelled_it(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question), told("t1", "cancelled"))
    peer.send(refusal(expect(peer, "tasks/result"), -31002, "cancelled"))
    assert outcome(peer) == "TaskCancelled: cancelled (code -31002)"
    assert peer.fence() == []


def test_the_client_has_forgotten_it(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question))
    peer.send(refusal(expect(peer, "tasks/get"), -32602, "Task not found"))
    peer.send(refusal(expect(peer, "tasks/result"), -32602, "Task has expired"))
    assert outcome(peer) == "RemoteError: Task has expired (code -32602)"
    assert peer.fence() == []


def test_the_time_limit_of_the_question_cancels_the_task(peer: Peer) -> None:
    question = peer.ask(call(1, "ask", {"timeout": 0.05}))
    peer.send(made(question, pollInterval=60000))
    # on a slow machine the limit may be over before the task is known
    answer, drop = sorted((peer.recv(), peer.recv()), key=lambda message: "method" in message)
    assert drop["method"] == "tasks/cancel" and drop["params"] == {"taskId": "t1"}
    said = text_of(answer["result"])
    assert said == f"CallTimeout: no answer to {MODEL} within its time limit"
    peer.send(reply(drop, a_task(status="cancelled")))
    assert peer.fence() == []


@pytest.mark.parametrize("status", ["working", "input_required"])
def test_the_end_of_the_handler_cancels_the_task(peer: Peer, asking: Asking, status: str) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000, status=status))
    if status == "input_required":
        fetch = expect(peer, "tasks/result")
    peer.fence()
    peer.send(cancel(1))
    messages = [peer.recv()]
    if status == "input_required":  # nor is its result wanted any more
        assert messages[0]["method"] == "notifications/cancelled"
        assert messages[0]["params"]["requestId"] == fetch["id"]
        messages.append(peer.recv())
    assert messages[-1]["method"] == "tasks/cancel"
    assert messages[-1]["params"] == {"taskId": "t1"}
    peer.send(refusal(messages[-1], -32602, "already over"))
    assert peer.fence() == []
    assert asking.ends == ["CancelledError"]


def test_a_client_without_tasks_cancel_is_left_alone(enters: Any, asking: Asking) -> None:
    peer = enters({"requests": REQUESTS})
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000))
    peer.fence()
    peer.send(cancel(1))
    peer.wait_for(lambda: asking.ends)
    assert peer.fence() == []


def test_a_task_that_is_made_too_late_is_cancelled(peer: Peer, asking: Asking) -> None:
    """'For task-augmented requests, the tasks/cancel request MUST be used instead of the
    notifications/cancelled notification' (basic/utilities/cancellation)."""
    question = peer.ask(call(1, "ask"))
    peer.send(cancel(1))
    peer.wait_for(lambda: asking.ends)
    assert peer.fence() == []
    peer.send(made(question))
    peer.send(reply(expect(peer, "tasks/cancel"), a_task(status="cancelled")))
    assert peer.fence() == []


@pytest.mark.parametrize(
    "late",
    [SAMPLED, {"task": a_task(status="completed")}, {"task": {"taskId": 5}}, 7, None],
    ids=repr,
)
def test_whatever_else_comes_too_late_is_dropped(peer: Peer, asking: Asking, late: Any) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(cancel(1))
    peer.wait_for(lambda: asking.ends)
    peer.send(refusal(question, -1) if late is None else reply(question, late))
    assert peer.fence() == []


def test_a_client_that_says_nothing_is_told_as_of_any_question(
    peer: Peer, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_tasks, "LAST_WAIT", 0.02)
    question = peer.ask(call(1, "ask"))
    peer.send(cancel(1))
    last = peer.recv()
    assert last["method"] == "notifications/cancelled"
    assert last["params"]["requestId"] == question["id"]
    tasks = peer.connection.state.asked_tasks
    assert tasks is not None and not tasks._dropped


def test_questions_that_nobody_waits_for_are_bounded(
    peer: Peer, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_tasks, "MAX_DROPPED", 1)
    peer.ask(call(1, "ask"))
    second = peer.ask(call(2, "ask"))
    peer.send(cancel(1), cancel(2))
    last = peer.recv()
    assert last["method"] == "notifications/cancelled"
    assert last["params"]["requestId"] == second["id"]


def test_a_cancellation_that_has_no_place_is_left_out(connect: Any) -> None:
    asking = Asking(limits=Limits(max_outstanding=1))
    peer: Peer = enter(lambda: connect(asking.server), VERSION, CAPABILITIES | {"tasks": TASKS})
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000))
    peer.fence()
    other = peer.ask(call(2, "ask", {"ttl": None}))
    assert text_of(peer.ask(call(3, "ask"))["result"]) == (
        "LimitExceeded: 1 requests are outstanding already"
    )
    asking.ends.clear()
    peer.send(cancel(1))
    peer.wait_for(lambda: asking.ends)
    assert asking.ends == ["CancelledError"]
    peer.send(reply(other, SAMPLED))
    assert outcome(peer, 2) == "Paris"


@pytest.mark.parametrize("fetching", [False, True])
def test_the_client_goes_away(peer: Peer, asking: Asking, fetching: bool) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000, status=("working", "input_required")[fetching]))
    if fetching:
        expect(peer, "tasks/result")
    else:
        peer.fence()
    peer.end_input()
    assert outcome(peer) == "ConnectionClosed: the client is gone"
    assert asking.ends == ["ConnectionClosed"]


# -- clients that are wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        a_task(5),
        a_task(None),
        a_task({"a": 1}),
        a_task("x" * 1025),
        a_task(status="paused"),
        a_task(status=None),  # type: ignore[arg-type]
        a_task(pollInterval="soon"),
        a_task(statusMessage=[]),
        {},
    ],
    ids=lambda task: repr(task)[:40],
)
def test_a_task_that_is_none(peer: Peer, task: Any) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(reply(question, {"task": task}))
    assert outcome(peer).startswith("InvalidResponse: ")
    assert peer.fence() == []


def test_unknown_members_and_what_is_left_out_do_no_harm(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(reply(question, {"task": {"taskId": "", "status": "completed", "x": [1]}, "y": 2}))
    peer.send(reply(expect(peer, "tasks/result", ""), SAMPLED | {"z": {}}))
    assert outcome(peer) == "Paris"


@pytest.mark.parametrize("looked", [a_task("t2"), a_task(status="on"), {}, {"taskId": 1}, 7])
def test_a_look_that_shows_no_task_or_another(peer: Peer, looked: Any) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question))
    peer.send(reply(expect(peer, "tasks/get"), looked))
    peer.send(reply(expect(peer, "tasks/cancel"), a_task(status="cancelled")))
    assert outcome(peer).startswith("InvalidResponse: ")


@pytest.mark.parametrize(
    "result",
    [
        of_task(SAMPLED, "t2"),
        SAMPLED | {"_meta": {RELATED: 5}},
        SAMPLED | {"_meta": 5},
        {"task": a_task()},
        {},
        [],
    ],
    ids=lambda result: repr(result)[-40:],
)
def test_a_result_that_is_none_or_of_another_task(peer: Peer, result: Any) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, status="completed"))
    peer.send(reply(expect(peer, "tasks/result"), result))
    assert outcome(peer).startswith("InvalidResponse: ")


def test_an_id_that_another_task_has(peer: Peer, asking: Asking) -> None:
    first = peer.ask(call(1, "ask"))
    peer.send(made(first, pollInterval=60000))
    peer.fence()
    second = peer.ask(call(2, "ask"))
    peer.send(made(second))
    assert outcome(peer, 2).startswith("InvalidResponse: the client made a task with an id")
    peer.send(told("t1", "completed"))  # the first is not touched
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_what_is_over_stays_over(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question, pollInterval=60000))
    peer.fence()
    peer.send(told("t1", "cancelled"), told("t1", "working"), told("t1", "completed"))
    peer.send(refusal(expect(peer, "tasks/result"), -32603, "gone"))
    assert outcome(peer) == "TaskCancelled: gone (code -32603)"
    assert peer.fence() == []


def test_news_that_are_malformed_or_of_no_concern(peer: Peer) -> None:
    peer.send(told("t1", "completed"))  # before anything was asked
    question = peer.ask(call(1, "ask"))
    for params in ({}, {"taskId": 1}, a_task(status="x"), {"taskId": "t1"}, a_task(7)):
        peer.send(notification(NEWS, params))
    peer.send(notification(NEWS), b'{"jsonrpc":"2.0","method":"%b","params":[]}\n' % NEWS.encode())
    peer.send(made(question, pollInterval=60000))
    assert peer.fence() == []
    peer.send(told("t1", "completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_a_flood_of_news_is_bounded_and_makes_no_traffic(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_tasks, "MAX_EARLY", 3)
    question = peer.ask(call(1, "ask"))
    for n in range(50):
        text = "long " * 100
        peer.send(told(f"x{n}", "completed", statusMessage=text), told("y" * 2000, "working"))
    assert peer.fence() == []
    tasks = peer.connection.state.asked_tasks
    assert tasks is not None and len(tasks._early) == 3
    assert all(task.status_message is None for task in tasks._early.values())
    peer.send(made(question, pollInterval=60000))
    peer.fence()
    assert not tasks._early
    for _ in range(50):
        peer.send(told("t1", "working", pollInterval=0))
    peer.send(told("t1", "completed"), told("t1", "completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


@pytest.mark.parametrize(
    ("said", "waits"),
    [(None, 1.0), (0, 0.1), (-5, 0.1), (1e-300, 0.1), (250, 0.25), (1e300, 60.0), (10**18, 60.0)],
)
def test_how_often_a_task_is_looked_at(said: Any, waits: float, once: Run) -> None:
    async def main() -> None:
        task = asked_tasks.ClientTask("t", "working", poll_interval=said)
        due = asyncio.get_running_loop().create_future()
        assert asked_tasks._Asked(task, due).wait == waits
        assert not due.done()

    once(main())


def test_a_look_that_is_never_answered_is_no_obstacle(peer: Peer) -> None:
    question = peer.ask(call(1, "ask"))
    peer.send(made(question))
    look = expect(peer, "tasks/get")
    peer.send(told("t1", "completed"))
    dropped = peer.recv()
    assert dropped["method"] == "notifications/cancelled"
    assert dropped["params"]["requestId"] == look["id"]
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"


def test_a_time_to_live_that_is_none(connect: Any, asking: Asking, enters: Any) -> None:
    for peer in (enters(), enters(None)):
        for ttl in (0, -1, 1e10):
            result = peer.result(call(1, "ask", {"ttl": ttl}))
            assert result["isError"] and "ttl must be seconds above 0" in text_of(result)


# -- what the client works on ---------------------------------------------------------------------


def test_the_tasks_of_a_client(peer: Peer) -> None:
    question = peer.ask(call(1, "listed"))
    assert question["method"] == "tasks/list" and question["params"] == {}
    peer.send(reply(question, {"tasks": [a_task("a")], "nextCursor": "n"}))
    more = peer.recv()
    assert more["params"] == {"cursor": "n"}
    peer.send(reply(more, {"tasks": [a_task("b", "failed")]}))
    assert json.loads(outcome(peer)) == ["a working", "b failed"]


@pytest.mark.parametrize(("tasks", "version"), [(None, VERSION), ({}, VERSION), (TASKS, LEGACY[2])])
def test_a_client_without_a_list(enters: Any, tasks: Any, version: str) -> None:
    peer = enters(tasks, version)
    assert json.loads(text_of(peer.result(call(1, "listed")))) == []


def test_lists_that_are_wrong(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    question = peer.ask(call(1, "listed"))
    peer.send(reply(question, {"tasks": [{"taskId": 1}]}))
    assert outcome(peer).startswith("InvalidResponse: the client's answer to tasks/list")
    question = peer.ask(call(2, "listed"))
    for _ in range(2):  # round in a circle
        peer.send(reply(question, {"tasks": [], "nextCursor": ""}))
        question = peer.recv()
    assert question["id"] == 2
    assert "never end" in text_of(question["result"])
    monkeypatch.setattr(asked_tasks, "MAX_LISTED", 1)
    question = peer.ask(call(3, "listed"))
    peer.send(reply(question, {"tasks": [a_task("a"), a_task("b")], "nextCursor": "n"}))
    assert "never end" in outcome(peer, 3)
    question = peer.ask(call(4, "listed", {"timeout": 0.01}))
    assert peer.recv()["method"] == "notifications/cancelled"
    assert outcome(peer, 4).startswith("CallTimeout")


# -- middleware -----------------------------------------------------------------------------------


def test_middleware_sees_the_question_and_its_answer(connect: Any, asking: Asking) -> None:
    seen: list[Any] = []

    @asking.server.add_ask_middleware
    async def watch(question: Any, call_next: Any) -> bytes:
        seen.append((question.method, "task" in json.loads(question.params)))
        answer: bytes = await call_next(question)
        seen.append(json.loads(answer)["model"])
        return answer

    peer: Peer = enter(lambda: connect(asking.server), VERSION, CAPABILITIES | {"tasks": TASKS})
    question = peer.ask(call(1, "ask"))
    assert question["params"]["task"] == {"ttl": 60000}
    peer.send(made(question, status="completed"))
    peer.send(reply(expect(peer, "tasks/result"), of_task(SAMPLED)))
    assert outcome(peer) == "Paris"
    assert seen == [(MODEL, False), "m-1"]
    peer.ask(call(2, "ask"))
    peer.send(cancel(2))
    peer.wait_for(lambda: len(asking.ends) == 2)


# -- our own client -------------------------------------------------------------------------------


class Model:
    """A handler that answers when it is let to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, request: Any) -> Any:
        self.began.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return SampleResult(content="hello", model="m")


async def fill_in(request: Any) -> Any:
    return {"row": 7}


def test_with_our_client(run: Run, recorder: Any) -> None:
    async def main() -> None:
        asking, model = Asking(), Model()
        async with Client(
            asking.server, era="legacy", on_sample=model, on_elicit=fill_in, task_requests=True
        ) as client:
            working = asyncio.ensure_future(client.call_tool("ask"))
            await model.began.wait()
            (listed,) = json.loads((await client.call_tool("listed")).text)
            assert listed.endswith(" working")
            model.gate.set()
            assert (await working).text == "hello"
            assert (await client.call_tool("seat")).text == "accept Seat(row=7)"
            listed = json.loads((await client.call_tool("listed")).text)
            assert [text.split()[1] for text in listed] == ["completed", "completed"]

    run(main())
    said = recorder.judged(VERSION)
    for method in ("tasks/result", "tasks/list"):
        assert {("server", "request", method), ("client", "result", method)} <= said
    assert ("client", "notification", NEWS) in said


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_our_client_without_tasks(run: Run, era: Any) -> None:
    async def main() -> None:
        asking, model = Asking(), Model()
        model.gate.set()
        async with Client(asking.server, era=era, on_sample=model, on_elicit=fill_in) as client:
            assert (await client.call_tool("ask")).text == "hello"
            assert (await client.call_tool("seat")).text == "accept Seat(row=7)"
            assert json.loads((await client.call_tool("listed")).text) == []

    run(main())


def test_our_client_is_asked_to_cancel(run: Run) -> None:
    async def main() -> None:
        asking, model = Asking(), Model()
        async with Client(
            asking.server, era="legacy", on_sample=model, task_requests=True
        ) as client:
            result = await client.call_tool("ask", {"timeout": 0.05})
            assert result.text.startswith("CallTimeout")
            await model.cancelled.wait()
            model.cancelled.clear()
            model.began.clear()
            working = asyncio.ensure_future(client.call_tool("ask"))
            await model.began.wait()
            working.cancel()
            await model.cancelled.wait()
            assert asking.ends == ["CallTimeout", "CancelledError"]

    run(main())


def test_our_client_refuses(run: Run) -> None:
    async def decline(request: Any) -> Any:
        raise Declined("no")

    async def main() -> None:
        asking = Asking()
        async with Client(
            asking.server, era="legacy", on_sample=decline, task_requests=True
        ) as client:
            result = await client.call_tool("ask")
            assert result.text == "RemoteError: User rejected sampling request (code -1)"

    run(main())


def test_a_tool_that_is_a_task_asks_by_its_own(run: Run) -> None:
    async def main() -> None:
        asking, model = Asking(), Model()
        model.gate.set()

        @asking.server.tool(task="required")
        async def long(ctx: Context) -> str:
            return (await ctx.sample("Hi", max_tokens=9, ttl=60)).text

        async with Client(
            asking.server, era="legacy", on_sample=model, task_requests=True
        ) as client:
            task = await client.start_tool("long")
            assert (await task.result()).text == "hello"
            assert json.loads((await client.call_tool("listed")).text) == []

    run(main())


def test_what_is_raised() -> None:
    """An author who knows the errors of a plain question knows these."""
    assert issubclass(TaskCancelled, RemoteError)
    for error in (CallTimeout, ConnectionClosed, InvalidResponse):
        assert issubclass(error, WirespeedError)
