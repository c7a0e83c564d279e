"""How far a client is with a question, and whether it is there (basic/utilities/progress and ping
of the legacy revisions)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.questions import SAMPLED, enter, play, reply, tool_request
from lab.raw import call, cancel, notification
from lab.server import LEGACY, LatePeer, text_of
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import CallTimeout, RemoteError

NEWEST = "2025-11-25"
PROGRESS = "notifications/progress"


@pytest.fixture
def peer(connect: Any) -> Any:
    return LatePeer(lambda: enter(connect, NEWEST))


@pytest.fixture
def told(server: Server) -> list[Any]:
    """What a tool's question heard."""
    told: list[Any] = []

    @server.tool
    async def sample(ctx: Context) -> str:
        answer = await ctx.sample("Hi", max_tokens=9, on_progress=lambda *how: told.append(how))
        return answer.text

    @server.tool
    async def pass_on(ctx: Context) -> str:
        return (await ctx.elicit("?", int, on_progress=ctx.progress)).action

    @server.tool
    async def both(ctx: Context) -> str:
        async def ask(name: str) -> None:
            await ctx.sample(name, max_tokens=9, on_progress=lambda *how: told.append((name, how)))

        await asyncio.gather(ask("a"), ask("b"))
        return "done"

    @server.tool
    async def fails(ctx: Context) -> str:
        def fail(*how: Any) -> None:
            raise LookupError("secret")

        return (await ctx.sample("Hi", max_tokens=9, on_progress=fail)).text

    @server.tool
    async def wrong(ctx: Context) -> str:
        async def later(*how: Any) -> None: ...

        for function in (later, 5):
            with raises(TypeError):
                await ctx.sample("Hi", max_tokens=9, on_progress=function)  # type: ignore[arg-type]
        return "refused"

    @server.tool
    async def ping(ctx: Context, timeout: float | None = None) -> str:
        try:
            await ctx.ping(timeout=timeout)
        except (CallTimeout, RemoteError) as exc:
            return str(exc)
        return "there"

    @server.tool
    def blocking(ctx: Context) -> str:
        coroutine = ctx.ping()
        with raises(RuntimeError):
            coroutine.send(None)
        return "refused"

    return told


def of(question: Any, progress: Any, **more: Any) -> Any:
    """The progress of a question."""
    token = question["params"]["_meta"]["progressToken"]
    return notification(PROGRESS, {"progressToken": token, "progress": progress, **more})


@pytest.mark.parametrize("version", LEGACY)
def test_the_progress_of_a_question(version: str, connect: Any, told: list[Any]) -> None:
    peer = enter(connect, version)
    question = peer.ask(call(1, "sample"))
    assert question["params"]["maxTokens"] == 9
    peer.send(of(question, 1), of(question, 2.5, total=4), of(question, 3, message="soon"))
    peer.send(of(question, 3), of(question, -1))  # it must rise
    peer.send(reply(question, SAMPLED))
    assert text_of(peer.recv()["result"]) == "Paris"
    assert told == [(1, None, None), (2.5, 4, None), (3, None, "soon")]
    peer.send(of(question, 4))  # late
    assert peer.fence() == []
    assert len(told) == 3


def test_it_may_be_passed_on_to_who_called_the_tool(peer: Any, told: list[Any]) -> None:
    question = peer.ask(call(1, "pass_on", progressToken="mine"))
    peer.send(of(question, 1, total=2, message="half"))
    passed = peer.recv()
    assert passed["params"] == {
        "progressToken": "mine", "progress": 1, "total": 2, "message": "half",
    }  # fmt: skip
    peer.send(reply(question, {"action": "decline"}))
    assert text_of(peer.recv()["result"]) == "decline"


def test_questions_are_told_apart(peer: Any, told: list[Any]) -> None:
    peer.send(call(1, "both"))
    first, second = peer.recv(), peer.recv()
    peer.send(of(second, 1), of(first, 2), of(second, 3))
    peer.send(reply(first, SAMPLED), reply(second, SAMPLED))
    assert text_of(peer.recv()["result"]) == "done"
    assert told == [("b", (1, None, None)), ("a", (2, None, None)), ("b", (3, None, None))]
    assert not peer.connection.state.progress


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"progressToken": "x", "progress": 1},
        {"progressToken": 10**30, "progress": 1},
        {"progressToken": None, "progress": 1},
        {"progressToken": [], "progress": 1},
        {"progressToken": 1.5, "progress": 1},
        {"progress": 1},
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}\n',
        b'{"jsonrpc":"2.0","method":"notifications/progress"}\n',
    ],
    ids=repr,
)
def test_what_is_malformed_is_ignored(peer: Any, told: list[Any], params: Any) -> None:
    question = peer.ask(call(1, "sample"))
    peer.send(params if isinstance(params, bytes) else notification(PROGRESS, params))
    for wrong in ({"progress": "1"}, {"progress": None}, {"progress": 1, "total": "x"}):
        peer.send(notification(PROGRESS, of(question, 0)["params"] | wrong))
    peer.send(reply(question, SAMPLED))
    assert text_of(peer.recv()["result"]) == "Paris"
    assert told == []


def test_a_function_that_fails_is_logged(
    peer: Any, told: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    question = peer.ask(call(1, "fails"))
    peer.send(of(question, 1), reply(question, SAMPLED))
    assert text_of(peer.recv()["result"]) == "Paris"
    assert "LookupError: secret" in caplog.text


def test_a_question_that_is_given_up_hears_no_more(peer: Any, told: list[Any]) -> None:
    question = peer.ask(call(1, "sample"))
    peer.send(cancel(1))
    assert peer.recv()["method"] == "notifications/cancelled"
    peer.send(of(question, 1))
    assert peer.fence() == [] and told == []
    assert not peer.connection.state.progress


def test_what_cannot_be_called(peer: Any, told: list[Any]) -> None:
    assert text_of(peer.result(call(1, "wrong"))) == "refused"


def test_in_the_modern_era_nothing_is_asked_for(connect: Any, told: list[Any]) -> None:
    result, rounds = play(connect(), tool_request(0, "sample"))
    assert text_of(result) == "Paris"
    (asked,) = rounds
    (question,) = asked.values()
    assert "_meta" not in question["params"]
    assert told == []


# -- ping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
def test_ping(version: str, connect: Any, told: list[Any]) -> None:
    peer = enter(connect, version)
    question = peer.ask(call(1, "ping"))
    assert question["method"] == "ping" and "params" not in question
    peer.send(reply(question, {}))
    assert text_of(peer.recv()["result"]) == "there"
    peer.ask(call(2, "ping", {"timeout": 0.01}))
    assert peer.recv()["method"] == "notifications/cancelled"
    assert "no answer to ping" in text_of(peer.recv()["result"])


def test_a_modern_client_is_not_pinged(connect: Any, told: list[Any]) -> None:
    assert text_of(connect().result(tool_request(1, "ping"))) == "there"


def test_ping_is_for_the_loop(peer: Any, told: list[Any]) -> None:
    assert text_of(peer.result(call(1, "blocking"))) == "refused"
