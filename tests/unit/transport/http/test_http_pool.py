"""Requests on kept connections: responses of every kind, and what becomes of the connection."""

from __future__ import annotations

import asyncio

import pytest
from lab.origin import JSON, SSE, Origin, Request, Told, chunk, ok, pool_for, post

from wirespeed.errors import TransportError


async def echo(request: Request) -> None:
    await request.write(ok(request.body))


@pytest.mark.smoke
async def test_requests_one_after_another_share_a_connection() -> None:
    async with Origin(echo) as origin, pool_for(origin) as pool:
        for body in (b'{"a":1}', b"x" * 100_000, b""):
            told = await post(pool, body, JSON + b"Mcp-Method: ping\r\n").end()
            assert (told.status, told.body, told.exc, told.sent) == (200, body, None, True)
            assert told.headers["content-type"] == "application/json"
            assert not told.streaming
            assert told.calls == ["response", "body", "end"]
        assert origin.n_connections == 1
        first = origin.requests[0]
        assert (first.method, first.target) == ("POST", "/mcp")
        assert first.headers["host"] == f"127.0.0.1:{origin.port}"
        assert first.headers["content-length"] == "7"
        assert first.headers["mcp-method"] == "ping"
        assert first.headers["accept-encoding"] == "identity"
        assert first.headers["user-agent"].startswith("wirespeed/")


async def test_nothing_is_told_inside_request() -> None:
    async with Origin(echo) as origin, pool_for(origin) as pool:
        for _ in range(3):
            told = post(pool)
            assert told.calls == []
            await told.end()


async def test_requests_at_once_have_a_connection_each() -> None:
    async def answer(request: Request) -> None:
        while origin.n_connections < 20:
            await asyncio.sleep(0.001)
        await request.write(ok(request.body))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        for _ in range(2):
            told = [post(pool, b"%d" % i) for i in range(20)]
            assert [(await one.end()).body for one in told] == [b"%d" % i for i in range(20)]
        assert origin.n_connections == 20


async def test_a_request_without_a_body() -> None:
    async with Origin(echo) as origin, pool_for(origin) as pool:
        told = Told()
        pool.request("DELETE", "/x?y=1", b"Mcp-Session-Id: 7\r\n", None, told)
        await told.end()
        [request] = origin.requests
        assert (request.method, request.target, request.body) == ("DELETE", "/x?y=1", b"")
        assert "content-length" not in request.headers
        assert request.headers["mcp-session-id"] == "7"


async def test_a_stream_of_events_as_they_come() -> None:
    go = asyncio.Event()

    async def answer(request: Request) -> None:
        await request.write(SSE + b"Transfer-Encoding: chunked\r\n\r\n")
        await request.write(chunk(b"id: 1\ndata: \nretry: 500\n\n"))
        await go.wait()
        await request.write(chunk(b"event: message\ndata: ") + chunk(b'{"a":'))
        await request.write(chunk(b"1}\n\n:\n") + b"0\r\n\r\n")

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = post(pool)
        while not told.events:
            await told.more()
        assert (told.status, told.streaming) == (200, True)
        assert told.events == [("message", b"", "1", 500)]
        assert not told.over.is_set()
        go.set()
        await told.end()
        assert told.events[1:] == [("message", b'{"a":1}', None, None)]
        assert told.exc is None
        await post(pool).end()
        assert origin.n_connections == 1


async def test_abort() -> None:
    async def answer(request: Request) -> None:
        await request.write(SSE + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"data: x\n\n"))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = Told()
        call = pool.request("POST", "/mcp", JSON, b"{}", told)
        while not told.events:
            await told.more()
        call.abort()
        call.abort()
        await origin.gone.wait()
        assert told.calls == ["response", "event"]


async def test_connecting_fails() -> None:
    async with Origin(echo) as origin:
        address = origin.address
    async with pool_for(address) as pool:
        told = [post(pool) for _ in range(3)]
        for one in told:
            await one.end()
            assert isinstance(one.exc, TransportError)
            assert "connection refused" in str(one.exc)
            assert not one.sent
            assert one.calls == ["end"]
