"""What can mean one thing only is taken; refusals say what to do, and what they are."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from lab.http import LEGACY, META, MODERN, Peer, call, message, serving

from wirespeed import HttpOptions, Server
from wirespeed.client.http.answers import same_origin
from wirespeed.errors import ProtocolError
from wirespeed.peer.http.event_store import MemoryEventStore
from wirespeed.protocol import codes
from wirespeed.transport.address import parse

pytestmark = pytest.mark.compiled

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
HELLO = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "peer", "version": "1"},
}


def make(**options: Any) -> Server:
    server = Server("forgiving", version="1", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def busy() -> int:
        raise ProtocolError(codes.OVERLOADED, "later")

    return server


async def raw(peer: Peer, body: bytes, *fields: str) -> tuple[int, Any]:
    """A request with fields that may occur twice: its status and its message."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{peer.port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *fields,
    ]
    _, writer = await asyncio.open_connection("127.0.0.1", peer.port)
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    data = await _.read()
    writer.close()
    head, _, rest = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest)


# -- sessions --------------------------------------------------------------------------------------


async def test_initialize_with_a_session_that_is_over_opens_one() -> None:
    async with serving(make()) as place:
        peer, session = await place.session()
        await peer.ask("DELETE", mcp_session_id=session)
        for old in (session, "made up"):
            response = await peer.ask(body=message("initialize", HELLO, 1), mcp_session_id=old)
            assert response.status == 200
            fresh = response.headers["mcp-session-id"]
            assert fresh not in (session, old)
            assert (await peer.ask(body=call("add", ADD["arguments"]), mcp_session_id=fresh)).json[
                "result"
            ]
            for other in (call("add"), message("ping", id=1), message("notifications/initialized")):
                assert (await peer.ask(body=other, mcp_session_id=old)).status == 404
            for method in ("GET", "DELETE"):
                assert (await peer.ask(method, mcp_session_id=old)).status == 404
        # one that is there is not begun anew
        response = await peer.ask(body=message("initialize", HELLO, 1), mcp_session_id=fresh)
        assert response.json["error"]["code"] == -32600


async def test_a_refused_initialize_names_no_session() -> None:
    async with serving(make(), http=HttpOptions(max_sessions=3)) as place:
        peer = await place.connect()
        for _ in range(5):  # none of these counts
            response = await peer.ask(body=message("initialize", {"protocolVersion": 1}, 1))
            assert response.json["error"]["code"] == -32602
            assert "mcp-session-id" not in response.headers
        for _ in range(3):
            assert "mcp-session-id" in (await peer.initialize()).headers
        response = await peer.initialize()
        assert response.status == 503 and int(response.headers["retry-after"]) >= 1
        assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("options", [{"response": "sse"}, {"event_store": MemoryEventStore}])
async def test_a_stream_that_answers_initialize_names_the_session(options: Any) -> None:
    options = {k: v if isinstance(v, str) else v() for k, v in options.items()}
    async with serving(make(), http=HttpOptions(**options)) as place:
        peer = await place.connect()
        response = await peer.ask(
            body=message("initialize", HELLO, 1), accept="application/json, text/event-stream"
        )
        session = response.headers["mcp-session-id"]
        answer = await peer.ask(body=call("add", ADD["arguments"]), mcp_session_id=session)
        assert answer.status == 200


async def test_a_web_page_learns_its_session_and_when_to_come_back() -> None:
    """The names of both fields stand in ``Access-Control-Expose-Headers``, too."""
    async with serving(make(), http=HttpOptions(max_sessions=1)) as place:
        peer = await place.connect()
        hello = message("initialize", HELLO, 1)
        response = await peer.ask(body=hello, origin="http://127.0.0.1:1")
        assert response.headers["access-control-allow-origin"] == "http://127.0.0.1:1"
        session = response.headers["mcp-session-id"]
        full = await peer.ask(body=hello, origin="http://127.0.0.1:1")
        assert full.status == 503 and int(full.headers["retry-after"]) >= 1
        busy = await peer.ask(
            body=call("busy"), mcp_session_id=session, origin="http://127.0.0.1:1"
        )
        assert (busy.status, busy.headers["retry-after"]) == (429, "1")


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_limit_of_calls_has_the_status_429(legacy: bool) -> None:
    async with serving(make()) as place:
        if legacy:
            peer, session = await place.session()
            response = await peer.ask(body=call("busy"), mcp_session_id=session)
        else:
            peer = await place.connect()
            response = await peer.modern("tools/call", {"name": "busy"})
        assert (response.status, response.json["error"]["code"]) == (429, -31000)
        assert response.headers["retry-after"] == "1"


# -- paths and names -------------------------------------------------------------------------------


async def test_a_slash_at_the_end_of_a_path_says_nothing() -> None:
    async with serving(make(), http=HttpOptions(sse_path="/sse")) as place:
        peer, session = await place.session()
        for path in ("/mcp", "/mcp/"):
            assert (await peer.modern("tools/call", ADD, path=path)).status == 200
            body = call("add", ADD["arguments"])
            assert (await peer.ask("POST", path, body, mcp_session_id=session)).status == 200
        assert (await peer.ask("GET", "/healthz/")).status == 200
        for path in ("/mcp//", "/mc", "/mcp/x", "//mcp"):
            assert (await peer.ask("POST", path, body, mcp_session_id=session)).status == 404
        stream = await place.connect()
        stream.send("GET", "/mcp/", mcp_session_id=session)
        assert (await stream.head()).status == 200
        assert (await peer.ask("DELETE", "/mcp/", mcp_session_id=session)).status == 204
    async with serving(make(), url="http://127.0.0.1:0/mcp/") as place:
        peer = await place.connect()
        for path in ("/mcp", "/mcp/"):
            assert (await peer.modern("tools/call", ADD, path=path)).status == 200


async def test_a_refused_host_is_named_and_how_to_allow_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "wirespeed.server")
    async with serving(make()) as place:
        peer = await place.connect()
        response = await peer.modern("tools/call", ADD, host="mcp-svc:8000")
        assert response.status == 403
        for text in (response.body.decode(), caplog.text):
            assert "mcp-svc:8000" in text and "--host-name" in text and "hosts" in text
        response = await peer.modern("tools/call", ADD, host="a" * 3000)
        assert response.status == 403 and len(response.body) < 500


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://h/sse", "/sse?session_id=x"),
        ("http://h/gw/sse", "/gw/sse?session_id=x"),
        ("http://h/a/b/sse", "/a/b/sse?session_id=x"),
    ],
)
async def test_the_endpoint_of_sse_is_relative(url: str, place: str) -> None:
    assert same_origin(parse(url), "sse?session_id=x") == place
    async with serving(make(), http=HttpOptions(sse_path="/sse")) as server:
        for path in ("/sse", "/sse/"):
            peer = await server.connect()
            peer.send("GET", path)
            response = await peer.head()
            while not response.events:
                await peer.more(response)
            (event,) = response.events
            expected = "sse?session_id=" if path == "/sse" else "?session_id="
            assert event["event"] == "endpoint" and event["data"].startswith(expected)


# -- fields and bodies -----------------------------------------------------------------------------


async def test_equal_values_of_a_field_are_one() -> None:
    body = message("tools/call", {**ADD, "_meta": META}, 1)
    version, method, name = (
        f"MCP-Protocol-Version: {MODERN}",
        "Mcp-Method: tools/call",
        "Mcp-Name: add",
    )
    async with serving(make()) as place:
        peer, session = await place.session()
        for fields in (
            (version, version, method, method, name, name),
            (f"{version}, {MODERN}", f"{method},tools/call", name),
        ):
            assert (await raw(peer, body, *fields))[0] == 200, fields
        for fields in (
            (f"{version}, 2025-11-25", method, name),
            (version, f"MCP-Protocol-Version: {LEGACY}", method, name),
            (version, method, "Mcp-Method: ping", name),
            (version, method, name, "Mcp-Name: other"),
            (version, method, f"{name}, add"),  # a name may have a comma
        ):
            status, answer = await raw(peer, body, *fields)
            assert (status, answer["error"]["code"]) == (400, -32020), fields
        legacy = call("add", ADD["arguments"])
        id = f"Mcp-Session-Id: {session}"
        version = f"MCP-Protocol-Version: {LEGACY}"
        for fields in (
            (id, id),
            (f"{id}, {session}",),
            (id, version, version),
            (id, f"{version},{LEGACY}"),
        ):
            assert (await raw(peer, legacy, *fields))[0] == 200, fields
        other = (await place.session())[1]
        for fields in (
            (id, f"Mcp-Session-Id: {other}"),
            (id, version, "MCP-Protocol-Version: 2025-06-18"),
        ):
            status, answer = await raw(peer, legacy, *fields)
            assert (status, answer["error"]["code"]) == (400, -32600), fields


async def test_a_byte_order_mark_begins_a_body() -> None:
    async with serving(make(), http=HttpOptions(sse_path="/sse")) as place:
        peer, session = await place.session()
        body = b"\xef\xbb\xbf" + call("add", ADD["arguments"])
        response = await peer.ask(body=body, mcp_session_id=session)
        assert response.json["result"]["structuredContent"] == {"result": 3}
        body = b"\xef\xbb\xbf" + message("tools/call", {**ADD, "_meta": META}, 1)
        fields = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "add"}
        assert (await peer.ask(body=body, **fields)).status == 200
        assert (await peer.ask(body=b"\xef\xbb\xbf", **fields)).status == 400


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["get", "modern", "legacy"])
async def test_the_first_byte_of_a_stream_leaves_at_once(kind: str) -> None:
    server = make()

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    async with serving(server, http=HttpOptions(sse_keepalive=None)) as place:
        peer, session = await place.session()
        if kind == "get":
            peer.send("GET", mcp_session_id=session)
        elif kind == "modern":
            peer.send_modern("tools/call", {"name": "wait"}, accept="text/event-stream")
        else:
            peer.send(body=call("wait"), mcp_session_id=session, accept="text/event-stream")
        response = await peer.head()
        assert response.status == 200 and response.is_stream
        await peer.more(response)
        assert response.body == b":\n\n"


async def test_the_number_of_an_event_may_have_any_length(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(make(), http=HttpOptions(event_store=MemoryEventStore())) as place:
        peer, session = await place.session()
        stream = await place.connect()
        stream.send("GET", mcp_session_id=session)
        response = await stream.head()
        while not response.events:
            await stream.more(response)
        name = response.events[0]["id"].rpartition("-")[0]
        for number in ("9" * 5000, "99", "", "-1"):
            got = await peer.ask("GET", mcp_session_id=session, last_event_id=f"{name}-{number}")
            assert got.status == 400, number
    assert "Traceback" not in caplog.text
