"""What a task asks of its client while it is followed (the extension of 2026-07-28)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from lab.client import until
from lab.peer import LinePeer, Talk, nothing
from lab.task_peer import (
    DONE,
    OK,
    Person,
    asks,
    cancelled,
    modern,
    new,
)
from lab.wording import raises

from wirespeed import TASKS, Client
from wirespeed.errors import (
    CallTimeout,
    HandlerFailed,
    InputNeeded,
    InvalidResponse,
    LimitExceeded,
    RemoteError,
)

DECLARED: Any = {"elicitation": {"form": {}}}


def client_of(peer: LinePeer, **options: Any) -> Client:
    return Client(peer.url, era="modern", extensions=[TASKS], **options)


def updates(peer: LinePeer) -> list[dict[str, Any]]:
    """What was answered, in order."""
    return [message["params"]["inputResponses"] for message in peer.sent("tasks/update")]


def accepted(*keys: str) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {"name": key}} for key in keys}


# -- handlers --------------------------------------------------------------------------------------


async def test_the_first_handler_that_fails_ends_the_others(tmp_path: Path) -> None:
    """And the server need not go on with the task."""
    person = Person()

    async def on_elicit(request: Any) -> Any:
        if request.message == "b":
            await until(lambda: person.begun)
            raise LookupError("out of ink")
        return await person(request)

    async with (
        LinePeer(modern(asks("a", "b")), tmp_path) as peer,
        client_of(peer, on_elicit=on_elicit) as client,
    ):
        with pytest.raises(HandlerFailed, match="out of ink"):
            await client.call_tool("crawl")
        assert person.cancelled == ["a"]
        await cancelled(peer)
        assert not updates(peer)


async def test_the_cancellation_of_a_handler_is_its_own(tmp_path: Path) -> None:
    async def on_elicit(request: Any) -> Any:
        raise asyncio.CancelledError

    async with (
        LinePeer(modern(asks("a")), tmp_path) as peer,
        client_of(peer, on_elicit=on_elicit) as client,
    ):
        with raises(HandlerFailed):
            await client.call_tool("crawl")
        await cancelled(peer)


async def test_the_task_is_looked_at_while_a_person_thinks(tmp_path: Path) -> None:
    """It may be over before that."""
    person = Person()
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if person.begun else asks("a"))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        assert (await client.call_tool("crawl")).text == "done"
        assert person.cancelled == ["a"]
        assert not updates(peer) and not peer.sent("tasks/cancel")


async def test_a_question_may_be_taken_back(tmp_path: Path) -> None:
    """Then its handler is stopped; the others go on."""
    person = Person()
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        if updates(peer):
            state = DONE
        elif "b" in person.begun:
            state = asks("b")
        elif "a" in person.begun:
            state = asks("a", "b")
        else:
            state = asks("a")
        if person.cancelled:
            person.let("b")
        await talk.result(message, state)

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        assert (await client.call_tool("crawl")).text == "done"
        assert person.begun == ["a", "b"] and person.cancelled == ["a"]
        assert updates(peer) == [accepted("b")]


async def test_several_who_wait_ask_a_person_once(tmp_path: Path) -> None:
    person = Person()
    person.let("a")
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if updates(peer) else asks("a"))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        task = await client.start_tool("crawl")
        both = await asyncio.gather(task.result(), task.result())
        assert [one.text for one in both] == ["done"] * 2
        assert person.begun == ["a"] and updates(peer) == [accepted("a")]


async def test_all_who_wait_hear_of_a_failure(tmp_path: Path) -> None:
    failing = True

    async def on_elicit(request: Any) -> Any:
        if failing:
            raise LookupError
        return {"name": "a"}

    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if updates(peer) else asks("a"))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=on_elicit) as client:
        task = await client.start_tool("crawl")
        both = await asyncio.gather(task.result(), task.result(), return_exceptions=True)
        assert [type(one) for one in both] == [HandlerFailed] * 2
        assert not peer.sent("tasks/cancel")  # whoever has the handle may go on
        failing = False
        assert (await task.result()).text == "done"


async def test_who_leaves_takes_the_handlers_along(tmp_path: Path) -> None:
    person = Person()
    async with (
        LinePeer(modern(asks("a")), tmp_path) as peer,
        client_of(peer, on_elicit=person) as client,
    ):
        task = await client.start_tool("crawl")
        waiting = asyncio.create_task(task.result())
        await until(lambda: person.begun)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert person.cancelled == ["a"]


async def test_an_answer_that_cannot_be_brought_is_asked_for_again(tmp_path: Path) -> None:
    person = Person()
    person.let("a")
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if len(updates(peer)) > 1 else asks("a"))

    rules["tasks/get"] = look
    rules["tasks/update"] = (-32603, "not now")
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        task = await client.start_tool("crawl")
        with pytest.raises(RemoteError, match="not now"):
            await task.result()
        peer.rules["tasks/update"] = OK
        assert (await task.result()).text == "done"
        assert person.begun == ["a", "a"] and updates(peer) == [accepted("a")] * 2


# -- bounds ----------------------------------------------------------------------------------------


async def test_so_many_questions_at_once_are_refused(tmp_path: Path) -> None:
    person = Person()
    many = asks(*(f"q{n}" for n in range(1001)))
    async with (
        LinePeer(modern(many), tmp_path) as peer,
        client_of(peer, on_elicit=person) as client,
    ):
        with raises(LimitExceeded):
            await client.call_tool("crawl")
        assert not person.begun
        await cancelled(peer)


async def test_so_many_questions_one_after_another_are_refused(tmp_path: Path) -> None:
    """While handlers are at work with the earlier ones."""
    person = Person()
    first = [f"a{n}" for n in range(600)]
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        more = [f"b{n}" for n in range(600)] if person.begun else []
        await talk.result(message, asks(*(more or first)) if not more else asks(*more, *first))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        with raises(LimitExceeded):
            await client.call_tool("crawl")
        assert len(person.cancelled) == 600


async def test_rounds_are_bounded(tmp_path: Path) -> None:
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        n = len(updates(peer)) + 1
        await talk.result(message, DONE if n > 4 else asks(f"q{n}"))

    async def on_elicit(request: Any) -> Any:
        return {"name": request.message}

    rules["tasks/get"] = look
    async with (
        LinePeer(rules, tmp_path) as peer,
        client_of(peer, on_elicit=on_elicit, max_rounds=2) as client,
    ):
        with raises(InputNeeded) as caught:
            await client.call_tool("crawl")
        assert updates(peer) == [accepted("q1"), accepted("q2")]
        assert list(caught.value.requests) == ["q3"]
        # the call that resumes may answer as many questions again
        result = await client.resume(caught.value, {"q3": {"name": "q3"}})
        assert result.text == "done"
        assert updates(peer)[2:] == [accepted("q3"), accepted("q4")]


# -- by hand ---------------------------------------------------------------------------------------


async def test_a_call_that_has_become_a_task_is_resumed(tmp_path: Path) -> None:
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if updates(peer) else asks("a"))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, capabilities=DECLARED) as client:
        with raises(InputNeeded) as caught:
            await client.call_tool("crawl")
        needed = caught.value
        assert needed.task.id == "t1" and needed.state is None
        with raises(ValueError):
            await client.resume(needed, {"b": "decline"})
        assert not updates(peer) and not peer.sent("tasks/cancel")
        assert (await client.resume(needed, {"a": {"name": "a"}})).text == "done"
        assert updates(peer) == [accepted("a")]


async def test_another_client_may_resume_it(tmp_path: Path) -> None:
    rules = modern()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if updates(peer) else asks("a"))

    rules["tasks/get"] = look
    async with LinePeer(rules, tmp_path) as peer:
        async with client_of(peer, capabilities=DECLARED) as client:
            task = await client.start_tool("crawl")
            with pytest.raises(InputNeeded) as caught:
                await task.result()
            assert caught.value.task is task
        async with client_of(peer, capabilities=DECLARED) as client:
            result = await client.resume(caught.value, {"a": "decline"})
            assert result.text == "done"
        assert updates(peer) == [{"a": {"action": "decline"}}]


async def test_what_is_resumed_in_vain(tmp_path: Path) -> None:
    """The time limit counts from then on; a task that nobody else has is cancelled at its end."""
    async with (
        LinePeer(modern(asks("a"), new()), tmp_path) as peer,
        client_of(peer, capabilities=DECLARED) as client,
    ):
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("crawl")
        with pytest.raises(CallTimeout):
            await client.resume(caught.value, {"a": "cancel"}, timeout=0.05)
        await cancelled(peer)
        peer.rules["tasks/update"] = nothing
        with pytest.raises(CallTimeout):
            await client.resume(caught.value, {"a": "cancel"}, timeout=0.05)


def test_a_made_up_pause_is_none() -> None:
    async def main() -> None:
        with raises(ValueError):
            await Client("unix:/nowhere").resume(InputNeeded("?", {}, None))

    asyncio.run(main())


# -- who is meant ----------------------------------------------------------------------------------


async def test_an_answer_about_another_task_is_none(tmp_path: Path) -> None:
    other = DONE | {"taskId": "t2"}
    async with LinePeer(modern(other), tmp_path) as peer, client_of(peer) as client:
        with raises(InvalidResponse):
            await client.call_tool("crawl")
        await cancelled(peer)
        task = await client.start_tool("crawl")
        with raises(InvalidResponse):
            await task.status()
        assert task.id == "t1" and not task.state.over
        with raises(InvalidResponse):
            await client.get_task("t1")


async def test_news_of_another_task_are_not_heard(tmp_path: Path) -> None:
    told = asyncio.Event()

    async def listen(talk: Talk, message: dict[str, Any]) -> None:
        tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        await talk.send(
            method="notifications/subscriptions/acknowledged",
            params={"notifications": {"taskIds": ["t1"]}, **tag},
        )
        news = {key: value for key, value in DONE.items() if key != "resultType"}
        await talk.send(method="notifications/tasks", params=news | tag | {"taskId": "t2"})
        told.set()

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await told.wait()
        await talk.result(message, DONE | {"statusMessage": "looked at"})

    rules = modern() | {"subscriptions/listen": listen, "tasks/get": look}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer) as client:
        task = await client.start_tool("crawl")
        states = [state async for state in task]
        assert [state.id for state in states] == ["t1", "t1"]
        assert states[-1].message == "looked at"


@pytest.mark.parametrize("told", [5, "t1", {"t1": 1}, ["t2"], None])
async def test_what_is_acknowledged_wrongly_is_looked_for(
    tmp_path: Path, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def listen(talk: Talk, message: dict[str, Any]) -> None:
        await talk.send(
            method="notifications/subscriptions/acknowledged",
            params={
                "notifications": {"taskIds": told},
                "_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]},
            },
        )

    rules = modern(new(), new(), DONE) | {"subscriptions/listen": listen}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer) as client:
        assert (await client.call_tool("crawl")).text == "done"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# -- a link that is lost ---------------------------------------------------------------------------


async def test_a_task_outlives_its_link(tmp_path: Path) -> None:
    looked = 0

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        nonlocal looked
        looked += 1
        if looked == 1:
            talk.vanish()
        else:
            await talk.result(message, DONE)

    rules = modern() | {"tasks/get": look}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer) as client:
        assert (await client.call_tool("crawl")).text == "done"
        assert len(peer.talks) == 2 and looked == 2
        assert len(peer.sent("tools/call")) == 1


async def test_answers_outlive_their_link(tmp_path: Path) -> None:
    person = Person()
    person.let("a")

    async def update(talk: Talk, message: dict[str, Any]) -> None:
        if len(peer.talks) == 1:
            talk.vanish()
        else:
            await talk.result(message, OK)

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        await talk.result(message, DONE if len(updates(peer)) > 1 else asks("a"))

    rules = modern() | {"tasks/get": look, "tasks/update": update}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer, on_elicit=person) as client:
        assert (await client.call_tool("crawl")).text == "done"
        assert updates(peer) == [accepted("a")] * 2 and person.begun == ["a"]


async def test_a_task_behind_a_link_that_stays_lost(tmp_path: Path) -> None:
    from wirespeed import Socket
    from wirespeed.errors import ConnectionLost

    async def look(talk: Talk, message: dict[str, Any]) -> None:
        talk.vanish()

    rules = modern() | {"tasks/get": look}
    async with LinePeer(rules, tmp_path) as peer:
        target = Socket(peer.url, restart=0)
        async with Client(target, era="modern", extensions=[TASKS]) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("crawl")
        assert len(peer.talks) == 1


async def test_a_forgotten_task_is_not_cancelled(tmp_path: Path) -> None:
    rules = modern() | {"tasks/get": (-32602, "Task has expired")}
    async with LinePeer(rules, tmp_path) as peer, client_of(peer) as client:
        with raises(RemoteError, code=-32602):
            await client.call_tool("crawl")
        await client.list_tools()
        assert not peer.sent("tasks/cancel")


async def test_a_client_that_is_closed_at_once_has_cancelled_its_task(tmp_path: Path) -> None:
    async with LinePeer(modern(asks("a", pollIntervalMs=0)), tmp_path) as peer:

        async def on_elicit(request: Any) -> Any:
            raise LookupError

        with pytest.raises(HandlerFailed):
            async with client_of(peer, on_elicit=on_elicit) as client:
                await client.call_tool("crawl")
        await cancelled(peer)
