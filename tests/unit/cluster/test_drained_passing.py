"""A host shuts down while requests are passed on, from it or to it. The other host is played."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import h11
import pytest
from lab.hosts import Deployment, Visitor, deployed, join
from lab.http import Peer, Response, call
from lab.member import (
    ANSWER,
    DRAIN,
    END,
    GONE,
    LAST,
    PART,
    PAUSE,
    REQUEST,
    End,
    answer_of,
    answering,
    asking,
    said,
    subscription,
    tool_call,
)
from lab.store import StoreServer

from wirespeed.protocol import codes

pytestmark = pytest.mark.compiled

VERDICT_AFTER = 1.0  # seconds
STREAM = answer_of(200, -1, b"Content-Type: text/event-stream\r\n")


async def last_response(hosts: Deployment, asked: Peer) -> Response:
    """Let the host of a client shut down. Returns its response, after the end of the host."""
    host = hosts.hosts["b"]
    host.signal(signal.SIGTERM)
    try:
        return await asked.response()
    finally:
        asked.close()
        await asyncio.to_thread(host.process.wait)


def played(
    kinds: list[int], come: asyncio.Event, *answer: tuple[int, bytes]
) -> Callable[[End], Awaitable[None]]:
    """The other host: it begins an answer, and notes the kinds of the frames that come."""

    async def serve(other: End) -> None:
        while True:
            kind, number, _ = await other.frame()
            kinds.append(kind)
            if kind == REQUEST:
                for one, data in answer:
                    other.send(one, number, data)
                come.set()

    return serve


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_not_answered(
    tmp_path: Path, store_server: StoreServer, stream: bool
) -> None:
    """It is cut off after the grace time: it may have taken effect. A stream that has begun ends,
    so that its client asks another host for the rest."""
    kinds: list[int] = []
    come = asyncio.Event()
    begun = [(ANSWER, STREAM), (PART, b"id: 1\ndata:\n\n")] if stream else []
    async with (
        deployed(tmp_path, store_server.url, "b", shutdown_grace=0.2) as hosts,
        answering(played(kinds, come, *begun)) as url,
    ):
        one = await join(store_server, hosts, url)
        asked = await one.send("b", body=call("who", {}, 7))
        await come.wait()
        answer = await last_response(hosts, asked)
        assert answer.status == 200
        if stream:
            assert answer.events == [{"id": "1", "data": ""}]
        else:
            assert (answer.json["id"], answer.json["error"]["code"]) == (7, codes.CUT_OFF)
    assert kinds == [REQUEST, DRAIN, GONE]


async def test_an_answer_that_is_not_complete(tmp_path: Path, store_server: StoreServer) -> None:
    """Its client's connection is closed: the body is shorter than its head says."""
    kinds: list[int] = []
    come = asyncio.Event()
    serve = played(kinds, come, (ANSWER, answer_of(200, 9)), (PART, b"sh"))
    async with (
        deployed(tmp_path, store_server.url, "b", shutdown_grace=0.2) as hosts,
        answering(serve) as url,
    ):
        one = await join(store_server, hosts, url)
        asked = await one.send("b", body=call("who", {}, 7))
        await come.wait()
        with pytest.raises(h11.RemoteProtocolError):
            await last_response(hosts, asked)
    assert kinds == [REQUEST, DRAIN, GONE]


async def test_a_request_that_is_let_in_meanwhile(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """The other host learns of the shutdown right behind the request."""
    kinds: list[int] = []
    async with (
        deployed(
            tmp_path, store_server.url, "b", shutdown_grace=0.2, verdict_after=VERDICT_AFTER
        ) as hosts,
        answering(played(kinds, asyncio.Event())) as url,
    ):
        one = await join(store_server, hosts, url)
        asked = await one.send("b", body=call("who", {}, 7))
        await asyncio.sleep(VERDICT_AFTER / 2)
        answer = await last_response(hosts, asked)
        assert (answer.json["id"], answer.json["error"]["code"]) == (7, codes.CUT_OFF)
    assert kinds == [REQUEST, DRAIN, GONE]


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_request_of_an_own_session_that_is_let_in_meanwhile(
    tmp_path: Path, store_server: StoreServer, method: str
) -> None:
    """Its session has ended there. The host that ends does not adopt it: another one may."""
    async with deployed(
        tmp_path, store_server.url, "b", shutdown_grace=0.2, verdict_after=VERDICT_AFTER
    ) as hosts:
        one = Visitor(hosts)
        await one.initialize("b")
        body = call("wait", {"seconds": 1000.0}) if method == "POST" else b""
        asked = await one.send("b", method, body=body)
        await asyncio.sleep(VERDICT_AFTER / 2)
        answer = await last_response(hosts, asked)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_a_request_that_was_not_sent(tmp_path: Path, store_server: StoreServer) -> None:
    """The other host accepts the connection, and says nothing: nobody has seen the request."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        url = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        async with deployed(tmp_path, store_server.url, "b", shutdown_grace=0.2) as hosts:
            one = await join(store_server, hosts, url)
            asked = await one.send("b", body=call("who", {}, 7))
            accepted, _ = await asyncio.to_thread(frozen.accept)
            with accepted:
                answer = await last_response(hosts, asked)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_a_stream_of_another_host_does_not_wait_for_sessions(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """A subscription ends when the host begins to shut down, as one of its own clients does."""
    async with deployed(tmp_path, store_server.url, "a", shutdown_grace=1.0) as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as other:
            other.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=1000.0))
            assert (await other.frame())[:2] == (ANSWER, 1)
            other.send(REQUEST, 2, subscription(said()))
            while (await other.frame())[:2] != (PART, 2):
                pass
            hosts.hosts["a"].signal(signal.SIGTERM)
            ends = []
            while len(ends) < 2:
                kind, number, _ = await other.frame()
                if kind in (END, LAST):
                    ends.append((kind, number))
            assert ends == [(END, 2), (LAST, 2)]
        await asyncio.to_thread(hosts.hosts["a"].process.wait)


@pytest.mark.parametrize("way", ["paused", "unread"])
async def test_answers_that_the_other_host_does_not_take(
    tmp_path: Path, store_server: StoreServer, way: str
) -> None:
    """The host that has the sessions ends without them."""
    async with deployed(tmp_path, store_server.url, "a", shutdown_grace=0.2) as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as other:
            if way == "paused":
                other.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=0.5))
                other.send(PAUSE, 1)
            else:
                other.send(REQUEST, 1, tool_call(session, "flood", said()))
            await asyncio.sleep(1)
            hosts.hosts["a"].signal(signal.SIGTERM)
            await asyncio.to_thread(hosts.hosts["a"].process.wait)
