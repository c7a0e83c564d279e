"""Questions to clients of the legacy eras: requests of the server's own."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest
from lab.questions import (
    ACCEPT,
    ANSWERS,
    QUESTIONS,
    ROOTS,
    SAMPLED,
    Seat,
    enter,
    reply,
    served,
    tool_request,
)
from lab.raw import call, cancel, request
from lab.server import FOREVER, LEGACY, MODERN, LatePeer, text_of

from wirespeed import Context, Server
from wirespeed.errors import CallTimeout, InvalidResponse, MissingCapability, RemoteError
from wirespeed.types import (
    Audio,
    ElicitRequest,
    SamplingMessage,
    Text,
    ToolResultContent,
    ToolUseContent,
    titles,
)

pytestmark = pytest.mark.every_revision
FORMS = ("2025-06-18", "2025-11-25")
NEWEST = "2025-11-25"


class Trip(msgspec.Struct):
    """Fields that the two revisions with forms write differently."""

    size: Annotated[Literal["s", "m"], titles({"s": "Small", "m": "Medium"})]
    n: int = 1
    yes: bool = True


class Tags(msgspec.Struct):
    tags: list[Literal["a", "b"]]


# -- one question ---------------------------------------------------------------------------------


@pytest.fixture
def peer(connect: Any) -> Any:
    return LatePeer(lambda: enter(connect, NEWEST))


FIRST = {"sample": 0, "roots": 0, "form": 2, "url": 3, "sample_tools": 3}  # in LEGACY


@pytest.mark.parametrize(
    ("version", "tool"), [(v, tool) for tool, first in FIRST.items() for v in LEGACY[first:]]
)
def test_a_question_is_a_request(version: str, tool: str, connect: Any, asking: Server) -> None:
    peer = enter(connect, version)
    ids = []
    for n in range(2):
        question, result = served(peer, call(n, tool))
        assert question["jsonrpc"] == "2.0"
        assert isinstance(question["id"], (int, str))
        params = question.get("params", {})
        if tool == "url":
            ids.append(params.pop("elicitationId"))
        assert (question["method"], params) == QUESTIONS[tool][1:3]
        assert text_of(result) == QUESTIONS[tool][3]
        assert "resultType" not in result
    assert len(set(ids)) == len(ids)


def test_questions_side_by_side_are_asked_at_once(peer: Any, server: Server) -> None:
    @server.tool
    async def both(ctx: Context) -> str:
        seat, roots = await asyncio.gather(ctx.elicit("?", Seat), ctx.roots())
        again = await ctx.elicit("Again?", Seat)
        return f"{seat.content} {len(roots)} {again.action}"

    peer.send(call(1, "both"))
    questions = [peer.recv(), peer.recv()]
    assert [q["method"] for q in questions] == ["elicitation/create", "roots/list"]
    for question in reversed(questions):
        peer.send(reply(question, ANSWERS[question["method"]]))
    third = peer.recv()
    assert third["params"]["message"] == "Again?"
    peer.send(reply(third, {"action": "decline"}))
    assert text_of(peer.recv()["result"]) == "Seat(row=5, window=False) 2 decline"


# -- what may be asked ----------------------------------------------------------------------------

UNDECLARED = [
    ("2024-11-05", "form", {"elicitation": {}}, "elicitation"),
    ("2025-03-26", "form", {"elicitation": {"form": {}}}, "elicitation"),
    ("2025-06-18", "form", {}, "elicitation"),
    ("2025-11-25", "form", {"elicitation": {"url": {}}}, "elicitation.form"),
    ("2025-06-18", "url", {"elicitation": {"url": {}}}, "elicitation.url"),
    ("2025-11-25", "url", {"elicitation": {}}, "elicitation.url"),
    ("2025-11-25", "url", {"elicitation": {"form": {}}}, "elicitation.url"),
    ("2024-11-05", "sample", {"roots": {}}, "sampling"),
    ("2025-06-18", "sample_tools", {"sampling": {"tools": {}}}, "sampling.tools"),
    ("2025-11-25", "sample_tools", {"sampling": {}}, "sampling.tools"),
    ("2025-11-25", "roots", {"sampling": {}}, "roots"),
]


@pytest.mark.parametrize(("version", "tool", "capabilities", "path"), UNDECLARED)
def test_what_was_not_declared_is_the_tools_error_and_not_sent(
    version: str, tool: str, capabilities: Any, path: str, connect: Any, asking: Server
) -> None:
    peer = enter(connect, version, capabilities)
    result = peer.result(call(1, tool))
    assert result["isError"] is True
    assert text_of(result) == f"The client does not declare the capability {path}"
    assert peer.fence() == []


def test_an_empty_elicitation_capability_means_forms(connect: Any, asking: Server) -> None:
    for version in FORMS:
        peer = enter(connect, version, {"elicitation": {}})
        assert text_of(served(peer, call(1, "form"))[1]) == QUESTIONS["form"][3]
        assert peer.result(call(2, "url"))["isError"] is True


def test_a_handler_may_do_without(connect: Any, server: Server) -> None:
    @server.tool
    async def either(ctx: Context) -> str:
        try:
            return (await ctx.sample("?", max_tokens=1)).text
        except MissingCapability as exc:
            return f"without {exc.required}"

    peer = enter(connect, "2024-11-05", {})
    assert text_of(peer.result(call(1, "either"))) == "without {'sampling': {}}"


def test_a_prompt_has_an_error_for_what_was_not_declared(connect: Any, server: Server) -> None:
    @server.prompt
    async def trip(ctx: Context) -> str:
        return (await ctx.elicit("?", Seat)).action

    peer = enter(connect, NEWEST, {})
    answer = peer.ask(request(1, "prompts/get", {"name": "trip"}))
    assert answer["error"] == {
        "code": -32603,
        "message": "The client does not declare the capability elicitation",
        "data": {"requiredCapabilities": {"elicitation": {}}},
    }


# -- what a revision writes differently -----------------------------------------------------------


def test_forms_are_written_as_the_revision_has_them(connect: Any, server: Server) -> None:
    @server.tool
    async def trip(ctx: Context) -> str:
        return str((await ctx.elicit("?", Trip)).content)

    seen = {}
    for version in FORMS:
        peer = enter(connect, version)
        question = peer.ask(call(1, "trip"))
        seen[version] = question["params"]["requestedSchema"]["properties"]
        peer.send(reply(question, {"action": "accept", "content": {"size": "m"}}))
        assert text_of(peer.recv()["result"]) == "Trip(size='m', n=1, yes=True)"
    assert seen["2025-06-18"] == {
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "n": {"type": "integer"},
        "yes": {"type": "boolean", "default": True},
    }
    assert seen["2025-11-25"] == {
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}],
        },
        "n": {"type": "integer", "default": 1},
        "yes": {"type": "boolean", "default": True},
    }


def test_a_form_from_a_schema_keeps_the_names_of_options(connect: Any, server: Server) -> None:
    names = {
        "type": "string",
        "enum": ["s", "m"],
        "enumNames": ["Small", "Medium"],
        "title": "How?",
    }
    schema = {"type": "object", "properties": {"size": names}, "required": ["size"]}

    @server.tool
    async def drink(ctx: Context) -> str:
        return str((await ctx.elicit("?", schema)).content)

    for version in FORMS:
        peer = enter(connect, version)
        for content, text in (
            ({"size": "m", "more": 1}, "{'size': 'm'}"),
            ({"size": "l"}, "the answer does not fit the form: 'size' must be one of 's', 'm'"),
        ):
            question = peer.ask(call(1, "drink"))
            assert question["params"]["requestedSchema"] == schema
            peer.send(reply(question, {"action": "accept", "content": content}))
            assert text_of(peer.recv()["result"]) == text


def test_several_choices_need_2025_11_25(connect: Any, server: Server) -> None:
    @server.tool
    async def tags(ctx: Context) -> str:
        return str((await ctx.elicit("?", Tags)).content)

    result = enter(connect, "2025-06-18").result(call(1, "tags"))
    assert result["isError"] is True
    assert "no field for several choices (tags)" in text_of(result)
    answer = {"action": "accept", "content": {"tags": ["b", "a"]}}
    _, result = served(enter(connect, NEWEST), call(1, "tags"), answer)
    assert text_of(result) == "Tags(tags=['b', 'a'])"


@pytest.mark.parametrize("version", LEGACY)
def test_messages_are_written_as_the_revision_has_them(
    version: str, connect: Any, server: Server
) -> None:
    @server.tool
    async def sample(ctx: Context) -> str:
        messages = [
            SamplingMessage("user", [Text(text="a"), Audio(data=b"xyz", mime_type="audio/wav")]),
            SamplingMessage("assistant", Text(text="b")),
        ]
        return (await ctx.sample(messages, max_tokens=1, include_context="allServers")).text

    peer = enter(connect, version)
    question, _ = served(peer, call(1, "sample"))
    a, b = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    audio = {"type": "audio", "data": "eHl6", "mimeType": "audio/wav"}
    if version == "2024-11-05":
        audio = {"type": "text", "text": "[audio: audio/wav, 3 bytes]"}
    last = {"role": "assistant", "content": b}
    if version == NEWEST:
        assert question["params"]["messages"] == [{"role": "user", "content": [a, audio]}, last]
    else:
        assert question["params"]["messages"] == [
            {"role": "user", "content": a},
            {"role": "user", "content": audio},
            last,
        ]
    assert question["params"]["includeContext"] == "allServers"


def test_a_model_uses_tools_in_2025_11_25(peer: Any, server: Server) -> None:
    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def agent(ctx: Context) -> str:
        tools = [server.tools["add"]]
        messages = [SamplingMessage("user", Text(text="1+2?"))]
        while True:
            answer = await ctx.sample(messages, max_tokens=9, tools=tools, tool_choice="auto")
            uses = [block for block in answer.blocks if isinstance(block, ToolUseContent)]
            if not uses:
                return f"{answer.text} {answer.stop_reason}"
            sums = [(use.id, str(await add(**use.input))) for use in uses]
            results = [ToolResultContent(id, [Text(text=text)]) for id, text in sums]
            messages += [answer.message, SamplingMessage("user", list(results))]

    first = peer.ask(call(1, "agent"))
    (offered,) = first["params"]["tools"]
    assert offered["name"] == "add"
    assert offered["description"] == "Add two numbers."
    assert offered["inputSchema"]["required"] == ["a", "b"]
    assert set(offered) == {"name", "description", "inputSchema", "outputSchema"}
    use = {"type": "tool_use", "id": "u1", "name": "add", "input": {"a": 1, "b": 2}}
    sampled = {"role": "assistant", "content": [use], "model": "m", "stopReason": "toolUse"}
    peer.send(reply(first, sampled))
    second = peer.recv()
    text = {"type": "text", "text": "3"}
    assert second["params"]["messages"][1:] == [
        {"role": "assistant", "content": [use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "toolUseId": "u1", "content": [text]}],
        },
    ]
    peer.send(reply(second, SAMPLED))
    assert text_of(peer.recv()["result"]) == "Paris endTurn"


# -- answers that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "answer", "raised"),
    [
        (
            "form",
            {"result": {"action": "perhaps"}},
            (InvalidResponse, "elicitation/create: result 'action': Invalid enum value"),
        ),
        (
            "form",
            {"result": {}},
            (InvalidResponse, "elicitation/create: missing required field 'action'"),
        ),
        (
            "form",
            {"result": {"action": "accept", "content": {"row": "x"}}},
            (InvalidResponse, "field 'row': Expected `int`, got `str`"),
        ),
        (
            "form",
            {"result": {"action": "accept"}},
            (InvalidResponse, "missing required field 'row'"),
        ),
        (
            "sample",
            {"error": {"code": -1, "message": "User rejected", "data": [1]}},
            (RemoteError, "User rejected (code -1)"),
        ),
        ("roots", {"result": 5}, (InvalidResponse, "")),
        ("roots", {"result": {}, "error": {}}, (InvalidResponse, "")),
        ("roots", {"error": 7}, (InvalidResponse, "")),
    ],
)
def test_what_is_not_an_answer_is_raised_in_the_handler(
    tool: str, answer: Any, raised: tuple[type, str], peer: Any, server: Server
) -> None:
    caught: list[Any] = []

    async def ask(ctx: Context) -> str:
        try:
            if tool == "form":
                return (await ctx.elicit("?", Seat)).action
            if tool == "sample":
                return (await ctx.sample("?", max_tokens=1)).text
            return str(await ctx.roots())
        except Exception as exc:
            caught.append(exc)
            raise

    server.add_tool(ask, name=tool)
    question = peer.ask(call(1, tool))
    peer.send({"jsonrpc": "2.0", "id": question["id"], **answer})
    result = peer.recv()["result"]
    assert result["isError"] is True
    assert raised[1] in text_of(result)
    assert isinstance(caught[0], raised[0])
    if tool == "sample":
        assert (caught[0].code, caught[0].data) == (-1, [1])


# -- ends -----------------------------------------------------------------------------------------


def test_a_question_that_nobody_answers_times_out_and_is_cancelled(
    peer: Any, server: Server
) -> None:
    @server.tool
    async def roots(ctx: Context) -> str:
        try:
            return str(await ctx.roots(timeout=0.01))
        except CallTimeout:
            return "too late"

    question, cancelled, answer = (peer.ask(call(1, "roots")), peer.recv(), peer.recv())
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == question["id"]
    assert text_of(answer["result"]) == "too late"
    peer.send(reply(question, ROOTS))  # late: ignored
    assert peer.fence() == []


def test_cancelling_the_call_cancels_its_question(peer: Any, asking: Server) -> None:
    question = peer.ask(call(1, "form"))
    peer.send(cancel(1))
    cancelled = peer.recv()
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == question["id"]
    peer.send(reply(question, ACCEPT))
    assert peer.fence() == []
    assert not peer.connection.running


def test_the_tools_own_timeout_cancels_its_question(peer: Any, server: Server) -> None:
    @server.tool(timeout=0.01)
    async def form(ctx: Context) -> str:
        return (await ctx.elicit("?", Seat)).action

    question = peer.ask(call(1, "form"))
    got = peer.until(1)
    assert [m["params"]["requestId"] for m in got if "method" in m] == [question["id"]]
    assert "timed out" in text_of(got[-1]["result"])


def test_a_client_that_goes_ends_the_handler(peer: Any, server: Server) -> None:
    ended: list[BaseException] = []

    @server.tool
    async def form(ctx: Context) -> str:
        try:
            return (await ctx.elicit("?", Seat)).action
        except BaseException as exc:
            ended.append(exc)
            raise

    peer.ask(call(1, "form"))
    peer.connection.abort()
    peer.wait_for(lambda: ended and not peer.connection.running)
    assert isinstance(ended[0], asyncio.CancelledError)


def test_the_client_may_go_on_asking_while_it_is_asked(peer: Any, asking: Server) -> None:
    question = peer.ask(call(1, "form"))
    assert peer.result(request(2, "tools/list"))["tools"]
    other = peer.ask(call(3, "roots"))
    assert other["id"] != question["id"]
    peer.send(reply(other, ROOTS), reply(question, ACCEPT))
    answers = peer.answers(1, 3)
    for id, tool in ((1, "form"), (3, "roots")):
        assert text_of(answers[id]["result"]) == QUESTIONS[tool][3]


# -- links that are done --------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
def test_the_end_of_a_link_is_told_where_the_revision_has_that(
    version: str, connect: Any, server: Server
) -> None:
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        if version == NEWEST:
            await ctx.elicit_url("Go", "https://a.example", elicitation_id="e-1")
        return "kept"

    peer = enter(connect, version)
    peer.send(call(1, "keep"))
    if version == NEWEST:
        question = peer.recv()
        assert question["params"]["elicitationId"] == "e-1"
        peer.send(reply(question, {"action": "accept"}))
    peer.recv()

    async def later() -> None:
        await kept[0].elicitation_complete("e-1")

    peer.run(later())
    got = peer.fence()
    if version == NEWEST:
        (message,) = got
        assert message["method"] == "notifications/elicitation/complete"
        assert message["params"] == {"elicitationId": "e-1"}
    else:
        assert got == []


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
def test_a_request_may_be_refused_until_a_link_was_opened(
    version: str, connect: Any, server: Server
) -> None:
    @server.tool
    async def sign_in(ctx: Context) -> str:
        links = [
            ElicitRequest("Sign in", url="https://a.example/1", elicitation_id="e-1"),
            ElicitRequest("And there", url="https://a.example/2"),
        ]
        raise ctx.links_required(*links)

    if version == MODERN:
        # must not be sent there (basic, "Error Codes")
        error = connect().ask(tool_request(1, "sign_in"))["error"]
        assert error["code"] == -32021
        assert "use elicit_url" in error["message"]
        return
    peer = enter(connect, version)
    answer = peer.ask(call(1, "sign_in"))
    if version != NEWEST:
        assert answer["result"]["isError"] is True
        return
    assert answer["error"]["code"] == -32042
    first, second = answer["error"]["data"]["elicitations"]
    assert first == {
        "mode": "url",
        "message": "Sign in",
        "url": "https://a.example/1",
        "elicitationId": "e-1",
    }
    assert second["elicitationId"]
    less = enter(connect, version, {"elicitation": {}})
    result = less.result(call(1, "sign_in"))
    assert text_of(result) == "The client does not declare the capability elicitation.url"


def test_the_end_of_input_ends_what_waits_for_an_answer(connect: Any) -> None:
    """Nobody can answer any more, so the server does not wait for its grace time."""
    server, ended = Server("s", shutdown_grace=FOREVER), []

    @server.tool
    async def roots(ctx: Context) -> str:
        try:
            await ctx.roots()
        except BaseException as exc:
            ended.append(type(exc).__name__)
            raise
        return ""

    peer = enter(lambda: connect(to=server), NEWEST)
    assert peer.ask(call(1, "roots"))["method"] == "roots/list"
    peer.end_input()
    assert peer.recv()["result"]["isError"] is True
    assert ended == ["ConnectionClosed"]
