"""The explicit form: a handler gives `InputRequired`, and is called again with the answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.questions import (
    ACCEPT,
    ANSWERS,
    REFUSAL,
    ROOTS,
    SAMPLED,
    Asked,
    Seat,
    again,
    answers_to,
    enter,
    modern_request,
    play,
    reply,
    tool_request,
)
from lab.raw import call
from lab.server import LEGACY, MODERN, text_of
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import SignatureError
from wirespeed.server.asking.asker import MAX_ROUNDS
from wirespeed.types import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicited,
    ElicitRequest,
    InputRequired,
    Root,
    RootsRequest,
    Sampled,
    SampleRequest,
)


@pytest.fixture
def booking(server: Server) -> Server:
    @server.tool
    async def book(ctx: Context, to: str) -> str | InputRequired:
        seat = ctx.input_responses.get("seat")
        if seat is None:
            assert ctx.request_state is None
            return InputRequired(
                {"seat": ElicitRequest("Which seat?", Seat)}, state={"to": to, "step": 1}
            )
        chosen = seat.as_form(Seat)
        return f"{seat.action} {chosen} {ctx.request_state}"

    return server


def drive(connect: Any, version: str, message: Any) -> tuple[Any, list[Any]]:
    """Play a modern request, asked in either era, to its end: the result, and what was asked."""
    if version == MODERN:
        result, asked = play(connect(), message)
        return result, [question for requests in asked for question in requests.values()]
    peer = enter(connect, version)
    params = {key: value for key, value in message["params"].items() if key != "_meta"}
    questions = []
    peer.send({**message, "params": params})
    while "method" in (got := peer.recv()):
        questions.append(got)
        peer.send(reply(got, ANSWERS[got["method"]]))
    return got["result"], questions


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
def test_a_handler_is_written_once_for_both_eras(
    version: str, connect: Any, booking: Server
) -> None:
    result, asked = drive(connect, version, tool_request(1, "book", {"to": "Rome"}))
    assert [question["method"] for question in asked] == ["elicitation/create"]
    assert text_of(result) == f"accept {Seat(5)} {{'to': 'Rome', 'step': 1}}"


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
def test_answers_are_typed_by_what_was_asked(version: str, connect: Any, server: Server) -> None:
    seen: list[Any] = []

    @server.tool
    async def ask(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired(
                {"any key: é": SampleRequest("Hi", max_tokens=3), "r": RootsRequest()}
            )
        seen.append(dict(ctx.input_responses))
        assert ctx.request_state is None
        return "done"

    result, asked = drive(connect, version, tool_request(1, "ask"))
    assert text_of(result) == "done"
    assert {question["method"] for question in asked} == {"sampling/createMessage", "roots/list"}
    (responses,) = seen
    sampled = responses["any key: é"]
    assert isinstance(sampled, Sampled)
    assert (sampled.text, sampled.model) == ("Paris", "m-1")
    assert responses["r"] == [Root("file:///a", "A"), Root("file:///b")]


def test_questions_or_state_or_both(connect: Any, server: Server) -> None:
    @server.tool
    async def poll(ctx: Context) -> str | InputRequired:
        n = ctx.request_state or 0
        return "enough" if n == 2 else InputRequired(state=n + 1)

    peer = connect()
    message = tool_request(1, "poll", capabilities={})
    first = peer.result(message)
    assert first["resultType"] == "input_required"
    assert "inputRequests" not in first
    second = peer.result(again(2, message, first))
    assert text_of(peer.result(again(3, message, second))) == "enough"
    legacy = enter(connect, "2025-11-25", {})
    assert text_of(legacy.result(call(1, "poll"))) == "enough"
    with raises(ValueError):
        InputRequired()
    for requests in ({1: RootsRequest()}, {"r": "roots/list"}):
        with raises(TypeError):
            InputRequired(requests)  # type: ignore[arg-type]


def test_rounds_follow_each_other_with_the_last_state(connect: Any, server: Server) -> None:
    @server.tool
    async def steps(ctx: Context) -> str | InputRequired:
        done = ctx.request_state or []
        done = [*done, *(f"{key}={a.content}" for key, a in ctx.input_responses.items())]
        if len(done) == 3:
            return " ".join(done)
        return InputRequired({f"k{len(done)}": ElicitRequest("?", Seat)}, state=done)

    for version in ("2025-11-25", MODERN):
        result, asked = drive(connect, version, tool_request(1, "steps"))
        assert text_of(result) == "k0={'row': 5} k1={'row': 5} k2={'row': 5}"
        assert len(asked) == 3


def test_an_answer_may_be_missing(connect: Any, booking: Server) -> None:
    @booking.tool
    async def two(ctx: Context) -> str | InputRequired:
        missing = {"a", "b"} - set(ctx.input_responses)
        if missing:
            return InputRequired({key: ElicitRequest(key, Seat) for key in sorted(missing)})
        return "both"

    second = Asked(connect(), "two").result({"a": ACCEPT, "unknown": 1})
    assert list(second["inputRequests"]) == ["b"]


def test_the_state_is_refused_when_it_was_changed(connect: Any, booking: Server) -> None:
    asked = Asked(connect(), "book", {"to": "Rome"})
    state = asked.first["requestState"]
    changed = state[:-2] + ("xx" if state[-2:] != "xx" else "yy")
    assert asked.error(requestState=changed) == REFUSAL
    assert asked.error(arguments={"to": "Oslo"}) == REFUSAL


def test_a_malformed_answer_is_an_error_of_the_request(connect: Any, booking: Server) -> None:
    asked = Asked(connect(), "book", {"to": "Rome"})
    code, text = asked.error({"seat": {"action": "?"}})
    assert (code, "inputResponses.seat" in text) == (-32602, True)
    # the form is the handler's to look at
    result = asked.result({"seat": {"action": "accept", "content": {"row": "x"}}})
    assert (result["isError"], "field 'row'" in text_of(result)) == (True, True)


def test_what_was_not_declared_is_not_asked(connect: Any, booking: Server) -> None:
    answer = connect().ask(tool_request(1, "book", {"to": "x"}, {"sampling": {}}))
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
    result = enter(connect, "2025-11-25", {}).result(call(1, "book", {"to": "x"}))
    assert result["isError"] is True
    assert "capability elicitation" in text_of(result)


# -- without state --------------------------------------------------------------------------------


@pytest.fixture
def stateless(server: Server) -> Server:
    @server.tool
    async def trip(ctx: Context, to: str = "Rome") -> str | InputRequired:
        questions = {
            "seat": ElicitRequest("Which seat?", Seat),
            "name": SampleRequest("Capital?", max_tokens=5),
            "roots": RootsRequest(),
        }
        given = ctx.input_responses
        missing = {key: asked for key, asked in questions.items() if key not in given}
        if missing:
            return InputRequired(missing)
        seat, name, roots = (given[key] for key in questions)
        return f"{to} {seat.as_form(Seat).row} {name.text} {len(roots)} {ctx.request_state}"

    return server


FOR_TRIP = {"seat": ACCEPT, "name": SAMPLED, "roots": ROOTS}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_questions_without_state_carry_no_request_state(
    version: str, connect: Any, stateless: Server
) -> None:
    result, asked = drive(connect, version, tool_request(1, "trip"))
    assert (text_of(result), len(asked)) == ("Rome 5 Paris 2 None", 3)
    first = Asked(connect(), "trip").first
    assert set(first) == {"resultType", "inputRequests", "_meta"}


def test_answers_without_state_are_taken_as_they_come(connect: Any, stateless: Server) -> None:
    peer = connect()
    strange = {"x": 1, "y": {"z": 2}, "other": ACCEPT}
    request = tool_request(1, "trip", {"to": "Oslo"}, inputResponses={**FOR_TRIP, **strange})
    assert text_of(peer.result(request)) == "Oslo 5 Paris 2 None"
    some = tool_request(2, "trip", inputResponses={"seat": ACCEPT, "name": {"text": "?"}})
    assert list(peer.result(some)["inputRequests"]) == ["name", "roots"]


def test_answers_without_the_state_that_was_sent_leave_the_handler_without(
    connect: Any, server: Server
) -> None:
    @server.tool
    async def order(ctx: Context) -> str | InputRequired:
        answer = ctx.input_responses.get("seat")
        if answer is None or ctx.request_state is None:
            return InputRequired({"seat": ElicitRequest("?", Seat)}, state=[answer is None])
        return str(ctx.request_state)

    peer = connect()
    first = peer.result(tool_request(1, "order", inputResponses={"seat": ACCEPT}))
    assert set(first) == {"resultType", "inputRequests", "requestState", "_meta"}
    assert text_of(peer.result(again(2, tool_request(1, "order"), first, {"seat": ACCEPT}))) == (
        "[False]"
    )


@pytest.mark.parametrize("wrong", [{"action": "?"}, {"roots": 1}, {"role": "user", "content": 5}])
def test_a_malformed_answer_without_state_is_an_error_of_the_request(
    wrong: Any, connect: Any, stateless: Server
) -> None:
    code, text = connect().error(tool_request(1, "trip", inputResponses={"seat": wrong}))
    assert (code, "inputResponses.seat: " in text) == (-32602, True)


def test_answers_without_state_are_kept_for_a_question_of_the_context(
    connect: Any, server: Server
) -> None:
    @server.tool
    async def mixed(ctx: Context) -> str | InputRequired:
        seat = ctx.input_responses.get("seat")
        if seat is None:
            return InputRequired({"seat": ElicitRequest("First?", Seat)})
        return f"{seat.content} {(await ctx.elicit('Last?', Seat)).content}"

    result, asked = play(connect(), tool_request(1, "mixed"))
    assert [list(requests) for requests in asked] == [["seat"], ["elicit-1"]]
    assert text_of(result) == "{'row': 5} Seat(row=5, window=False)"


def test_answers_to_the_context_are_kept_without_a_state_of_the_handler(
    connect: Any, server: Server
) -> None:
    @server.tool
    async def mixed(ctx: Context) -> str | InputRequired:
        first = await ctx.elicit("First?", Seat)
        if "last" not in ctx.input_responses:
            return InputRequired({"last": ElicitRequest("Last?", Seat)})
        return str(first.content)

    result, asked = play(connect(), tool_request(1, "mixed"))
    assert [list(requests) for requests in asked] == [["elicit-1"], ["last"]]
    assert text_of(result) == "Seat(row=5, window=False)"


def test_a_state_for_single_use_is_always_there(connect: Any) -> None:
    server = Server("once", state_single_use=True)

    @server.tool
    async def sure(ctx: Context) -> str | InputRequired:
        if "yes" not in ctx.input_responses:
            return InputRequired({"yes": ElicitRequest("Sure?")})
        return "done"

    asked = Asked(connect(to=server), "sure")
    assert text_of(asked.result()) == "done"
    assert asked.error() == REFUSAL
    forged = asked.retry()
    del forged["params"]["requestState"]
    assert asked.peer.result(forged)["resultType"] == "input_required"


# -- both ways ------------------------------------------------------------------------------------


def test_both_ways_of_asking_in_one_handler(connect: Any, server: Server) -> None:
    @server.tool
    async def mixed(ctx: Context) -> str | InputRequired:
        first = await ctx.elicit("First?", Seat)
        if "last" not in ctx.input_responses:
            return InputRequired({"last": ElicitRequest("Last?", Seat)}, state=1)
        return f"{first.content} {ctx.input_responses['last'].content}"

    result, asked = play(connect(), tool_request(1, "mixed"))
    assert [list(requests) for requests in asked] == [["elicit-1"], ["last"]]
    assert text_of(result) == "Seat(row=5, window=False) {'row': 5}"


def test_an_answer_for_a_handlers_key_is_no_answer_for_the_engines(
    connect: Any, server: Server
) -> None:
    @server.tool
    async def mixed(ctx: Context) -> str | InputRequired:
        if ctx.request_state is None:
            return InputRequired({"elicit-1": ElicitRequest("?", Seat)}, state=1)
        return str((await ctx.elicit("?", Seat)).content)

    _, asked = play(connect(), tool_request(1, "mixed"))
    assert [list(requests) for requests in asked] == [["elicit-1"], ["elicit-1"]]


# -- legacy ---------------------------------------------------------------------------------------


def test_questions_of_one_round_are_asked_at_once(connect: Any, server: Server) -> None:
    @server.tool
    async def three(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired({str(n): ElicitRequest(f"{n}?", Seat) for n in range(3)})
        return " ".join(f"{key}{a.content['row']}" for key, a in ctx.input_responses.items())

    peer = enter(connect, "2025-11-25")
    peer.send(call(1, "three"))
    questions = [peer.recv() for _ in range(3)]
    for n in (2, 0, 1):
        peer.send(reply(questions[n], {"action": "accept", "content": {"row": n}}))
    assert text_of(peer.recv()["result"]) == "00 11 22"


def test_an_error_to_one_question_cancels_the_others(connect: Any, server: Server) -> None:
    @server.tool
    async def two(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired({"a": SampleRequest("?", max_tokens=1), "b": RootsRequest()})
        return "never"

    peer = enter(connect, "2025-11-25")
    peer.send(call(1, "two"))
    first, second = peer.recv(), peer.recv()
    error = {"code": -1, "message": "User rejected"}
    peer.send({"jsonrpc": "2.0", "id": first["id"], "error": error})
    got = peer.until(1)
    assert [m["params"]["requestId"] for m in got if "method" in m] in ([second["id"]], [])
    result = got[-1]["result"]
    assert (result["isError"], text_of(result)) == (True, "User rejected (code -1)")
    rest = [m for m in [*got, *peer.fence()] if m.get("method") == "notifications/cancelled"]
    assert [m["params"]["requestId"] for m in rest] == [second["id"]]


def test_a_handler_that_never_has_enough_is_stopped(connect: Any, server: Server) -> None:
    @server.tool
    async def greedy(ctx: Context) -> str | InputRequired:
        return InputRequired({"r": RootsRequest()})

    result, asked = drive(connect, "2025-11-25", tool_request(1, "greedy"))
    assert len(asked) == MAX_ROUNDS
    assert (result["isError"], f"more than {MAX_ROUNDS} times" in text_of(result)) == (True, True)


def test_a_state_that_is_no_json_is_the_handlers_error(connect: Any, server: Server) -> None:
    @server.tool
    async def odd(ctx: Context) -> str | InputRequired:
        return InputRequired(state=object())

    for peer, message in (
        (connect(), tool_request(1, "odd")),
        (enter(connect, "2025-11-25"), call(1, "odd")),
    ):
        result = peer.result(message)
        assert result["isError"] is True
        assert "no JSON form" in text_of(result)


# -- other handlers -------------------------------------------------------------------------------


def test_plain_functions_run_in_their_thread_each_time(connect: Any, server: Server) -> None:
    @server.tool
    def book(ctx: Context, *, to: str = "x") -> str | InputRequired:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        if not ctx.input_responses:
            return InputRequired({"seat": ElicitRequest("?", Seat)})
        return f"{to} {ctx.input_responses['seat'].content}"

    for version in ("2025-11-25", MODERN):
        result, _ = drive(connect, version, tool_request(1, "book", {"to": "Rome"}))
        assert text_of(result) == "Rome {'row': 5}"


def test_prompts_and_resources_have_it_too(connect: Any, server: Server) -> None:
    async def ask(n: str, ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired({"r": RootsRequest()})
        return f"{n} {len(ctx.input_responses['r'])}"

    server.prompt(name="trip")(ask)
    server.resource("seat://{n}", name="seat", ttl_ms=1000)(ask)
    for message in (
        modern_request(1, "prompts/get", {"name": "trip", "arguments": {"n": "7"}}),
        modern_request(1, "resources/read", {"uri": "seat://7"}),
    ):
        for version in ("2025-11-25", MODERN):
            result, asked = drive(connect, version, message)
            assert len(asked) == 1
            assert "'7 2'" in str(result)
            assert not result.get("ttlMs")
        params = {k: v for k, v in message["params"].items() if k != "_meta"}
        error = connect().ask(modern_request(1, message["method"], params, {}))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"roots": {}}}


def test_the_annotation_is_not_part_of_the_output(server: Server) -> None:
    @server.tool
    async def one(ctx: Context) -> int | InputRequired:
        return 1

    @server.tool
    async def two(ctx: Context) -> InputRequired:
        return InputRequired(state=1)

    schema = server.tools["one"].entry.outputSchema
    assert schema["properties"]["result"] == {"type": "integer"}
    assert server.tools["two"].entry.outputSchema is None


def test_a_handler_must_take_the_context_to_see_the_answers(server: Server) -> None:
    with raises(SignatureError):

        @server.tool
        async def blind() -> str | InputRequired:
            return InputRequired(state=1)


def test_without_the_annotation_it_is_no_result(connect: Any, server: Server) -> None:
    @server.tool
    async def unannotated(ctx: Context):  # type: ignore[no-untyped-def]
        return InputRequired(state=1)

    result = connect().result(tool_request(1, "unannotated"))
    assert result["isError"] is True
    assert "InputRequired" in text_of(result)


def test_answers_have_conveniences() -> None:
    answers: list[Elicited[dict[str, Any]]] = [DeclinedElicitation(), CancelledElicitation()]
    for refused, action in zip(answers, ("decline", "cancel"), strict=True):
        assert (refused.action, refused.accepted, refused.content) == (action, False, None)
        assert not refused and refused.as_form(Seat) is None
    accepted = AcceptedElicitation({"row": 1})
    assert (accepted.action, accepted.accepted, accepted.content) == ("accept", True, {"row": 1})
    assert accepted and accepted.as_form(Seat) == Seat(1)
    assert AcceptedElicitation(None)  # consent is true without content
    assert repr(accepted) == "AcceptedElicitation(content={'row': 1})"
    with raises(ValueError):
        ElicitRequest("?", Seat, url="https://a.example")
    for tokens in (0, -1, True, 1.5):
        with raises(ValueError):
            SampleRequest("?", max_tokens=tokens)  # type: ignore[arg-type]
    assert answers_to({"inputRequests": {"r": {"method": "roots/list"}}}) == {"r": ROOTS}
    assert SAMPLED["role"] == "assistant"
