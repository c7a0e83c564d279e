"""The recorder itself: what it lets pass and what not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import wire_check
import wire_shapes
from lab.rows import every
from wire_recorder import Conversation, Recorder
from wire_streams import Frames, Lines

from wirespeed import Client, Server

VERSIONS = list(wire_shapes.CODES)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOL = {"name": "add", "inputSchema": {"type": "object"}}


def server(version: str) -> Conversation:
    """A server's side after the handshake."""
    held = Conversation("server")
    held.version = version if version != "2026-07-28" else None
    return held


def say(held: Conversation, **message: Any) -> None:
    held.hear(True, json.dumps({"jsonrpc": "2.0", **message}).encode())


def ask(held: Conversation, method: str, **params: Any) -> None:
    if held.version is None:
        params["_meta"] = META
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    held.hear(False, json.dumps(message).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_type_can_be_read(version: str) -> None:
    for name in wire_shapes.TYPES:
        wire_check.shape(name, wire_shapes.CODES[version])
    for table in (wire_shapes.CLIENT_REQUESTS, wire_shapes.SERVER_REQUESTS):
        for rows in table.values():
            for _, params, result in rows:
                assert params in wire_shapes.TYPES or params in wire_shapes.CHOICES
                assert wire_shapes.OUTCOMES.get(result, result) in wire_shapes.TYPES


@pytest.mark.parametrize("version", VERSIONS)
def test_a_right_result_passes(version: str) -> None:
    held = server(version)
    ask(held, "tools/list")
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    say(held, id=1, result={"tools": [TOOL], **(more if held.version is None else {})})
    assert held.problems == []


@every(
    ("version", "method", "result", "problem"),
    [
        ("2025-03-26", "tools/list", {"tools": [{**TOOL, "title": "A"}]}, "has no 'title'"),
        ("2025-06-18", "tools/list", {"tools": [{**TOOL, "icons": []}]}, "has no 'icons'"),
        ("2025-11-25", "tools/list", {"tools": [], "ttlMs": 0}, "has no 'ttlMs'"),
        ("2025-11-25", "tools/list", {"tools": [{"name": "x"}]}, "without 'inputSchema'"),
        ("2025-11-25", "tools/list", {"tools": [{**TOOL, "description": None}]}, "is no string"),
        ("2026-07-28", "tools/list", {"tools": []}, "without 'resultType'"),
        ("2024-11-05", "tools/call", {"content": [{"type": "audio"}]}, "no type 'audio'"),
        ("2025-11-25", "tools/call", {"content": [], "structuredContent": [1]}, "is no object"),
        ("2025-11-25", "tools/call", {"content": {}}, "is no array"),
        ("2025-11-25", "resources/read", {"contents": [{"uri": "a:b"}]}, "either text or blob"),
        ("2026-07-28", "ping", {"resultType": "complete"}, "no results of ping"),
        ("2025-11-25", "completion/complete", {"completion": {"values": [1]}}, "is no string"),
    ],
)
def test_a_wrong_result_is_told(version: str, method: str, result: Any, problem: str) -> None:
    held = server(version)
    ask(held, method)
    say(held, id=1, result=result)
    assert any(problem in told for told in held.problems), held.problems


@every(
    ("version", "message", "problem"),
    [
        ("2025-11-25", {"method": "notifications/tools/changed", "params": {}}, None),
        ("2025-11-25", {"method": "notifications/progress", "params": {"progress": 1}}, "without"),
        (
            "2024-11-05",
            {
                "method": "notifications/progress",
                "params": {"progress": 1, "progressToken": 0, "message": "x"},
            },
            "has no 'message'",
        ),
        (
            "2025-03-26",
            {"id": 9, "method": "elicitation/create", "params": {}},
            "not among the requests",
        ),
        ("2025-11-25", {"id": 1, "result": {}}, "nobody asked"),
        ("2025-11-25", {"id": None, "error": {"code": -32700, "message": "no"}}, "id null"),
        ("2025-06-18", {"id": None, "error": {"code": -32700, "message": "no"}}, None),
        ("2025-11-25", {"error": {"code": -32022, "message": "no"}}, "Unsupported"),
        ("2025-11-25", {"error": {"code": -32001, "message": "no"}}, "-32001"),
        ("2025-11-25", {"id": 1, "result": {}, "extra": 1}, "no 'extra'"),
        ("2025-11-25", {"id": 1}, "either result or error"),
    ],
)
def test_what_else_a_server_says(version: str, message: Any, problem: str | None) -> None:
    held = server(version)
    say(held, **message)
    told = "\n".join(held.problems)
    assert (problem in told) if problem else told == ""


def test_what_a_client_says() -> None:
    held = Conversation("client")
    say(held, id=1, method="tools/list", params={"_meta": META})
    assert held.problems == []
    version = {key: value for key, value in META.items() if key.endswith("protocolVersion")}
    say(held, id=2, method="tools/list", params={"_meta": version})
    assert "clientCapabilities" in held.problems[0]
    held.version = "2025-11-25"
    held.hear(False, b'{"jsonrpc":"2.0","id":"y","method":"roots/list"}')
    say(held, id="y", result={"roots": [{"uri": 1}]})
    assert any("roots[0].uri" in problem for problem in held.problems)


def test_a_ping_with_an_envelope_may_only_come_before_the_server_speaks() -> None:
    held = Conversation("client")
    say(held, id=1, method="server/discover", params={"_meta": META})
    say(held, id=2, method="ping", params={"_meta": META})
    assert held.problems == []
    held.hear(False, b'{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}')
    say(held, id=3, method="ping", params={"_meta": META})
    assert "ping is not among the requests" in held.problems[0]


def test_the_second_reader_tells_too() -> None:
    problems = wire_check.result("server", "tools/list", {"tools": [{}]}, "2025-11-25")
    assert any(problem.startswith("mcp_types") for problem in problems)


def test_what_is_no_json_is_told() -> None:
    held = server("2025-11-25")
    held.hear(True, b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":NaN}}')
    assert "NaN is not JSON" in held.problems[0]


def test_lines_and_frames_in_pieces() -> None:
    stream = b'{"a":1}\n\n{"b":2}\n{"c"'
    for cut in range(len(stream)):
        lines = Lines()
        assert lines.feed(stream[:cut]) + lines.feed(stream[cut:]) == [b'{"a":1}', b'{"b":2}']
    key = b"\x01\x02\x03\x04"
    masked = bytes(c ^ key[i % 4] for i, c in enumerate(b"hello"))
    stream = b"\x81\x05hello" + b"\x89\x00" + b"\x01\x85" + key + masked + b"\x80\x01!"
    for cut in range(len(stream)):
        frames = Frames()
        assert frames.feed(stream[:cut]) + frames.feed(stream[cut:]) == [b"hello", b"hello!"]


@pytest.mark.off_schema("the author's annotations are not checked")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_real_sessions_are_heard(era: Any, recorder: Recorder) -> None:
    right, wrong = Server("right"), Server("wrong")

    @right.tool
    @wrong.tool(annotations={"readOnlyHint": "yes"})
    async def add(a: int, b: int) -> int:
        return a + b

    async def calls(server: Server) -> None:
        async with Client(server, era=era) as client:
            assert len(await client.list_tools()) == 1
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"

    await calls(right)
    assert recorder.problems == []
    judged = recorder.judged()
    assert {("client", "request", "tools/call"), ("server", "result", "tools/call")} <= judged
    await calls(wrong)
    assert [problem.split(" in ")[0] for problem in recorder.problems]
    assert all("readOnlyHint" in problem for problem in recorder.problems)
