"""Connections that are lost and made again: which, when, how often, and what is sent again."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import FOREVER, HastyClient, Run, hasty_client, open_fds, turns, until
from lab.peer import (
    LEGACY_PEER,
    MODERN_PEER,
    LinePeer,
    Peer,
    Rules,
    Talk,
    WebPeer,
    WebTalk,
    nothing,
)

from wirespeed import Client, Socket, WebSocket
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    TransportError,
    UpgradeRefused,
)

Message = dict[str, Any]


async def die(talk: Talk, message: Message) -> None:
    talk.vanish()


async def leave(talk: Talk, message: Message) -> None:
    assert isinstance(talk, WebTalk)
    await talk.close(1001, "restart")


DIES: Rules = {"tools/call:die": die, "tools/call:leave": leave, "tools/call:wait": nothing}


def peers(folder: Path) -> list[Any]:
    return [WebPeer({}), LinePeer({}, folder), LinePeer({})]


@pytest.fixture(params=["ws", "unix", "tcp"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A peer of each kind, which has no rules yet."""
    return dict(zip(("ws", "unix", "tcp"), peers(tmp_path), strict=True))[request.param]


def target(peer: Peer, **options: Any) -> WebSocket | Socket:
    return (WebSocket if isinstance(peer, WebPeer) else Socket)(peer.url, **options)


# -- by era ----------------------------------------------------------------------------------------


async def test_a_modern_connection_is_made_again_by_itself(peer: Any) -> None:
    peer.rules = MODERN_PEER | DIES
    async with peer, HastyClient(target(peer), timeout=None) as client:
        for n in range(1, 4):
            calls = [client.call_tool("wait") for _ in range(20)] + [client.call_tool("die")]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {ConnectionLost}
            assert (await client.call_tool("echo")).text == "ok"
            assert len(peer.talks) == n + 1
        # nothing is sent twice, and nobody asked for the era again
        assert len(peer.sent("tools/call")) == 3 * 22
        assert len(peer.sent("initialize")) == 0
        assert client.protocol_version == "2026-07-28"


async def test_a_legacy_connection_is_a_session(peer: Any) -> None:
    peer.rules = LEGACY_PEER | DIES
    async with peer, HastyClient(target(peer)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await client.call_tool("echo")
        assert len(peer.talks) == 1
        await client.restart()  # for whoever wants a new one
        assert (await client.call_tool("echo")).text == "ok"
        assert len(peer.talks) == 2


async def test_a_legacy_session_is_made_anew_where_that_is_asked_for(peer: Any) -> None:
    peer.rules = LEGACY_PEER | DIES
    async with peer, HastyClient(target(peer, restart=1)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        assert (await client.call_tool("echo")).text == "ok"
        assert [len(talk.sent("initialize")) for talk in peer.talks] == [1, 1]
        assert [len(talk.sent("server/discover")) for talk in peer.talks] == [1, 0]


@pytest.mark.parametrize("restart", [0, False])
async def test_never(peer: Any, restart: Any) -> None:
    peer.rules = MODERN_PEER | DIES
    async with peer, HastyClient(target(peer, restart=restart)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        with pytest.raises(ConnectionLost):
            await client.call_tool("echo")
        assert len(peer.talks) == 1


# -- what waits ------------------------------------------------------------------------------------


async def test_calls_wait_for_the_new_connection(
    peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer.rules = MODERN_PEER | DIES
    async with peer, HastyClient(target(peer, restart=1000)) as client:
        await peer.stop()
        await until(lambda: caplog.records)
        calls = [asyncio.create_task(client.call_tool("echo")) for _ in range(50)]
        await until(lambda: caplog.text.count("reconnecting failed") == 3)
        assert not any(call.done() for call in calls)
        await peer.start()
        assert {(await call).text for call in calls} == {"ok"}
        assert len(peer.talks) == 2


async def test_a_call_that_waits_has_its_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with WebPeer(MODERN_PEER) as peer, HastyClient(target(peer, restart=1000)) as client:
        await peer.stop()
        await until(lambda: caplog.records)
        why = r"could not be sent within 0\.02 s: .+127\.0\.0\.1:\d+"
        with pytest.raises(CallTimeout, match=why):
            await client.call_tool("echo", timeout=0.02)


async def test_closing_ends_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    PatientClient = hasty_client(first_reconnect=FOREVER * 10)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    async with WebPeer(MODERN_PEER | DIES) as peer:
        async with PatientClient(target(peer)) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")
            waiting = asyncio.create_task(client.call_tool("echo"))
            await turns()
            assert not waiting.done()
        with pytest.raises(ConnectionClosed):
            await waiting
        assert len(peer.talks) == 1


async def test_time_that_has_passed_anyway_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls long after the loss does not wait."""
    SlowClient = hasty_client(first_reconnect=0.2)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    sleep, pauses = asyncio.sleep, []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    async with WebPeer(MODERN_PEER | DIES) as peer, SlowClient(target(peer)) as client:
        for waited in (0.3, 0.0):
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")
            await sleep(waited)
            pauses.clear()
            monkeypatch.setattr(asyncio, "sleep", noted)
            assert (await client.call_tool("echo")).text == "ok"
            monkeypatch.setattr(asyncio, "sleep", sleep)
            assert len(pauses) == (waited == 0.0)


# -- how often -------------------------------------------------------------------------------------


async def test_attempts_are_bounded_and_each_further_call_makes_one(
    peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer.rules = MODERN_PEER | DIES
    async with peer, HastyClient(target(peer, restart=3)) as client:
        await peer.stop()
        await until(lambda: caplog.records)
        with pytest.raises(TransportError, match="cannot connect to"):
            await client.call_tool("echo")
        assert caplog.text.count("reconnecting failed") == 3
        got = await asyncio.gather(
            *(client.call_tool("echo") for _ in range(10)), return_exceptions=True
        )
        assert {type(error) for error in got} == {TransportError}
        assert caplog.text.count("reconnecting failed") == 4  # one for all of them
        await peer.start()  # the server is back at last
        assert (await client.call_tool("echo")).text == "ok"


async def test_pauses_grow_and_are_random(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", uniform)
    async with WebPeer(MODERN_PEER) as peer, Client(target(peer, restart=10)) as client:
        await peer.stop()
        await until(lambda: caplog.records)
        with pytest.raises(TransportError):
            await client.call_tool("echo")
    assert ranges == [(0.0, 0.1)] + [(d / 2, d) for d in (0.25, 0.5, 1, 2, 4, 8, 16, 30, 30)]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refusal_ends_the_attempts(status: int) -> None:
    """A token that has expired does not become better."""

    def refuse(connection: Any, request: Any) -> Any:
        peer.asked += 1
        return connection.respond(status, "no\n") if 1 < peer.asked < 4 else None

    peer = WebPeer(MODERN_PEER | DIES, process_request=refuse)
    async with peer, HastyClient(target(peer)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("leave")
        for n in (2, 3):
            with pytest.raises(UpgradeRefused) as caught:
                await client.call_tool("echo")
            assert (caught.value.status, peer.asked) == (status, n)
        assert (await client.call_tool("echo")).text == "ok"  # it was let in again


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_a_server_that_is_not_ready_yet(status: int) -> None:
    def refuse(connection: Any, request: Any) -> Any:
        peer.asked += 1
        return connection.respond(status, "later\n") if 1 < peer.asked < 6 else None

    peer = WebPeer(MODERN_PEER | DIES, process_request=refuse)
    async with peer, HastyClient(target(peer)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("leave")
        assert (await client.call_tool("echo")).text == "ok"
        assert peer.asked == 6


async def test_a_server_that_dies_of_each_call(peer: Any) -> None:
    """Attempts are counted until a call succeeds, so a loop of failures does not go on forever."""
    peer.rules = MODERN_PEER | DIES
    async with peer, HastyClient(target(peer, restart=2)) as client:
        for _ in range(2):  # an answer proves the server well, so the attempts are counted anew
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    await client.call_tool("die")
            assert (await client.call_tool("echo")).text == "ok"
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")
        talks = len(peer.talks)
        await turns(20)
        assert len(peer.talks) == talks == 7


# -- what is to be heard ---------------------------------------------------------------------------


async def listening(talk: Talk, message: Message) -> None:
    meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    await talk.send(method="notifications/subscriptions/acknowledged", params=params)


async def test_listens_are_sent_again(peer: Any) -> None:
    """Nothing is called: the client comes back by itself, and fetches what it may have missed."""
    peer.rules = MODERN_PEER | {"subscriptions/listen": listening}
    lists: list[Any] = []
    async with peer, HastyClient(target(peer), on_tools_changed=lists.append):
        for n in range(3):
            await peer.got("subscriptions/listen", n + 1)
            talk = await peer.talk(n)
            [listen] = talk.sent("subscriptions/listen")
            assert listen["params"]["notifications"] == {"toolsListChanged": True}
            await until(lambda: len(lists) == n)  # noqa: B023
            talk.vanish()
        await until(lambda: len(lists) == 3)


async def test_a_legacy_client_that_listens_comes_back_where_it_may(peer: Any) -> None:
    peer.rules = LEGACY_PEER
    lists: list[Any] = []
    async with peer, HastyClient(target(peer, restart=3), on_tools_changed=lists.append):
        (await peer.talk(0)).vanish()
        talk = await peer.talk(1)
        await until(lambda: len(lists) == 1)
        await talk.send(method="notifications/tools/list_changed")
        await until(lambda: len(lists) == 2)


async def test_connections_that_lived_long_count_as_good() -> None:
    SettledClient = hasty_client(settled=0.0)
    rules = MODERN_PEER | {"subscriptions/listen": listening}
    async with (
        WebPeer(rules) as peer,
        SettledClient(target(peer, restart=2), on_tools_changed=lambda tools: None),
    ):
        for n in range(6):
            await peer.got("subscriptions/listen", n + 1)
            (await peer.talk(n)).vanish()
        await peer.got("subscriptions/listen", 7)


async def test_short_ones_do_not(caplog: pytest.LogCaptureFixture) -> None:
    rules = MODERN_PEER | {"subscriptions/listen": die}
    lost = "without a closing frame"
    async with WebPeer(rules) as peer, HastyClient(target(peer, restart=2), on_tools_changed=print):
        await until(lambda: caplog.text.count(lost) == 3)
        await turns(20)
        assert len(peer.talks) == 3


async def test_news_of_an_old_connection_reach_nobody() -> None:
    """While the goodbye is waited for, the server may still talk."""
    lists: list[Any] = []
    closing = asyncio.Event()
    async with WebPeer(LEGACY_PEER) as peer:
        client = HastyClient(target(peer), on_tools_changed=lists.append)
        await client.open()
        talk = peer.talks[0]
        assert isinstance(talk, WebTalk)
        talk.socket.transport.pause_reading()  # so that it does not hear the goodbye
        ending = asyncio.create_task(client.close())
        await turns(3)
        await talk.send(method="notifications/tools/list_changed")
        await turns(20)
        talk.socket.transport.resume_reading()
        await ending
        closing.set()
    assert lists == []
    assert peer.sent("tools/list") == []


# -- loops -----------------------------------------------------------------------------------------


def test_a_client_moves_to_another_loop(run: Run, peer: Any) -> None:
    """What is left of a loop that was closed under an open client is released."""
    peer.rules = MODERN_PEER
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with peer:
            ready.set()
            await asyncio.to_thread(over.wait)

    async def open_only(client: Client) -> None:
        await client.open()

    async def use(client: Client) -> None:
        async with client:
            assert (await client.call_tool("echo")).text == "ok"

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        ready.wait(FOREVER)
        run(asyncio.sleep(0))  # what a loop opens once
        fds = open_fds()
        client = HastyClient(target(peer))
        run(open_only(client))
        run(use(client))
        assert len(peer.talks) == 2
        until_in_thread(lambda: all(talk.ended.done() for talk in peer.talks))
        until_in_thread(lambda: open_fds() == fds)
    finally:
        over.set()
        thread.join()


def until_in_thread(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
