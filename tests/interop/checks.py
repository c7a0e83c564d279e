"""What every session must show, whoever speaks: a function a feature.

`DIFFERENT` has the places where a peer does otherwise than the specification or than we do, and
why; the checks expect it there, so an entry goes when its peer changes.
"""

from __future__ import annotations

import json
from typing import Any

from pairings import LATEST_LEGACY, MODERN, Held

TOOLS = {
    "add",
    "blocks",
    "chatter",
    "count",
    "echo",
    "fail",
    "grow",
    "noticed",
    "person",
    "wait",
    "whoami",
}
ARGUMENT_ERRORS_SINCE = LATEST_LEGACY

# (peer that serves, feature): what it does, and why that is not what we expect of a server
DIFFERENT: dict[tuple[str, str], str] = {
    ("python2", "unknown"): "MCPServer answers isError where every revision has -32602",
    ("python1", "unknown"): "FastMCP answers isError where every revision has -32602",
    ("ts1", "unknown"): "McpServer answers isError where every revision has -32602",
    ("python2", "listen"): "answers what is open when its input ends with error -32000",
}

# (peer that serves, transport): the error that answers a cancelled request of a
# legacy era, where the specification has no answer
ANSWERS_CANCELLED: dict[tuple[str, str], int] = {
    **{("python1", over): 0 for over in ("stdio", "ws", "http")},
    # each stream of a request ends with a response; our client has mostly closed it by then
    ("python2", "http"): -32800,
}

MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")


def seen(held: Held, step: str) -> Any:
    """What a step reported; it must have ended."""
    assert "connect_error" not in held.report, held.report["connect_error"]
    assert "failed" not in held.report, held.report["failed"]
    value = held.report[step]
    if isinstance(value, dict) and "failed" in value:
        last = "\n".join(f"{side} {message!s:.200}" for side, message in held.run.messages[-20:])
        raise AssertionError(f"{value['failed']}\nthe last messages:\n{last}")
    return value


def offered(held: Held) -> set[str]:
    """The tools that the server must have."""
    return TOOLS | {"go" if held.pairing.serving else "ask"}


def differs(held: Held, feature: str) -> bool:
    return not held.pairing.serving and (held.pairing.peer, feature) in DIFFERENT


def cancelled_code(held: Held) -> int | None:
    """The code of the error with which the peer answers a cancelled request, if it does."""
    if held.pairing.serving or held.pairing.modern:
        return None
    return ANSWERS_CANCELLED.get((held.pairing.peer, held.pairing.over))


def check_handshake(held: Held) -> None:
    pairing = held.pairing
    assert seen(held, "version") == pairing.version
    info = seen(held, "server_info")
    if pairing.pinned:
        assert info is None
    else:
        assert (info["name"], info["version"]) == ("interop", "1.2.3")
        assert held.report["instructions"] == "Call the tools."
        assert "tools" in held.report["capabilities"]
    sent = [
        message["method"]
        for side, message in held.run.messages
        if side == ">" and "method" in message
    ]
    if pairing.modern:
        if sent[:2] == ["server/discover", "initialize"]:  # our client, after a second of silence
            del sent[1]
        assert not {"initialize", "notifications/initialized", "ping"} & set(sent)
    else:
        start = sent.index("initialize")
        assert sent[:start] in ([], ["server/discover"])
        assert sent[start + 1] == "notifications/initialized"
    if pairing.probes:
        assert sent[0] == "server/discover"
    if not pairing.serving:
        assert (sent[0] == "server/discover") == pairing.probes


def check_tools(held: Held) -> None:
    tools = {tool["name"]: tool for tool in seen(held, "tools")}
    expected = offered(held)
    assert set(tools) == expected
    schema = tools["person"]["inputSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["name"]
    properties = schema["properties"]
    assert properties["name"]["type"] == "string"
    assert properties["age"]["type"] == "integer"
    assert properties["age"]["default"] == 30
    assert "red" in json.dumps(properties["colour"])
    typed = held.pairing.version >= "2025-06-18" or not held.pairing.serving
    assert ("outputSchema" in tools["person"]) == typed
    assert "outputSchema" not in tools["echo"]
    if held.pairing.serving:
        pages = held.run.requests("tools/list")
        cursors = [(page.get("params") or {}).get("cursor") for page in pages]
        assert cursors.count(None) >= 1
        assert len(set(cursors)) == (len(expected) + 2) // 2  # two on a page, also with "late"


def check_structured(held: Held) -> None:
    add, person = seen(held, "add"), seen(held, "person")
    value = {"name": "Ada", "age": 30, "colour": "green", "tags": ["a", "b"]}
    assert add["text"] == "5"
    assert person["text"] == value
    if held.pairing.serving and held.pairing.version < "2025-06-18":
        assert add["structured"] is None and person["structured"] is None
    else:
        assert add["structured"] == {"result": 5}
        assert person["structured"] == value


def check_blocks(held: Held) -> None:
    blocks = [{k: v for k, v in block.items() if k != "_meta"} for block in seen(held, "blocks")]
    expected: list[dict[str, Any]] = [
        {"type": "text", "text": "text"},
        {"type": "image", "data": "iVBORw0K", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {
            "type": "resource_link",
            "uri": "file:///link.txt",
            "name": "link",
            "mimeType": "text/plain",
        },
        {
            "type": "resource",
            "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"},
        },
        {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": "AAECAw=="}},
    ]
    if held.pairing.serving:  # a block that the revision lacks is told in words
        if held.pairing.version < "2025-03-26":
            expected[2] = {"type": "text", "text": "[audio: audio/wav, 4 bytes]"}
        if held.pairing.version < "2025-06-18":
            expected[3] = {"type": "text", "text": "[resource: link] file:///link.txt"}
    assert blocks == expected


def check_tool_error(held: Held) -> None:
    outcome = seen(held, "fail")
    assert outcome["is_error"] is True
    assert "boom" in outcome["text"]
    assert "Traceback" not in outcome["text"]


def check_unknown_tool(held: Held) -> None:
    outcome = seen(held, "unknown")
    if differs(held, "unknown"):
        assert outcome["is_error"] is True
        return
    assert outcome["code"] == -32602
    assert "no such tool" in outcome["message"]


def check_bad_arguments(held: Held) -> None:
    outcome = seen(held, "bad_arguments")
    if held.pairing.serving and held.pairing.version < ARGUMENT_ERRORS_SINCE:
        assert outcome["code"] == -32602
        assert "argument 'a'" in outcome["message"]
    else:
        assert outcome["is_error"] is True
        assert "add" in outcome["text"]


def check_identity(held: Held) -> None:
    said = seen(held, "whoami")
    assert said["client"] == "peer"
    assert said.get("version", held.pairing.version) == held.pairing.version


def check_unicode(held: Held) -> None:
    assert seen(held, "unicode") is True


def check_large(held: Held) -> None:
    assert seen(held, "big") is True
    assert max(len(line) for _, line in held.run.wire) > 1 << 19


def check_many(held: Held) -> None:
    assert seen(held, "many") == 100


def check_progress(held: Held) -> None:
    messages = held.pairing.version >= "2025-03-26" or not held.pairing.serving
    for n, values in seen(held, "progress").items():
        total = int(n)
        assert values == [
            [i, total, f"step {i}" if messages else None] for i in range(1, total + 1)
        ]
    tokens = {}
    for request in held.run.requests("tools/call"):
        params = request["params"]
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            assert token not in tokens
            tokens[token] = (request["id"], params["name"])
    answered = set()
    for side, message in held.run.messages:
        if side == "<" and "method" not in message:
            answered.add(message.get("id"))
        elif message.get("method") == "notifications/progress":
            assert side == "<"
            request_id, name = tokens[message["params"]["progressToken"]]
            assert name in ("count", "wait")
            assert request_id not in answered


def check_logging(held: Held) -> None:
    assert seen(held, "logging") == [
        [level, {"said": level}, "chatter"] for level in ("warning", "error")
    ]
    levels = held.run.requests("logging/setLevel")
    assert len(levels) == (0 if held.pairing.modern else 1)


def check_cancellation(held: Held) -> None:
    assert seen(held, "cancel") == ["mine"]
    (request,) = (r for r in held.run.requests("tools/call") if r["params"]["name"] == "wait")
    cancels = [
        m
        for m in held.run.requests("notifications/cancelled")
        if m["params"]["requestId"] == request["id"]
    ]
    if held.pairing.over == "http" and held.pairing.modern:  # the client closes the stream instead
        assert cancels == held.run.responses(request["id"]) == []
        return
    assert len(cancels) == 1
    token = request["params"]["_meta"]["progressToken"]
    after = held.run.messages[held.run.messages.index((">", cancels[0])) :]
    assert not [m for _, m in after if (m.get("params") or {}).get("progressToken") == token]
    codes = [answer["error"]["code"] for answer in held.run.responses(request["id"])]
    code = cancelled_code(held)
    if code is None:
        assert codes == []
    else:  # over HTTP the stream for it may be closed
        assert codes in ([code], [] if held.run.heads else [code])


def check_list_changed(held: Held) -> None:
    assert set(seen(held, "list_changed")) == offered(held) | {"late"}
    told = held.run.requests("notifications/tools/list_changed")
    assert told
    if not held.pairing.modern:
        return
    (listen,) = held.run.requests("subscriptions/listen")
    key = "io.modelcontextprotocol/subscriptionId"
    (ack,) = held.run.requests("notifications/subscriptions/acknowledged")
    assert ack["params"]["notifications"] == {"toolsListChanged": True}
    for message in [ack, *told]:
        tag = message["params"]["_meta"][key]
        assert tag == listen["id"] and type(tag) is type(listen["id"])


def check_ping(held: Held) -> None:
    assert seen(held, "ping") == (None if held.pairing.modern else "pong")


def check_server_s_requests(held: Held) -> None:
    """Our client answers ping, and refuses what it does not offer."""
    if held.pairing.serving:
        asked = [m for side, m in held.run.messages if side == "<" and {"id", "method"} <= set(m)]
        assert asked == []  # our server asks nothing
        return
    if held.pairing.modern:
        assert seen(held, "ask") is None
        return
    assert seen(held, "ask") == "-32601"
    (ping,) = (m for m in held.run.requests("ping") if (("<", m)) in held.run.messages)
    assert (">", {"jsonrpc": "2.0", "id": ping["id"], "result": {}}) in held.run.messages


def check_shutdown(held: Held) -> None:
    assert held.report["closing"] is True
    assert held.run.exit == 0
    assert not held.report.get("stray"), held.report["stray"]
    assert not held.report.get("spy_said"), held.report["spy_said"]


# On the server's stderr: what only a protocol error, or a fault in ours, writes there.
SIGNS = (
    "bad input",
    "internal error",
    "never retrieved",
    "never awaited",
    "was destroyed",
    "are dropped",
    "Failed to parse",
    "Failed to validate",
    "Message that failed validation",
    "unknown message",
    "Received exception from stream",
    "\nerror: ",
)


def check_no_protocol_errors(held: Held) -> None:
    probed = held.pairing.probes and not held.pairing.modern
    # what mcp 1 says of the probe, and over HTTP the TypeScript SDK
    of_probes = ("Failed to validate", "\nerror: ") if probed else ()
    for run in held.runs:
        for sign in SIGNS:
            if sign not in of_probes:
                assert sign not in f"\n{run.stderr}"
        for side, line in run.wire:
            assert isinstance(json.loads(line), dict), (side, line[:200])
        for method, code in run.errors():
            if method == "?":  # over HTTP, where a server does not say the id of what it refuses
                assert probed and held.run.heads
            elif method == "server/discover":
                assert not held.pairing.modern  # a probe of a server that has none
            elif method == "initialize":  # beside the probe of a server that was slow to start
                # it has their envelope: to modern servers it is a version, or a method, they lack
                assert held.pairing.modern and code in (-32022, -32601)
            elif code in (0, -32800):
                assert method == "tools/call" and code == cancelled_code(held)
            elif method == "subscriptions/listen":
                assert differs(held, "listen") and code == -32000
            else:
                assert (method, code) in (("tools/call", -32602), ("roots/list", -32601))


def check_era_fields(held: Held) -> None:
    """Each era's results have their own members and not the other's."""
    requests = {
        json.dumps(m.get("id")): m["method"]
        for side, m in held.run.messages
        if side == ">" and "method" in m
    }
    for side, message in held.run.messages:
        if side != "<" or "result" not in message:
            continue
        result, method = message["result"], requests[json.dumps(message["id"])]
        if not held.pairing.modern:
            if method != "server/discover":
                assert not set(MODERN_ONLY) & set(result), method
            continue
        if held.pairing.serving:
            assert result["resultType"] == "complete", method
            assert "io.modelcontextprotocol/serverInfo" in result["_meta"], method
        if method in ("tools/list", "server/discover"):
            assert {"ttlMs", "cacheScope"} <= set(result), method
    if held.pairing.modern and not held.pairing.serving:
        for side, message in held.run.messages:
            if side == ">" and "id" in message:
                meta = message["params"]["_meta"]
                assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
                assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


CHECKS = {
    name.removeprefix("check_"): value
    for name, value in list(globals().items())
    if name.startswith("check_")
}


def opening(held: Held) -> None:
    """The opening handshake: one, of the subprotocol mcp, with the extension only when both want
    it."""
    (_, request), (side, response) = held.run.heads
    assert request[0] == "GET /mcp HTTP/1.1"
    asked, answered = header(request), header(response)
    assert side == "<" and response[0].startswith("HTTP/1.1 101 ")
    assert asked["sec-websocket-protocol"] == answered["sec-websocket-protocol"] == "mcp"
    assert ("sec-websocket-extensions" in answered) == held.pairing.compressed
    assert not held.pairing.compressed or "permessage-deflate" in asked["sec-websocket-extensions"]


def frames(held: Held) -> None:
    """Each message is one text frame, in both directions; ours are deflated where that pays."""
    data = [frame for frame in held.run.frames if frame[1] not in ("ping", "pong", "close")]
    assert data
    for frame in data:
        assert frame[1:3] == ["text", "final"]
    ours = [frame for frame in data if (frame[0] == "<") == held.pairing.serving]
    assert ("deflated" in {frame[3] for frame in ours}) == held.pairing.compressed


def closing(held: Held) -> None:
    """The client says goodbye, and the server answers it."""
    closes = [frame for frame in held.run.frames if frame[1] == "close"]
    (first, _, _, _, code), (second, _, _, _, answer) = closes
    assert (first, second) == (">", "<")
    assert code == answer
    assert code == ("None" if held.pairing.peer == "ts1" else "1000")
    assert held.run.frames[-1] == closes[-1]


WEBSOCKET_CHECKS = {"opening": opening, "frames": frames, "closing": closing}


def fields(held: Held) -> None:
    """The header fields of the era, on each request of the client."""
    requests = [(lines[0], header(lines)) for side, lines in held.run.heads if side == ">"]
    posts = [found for line, found in requests if line.startswith("POST ")]
    for found in posts:
        assert found["content-type"] == "application/json"
        assert {"application/json", "text/event-stream"} <= set(found["accept"].split(", "))
    if held.pairing.modern:
        assert [line for line, _ in requests if not line.startswith("POST ")] == []
        for found in posts:
            assert found["mcp-protocol-version"] == MODERN
            assert "mcp-session-id" not in found
        bare = [found for found in posts if "mcp-method" not in found]
        notifications = [m for side, m in held.run.messages if side == ">" and "id" not in m]
        assert len(bare) <= len(notifications)  # the TypeScript client says no more of these
        return
    sessions = {found.get("mcp-session-id") for found in posts}
    assert len(sessions - {None}) == 1
    assert [found for found in posts if "mcp-session-id" not in found]
    if held.pairing.version >= "2025-06-18":
        for found in posts:
            if "mcp-session-id" in found:
                assert found["mcp-protocol-version"] == held.pairing.version


def answers(held: Held) -> None:
    """Each response is JSON or events, and what is refused is a probe of the era, or a method that
    a server does not have."""
    for side, lines in held.run.heads:
        if side == ">":
            continue
        status, found = lines[0].split()[1], header(lines)
        if status == "200" and found.get("content-length") != "0":
            # the TypeScript servers answer DELETE with nothing of no kind and no length
            kind = found.get("content-type", "" if held.pairing.serving else "application/json")
            assert kind.partition(";")[0] in ("application/json", "text/event-stream"), lines
        probed = held.pairing.mode == "auto" and not held.pairing.modern
        refused = ("400", "404", "405") if probed or not held.pairing.serving else ()
        assert status in ("200", "202", "204", *refused), lines


def goodbye(held: Held) -> None:
    """A client of the legacy era ends its session."""
    deleted = [lines for side, lines in held.run.heads if side == ">" and "DELETE" in lines[0]]
    # the TypeScript client leaves the session to its timeout
    expected = not held.pairing.modern and not held.pairing.peer.startswith("ts")
    assert len(deleted) == (expected or (not held.pairing.serving and not held.pairing.modern))


HTTP_CHECKS = {"fields": fields, "answers": answers, "goodbye": goodbye}


def header(lines: list[str]) -> dict[str, str]:
    """The header fields of a head of HTTP."""
    fields = (line.split(":", 1) for line in lines[1:])
    return {name.lower(): value.strip() for name, value in fields}
