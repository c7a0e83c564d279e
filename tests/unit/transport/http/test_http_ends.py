"""How exchanges end: connections that break, are given up or kept for too long, and redirects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
import threading
import time
from typing import Any

import pytest
from lab.origin import JSON, SSE, Origin, Request, Told, chunk, ok, pool_for, post
from lab.rows import every
from lab.serve import descriptors
from lab.wording import raises

from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.transport.address import parse
from wirespeed.transport.http.pool import HttpPool

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


async def echo(request: Request) -> None:
    await request.write(ok(request.body))


class Flaky:
    """Answers the first request of each connection, and hangs up at the second."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    async def __call__(self, request: Request) -> None:
        if request.connection in self.seen:
            request.hang_up()
        else:
            self.seen.add(request.connection)
            await request.write(ok(request.body))


def get(pool: HttpPool, method: str = "GET", body: Any = None) -> Told:
    told = Told()
    pool.request(method, "/mcp", b"", body, told)
    return told


# -- kept connections ------------------------------------------------------------------------------


@every("method", ["GET", "DELETE", "PUT"])
async def test_an_idempotent_request_is_sent_again_on_a_fresh_connection(method: str) -> None:
    async with Origin(Flaky()) as origin, pool_for(origin) as pool:
        await post(pool).end()
        told = await get(pool, method).end()
        assert (told.status, told.exc) == (200, None)
        assert [request.connection for request in origin.requests] == [0, 0, 1]


async def test_another_request_is_not_sent_again() -> None:
    async with Origin(Flaky()) as origin, pool_for(origin) as pool:
        await post(pool).end()
        told = await post(pool).end()
        assert isinstance(told.exc, TransportError)
        assert str(told.exc) == (
            f"the connection to {origin.address} broke: the server closed the connection"
        )
        assert told.sent
        assert told.calls == ["end"]
        assert (await post(pool).end()).status == 200
        assert len(origin.requests) == 3


async def test_a_fresh_connection_is_not_tried_twice() -> None:
    async def hang_up(request: Request) -> None:
        request.hang_up()

    async with Origin(hang_up) as origin, pool_for(origin) as pool:
        told = await get(pool).end()
        assert isinstance(told.exc, TransportError)
        assert told.sent
        assert len(origin.requests) == 1


async def test_a_response_that_began_is_not_asked_for_again() -> None:
    async def answer(request: Request) -> None:
        if len(origin.requests) == 1:
            await request.write(ok())
        else:
            await request.write(b"HTTP/1.1 200 OK\r\nContent-")
            request.hang_up()

    async with Origin(answer) as origin, pool_for(origin) as pool:
        await get(pool).end()
        told = await get(pool).end()
        assert str(told.exc).endswith("is malformed: the stream ended inside a message")
        assert len(origin.requests) == 2


async def test_a_response_that_began_before_a_reset_is_not_asked_for_again() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_requests
        while await reader.readuntil(b"\r\n\r\n"):
            n_requests += 1
            if n_requests == 1:
                writer.write(ok())
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nContent-")
            await asyncio.sleep(0.1)  # the client reads that
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return

    n_requests = 0
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, pool_for(parse(f"http://127.0.0.1:{port}/")) as pool:
        assert (await get(pool).end()).exc is None
        told = await get(pool).end()
        assert isinstance(told.exc, TransportError)
        assert "reset" in str(told.exc)
        assert n_requests == 2


@pytest.mark.parametrize("n", [1, 5])
async def test_a_server_that_closes_each_connection_at_once(n: int) -> None:
    """Also before the request is sent: the loop is slow, and the server is not on it."""
    n_accepted = 0

    def serve() -> None:
        nonlocal n_accepted
        with contextlib.suppress(OSError):
            while True:
                listening.accept()[0].close()
                n_accepted += 1

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = parse(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        thread = threading.Thread(target=serve)
        thread.start()
        async with pool_for(address) as pool:
            told = [post(pool) for _ in range(n)]
            while not all(one.over.is_set() for one in told):
                time.sleep(0.005)
                await asyncio.sleep(0)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert n_accepted <= n
    for one in told:
        assert isinstance(one.exc, TransportError)
        assert "broke: " in str(one.exc)


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    async def once(request: Request) -> None:
        await request.write(ok())
        request.hang_up()

    async with Origin(once) as origin, pool_for(origin) as pool:
        for i in range(5):
            told = await post(pool).end()
            assert told.exc is None
            if i % 2:
                await asyncio.sleep(0.01)
        assert origin.n_connections == 5


async def test_a_server_that_says_close() -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(fields=b"Connection: close\r\n"))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        for _ in range(3):
            assert (await post(pool).end()).exc is None
        assert origin.n_connections == 3


async def test_what_was_not_asked_for_ends_a_connection() -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(b"1") + ok(b"2"))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        for _ in range(3):
            assert (await post(pool).end()).body == b"1"
        assert origin.n_connections == 3


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with Origin(echo) as origin, pool_for(origin, idle_timeout=0.01) as pool:
        told = [post(pool) for _ in range(3)]
        for one in told:
            await one.end()
        while origin.open:
            await asyncio.sleep(0.005)
        assert (await post(pool).end()).exc is None
        assert origin.n_connections == 4


async def test_requests_wait_for_a_connection() -> None:
    async def answer(request: Request) -> None:
        while origin.n_connections < 2:
            await asyncio.sleep(0.001)
        await request.write(ok(request.body))

    async with Origin(answer) as origin, pool_for(origin, max_connections=2) as pool:
        told = [post(pool, b"%d" % i) for i in range(10)]
        assert [(await one.end()).body for one in told] == [b"%d" % i for i in range(10)]
        assert origin.n_connections == 2


async def test_a_call_that_waits_is_given_up() -> None:
    go = asyncio.Event()

    async def answer(request: Request) -> None:
        await go.wait()
        await request.write(ok(request.body))

    async with Origin(answer) as origin, pool_for(origin, max_connections=1) as pool:
        first = post(pool, b"1")
        told = Told()
        call = pool.request("POST", "/mcp", JSON, b"2", told)
        last = post(pool, b"3")
        call.abort()
        go.set()
        await first.end()
        await last.end()
        assert told.calls == []
        assert [request.body for request in origin.requests] == [b"1", b"3"]


async def test_a_call_that_is_at_work_is_given_up_and_the_next_one_goes_on() -> None:
    async def answer(request: Request) -> None:
        if request.body != b"1":
            await request.write(ok(request.body))

    async with Origin(answer) as origin, pool_for(origin, max_connections=1) as pool:
        call = pool.request("POST", "/mcp", JSON, b"1", Told())
        while not origin.requests:
            await asyncio.sleep(0.001)
        last = post(pool, b"2")
        call.abort()
        assert (await last.end()).body == b"2"
        assert origin.n_connections == 2


async def test_closing_the_pool_ends_its_calls() -> None:
    async def answer(request: Request) -> None:
        await request.write(SSE + CHUNKED)

    async with Origin(answer) as origin:
        async with pool_for(origin, max_connections=1) as pool:
            told, waits = post(pool), post(pool)
            await told.more()
        await pool.close()
        for one, sent in ((told, True), (waits, False)):
            assert isinstance(one.exc, TransportError)
            assert str(one.exc) == f"the connection to {origin.address} was closed"
            assert one.sent == sent
        with raises(RuntimeError):
            post(pool)
        await origin.gone.wait()


async def test_closing_while_it_connects() -> None:
    async with Origin(echo) as origin:
        pool = HttpPool(origin.address, loop=asyncio.get_running_loop())
        told = post(pool)
        await pool.close()
        assert told.calls == ["end"]
        assert not told.sent


async def settled(origin: Origin) -> None:
    """The server has noticed that its clients are gone."""
    while origin.open:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(2))
async def test_exchanges_that_end_in_every_way_leave_nothing(seed: int) -> None:
    rng = random.Random(seed)

    async def answer(request: Request) -> None:
        match rng.randrange(6):
            case 0:
                request.hang_up()
            case 1:
                await request.write(SSE + CHUNKED + chunk(b"data: x\n\n"))
                request.hang_up()
            case 2:
                await request.write(SSE + CHUNKED + chunk(b"data: x\n\ndata: y"))
            case 3:
                await request.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            case _:
                await request.write(ok(request.body))

    async with Origin(answer) as origin:
        async with pool_for(origin) as pool:
            post(pool)
            while not origin.requests:  # then what the loop keeps for itself is there
                await asyncio.sleep(0.001)
        await settled(origin)
        before, tasks = descriptors(), asyncio.all_tasks()
        async with pool_for(origin, max_connections=8, idle_timeout=0.02) as pool:
            told = []
            calls = []
            for _ in range(200):
                told.append(Told())
                method = rng.choice(("POST", "GET"))
                body = bytes(rng.choice((0, 10, 300_000)))
                calls.append(pool.request(method, "/", JSON, body, told[-1]))
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.choice((0, 0, 0.001, 0.03)))
                if len(calls) > 8:  # else those that get no answer have all connections
                    calls.pop(rng.randrange(len(calls))).abort()
            assert any(one.calls == ["response", "body", "end"] for one in told)
            assert any(isinstance(one.exc, TransportError) for one in told)
        assert all(one.calls.count("end") <= 1 for one in told)
        await settled(origin)
        assert descriptors() == before
        assert asyncio.all_tasks() == tasks


# -- responses that are of no use ------------------------------------------------------------------


@every(
    ("response", "words"),
    [
        (b"SSH-2.0-x\r\n", "is malformed: the first line is not an HTTP version"),
        (b"HTTP/1.1 200 OK\nA: b\n\n", "is malformed: a line ends with a newline without"),
        (ok(b"x" * 1001), "is malformed: the body has more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "is malformed: the body has more than 1000"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the head has more than 65535 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "the stream ended inside a message"),
        (b"HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n", "changes the protocol, which was not asked for"),
        (ok(fields=b"Content-Encoding: gzip\r\n"), "has a content coding, which was not asked for"),
        (
            SSE + CHUNKED + chunk(b"data: " + b"x" * 1001 + b"\n"),
            "an event has more than 1000 bytes",
        ),
        (SSE + CHUNKED + b"z\r\n", "the size of a chunk is not a hexadecimal number"),
        (SSE + CHUNKED + chunk(b"data: x\n\n"), "the stream ended inside a message"),
    ],
)
async def test_responses_of_no_use(response: bytes, words: str) -> None:
    async def answer(request: Request) -> None:
        await request.write(response)
        request.hang_up()

    limits = Limits(max_message=1000)
    async with Origin(answer) as origin, pool_for(origin, limits=limits) as pool:
        told = await post(pool).end()
        assert isinstance(told.exc, TransportError)
        assert words in str(told.exc)
        assert str(origin.address) in str(told.exc)
        assert told.sent
        assert told.body is None


async def test_a_stream_that_the_connection_ends() -> None:
    async def answer(request: Request) -> None:
        await request.write(SSE + b"\r\ndata: x\n\ndata: unfinished")
        request.hang_up()

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = await post(pool).end()
        assert told.events == [("message", b"x", None, None)]
        assert told.exc is None


@every(
    "response",
    [
        ok(b"no", b"Content-Type: text/event-stream\r\n", b"404 Not Found"),
        ok(b"no", b"Content-Type: text/event-streams\r\n"),
        ok(b"no", b"Content-Type: text/event\r\n"),
        ok(b"no", b"Content-Encoding: identity\r\n"),
        ok(b"no", b""),
    ],
)
async def test_bodies_that_are_not_streams(response: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.write(response)

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = await post(pool).end()
        assert (told.streaming, told.body, told.exc) == (False, b"no", None)


@pytest.mark.parametrize("kind", [b"text/event-stream;charset=utf-8", b"Text/Event-Stream"])
async def test_kinds_of_streams(kind: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(b"data: x\n\n", b"Content-Type: %b\r\n" % kind))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        for _ in range(2):
            told = await post(pool).end()
            assert told.streaming
            assert told.events == [("message", b"x", None, None)]
        assert origin.n_connections == 1


async def test_the_answer_to_a_request_that_is_not_read_to_its_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ok(b"too long", b"Connection: close\r\n", b"413 Content Too Large"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, pool_for(parse(f"http://127.0.0.1:{port}/")) as pool:
        told = await post(pool, bytes(30_000_000)).end()
        assert (told.status, told.body, told.exc) == (413, b"too long", None)


async def test_a_receiver_that_pauses_holds_the_server_up() -> None:
    n_sent = 0

    async def answer(request: Request) -> None:
        nonlocal n_sent
        await request.write(SSE + b"\r\n")
        for _ in range(1000):
            await request.write(b"data: " + b"x" * 65536 + b"\n\n")
            n_sent += 1
        request.hang_up()

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = Told()
        call = pool.request("POST", "/mcp", JSON, b"{}", told)
        await told.more()
        call.paused = True
        seen = -1
        while seen != n_sent or not n_sent:
            seen = n_sent
            await asyncio.sleep(0.05)
        assert call.paused
        assert n_sent < 900
        n = len(told.events)
        assert n < 900
        call.paused = False
        await told.end()
        assert len(told.events) == 1000


async def test_a_receiver_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Told):
        def on_body(self, data: Any) -> None:
            raise ValueError("of the receiver")

        def on_end(self, exc: BaseException | None, sent: bool) -> None:
            super().on_end(exc, sent)
            raise ValueError("once more")

    async with Origin(echo) as origin, pool_for(origin) as pool:
        told = Fails()
        with caplog.at_level(logging.CRITICAL + 1, "asyncio"):
            pool.request("POST", "/mcp", JSON, b"{}", told)
            await told.end()
        assert isinstance(told.exc, ValueError)
        assert (await post(pool).end()).status == 200


@every("target", ["/a b", "/a\r\nX: y", "/ü", "/\x7f"])
async def test_targets_that_are_none(target: str) -> None:
    async with pool_for(parse("http://127.0.0.1:1/")) as pool:
        with raises(ValueError):
            post(pool, target=target)


async def test_a_url_that_is_not_of_http() -> None:
    with raises(ValueError):
        HttpPool(parse("ws://h/"), loop=asyncio.get_running_loop())


# -- redirects -------------------------------------------------------------------------------------


def to(location: str, status: int = 307) -> bytes:
    return ok(b"moved", f"Location: {location}\r\n".encode(), b"%d x" % status)


@every("status", [307, 308])
@every("location", ["/new?a=b", "new?a=b", "http://127.0.0.1:{}/new?a=b"])
async def test_a_redirect_at_the_same_origin(status: int, location: str) -> None:
    async def answer(request: Request) -> None:
        moved = request.target == "/mcp"
        await request.write(to(location.format(origin.port), status) if moved else ok(b"here"))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = await post(pool, b"body").end()
        assert told.calls == ["response", "body", "end"]
        assert (told.status, told.body) == (200, b"here")
        assert [(r.method, r.target, r.body) for r in origin.requests] == [
            ("POST", "/mcp", b"body"),
            ("POST", "/new?a=b", b"body"),
        ]
        assert origin.n_connections == 1


@every(
    ("location", "status", "words"),
    [
        ("http://127.0.0.1:1/x?s3cret", 307, "redirects to another origin are not followed"),
        ("http://u:s3cret@127.0.0.1:1/x", 307, "the redirect names no URL"),
        ("https://127.0.0.1:{}/x", 307, "redirects to another origin are not followed"),
        ("//other.example/x", 308, "redirects to another origin are not followed"),
        ("ftp://127.0.0.1/x", 307, "the redirect names no URL"),
        ("http://[", 307, "the redirect names no URL"),
        ("/x", 301, "only 307 and 308 are followed, which keep the method"),
        ("/x", 302, "only 307 and 308"),
        ("/x", 303, "only 307 and 308"),
        ("/mcp", 307, "more than 5 redirects are not followed"),
    ],
)
async def test_redirects_that_are_not_followed(location: str, status: int, words: str) -> None:
    async def answer(request: Request) -> None:
        await request.write(to(location.format(origin.port), status))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        told = await post(pool).end()
        assert isinstance(told.exc, TransportError)
        assert str(told.exc).startswith(f"{origin.address} answered {status}, a redirect to ")
        assert words in str(told.exc)
        assert "s3cret" not in str(told.exc)
        assert told.calls == ["end"]
        assert len(origin.requests) == (6 if location == "/mcp" else 1)


async def test_a_redirect_without_a_place_is_a_response() -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(b"", b"", b"307 x"))

    async with Origin(answer) as origin, pool_for(origin) as pool:
        assert (await post(pool).end()).status == 307
