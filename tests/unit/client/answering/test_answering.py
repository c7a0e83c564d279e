"""Requests of legacy servers, answered by the client's handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import UserDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from lab.asking import (
    ELICIT,
    FORM,
    LEGACY_VERSIONS,
    SAMPLE,
    URL,
    Gate,
    answer,
    ask,
    asked,
    declared,
    legacy,
)
from lab.client import META, Run, text_result, turns, until
from lab.peer import MODERN_PEER, LinePeer, nothing
from lab.rows import every

from wirespeed import Client, Limits
from wirespeed.client.answering import server_requests as inbox
from wirespeed.errors import ConnectionClosed, Declined, RemoteError
from wirespeed.protocol.asking import ElicitResult, ToolUseContent
from wirespeed.protocol.blocks import Audio, Image, Text
from wirespeed.types import Accept, ElicitParams, SampleParams, SampleResult

INTERNAL = {"code": -32603, "message": "Internal error"}


async def name(request: ElicitParams) -> Any:
    return {"name": "octocat"}


async def four(request: SampleParams) -> Any:
    return SampleResult(content="4", model="abacus")


# -- what is declared ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"on_elicit": name}, {"elicitation": {"form": {}}}),
        ({"on_elicit_url": name}, {"elicitation": {"url": {}}}),
        (
            {"on_elicit": name, "on_elicit_url": name},
            {"elicitation": {"form": {}, "url": {}}},
        ),
        ({"on_sample": four}, {"sampling": {}}),
        ({"on_sample": four, "sampling_tools": True}, {"sampling": {"tools": {}}}),
        ({"roots": []}, {"roots": {"listChanged": True}}),
        ({"roots": list}, {"roots": {"listChanged": True}}),
        ({"capabilities": {"experimental": {"x": {}}}}, {"experimental": {"x": {}}}),
        # without a handler nobody could answer a request of the server's own
        ({"capabilities": {"elicitation": {"form": {}}}}, {}),
        (
            {"on_sample": four, "capabilities": {"sampling": {"context": {}}}},
            {"sampling": {"context": {}}},
        ),
        ({"capabilities": {"extensions": {"a.b/c": {}}}}, {}),
    ],
)
def test_capabilities_follow_from_the_handlers(
    once: Run, tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    async def main() -> dict[str, Any]:
        async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, **options):
            return declared(peer)

    assert once(main()) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        (
            {"on_elicit": name, "on_sample": four, "sampling_tools": True, "roots": []},
            {"elicitation": {"form": {}}, "sampling": {"tools": {}}, "roots": {}},
        ),
        ({"capabilities": {"elicitation": {"form": {}}}}, {"elicitation": {"form": {}}}),
        ({"capabilities": {"extensions": {"a.b/c": {}}}}, {"extensions": {"a.b/c": {}}}),
        ({"capabilities": {"tasks": {}}}, {}),
    ],
)
async def test_capabilities_of_a_modern_client_are_in_each_request(
    once: Run, tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with LinePeer(MODERN_PEER, tmp_path) as peer:
        async with Client(peer.url, **options) as client:
            await client.call_tool("echo")
        for method in ("server/discover", "tools/call"):
            [message] = peer.sent(method)
            meta = message["params"]["_meta"]
            assert meta[META + "clientCapabilities"] == expected


@every(
    ("options", "error", "text"),
    [
        ({"on_elicit": 1}, TypeError, "on_elicit must be a function"),
        ({"sampling_tools": True}, ValueError, "needs on_sample"),
        ({"roots": "/tmp"}, TypeError, "list of roots"),
        ({"roots": [1]}, TypeError, "a root is a path"),
        ({"max_rounds": -1}, ValueError, "max_rounds must be a count"),
        ({"capabilities": {"roots": 1}}, TypeError, "must be a mapping"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Client("tcp://127.0.0.1:1", **options)


# -- elicitation -----------------------------------------------------------------------------------


def test_a_form_is_shown_and_answered(run: Run, tmp_path: Path) -> None:
    seen: list[ElicitParams] = []

    async def on_elicit(request: ElicitParams) -> Any:
        seen.append(request)
        return Accept({"name": "octocat"})

    params = ELICIT | {"_meta": {"a": 1}}
    [got] = run(asked(tmp_path, ("elicitation/create", params), on_elicit=on_elicit))
    assert got["result"] == {"action": "accept", "content": {"name": "octocat"}}
    assert seen == [ElicitParams(message="Your name?", schema=FORM, meta={"a": 1})]
    assert seen[0].mode == "form"
    assert seen[0].url == ""


class Person(msgspec.Struct):
    name: str
    age: int | None = None


@dataclass
class Row:
    name: str


class Model(pydantic.BaseModel):
    name: str
    age: int | None = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("decline", {"action": "decline"}),
        ("cancel", {"action": "cancel"}),
        (Declined("no"), {"action": "decline"}),
        ({"name": "x"}, {"action": "accept", "content": {"name": "x"}}),
        (Person("x"), {"action": "accept", "content": {"name": "x"}}),
        (Accept(Person("x")), {"action": "accept", "content": {"name": "x"}}),
        (Row("x"), {"action": "accept", "content": {"name": "x"}}),
        (Model(name="x"), {"action": "accept", "content": {"name": "x"}}),
        (UserDict(name="x"), {"action": "accept", "content": {"name": "x"}}),
        (ElicitResult("accept", {"name": "x"}), {"action": "accept", "content": {"name": "x"}}),
        (ElicitResult("cancel"), {"action": "cancel"}),
    ],
)
def test_what_a_handler_may_answer(
    once: Run, tmp_path: Path, given: Any, expected: dict[str, Any]
) -> None:
    async def on_elicit(request: ElicitParams) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    [got] = once(asked(tmp_path, ("elicitation/create", ELICIT), on_elicit=on_elicit))
    assert got["result"] == expected


@pytest.mark.parametrize(
    "given",
    [
        None,
        "yes",
        7,
        {},
        {"name": 1},
        {"name": "x", "more": 1},
        ["name"],
        Accept(object()),
        ValueError("my password is hunter2"),
        StopIteration(),
    ],
)
def test_a_handler_that_fails_or_errs_tells_the_server_nothing(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, given: Any
) -> None:
    def on_elicit(request: ElicitParams) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    [got] = once(asked(tmp_path, ("elicitation/create", ELICIT), on_elicit=on_elicit))
    assert got["error"] == INTERNAL
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "elicitation/create: on_elicit failed" in record.getMessage()


def test_defaults_are_filled_in(once: Run, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
            "n": {"type": "integer", "default": 3},
            "yes": {"type": "boolean", "default": False},
            "note": {"type": "string"},
        },
        "required": ["size"],
    }
    seen = []

    async def on_elicit(request: ElicitParams) -> Any:
        seen.append(request.defaults)
        return "accept" if len(seen) == 1 else {"n": 4}

    params = {"message": "?", "requestedSchema": schema}
    one, two = once(
        asked(
            tmp_path,
            ("elicitation/create", params),
            ("elicitation/create", params),
            on_elicit=on_elicit,
        )
    )
    assert seen == [{"size": "m", "n": 3, "yes": False}] * 2
    assert one["result"]["content"] == {"size": "m", "n": 3, "yes": False}
    assert two["result"]["content"] == {"size": "m", "n": 4, "yes": False}


def test_a_url_is_agreed_to_without_content(once: Run, tmp_path: Path) -> None:
    seen: list[ElicitParams] = []

    def on_elicit_url(request: ElicitParams) -> Any:
        seen.append(request)
        return "accept" if len(seen) == 1 else {"name": "x"}

    one, two = once(
        asked(
            tmp_path,
            ("elicitation/create", URL),
            ("elicitation/create", URL),
            on_elicit_url=on_elicit_url,
        )
    )
    assert one["result"] == {"action": "accept"}
    assert two["error"] == INTERNAL
    assert (seen[0].url, seen[0].elicitation_id) == ("https://example.com/x", "e1")


def test_a_client_without_url_mode_refuses_urls_and_takes_forms(once: Run, tmp_path: Path) -> None:
    form, url = once(
        asked(tmp_path, ("elicitation/create", ELICIT), ("elicitation/create", URL), on_elicit=name)
    )
    assert form["result"]["action"] == "accept"
    assert url["error"]["code"] == -32602
    assert "elicitation.url" in url["error"]["message"]


def test_a_client_with_urls_alone_refuses_forms(once: Run, tmp_path: Path) -> None:
    [got] = once(asked(tmp_path, ("elicitation/create", ELICIT), on_elicit_url=name))
    assert got["error"]["code"] == -32602
    assert "elicitation.form" in got["error"]["message"]


def test_a_revision_without_url_mode_refuses_urls(once: Run, tmp_path: Path) -> None:
    [got] = once(
        asked(
            tmp_path,
            ("elicitation/create", URL),
            version="2025-06-18",
            on_elicit=name,
            on_elicit_url=name,
        )
    )
    assert got["error"]["code"] == -32602


# -- sampling --------------------------------------------------------------------------------------


def test_sampling(run: Run, tmp_path: Path) -> None:
    seen: list[SampleParams] = []

    async def on_sample(request: SampleParams) -> Any:
        seen.append(request)
        return SampleResult(content="4", model="abacus", meta={"b": 2})

    [got] = run(asked(tmp_path, ("sampling/createMessage", SAMPLE), on_sample=on_sample))
    assert got["result"] == {
        "role": "assistant",
        "content": {"type": "text", "text": "4"},
        "model": "abacus",
        "stopReason": "endTurn",
        "_meta": {"b": 2},
    }
    assert seen[0].max_tokens == 10
    assert seen[0].messages[0].content == Text(text="2 + 2?")


def test_a_request_for_a_task_is_answered_at_once(once: Run, tmp_path: Path) -> None:
    """Who does not declare tasks answers as if ``task`` were absent (2025-11-25
    basic/utilities/tasks, "Task Support and Handling")."""
    request = ("sampling/createMessage", SAMPLE | {"task": {"ttl": 60000}})
    [got] = once(asked(tmp_path, request, on_sample=four))
    assert got["result"]["content"] == {"type": "text", "text": "4"}


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_single_block_is_no_list_before_2025_11_25(
    once: Run, tmp_path: Path, version: str
) -> None:
    async def on_sample(request: SampleParams) -> Any:
        return SampleResult(content=[Image(data=b"hi", mime_type="image/png")], model="m")

    question = ("sampling/createMessage", SAMPLE)
    [got] = once(asked(tmp_path, question, version=version, on_sample=on_sample))
    block = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert got["result"]["content"] == ([block] if version == "2025-11-25" else block)


@pytest.mark.parametrize(
    ("version", "content"),
    [
        ("2025-06-18", [Text(text="a"), Text(text="b")]),
        ("2024-11-05", Audio(data=b"a", mime_type="audio/wav")),
        ("2025-11-25", ToolUseContent(id="1", name="add", input={})),  # no tools were offered
    ],
)
def test_what_a_revision_has_no_words_for_is_not_sent(
    once: Run, tmp_path: Path, version: str, content: Any
) -> None:
    async def on_sample(request: SampleParams) -> Any:
        return SampleResult(content=content, model="m")

    question = ("sampling/createMessage", SAMPLE)
    [got] = once(asked(tmp_path, question, version=version, on_sample=on_sample))
    assert got["error"] == INTERNAL


@pytest.mark.parametrize("how", ["returned", "raised"])
def test_a_user_who_rejects_sampling(once: Run, tmp_path: Path, how: str) -> None:
    def on_sample(request: SampleParams) -> Any:
        if how == "raised":
            raise Declined("not now")
        return "decline"

    [got] = once(asked(tmp_path, ("sampling/createMessage", SAMPLE), on_sample=on_sample))
    assert got["error"] == {"code": -1, "message": "User rejected sampling request"}


TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "4"}]}


def messages(*contents: Any) -> dict[str, Any]:
    roles = ["user", "assistant", "user", "assistant"]
    each = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return SAMPLE | TOOLS | {"messages": each}


TEXT = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    "contents",
    [
        (TEXT, [USE], [RESULT, TEXT]),
        (TEXT, [USE], [TEXT, RESULT]),
        (TEXT, [USE], TEXT),
        (TEXT, [USE]),
        (TEXT, [USE, USE | {"id": "2"}], [RESULT]),
    ],
)
def test_tool_results_stand_alone_and_match(once: Run, tmp_path: Path, contents: Any) -> None:
    ran = []
    [got] = once(
        asked(
            tmp_path,
            ("sampling/createMessage", messages(*contents)),
            on_sample=ran.append,
            sampling_tools=True,
        )
    )
    assert got["error"]["code"] == -32602
    assert "Tool result" in got["error"]["message"]
    assert not ran


def test_sampling_with_tools(once: Run, tmp_path: Path) -> None:
    async def on_sample(request: SampleParams) -> Any:
        use = ToolUseContent(id="2", name="add", input={"a": 1})
        return SampleResult(content=[use], model="m", stop_reason="toolUse")

    [got] = once(
        asked(
            tmp_path,
            ("sampling/createMessage", messages(TEXT, [USE], [RESULT])),
            on_sample=on_sample,
            sampling_tools=True,
        )
    )
    assert got["result"]["content"] == [USE | {"id": "2", "input": {"a": 1}}]
    assert got["result"]["stopReason"] == "toolUse"


@pytest.mark.parametrize("more", [TOOLS, {"toolChoice": {"mode": "auto"}}])
def test_tools_that_were_not_declared_are_refused(
    once: Run, tmp_path: Path, more: dict[str, Any]
) -> None:
    [got] = once(asked(tmp_path, ("sampling/createMessage", SAMPLE | more), on_sample=four))
    assert got["error"]["code"] == -32602
    assert "sampling.tools" in got["error"]["message"]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["elicitation/create", "sampling/createMessage", "roots/list", "tasks/list", "x"]
)
def test_what_was_not_declared_is_not_found(once: Run, tmp_path: Path, method: str) -> None:
    # with another handler, so that there is somebody to ask
    other = {"on_sample": four} if method != "sampling/createMessage" else {"on_elicit": name}
    for options in ({}, other):
        [got] = once(asked(tmp_path, (method, {}), **options))
        assert got["error"]["code"] == -32601


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_a_method_that_the_revision_has_not_is_not_found(
    once: Run, tmp_path: Path, version: str
) -> None:
    [got] = once(asked(tmp_path, ("elicitation/create", ELICIT), version=version, on_elicit=name))
    assert got["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", None),
        ("elicitation/create", {}),
        ("elicitation/create", {"message": "?"}),
        ("elicitation/create", ELICIT | {"mode": "telepathy"}),
        ("elicitation/create", ELICIT | {"requestedSchema": {"type": "array"}}),
        ("elicitation/create", {"mode": "url", "message": "?"}),
        ("sampling/createMessage", None),
        ("sampling/createMessage", {"messages": []}),
        ("sampling/createMessage", SAMPLE | {"messages": [{"role": "system", "content": TEXT}]}),
        ("sampling/createMessage", SAMPLE | {"messages": [{"role": "user", "content": 1}]}),
    ],
)
def test_malformed_params(once: Run, tmp_path: Path, method: str, params: Any) -> None:
    [got] = once(
        asked(tmp_path, (method, params), on_elicit=name, on_elicit_url=name, on_sample=four)
    )
    assert got["error"]["code"] == -32602


def test_ping_is_answered_beside(once: Run, tmp_path: Path) -> None:
    pong, roots = once(asked(tmp_path, ("ping", None), ("roots/list", None), roots=[]))
    assert (pong["result"], roots["result"]) == ({}, {"roots": []})


async def test_a_modern_server_gets_no_responses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it sends that looks like a request (basic/transports/stdio of 2026-07-28)."""
    async with (
        LinePeer(MODERN_PEER, tmp_path) as peer,
        Client(
            peer.url, on_elicit=name, roots=[], limits=Limits(max_in_flight=2, max_waiting=2)
        ) as client,
    ):
        talk = await peer.talk(0)
        for method in ("ping", "roots/list", "elicitation/create", "x" * 1000):
            for id in ("a", "a", 1, 2, 3):  # also the same id again, and more than there may be
                await talk.send(id=id, method=method, params=ELICIT)
        await talk.send(method="notifications/cancelled", params={"requestId": "a"})
        await talk.send(id=None, method="ping")
        assert (await client.call_tool("echo")).text == "ok"
        assert [m["method"] for m in talk.messages] == ["server/discover", "tools/call"]
    told = [r.getMessage() for r in caplog.records if "does not answer" in r.getMessage()]
    assert told == [
        "the server sends requests ('ping'), which 2026-07-28 does not allow;"
        " the client does not answer them"
    ]


# -- running handlers ------------------------------------------------------------------------------


async def test_several_run_at_once_and_answer_in_any_order(tmp_path: Path) -> None:
    slow = Gate({"name": "slow"})
    async with (
        LinePeer(legacy(), tmp_path) as peer,
        Client(peer.url, on_elicit=slow, on_sample=four) as client,
    ):
        talk = await peer.talk(0)
        await talk.send(id="a", method="elicitation/create", params=ELICIT)
        await slow.wait()
        assert "result" in await ask(talk, "sampling/createMessage", SAMPLE, id="b")
        assert (await client.call_tool("echo")).text == "ok"
        slow.open.set()
        assert (await answer(talk, "a"))["result"]["content"] == {"name": "slow"}


async def test_a_call_goes_on_while_its_server_asks(tmp_path: Path) -> None:
    async def tool(talk: Any, message: dict[str, Any]) -> None:
        asyncio.get_running_loop().create_task(self_asking(talk, message))

    async def self_asking(talk: Any, message: dict[str, Any]) -> None:
        got = await ask(talk, "elicitation/create", ELICIT, id=1)
        await talk.result(message, text_result(got["result"]["content"]["name"]))

    rules = legacy() | {"tools/call": tool}
    async with LinePeer(rules, tmp_path) as peer, Client(peer.url, on_elicit=name) as client:
        assert (await client.call_tool("greet")).text == "octocat"


async def test_plain_handlers_run_in_threads_and_may_block(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()
    threads = []

    def on_elicit(request: ElicitParams) -> Any:
        threads.append(threading.current_thread())
        entered.set()
        assert leave.wait(20)
        return {"name": "x"}

    async with (
        LinePeer(legacy(), tmp_path) as peer,
        Client(peer.url, on_elicit=on_elicit) as client,
    ):
        talk = await peer.talk(0)
        await talk.send(id=1, method="elicitation/create", params=ELICIT)
        await until(entered.is_set)
        assert (await client.call_tool("echo")).text == "ok"
        leave.set()
        assert (await answer(talk, 1))["result"]["action"] == "accept"
    assert threads[0] is not threading.current_thread()


async def test_the_servers_cancellation_ends_the_handler(tmp_path: Path) -> None:
    gate = Gate({"name": "x"})
    async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, on_elicit=gate):
        talk = await peer.talk(0)
        await talk.send(id=1, method="elicitation/create", params=ELICIT)
        await gate.wait()
        await talk.send(method="notifications/cancelled", params={"requestId": 1})
        await until(lambda: gate.cancelled == 1)
        await talk.send(method="notifications/cancelled", params={"requestId": 1})
        # its id may be used again, and nothing was answered
        gate.open.set()
        got = await ask(talk, "elicitation/create", ELICIT, id=1)
        assert got["result"]["action"] == "accept"
        assert len([m for m in talk.messages if "method" not in m]) == 1


async def test_cancelled_handlers_make_room_for_what_waits(tmp_path: Path) -> None:
    gate = Gate({"name": "x"})
    options = {"on_elicit": gate, "limits": Limits(max_in_flight=2)}
    async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, **options):
        talk = await peer.talk(0)
        for id in (1, 2, 3, 4):
            await talk.send(id=id, method="elicitation/create", params=ELICIT)
        await gate.wait(2)
        await ask(talk, "ping", id="p")  # all of them were read
        assert gate.begun == 2  # the others wait for their turn
        await talk.send(method="notifications/cancelled", params={"requestId": 1})
        await gate.wait(3)
        gate.open.set()
        for id in (2, 3, 4):
            assert "result" in await answer(talk, id)


@pytest.mark.parametrize("how", ["close", "vanish"])
async def test_handlers_end_with_the_link(tmp_path: Path, how: str) -> None:
    gate = Gate({"name": "x"})
    async with LinePeer(legacy(), tmp_path) as peer:
        client = Client(peer.url, on_elicit=gate)
        await client.open()
        talk = await peer.talk(0)
        await talk.send(id=1, method="elicitation/create", params=ELICIT)
        await gate.wait()
        if how == "close":
            await client.close()
            assert gate.cancelled == 1
        else:
            talk.vanish()
            await until(lambda: gate.cancelled == 1)
            await client.close()
        assert len(asyncio.all_tasks()) <= 2 + len(peer.talks)


async def test_a_handler_may_close_its_client(tmp_path: Path) -> None:
    clients: list[Client] = []
    done = asyncio.Event()

    async def on_elicit(request: ElicitParams) -> Any:
        try:
            await clients[0].close()
        finally:
            done.set()

    async with LinePeer(legacy() | {"tools/call": nothing}, tmp_path) as peer:
        clients.append(Client(peer.url, on_elicit=on_elicit))
        await clients[0].open()
        call = asyncio.create_task(clients[0].call_tool("x"))
        await peer.got("tools/call")
        talk = await peer.talk(0)
        await talk.send(id=1, method="elicitation/create", params=ELICIT)
        await done.wait()
        with pytest.raises(ConnectionClosed):
            await call


async def test_a_handler_may_call_its_client(tmp_path: Path) -> None:
    clients: list[Client] = []

    async def on_sample(request: SampleParams) -> Any:
        return SampleResult(content=(await clients[0].call_tool("echo")).text, model="m")

    async with (
        LinePeer(legacy(), tmp_path) as peer,
        Client(peer.url, on_sample=on_sample) as client,
    ):
        clients.append(client)
        got = await ask(await peer.talk(0), "sampling/createMessage", SAMPLE)
        assert got["result"]["content"]["text"] == "ok"


async def test_requests_in_a_batch_are_answered(once: Run, tmp_path: Path) -> None:
    rules = legacy("2025-03-26")
    async with LinePeer(rules, tmp_path) as peer, Client(peer.url, on_sample=four):
        talk = await peer.talk(0)
        await peer.got("notifications/initialized")
        got: list[Any] = []

        async def heard(text: str | bytes) -> None:
            got.append(msgspec.json.decode(text))

        talk.heard = heard  # type: ignore[method-assign]
        one = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": SAMPLE}
        two = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        await talk.write(msgspec.json.encode([one, two]).decode())
        await until(lambda: got)
        assert sorted(each["id"] for each in got[0]) == [1, 2]


async def test_an_id_comes_back_as_it_came(once: Run, tmp_path: Path) -> None:
    async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, roots=[]):
        talk = await peer.talk(0)
        for id in ("1", 1, 12345678901234567890123, "é"):
            assert type((await ask(talk, "roots/list", id=id))["id"]) is type(id)
        await turns()


# -- completed elicitations ------------------------------------------------------------------------


COMPLETE = "notifications/elicitation/complete"


async def test_a_completed_url_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []

    async def on_complete(id: str) -> None:
        told.append(id)

    async def needs(talk: Any, message: dict[str, Any]) -> None:
        data = {"elicitations": [URL | {"elicitationId": "e2"}, 7]}
        error = {"code": -32042, "message": "first this", "data": data}
        await talk.send(id=message["id"], error=error)

    rules = legacy() | {"tools/call:needs": needs}
    async with (
        LinePeer(rules, tmp_path) as peer,
        Client(
            peer.url, on_elicit_url=lambda r: "accept", on_elicit_complete=on_complete
        ) as client,
    ):
        talk = await peer.talk(0)
        assert "result" in await ask(talk, "elicitation/create", URL)
        with pytest.raises(RemoteError, match="first this"):
            await client.call_tool("needs")
        for params in ({"elicitationId": "e0"}, {}, {"elicitationId": 1}):
            await talk.send(method=COMPLETE, params=params)
        await talk.send(method=COMPLETE)
        for id in ("e2", "e1", "e1", "e2"):
            await talk.send(method=COMPLETE, params={"elicitationId": id})
        await client.ping()
        await turns()
        assert told == ["e2", "e1"]


async def test_a_callback_that_fails_is_logged(
    once: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def on_complete(id: str) -> None:
        raise ZeroDivisionError("mine")

    options: dict[str, Any] = {"on_elicit_url": lambda r: "accept"}
    async with (
        LinePeer(legacy(), tmp_path) as peer,
        Client(peer.url, on_elicit_complete=on_complete, **options) as client,
    ):
        talk = await peer.talk(0)
        await ask(talk, "elicitation/create", URL)
        await talk.send(method=COMPLETE, params={"elicitationId": "e1"})
        await client.ping()
    assert "on_elicit_complete failed" in caplog.text


async def test_what_is_expected_is_bounded(
    once: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_EXPECTED", 3)
    told: list[str] = []
    options: dict[str, Any] = {"on_elicit_url": lambda r: "accept"}
    options["on_elicit_complete"] = told.append
    async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, **options) as client:
        talk = await peer.talk(0)
        for n in range(10):
            await ask(talk, "elicitation/create", URL | {"elicitationId": str(n)}, id=n)
        for n in range(10):
            await talk.send(method=COMPLETE, params={"elicitationId": str(n)})
        await client.ping()
    assert told == ["7", "8", "9"]
