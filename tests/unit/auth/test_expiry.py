"""Streams and WebSockets that outlive the access token of their client."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from lab.http import call, serving
from lab.serve import Bare
from lab.serve import serving as listening
from lab.token import bearer, notes, token

from wirespeed import HttpOptions, MemoryEventStore, Server

SOON = 0.3  # seconds


def short(**options: Any) -> tuple[Server, list[asyncio.Future[str]]]:
    """A server whose only token ends soon, and the calls of its tool `wait`."""
    tokens = {
        "short": token("anne", "notes:read", expires=time.time() + SOON),
        "next": token("anne", "notes:read"),
    }
    server = notes(tokens.get, **options)
    waiting: list[asyncio.Future[str]] = []

    @server.tool
    async def wait() -> str:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    return server, waiting


async def until(waiting: list[Any]) -> None:
    async with asyncio.timeout(20):
        while not waiting:
            await asyncio.sleep(0.002)


async def test_a_websocket_ends_when_its_calls_are_answered() -> None:
    server, waiting = short()
    async with listening(server, close_timeout=0.2) as place:
        peer = await Bare.connect(place.port, Authorization="Bearer short")
        await peer.handshake()
        peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait"}})
        await until(waiting)
        await asyncio.sleep(SOON + 0.2)
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert (await peer.message())["error"]["code"] == -31001
        waiting[0].set_result("done")
        assert (await peer.message())["result"]["content"][0]["text"] == "done"
        assert await peer.close_code() == (1008, "the access token has expired")
        await peer.close()


async def test_a_websocket_with_a_lasting_token_stays() -> None:
    server, _ = short()
    async with listening(server, close_timeout=0.2) as place:
        peer = await Bare.connect(place.port, Authorization="Bearer next")
        await peer.handshake()
        await asyncio.sleep(SOON + 0.2)
        peer.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert (await peer.message())["result"] == {}
        await peer.close()


@pytest.mark.parametrize("keepalive", [20.0, None])
async def test_the_stream_of_a_session_ends_and_the_session_goes_on(keepalive: Any) -> None:
    server, waiting = short()
    http = HttpOptions(sse_keepalive=keepalive, event_store=MemoryEventStore())
    async with serving(server, http=http) as place:
        caller, listener = await place.connect(), await place.connect()
        opened = await caller.initialize(**bearer("short"))
        fields = {"mcp_session_id": opened.headers["mcp-session-id"]}
        listener.send("GET", **fields, **bearer("short"))
        stream = await listener.head()
        assert stream.is_stream
        caller.send(body=call("wait"), **fields, **bearer("short"))
        await until(waiting)
        async with asyncio.timeout(5):
            while await listener.more(stream):
                pass
        # what was let in is answered; what comes now needs a new token
        waiting[0].set_result("done")
        assert (await caller.response()).body.count(b"done") == 1
        assert (await listener.ask("GET", **fields, **bearer("short"))).status == 401
        listener.send("GET", **fields, **bearer("next"), last_event_id=stream.events[0]["id"])
        assert (await listener.head()).is_stream


async def test_a_subscription_ends_with_its_result() -> None:
    server, _ = short()
    async with serving(server) as place:
        peer = await place.connect()
        peer.send_modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}},
            **bearer("short"),
        )  # fmt: skip
        async with asyncio.timeout(5):
            response = await peer.response()
        told, cancelled, result = response.messages
        assert told["method"] == "notifications/subscriptions/acknowledged"
        assert cancelled["method"] == "notifications/cancelled"
        assert "result" in result
        assert (await peer.modern("tools/list", **bearer("next"))).status == 200


async def test_a_stream_that_was_closed_before_is_forgotten() -> None:
    server, _ = short()
    async with serving(server) as place:
        peer = await place.connect()
        peer.send_modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}},
            **bearer("short"),
        )  # fmt: skip
        assert (await peer.head()).is_stream
        peer.close()
        await asyncio.sleep(SOON + 0.1)
        assert (await (await place.connect()).modern("tools/list", **bearer("next"))).status == 200


async def test_http_with_sse_ends() -> None:
    server, _ = short()
    async with serving(server, http=HttpOptions(sse_path="/sse")) as place:
        peer = await place.connect()
        assert (await peer.ask("GET", "/sse")).status == 401
        peer.send("GET", "/sse", **bearer("short"))
        stream = await peer.head()
        assert stream.is_stream
        async with asyncio.timeout(5):
            while await peer.more(stream):
                pass
        assert stream.events[0]["event"] == "endpoint"
