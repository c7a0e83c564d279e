"""Clients of 2026-07-28 with a server of a legacy era: every row of the table of
docs/explanation/translation.md."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN
from lab.translation import EraLab, request, text_in, tool

from wirespeed import Client
from wirespeed.proxy import Proxy

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

META = "io.modelcontextprotocol/"
INFO = {"name": "scripted", "version": "7", "title": "T"}
SHARED = ["shared", "pool", "session"]
LEVEL = META + "logLevel"


@pytest.mark.parametrize("isolation", SHARED)
async def test_discover(tmp_path: Path, isolation: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=False)
    async with lab.serving():
        one = await lab.client()
        result = (await one.ask(request(1, "server/discover")))["result"]
        assert result.pop("supportedVersions")[-1] == MODERN
        assert result.pop("capabilities").keys() == {
            "tools", "prompts", "completions", "logging", "resources",
        }  # fmt: skip
        assert result == {
            "instructions": "be good",
            "ttlMs": 0,
            "cacheScope": "private",
            "resultType": "complete",
            "_meta": {META + "serverInfo": INFO},
        }
    (hello,) = lab.read("initialize")
    assert hello["params"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("isolation", SHARED)
async def test_a_tool(tmp_path: Path, isolation: str) -> None:
    """The server gets the request without the envelope, and all else as it was."""
    lab = EraLab(tmp_path, isolation, modern=False)
    async with lab.serving():
        one = await lab.client()
        got = await one.ask(tool("a", "echo"))
        assert got["id"] == "a"
        assert text_in(got) == {}
        assert got["result"]["resultType"] == "complete"
        assert got["result"]["_meta"] == {META + "serverInfo": INFO}
        traced = tool(2, "echo", x=[1.50, 10**30])
        traced["params"]["_meta"] = {"traceparent": "00-1", "progressToken": "t", "vendor/x": None}
        await one.send(traced)
        progress = await one.recv()
        assert progress["params"]["progressToken"] == "t"
        kept = text_in(await one.recv())
        assert kept.pop("progressToken") != "t"
        assert kept == {"traceparent": "00-1", "vendor/x": None}
    line = next(one for one in lab.seen.read_text().splitlines() if "traceparent" in one)
    assert '"x": [1.5, 1000000000000000000000000000000]' in line


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        ('{E1,"a":1,E2,E3}', {"a": 1}),
        ('{ E1 , E2 ,"a" : 1 , E3 , "b":2 }', {"a": 1, "b": 2}),
        ('{"a":1,E1,E2,E3}', {"a": 1}),
        ('{"a":{"x":",}"}, E3 ,E1\t,E2 }', {"a": {"x": ",}"}}),
        ("{E2,E1}", {}),
        ('{"p":{},E2,"q":[],E1,"r":"io.modelcontextprotocol/x",E3}',
         {"p": {}, "q": [], "r": "io.modelcontextprotocol/x"}),
        ('{E1,"a\\"b":"\\\\",E2}', {'a"b': "\\"}),
    ],
)  # fmt: skip
async def test_the_envelope_is_cut_out(tmp_path: Path, meta: str, kept: Any) -> None:
    for name, value in {
        "E1": f'"{META}protocolVersion":"{MODERN}"',
        "E2": f'"{META}clientCapabilities" : {{"x":{{}}}}',
        "E3": '"io.modelcontextprotocol\\/clientInfo":{"name":"n","version":"1"}',
    }.items():
        meta = meta.replace(name, value)
    text = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":%s,"name":"echo"}}'
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        assert text_in(await one.ask(text % meta)) == kept


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {}),
        ({"content": []}, {"content": []}),
        ({"content": [], "_meta": {"a": 1}}, {"content": [], "_meta": {"a": 1}}),
        ({"resultType": "old", "isError": True}, {"isError": True}),
        ({"structuredContent": {"resultType": 1, "_meta": 2}},
         {"structuredContent": {"resultType": 1, "_meta": 2}}),
    ],
)  # fmt: skip
async def test_results_of_tools(tmp_path: Path, result: Any, expected: Any) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        got = (await one.ask(tool(1, "raw", result=result)))["result"]
        assert got.pop("resultType") == "complete"
        assert got["_meta"].pop(META + "serverInfo") == INFO
        if not got["_meta"]:
            del got["_meta"]
        assert got == expected
        bad = await one.ask(tool(2, "raw", result=[1]))
        assert bad["error"]["code"] == -32603


async def test_the_other_methods(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    cached = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    async with lab.serving():
        one = await lab.client()
        for method, params, has_ttl in (
            ("tools/list", {"cursor": "x"}, True),
            ("prompts/list", {}, True),
            ("resources/list", {}, True),
            ("resources/templates/list", {}, True),
            ("resources/read", {"uri": "u:1"}, True),
            ("prompts/get", {"name": "p"}, False),
            ("completion/complete", {}, False),
        ):
            result = (await one.ask(request(1, method, **params)))["result"]
            assert result["resultType"] == "complete"
            assert (cached.items() <= result.items()) is has_ttl
            assert result["_meta"][META + "serverInfo"] == INFO
            if method == "tools/list":
                assert result["nextCursor"] == "xc"
                assert result["tools"] == [
                    {"name": "echo", "inputSchema": {"type": "object"}, "title": "E",
                     "outputSchema": {"type": "object"}}
                ]  # fmt: skip
            if method == "prompts/list":
                assert result["prompts"] == [{"name": "p", "title": "P", "vendor": 1}]


async def test_errors(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        got = await one.ask(request(1, "resources/read", uri="u:none"))
        assert got["error"] == {
            "code": -32602, "message": "Resource not found", "data": {"uri": "u:none"},
        }  # fmt: skip
        error = {"code": 7, "message": "seven", "data": [1]}
        assert (await one.ask(tool(2, "fail", error=error)))["error"] == error
        wants = {"code": -32042, "message": "open it", "data": {"elicitations": [{"url": "u"}]}}
        got = (await one.ask(tool(3, "fail", error=wants)))["error"]
        assert got["code"] == -32603
        assert got["data"]["elicitations"] == [{"url": "u"}]
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
            got = (await one.ask(request(4, method)))["error"]
            assert got["code"] == -32601
            assert "2026-07-28" in got["message"]
        assert (await one.ask(request(5, "vendor/x")))["error"]["code"] == -32601
        one.meta = {LEVEL: "loud"}
        assert (await one.ask(tool(7, "echo")))["error"]["code"] == -32602


async def test_incomplete_envelopes(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    version, other = META + "protocolVersion", META + "clientCapabilities"
    async with lab.serving():
        plain = await lab.connect(None)
        for meta, code in (
            ({version: MODERN}, -32602),
            ({other: {}}, -32602),
            ({version: "2025-11-25", other: {}}, -32022),
            ({version: MODERN, other: {}}, None),
        ):
            got = await plain.ask(request(6, "tools/list", _meta=meta))
            assert got.get("error", {}).get("code") == code
        assert (await plain.ask(request(7, "tools/list")))["error"]["code"] == -32602


@pytest.mark.parametrize("isolation", SHARED)
async def test_subscriptions(tmp_path: Path, isolation: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=False)
    key = META + "subscriptionId"
    async with lab.serving():
        one = await lab.client()
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["u:1", "u:none", "u:2", "u:1"],
            "taskIds": ["x"],
        }
        await one.send(request("L", "subscriptions/listen", notifications=wanted))
        taken = await one.recv()
        assert taken["method"] == "notifications/subscriptions/acknowledged"
        assert taken["params"] == {
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["u:1", "u:2"]},
            "_meta": {key: "L"},
        }
        await one.send(request(9, "subscriptions/listen", notifications={
            "resourceSubscriptions": ["u:1"]}))  # fmt: skip
        await one.recv()
        assert len(lab.read("resources/subscribe")) == 3
        await one.send(tool(1, "change", method="tools/list_changed"))
        got = await one.recv()
        assert (got["method"], got["params"]) == (
            "notifications/tools/list_changed", {"_meta": {key: "L"}},
        )  # fmt: skip
        assert (await one.recv())["id"] == 1
        await one.ask(tool(2, "change", method="resources/list_changed"))
        await one.send(tool(3, "change", method="resources/updated", params={"uri": "u:1/sub"}))
        ids = [(await one.recv())["params"]["_meta"][key] for _ in range(2)]
        assert ids == ["L", 9]
        assert (await one.recv())["id"] == 3
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await one.send({**cancel, "params": {"requestId": "L"}})
        (gone,) = await lab.until_read("resources/unsubscribe", 1)
        assert gone["params"] == {"uri": "u:2"}
        assert (await one.ask(tool(4, "change", method="tools/list_changed")))["id"] == 4
        bad = await one.ask(request(5, "subscriptions/listen", notifications=[]))
        assert bad["error"]["code"] == -32602


async def test_subscriptions_end_in_order(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        await one.send(
            request("L", "subscriptions/listen", notifications={"toolsListChanged": True})
        )
        await one.recv()
        (front,) = [front for front in lab.fronts if front.translates and front.translation]
        front.drain()
        assert await one.recv() == {
            "jsonrpc": "2.0",
            "id": "L",
            "result": {"resultType": "complete", "_meta": {META + "subscriptionId": "L"}},
        }


async def test_log_lines(tmp_path: Path) -> None:
    """They are shown to a request that asked for them, while its client is alone."""
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        assert (await one.ask(tool(1, "log", level="error")))["id"] == 1
        one.meta = {LEVEL: "warning"}
        assert (await one.ask(tool(2, "log", level="info")))["id"] == 2
        await one.send(tool(3, "log", level="error"))
        line = await one.recv()
        assert line["params"] == {"level": "error", "data": "line"}
        assert (await one.recv())["id"] == 3
        one.meta = {}
        assert (await one.ask(tool(4, "log", level="error")))["id"] == 4
        two = await lab.client()
        await two.ask(tool(1, "echo"))
        one.meta = {LEVEL: "debug"}
        assert (await one.ask(tool(5, "log", level="error")))["id"] == 5
    assert [m["params"]["level"] for m in lab.read("logging/setLevel")] == ["warning", "debug"]


QUESTIONS = [
    ("elicitation/create", {"message": "who?", "requestedSchema": {}}, {"action": "accept"}),
    ("sampling/createMessage", {"messages": [], "maxTokens": 5}, {"role": "assistant"}),
    ("roots/list", {}, {"roots": []}),
]
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


@pytest.mark.parametrize(("method", "params", "response"), QUESTIONS)
async def test_questions(
    tmp_path: Path, method: str, params: dict[str, Any], response: dict[str, Any]
) -> None:
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        call = tool(1, "ask", method=method, params=params)
        got = (await one.ask(call))["result"]
        assert got["resultType"] == "input_required"
        assert got["inputRequests"] == {"1": {"method": method, "params": params}}
        again = tool(2, "ask", method=method, params=params)
        again["params"] |= {
            "requestState": got["requestState"], "inputResponses": {"1": response},
            "_meta": {"progressToken": "p"},
        }  # fmt: skip
        await one.send(again)
        final = await one.recv()
        assert (final["id"], text_in(final)) == (2, [response])
        assert final["result"]["resultType"] == "complete"
        used = await one.ask({**again, "id": 3})
        assert used["error"]["code"] == -32602
        assert "not known here, or has expired" in used["error"]["message"]
    (hello,) = lab.read("initialize")
    assert hello["params"]["capabilities"].keys() == ALL.keys()
    assert len(lab.read("tools/call")) == 1


async def test_several_questions_at_once(tmp_path: Path) -> None:
    """The first makes a round. The others are asked when the client comes back."""
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        got = (await one.ask(tool(1, "ask", method="roots/list", n=3)))["result"]
        n = 1
        while got["resultType"] == "input_required":
            again = tool(n + 1, "ask", method="roots/list", n=3)
            again["params"]["requestState"] = got["requestState"]
            if n == 1:  # an answer is missing: asked again
                assert got["inputRequests"].keys() == {"1"}
            else:
                again["params"]["inputResponses"] = {
                    key: {"roots": []} for key in got["inputRequests"]
                }
            n += 1
            got = (await one.ask(again))["result"]
        assert got["content"][0]["text"] == '[{"roots": []}, {"roots": []}, {"roots": []}]'


async def test_questions_that_cannot_be_asked(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client({"roots": {}})
        (refused,) = text_in(await one.ask(tool(1, "ask", method="sampling/createMessage")))
        assert refused["code"] == -32601
        got = (await one.ask(tool(2, "ask", method="roots/list")))["result"]
        other = tool(3, "echo")
        other["params"]["requestState"] = got["requestState"]
        answer = await one.ask(other)
        assert answer["error"]["message"] == "requestState belongs to another request"
        again = tool(4, "ask", method="roots/list")
        again["params"] |= {"requestState": got["requestState"], "inputResponses": {"1": 5}}
        assert (await one.ask(again))["error"]["code"] == -32602
        two = await lab.client({"roots": {}})
        again["params"]["inputResponses"] = {"1": {"roots": []}}
        stolen = await two.ask({**again, "id": 1})
        assert "not known here" in stolen["error"]["message"]
        assert text_in(await one.ask({**again, "id": 5})) == [{"roots": []}]


URL: dict[str, Any] = {"mode": "url", "url": "https://e.example/", "message": "q"}


@pytest.mark.parametrize(
    ("capability", "method", "params", "asked"),
    [
        ({}, "elicitation/create", {"message": "q"}, True),
        ({}, "elicitation/create", URL, False),
        ({"form": {}}, "elicitation/create", URL, False),
        ({"url": {}}, "elicitation/create", URL, True),
        ({"url": {}}, "elicitation/create", {"message": "q"}, False),
        ({}, "sampling/createMessage", {"tools": []}, False),
        ({"tools": {}}, "sampling/createMessage", {"tools": []}, True),
    ],
)
async def test_a_client_is_asked_what_its_request_declares(
    tmp_path: Path, capability: Any, method: str, params: Any, asked: bool
) -> None:
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client({method.split("/")[0]: capability, "roots": {}})
        got = (await one.ask(tool(1, "ask", method=method, params=params)))["result"]
        assert (got["resultType"] == "input_required") is asked
        if asked:
            return
        # nor in a round of another question
        got = (await one.ask(tool(2, "ask", method="roots/list")))["result"]
        refused = one.ask(tool(3, "ask", method=method, params=params))
        task = asyncio.ensure_future(refused)
        await lab.until_read("tools/call", 3)
        again = tool(4, "ask", method="roots/list")
        again["params"] |= {
            "requestState": got["requestState"], "inputResponses": {"1": {"roots": []}}
        }  # fmt: skip
        await one.send(again)
        answers = [await task, await one.recv()]
        assert all(answer["result"]["resultType"] == "complete" for answer in answers)


async def test_no_request_over_http_sets_the_level_of_a_shared_server(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    config = dataclasses.replace(lab.proxy.config, listen=("http://127.0.0.1:0/mcp",))
    lab.proxy = Proxy(config)
    async with lab.serving():
        url = next(url for url in lab.urls if url.endswith("/mcp"))
        async with Client(url, era="modern", log_level="debug") as one:
            await one.call_tool("echo")
    assert lab.read("tools/call")
    assert not lab.read("logging/setLevel")


async def test_a_round_whose_client_does_not_come_back(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "session", modern=False, delays={"answer": 0.05})
    async with lab.serving():
        one = await lab.client(ALL)
        await one.ask(tool(1, "ask", method="elicitation/create"))
        await lab.until_read("notifications/cancelled", 1)
    lines = [line for line in lab.seen.read_text().splitlines() if '"action":"cancel"' in line]
    assert len(lines) == 1


async def test_progress_and_cancellation_in_a_second_round(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        call = tool(1, "ask", method="roots/list")
        call["params"]["_meta"] = {"progressToken": "first"}
        got = (await one.ask(call))["result"]
        again = tool(2, "ask", method="roots/list")
        again["params"] |= {
            "requestState": got["requestState"], "inputResponses": {"1": {}},
            "_meta": {"progressToken": "second"},
        }  # fmt: skip
        await one.send(again)
        assert (await one.recv())["params"]["progressToken"] == "second"
        assert (await one.recv())["id"] == 2


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_a_client_that_probes_and_then_initializes(tmp_path: Path, isolation: str) -> None:
    lab = EraLab(tmp_path, isolation, modern=False)
    async with lab.serving():
        one = await lab.client()
        await one.ask(request(1, "server/discover"))
        one.text_of = json.dumps  # type: ignore[method-assign]
        hello = await one.initialize()
        if isolation == "session":
            assert hello["error"]["code"] == -32600
        else:
            assert hello["result"]["protocolVersion"] == "2025-11-25"
            assert "resultType" not in (await one.ask(tool(2, "echo")))["result"]


async def test_a_legacy_client_of_the_same_server(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        two, _ = await lab.legacy()
        await one.send(tool(1, "hold"))
        assert text_in(await two.ask(tool(1, "echo"))) is None
        await lab.until_read("tools/call", 2)
        await one.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 1}})  # fmt: skip
        await lab.until_read("notifications/cancelled", 1)
    assert len(lab.read("initialize")) == 1


async def test_not_translated(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "shared", modern=False, translate=False)
    async with lab.serving():
        one = await lab.client()
        assert (await one.ask(tool(1, "echo")))["error"]["code"] == -32022


async def test_a_server_that_is_lost(tmp_path: Path) -> None:
    lab = EraLab(tmp_path, "session", modern=False)
    async with lab.serving():
        one = await lab.client(ALL)
        await one.ask(tool(0, "ask", method="roots/list"))
        await one.send(tool(1, "hold"))
        await lab.until_read("tools/call", 2)
        for supervisor in lab.proxy.services["b"].assignment.supervisors:
            assert supervisor.status.pid is not None
            os.kill(supervisor.status.pid, signal.SIGKILL)
        assert (await one.recv())["error"]["code"] == -31004
