"""Questions to clients of 2026-07-28: multi round-trip requests (basic/patterns/mrtr)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any

import msgspec
import pytest
from lab.questions import (
    ACCEPT,
    QUESTIONS,
    REFUSAL,
    SAMPLED,
    Asked,
    Seat,
    add_askers,
    again,
    answers_to,
    enter,
    modern_request,
    play,
    tool_request,
)
from lab.raw import META, call, cancel, modern
from lab.server import MODERN, text_of
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import LocalError, MissingCapability
from wirespeed.server.asking import request_state as state_module
from wirespeed.server.asking.request_state import Sealer
from wirespeed.tasks import MemoryTaskStore, Task
from wirespeed.types import ElicitRequest, InputRequired


@pytest.fixture
def peer(modern_peer: Any) -> Any:
    return modern_peer


class Other(msgspec.Struct):
    row: int


# -- one question ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", QUESTIONS)
def test_a_question_has_a_method_and_params_alone(tool: str, connect: Any, asking: Server) -> None:
    key, method, params, text = QUESTIONS[tool]
    asked = Asked(connect(), tool)
    assert asked.first["inputRequests"] == {key: {"method": method, "params": params}}
    assert isinstance(asked.first["requestState"], str)
    assert set(asked.first) == {"resultType", "inputRequests", "requestState", "_meta"}
    assert asked.first["_meta"][META + "serverInfo"]["name"] == "lab"
    last = asked.result()
    assert last["resultType"] == "complete"
    assert text_of(last) == text
    assert asked.peer.fence() == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"action": "decline"}, "decline None"),
        ({"action": "cancel", "content": {"row": "ignored"}}, "cancel None"),
        ({"action": "accept", "content": {"row": 3.0, "more": 1}}, "accept Seat(row=3"),
        ({"action": "accept", "content": {"row": 1, "window": True}}, "window=True)"),
    ],
)
def test_what_the_user_did_is_told(answer: Any, text: str, connect: Any, asking: Server) -> None:
    assert text in text_of(Asked(connect(), "form").result({"elicit-1": answer}))


def test_a_form_without_fields_asks_for_consent(connect: Any, server: Server) -> None:
    @server.tool
    async def sure(ctx: Context) -> bool:
        return (await ctx.elicit("Sure?")).accepted

    result, asked = play(connect(), tool_request(1, "sure"))
    assert asked[0]["elicit-1"]["params"] == {
        "message": "Sure?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    assert result["structuredContent"] == {"result": True}


def test_a_form_from_a_schema_is_answered_by_a_dict(connect: Any, server: Server) -> None:
    schema = {"type": "object", "properties": {"row": {"type": "integer", "title": "Row"}}}

    @server.tool
    async def seat(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", schema)).content)

    result, asked = play(connect(), tool_request(1, "seat"))
    assert asked[0]["elicit-1"]["params"] == {"message": "Which?", "requestedSchema": schema}
    assert text_of(result) == "{'row': 5}"


# -- several --------------------------------------------------------------------------------------


def test_questions_one_after_another_take_a_round_each(connect: Any, server: Server) -> None:
    runs: list[int] = []

    @server.tool
    async def three(ctx: Context) -> str:
        runs.append(0)
        one = await ctx.elicit("One?", Seat)
        two = await ctx.elicit("Two?", Other)
        answer = await ctx.sample("?", max_tokens=1)
        return f"{one.content} {two.content} {answer.text}"

    result, asked = play(connect(), tool_request(1, "three"))
    assert [list(requests) for requests in asked] == [["elicit-1"], ["elicit-2"], ["sample-1"]]
    assert text_of(result) == "Seat(row=5, window=False) Other(row=5) Paris"
    assert len(runs) == 4


def test_questions_side_by_side_go_together(connect: Any, server: Server) -> None:
    @server.tool
    async def both(ctx: Context) -> str:
        async def more() -> str:
            return (await ctx.sample("?", max_tokens=1)).text

        seat, text, roots = await asyncio.gather(ctx.elicit("?", Seat), more(), ctx.roots())
        last = await ctx.elicit("Last?", Other)
        return f"{seat.content} {text} {len(roots)} {last.content}"

    result, asked = play(connect(), tool_request(1, "both"))
    assert [list(r) for r in asked] == [["elicit-1", "sample-1", "roots-1"], ["elicit-2"]]
    assert text_of(result) == "Seat(row=5, window=False) Paris 2 Other(row=5)"


def test_a_task_group_asks_together_too(connect: Any, server: Server) -> None:
    @server.tool
    async def group(ctx: Context) -> str:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(ctx.elicit(f"{n}?", Seat)) for n in range(3)]
        return " ".join(task.result().action for task in found)

    result, asked = play(connect(), tool_request(1, "group"))
    assert [list(requests) for requests in asked] == [["elicit-1", "elicit-2", "elicit-3"]]
    assert text_of(result) == "accept accept accept"


def test_missing_answers_are_asked_again_and_others_kept(connect: Any, server: Server) -> None:
    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await asyncio.gather(ctx.elicit("One?", Seat), ctx.elicit("Two?", Other))
        return f"{one.content} {two.content}"

    asked = Asked(connect(), "both")
    for responses in (None, {}, {"unknown": {"action": "accept"}, "roots-1": 5}):
        assert asked.result(responses)["inputRequests"] == asked.first["inputRequests"]
    second = Asked(asked.peer, asked.retry({"elicit-2": ACCEPT, "more": None}))
    assert list(second.first["inputRequests"]) == ["elicit-1"]
    assert text_of(second.result()) == "Seat(row=5, window=False) Other(row=5)"


def test_a_question_that_changed_is_asked_anew(
    connect: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    count = 0

    @server.tool
    async def fickle(ctx: Context) -> str:
        nonlocal count
        count += 1
        return str((await ctx.elicit(f"Question {min(count, 2)}?", Seat)).content)

    asked = Asked(connect(), "fickle")
    second = Asked(asked.peer, asked.retry())
    assert second.first["inputRequests"]["elicit-1"]["params"]["message"] == "Question 2?"
    assert "asked again" in caplog.text
    last = second.result({"elicit-1": {"action": "accept", "content": {"row": 9}}})
    assert text_of(last) == "Seat(row=9, window=False)"


def test_any_request_may_be_repeated_from_any_round(connect: Any, asking: Server) -> None:
    asked = Asked(connect(), "form")
    for n in range(3):
        assert asked.peer.result({**asked.message, "id": n})["resultType"] == "input_required"
        assert asked.result()["resultType"] == "complete"


def test_answers_without_a_state_are_answers_to_nothing(peer: Any, asking: Server) -> None:
    result = peer.result(tool_request(1, "form", inputResponses={"elicit-1": ACCEPT}))
    assert list(result["inputRequests"]) == ["elicit-1"]


@pytest.mark.parametrize("seed", range(25))
def test_any_plan_ends_with_each_answer_at_its_question(
    seed: int, connect: Any, server: Server
) -> None:
    """Groups of questions one after another, the questions of a group side by side, and a client
    that answers what it likes, but one question a round at least."""
    chance = random.Random(seed)
    plan = [[chance.randrange(1000) for _ in range(chance.randint(1, 4))] for _ in range(4)]

    @server.tool
    async def follow(ctx: Context) -> str:
        async def one(n: int) -> str:
            if n % 3 == 0:
                return (await ctx.sample(f"{n}", max_tokens=1)).text
            content = (await ctx.elicit(f"{n}", Seat)).content
            return str(content and content.row)

        groups = [await asyncio.gather(*map(one, group)) for group in plan]
        return " ".join(answer for group in groups for answer in group)

    peer = connect()
    message = tool_request(0, "follow")
    for id in range(50):
        result = peer.result({**message, "id": id})
        if result["resultType"] == "complete":
            break
        requests = list(result["inputRequests"].items())
        chance.shuffle(requests)
        responses = {}
        for key, asked in requests[: chance.randint(1, len(requests))]:
            if asked["method"] == "elicitation/create":
                row = int(asked["params"]["message"])
                responses[key] = {"action": "accept", "content": {"row": row}}
            else:
                (turn,) = asked["params"]["messages"]
                responses[key] = {**SAMPLED, "content": turn["content"]}
        message = again(id, message, result, responses)
    assert text_of(result) == " ".join(str(n) for group in plan for n in group)
    assert not peer.connection.running


# -- what may be asked ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "capabilities", "required"),
    [
        ("form", {}, {"elicitation": {}}),
        ("form", {"sampling": {}, "roots": {}}, {"elicitation": {}}),
        ("form", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("form", {"elicitation": None}, {"elicitation": {}}),
        ("url", {}, {"elicitation": {"url": {}}}),
        ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("url", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("sample", {"elicitation": {}}, {"sampling": {}}),
        ("sample_tools", {}, {"sampling": {"tools": {}}}),
        ("sample_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots", {"sampling": {}}, {"roots": {}}),
    ],
)
def test_what_was_not_declared_is_not_asked(
    tool: str, capabilities: Any, required: Any, peer: Any, asking: Server
) -> None:
    answer = peer.ask(tool_request(1, tool, capabilities=capabilities))
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"] == {"requiredCapabilities": required}
    assert peer.fence() == []


def test_an_empty_elicitation_capability_means_forms(connect: Any, asking: Server) -> None:
    peer = connect()
    declared = {"elicitation": {}}
    first = peer.result(tool_request(1, "form", capabilities=declared))
    assert first["inputRequests"]["elicit-1"]["method"] == "elicitation/create"
    assert peer.error(tool_request(2, "url", capabilities=declared))[0] == -32021


def test_the_capabilities_of_one_request_do_not_count_for_the_next(
    connect: Any, asking: Server
) -> None:
    asked = Asked(connect(), "form")
    assert asked.peer.error(tool_request(2, "form", capabilities={}))[0] == -32021
    meta = {**asked.message["params"]["_meta"], META + "clientCapabilities": {}}
    assert asked.error(None, _meta=meta)[0] == -32021


def test_a_handler_may_do_without(connect: Any, server: Server) -> None:
    @server.tool
    async def either(ctx: Context) -> str:
        try:
            return (await ctx.sample("?", max_tokens=1)).text
        except MissingCapability as exc:
            return f"without {exc.required}"

    result = connect().result(tool_request(1, "either", capabilities={}))
    assert text_of(result) == "without {'sampling': {}}"


def test_include_context_is_a_wish_that_an_undeclared_client_does_not_get(
    peer: Any, server: Server
) -> None:
    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("?", max_tokens=1, include_context="thisServer")).text

    full = peer.result(tool_request(1, "sample"))["inputRequests"]["sample-1"]["params"]
    assert full["includeContext"] == "thisServer"
    less = peer.result(tool_request(2, "sample", capabilities={"sampling": {}}))
    assert "includeContext" not in less["inputRequests"]["sample-1"]["params"]


def test_a_form_that_is_none_is_the_tools_error(connect: Any, server: Server) -> None:
    class Deep(msgspec.Struct):
        seat: Seat

    @server.tool
    async def deep(ctx: Context) -> str:
        return (await ctx.elicit("?", Deep)).action

    result = connect().result(tool_request(1, "deep"))
    assert result["isError"] is True
    assert "field 'seat': a form is flat" in text_of(result)


def test_messages_that_break_the_rules_of_tools_are_not_sent(connect: Any, server: Server) -> None:
    from wirespeed.types import SamplingMessage, Text, ToolResultContent

    @server.tool
    async def mixed(ctx: Context) -> str:
        message = SamplingMessage("user", [ToolResultContent("a", []), Text(text="and")])
        return (await ctx.sample([message], max_tokens=1)).text

    result = connect().result(tool_request(1, "mixed"))
    assert (result["isError"], text_of(result)) == (True, "Tool results mixed with other content")


# -- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (5, "inputResponses.elicit-1"),
        (None, "inputResponses.elicit-1"),
        ([], "inputResponses.elicit-1"),
        ({}, "inputResponses.elicit-1: missing required field 'action'"),
        ({"action": "maybe"}, "inputResponses.elicit-1: member 'action'"),
        ({"action": "accept", "content": 5}, "inputResponses.elicit-1: member 'content'"),
        ({"action": "accept", "content": {"row": "x"}}, "field 'row': Expected `int`"),
        ({"action": "accept"}, "missing required field 'row'"),
        (SAMPLED, "inputResponses.elicit-1"),
    ],
)
def test_a_malformed_answer_is_an_error_of_the_request(
    answer: Any, says: str, connect: Any, asking: Server
) -> None:
    asked = Asked(connect(), "form")
    code, text = asked.error({"elicit-1": answer})
    assert code == -32602
    assert says in text
    assert asked.result()["resultType"] == "complete"


@pytest.mark.parametrize("field", ["inputResponses", "requestState"])
@pytest.mark.parametrize("value", [5, [1], True, "text", {"a": 1}])
def test_malformed_input_is_refused_or_ignored(
    field: str, value: Any, peer: Any, asking: Server
) -> None:
    answer = peer.ask(tool_request(1, "form", **{field: value}))
    if field == "inputResponses" and isinstance(value, dict):
        assert answer["result"]["resultType"] == "input_required"
    else:
        assert answer["error"]["code"] == -32602
    assert peer.fence() == []


def test_a_changed_request_state_is_refused_before_the_handler_runs(
    connect: Any, server: Server
) -> None:
    runs: list[int] = []

    @server.tool
    async def form(ctx: Context) -> str:
        runs.append(0)
        return (await ctx.elicit("?", Seat)).action

    asked = Asked(connect(), "form")
    state = asked.first["requestState"]
    first_letter = "B" if state[0] == "A" else "A"
    spoiled = [state[:-1], state + "A", first_letter + state[1:], state.swapcase(), "", "é" * 50]
    for text in spoiled:
        assert asked.error(requestState=text) == REFUSAL
    assert len(runs) == 1
    assert asked.result()["resultType"] == "complete"


def test_a_state_is_for_its_tool_and_its_arguments(connect: Any, server: Server) -> None:
    async def ask(ctx: Context, to: str = "", n: float = 0, text: str = "") -> str:
        return (await ctx.elicit("?", Seat)).action

    server.add_tool(ask, name="one", extra="ignore")
    server.add_tool(ask, name="two", extra="ignore")
    arguments = {"to": "a", "n": 1, "text": "x" * 100_000}
    asked = Asked(connect(), "one", arguments)
    assert asked.error(name="two") == REFUSAL
    for other in ({"to": "b"}, {"n": 2}, {"x": 1}, {"text": "x" * 99_999 + "y"}):
        assert asked.error(arguments=arguments | other) == REFUSAL
    for less in ({"to": "a"}, {}):
        assert asked.error(arguments=less) == REFUSAL
    same = dict(reversed(arguments.items()))
    assert asked.result(arguments=same)["resultType"] == "complete"


def test_a_state_is_for_its_user(connect: Any, asking: Server) -> None:
    alice, mallory, nobody, elsewhere = (connect() for _ in range(4))
    alice.connection.principal = elsewhere.connection.principal = b"alice"
    mallory.connection.principal = b"mallory"
    retry = Asked(alice, "form").retry()
    assert mallory.error(retry) == REFUSAL
    assert nobody.error(retry) == REFUSAL
    assert elsewhere.result(retry)["resultType"] == "complete"


def test_a_state_expires(connect: Any) -> None:
    secret = b"a" * 32
    server = add_askers(Server("lab", state_secret=secret, state_ttl=60))
    retry = Asked(connect(to=server), "form").retry()
    for seconds in (30, 61):
        later = add_askers(Server("lab", state_secret=secret))
        later.service.sealer = Sealer((secret,), "lab", clock=lambda s=seconds: time.time() + s)
        answer = connect(to=later).ask(retry)
        assert ("result" in answer) == (seconds == 30), answer


def test_servers_with_a_common_secret_go_on_for_each_other(connect: Any) -> None:
    one, two, three = (
        connect(to=add_askers(Server("lab", state_secret=secret)))
        for secret in (b"a" * 32, [b"b" * 32, b"a" * 32], None)
    )
    retry = Asked(one, "form").retry()
    assert two.result(retry)["resultType"] == "complete"
    assert three.error(retry) == REFUSAL


def test_a_state_for_single_use_is_taken_once(connect: Any) -> None:
    asked = Asked(connect(to=add_askers(Server("lab", state_single_use=True))), "form")
    assert asked.result()["resultType"] == "complete"
    assert asked.error() == REFUSAL


@pytest.mark.parametrize("options", [{"state_secret": b"short"}, {"state_ttl": 0}])
def test_options_of_the_state_are_checked_when_the_server_is_made(options: Any) -> None:
    with raises(ValueError):
        Server("lab", **options)


def test_answers_that_are_too_much_to_remember_are_an_error(connect: Any, server: Server) -> None:
    @server.tool
    async def two(ctx: Context) -> str:
        await ctx.sample("One?", max_tokens=1)
        return (await ctx.sample("Two?", max_tokens=1)).text

    text = "x" * state_module.MAX_STATE
    big = {**SAMPLED, "content": {"type": "text", "text": text}}
    result = Asked(connect(), "two").result({"sample-1": big})
    assert result["isError"] is True
    assert f"more than {state_module.MAX_STATE}" in text_of(result)


# -- the end of a handler that asked --------------------------------------------------------------


def test_the_handler_is_cancelled_quietly(
    peer: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    @server.tool
    async def form(ctx: Context) -> str:
        try:
            return (await ctx.elicit("?", Seat)).action
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            ended.append("finally")

    peer.result(tool_request(1, "form"))
    peer.wait_for(lambda: not peer.connection.running)
    assert ended == ["cancelled", "finally"]
    assert peer.fence() == []
    assert caplog.text == ""


@pytest.mark.parametrize("then", ["return", "raise", "ask", "notify"])
def test_a_handler_that_swallows_its_cancellation_gives_no_second_answer(
    then: str, connect: Any, server: Server
) -> None:
    ended: list[BaseException | None] = []

    @server.tool
    async def stubborn(ctx: Context) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await ctx.elicit("?", Seat)
        try:
            if then == "raise":
                raise ValueError("not to be seen")
            if then == "ask":
                await ctx.elicit("Again?", Seat)
            if then == "notify":
                await ctx.progress(1)
        except BaseException as exc:
            ended.append(exc)
            raise
        ended.append(None)
        return "second"

    peer = connect()
    message = modern(
        1,
        "tools/call",
        {"name": "stubborn"},
        **{META + "clientCapabilities": {"elicitation": {}}, "progressToken": 1},
    )
    assert peer.result(message)["resultType"] == "input_required"
    peer.wait_for(lambda: ended and not peer.connection.running)
    assert peer.fence() == []
    if then == "ask":
        assert isinstance(ended[0], asyncio.CancelledError)


def test_tasks_that_the_handler_left_end_with_it(peer: Any, server: Server) -> None:
    left: list[asyncio.Task[Any]] = []

    @server.tool
    async def form(ctx: Context) -> str:
        left.append(asyncio.ensure_future(ctx.elicit("?", Seat)))
        await asyncio.Event().wait()
        return "never"

    assert list(peer.result(tool_request(1, "form"))["inputRequests"]) == ["elicit-1"]
    peer.wait_for(left[0].done)
    assert left[0].cancelled()


def test_a_request_that_was_cancelled_meanwhile_gets_no_answer(peer: Any, asking: Server) -> None:
    peer.send(tool_request(1, "form"), cancel(1))
    assert peer.fence() == []
    peer.wait_for(lambda: not peer.connection.running)


def test_a_handler_that_ended_meanwhile_has_answered(peer: Any, server: Server) -> None:
    left: list[asyncio.Task[Any]] = []

    @server.tool
    async def form(ctx: Context) -> str:
        left.append(asyncio.ensure_future(ctx.elicit("?", Seat)))
        await asyncio.sleep(0)  # the question is asked in this turn
        return "done"

    assert text_of(peer.result(tool_request(1, "form"))) == "done"
    peer.wait_for(left[0].done)
    assert isinstance(left[0].exception(), LocalError)
    assert peer.fence() == []


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
def test_a_task_that_outlives_its_handler_cannot_ask(
    version: str, connect: Any, server: Server
) -> None:
    left: list[asyncio.Task[Any]] = []
    gate = asyncio.Event()

    async def later(ctx: Context) -> None:
        await gate.wait()
        await ctx.sample("Hi", max_tokens=9)

    @server.tool
    async def leaves(ctx: Context) -> str:
        left.append(asyncio.ensure_future(later(ctx)))
        return "done"

    if version == MODERN:
        peer = connect()
        message = tool_request(1, "leaves")
    else:
        peer = enter(connect, version)
        message = call(1, "leaves")
    assert text_of(peer.result(message)) == "done"
    gate.set()
    peer.wait_for(left[0].done)
    error = left[0].exception()
    assert isinstance(error, LocalError)
    assert str(error) == "the tool 'leaves' has ended, so its client cannot be asked"
    assert peer.fence() == []


def test_a_handler_in_a_thread_is_told_to_be_async(connect: Any, server: Server) -> None:
    @server.tool
    def form(ctx: Context) -> str:
        return asyncio.run(ctx.elicit("?", Seat)).action

    result = connect().result(tool_request(1, "form"))
    assert result["isError"] is True
    assert "make the handler async" in text_of(result)


def test_many_requests_ask_at_once(connect: Any, asking: Server) -> None:
    peer = connect()
    messages = {n: tool_request(n, ["form", "sample", "roots"][n % 3]) for n in range(30)}
    peer.send(*messages.values())
    got = peer.answers(*messages)
    retries = [
        again(n + 100, messages[n], answer["result"], answers_to(answer["result"]))
        for n, answer in got.items()
    ]
    peer.send(*retries)
    for answer in peer.answers(*(retry["id"] for retry in retries)).values():
        assert answer["result"]["resultType"] == "complete"
    assert not peer.connection.running


# -- prompts and resources ------------------------------------------------------------------------


@pytest.fixture
def features(server: Server) -> Server:
    async def ask(ctx: Context, of: str = "") -> str:
        return f"{of} {(await ctx.elicit('Which seat?', Seat)).content}"

    server.prompt(name="trip")(ask)
    server.resource("seat://fixed", name="seat", ttl_ms=1000)(ask)
    server.resource("seat://{of}/any", name="seat_of")(ask)
    return server


CASES = [
    ("prompts/get", {"name": "trip", "arguments": {"of": "x"}}, {"arguments": {}}),
    ("resources/read", {"uri": "seat://fixed"}, {"uri": "seat://7/any"}),
    ("resources/read", {"uri": "seat://7/any", "name": "n"}, {"uri": "seat://8/any"}),
]


@pytest.mark.parametrize(("method", "params", "other"), CASES)
def test_prompts_and_resources_ask_too(
    method: str, params: Any, other: Any, connect: Any, features: Server
) -> None:
    asked = Asked(connect(), modern_request(1, method, params))
    assert list(asked.first["inputRequests"]) == ["elicit-1"]
    # an interim result says nothing of caching (server/utilities/caching)
    assert not asked.first.keys() & {"ttlMs", "cacheScope", "contents", "messages"}
    last = asked.result()
    if method == "resources/read":
        assert (last["ttlMs"], last["cacheScope"]) == (0, "private")
    assert "Seat(row=5, window=False)" in str(last)
    assert last["resultType"] == "complete"
    assert asked.error(**other) == REFUSAL
    code, text = asked.error({"elicit-1": {"action": "accept"}})
    assert (code, "missing required field 'row'" in text) == (-32602, True)
    assert asked.peer.error(modern_request(5, method, params, {}))[0] == -32021


def test_nothing_else_asks(connect: Any, features: Server) -> None:
    @features.completion("trip", "of")
    async def complete(value: str, ctx: Context) -> list[str]:
        return [(await ctx.elicit("?", Seat)).action]

    peer = connect()
    params = {
        "ref": {"type": "ref/prompt", "name": "trip"},
        "argument": {"name": "of", "value": ""},
    }
    answer = peer.ask(modern_request(1, "completion/complete", params))
    assert answer["error"]["code"] == -32603


# -- tasks ----------------------------------------------------------------------------------------

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}, "roots": {}}


def task_with_questions(peer: Any, task: str, n: int) -> Any:
    """A task once it asks so many things."""
    while True:
        shown = peer.result(modern_request(1, "tasks/get", {"taskId": task}, TASKS))
        if len(shown.get("inputRequests", ())) == n or shown["status"] in ("completed", "failed"):
            return shown


def answer_task(peer: Any, shown: Any) -> None:
    params = {"taskId": shown["taskId"], "inputResponses": answers_to(shown)}
    peer.result(modern_request(1, "tasks/update", params, TASKS))


def test_a_task_asks_by_way_of_itself(peer: Any, server: Server) -> None:
    runs: list[int] = []

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        runs.append(0)
        seat, roots = await asyncio.gather(ctx.elicit("?", Seat), ctx.roots())
        again = await ctx.elicit("Again?", Seat)
        return f"{seat.content} {len(roots)} {again.content}"

    created = peer.result(tool_request(1, "work", capabilities=TASKS))
    assert created["resultType"] == "task"
    for n in (2, 1):
        answer_task(peer, task_with_questions(peer, created["taskId"], n))
    done = task_with_questions(peer, created["taskId"], 9)
    assert text_of(done["result"]) == "Seat(row=5, window=False) 2 Seat(row=5, window=False)"
    assert len(runs) == 1


def test_the_explicit_form_in_a_task(peer: Any, server: Server) -> None:
    @server.tool(task="required")
    async def work(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired({"mine": ElicitRequest("?", Seat)}, state=3)
        return f"{ctx.input_responses['mine'].content} {ctx.request_state}"

    task = peer.result(tool_request(1, "work", capabilities=TASKS))["taskId"]
    answer_task(peer, task_with_questions(peer, task, 1))
    done = task_with_questions(peer, task, 9)
    assert text_of(done["result"]) == "{'row': 5} 3"


def test_a_call_does_not_become_a_task_in_the_turn_in_which_it_asks(
    connect: Any, server: Server
) -> None:
    go, asks = asyncio.Event(), asyncio.Event()

    class Store(MemoryTaskStore):
        async def create(self, task: Task) -> None:
            await super().create(task)
            go.set()
            await asks.wait()

    server.use_tasks(Store())

    @server.tool(task="optional", task_after=0.001)
    async def late(ctx: Context) -> str:
        await go.wait()
        asks.set()
        return (await ctx.elicit("?", Seat)).action

    asked = Asked(connect(), tool_request(1, "late", capabilities=TASKS))
    assert text_of(asked.result()) == "accept"


@pytest.mark.parametrize("more", [{"uri": 5}, {"task": "x"}, {"task": 1}])
def test_members_that_mean_nothing_are_ignored(more: Any, connect: Any, asking: Server) -> None:
    peer = connect()
    for n, tool in enumerate(asking.tools):
        result = peer.result(tool_request(n, tool, None, None, **more))
        assert result["resultType"] in ("input_required", "complete"), result
        assert result.get("isError") is not True, result
