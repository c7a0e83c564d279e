"""Clients of legacy eras with a server of 2026-07-28: every row of the table of
docs/explanation/translation.md."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN
from lab.translation import EraLab, request, text_in, tool

from wirespeed.transport.backoff import Backoff

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

META = "io.modelcontextprotocol/"
ISOLATIONS = ["shared", "pool", "session"]
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "1999-01-01"])
async def test_initialize(tmp_path: Path, isolation: str, version: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, hello = await lab.legacy(version)
        info = {"name": "scripted", "version": "7", "title": "T"}
        if version == "2024-11-05":
            del info["title"]
        offered = {"tools", "prompts", "completions", "logging", "resources"}
        result = hello["result"]
        assert result.pop("capabilities").keys() == offered - (
            {"completions"} if version == "2024-11-05" else set()
        )
        assert result == {
            "protocolVersion": "2025-11-25" if version == "1999-01-01" else version,
            "serverInfo": info,
            "instructions": "be good",
        }
        again = await one.ask(request("again", "initialize", protocolVersion=version))
        assert again["error"]["code"] == -32600
        assert (await one.ask(request(1, "ping")))["result"] == {}


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_client_that_only_says_initialize(
    tmp_path: Path, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is the last one, so it ends the connection."""
    lab = EraLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one = await lab.connect(None)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        await one.send(request("hello", "initialize", **params))
        one.writer.write_eof()
        assert (await one.recv())["result"]["instructions"] == "be good"
        await one.ended()
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_tool(tmp_path: Path, isolation: str) -> None:
    """The server gets the envelope of the client, and all else as it was."""
    lab = EraLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(**ALL)
        got = await one.ask(tool("a", "echo"))
        assert got["id"] == "a"
        envelope = {
            META + "protocolVersion": MODERN,
            META + "clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}, "roots": {}},
            META + "clientInfo": {"name": "raw", "version": "1"},
        }
        seen = text_in(got)
        seen[META + "clientCapabilities"]["elicitation"] = {"form": {}}  # {} says the same
        assert seen == envelope
        traced = tool(2, "echo", x=10**30)
        traced["params"]["_meta"] = {"traceparent": "00-1", "progressToken": "t"}
        await one.send(traced)
        assert (await one.recv())["params"]["progressToken"] == "t"
        seen = text_in(await one.recv())
        assert seen["traceparent"] == "00-1"
        assert seen[META + "protocolVersion"] == MODERN


@pytest.mark.parametrize(
    "params",
    [
        '"params":{"name":"echo"}',
        '"params":{"name":"echo","_meta":{}}',
        '"params":{ "_meta" : { } ,"name":"echo"}',
        '"params":{"name":"echo","_meta":{"a":1}}',
        '"params":{"name":"echo","_meta":null}',
    ],
)
async def test_the_envelope_is_put_in(tmp_path: Path, params: str) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        text = '{"jsonrpc":"2.0","id":1,"method":"tools/call",%s}'
        seen = text_in(await one.ask(text % params))
        assert seen[META + "protocolVersion"] == MODERN
        assert ("a" in seen) is ('"a"' in params)
        for params in ("", ',"params":{}', ',"params":{ }'):
            text = '{"jsonrpc":"2.0","id":1,"method":"tools/list"' + params + " }"
            got = await one.ask(text)
            assert got["result"]["nextCursor"] == "c"


@pytest.mark.parametrize(
    ("version", "result", "expected"),
    [
        # what a legacy client may ignore stays where nothing is decoded
        ("2025-11-25", {"content": [], "resultType": "complete"},
         {"content": [], "resultType": "complete"}),
        ("2025-11-25", {"content": [], "resultType": "complete", "structuredContent": [1]},
         {"content": []}),
        ("2025-11-25", {"content": [], "structuredContent": {"structuredContent": [1]}},
         {"content": [], "structuredContent": {"structuredContent": [1]}}),
        ("2024-11-05", {"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"},
                                    {"type": "resource_link", "uri": "u:1", "name": "n"},
                                    {"type": "text", "text": "t"}]},
         {"content": [{"type": "text", "text": "[audio audio/wav]"},
                      {"type": "text", "text": "[resource_link u:1]"},
                      {"type": "text", "text": "t"}]}),
    ],
)  # fmt: skip
async def test_results_of_tools(tmp_path: Path, version: str, result: Any, expected: Any) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(version)
        assert (await one.ask(tool(1, "raw", result=result)))["result"] == expected


async def test_the_other_methods(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy("2024-11-05")
        for method, params, expected in (
            ("tools/list", {"cursor": "x"},
             {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "nextCursor": "xc"}),
            ("prompts/list", {}, {"prompts": [{"name": "p", "vendor": 1}]}),
            ("resources/list", {}, {"resources": [{"uri": "u:1", "name": "r"}]}),
            ("resources/templates/list", {}, {"resourceTemplates": []}),
            ("resources/read", {"uri": "u:1"}, {"contents": [{"uri": "u:1", "text": "t"}]}),
            ("prompts/get", {"name": "p"},
             {"messages": [{"role": "user",
                            "content": {"type": "text", "text": "[audio audio/wav]"}}]}),
            ("completion/complete", {}, {"completion": {"values": ["a"]}}),
        ):  # fmt: skip
            result = (await one.ask(request(1, method, **params)))["result"]
            result.pop("_meta", None)
            assert result == expected
        two, _ = await lab.legacy("2025-11-25")
        (listed,) = (await two.ask(request(1, "tools/list")))["result"]["tools"]
        assert "title" in listed
        assert "outputSchema" not in listed  # of an array


async def test_errors(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        got = await one.ask(request(1, "resources/read", uri="u:none"))
        assert got["error"] == {
            "code": -32002, "message": "Resource not found", "data": {"uri": "u:none"},
        }  # fmt: skip
        for code, expected in ((7, 7), (-32602, -32602), (-32021, -32602), (-32020, -32603)):
            error = {"code": code, "message": "m", "data": [1]}
            got = (await one.ask(tool(2, "fail", error=error)))["error"]
            assert got == {**error, "code": expected}
        got = await one.ask(tool(3, "raw", result={"resultType": "task", "taskId": "x"}))
        assert got["error"]["code"] == -32603
        for method in ("server/discover", "subscriptions/listen", "tasks/get", "tasks/list"):
            got = (await one.ask(request(4, method)))["error"]
            assert got["code"] == -32601
            assert "2026-07-28" in got["message"]
        assert (await one.ask(request(5, "vendor/x")))["error"]["code"] == -32601
        plain = await lab.connect(None)
        assert (await plain.ask(request(6, "tools/list")))["error"]["code"] == -32602
        bad = await plain.ask(request(7, "initialize", protocolVersion=5))
        assert bad["error"]["code"] == -32602


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_changes(tmp_path: Path, isolation: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=True, size=1)
    async with lab.serving():
        one, _ = await lab.legacy()
        await lab.until_read("subscriptions/listen", 1)
        await one.send(tool(1, "change", method="tools/list_changed"))
        assert await one.recv() == {
            "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {},
        }  # fmt: skip
        await one.recv()
        assert (await one.ask(request(2, "resources/subscribe", uri="u:1")))["result"] == {}
        await lab.until_read("notifications/cancelled", 1)
        await one.send(tool(3, "change", method="resources/updated", params={"uri": "u:1", "x": 1}))
        assert (await one.recv())["params"] == {"uri": "u:1", "x": 1}
        await one.recv()
        refused = await one.ask(request(4, "resources/subscribe", uri="u:none"))
        assert refused["error"]["code"] == -32602
        assert (await one.ask(request(5, "resources/unsubscribe", uri="u:1")))["result"] == {}
        assert (await one.ask(request(6, "resources/unsubscribe", uri="u:9")))["result"] == {}
        await one.ask(tool(7, "change", method="resources/updated", params={"uri": "u:1"}))
        wanted = [m["params"]["notifications"] for m in lab.read("subscriptions/listen")]
        assert [one.get("resourceSubscriptions") for one in wanted] == [
            None, ["u:1"], ["u:1", "u:none"], None,
        ]  # fmt: skip
        assert wanted[0] == {"toolsListChanged": True, "resourcesListChanged": True}


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_log_lines(tmp_path: Path, isolation: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        assert (await one.ask(tool(1, "log", level="error")))["id"] == 1
        bad = await one.ask(request(2, "logging/setLevel", level="loud"))
        assert bad["error"]["code"] == -32602
        assert (await one.ask(request(3, "logging/setLevel", level="warning")))["result"] == {}
        assert text_in(await one.ask(tool(4, "echo")))[META + "logLevel"] == "warning"
        assert (await one.ask(tool(5, "log", level="info")))["id"] == 5
        await one.send(tool(6, "log", level="error"))
        assert (await one.recv())["params"] == {"level": "error", "data": "line"}
        assert (await one.recv())["id"] == 6


QUESTIONS = [
    ("elicitation/create", {"message": "who?", "requestedSchema": {}, "mode": "form"}),
    ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
    ("roots/list", {}),
]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("method", "params"), QUESTIONS)
async def test_questions(
    tmp_path: Path, isolation: str, method: str, params: dict[str, Any]
) -> None:
    lab = EraLab(tmp_path, isolation, modern=True)
    async with lab.serving():
        one, _ = await lab.legacy("2025-06-18", **ALL)
        call = tool("t", "ask", method=method, params=params)
        call["params"]["_meta"] = {"progressToken": "p"}
        asked = await one.ask(call)
        assert asked["method"] == method
        assert asked["params"] == {k: v for k, v in params.items() if k != "mode"}
        response = {"any": [1.0]}
        await one.send({"jsonrpc": "2.0", "id": asked["id"], "result": response})
        got = await one.recv()
        assert (got["id"], text_in(got)) == ("t", [{"k": response}, "s1"])
    first, second = lab.read("tools/call")
    assert (
        first["params"].items() <= {**second["params"], "_meta": first["params"]["_meta"]}.items()
    )
    assert second["params"]["_meta"]["progressToken"] == second["id"]


async def test_questions_without_an_answer(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(roots={})
        got = await one.ask(tool(1, "ask", method="sampling/createMessage"))
        assert got["error"]["code"] == -32602
        assert "does not offer" in got["error"]["message"]
        asked = await one.ask(tool(2, "ask", method="roots/list"))
        error = {"code": -1, "message": "the user says no"}
        got = await one.ask({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        assert (got["id"], got["error"]["code"]) == (2, -1)
        assert "the user says no" in got["error"]["message"]
        asked = await one.ask(tool(3, "ask", method="roots/list"))
        await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 3}})  # fmt: skip
        gone = await one.recv()
        assert gone["method"] == "notifications/cancelled"
        assert gone["params"]["requestId"] == asked["id"]
        await one.silent()


MALFORMED = [
    (["x"], {}),
    (None, {}),
    ("roots/list", []),
    ("elicitation/create", {"mode": ["form"]}),
    ("elicitation/create", {"mode": "url"}),
    ("sampling/createMessage", {"tools": []}),
]


@pytest.mark.parametrize(("method", "params"), MALFORMED)
async def test_malformed_questions(tmp_path: Path, method: Any, params: Any) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(**ALL)
        got = await one.ask(tool(1, "ask", method=method, params=params))
        assert (got["id"], "error" in got) == (1, True)


async def test_a_request_that_fails_unexpectedly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wirespeed.proxy.translation.input_requests.MAX_ROUNDS", None)
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(**ALL)
        got = await one.ask(tool(1, "ask", method="roots/list"))
        assert (got["id"], got["error"]["code"]) == (1, -32603)
    assert "internal error of the proxy at <Message request id=1 tools/call" in caplog.text


async def test_a_subscription_that_is_cancelled(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        await lab.until_read("subscriptions/listen", 1)
        await one.send(request(1, "resources/subscribe", uri="u:mute"))
        await lab.until_read("subscriptions/listen", 2)
        await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 1}})  # fmt: skip
        await lab.until_read("notifications/cancelled", 1)
    _, second = lab.read("subscriptions/listen")
    assert lab.read("notifications/cancelled")[0]["params"]["requestId"] == second["id"]


def hurry(lab: EraLab) -> None:
    """Let the server of the only client have half a second for a subscription."""
    (front,) = lab.fronts
    updates: Any = front.router._updates  # type: ignore[attr-defined]
    assert updates._patience == 33.0  # it may have to start first
    updates._patience = 0.5


async def test_a_subscription_that_takes_too_long(tmp_path: Path) -> None:
    """It does not keep the later ones of the client waiting."""
    config = {"request_timeout": 3.0}
    lab = EraLab(tmp_path, "session", modern=True, config=config)
    async with lab.serving():
        one, _ = await lab.legacy()
        await lab.until_read("subscriptions/listen", 1)
        hurry(lab)
        await one.send(request(1, "resources/subscribe", uri="u:mute"))
        await one.send(request(2, "resources/subscribe", uri="u:1"))
        answers = {got["id"]: got for got in [await one.recv(), await one.recv()]}
        error = {"code": -31005, "message": "no answer within 0.5 s"}
        assert answers[1]["error"] == error
        assert answers[2]["result"] == {}
    cancelled = [m["params"]["requestId"] for m in lab.read("notifications/cancelled")]
    assert lab.read("subscriptions/listen")[1]["id"] in cancelled


async def test_rounds_without_end(tmp_path: Path) -> None:
    delays = {"rounds": Backoff(0.0, 0.0)}
    lab = EraLab(tmp_path, "shared", modern=True, delays=delays)
    async with lab.serving():
        one, _ = await lab.legacy()
        got = await one.ask(tool(1, "ask", rounds=99))
        assert got["error"]["code"] == -32603
        assert "17th time" in got["error"]["message"]
    assert len(lab.read("tools/call")) == 17


async def test_cancellation_and_a_client_that_leaves(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(**ALL)
        await one.send(tool(1, "hold"))
        await lab.until_read("tools/call", 1)
        await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 1}})  # fmt: skip
        await lab.until_read("notifications/cancelled", 1)
        await one.ask(tool(2, "ask", method="roots/list"))
        await one.send(tool(3, "hold"))
        await lab.until_read("tools/call", 3)
        await one.close()
        await lab.until_read("notifications/cancelled", 3)  # the call, and the subscription
        while lab.fronts:
            await asyncio.sleep(0.01)


async def test_batches(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy("2025-03-26")
        await one.send(json.dumps([tool(1, "echo"), request(2, "ping"), tool(3, "echo")]))
        got = json.loads(await one.text())
        assert sorted(answer["id"] for answer in got) == [1, 2, 3]


async def test_a_modern_request_of_a_legacy_client(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy()
        one.is_modern = True
        assert (await one.ask(tool(1, "echo")))["error"]["code"] == -32022


async def test_not_translated(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "session", modern=True, translate=False)
    async with lab.serving():
        _, hello = await lab.legacy()
        assert hello["error"]["code"] == -32022


async def test_the_other_questions_of_a_call_that_has_failed(tmp_path: Path) -> None:
    """The client has refused one question: the others are cancelled."""
    lab = EraLab(tmp_path, "shared", modern=True)
    async with lab.serving():
        one, _ = await lab.legacy(roots={}, sampling={})
        inputs = {
            "a": {"method": "roots/list", "params": {}},
            "b": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
        }
        wish = {"resultType": "input_required", "requestState": "s", "inputRequests": inputs}
        await one.send(tool(1, "raw", result=wish))
        asked = {question["method"]: question["id"] for question in [
            await one.recv(), await one.recv(),
        ]}  # fmt: skip
        error = {"code": -1, "message": "no"}
        await one.send({"jsonrpc": "2.0", "id": asked["roots/list"], "error": error})
        got = [await one.recv(), await one.recv()]
        (answer,) = [m for m in got if "error" in m]
        (cancelled,) = [m for m in got if m.get("method") == "notifications/cancelled"]
        assert answer["id"] == 1 and answer["error"]["code"] == -1
        assert cancelled["params"]["requestId"] == asked["sampling/createMessage"]


@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_an_update_that_the_first_request_after_a_crash_causes(
    tmp_path: Path, isolation: str
) -> None:
    """The next process gets the subscriptions of its clients before their requests."""
    lab = EraLab(tmp_path, isolation, modern=True, size=1)
    async with lab.serving():
        (one, _), (two, _) = await lab.legacy(), await lab.legacy()
        for client in (one, two):
            assert "result" in await client.ask(request(1, "resources/subscribe", uri="u:1"))
        (server,) = lab.assignment.modern
        process = lab.assignment.supervisors[0].status.pid
        os.kill(process, signal.SIGKILL)
        while server.upstream is not None:
            await asyncio.sleep(0)
        # the first one that waits is of another client
        await one.send(tool(2, "change", method="resources/updated", params={"uri": "u:1"}))
        for client in (one, two):
            updated = await client.recv()
            assert updated["method"] == "notifications/resources/updated"
            assert updated["params"]["uri"] == "u:1"
        assert (await one.recv())["id"] == 2
