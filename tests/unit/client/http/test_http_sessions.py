"""Sessions of legacy servers over HTTP: their stream, their end, and responses that are resumed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from lab.client import text_result, until
from lab.web import Exchange, legacy, modern
from lab.wording import raises

from wirespeed.client.connection.connection import ClientConnection
from wirespeed.client.http import exchanges
from wirespeed.errors import CallTimeout, ConnectionLost, HttpStatusError, WirespeedError
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.types import Accept, ElicitParams, ResourceUpdated, Resumed, ToolsChanged

OFTEN = 10  # more often than a server is tried that does not say when


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again soon, where the server has not said when."""
    monkeypatch.setattr(exchanges, "RETRY", 0.01)


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


# -- the stream of a session ----------------------------------------------------------------------


async def test_the_stream_of_the_session() -> None:
    changed = asyncio.Event()
    opened: list[Exchange] = []

    async def get(exchange: Exchange) -> None:
        opened.append(exchange)
        exchange.open()
        if len(opened) == 1:
            exchange.event(note("notifications/message", level="info", data="one"), id="e-1")
        elif len(opened) == 2:
            exchange.event(id="e-2", retry=30)
            exchange.end()
            peer.get = busy
            return
        else:
            exchange.event(note("notifications/tools/list_changed"))
            await exchange.gone
            return
        exchange.end()

    async def busy(exchange: Exchange) -> None:
        exchange.reply(502)
        peer.get = get

    async with legacy() as peer:
        peer.get = get
        logs: list[Any] = []
        client = peer.client(on_log=logs.append, on_tools_changed=lambda tools: changed.set())
        async with client:
            await asyncio.wait_for(changed.wait(), 5)
            assert [entry.data for entry in logs] == ["one"]
    ids = [exchange.headers.get("last-event-id") for exchange in opened]
    assert ids == [None, "e-1", "e-2"]
    assert peer.sent("GET")[2].at - opened[1].at >= 0.029
    assert all(exchange.headers["mcp-session-id"] == "s-1" for exchange in opened)


@pytest.mark.parametrize("status", [405, 404, 400, 500])
async def test_a_server_without_such_a_stream(status: int) -> None:
    async def get(exchange: Exchange) -> None:
        exchange.reply(status)

    async with legacy(None) as peer:
        peer.get = get
        async with peer.client(era="legacy") as client:
            await peer.got("GET")
            assert (await client.call_tool("echo")).content[0].text == "ok"
            await asyncio.sleep(0.05)
    assert len(peer.sent("GET")) == 1


async def test_closing_ends_the_session() -> None:
    async def get(exchange: Exchange) -> None:
        exchange.open()
        await exchange.gone

    async with legacy() as peer:
        peer.get = get
        async with peer.client(era="legacy"):
            (stream,) = await peer.got("GET")
        await asyncio.wait_for(asyncio.shield(stream.gone), 5)
        (ended,) = peer.sent("DELETE")
        assert ended.headers["mcp-session-id"] == "s-1"


async def test_a_server_that_does_not_end_the_session() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.gone

    async with legacy() as peer:
        peer.delete = never
        loop = asyncio.get_running_loop()
        async with peer.client(era="legacy", close_timeout=0.1):
            began = loop.time()
        assert loop.time() - began < 2


async def test_a_session_id_that_no_header_can_have(caplog: Any) -> None:
    async with legacy("s 1") as peer:
        peer.session, session = None, peer.session

        async def initialize(exchange: Exchange, message: dict[str, Any]) -> None:
            exchange.result(result, mcp_session_id=session)

        result = peer.rules["initialize"]
        peer.rules["initialize"] = initialize
        with caplog.at_level(logging.WARNING, "wirespeed.client"):
            async with peer.client(era="legacy") as client:
                await client.call_tool("echo")
    assert "its session id is not visible ASCII, and is not used" in caplog.text
    assert all("mcp-session-id" not in one.headers for one in peer.exchanges)
    caplog.clear()


# -- a lost session -------------------------------------------------------------------------------


async def test_a_lost_session_is_replaced(caplog: Any) -> None:
    async with legacy() as peer, peer.client(era="legacy", log_level="warning") as client:
        await client.call_tool("echo")
        await peer.got("GET")  # else this meets the end of the session before the call does
        peer.session = "s-2"
        # the call was not executed: it is sent again in another session
        assert (await client.call_tool("echo")).content[0].text == "ok"
        text = f"{peer.url}: the server ended the session (404 Not Found): what it held is lost"
        assert text in caplog.text
        assert [one.headers["mcp-session-id"] for one in peer.sent("tools/call")] == [
            "s-1",
            "s-1",
            "s-2",
        ]
        _, second = peer.sent("initialize")
        assert "mcp-session-id" not in second.headers
        assert not peer.sent("server/discover")
        levels = await peer.got("logging/setLevel", 2)
        assert [one.headers["mcp-session-id"] for one in levels] == ["s-1", "s-2"]
        assert not peer.sent("DELETE")
    assert [one.headers["mcp-session-id"] for one in peer.sent("DELETE")] == ["s-2"]
    caplog.clear()


async def test_subscriptions_outlive_a_session(caplog: Any) -> None:
    streams: list[Exchange] = []

    async def get(exchange: Exchange) -> None:
        if exchange.headers["mcp-session-id"] != peer.session:
            exchange.reply(404)
            return
        streams.append(exchange)
        exchange.open()
        await exchange.gone

    def subscribing(result: Any) -> Any:
        result["capabilities"]["resources"] = {"subscribe": True}
        return result

    async with legacy(**{"resources/subscribe": {}}) as peer:
        peer.get = get
        peer.rules["initialize"] = subscribing({**peer.rules["initialize"]})  # type: ignore[dict-item]
        client = peer.client(era="legacy")
        async with client, client.subscribe(tools=True, uris=["file:///a"]) as events:
            await until(lambda: len(streams) == 1)
            peer.session = "s-2"
            streams[0].end()  # found out by the GET that follows
            assert await events.next_event(5) == Resumed()
            await until(lambda: len(streams) == 2)
            streams[1].event(note("notifications/tools/list_changed"))
            streams[1].event(note("notifications/resources/updated", uri="file:///a"))
            assert await events.next_event(5) == ToolsChanged()
            assert await events.next_event(5) == ResourceUpdated("file:///a")
        sent = [one.headers["mcp-session-id"] for one in peer.sent("resources/subscribe")]
        assert sent == ["s-1", "s-2"]
    caplog.clear()


async def test_a_session_that_ends_before_an_answer_to_its_question(caplog: Any) -> None:
    """The request that asked cannot be answered, so it is not waited for."""

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        peer.session = "s-2"
        asked = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        exchange.open()
        exchange.event({"id": 1, "method": "elicitation/create", "params": asked})
        await exchange.gone

    async def accept(_: ElicitParams) -> Accept:
        return Accept({})

    async with (
        legacy(**{"tools/call": call}) as peer,
        peer.client(era="legacy", on_elicit=accept) as client,
    ):
        with raises(ConnectionLost):
            await client.call_tool("echo")
    caplog.clear()


@pytest.mark.parametrize("restart", [0, 1])
async def test_restart_of_sessions(restart: int, caplog: Any) -> None:
    async with legacy() as peer, peer.client(era="legacy", restart=restart) as client:
        await peer.got("GET")  # else this meets the end of the session before the call does
        peer.session = "s-2"
        if restart:
            assert (await client.call_tool("echo")).content[0].text == "ok"
        else:
            for _ in range(2):
                with raises(ConnectionLost):
                    await client.call_tool("echo")
    assert len(peer.sent("initialize")) == 1 + restart
    caplog.clear()


async def test_a_call_is_sent_again_once(caplog: Any) -> None:
    """A server that ends each session at its first call does not get that call for ever."""

    async def lost(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(404)

    async with legacy() as peer, peer.client(era="legacy") as client:
        peer.rules["tools/call"] = peer.rules["tools/list"] = lost
        with raises(ConnectionLost):
            await client.call_tool("echo")
        assert len(peer.sent("tools/call")) == 2
        with raises(ConnectionLost):
            await client.list_tools()
        assert len(peer.sent("tools/list")) == 2
    caplog.clear()


async def test_an_unknown_session_may_be_a_bad_request(caplog: Any) -> None:
    async def lost(exchange: Exchange, message: dict[str, Any]) -> None:
        error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
        peer.rules["tools/call"] = text_result()
        exchange.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)

    async with legacy() as peer, peer.client(era="legacy") as client:
        peer.rules["tools/call"] = lost
        assert (await client.call_tool("echo")).content[0].text == "ok"
        assert "ended the session (400 Bad Request)" in caplog.text
    caplog.clear()


async def test_404_without_a_session_is_a_wrong_path() -> None:
    async def lost(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(404)

    async with legacy(None) as peer, peer.client(era="legacy") as client:
        peer.rules["tools/call"] = lost
        with pytest.raises(HttpStatusError, match="404 Not Found"):
            await client.call_tool("echo")
    assert len(peer.sent("initialize")) == 1


# -- resumption -----------------------------------------------------------------------------------


async def test_a_response_goes_on_where_it_broke_after_the_retry_time(caplog: Any) -> None:
    seen: list[float] = []
    resumed: list[Exchange] = []

    def progress(exchange: Exchange, n: int) -> dict[str, Any]:
        token = exchange.message["params"]["_meta"]["progressToken"]
        return note("notifications/progress", progressToken=token, progress=n)

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event("", id="s-0", retry=60)
        exchange.event(progress(exchange, 1), id="s-1")
        exchange.vanish()

    async def get(exchange: Exchange) -> None:
        if "last-event-id" not in exchange.headers:
            exchange.reply(405)
            return
        resumed.append(exchange)
        exchange.open()
        (post,) = peer.sent("tools/call")
        if len(resumed) == 1:
            exchange.event(progress(post, 2), id="s-2")
            exchange.end()
            return
        result = {"id": post.message["id"], "result": text_result("whole")}
        exchange.event(result, id="s-3")
        await exchange.gone

    async with legacy(**{"tools/call": call}) as peer:
        peer.get = get
        async with peer.client(era="legacy") as client:
            result = await client.call_tool("echo", on_progress=lambda done, *_: seen.append(done))
            assert result.content[0].text == "whole"
            # the stream is not needed any longer
            await asyncio.wait_for(asyncio.shield(resumed[1].gone), 5)
    assert seen == [1.0, 2.0]
    assert "not a JSON-RPC message" not in caplog.text  # the priming event has no data
    assert [one.headers["last-event-id"] for one in resumed] == ["s-1", "s-2"]
    first = peer.sent("tools/call")[0]
    assert resumed[0].at - first.at >= 0.059
    assert resumed[1].at - resumed[0].at >= 0.059
    assert len(peer.sent("tools/call")) == 1


async def test_a_link_that_a_callback_closes_while_a_response_goes_on(
    connections: list[ClientConnection],
) -> None:
    """The stream on which the event came is used once more after the callback."""

    def close(done: float, *_: Any) -> None:
        if done == 2:
            assert connections[-1].link is not None
            connections[-1].link.close()

    def progress(post: Exchange, n: int) -> dict[str, Any]:
        token = post.message["params"]["_meta"]["progressToken"]
        return note("notifications/progress", progressToken=token, progress=n)

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(progress(exchange, 1), id="s-1", retry=10)
        exchange.vanish()

    async def get(exchange: Exchange) -> None:
        if "last-event-id" not in exchange.headers:
            exchange.reply(405)
            return
        exchange.open()
        exchange.event(progress(peer.sent("tools/call")[0], 2), id="s-2")
        await exchange.gone

    async with legacy(**{"tools/call": call}) as peer:
        peer.get = get
        async with peer.client(era="legacy", restart=0) as client:
            with pytest.raises(WirespeedError):
                await asyncio.wait_for(client.call_tool("echo", on_progress=close), 5)


@pytest.mark.parametrize("status", [400, 405, 410])
async def test_a_response_that_cannot_be_resumed(status: int) -> None:
    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="s-0")
        exchange.end()

    async def get(exchange: Exchange) -> None:
        exchange.reply(status)

    async with legacy(**{"tools/call": call}) as peer:
        peer.get = get
        async with peer.client(era="legacy") as client:
            with raises(HttpStatusError):
                await client.call_tool("echo")


async def test_a_response_whose_session_is_gone() -> None:
    """The GET that was to bring the rest is answered with 404: the call fails, at once."""

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="s-0", retry=20)
        exchange.end()

    async def get(exchange: Exchange) -> None:
        exchange.reply(404 if "last-event-id" in exchange.headers else 405)

    async with legacy(**{"tools/call": call}) as peer:
        peer.get = get
        async with peer.client(era="legacy") as client:
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(client.call_tool("echo"), 20)


async def test_attempts_to_resume_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "MAX_RETRY", 0.01)

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="s-0")
        exchange.end()

    async def get(exchange: Exchange) -> None:
        if "last-event-id" in exchange.headers:
            exchange.open()
            exchange.end()
        else:
            exchange.reply(405)

    async with legacy(**{"tools/call": call}) as peer:
        peer.get = get
        async with peer.client(era="legacy") as client:
            with raises(ConnectionLost):
                await client.call_tool("echo")
            n = len(peer.sent("GET"))
            await asyncio.sleep(0.1)
            assert len(peer.sent("GET")) == n == 1 + exchanges.MAX_FAILURES + 1


@pytest.mark.parametrize("later", ["0", "999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_server_that_says_when_to_come_back(
    monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """It is asked again then, as often as that takes: for the stream of the session, for the rest
    of a response, and with the answer to a question. Years are the longest pause."""
    monkeypatch.setattr(exchanges, "MAX_RETRY", 0.01)
    n_answers = n_gets = n_streams = 0

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        asked = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        exchange.open()
        exchange.event({"id": 1, "method": "elicitation/create", "params": asked}, id="s-0")
        exchange.end()

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        nonlocal n_answers
        n_answers += 1
        if n_answers < OFTEN:
            exchange.reply(503, retry_after=later)
        else:
            exchange.reply(202)

    async def get(exchange: Exchange) -> None:
        nonlocal n_gets, n_streams
        if "last-event-id" not in exchange.headers:
            n_streams += 1
            exchange.reply(503, retry_after=later)
            return
        n_gets += 1
        if n_gets < OFTEN or n_answers < OFTEN:
            exchange.reply(503, retry_after=later)
        else:
            (asked,) = peer.sent("tools/call")
            exchange.open()
            exchange.event({"id": asked.message["id"], "result": {"content": []}})
            exchange.end()

    async def accept(_: ElicitParams) -> Accept:
        return Accept({})

    async with legacy(**{"tools/call": call, "": answer}) as peer:
        peer.get = get
        async with peer.client(era="legacy", on_elicit=accept) as client:
            assert not (await client.call_tool("echo")).content
            await until(lambda: n_streams >= OFTEN)


async def test_an_answer_that_is_put_off_does_not_hold_up_the_end() -> None:
    """The client closes: it ends its session at once."""
    put_off = asyncio.Event()

    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        asked = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        exchange.open()
        exchange.event({"id": 1, "method": "elicitation/create", "params": asked})
        await exchange.gone

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(503, retry_after="20")
        put_off.set()

    async def accept(_: ElicitParams) -> Accept:
        return Accept({})

    async with legacy(**{"tools/call": call, "": answer}) as peer:
        async with peer.client(era="legacy", on_elicit=accept) as client:
            calling = asyncio.ensure_future(client.call_tool("echo"))
            await put_off.wait()
            await asyncio.sleep(0.05)  # the client has read it
        assert len(peer.sent("DELETE")) == 1
        with raises(WirespeedError):
            await calling


async def test_a_cancelled_call_is_not_resumed() -> None:
    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        exchange.event(id="s-0", retry=100)
        exchange.end()

    async with legacy(**{"tools/call": call}) as peer, peer.client(era="legacy") as client:
        await peer.got("GET")
        calling = asyncio.ensure_future(client.call_tool("echo"))
        await peer.got("tools/call")
        await asyncio.sleep(0.02)
        calling.cancel()
        await peer.got("notifications/cancelled")
        await asyncio.sleep(0.15)
        assert len(peer.sent("GET")) == 1


# -- subscriptions of 2026-07-28 ------------------------------------------------------------------


async def test_a_subscription_is_made_again_with_a_new_id(caplog: Any) -> None:
    async def listen(exchange: Exchange, message: dict[str, Any]) -> None:
        tag = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        exchange.open()
        exchange.event(
            note(
                "notifications/subscriptions/acknowledged",
                notifications=message["params"]["notifications"],
                _meta=tag,
            )
        )
        if len(peer.sent("subscriptions/listen")) == 1:
            exchange.vanish()
        else:
            exchange.event(note("notifications/tools/list_changed", _meta=tag))
            await exchange.gone

    async with modern(**{"subscriptions/listen": listen}) as peer, peer.client() as client:
        async with client.subscribe(tools=True) as events:
            assert await events.next_event(5) == Resumed()
            assert await events.next_event(5) == ToolsChanged()
            # other calls are not disturbed
            assert (await client.call_tool("echo")).content[0].text == "ok"
            first, second = peer.sent("subscriptions/listen")
            assert first.message["id"] != second.message["id"]
        await asyncio.wait_for(asyncio.shield(second.gone), 5)
    assert not peer.sent("notifications/cancelled")
    assert "the client subscribes again" in caplog.text
    caplog.clear()


async def test_a_subscription_that_breaks_again_and_again(caplog: Any) -> None:
    async def listen(exchange: Exchange, message: dict[str, Any]) -> None:
        if len(peer.sent("subscriptions/listen")) > 1:
            exchange.reply(502)
            return
        exchange.open()
        exchange.event(
            note(
                "notifications/subscriptions/acknowledged",
                notifications=message["params"]["notifications"],
                _meta={"io.modelcontextprotocol/subscriptionId": message["id"]},
            )
        )
        exchange.end()

    rules = {"subscriptions/listen": listen}
    async with modern(**rules) as peer, peer.client(restart=2) as client:
        async with client.subscribe(tools=True) as events:
            with raises(HttpStatusError):
                await events.next_event(5)
        assert len(peer.sent("subscriptions/listen")) == 3
        assert (await client.call_tool("echo")).content[0].text == "ok"
    caplog.clear()


# -- limits ---------------------------------------------------------------------------------------


async def test_answers_do_not_wait_for_a_connection() -> None:
    """Every connection has a call, and every call waits for an answer of the client."""

    async def stream(exchange: Exchange) -> None:
        exchange.open()
        await exchange.gone

    async def ask(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        key = f"q{message['id']}"
        exchange.event({"id": key, "method": "roots/list"})
        await until(lambda: any(one.message.get("id") == key for one in peer.exchanges))
        exchange.answered(key)
        exchange.end()

    async with legacy(**{"tools/call": ask}) as peer:
        peer.get = stream
        client = peer.client(era="legacy", roots=["file:///here"], max_connections=3)
        async with client:
            await peer.got("GET")
            results = await asyncio.gather(*(client.call_tool("ask") for _ in range(6)))
    assert len({result.content[0].text for result in results}) == 6


async def test_a_server_that_asks_without_end() -> None:
    """The client reads no more of the stream than its limits allow, and goes on afterwards."""
    release = asyncio.Event()
    sent = 0
    total = 20_000

    async def stream(exchange: Exchange) -> None:
        nonlocal sent
        exchange.open()
        for n in range(total):
            exchange.event({"id": n, "method": "roots/list", "params": {"pad": "x" * 1000}})
            await exchange.flushed()
            sent += 1
        await exchange.gone

    async def roots() -> list[str]:
        await release.wait()
        return []

    limits = Limits(max_in_flight=4, max_waiting=10)
    async with legacy() as peer:
        peer.get = stream
        async with peer.client(era="legacy", roots=roots, limits=limits):
            await until(lambda: sent)
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
            assert 0 < sent < total
            release.set()
            await until(lambda: sent > before + 1000)


async def test_a_response_that_breaks_while_the_client_does_not_read() -> None:
    """The server takes no more answers, so the client reads no more requests. The call whose
    response breaks meanwhile fails at once, not at its time limit."""
    broken = asyncio.Event()
    sent = 0

    async def stream(exchange: Exchange) -> None:
        nonlocal sent
        exchange.open()
        while not exchange.gone.done():
            exchange.event({"id": sent, "method": "ping", "params": {"pad": "x" * 1000}})
            await exchange.flushed()
            sent += 1

    async def hold(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.gone

    async def slow(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        await broken.wait()
        exchange.vanish()

    limits = Limits(max_in_flight=1, max_waiting=1, output_high=1000, output_low=100)
    async with legacy(**{"tools/call": slow, "": hold}) as peer:
        peer.get = stream
        client = peer.client(era="legacy", limits=limits, timeout=60.0, close_timeout=0.1)
        async with client:
            call = asyncio.ensure_future(client.call_tool("slow"))
            await peer.got("tools/call")
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
            broken.set()
            with pytest.raises(ConnectionLost):
                async with asyncio.timeout(10):
                    await call


async def test_notices_of_open_requests_after_a_session(caplog: Any) -> None:
    """A request that is sent again leaves its old id to a request of the next session."""
    opened: dict[str, tuple[Exchange, Any]] = {}
    seen: dict[str, list[int]] = {"a": [], "b": []}

    async def watch(exchange: Exchange, message: dict[str, Any]) -> None:
        if exchange.headers["mcp-session-id"] != peer.session:
            exchange.reply(404)
            return
        exchange.open()
        opened[message["params"]["k"]] = exchange, message["id"]
        await exchange.gone

    def say(k: str, n: int) -> None:
        exchange, id = opened[k]
        exchange.event(note("notifications/e/x", n=n, _meta={META_SUBSCRIPTION_ID: id}))

    async with legacy() as peer, peer.client(era="legacy") as client:
        peer.rules["e/watch"] = watch

        def ask(k: str) -> asyncio.Task[Any]:
            return asyncio.create_task(
                client.request(
                    "e/watch",
                    {"k": k},
                    timeout=None,
                    on_notice=lambda _, said: seen[k].append(said["n"]),
                )
            )

        held = ask("c")  # so that its id is not free for the next one
        await until(lambda: "c" in opened)
        peer.session = "s-2"
        first = ask("a")
        await until(lambda: "a" in opened)
        second = ask("b")
        await until(lambda: "b" in opened)
        (gone,) = [
            one.message for one in peer.sent("e/watch") if one.message["params"]["k"] == "a"
        ][:-1]
        assert opened["b"][1] == gone["id"]  # else the test shows nothing
        say("b", 1)
        await until(lambda: seen["b"] == [1])
        exchange, id = opened["a"]
        exchange.event({"id": id, "result": {}})
        await first
        say("b", 2)
        await until(lambda: seen["b"] == [1, 2])
        assert seen["a"] == []
        for one in (held, second):
            one.cancel()
        await asyncio.gather(held, second, return_exceptions=True)
    caplog.clear()


# -- what the server waits for ---------------------------------------------------------------------


async def test_an_answer_and_a_cancellation_that_are_lost_are_sent_again() -> None:
    """Nobody else does: the server would wait for them, and the call for the server."""
    asked: list[Exchange] = []

    async def ask(exchange: Exchange, message: dict[str, Any]) -> None:
        asked.append(exchange)
        exchange.open()
        question = {"message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
        exchange.event({"id": "q-1", "method": "elicitation/create", "params": question})
        await exchange.gone

    async def take(exchange: Exchange, message: dict[str, Any]) -> None:
        posts = [one for one in peer.exchanges if one.body == exchange.body]
        if len(posts) == 1:
            exchange.reply(502)
        elif len(posts) == 2:
            exchange.vanish()
        else:
            exchange.reply(202)
            if message.get("id") == "q-1":
                asked[0].answered("seven")

    async def on_elicit(asked: Any) -> Any:
        return {}

    async def wait(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.open()
        await exchange.gone

    rules = {"tools/call:ask": ask, "tools/call:wait": wait, "": take}
    async with (
        legacy(**rules, **{"notifications/cancelled": take}) as peer,
        peer.client(era="legacy", on_elicit=on_elicit) as client,
    ):
        assert (await client.call_tool("ask")).text == "seven"
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.05)
        await peer.got("notifications/cancelled", 3)
