"""Requests of many clients on one link, over HTTP: none is judged by what another one said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.http import LEGACY, META, MODERN, Peer, Response, message, serving

from wirespeed import Context, Server
from wirespeed.transport.http.options import HttpOptions

pytestmark = pytest.mark.compiled

STATELESS = HttpOptions(stateless=True)
HELLO = {
    "protocolVersion": LEGACY,
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "anne", "version": "1"},
}
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def make() -> Server:
    server = Server("lanes", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        return {
            "client": ctx.client_info,
            "offers": ctx.client_capabilities,
            "state": ctx.session_state,
        }

    @server.resource("test:a")
    async def resource() -> str:
        return "a"

    return server


async def legacy(
    peer: Peer, method: str, params: Any = None, version: str | None = LEGACY, id: Any = 1
) -> Response:
    return await peer.ask(body=message(method, params, id), mcp_protocol_version=version)


async def refused(peer: Peer, method: str, params: Any = None, **fields: str) -> tuple[int, int]:
    """The status and the code of a request without an envelope whose field names 2026-07-28."""
    fields = {"mcp_protocol_version": MODERN, "mcp_method": method, **fields}
    response = await peer.ask(body=message(method, params, 1), **fields)
    assert "mcp-session-id" not in response.headers
    return response.status, response.json["error"]["code"]


@pytest.mark.parametrize("options", [None, STATELESS], ids=["sessions", "stateless"])
async def test_a_field_of_2026_07_28_with_a_legacy_body(options: HttpOptions | None) -> None:
    given = {} if options is None else {"http": options}
    async with serving(make(), **given) as place:
        peer = await place.connect()
        for method, params in (
            ("initialize", HELLO),
            ("ping", None),
            ("tools/list", None),
            ("tools/call", ADD),
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", {"uri": "test:a"}),
        ):
            assert await refused(peer, method, params) == (400, -32602), method
        # also where the field names another method: the body comes first
        assert await refused(peer, "ping", mcp_method="tools/call") == (400, -32602)
        # and nothing of it is left
        assert (await peer.modern("tools/call", ADD)).status == 200
        assert (await peer.initialize()).status == 200


async def test_a_ping_of_a_session_whose_field_names_2026_07_28() -> None:
    async with serving(make()) as place:
        peer, session = await place.session()
        assert await refused(peer, "ping", mcp_session_id=session) == (400, -32602)
        response = await peer.ask(body=message("ping", id=2), mcp_session_id=session)
        assert response.status == 200


async def test_a_server_of_2026_07_28_alone_names_its_versions() -> None:
    async with serving(Server("modern", version="1", versions=[MODERN])) as place:
        peer = await place.connect()
        for fields in ({}, {"mcp_protocol_version": MODERN, "mcp_method": "initialize"}):
            response = await peer.ask(body=message("initialize", HELLO, 1), **fields)
            assert (response.status, response.json["error"]["code"]) == (400, -32022)
            assert response.json["error"]["data"]["supported"] == [MODERN]
        response = await legacy(peer, "ping", version=None)
        assert (response.status, response.json["error"]["code"]) == (400, -32602)


async def test_stateless_requests_of_both_eras_in_any_order() -> None:
    async with serving(make(), http=STATELESS) as place:
        for _ in range(2):
            for version in (None, LEGACY, "2025-03-26"):
                peer = await place.connect()
                response = await legacy(peer, "initialize", HELLO, version)
                assert response.status == 200
                assert response.json["result"]["protocolVersion"] == LEGACY
            for method, params in (("server/discover", None), ("tools/call", ADD)):
                assert (await (await place.connect()).modern(method, params)).status == 200
            response = await legacy(await place.connect(), "tools/call", ADD)
            assert response.json["result"]["structuredContent"] == {"result": 3}


async def test_stateless_requests_know_nothing_of_each_other() -> None:
    async with serving(make(), http=STATELESS) as place:
        peer = await place.connect()
        for _ in range(2):
            assert (await legacy(peer, "initialize", HELLO)).status == 200
            who = (await legacy(peer, "tools/call", {"name": "who"})).json["result"]
            assert who["structuredContent"] == {"client": None, "offers": {}, "state": {}}


async def test_stateless_subscriptions_of_many_clients() -> None:
    async with serving(make(), http=STATELESS) as place:
        peer = await place.connect()
        codes = set()
        for n in range(1100):  # together more characters than one client may keep
            response = await legacy(peer, "resources/subscribe", {"uri": f"test:{n:04000}"})
            codes.add(response.json.get("error", {}).get("code"))
        assert codes == {None}


@pytest.mark.parametrize("options", [None, STATELESS], ids=["sessions", "stateless"])
async def test_a_response_whose_field_names_2026_07_28(options: HttpOptions | None) -> None:
    given = {} if options is None else {"http": options}
    async with serving(make(), **given) as place:
        peer = await place.connect()
        for body in (
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}',
        ):
            response = await peer.ask(body=body, mcp_protocol_version=MODERN)
            assert (response.status, response.json["error"]["code"]) == (400, -32600)


async def test_a_modern_request_that_names_a_legacy_version_by_its_field() -> None:
    async with serving(make(), http=STATELESS) as place:
        peer = await place.connect()
        for version in (LEGACY, None):
            response = await peer.modern("tools/call", ADD, mcp_protocol_version=version)
            assert (response.status, response.json["error"]["code"]) == (400, -32020)
        assert (await peer.modern("initialize", META)).status == 404
        assert (await legacy(peer, "tools/call", ADD)).status == 200


async def test_what_one_client_accepts_says_nothing_of_another_one() -> None:
    async with serving(make()) as place:
        peer, other = await place.connect(), await place.connect()

        async def twice() -> bool:
            """Whether two fields, which allow both kinds, are read as two."""
            body = message("tools/call", {**ADD, "_meta": META}, 1)
            lines = [
                "POST /mcp HTTP/1.1",
                f"Host: 127.0.0.1:{place.port}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                "Accept: application/json;q=0",
                "Accept: text/event-stream",
                f"MCP-Protocol-Version: {MODERN}",
                "Mcp-Method: tools/call",
                "Mcp-Name: add",
                "",
                "",
            ]
            other.writer.write("\r\n".join(lines).encode() + body)
            while (line := await other.line()).strip():
                if line.startswith(b"Content-Type"):
                    events = b"event-stream" in line
            await other._reader.readuntil(b"}]" if not events else b"\n\n")
            return events

        assert (await peer.modern("tools/call", ADD, accept="")).status == 406
        assert await twice()
        other = await place.connect()
        assert (await peer.modern("tools/call", ADD, accept="")).status == 406
        assert not (await peer.modern("tools/call", ADD, accept="application/json")).is_stream
        assert await twice()


async def test_a_client_that_does_not_read_keeps_nothing_from_the_next_one() -> None:
    server = make()
    text = "x" * 40_000_000  # more than the buffers of a connection

    answered = asyncio.Event()

    @server.tool
    async def large() -> str:
        answered.set()
        return text

    async with serving(server) as place:
        slow = await place.connect()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send_modern("tools/call", {"name": "large"})
        await answered.wait()
        await asyncio.sleep(0)
        server.add_tool(lambda: 1, name="first")
        await asyncio.sleep(0)
        wanted = {"notifications": {"toolsListChanged": True}}
        listening = [await place.connect() for _ in range(3)]  # one of them has that lane
        streams = []
        for one in listening:
            one.send_modern("subscriptions/listen", wanted)
            streams.append(await one.head())
            await one.until(streams[-1], 1)
        server.add_tool(lambda: 1, name="second")
        for one, stream in zip(listening, streams, strict=True):
            changed = (await one.until(stream, 2))[1]
            assert changed["method"] == "notifications/tools/list_changed"
