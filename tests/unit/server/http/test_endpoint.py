"""Streamable HTTP as a client sees it: requests of both eras, statuses, streams, sessions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

import pytest
from lab.http import LEGACY, META, MODERN, Peer, Response, call, message, serving
from lab.rows import every
from lab.serve import descriptors

from wirespeed import Context, Limits, Server
from wirespeed.transport.http.options import HttpOptions
from wirespeed.types import CallNext, InboundRequest, Reply


def make() -> Server:
    server = Server("http", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i + 1, total=n)
        return "done"

    @server.tool
    async def who(ctx: Context) -> dict[str, object]:
        await asyncio.sleep(0)
        return {"peer": ctx.peer, "agent": ctx.headers.get("user-agent"), "user": ctx.user}

    @server.tool
    async def fails() -> str:
        raise RuntimeError("no")

    return server


class Waiting:
    """A tool that waits until it is let go, or cancelled."""

    def __init__(self, server: Server) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

        @server.tool
        async def wait(ctx: Context) -> str:
            self.started.set()
            await asyncio.sleep(0)
            await ctx.progress(1)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "went"


ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def error(response: Response) -> tuple[int, int]:
    assert response.headers["content-type"] == "application/json"
    return response.status, response.json["error"]["code"]


# -- 2026-07-28 ------------------------------------------------------------------------------------


async def test_a_modern_call_is_answered_with_json_and_no_session() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        for id in (1, "one", 12345678901234567890123):  # one connection, one after another
            response = await peer.modern("tools/call", ADD, id=id)
            assert response.status == 200
            assert response.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in response.headers
            assert response.json["id"] == id
            assert response.json["result"]["structuredContent"] == {"result": 3}
            assert response.json["result"]["resultType"] == "complete"


async def test_a_handler_that_says_something_makes_the_response_a_stream() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        params = {"name": "count", "arguments": {"n": 3}, "_meta": {"progressToken": 0}}
        response = await peer.modern("tools/call", params)
        assert response.status == 200 and response.is_stream
        assert response.headers["x-accel-buffering"] == "no"
        *progress, result = response.messages
        assert [m["params"]["progress"] for m in progress] == [1, 2, 3]
        assert result["result"]["content"] == [{"type": "text", "text": "done"}]
        # and the next response of the connection is JSON again
        assert not (await peer.modern("tools/call", ADD)).is_stream


@pytest.mark.parametrize("legacy", [False, True])
async def test_what_a_handler_says_arrives_before_its_result(legacy: bool) -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        params = {"name": "wait", "_meta": {"progressToken": 1}}
        if legacy:
            peer, session = await place.session()
            peer.send(body=message("tools/call", params, 1), mcp_session_id=session)
        else:
            peer = await place.connect()
            peer.send_modern("tools/call", params)
        response = await peer.head()
        (progress,) = await peer.until(response, 1)
        assert progress["method"] == "notifications/progress"
        waiting.go.set()
        assert (await peer.until(response, 2))[1]["result"]["content"][0]["text"] == "went"


async def test_clients_may_share_ids_at_once() -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        peers = [await place.connect() for _ in range(3)]
        for peer in peers:
            peer.send_modern("tools/call", {"name": "wait"}, id=1)
        await waiting.started.wait()
        assert (await (await place.connect()).modern("tools/call", ADD, id=1)).status == 200
        waiting.go.set()
        for peer in peers:
            assert (await peer.response()).json["result"]["content"][0]["text"] == "went"


async def test_leaving_cancels_the_call() -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        peer = await place.connect()
        peer.send_modern("tools/call", {"name": "wait"})
        await waiting.started.wait()
        peer.close()
        async with asyncio.timeout(5):
            await waiting.cancelled.wait()
        assert (await (await place.connect()).modern("tools/call", ADD)).status == 200


async def test_each_request_has_its_own_peer_and_headers() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        for agent in ("one", "two"):
            response = await peer.modern("tools/call", {"name": "who"}, user_agent=agent)
            found = json.loads(response.json["result"]["content"][0]["text"])
            assert found["agent"] == agent
            assert found["peer"].startswith("127.0.0.1:")


@every(
    ("change", "status", "code"),
    [
        ({"mcp_method": "tools/list"}, 400, -32020),
        ({"mcp_method": None}, 400, -32020),
        ({"mcp_name": "other"}, 400, -32020),
        ({"mcp_name": None}, 400, -32020),
        ({"mcp_protocol_version": None}, 400, -32020),
        ({"mcp_protocol_version": "2025-11-25"}, 400, -32020),
        ({"mcp_protocol_version": "2027-01-01"}, 400, -32020),
    ],
)
async def test_headers_and_body_must_agree(
    change: dict[str, str | None], status: int, code: int
) -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        response = await peer.modern("tools/call", ADD, **change)
        assert error(response) == (status, code)
        assert response.json["id"] == 1


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_half_envelope_is_refused(missing: str) -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        meta = {k: v for k, v in META.items() if not k.endswith(missing)}
        body = message("tools/list", {"_meta": meta}, 1)
        response = await peer.ask(body=body, mcp_protocol_version=MODERN, mcp_method="tools/list")
        assert error(response) == (400, -32602)


async def test_headers_are_compared_before_middleware_awaits() -> None:
    server = make()

    @server.add_middleware
    async def later(request: InboundRequest, call_next: CallNext) -> Reply:
        await asyncio.sleep(0.01)
        return await call_next(request.replace(arguments={"a": 20, "b": 22}))

    async with serving(server) as place:
        peer = await place.connect()
        assert error(await peer.modern("tools/call", ADD, mcp_name="other")) == (400, -32020)
        response = await peer.modern("tools/call", ADD)
        assert response.json["result"]["structuredContent"] == {"result": 42}


async def test_an_unknown_version_is_named() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        params = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}}
        response = await peer.modern("tools/list", params, mcp_protocol_version="2027-01-01")
        assert error(response) == (400, -32022)
        assert MODERN in response.json["error"]["data"]["supported"]
        assert response.json["error"]["data"]["requested"] == "2027-01-01"


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"]
)
async def test_methods_that_are_not_there_are_404(method: str) -> None:
    async with serving(make()) as place:
        response = await (await place.connect()).modern(method)
        assert error(response) == (404, -32601)


async def test_errors_of_handlers_have_status_200() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        response = await peer.modern("tools/call", {"name": "nothing"})
        assert error(response) == (200, -32602)
        response = await peer.modern("tools/call", {"name": "fails"})
        assert response.status == 200
        assert response.json["result"]["isError"] is True


async def test_a_notification_is_accepted() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        body = message("notifications/cancelled", {"requestId": 1})
        response = await peer.ask(body=body, mcp_protocol_version=MODERN)
        assert (response.status, response.body) == (202, b"")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b"[]", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b"\xff", -32700),
    ],
)
async def test_bad_messages_are_400(body: bytes, code: int) -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        for fields in ({"mcp_protocol_version": MODERN}, {}):
            response = await peer.ask(body=body, **fields)
            assert error(response) == (400, code)
            assert response.json.get("id", 1) == 1


async def test_an_empty_version_is_not_supported() -> None:
    async with serving(make()) as place:
        peer, session = await place.session()
        body = message("ping", None, 1)
        response = await peer.ask(body=body, mcp_session_id=session, mcp_protocol_version="")
        assert response.status == 400
        assert (await peer.ask(body=body, mcp_session_id=session)).status == 200


async def test_sessions_and_event_ids_mean_nothing_in_2026_07_28() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        response = await peer.modern("tools/call", ADD, mcp_session_id="x", last_event_id="1-1")
        assert response.status == 200 and "mcp-session-id" not in response.headers
        assert response.json["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("form", ["json", "sse"])
async def test_a_stream_has_no_requests_but_questions_in_its_result(form: str) -> None:
    server = make()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Your name?", str)).value)

    async with serving(server, http=HttpOptions(response=form)) as place:  # type: ignore[arg-type]
        peer = await place.connect()
        capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        response = await peer.modern("tools/call", {"name": "ask", "_meta": capabilities})
        assert response.is_stream == (form == "sse")
        messages = response.messages if response.is_stream else [response.json]
        assert [list(message) for message in messages if "method" in message] == []
        assert messages[-1]["result"]["resultType"] == "input_required"


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}',
        b"[" + message("tools/list", {"_meta": META}, 1) + b"]",
    ],
)
async def test_a_body_that_is_a_response_or_an_array_is_refused(body: bytes) -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        for _ in range(2):
            response = await peer.ask(body=body, mcp_protocol_version=MODERN)
            assert error(response) == (400, -32600)
            assert "id" not in response.json
        assert (await peer.modern("tools/call", ADD)).status == 200


async def test_a_subscription_is_a_stream_until_the_client_leaves() -> None:
    server = make()
    async with serving(server) as place:
        peer = await place.connect()
        peer.send_modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s"
        )
        response = await peer.head()
        (told,) = await peer.until(response, 1)
        assert told["method"] == "notifications/subscriptions/acknowledged"
        server.add_tool(lambda: 1, name="more")
        changed = (await peer.until(response, 2))[1]
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "s"


async def test_the_socket_of_a_client_that_closed_is_closed_at_once() -> None:
    async with serving(make()) as place:
        await (await place.connect()).modern("tools/call", ADD)
        before = descriptors()
        peers = [await place.connect() for _ in range(8)]
        for peer in peers:
            await peer.modern("tools/call", ADD)
        assert descriptors() == before + 16  # both ends
        for peer in peers:
            peer.writer.close()
        async with asyncio.timeout(1.5):  # less than a server waits for clients that close later
            while descriptors() > before:
                await asyncio.sleep(0.01)


# -- legacy ----------------------------------------------------------------------------------------


async def test_a_session_is_opened_used_and_ended() -> None:
    async with serving(make()) as place:
        peer, session = await place.session()
        assert all(0x21 <= ord(c) <= 0x7E for c in session)
        other = await place.connect()
        fields = {"mcp_session_id": session, "mcp_protocol_version": LEGACY}
        response = await other.ask(body=call("add", ADD["arguments"]), **fields)
        assert response.json["result"]["structuredContent"] == {"result": 3}
        assert "resultType" not in response.json["result"]
        assert (await peer.ask("DELETE", **fields)).status == 204
        assert (await other.ask(body=call("add", ADD["arguments"]), **fields)).status == 404


async def test_requests_without_a_session_are_refused() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        assert error(await peer.ask(body=call("add"))) == (400, -32600)
        assert error(await peer.ask(body=call("add"), mcp_session_id="x")) == (404, -32600)
        assert error(await peer.ask("GET")) == (400, -32600)
        assert (await peer.ask("PUT", body=b"{}")).status == 405


async def test_a_session_belongs_to_its_principal() -> None:
    async with serving(make(), token=["one", "two"]) as place:
        peer = await place.connect()
        session = (await peer.initialize(authorization="Bearer one")).headers["mcp-session-id"]
        for token, status in (("one", 200), ("two", 404)):
            response = await peer.ask(
                body=call("add", ADD["arguments"]),
                mcp_session_id=session,
                authorization=f"Bearer {token}",
            )
            assert response.status == status
        assert (await peer.ask(body=call("add"), mcp_session_id=session)).status == 401


async def test_a_legacy_call_is_cancelled_by_a_notification() -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        peer, session = await place.session()
        other = await place.connect()
        peer.send(body=call("wait", id=7), mcp_session_id=session)
        await waiting.started.wait()
        body = message("notifications/cancelled", {"requestId": 7})
        assert (await other.ask(body=body, mcp_session_id=session)).status == 202
        assert (await peer.response()).body == b""  # a cancelled request has no answer
        assert waiting.cancelled.is_set()


async def test_leaving_does_not_cancel_a_legacy_call() -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        peer, session = await place.session()
        peer.send(body=call("wait"), mcp_session_id=session)
        await waiting.started.wait()
        peer.close()
        other = await place.connect()
        response = await other.ask(body=call("add", ADD["arguments"], 2), mcp_session_id=session)
        assert response.status == 200
        assert not waiting.cancelled.is_set()
        waiting.go.set()


async def test_the_own_stream_carries_what_the_server_says() -> None:
    server = make()
    async with serving(server) as place:
        peer, session = await place.session()
        server.add_tool(lambda: 1, name="early")  # kept until the stream is opened
        peer.send("GET", mcp_session_id=session)
        response = await peer.head()
        assert response.is_stream
        (early,) = await peer.until(response, 1)
        assert early["method"] == "notifications/tools/list_changed"
        server.add_tool(lambda: 1, name="late")
        assert len(await peer.until(response, 2)) == 2


async def test_batches_of_2025_03_26() -> None:
    async with serving(make()) as place:
        peer, session = await place.session("2025-03-26")
        body = b"[%b,%b]" % (call("add", ADD["arguments"], 1), call("add", ADD["arguments"], 2))
        response = await peer.ask(body=body, mcp_session_id=session)
        assert sorted(one["id"] for one in response.json) == [1, 2]
        other, newer = await place.session()
        assert error(await other.ask(body=body, mcp_session_id=newer)) == (400, -32600)


async def test_stateless_mode_has_no_sessions() -> None:
    async with serving(make(), http=HttpOptions(stateless=True)) as place:
        peer = await place.connect()
        response = await peer.initialize()
        assert response.status == 200 and "mcp-session-id" not in response.headers
        response = await peer.ask(body=call("add", ADD["arguments"]), mcp_protocol_version=LEGACY)
        assert response.json["result"]["structuredContent"] == {"result": 3}
        assert (await peer.ask("GET")).status == 405
        assert (await peer.modern("tools/call", ADD)).status == 200


# -- what every request needs ----------------------------------------------------------------------


@every(
    ("fields", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": None}, 415),
        ({"content_type": "Application/JSON; charset=utf-8"}, 200),
        ({"content_encoding": "gzip"}, 415),
        ({"accept": "text/html"}, 406),
        ({"accept": "application/json;q=0, text/html"}, 406),
        ({"accept": None}, 200),
        ({"accept": "*/*"}, 200),
        ({"accept": "application/json"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
    ],
)
async def test_fields_of_a_request(fields: dict[str, str | None], status: int) -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        assert (await peer.modern("tools/call", ADD, **fields)).status == status
        # the connection lives, and what was refused is not remembered
        assert (await peer.modern("tools/call", ADD)).status == 200


async def test_a_client_that_takes_events_only_gets_events() -> None:
    async with serving(make()) as place:
        response = await (await place.connect()).modern(
            "tools/call", ADD, accept="text/event-stream"
        )
        assert response.is_stream
        assert response.messages[0]["result"]["structuredContent"] == {"result": 3}


async def test_the_kind_of_response_is_an_option() -> None:
    async with serving(make(), http=HttpOptions(response="sse")) as place:
        response = await (await place.connect()).modern("tools/call", ADD)
        assert response.is_stream and len(response.messages) == 1
    async with serving(make(), http=HttpOptions(response="json")) as place:
        params = {"name": "count", "arguments": {"n": 3}, "_meta": {"progressToken": 0}}
        response = await (await place.connect()).modern("tools/call", params)
        assert response.json["result"]["content"][0]["text"] == "done"


async def test_other_paths_are_404() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        assert (await peer.ask("GET", "/other")).status == 404
        assert (await peer.ask(path="/mcp//", body=b"{}")).status == 404
        assert (await peer.modern("tools/call", ADD)).status == 200


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(make()) as place:
        text = b""
        for id in range(1, 6):
            body = message("tools/call", {**ADD, "_meta": META}, id)
            text += (
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
                b"Content-Length: %d\r\n%b\r\n%b"
                % (len(body), b"Connection: close\r\n" if id == 5 else b"", body)
            )
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        for i in range(0, len(text), 700):
            writer.write(text[i : i + 700])
            await asyncio.sleep(0.001)
        async with asyncio.timeout(10):
            data = await reader.read()  # the server closes after the last
        writer.close()
        assert re.findall(rb'"id":([0-9])', data) == [b"1", b"2", b"3", b"4", b"5"]
        assert data.count(b"HTTP/1.1 200 OK") == 5
        assert data.count(b"Connection: close") == 1


async def test_a_body_that_is_too_long_is_413_and_the_end() -> None:
    server = Server("small", limits=Limits(max_message=1000))
    async with serving(server) as place:
        peer = await place.connect()
        response = await peer.ask(body=b" " * 1001)
        assert response.status == 413
        await peer.eof()


async def test_a_refusal_comes_before_the_body() -> None:
    async with serving(make(), token="secret") as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        async with asyncio.timeout(10):
            data = await reader.read()
        writer.close()
        assert data.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"100 Continue" not in data


async def test_a_client_may_ask_before_it_sends_the_body() -> None:
    async with serving(make()) as place:
        body = message("tools/call", {**ADD, "_meta": META}, 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
            b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        async with asyncio.timeout(10):
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
            writer.write(body)
            assert b"HTTP/1.1 200 OK" in await reader.read()
        writer.close()


async def test_authenticate_is_asked_for_each_request() -> None:
    asked = []

    async def authenticate(request: object) -> str | bool:
        await asyncio.sleep(0)
        asked.append(request)
        token: str | None = request.token  # type: ignore[attr-defined]
        return token or False

    async with serving(make(), authenticate=authenticate) as place:
        peer = await place.connect()
        for token in ("anne", "bob"):
            response = await peer.modern(
                "tools/call", {"name": "who"}, authorization=f"Bearer {token}"
            )
            found = json.loads(response.json["result"]["content"][0]["text"])
            assert found["user"] == token
        response = await peer.modern("tools/call", {"name": "who"})
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert len(asked) == 3


async def test_a_shutdown_answers_what_is_in_progress() -> None:
    server = make()
    waiting = Waiting(server)
    async with serving(server) as place:
        peer, idle = await place.connect(), await place.connect()
        assert (await idle.modern("tools/call", ADD)).status == 200
        peer.send_modern("tools/call", {"name": "wait"})
        await waiting.started.wait()
        listener: Peer = await place.connect()
        listener.send_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        stream = await listener.head()
        await listener.until(stream, 1)
        asyncio.get_running_loop().call_later(0.05, waiting.go.set)
        os.kill(os.getpid(), signal.SIGTERM)
        await idle.eof()
        assert (await peer.response()).json["result"]["content"][0]["text"] == "went"
        while await listener.more(stream):
            pass
        assert "result" in stream.messages[-1]
