"""Multi round-trip requests of 2026-07-28 (basic/patterns/mrtr), driven by the client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lab.asking import (
    DONE,
    ELICIT,
    SAMPLE,
    URL,
    Gate,
    elicit,
    legacy,
    modern,
    params_of,
    required,
)
from lab.client import META, Run, fill, text_result, turns, until
from lab.peer import Talk, with_client
from lab.rounds import call, fail, name
from lab.wording import raises

from wirespeed.client.requests import rounds
from wirespeed.client.timeouts import DELAYS
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    Declined,
    HandlerFailed,
    InputNeeded,
    InvalidResponse,
    LimitExceeded,
    RemoteError,
)
from wirespeed.types import ElicitParams, SampleParams, SampleResult

ROOTS = {"method": "roots/list"}


async def four(request: SampleParams) -> Any:
    return SampleResult(content="4", model="abacus")


NAMED = {"action": "accept", "content": {"name": "octocat"}}


FIRST = {"name": "book", "arguments": {"seats": 2}}


# -- a round ---------------------------------------------------------------------------------------


async def test_a_call_is_sent_again_with_the_answers(tmp_path: Path) -> None:
    results = [required({"login": elicit()}, "s1"), DONE]
    async with with_client(tmp_path, modern(results), on_elicit=name) as (client, peer):
        sent = await call(client, peer)
        assert sent == [
            FIRST,
            FIRST | {"inputResponses": {"login": NAMED}, "requestState": "s1"},
        ]
        one, two = peer.sent("tools/call")
        assert one["id"] != two["id"]
        assert one["params"]["_meta"] == two["params"]["_meta"]


async def test_all_kinds_at_once(tmp_path: Path) -> None:
    requests = {
        "": elicit(),
        "go": {"method": "elicitation/create", "params": URL},
        "think é": {"method": "sampling/createMessage", "params": SAMPLE},
        "where": ROOTS,
        "where too": ROOTS | {"params": {}},
    }
    async with with_client(
        tmp_path,
        modern([required(requests), DONE]),
        on_elicit=name,
        on_elicit_url=lambda request: "accept",
        on_sample=four,
        roots=["file:///a"],
    ) as (client, peer):
        [_, second] = await call(client, peer)
        assert second["inputResponses"] == {
            "": NAMED,
            "go": {"action": "accept"},
            "think é": {
                "role": "assistant",
                "content": {"type": "text", "text": "4"},
                "model": "abacus",
                "stopReason": "endTurn",
            },
            "where": {"roots": [{"uri": "file:///a"}]},
            "where too": {"roots": [{"uri": "file:///a"}]},
        }
        assert list(second["inputResponses"]) == list(requests)


async def test_questions_and_answers_have_no_members_of_messages(once: Run, tmp_path: Path) -> None:
    # a server that sends an envelope is understood all the same
    request = elicit() | {"jsonrpc": "2.0", "id": 7}
    rules = modern([required({"a": request, "b": ROOTS}), DONE])
    async with with_client(tmp_path, rules, on_elicit=name, roots=[]) as (client, peer):
        [_, second] = await call(client, peer)
        for response in second["inputResponses"].values():
            assert not {"resultType", "jsonrpc", "id", "result"} & set(response)


async def test_only_the_latest_answers_are_sent(once: Run, tmp_path: Path) -> None:
    results = [
        required({"a": elicit()}, "one"),
        required({"b": elicit()}),
        required(state="three"),
        required({"c": elicit()}, "four"),
        DONE,
    ]
    async with with_client(tmp_path, modern(results), on_elicit=name) as (client, peer):
        assert await call(client, peer) == [
            FIRST,
            FIRST | {"inputResponses": {"a": NAMED}, "requestState": "one"},
            FIRST | {"inputResponses": {"b": NAMED}},
            FIRST | {"requestState": "three"},
            FIRST | {"inputResponses": {"c": NAMED}, "requestState": "four"},
        ]


STATES = [
    '""',
    r'"a\/b\u00e9\n\"\\"',
    '"' + "x" * 10_000 + '"',
    r'"\ud834\udd1e \u2028 é 🎶"',
    '"{\\"not\\": \\"parsed\\"}"',
]


@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
async def test_the_request_state_goes_back_byte_for_byte(
    once: Run, tmp_path: Path, state: str
) -> None:
    lines: list[str] = []

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        if len(lines) == 1:
            result = '{"resultType":"input_required", "requestState" : ' + state + " }"
            await talk.write(
                fill('{"jsonrpc":"2.0","id":%s,"result":%s}', str(message["id"]), result)
            )
        else:
            await talk.result(message, DONE)

    async with with_client(tmp_path, modern([]) | {"tools/call": give}) as (client, peer):
        talk = await peer.talk(0)
        heard = talk.heard

        async def noting(line: str | bytes) -> None:
            if b"tools/call" in bytes(line if isinstance(line, bytes) else line.encode()):
                lines.append(line.decode() if isinstance(line, bytes) else line)
            await heard(line)

        talk.heard = noting  # type: ignore[method-assign]
        await call(client, peer)
    assert f'"requestState":{state}' in lines[1]
    assert "requestState" not in lines[0]


async def test_without_a_state_none_is_sent(once: Run, tmp_path: Path) -> None:
    async with with_client(tmp_path, modern([required({"a": elicit()}), DONE]), on_elicit=name) as (
        client,
        peer,
    ):
        first, second = await call(client, peer)
        assert "requestState" not in first
        assert "requestState" not in second


async def test_the_first_arguments_are_sent_again_even_if_they_changed(
    once: Run, tmp_path: Path
) -> None:
    gate = Gate({"name": "x"})
    results = [required({"a": elicit()}), DONE] * 2
    async with with_client(tmp_path, modern(results), on_elicit=gate) as (client, peer):
        for arguments in ({"seats": [2]}, bytearray(b'{"seats":[2]}')):
            task = asyncio.create_task(client.call_tool("book", arguments))
            await peer.got("tools/call")
            await gate.wait()
            if isinstance(arguments, dict):
                arguments["seats"].append(3)
            else:
                arguments[:] = b"{}"
            gate.open.set()
            await task
            one, two = params_of(peer)[-2:]
            assert one["arguments"] == two["arguments"] == {"seats": [2]}
            gate.open.clear()
            gate.begun = 0


async def test_arguments_may_be_absent(once: Run, tmp_path: Path) -> None:
    async with with_client(tmp_path, modern([required(state="s"), DONE])) as (client, peer):
        await client.call_tool("book")
        assert params_of(peer) == [{"name": "book"}, {"name": "book", "requestState": "s"}]


async def test_prompts_and_resources_take_rounds_too(once: Run, tmp_path: Path) -> None:
    prompt = {"messages": [], "resultType": "complete"}
    contents = {
        "contents": [{"uri": "file:///a", "text": "x"}],
        "resultType": "complete",
        "ttlMs": 60_000,
        "cacheScope": "private",
    }
    rules = modern([required({"a": elicit()}, "p"), prompt], "prompts/get")
    rules |= modern([required({"a": elicit()}, "r"), contents, contents], "resources/read")
    async with with_client(tmp_path, rules, on_elicit=name) as (client, peer):
        await client.get_prompt("greet", {"a": "b"})
        base: dict[str, Any] = {"name": "greet", "arguments": {"a": "b"}}
        more = {"inputResponses": {"a": NAMED}}
        assert params_of(peer, "prompts/get") == [base, base | more | {"requestState": "p"}]
        assert (await client.read_resource("file:///a")).text == "x"
        base = {"uri": "file:///a"}
        assert params_of(peer, "resources/read") == [base, base | more | {"requestState": "r"}]


async def test_results_of_retries_are_not_cached(once: Run, tmp_path: Path) -> None:
    contents = {
        "contents": [{"uri": "file:///a", "text": "x"}],
        "resultType": "complete",
        "ttlMs": 60_000,
        "cacheScope": "private",
    }
    rules = modern([required({"a": elicit()}), contents, contents], "resources/read")
    async with with_client(tmp_path, rules, on_elicit=name) as (client, peer):
        await client.read_resource("file:///a")
        await client.read_resource("file:///a")
        assert len(peer.sent("resources/read")) == 3  # asked for again: it was not kept
        await client.read_resource("file:///a")
        assert len(peer.sent("resources/read")) == 3  # the plain one was


async def test_progress_and_meta_are_those_of_the_call(once: Run, tmp_path: Path) -> None:
    async def give(talk: Talk, message: dict[str, Any]) -> None:
        params = message["params"]
        retry = "requestState" in params
        token = params["_meta"]["progressToken"]
        # each round is a request, whose progress begins anew, and rises (basic/…/progress)
        for reached in (1, 3, 2) if retry else (2, 4):
            progress = {"progressToken": token, "progress": reached}
            await talk.send(method="notifications/progress", params=progress)
        await talk.result(message, DONE if retry else required(state="s"))

    async with with_client(tmp_path, modern([]) | {"tools/call": give}) as (client, peer):
        got: list[float] = []
        await client.call_tool(
            "book", on_progress=lambda p, t, m: got.append(p), meta={"traceparent": "00-1-2-00"}
        )
        assert got == [2, 4, 1, 3]
        one, two = (message["params"]["_meta"] for message in peer.sent("tools/call"))
        assert one["traceparent"] == two["traceparent"] == "00-1-2-00"
        assert one["progressToken"] != two["progressToken"]


async def test_the_next_round_may_go_over_another_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate({"name": "x"})
    results = [required({"a": elicit()}, "s"), DONE]
    async with with_client(tmp_path, modern(results), on_elicit=gate) as (client, peer):
        task = asyncio.create_task(client.call_tool("book"))
        await gate.wait()
        (await peer.talk(0)).vanish()
        await until(lambda: caplog.records)
        gate.open.set()
        assert (await task).text == "done"
        assert [len(talk.sent("tools/call")) for talk in peer.talks] == [1, 1]


# -- what servers must not do ----------------------------------------------------------------------


BROKEN: list[tuple[dict[str, Any], str]] = [
    (required(), "neither inputRequests nor requestState"),
    (required(inputRequests=None), "neither inputRequests nor requestState"),
    (required(inputRequests=[]), "not valid"),
    (required({"a": 1}), "not valid"),
    (required({"a": {"params": {}}}), "not valid"),
    (required(state=7), "requestState is not a string"),
    (required(state={"a": 1}), "requestState is not a string"),
    (required({"a": {"method": "ping"}}), "Method not found"),
    (required({"a": {"method": "tasks/get", "params": {}}}), "Method not found"),
    (required({"a": {"method": "elicitation/create"}}), "needs params"),
    (required({"a": {"method": "elicitation/create", "params": {}}}), "Invalid params"),
    (required({"a": elicit(requestedSchema={})}), "requestedSchema must be"),
    (required({"ok": elicit(), "a": elicit(mode="x")}), r"not allowed \(a\)"),
]


@pytest.mark.parametrize(("result", "text"), BROKEN, ids=range(len(BROKEN)))
async def test_broken_results_are_invalid(
    once: Run, tmp_path: Path, result: dict[str, Any], text: str
) -> None:
    ran: list[Any] = []
    async with with_client(tmp_path, modern([result]), on_elicit=ran.append) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, InvalidResponse)
    with pytest.raises(InvalidResponse, match=text):
        raise exc
    assert not ran  # nothing of it is shown to the user


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (elicit(), {}),
        (elicit(), {"on_sample": four}),
        (elicit(), {"on_elicit_url": name}),
        ({"method": "elicitation/create", "params": URL}, {"on_elicit": name}),
        ({"method": "sampling/createMessage", "params": SAMPLE}, {"on_elicit": name}),
        (
            {"method": "sampling/createMessage", "params": SAMPLE | {"tools": []}},
            {"on_sample": four},
        ),
        (ROOTS, {"on_elicit": name}),
    ],
)
async def test_questions_that_were_not_declared_are_invalid(
    once: Run, tmp_path: Path, request_: dict[str, Any], options: dict[str, Any]
) -> None:
    rules = modern([required({"a": request_}, "s"), DONE])
    async with with_client(tmp_path, rules, **options) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, InvalidResponse)
    assert "asks a question that is not allowed (a)" in str(exc)


async def test_other_methods_cannot_ask(once: Run, tmp_path: Path) -> None:
    result = required({"a": elicit()}, "s")
    lists = ("tools/list", "prompts/list", "resources/list")
    items = {"tools": [], "prompts": [], "resources": []}
    rules = modern([]) | dict.fromkeys(lists, result | items)
    async with with_client(tmp_path, rules, on_elicit=name) as (client, _):
        for request in (client.list_tools, client.list_prompts, client.list_resources):
            with raises(InvalidResponse):
                await request()


async def test_a_legacy_server_cannot_ask_so(once: Run, tmp_path: Path) -> None:
    """Members of these names mean nothing there."""
    rules = legacy() | {"tools/call": required({"a": elicit()}, "s") | text_result()}
    async with with_client(tmp_path, rules, on_elicit=name) as (client, peer):
        assert (await client.call_tool("book")).text == "ok"
        assert len(peer.sent("tools/call")) == 1


async def test_an_unknown_result_type_after_a_round_is_an_error(once: Run, tmp_path: Path) -> None:
    rules = modern([required(state="s"), {"resultType": "magic"}])
    async with with_client(tmp_path, rules) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, InvalidResponse)
    assert "'magic', which was not negotiated" in str(exc)


async def test_too_many_requests_at_once(
    once: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_INPUT_REQUESTS", 3)
    requests = {str(n): ROOTS for n in range(4)}
    async with with_client(tmp_path, modern([required(requests)]), roots=[]) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, LimitExceeded)


async def test_an_error_of_a_later_round_is_the_calls(once: Run, tmp_path: Path) -> None:
    async def give(talk: Talk, message: dict[str, Any]) -> None:
        if "requestState" in message["params"]:
            error = {"code": -32602, "message": "the state has expired"}
            await talk.send(id=message["id"], error=error)
        else:
            await talk.result(message, required(state="s"))

    async with with_client(tmp_path, modern([]) | {"tools/call": give}) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, RemoteError)
    assert exc.message == "the state has expired"


# -- rounds without end ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 10])
@pytest.mark.parametrize("requests", [{"a": elicit()}, None])
async def test_the_number_of_rounds_is_limited(
    once: Run, tmp_path: Path, limit: int, requests: Any
) -> None:
    rules = modern([]) | {"tools/call": required(requests, "s")}
    async with with_client(tmp_path, rules, on_elicit=name, max_rounds=limit) as (client, peer):
        exc = await fail(client, peer)
        assert isinstance(exc, InputNeeded)
        assert f"max_rounds of {limit} are used up" in str(exc)
        assert len(peer.sent("tools/call")) == limit + 1


def test_the_pauses_grow_and_are_bounded() -> None:
    for idle, longest in ((0, 0.05), (1, 0.1), (4, 0.8), (9, 2.0), (10_000, 2.0)):
        pauses = [DELAYS.rounds.pause(idle) for _ in range(100)]
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest


# -- handlers --------------------------------------------------------------------------------------


async def test_handlers_of_one_round_run_at_once(tmp_path: Path) -> None:
    gate = Gate({"name": "x"})
    results = [required({"a": elicit(), "b": elicit(), "c": elicit()}), DONE]
    async with with_client(tmp_path, modern(results), on_elicit=gate) as (client, _):
        task = asyncio.create_task(client.call_tool("book"))
        await gate.wait(3)
        gate.open.set()
        await task


async def test_a_handler_that_fails_ends_the_others_and_the_call(tmp_path: Path) -> None:
    gate = Gate({"name": "x"})

    async def on_sample(request: SampleParams) -> Any:
        await gate.wait()
        raise ZeroDivisionError("mine")

    requests = {"a": elicit(), "b": {"method": "sampling/createMessage", "params": SAMPLE}}
    rules = modern([required(requests)])
    async with with_client(tmp_path, rules, on_elicit=gate, on_sample=on_sample) as (client, peer):
        exc = await fail(client, peer)
        assert isinstance(exc, HandlerFailed)
        assert isinstance(exc.__cause__, ZeroDivisionError)
        assert str(exc) == "on_sample failed: ZeroDivisionError: mine"
        assert gate.cancelled == 1
        assert len(peer.sent("tools/call")) == 1


@pytest.mark.parametrize("given", [None, {"name": 1}, {"nom": "x"}, "perhaps"])
async def test_an_answer_that_does_not_fit_ends_the_call(
    once: Run, tmp_path: Path, given: Any
) -> None:
    rules = modern([required({"a": elicit()}), DONE])
    async with with_client(tmp_path, rules, on_elicit=lambda request: given) as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, HandlerFailed)
    assert isinstance(exc.__cause__, (TypeError, ValueError))


async def test_a_user_who_rejects_sampling_ends_the_call(once: Run, tmp_path: Path) -> None:
    requests = {"b": {"method": "sampling/createMessage", "params": SAMPLE}}
    rules = modern([required(requests), DONE])
    async with with_client(tmp_path, rules, on_sample=lambda request: "decline") as (client, peer):
        exc = await fail(client, peer)
    assert isinstance(exc, Declined)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_form_is_an_answer(once: Run, tmp_path: Path, action: str) -> None:
    rules = modern([required({"a": elicit()}), DONE])
    async with with_client(tmp_path, rules, on_elicit=lambda request: action) as (client, peer):
        [_, second] = await call(client, peer)
        assert second["inputResponses"] == {"a": {"action": action}}


async def test_a_handler_that_was_cancelled_by_itself_fails(tmp_path: Path) -> None:
    """Nobody cancelled the call."""

    async def gives_up(request: ElicitParams) -> Any:
        raise asyncio.CancelledError

    results = [required({"a": elicit()}, "s")]
    async with with_client(tmp_path, modern(results), on_elicit=gives_up) as (client, peer):
        exc = await fail(client, peer)
        assert isinstance(exc, HandlerFailed) and "on_elicit was cancelled" in str(exc)


# -- ending early ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["handler", "answer"])
async def test_a_call_can_be_cancelled_in_any_round(tmp_path: Path, stage: str) -> None:
    gate = Gate({"name": "x"})
    async with with_client(tmp_path, modern([required({"a": elicit()})]), on_elicit=gate) as (
        client,
        peer,
    ):
        task = asyncio.create_task(client.call_tool("book"))
        await gate.wait()
        if stage == "answer":
            gate.open.set()
            await peer.got("tools/call", 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if stage == "answer":
            [cancelled] = await peer.got("notifications/cancelled")
            assert cancelled["params"]["requestId"] == peer.sent("tools/call")[1]["id"]
        else:
            assert gate.cancelled == 1
            await turns()
            assert len(peer.sent("tools/call")) == 1


async def test_the_time_limit_covers_all_rounds(tmp_path: Path) -> None:
    """It stands still while the handler works."""
    gate = Gate({"name": "x"})
    async with with_client(tmp_path, modern([required({"a": elicit()})]), on_elicit=gate) as (
        client,
        peer,
    ):
        calling = asyncio.ensure_future(client.call_tool("book", timeout=0.15))
        await gate.wait()
        await asyncio.sleep(0.3)
        assert not calling.done()
        gate.open.set()
        with raises(CallTimeout):
            await calling
        assert gate.cancelled == 0
        await peer.got("notifications/cancelled")


async def test_closing_the_client_ends_its_rounds(tmp_path: Path) -> None:
    gate = Gate({"name": "x"})
    async with with_client(tmp_path, modern([required({"a": elicit()})]), on_elicit=gate) as (
        client,
        _peer,
    ):
        task = asyncio.create_task(client.call_tool("book", timeout=None))
        await gate.wait()
        await client.close()
        with pytest.raises(ConnectionClosed):
            await task
        assert gate.cancelled == 1


async def test_a_server_that_becomes_a_legacy_one_between_two_rounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate({"name": "x"})
    rules = modern([required({"a": elicit()}, "s")])
    async with with_client(tmp_path, rules, on_elicit=gate) as (client, peer):
        task = asyncio.create_task(client.call_tool("book"))
        await gate.wait()
        peer.rules = legacy()
        (await peer.talk(0)).vanish()
        await until(lambda: caplog.records)
        gate.open.set()
        with raises(InvalidResponse):
            await task


# -- by hand ---------------------------------------------------------------------------------------


async def test_rounds_by_hand(once: Run, tmp_path: Path) -> None:
    results = [
        required({"a": elicit(), "r": ROOTS}, "one é"),
        required({"b": {"method": "sampling/createMessage", "params": SAMPLE}}, "two"),
        DONE,
    ]
    capabilities = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    async with with_client(tmp_path, modern(results), capabilities=capabilities) as (client, peer):
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("book", {"seats": 2})
        needed = caught.value
        assert needed.state == "one é"
        assert needed.requests["a"] == ElicitParams(
            message=ELICIT["message"],  # type: ignore[arg-type]
            schema=ELICIT["requestedSchema"],  # type: ignore[arg-type]
        )
        for answers, error in (
            ({"a": {"name": 1}}, ValueError),
            ({"x": 1}, ValueError),
            ({"a": None}, TypeError),
            ({"r": ["https://x/"]}, ValueError),
        ):
            with pytest.raises(error):
                await client.resume(needed, answers)
        assert len(peer.sent("tools/call")) == 1
        with pytest.raises(InputNeeded) as caught:
            await client.resume(needed, {"a": {"name": "octocat"}})
        needed = caught.value
        assert needed.requests["b"].max_tokens == 10
        answer = SampleResult(content="4", model="m", stop_reason=None)
        assert (await client.resume(needed, {"b": answer})).text == "done"
        said = {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}
        assert params_of(peer) == [
            FIRST,
            FIRST | {"inputResponses": {"a": NAMED}, "requestState": "one é"},
            FIRST | {"inputResponses": {"b": said}, "requestState": "two"},
        ]


async def test_no_rounds_by_itself_although_there_are_handlers(once: Run, tmp_path: Path) -> None:
    rules = modern([required(state="s"), DONE])
    async with with_client(tmp_path, rules, on_elicit=name, max_rounds=0) as (client, peer):
        exc = await fail(client, peer)
        assert isinstance(exc, InputNeeded)
        assert (exc.requests, exc.state) == ({}, "s")
        assert (await client.resume(exc)).text == "done"
        assert params_of(peer) == [FIRST, FIRST | {"requestState": "s"}]


async def test_an_answer_that_was_left_out_is_asked_for_again(once: Run, tmp_path: Path) -> None:
    results = [required({"a": elicit(), "b": elicit()}), required({"b": elicit()}), DONE]
    async with with_client(tmp_path, modern(results), capabilities={"elicitation": {}}) as (
        client,
        peer,
    ):
        exc = await fail(client, peer)
        assert isinstance(exc, InputNeeded)
        with pytest.raises(InputNeeded) as caught:
            await client.resume(exc, {"a": "decline"})
        await client.resume(caught.value, {"b": "cancel"})
        assert [each.get("inputResponses") for each in params_of(peer)] == [
            None,
            {"a": {"action": "decline"}},
            {"b": {"action": "cancel"}},
        ]


async def test_resuming_has_a_time_limit_of_its_own(once: Run, tmp_path: Path) -> None:
    async with with_client(tmp_path, modern([required(state="s")]), max_rounds=0) as (client, peer):
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("book", timeout=None)
        with pytest.raises(CallTimeout):
            await client.resume(caught.value, timeout=0.05)
        await peer.got("notifications/cancelled")


async def test_what_was_used_up_can_be_gone_on_with(once: Run, tmp_path: Path) -> None:
    results = [required({"a": elicit()}, str(n)) for n in range(5)]
    rules = modern([*results, DONE])
    async with with_client(tmp_path, rules, on_elicit=name, max_rounds=2) as (client, peer):
        exc = await fail(client, peer)
        assert isinstance(exc, InputNeeded)
        # by hand once, then the client goes on by itself
        assert (await client.resume(exc, {"a": "decline"})).text == "done"
        actions = [p["inputResponses"]["a"]["action"] for p in params_of(peer)[1:]]
        assert actions == ["accept", "accept", "decline", "accept", "accept"]


async def test_meta_keys_are_declared_for_every_round(once: Run, tmp_path: Path) -> None:
    rules = modern([required({"a": elicit()}), DONE])
    async with with_client(tmp_path, rules, on_elicit=name) as (client, peer):
        await call(client, peer)
        for message in peer.sent("tools/call"):
            meta = message["params"]["_meta"]
            assert meta[META + "clientCapabilities"] == {"elicitation": {"form": {}}}
            assert json.dumps(meta)
