"""The client over WebSocket, against a scripted server of `websockets`."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from client_lab import Run, open_fds, turns, until
from peer_lab import LEGACY_PEER, MODERN_PEER, Rules, Talk, WebPeer, WebTalk, nothing
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from wirespeed import Client, SyncClient, WebSocket
from wirespeed.client import network
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    InvalidResponse,
    RemoteError,
    TransportError,
    UpgradeRefused,
)
from wirespeed.limits import Limits

Message = dict[str, Any]

ERAS = pytest.mark.parametrize("rules", [LEGACY_PEER, MODERN_PEER], ids=["legacy", "modern"])


def target(peer: WebPeer, **options: Any) -> WebSocket:
    options.setdefault("restart", 0)
    return WebSocket(peer.url, **options)


# -- opening ---------------------------------------------------------------------------------------


@ERAS
def test_both_eras_are_found_out(run: Run, rules: Rules) -> None:
    async def main() -> None:
        async with WebPeer(rules) as peer, Client(peer.url) as client:
            assert (await client.call_tool("echo")).text == "ok"
            assert [tool.name for tool in await client.list_tools()] == ["echo"]
            await client.ping()
            expected = "2025-11-25" if rules is LEGACY_PEER else "2026-07-28"
            assert client.protocol_version == expected
            assert len(peer.talks) == 1
            assert peer.talks[0].messages[0]["method"] == "server/discover"

    run(main())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_an_era_that_is_known(run: Run, era: Any) -> None:
    rules = LEGACY_PEER if era == "legacy" else MODERN_PEER

    async def main() -> None:
        async with WebPeer(rules) as peer, Client(peer.url, era=era) as client:
            assert (await client.call_tool("echo")).text == "ok"
            first = peer.talks[0].messages[0]["method"]
            assert first == ("initialize" if era == "legacy" else "server/discover")

    run(main())


def test_a_legacy_server_that_hangs_up_on_the_probe(run: Run) -> None:
    async def hang_up(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.close(1002, "what is this")

    async def main() -> None:
        rules = LEGACY_PEER | {"server/discover": hang_up}
        async with WebPeer(rules) as peer, Client(target(peer)) as client:
            assert client.protocol_version == "2025-11-25"
            assert [len(talk.sent("initialize")) for talk in peer.talks] == [0, 1]
            assert (await client.call_tool("echo")).text == "ok"

    run(main())


def test_a_server_that_hangs_up_on_everything(run: Run) -> None:
    async def hang_up(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.close(1011, "broken")

    async def main() -> None:
        rules: Rules = {"server/discover": hang_up, "initialize": hang_up}
        async with WebPeer(rules) as peer:
            with pytest.raises(ConnectionLost, match=r"1011 internal error \('broken'\)") as caught:
                await Client(target(peer, restart=5)).open()
            assert (caught.value.code, caught.value.reason) == (1011, "broken")
            assert len(peer.talks) == 2  # the probe is no reason for more than one further try

    run(main())


def test_what_the_upgrade_asks_for(run: Run) -> None:
    async def main() -> None:
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

    run(main())


def test_compression_is_offered_where_it_is_asked_for(run: Run) -> None:
    async def echo(talk: Talk, message: Message) -> None:
        await talk.text(message, message["params"]["arguments"]["text"])

    async def main() -> None:
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

    run(main())


def test_a_server_that_selects_no_subprotocol(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(MODERN_PEER, subprotocols=None) as peer, Client(target(peer)) as client:
            assert (await client.call_tool("echo")).text == "ok"

    run(main())


def test_a_server_that_selects_another_subprotocol(run: Run) -> None:
    def other(connection: Any, request: Any, response: Any) -> None:
        del response.headers["Sec-WebSocket-Protocol"]
        response.headers["Sec-WebSocket-Protocol"] = "chat"

    async def main() -> None:
        async with WebPeer(MODERN_PEER, process_response=other) as peer:
            with pytest.raises(TransportError, match="chat") as caught:
                await Client(target(peer)).open()
            assert not isinstance(caught.value, UpgradeRefused)

    run(main())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 426, 503])
def test_an_upgrade_that_is_refused(run: Run, status: int) -> None:
    """It says nothing of eras, so nothing else is tried."""

    def refuse(connection: Any, request: Any) -> Any:
        peer.asked += 1
        return connection.respond(status, "you know why\n")

    peer = WebPeer(MODERN_PEER, process_request=refuse)

    async def main() -> None:
        async with peer:
            peer.path = "/mcp?key=s3cret"
            client = Client(target(peer, token="s3cret", headers={"X": "s3cret"}, restart=5))
            with pytest.raises(UpgradeRefused, match=f"refused the WebSocket: {status}") as caught:
                await client.open()
            assert caught.value.status == status
            assert "you know why" in str(caught.value) and "s3cret" not in str(caught.value)
            assert peer.asked == 1
            with pytest.raises(ConnectionClosed, match="not open"):
                await client.call_tool("echo")

    run(main())


def test_nobody_listens(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            pass
        before = open_fds()
        for _ in range(3):
            with pytest.raises(TransportError, match=f"127.0.0.1:{peer.port}.*connection refused"):
                await Client(target(peer)).open()
        assert open_fds() == before

    run(main())


def test_a_server_that_never_answers_the_upgrade(run: Run) -> None:
    async def never(connection: Any, request: Any) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with WebPeer(MODERN_PEER, process_request=never) as peer:
            before = open_fds()
            with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
                await Client(target(peer, open_timeout=0.05)).open()
            assert open_fds() <= before + 1  # the server's end

    run(main())


def test_opening_is_given_up(run: Run) -> None:
    """By the caller, or by `close`: the socket goes with it."""
    asked = asyncio.Event()

    async def never(connection: Any, request: Any) -> None:
        asked.set()
        await connection.wait_closed()

    async def main() -> None:
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
            with pytest.raises(ConnectionClosed, match="closed while it was being opened"):
                await opening

    run(main())


def test_what_answers_is_no_websocket_server(run: Run) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TransportError, match="what answers is no WebSocket server"):
            await Client(f"ws://127.0.0.1:{port}").open()
        server.close()

    run(main())


def test_credentials_in_the_clear_are_warned_of_once(
    once: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_warned", set())
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
def test_many_calls_at_once_each_get_their_own_answer(run: Run, rules: Rules) -> None:
    waiting: list[Message] = []

    async def collect(talk: Talk, message: Message) -> None:
        waiting.append(message)
        if len(waiting) == 100:
            for one in reversed(waiting):
                await talk.text(one, one["params"]["arguments"]["n"])

    async def main() -> None:
        async with WebPeer(rules | {"tools/call": collect}) as peer, Client(target(peer)) as client:
            got = await asyncio.gather(*(client.call_tool("x", {"n": str(n)}) for n in range(100)))
            assert [result.text for result in got] == [str(n) for n in range(100)]
            assert len({message["id"] for message in waiting}) == 100

    run(main())


@pytest.mark.parametrize("n", [0, 125, 126, 65535, 65536, 300_000])
def test_messages_of_every_length_form(once: Run, n: int) -> None:
    async def echo(talk: Talk, message: Message) -> None:
        await talk.text(message, message["params"]["arguments"]["text"])

    async def main() -> None:
        async with (
            WebPeer(MODERN_PEER | {"tools/call": echo}) as peer,
            Client(target(peer)) as client,
        ):
            assert (await client.call_tool("echo", {"text": "x" * n})).text == "x" * n

    once(main())


def test_an_answer_in_fragments_with_pings_between(run: Run) -> None:
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

    async def main() -> None:
        async with (
            WebPeer(MODERN_PEER | {"tools/call": pieces}) as peer,
            Client(target(peer)) as client,
        ):
            assert (await client.call_tool("x")).text == "ä"

    run(main())


@ERAS
def test_progress(run: Run, rules: Rules) -> None:
    async def work(talk: Talk, message: Message) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for n in (1, 2):
            params = {"progressToken": token, "progress": n, "total": 2, "message": f"step {n}"}
            await talk.send(method="notifications/progress", params=params)
        await talk.text(message, "done")

    async def main() -> None:
        seen: list[Any] = []
        async with WebPeer(rules | {"tools/call": work}) as peer, Client(target(peer)) as client:
            result = await client.call_tool("x", on_progress=lambda *step: seen.append(step))
            assert result.text == "done"
        assert seen == [(1, 2, "step 1"), (2, 2, "step 2")]

    run(main())


@ERAS
def test_a_cancelled_call_is_cancelled_on_the_server(run: Run, rules: Rules) -> None:
    async def main() -> None:
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

    run(main())


@ERAS
def test_a_call_that_takes_too_long(run: Run, rules: Rules) -> None:
    async def main() -> None:
        async with (
            WebPeer(rules | {"tools/call:wait": nothing}) as peer,
            Client(target(peer)) as client,
        ):
            with pytest.raises(CallTimeout, match="no answer to tools/call"):
                await client.call_tool("wait", timeout=0.02)
            [told] = await peer.got("notifications/cancelled")
            assert told["params"]["reason"] == "timed out"
            assert (await client.call_tool("echo")).text == "ok"

    run(main())


def test_a_ping_of_a_legacy_server_is_answered(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(LEGACY_PEER) as peer, Client(target(peer)):
            talk = peer.talks[0]
            await talk.send(id="p", method="ping")
            await until(lambda: any(m.get("id") == "p" for m in talk.messages))
            assert talk.messages[-1] == {"jsonrpc": "2.0", "id": "p", "result": {}}

    run(main())


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
    assert "skipped what is no message" in caplog.text


def test_an_error_answer(once: Run) -> None:
    async def main() -> None:
        rules = MODERN_PEER | {"tools/call": (-32602, "no such tool")}
        async with WebPeer(rules) as peer, Client(target(peer)) as client:
            with pytest.raises(RemoteError, match="no such tool"):
                await client.call_tool("x")

    once(main())


def test_the_blocking_client(once: Run) -> None:
    """In threads, since the server runs in this one."""

    def work(url: str) -> list[str]:
        with SyncClient(WebSocket(url, token="t")) as client:
            return [client.call_tool("echo").text or "", client.protocol_version]

    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            got = await asyncio.gather(*(asyncio.to_thread(work, peer.url) for _ in range(3)))
            assert got == [["ok", "2026-07-28"]] * 3
            for talk in peer.talks:
                assert await talk.ended is None  # closed in order

    once(main())


# -- the end ---------------------------------------------------------------------------------------


def closes(code: int, reason: str = "") -> Any:
    async def close(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.close(code, reason)

    return close


def sends(data: bytes) -> Any:
    async def send(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        talk.raw(data)

    return send


@ERAS
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (1000, "", "the server closed the connection: 1000 normal closure"),
        (1001, "restart", "the server closed the connection: 1001 going away ('restart')"),
        (1008, "token expired", "1008 policy violation ('token expired')"),
        (1009, "", "1009 message too big"),
        (1011, "", "1011 internal error"),
        (1012, "", "1012 service restart"),
        (1013, "", "1013 try again later"),
        (4242, "odd\x07", "the server closed the connection: 4242 ('odd\\x07')"),
    ],
)
def test_the_server_closes(run: Run, rules: Rules, code: int, reason: str, expected: str) -> None:
    async def main() -> None:
        rule: Rules = {"tools/call:die": closes(code, reason), "tools/call:wait": nothing}
        async with WebPeer(rules | rule) as peer, Client(target(peer), timeout=None) as client:
            calls = [client.call_tool("wait") for _ in range(64)] + [client.call_tool("die")]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            for error in errors:
                assert type(error) is ConnectionLost
                assert (error.code, error.reason) == (code, reason)
                assert str(error).startswith(peer.url) and str(error).endswith(expected)
            assert len({id(error) for error in errors}) == 65  # tracebacks apart
            with pytest.raises(ConnectionLost):
                await client.call_tool("echo")
            assert client.counters["requests_outstanding"] == 0
            ended = await peer.talks[0].ended  # it was answered
            assert ended is None or ended.rcvd.code == code
            assert len(peer.talks) == 1

    rules = rules | {}
    run(main())


def test_a_close_without_a_code(run: Run) -> None:
    async def main() -> None:
        rules = MODERN_PEER | {"tools/call": sends(b"\x88\x00")}
        async with WebPeer(rules) as peer, Client(target(peer)) as client:
            with pytest.raises(ConnectionLost, match="1005 no code given") as caught:
                await client.call_tool("x")
            assert caught.value.code == 1005

    run(main())


def test_answers_before_a_close_count(run: Run) -> None:
    async def last(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.text(message, "last")
        await talk.close(1001)

    async def main() -> None:
        rules = MODERN_PEER | {"tools/call:last": last, "tools/call:wait": nothing}
        async with WebPeer(rules) as peer, Client(target(peer)) as client:
            waits = asyncio.create_task(client.call_tool("wait"))
            assert (await client.call_tool("last")).text == "last"
            with pytest.raises(ConnectionLost, match="1001 going away"):
                await waits

    run(main())


@ERAS
def test_the_server_vanishes(run: Run, rules: Rules) -> None:
    async def vanish(talk: Talk, message: Message) -> None:
        talk.vanish()

    async def main() -> None:
        rule: Rules = {"tools/call:die": vanish, "tools/call:wait": nothing}
        async with WebPeer(rules | rule) as peer, Client(target(peer), timeout=None) as client:
            calls = [client.call_tool("wait") for _ in range(64)] + [client.call_tool("die")]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {ConnectionLost}
            error = errors[0]
            assert isinstance(error, ConnectionLost) and error.code == 1006
            assert str(error) == f"{peer.url}: the server left without a closing frame"

    run(main())


@pytest.mark.parametrize(
    ("data", "code", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 1002, "1002 protocol error"),
        (b"\x81\x85abcdhello", 1002, "1002 protocol error .a masked frame"),
        (b"\x82\x01x", 1003, "1003 unsupported data"),
        (b"\x81\x02\xff\xfe", 1007, "1007 not UTF-8"),
        (b"\x88\x01x", 1002, "1002 protocol error"),
        (b"\x81\x7f\x00\x00\x00\x01\x00\x00\x00\x00", 1009, "1009 message too big"),
    ],
)
def test_a_server_that_breaks_the_protocol(run: Run, data: bytes, code: int, expected: str) -> None:
    async def main() -> None:
        rule: Rules = {"tools/call:die": sends(data), "tools/call:wait": nothing}
        async with WebPeer(MODERN_PEER | rule) as peer, Client(target(peer)) as client:
            calls = (client.call_tool("wait"), client.call_tool("die"))
            errors = await asyncio.gather(*calls, return_exceptions=True)
            for error in errors:
                assert type(error) is ConnectionLost and error.code == code
            with pytest.raises(ConnectionLost, match=f"this side closed the .*: {expected}"):
                await client.call_tool("echo")
            ended = await peer.talks[0].ended  # and it was told why
            assert isinstance(ended, ConnectionClosedError) and ended.rcvd is not None
            assert ended.rcvd.code == code

    run(main())


def test_a_message_that_is_too_long(run: Run) -> None:
    async def fill(talk: Talk, message: Message) -> None:
        await talk.text(message, "x" * 5000)

    async def main() -> None:
        async with (
            WebPeer(MODERN_PEER | {"tools/call": fill}) as peer,
            Client(target(peer), limits=Limits(max_message=4096)) as client,
        ):
            with pytest.raises(ConnectionLost, match="1009 message too big"):
                await client.call_tool("x")

    run(main())


def test_silence_after_the_upgrade(run: Run) -> None:
    async def main() -> None:
        async with WebPeer({}) as peer:
            client = Client(target(peer), era="modern", handshake_timeout=0.05)
            with pytest.raises(CallTimeout, match=r"no handshake: no answer to server/discover"):
                await client.open()
            ended = await peer.talks[0].ended
            assert ended is None  # it was closed in order

    run(main())


def test_an_answer_to_the_handshake_that_makes_no_sense(run: Run) -> None:
    async def main() -> None:
        async with WebPeer({"initialize": {"protocolVersion": 5}}) as peer:
            with pytest.raises(InvalidResponse, match="no handshake: the result of initialize"):
                await Client(target(peer), era="legacy").open()

    run(main())


# -- closing ---------------------------------------------------------------------------------------


@ERAS
def test_closing_says_goodbye_behind_what_is_queued(run: Run, rules: Rules) -> None:
    async def main() -> None:
        async with WebPeer(rules | {"tools/call": nothing}) as peer:
            client = Client(target(peer))
            await client.open()
            call = asyncio.create_task(client.call_tool("x", {"text": "y" * 100_000}))
            await turns(1)
            await client.close()
            with pytest.raises(ConnectionClosed, match="the client was closed"):
                await call
            assert await peer.talks[0].ended is None  # websockets: 1000 and 1001 end the iteration
            talk = peer.talks[0]
            assert isinstance(talk, WebTalk)
            assert talk.socket.close_code == 1000
            assert len(talk.sent("tools/call")) == 1

    run(main())


def test_a_server_that_does_not_answer_the_goodbye(run: Run) -> None:
    async def deaf(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.text(message, "deaf")
        talk.socket.transport.pause_reading()

    async def main() -> None:
        async with WebPeer(MODERN_PEER | {"tools/call": deaf}) as peer:
            before = open_fds()
            async with Client(target(peer, close_timeout=0.05)) as client:
                await client.call_tool("x")
            assert open_fds() == before + 1  # the server's end
            talk = peer.talks[0]
            talk.vanish()
            await talk.ended

    run(main())


def test_no_time_to_wait_for_the_goodbye(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            async with Client(target(peer, close_timeout=0)):
                pass
            ended = await peer.talks[0].ended
            assert ended is None or isinstance(ended, (ConnectionClosedOK, ConnectionClosedError))

    run(main())


def test_nothing_is_left_after_many_clients(run: Run) -> None:
    async def die(talk: Talk, message: Message) -> None:
        talk.vanish()

    async def main() -> None:
        async with WebPeer(MODERN_PEER | {"tools/call:die": die}) as peer:
            async with Client(target(peer)):  # what is loaded and started once
                pass
            await until(lambda: all(talk.ended.done() for talk in peer.talks))
            await turns(20)
            fds, tasks = open_fds(), len(asyncio.all_tasks())
            for n in range(12):
                async with Client(target(peer, compression=n % 2 == 0)) as client:
                    assert (await client.call_tool("echo")).text == "ok"
                    if n % 3 == 0:
                        with pytest.raises(ConnectionLost):
                            await client.call_tool("die")
            await until(lambda: all(talk.ended.done() for talk in peer.talks))
            await until(lambda: (open_fds(), len(asyncio.all_tasks())) == (fds, tasks))

    run(main())


# -- keep-alive ------------------------------------------------------------------------------------


def test_pings_keep_an_idle_connection(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            where = target(peer, ping_interval=0.01, ping_timeout=10)
            async with Client(where) as client:
                framer: Any = client._life.live.session.framer  # type: ignore[union-attr]
                await until(lambda: framer.n_pongs_in >= 1)
                assert (await client.call_tool("echo")).text == "ok"

    run(main())


def test_a_server_that_answers_no_ping_is_gone(run: Run) -> None:
    async def deaf(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        talk.socket.transport.pause_reading()

    async def main() -> None:
        async with WebPeer(MODERN_PEER | {"tools/call": deaf}) as peer:
            where = target(peer, ping_interval=0.02, ping_timeout=0.05, close_timeout=0.1)
            async with Client(where, timeout=None) as client:
                with pytest.raises(ConnectionLost, match=r"no ping within 0\.05 s") as caught:
                    await client.call_tool("x")
                assert caught.value.code == 1006
            peer.talks[0].vanish()
            await peer.talks[0].ended

    run(main())


def test_a_busy_loop_is_not_the_servers_silence(run: Run) -> None:
    import time

    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer:
            where = target(peer, ping_interval=0.01, ping_timeout=0.02)
            async with Client(where) as client:
                framer: Any = client._life.live.session.framer  # type: ignore[union-attr]
                seen = 0
                for _ in range(3):
                    await until(lambda: framer.n_pongs_in > seen)  # noqa: B023
                    seen = framer.n_pongs_in
                    time.sleep(0.05)  # neither the server nor we do anything
                assert (await client.call_tool("echo")).text == "ok"

    run(main())


def test_pings_of_the_server_are_answered(run: Run) -> None:
    async def main() -> None:
        async with WebPeer(MODERN_PEER) as peer, Client(target(peer, ping_interval=None)):
            talk = peer.talks[0]
            assert isinstance(talk, WebTalk)
            for _ in range(3):
                await (await talk.socket.ping())

    run(main())


# -- TLS -------------------------------------------------------------------------------------------


def test_a_certificate_that_nobody_vouches_for(run: Run, certificate: Path) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        async with WebPeer(MODERN_PEER, ssl=context) as peer:
            with pytest.raises(TransportError, match="its certificate is not accepted"):
                await Client(target(peer, token="s3cret")).open()
            assert not peer.talks

    run(main())


@ERAS
def test_a_server_behind_tls(run: Run, certificate: Path, rules: Rules) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        trust = ssl.create_default_context(cafile=str(certificate))
        rule: Rules = {"tools/call:die": closes(1001, "restart"), "tools/call:wait": nothing}
        async with WebPeer(rules | rule, ssl=context) as peer:
            async with Client(target(peer, token="t", ssl=trust), timeout=None) as client:
                assert (await client.call_tool("echo", {"text": "x" * 300_000})).text == "ok"
                calls = (client.call_tool("wait"), client.call_tool("die"))
                errors = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(error) for error in errors} == {ConnectionLost}
                assert "1001 going away ('restart')" in str(errors[0])
            async with Client(target(peer, ssl=trust)) as client:
                pass
            assert await peer.talks[1].ended is None
            assert isinstance(peer.talks[1], WebTalk) and peer.talks[1].socket.close_code == 1000

    run(main())
