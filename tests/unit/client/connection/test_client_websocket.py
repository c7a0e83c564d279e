"""The client over WebSocket, against a scripted server of `websockets`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from lab.client import Run, open_fds, until
from lab.peer import ERAS, LEGACY_PEER, MODERN_PEER, Rules, Talk, WebPeer, WebTalk, nothing, target
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, SyncClient, WebSocket
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    RemoteError,
    TransportError,
    UpgradeRefused,
)

pytestmark = pytest.mark.compiled

Message = dict[str, Any]


# -- opening ---------------------------------------------------------------------------------------


@ERAS
async def test_both_eras_are_found_out(rules: Rules) -> None:
    async with WebPeer(rules) as peer, Client(peer.url) as client:
        assert (await client.call_tool("echo")).text == "ok"
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        await client.ping()
        expected = "2025-11-25" if rules is LEGACY_PEER else "2026-07-28"
        assert client.protocol_version == expected
        assert len(peer.talks) == 1
        assert peer.talks[0].messages[0]["method"] == "server/discover"


async def test_an_era_that_is_known(era: Any) -> None:
    rules = LEGACY_PEER if era == "legacy" else MODERN_PEER
    async with WebPeer(rules) as peer, Client(peer.url, era=era) as client:
        assert (await client.call_tool("echo")).text == "ok"
        first = peer.talks[0].messages[0]["method"]
        assert first == ("initialize" if era == "legacy" else "server/discover")


async def test_a_legacy_server_that_hangs_up_on_the_probe() -> None:
    async def hang_up(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.close(1002, "what is this")

    rules = LEGACY_PEER | {"server/discover": hang_up}
    async with WebPeer(rules) as peer, Client(target(peer)) as client:
        assert client.protocol_version == "2025-11-25"
        assert [len(talk.sent("initialize")) for talk in peer.talks] == [0, 1]
        assert (await client.call_tool("echo")).text == "ok"


async def test_a_server_that_hangs_up_on_everything() -> None:
    async def hang_up(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.close(1011, "broken")

    rules: Rules = {"server/discover": hang_up, "initialize": hang_up}
    async with WebPeer(rules) as peer:
        with raises(ConnectionLost) as caught:
            await Client(target(peer, restart=5)).open()
        assert (caught.value.code, caught.value.reason) == (1011, "broken")
        assert len(peer.talks) == 2  # the probe is no reason for more than one further try


async def test_what_the_upgrade_asks_for() -> None:
    async with WebPeer(MODERN_PEER) as peer:
        peer.path = "/a%20b/mcp?key=1&x=%2F"
        where = target(
            peer, token="t0k.en~+/=", headers={"X-Key": "k", "Origin": "https://app.example"}
        )
        async with Client(where):
            talk = peer.talks[0]
            assert isinstance(talk, WebTalk) and talk.socket.request is not None
            assert talk.socket.request.path == "/a%20b/mcp?key=1&x=%2F"
            assert talk.headers["Authorization"] == "Bearer t0k.en~+/="
            assert talk.headers["X-Key"] == "k"
            assert talk.headers["Origin"] == "https://app.example"
            assert talk.headers["Host"] == f"127.0.0.1:{peer.port}"
            assert talk.headers["Sec-WebSocket-Protocol"] == "mcp"
            assert "Sec-WebSocket-Extensions" not in talk.headers
            assert talk.socket.subprotocol == "mcp"


async def test_compression_is_offered_where_it_is_asked_for() -> None:
    async def echo(talk: Talk, message: Message) -> None:
        await talk.text(message, message["params"]["arguments"]["text"])

    rules = MODERN_PEER | {"tools/call": echo}
    async with (
        WebPeer(rules, compression="deflate") as peer,
        Client(target(peer, compression=True)) as client,
    ):
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        assert "permessage-deflate" in talk.headers["Sec-WebSocket-Extensions"]
        for n in (1, 10, 100_000):
            before = dict(client.counters)
            assert (await client.call_tool("echo", {"text": "ä" * n})).text == "ä" * n
            for way in ("bytes_in", "bytes_out"):
                assert client.counters[way] - before[way] < 2000


async def test_a_server_that_selects_no_subprotocol() -> None:
    async with WebPeer(MODERN_PEER, subprotocols=None) as peer, Client(target(peer)) as client:
        assert (await client.call_tool("echo")).text == "ok"


async def test_a_server_that_selects_another_subprotocol() -> None:
    def other(connection: Any, request: Any, response: Any) -> None:
        del response.headers["Sec-WebSocket-Protocol"]
        response.headers["Sec-WebSocket-Protocol"] = "chat"

    async with WebPeer(MODERN_PEER, process_response=other) as peer:
        with raises(TransportError) as caught:
            await Client(target(peer)).open()
        assert not isinstance(caught.value, UpgradeRefused)


@every("status", [400, 401, 403, 404, 426, 503])
async def test_an_upgrade_that_is_refused(status: int) -> None:
    """It says nothing of eras, so nothing else is tried."""

    def refuse(connection: Any, request: Any) -> Any:
        peer.asked += 1
        return connection.respond(status, "you know why\n")

    peer = WebPeer(MODERN_PEER, process_request=refuse)
    async with peer:
        peer.path = "/mcp?key=s3cret"
        client = Client(target(peer, token="s3cret", headers={"X": "s3cret"}, restart=5))
        with pytest.raises(UpgradeRefused, match=f"refused the WebSocket: {status}") as caught:
            await client.open()
        assert caught.value.status == status
        remedy = {401: "WebSocket(token=…) takes the server's token", 404: "correct the path"}
        assert f"{status} you know why" in str(caught.value)
        assert remedy.get(status, "") in str(caught.value)
        assert "s3cret" not in str(caught.value)
        assert peer.asked == 1
        with raises(ConnectionClosed):
            await client.call_tool("echo")


async def test_nobody_listens() -> None:
    async with WebPeer(MODERN_PEER) as peer:
        pass
    before = open_fds()
    for _ in range(3):
        with pytest.raises(TransportError, match=f"127.0.0.1:{peer.port}.*connection refused"):
            await Client(target(peer)).open()
    assert open_fds() == before


async def test_a_server_that_never_answers_the_upgrade() -> None:
    async def never(connection: Any, request: Any) -> None:
        await connection.wait_closed()

    async with WebPeer(MODERN_PEER, process_request=never) as peer:
        before = open_fds()
        with raises(TransportError):
            await Client(target(peer, open_timeout=0.05)).open()
        await until(lambda: open_fds() == before)


async def test_opening_is_given_up() -> None:
    """By the caller, or by `close`: the socket goes with it."""
    asked = asyncio.Event()

    async def never(connection: Any, request: Any) -> None:
        asked.set()
        await connection.wait_closed()

    async with WebPeer(MODERN_PEER, process_request=never) as peer:
        client = Client(target(peer))
        opening = asyncio.create_task(client.open())
        await asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        asked.clear()
        opening = asyncio.create_task(client.open())
        await asked.wait()
        await client.close()
        with raises(ConnectionClosed):
            await opening


async def test_what_answers_is_no_websocket_server() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"220 mail.example ESMTP\r\n\r\n")
            await reader.read()
        finally:  # the loop may end first
            writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with raises(TransportError):
        await Client(f"ws://127.0.0.1:{port}").open()
    server.close()


def test_credentials_in_the_clear_are_warned_of_once(
    once: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebSocket, "exposed", True)

    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            for _ in range(3):
                async with Client(target(peer, token="s3cret")):
                    pass

    with caplog.at_level(logging.WARNING):
        once(main())
    told = [r.getMessage() for r in caplog.records if "without encryption" in r.getMessage()]
    assert len(told) == 1 and "s3cret" not in caplog.text


# -- calls -----------------------------------------------------------------------------------------


@ERAS
async def test_many_calls_at_once_each_get_their_own_answer(rules: Rules) -> None:
    waiting: list[Message] = []

    async def collect(talk: Talk, message: Message) -> None:
        waiting.append(message)
        if len(waiting) == 100:
            for one in reversed(waiting):
                await talk.text(one, one["params"]["arguments"]["n"])

    async with WebPeer(rules | {"tools/call": collect}) as peer, Client(target(peer)) as client:
        got = await asyncio.gather(*(client.call_tool("x", {"n": str(n)}) for n in range(100)))
        assert [result.text for result in got] == [str(n) for n in range(100)]
        assert len({message["id"] for message in waiting}) == 100


@pytest.mark.parametrize("n", [0, 125, 126, 65535, 65536, 300_000])
async def test_messages_of_every_length_form(once: Run, n: int) -> None:
    async def echo(talk: Talk, message: Message) -> None:
        await talk.text(message, message["params"]["arguments"]["text"])

    async with WebPeer(MODERN_PEER | {"tools/call": echo}) as peer, Client(target(peer)) as client:
        assert (await client.call_tool("echo", {"text": "x" * n})).text == "x" * n


async def test_an_answer_in_fragments_with_pings_between() -> None:
    async def pieces(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)

        async def parts() -> Any:
            head = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":'
            yield head
            pong = await talk.socket.ping()
            yield '{"content":[{"type":"text","text":"ä'
            await pong
            yield '"}],"resultType":"complete"}}'

        await talk.socket.send(parts())

    async with (
        WebPeer(MODERN_PEER | {"tools/call": pieces}) as peer,
        Client(target(peer)) as client,
    ):
        assert (await client.call_tool("x")).text == "ä"


@ERAS
async def test_progress(rules: Rules) -> None:
    async def work(talk: Talk, message: Message) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for n in (1, 2):
            params = {"progressToken": token, "progress": n, "total": 2, "message": f"step {n}"}
            await talk.send(method="notifications/progress", params=params)
        await talk.text(message, "done")

    seen: list[Any] = []
    async with WebPeer(rules | {"tools/call": work}) as peer, Client(target(peer)) as client:
        result = await client.call_tool("x", on_progress=lambda *step: seen.append(step))
        assert result.text == "done"
    assert seen == [(1, 2, "step 1"), (2, 2, "step 2")]


@ERAS
async def test_a_cancelled_call_is_cancelled_on_the_server(rules: Rules) -> None:
    async with (
        WebPeer(rules | {"tools/call:wait": nothing}) as peer,
        Client(target(peer)) as client,
    ):
        call = asyncio.create_task(client.call_tool("wait"))
        [asked] = await peer.got("tools/call")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        [told] = await peer.got("notifications/cancelled")
        assert told["params"]["requestId"] == asked["id"]
        assert (await client.call_tool("echo")).text == "ok"


@ERAS
async def test_a_call_that_takes_too_long(rules: Rules) -> None:
    async with (
        WebPeer(rules | {"tools/call:wait": nothing}) as peer,
        Client(target(peer)) as client,
    ):
        with raises(CallTimeout):
            await client.call_tool("wait", timeout=0.02)
        [told] = await peer.got("notifications/cancelled")
        assert told["params"]["reason"] == "timed out"
        assert (await client.call_tool("echo")).text == "ok"


async def test_a_ping_of_a_legacy_server_is_answered() -> None:
    async with WebPeer(LEGACY_PEER) as peer, Client(target(peer)):
        talk = peer.talks[0]
        await talk.send(id="p", method="ping")
        await until(lambda: any(m.get("id") == "p" for m in talk.messages))
        assert talk.messages[-1] == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_what_is_no_message_is_skipped(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A text that is not JSON leaves the connection alone."""

    async def noise(talk: Talk, message: Message) -> None:
        await talk.write("not json")
        await talk.write(" \n")
        await talk.write('{"jsonrpc":"2.0","id":77,"result":{}}')
        await talk.text(message, "after all")

    async def main() -> None:
        rules = MODERN_PEER | {"tools/call": noise}
        async with WebPeer(rules) as peer, Client(target(peer)) as client:
            assert (await client.call_tool("x")).text == "after all"
            assert len(peer.talks) == 1

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "skipped a line that is not a JSON-RPC message" in caplog.text


async def test_an_error_answer(once: Run) -> None:
    rules = MODERN_PEER | {"tools/call": (-32602, "no such tool")}
    async with WebPeer(rules) as peer, Client(target(peer)) as client:
        with pytest.raises(RemoteError, match="no such tool"):
            await client.call_tool("x")


async def test_the_blocking_client(once: Run) -> None:
    """In threads, since the server runs in this one."""

    def work(url: str) -> list[str]:
        with SyncClient(WebSocket(url, token="t")) as client:
            return [client.call_tool("echo").text or "", client.protocol_version]

    async with WebPeer(MODERN_PEER) as peer:
        got = await asyncio.gather(*(asyncio.to_thread(work, peer.url) for _ in range(3)))
        assert got == [["ok", "2026-07-28"]] * 3
        for talk in peer.talks:
            assert await talk.ended is None  # closed in order


@pytest.mark.parametrize("long", ["by its length", "in chunks", "to the end", "cut"])
async def test_a_refusal_with_a_long_body(long: str) -> None:
    head = b"HTTP/1.1 500 Out of Order\r\nContent-Type: text/html\r\n"
    body = b"x" * 2_000_000
    if long == "by its length":
        head += b"Content-Length: 2000000\r\n"
    elif long == "cut":
        head += b"Content-Length: 9000000\r\n"
        body = b"short"
    elif long == "in chunks":
        head += b"Transfer-Encoding: chunked\r\n"
        body = b"1e8480\r\n" + body + b"\r\n0\r\n\r\n"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + b"\r\n" + body)
            await writer.drain()
        except OSError:
            pass
        finally:  # the loop may end first
            writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with raises(UpgradeRefused) as caught:
        await Client(f"ws://127.0.0.1:{port}/").open()
    assert caught.value.status == 500
    server.close()
    await server.wait_closed()
