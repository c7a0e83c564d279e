"""How connections over WebSocket end, are kept and are closed; and TLS."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from lab.client import hasty_client, open_fds, turns, until
from lab.peer import ERAS, MODERN_PEER, Rules, Talk, WebPeer, WebTalk, nothing, target
from lab.rows import every
from lab.wording import raises
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from wirespeed import Client
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    InvalidResponse,
    TransportError,
)
from wirespeed.limits import Limits

pytestmark = pytest.mark.compiled

Message = dict[str, Any]


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
async def test_the_server_closes(rules: Rules, code: int, reason: str, expected: str) -> None:
    rules = rules | {}
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


async def test_a_close_without_a_code() -> None:
    rules = MODERN_PEER | {"tools/call": sends(b"\x88\x00")}
    async with WebPeer(rules) as peer, Client(target(peer)) as client:
        with raises(ConnectionLost) as caught:
            await client.call_tool("x")
        assert caught.value.code == 1005


async def test_answers_before_a_close_count() -> None:
    async def last(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.text(message, "last")
        await talk.close(1001)

    rules = MODERN_PEER | {"tools/call:last": last, "tools/call:wait": nothing}
    async with WebPeer(rules) as peer, Client(target(peer)) as client:
        waits = asyncio.create_task(client.call_tool("wait"))
        assert (await client.call_tool("last")).text == "last"
        with raises(ConnectionLost):
            await waits


@ERAS
async def test_the_server_vanishes(rules: Rules) -> None:
    async def vanish(talk: Talk, message: Message) -> None:
        talk.vanish()

    rule: Rules = {"tools/call:die": vanish, "tools/call:wait": nothing}
    async with WebPeer(rules | rule) as peer, Client(target(peer), timeout=None) as client:
        calls = [client.call_tool("wait") for _ in range(64)] + [client.call_tool("die")]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {ConnectionLost}
        error = errors[0]
        assert isinstance(error, ConnectionLost) and error.code == 1006
        assert str(error) == f"{peer.url}: the server closed the connection without a closing frame"


@every(
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
async def test_a_server_that_breaks_the_protocol(data: bytes, code: int, expected: str) -> None:
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


async def test_a_message_that_is_too_long() -> None:
    async def fill(talk: Talk, message: Message) -> None:
        await talk.text(message, "x" * 5000)

    async with (
        WebPeer(MODERN_PEER | {"tools/call": fill}) as peer,
        Client(target(peer), limits=Limits(max_message=4096)) as client,
    ):
        with raises(ConnectionLost):
            await client.call_tool("x")


async def test_silence_after_the_upgrade() -> None:
    async with WebPeer({}) as peer:
        client = Client(target(peer), era="modern", handshake_timeout=0.05)
        with raises(CallTimeout):
            await client.open()
        ended = await peer.talks[0].ended
        assert ended is None  # it was closed in order


async def test_an_answer_to_the_handshake_that_makes_no_sense() -> None:
    async with WebPeer({"initialize": {"protocolVersion": 5}}) as peer:
        with raises(InvalidResponse):
            await Client(target(peer), era="legacy").open()


# -- closing ---------------------------------------------------------------------------------------


@ERAS
async def test_closing_says_goodbye_behind_what_is_queued(rules: Rules) -> None:
    async with WebPeer(rules | {"tools/call": nothing}) as peer:
        client = Client(target(peer))
        await client.open()
        call = asyncio.create_task(client.call_tool("x", {"text": "y" * 100_000}))
        await turns(1)
        await client.close()
        with raises(ConnectionClosed):
            await call
        assert await peer.talks[0].ended is None  # websockets: 1000 and 1001 end the iteration
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        assert talk.socket.close_code == 1000
        assert len(talk.sent("tools/call")) == 1


async def test_a_server_that_does_not_answer_the_goodbye() -> None:
    async def deaf(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        await talk.text(message, "deaf")
        talk.socket.transport.pause_reading()

    async with WebPeer(MODERN_PEER | {"tools/call": deaf}) as peer:
        before = open_fds()
        async with Client(target(peer, close_timeout=0.05)) as client:
            await client.call_tool("x")
        assert open_fds() == before + 1  # the server's end
        talk = peer.talks[0]
        talk.vanish()
        await talk.ended


async def test_no_time_to_wait_for_the_goodbye() -> None:
    async with WebPeer(MODERN_PEER) as peer:
        async with Client(target(peer, close_timeout=0)):
            pass
        ended = await peer.talks[0].ended
        assert ended is None or isinstance(ended, (ConnectionClosedOK, ConnectionClosedError))


async def test_nothing_is_left_after_many_clients() -> None:
    async def die(talk: Talk, message: Message) -> None:
        talk.vanish()

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


# -- keep-alive ------------------------------------------------------------------------------------


async def test_pings_keep_an_idle_connection(connections: list[Any]) -> None:
    async with WebPeer(MODERN_PEER) as peer:
        where = target(peer, ping_interval=0.01, ping_timeout=10)
        async with Client(where) as client:
            await until(lambda: connections[0].session.framer.n_pongs_in >= 1)
            assert (await client.call_tool("echo")).text == "ok"


async def test_a_server_that_answers_no_ping_is_gone() -> None:
    async def deaf(talk: Talk, message: Message) -> None:
        assert isinstance(talk, WebTalk)
        talk.socket.transport.pause_reading()

    async with WebPeer(MODERN_PEER | {"tools/call": deaf}) as peer:
        where = target(peer, ping_interval=0.02, ping_timeout=0.05, close_timeout=0.1)
        async with Client(where, timeout=None) as client:
            with raises(ConnectionLost) as caught:
                await client.call_tool("x")
            assert caught.value.code == 1006
        peer.talks[0].vanish()
        await peer.talks[0].ended


async def test_a_busy_loop_is_not_the_servers_silence(connections: list[Any]) -> None:
    async with WebPeer(MODERN_PEER) as peer:
        where = target(peer, ping_interval=0.01, ping_timeout=0.02)
        async with Client(where) as client:
            framer = connections[0].session.framer
            seen = 0
            for _ in range(3):
                await until(lambda: framer.n_pongs_in > seen)  # noqa: B023
                seen = framer.n_pongs_in
                time.sleep(0.05)  # neither the server nor we do anything
            assert (await client.call_tool("echo")).text == "ok"


async def test_pings_of_the_server_are_answered() -> None:
    async with WebPeer(MODERN_PEER) as peer, Client(target(peer, ping_interval=None)):
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        for _ in range(3):
            await (await talk.socket.ping())


@pytest.mark.parametrize("pings", [None, 3600.0])
async def test_too_many_pings_of_the_server(
    pings: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with WebPeer(MODERN_PEER) as peer, Client(target(peer, ping_interval=pings)) as client:
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        talk.raw(b"\x89\x00" * 2000)
        await until(lambda: caplog.records)
        with raises(ConnectionLost):
            await client.call_tool("echo")


@pytest.mark.parametrize("pings", [None, 0.01])
async def test_as_many_over_a_longer_time(connections: list[Any], pings: float | None) -> None:
    """The allowance is filled up as time goes by, whether or not we ping, too."""
    GenerousClient = hasty_client(control=0.01)
    async with (
        WebPeer(MODERN_PEER) as peer,
        GenerousClient(target(peer, ping_interval=pings, ping_timeout=0.01)) as client,
    ):
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        framer = connections[0].session.framer
        for n in range(1, 5):
            talk.raw(b"\x89\x00" * 500)
            await until(lambda: framer.n_pings_in >= 500 * n)  # noqa: B023
            for _ in range(4):
                await asyncio.sleep(0.012)  # longer than the time between two beats
        assert (await client.call_tool("echo")).text == "ok"


# -- TLS -------------------------------------------------------------------------------------------


async def test_a_certificate_that_nobody_vouches_for(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with WebPeer(MODERN_PEER, ssl=context) as peer:
        with raises(TransportError):
            await Client(target(peer, token="s3cret")).open()
        assert not peer.talks


@ERAS
async def test_a_server_behind_tls(certificate: Path, rules: Rules) -> None:
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
