"""Clients of Streamable HTTP: what they send, and what they make of answers."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from lab.client import until
from lab.rows import every
from lab.web import Exchange, legacy, modern
from lab.wording import raises

from wirespeed import Client, Http, SyncClient
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
)
from wirespeed.limits import Limits

EVENTS = "text/event-stream"


async def test_headers_of_a_modern_request() -> None:
    async with modern() as peer, peer.client(token="t0ken", headers={"X-Key": "k"}) as client:
        await client.call_tool("echo", {"a": 1})
        await client.call_tool("größe")
        await client.list_tools()
        with pytest.raises(RemoteError):
            await client.read_resource("file:///a b")
        with pytest.raises(RemoteError):
            await client.request("tasks/get", {"taskId": "t 1 "})
    found = []
    for exchange in peer.exchanges:
        assert (exchange.method, exchange.target) == ("POST", "/mcp")
        assert exchange.headers["content-type"] == "application/json"
        assert exchange.headers["accept"] == f"application/json, {EVENTS}"
        assert exchange.headers["authorization"] == "Bearer t0ken"
        assert exchange.headers["x-key"] == "k"
        assert exchange.headers["mcp-protocol-version"] == "2026-07-28"
        assert exchange.headers["host"] == f"127.0.0.1:{peer.port}"
        assert "mcp-session-id" not in exchange.headers and "origin" not in exchange.headers
        assert exchange.headers["mcp-method"] == exchange.message["method"]
        found.append((exchange.message["method"], exchange.headers.get("mcp-name")))
    assert found == [
        ("server/discover", None),
        ("tools/call", "echo"),
        ("tools/call", "=?base64?Z3LDtsOfZQ==?="),
        ("tools/list", None),
        ("resources/read", "file:///a b"),
        ("tasks/get", "=?base64?dCAxIA==?="),
    ]


async def test_headers_of_a_legacy_session() -> None:
    async with legacy() as peer:
        async with peer.client(token="t0ken", era="legacy") as client:
            await client.call_tool("echo")
            await peer.got("GET")
        await peer.got("DELETE")
    for exchange in peer.exchanges:
        assert exchange.headers["authorization"] == "Bearer t0ken"
        assert "mcp-method" not in exchange.headers and "mcp-name" not in exchange.headers
        begins = exchange.message.get("method") == "initialize"
        version = None if begins else "2025-11-25"
        assert exchange.headers.get("mcp-protocol-version") == version
        assert exchange.headers.get("mcp-session-id") == (None if begins else "s-1")
    (get,) = peer.sent("GET")
    assert get.headers["accept"] == EVENTS and "last-event-id" not in get.headers
    assert "content-type" not in get.headers


async def test_many_calls_at_once() -> None:
    async def echo(exchange: Exchange, message: dict[str, Any]) -> None:
        await asyncio.sleep(0.01 * (message["id"] % 3))
        exchange.text(message["params"]["arguments"]["text"])

    async with modern(**{"tools/call": echo}) as peer, peer.client() as client:
        texts = [f"{i} ü" * 20 for i in range(100)]
        results = await asyncio.gather(*(client.call_tool("echo", {"text": t}) for t in texts))
    assert [result.content[0].text for result in results] == texts


async def test_a_response_as_events() -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.raw(": a comment\n\n")
        for i in (1, 2):
            token = message["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": i}
            exchange.event({"method": "notifications/progress", "params": params})
        exchange.event("not for us", event="other")
        exchange.answered("done")
        exchange.end()

    seen: list[float] = []
    async with modern(**{"tools/call": answer}) as peer, peer.client() as client:
        result = await client.call_tool("echo", on_progress=lambda done, *_: seen.append(done))
    assert result.content[0].text == "done"
    assert seen == [1.0, 2.0]


MARK = "\ufeff"


def marked(exchange: Exchange, message: Any, status: int = 200) -> None:
    """Answer with JSON behind a byte order mark."""
    message = {"jsonrpc": "2.0", "id": exchange.message["id"], **message}
    exchange.reply(status, MARK + json.dumps(message), content_type="application/json")


@pytest.mark.parametrize("era", [legacy, modern])
async def test_a_byte_order_mark_before_a_response(era: Any) -> None:
    async def as_json(exchange: Exchange, message: Any) -> None:
        result = {"content": [{"type": "text", "text": "a"}], "resultType": "complete"}
        marked(exchange, {"result": result})

    async def as_events(exchange: Exchange, message: Any) -> None:
        exchange.open()
        exchange.raw(MARK)
        exchange.answered("b")
        exchange.end()

    async def as_error(exchange: Exchange, message: Any) -> None:
        marked(exchange, {"error": {"code": -32603, "message": "c"}})

    async def as_status(exchange: Exchange, message: Any) -> None:
        marked(exchange, {"error": {"code": -32602, "message": "d"}}, 400)

    async def as_text(exchange: Exchange, message: Any) -> None:
        exchange.reply(403, f"{MARK}e", content_type="text/plain")

    async with era() as peer, peer.client() as client:
        for rule in (as_json, as_events, as_error, as_status, as_text):
            peer.rules[f"tools/call:{rule.__name__}"] = rule
        assert (await client.call_tool("as_json")).text == "a"
        assert (await client.call_tool("as_events")).text == "b"
        for name, code in (("as_error", -32603), ("as_status", -32602)):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool(name)
            assert caught.value.code == code
        with raises(HttpStatusError):
            await client.call_tool("as_text")


async def test_a_cancelled_modern_call_closes_its_response() -> None:
    async def wait(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        await exchange.gone

    async with modern(**{"tools/call:wait": wait}) as peer, peer.client() as client:
        calling = asyncio.ensure_future(client.call_tool("wait"))
        (exchange,) = await peer.got("tools/call")
        calling.cancel()
        await asyncio.wait_for(asyncio.shield(exchange.gone), 5)
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.5)
        await asyncio.wait_for(asyncio.shield(peer.sent("tools/call")[1].gone), 5)
        assert (await client.call_tool("echo")).content[0].text == "ok"
        assert not peer.sent("notifications/cancelled")


async def test_a_cancelled_legacy_call_is_told() -> None:
    async def wait(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        await exchange.gone

    async with legacy(**{"tools/call:wait": wait}) as peer, peer.client() as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.5)
        (told,) = await peer.got("notifications/cancelled")
        assert told.message["params"]["requestId"] == peer.sent("tools/call")[0].message["id"]
        await asyncio.wait_for(asyncio.shield(peer.sent("tools/call")[0].gone), 5)


async def test_no_message_overtakes_initialized() -> None:
    came: list[str] = []

    async def slow(exchange: Exchange, message: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)
        came.append("initialized")
        exchange.reply(202)

    async def listed(exchange: Exchange, message: dict[str, Any]) -> None:
        came.append("list")
        exchange.result({"tools": []})

    rules = {"notifications/initialized": slow, "tools/list": listed}
    async with legacy(**rules) as peer, peer.client(era="legacy") as client:
        await client.list_tools()
    assert came == ["initialized", "list"]


async def test_requests_of_a_legacy_server() -> None:
    async def ask(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event({"id": "q", "method": "roots/list"})
        (answer,) = await answered(exchange.message["id"])
        exchange.answered(answer["roots"][0]["uri"])
        exchange.end()

    async with legacy(**{"tools/call": ask}) as peer:

        async def answered(_: int) -> list[Any]:
            await until(lambda: any("result" in one.message for one in peer.exchanges))
            return [one.message["result"] for one in peer.exchanges if "result" in one.message]

        async with peer.client(roots=["file:///here"]) as client:
            result = await client.call_tool("ask")
    assert result.content[0].text == "file:///here"


# -- responses without a message ------------------------------------------------------------------


@every(
    ("status", "headers", "body", "text"),
    [
        (401, {}, "", "answered tools/call with 401 Unauthorized; Http(token=…) takes the"),
        (403, {"content_type": "text/plain"}, "not you\nat all", "403 Forbidden (not you)"),
        (404, {}, "", "404 Not Found; correct the path of the URL"),
        (500, {"content_type": "text/html"}, "<h1>no</h1>", "500 Internal Server Error"),
        (
            401,
            {"content_type": "application/json"},
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"who is t0ken?\\nno"}}',
            "401 Unauthorized (who is …?); Http(token=…) takes",
        ),
        (502, {"content_type": "text/plain"}, "t0ken failed", "502 Bad Gateway (… failed)"),
        (599, {}, "", "answered tools/call with 599"),
        (304, {}, "", "answered tools/call with 304 Not Modified"),
    ],
)
async def test_statuses_without_a_response(
    status: int, headers: dict[str, str], body: str, text: str
) -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(status, body, **headers)

    async with modern(**{"tools/call:no": answer}) as peer, peer.client(token="t0ken") as client:
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("no")
        assert caught.value.status == status
        assert text in str(caught.value)
        assert str(caught.value).startswith(f"{peer.url} answered ")
        assert "t0ken" not in str(caught.value) and "s3cret" not in str(caught.value)
        # the link goes on
        assert (await client.call_tool("echo")).content[0].text == "ok"


@pytest.mark.parametrize("answers_id", [True, False])
async def test_an_error_in_the_body_of_a_status(answers_id: bool) -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        if not answers_id:
            exchange.message = {"id": None}
        exchange.error(-32021, "no roots", 400)

    async with modern(**{"tools/call:no": answer}) as peer, peer.client() as client:
        with pytest.raises(RemoteError, match="no roots") as caught:
            await client.call_tool("no")
        assert caught.value.code == -32021


@pytest.mark.parametrize(
    ("status", "kind", "body", "text"),
    [
        (
            200,
            "text/html",
            "<p>hi</p>",
            "the answer to tools/call is not a JSON-RPC response (text/",
        ),
        (200, "application/json", "[]", "is not a JSON-RPC response (application/json)"),
        (200, "application/json", "", "is not a JSON-RPC response (application/json)"),
    ],
)
async def test_bodies_that_are_no_response(
    status: int, kind: str, body: str, text: str, caplog: Any
) -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(status, body, content_type=kind)

    async with modern(**{"tools/call:no": answer}) as peer, peer.client() as client:
        with pytest.raises(InvalidResponse) as caught:
            await client.call_tool("no")
        assert text in str(caught.value)
    caplog.clear()


async def test_202_is_no_response() -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(202)

    async with modern(**{"tools/call:no": answer}) as peer, peer.client() as client:
        with raises(HttpStatusError):
            await client.call_tool("no")


async def test_a_modern_response_that_breaks() -> None:
    async def broken(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="e-1")
        exchange.vanish()

    async def short(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="e-1")
        exchange.end()

    async def mute(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.vanish()

    rules = {"tools/call:broken": broken, "tools/call:short": short, "tools/call:mute": mute}
    async with modern(**rules) as peer, peer.client() as client:
        for name in ("broken", "short", "mute"):
            with pytest.raises(ConnectionLost, match=rf"^{peer.url}: "):
                await client.call_tool(name)
            # it may have been executed: it is not sent again
            assert len(peer.sent("tools/call")) == 1
            peer.exchanges.clear()
        assert (await client.call_tool("echo")).content[0].text == "ok"
        assert not peer.sent("GET")


async def test_a_server_that_is_not_there() -> None:
    async with modern() as peer:
        pass
    with raises(TransportError):
        async with peer.client():
            pass


# -- later, and elsewhere -------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_that_is_put_off(status: int) -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        if len(peer.sent("tools/call")) < 3:
            exchange.reply(status, retry_after="0")
        else:
            exchange.text("at last")

    async with modern(**{"tools/call": answer}) as peer, peer.client() as client:
        assert (await client.call_tool("echo")).content[0].text == "at last"
    first, *others = peer.sent("tools/call")
    assert [other.body for other in others] == [first.body] * 2


@pytest.mark.parametrize(
    ("after", "sent", "seconds"),
    [("0", 4, 0.0), ("31", 1, 31.0), ("soon", 1, None), ("", 1, None), ("-1", 1, None)],
)
async def test_a_call_is_put_off_within_bounds(
    after: str, sent: int, seconds: float | None
) -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(503, retry_after=after)

    async with modern(**{"tools/call": answer}) as peer, peer.client() as client:
        with raises(HttpStatusError) as caught:
            await client.call_tool("echo")
    assert caught.value.retry_after == seconds
    assert len(peer.sent("tools/call")) == sent


async def test_retry_after_is_waited_for() -> None:
    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        if len(peer.sent("tools/call")) == 1:
            exchange.reply(503, retry_after="1")
        else:
            exchange.text()

    async with modern(**{"tools/call": answer}) as peer, peer.client() as client:
        await client.call_tool("echo")
        one, two = peer.sent("tools/call")
        assert two.at - one.at >= 0.99
        # a call whose time is over is not sent again
        peer.exchanges.clear()
        with pytest.raises(CallTimeout):
            await client.call_tool("echo", timeout=0.5)
        await asyncio.sleep(1.1)
        assert len(peer.sent("tools/call")) == 1


async def test_a_redirect_within_the_origin() -> None:
    async def there(exchange: Exchange, message: dict[str, Any]) -> None:
        if exchange.target == "/mcp":
            exchange.reply(307, location="/mcp/?x=1")
        else:
            exchange.text()

    rules = {"tools/call": there}
    async with modern(**rules) as peer, peer.client() as client:
        await client.call_tool("echo")
        await client.call_tool("echo")
    targets = [exchange.target for exchange in peer.sent("tools/call")]
    assert targets == ["/mcp", "/mcp/?x=1", "/mcp/?x=1"]


@pytest.mark.parametrize("location", ["https://other/x?key=s3cret", "http://127.0.0.1:1/", "/x"])
async def test_redirects_that_are_not_followed(location: str) -> None:
    async def on(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(303 if location == "/x" else 307, location=location)

    async with modern(**{"tools/call": on}) as peer, peer.client() as client:
        with raises(TransportError) as caught:
            await client.call_tool("echo")
        assert "s3cret" not in str(caught.value)
    assert len(peer.sent("tools/call")) == 1


# -- the rest -------------------------------------------------------------------------------------


async def test_notifications_that_are_refused(caplog: Any) -> None:
    async def refused(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(500)

    async with legacy(**{"notifications/initialized": refused}) as peer:
        with caplog.at_level(logging.WARNING, "wirespeed.client"):
            async with peer.client(era="legacy") as client:
                assert (await client.call_tool("echo")).content[0].text == "ok"
    (record,) = [r for r in caplog.records if "did not take" in r.getMessage()]
    assert record.getMessage() == (
        f"{peer.url} did not take notifications/initialized: 500 Internal Server Error"
    )
    caplog.clear()


async def test_a_body_that_is_too_long() -> None:
    async def long(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.text("x" * 100_000)

    limits = Limits(max_message=50_000)
    async with modern(**{"tools/call:long": long}) as peer, peer.client(limits=limits) as client:
        with pytest.raises((TransportError, InvalidResponse)):
            await client.call_tool("long")
        assert (await client.call_tool("echo")).content[0].text == "ok"


async def test_credentials_in_the_clear(caplog: Any) -> None:
    client = Client(Http("http://192.0.2.1/mcp", token="t0ken", open_timeout=0.05))
    with caplog.at_level(logging.WARNING, "wirespeed.client"), pytest.raises(TransportError):
        await client.open()
    assert "http://192.0.2.1/mcp: credentials are sent without encryption" in caplog.text
    assert "(use https://)" in caplog.text and "t0ken" not in caplog.text
    caplog.clear()


async def test_the_proxy_of_the_environment(monkeypatch: Any) -> None:
    async with modern() as peer:
        monkeypatch.setenv("http_proxy", f"http://anne:s3cret@127.0.0.1:{peer.port}")
        async with Client("http://far.example/mcp?a=b") as client:
            await client.call_tool("echo")
        async with Client(peer.url) as client:  # this machine
            await client.call_tool("echo")
        monkeypatch.setenv("http_proxy", "socks5://anne:s3cret@127.0.0.1:1")
        with raises(TransportError):
            await Client("http://far.example/mcp").open()
    far, _, near, _ = peer.exchanges
    assert far.target == "http://far.example/mcp?a=b"
    assert far.headers["host"] == "far.example"
    assert far.headers["proxy-authorization"] == "Basic YW5uZTpzM2NyZXQ="
    assert near.target == "/mcp"
    assert "proxy-authorization" not in near.headers


async def test_a_blocking_client() -> None:
    async with modern() as peer:

        def call() -> str:
            with SyncClient(peer.url, headers={"X-Key": "k"}) as client:
                return client.call_tool("echo").content[0].text

        assert await asyncio.to_thread(call) == "ok"
        assert peer.sent("tools/call")[0].headers["x-key"] == "k"


def test_a_client_moves_to_another_loop() -> None:
    """The sockets of a closed loop are closed, too: a warning about one would fail this test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    serving = legacy()
    try:
        peer = there(serving.__aenter__())
        client = peer.client(era="legacy")

        async def call(opens: bool) -> str:
            if opens:
                await client.open()
            return (await client.call_tool("echo")).content[0].text

        assert asyncio.run(call(True)) == "ok"
        with raises(ConnectionClosed):
            asyncio.run(call(False))
        assert asyncio.run(call(True)) == "ok"
        assert len(peer.sent("initialize")) == 2
        asyncio.run(client.close())
        gc.collect()
        there(serving.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("streams", [True, False])
async def test_responses_in_a_batch(streams: bool) -> None:
    """2025-03-26 basic/transports: a server may answer with an array."""

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/message"}
        note["params"] = {"level": "info", "data": "both"}
        result = {"content": [{"type": "text", "text": "ok"}]}
        batch = [note, {"jsonrpc": "2.0", "id": message["id"], "result": result}]
        if streams:
            exchange.open()
            exchange.event(json.dumps(batch))
            exchange.end()
        else:
            exchange.json(batch)

    logs: list[Any] = []
    async with legacy(**{"tools/call": call}) as peer:
        result = {**peer.rules["initialize"], "protocolVersion": "2025-03-26"}  # type: ignore[dict-item]
        peer.rules["initialize"] = result
        async with peer.client(era="legacy", on_log=logs.append) as client:
            assert client.protocol_version == "2025-03-26"
            assert (await client.call_tool("echo")).content[0].text == "ok"
    assert [entry.data for entry in logs] == ["both"]
