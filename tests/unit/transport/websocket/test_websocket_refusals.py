"""Who is not let in: the HTTP status, one line of text, and the end of the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import pytest
from lab.rows import every
from lab.serve import LOOPBACK, Bare, descriptors, exchange, lab_server, serving, upgrade

from wirespeed import HttpRequest, Refusal

SECRET = "s3cret-t0ken"


@every(
    ("request_bytes", "status", "words"),
    [
        (upgrade(Upgrade=None, Connection=None), 426, "WebSocket client"),
        (upgrade(Upgrade="h2c"), 426, "WebSocket client"),
        (upgrade(Connection="keep-alive"), 426, "WebSocket client"),
        (upgrade(first="POST /mcp HTTP/1.1"), 405, "GET"),
        (upgrade(first="GET /mcp HTTP/1.0"), 505, "HTTP/1.1"),
        (upgrade(first="GET /mcp HTTP/1.2"), 505, "HTTP version"),
        (upgrade(first="GET /mcp HTTP/2.0"), 505, "HTTP version"),
        (upgrade(first="PRI * HTTP/2.0"), 505, "HTTP version"),
        (upgrade(first="GET http://127.0.0.1/other HTTP/1.1"), 404, "path"),
        (upgrade(first="GET http://evil.example/mcp HTTP/1.1"), 403, "Host"),
        (upgrade(first="GET http:///mcp HTTP/1.1"), 400, "target"),
        (upgrade(Sec_WebSocket_Key=None), 400, "Sec-WebSocket-Key"),
        (upgrade(Sec_WebSocket_Key="short"), 400, "Sec-WebSocket-Key"),
        (upgrade(Sec_WebSocket_Version=None), 426, "13"),
        (upgrade(Sec_WebSocket_Version="8"), 426, "13"),
        (upgrade("/other"), 404, "path"),
        (upgrade("/mcp//"), 404, "path"),
        (upgrade("/"), 404, "path"),
        (upgrade(Host=None), 400, "Host"),
        (upgrade(Host="bad host"), 400, "Host"),
        (upgrade(Host="evil.example:80"), 403, "Host"),
        (upgrade(Host="127.0.0.1.evil.example"), 403, "Host"),
        (upgrade(Host="192.168.1.5"), 403, "Host"),
        (upgrade(Origin="https://evil.example"), 403, "Origin"),
        (upgrade(Origin="null"), 403, "Origin"),
        (upgrade(Origin="file://"), 403, "Origin"),
        (upgrade(Sec_WebSocket_Protocol="soap"), 400, "mcp"),
        (upgrade(Sec_WebSocket_Protocol="MCP, soap"), 400, "mcp"),
        (upgrade(Sec_WebSocket_Protocol=","), 400, "Sec-WebSocket-Protocol"),
        (b"GET /mcp\r\n\r\n", 400, "a version"),
        (b"\x16\x03\x01\x02\x00 a TLS client \r\n\r\n", 400, "not an HTTP request"),
        (upgrade().replace(b"\r\n", b"\n"), 400, "newline"),
        (upgrade(first="GET /" + "a" * 9000 + " HTTP/1.1"), 414, "8192"),
        (upgrade(X="a" * 20000), 431, "16384"),
        (b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431, "100 header fields"),
        (b"x" * 40000, 501, "method"),
        (upgrade(Content_Length="20000"), 413, "16384"),
    ],
)
async def test_status_and_one_line(request_bytes: bytes, status: int, words: str) -> None:
    async with serving(lab_server()) as place:
        answer = await exchange(place.port, request_bytes)
        assert answer.status == status, answer.line
        assert words in answer.line
        assert answer.headers["connection"].split(", ")[-1] == "close"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "server" not in answer.headers
        await place.empty()


@every("first", [b"\x16\x03\x01", b'{"jsonrpc"', b"\x00", b" GET"])
async def test_what_cannot_begin_a_request_is_refused_at_once(first: bytes) -> None:
    """TLS and JSON would never end the head: the client would wait for `open_timeout`."""
    async with serving(lab_server(), open_timeout=1000.0) as place:
        assert (await exchange(place.port, first)).status == 400


@every("scheme", ["http", "ws", "HTTPS"])
async def test_the_absolute_form_of_the_target_names_the_host(scheme: str) -> None:
    """RFC 9112 section 3.2.2: the Host header field is ignored then."""
    async with serving(lab_server(), hosts=["api.example"]) as place:
        for host, status in (("api.example", b"101"), ("evil.example", b"403")):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            other = "evil.example" if status == b"101" else "api.example"
            first = f"GET {scheme}://{host}/mcp?a=b HTTP/1.1"
            writer.write(upgrade(first=first, Host=other))
            assert (await reader.readline()).split(b" ")[1] == status
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("name", ["Sec_WebSocket_Key", "Connection", "Upgrade", "Origin"])
async def test_values_of_header_fields_are_not_told(name: str, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(lab_server()) as place:
        for value in (SECRET, f"{SECRET}; =,{SECRET}"):
            answer = await exchange(place.port, upgrade(**{name: value}))
            assert SECRET not in answer.line
        assert SECRET not in caplog.text
        assert "refused" in caplog.text


@pytest.mark.parametrize(("name", "status"), [("Host", 400), ("Origin", 403)])
async def test_a_field_that_must_not_come_twice(name: str, status: int) -> None:
    async with serving(lab_server()) as place:
        once = upgrade(Origin="http://127.0.0.1")
        more = f"{name}: 127.0.0.1\r\nUpgrade:".encode()
        answer = await exchange(place.port, once.replace(b"Upgrade:", more, 1))
        assert answer.status == status
        assert name in answer.line


@every(
    ("fields", "good"),
    [
        ({"Host": "localhost"}, True),
        ({"Host": "LOCALHOST.:9"}, True),
        ({"Host": "[::1]:80"}, True),
        ({"Host": "127.1.2.3"}, True),
        ({"Host": "app.localhost"}, True),
        ({"Origin": "http://localhost:3000"}, True),
        ({"Origin": "https://127.0.0.1"}, True),
        ({"Origin": "http://[::1]:5173"}, True),
        ({"Origin": "http://localhost.evil.example"}, False),
        ({"Origin": "http://localhost@evil.example"}, False),
    ],
)
async def test_this_machine_may_connect_to_itself(fields: dict[str, str], good: bool) -> None:
    async with serving(lab_server()) as place:
        if good:
            peer = await Bare.connect(place.port, **fields)
            await peer.close()
        else:
            assert (await exchange(place.port, upgrade(**fields))).status == 403


@every(
    ("options", "fields", "status"),
    [
        # names
        ({"hosts": ["api.example"]}, {"Host": "api.example"}, 101),
        ({"hosts": ["api.example"]}, {"Host": "API.Example.:8443"}, 101),
        ({"hosts": ["api.example"]}, {"Host": "127.0.0.1"}, 403),
        ({"hosts": ["api.example:8443"]}, {"Host": "api.example:8443"}, 101),
        ({"hosts": ["api.example:8443"]}, {"Host": "api.example"}, 403),
        ({"hosts": ["[::1]"]}, {"Host": "[::1]:7"}, 101),
        ({"hosts": ["::1"]}, {"Host": "[::1]:7"}, 101),
        ({"hosts": ["*"]}, {"Host": "whatever"}, 101),
        ({"hosts": []}, {"Host": "127.0.0.1"}, 403),
        # pages
        ({"origins": ["https://app.example"]}, {"Origin": "https://app.example"}, 101),
        ({"origins": ["https://app.example"]}, {"Origin": "https://APP.example:443"}, 101),
        ({"origins": ["https://app.example"]}, {"Origin": "http://app.example"}, 403),
        ({"origins": ["https://app.example"]}, {"Origin": "https://app.example:8443"}, 403),
        ({"origins": ["https://app.example"]}, {"Origin": "http://127.0.0.1"}, 403),
        ({"origins": ["https://app.example"]}, {}, 101),
        ({"origins": ["http://localhost:*"]}, {"Origin": "http://localhost:3000"}, 101),
        ({"origins": ["http://localhost:*"]}, {"Origin": "http://localhost"}, 101),
        ({"origins": ["http://localhost:*"]}, {"Origin": "http://localhost.x:3000"}, 403),
        ({"origins": ["null"]}, {"Origin": "null"}, 101),
        ({"origins": ["*"]}, {"Origin": "https://evil.example"}, 101),
        ({"origins": []}, {"Origin": "http://127.0.0.1"}, 403),
        # a page of the server's own name: only where that name is known to be ours
        (
            {"hosts": ["api.example"]},
            {"Host": "api.example", "Origin": "http://api.example"},
            101,
        ),
        (
            {"hosts": ["api.example"]},
            {"Host": "api.example", "Origin": "http://api.example:81"},
            403,
        ),
        ({"hosts": ["*"]}, {"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"hosts": ["*"]}, {"Host": "10.0.0.7:80", "Origin": "http://10.0.0.7"}, 101),
        # subprotocols
        ({}, {"Sec_WebSocket_Protocol": "soap, mcp"}, 101),
        ({}, {"Sec_WebSocket_Protocol": None}, 101),
        ({"require_subprotocol": True}, {"Sec_WebSocket_Protocol": None}, 400),
        ({"require_subprotocol": True}, {"Sec_WebSocket_Protocol": "mcp"}, 101),
    ],
)
async def test_allow_lists(
    options: dict[str, Any], fields: dict[str, str | None], status: int
) -> None:
    async with serving(lab_server(), **options) as place:
        if status == 101:
            peer = await Bare.connect(place.port, **fields)
            chosen = b"Sec-WebSocket-Protocol: mcp\r\n" in peer.head
            assert chosen == (fields.get("Sec_WebSocket_Protocol", "mcp") is not None)
            await peer.close()
        else:
            answer = await exchange(place.port, upgrade(port=place.port, **fields))
            assert answer.status == status


# -- who is it? ------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("token", "fields", "challenge"),
    [
        (SECRET, {}, "Bearer"),
        (SECRET, bearer("wrong"), 'Bearer error="invalid_token"'),
        (SECRET, bearer(SECRET + "x"), 'Bearer error="invalid_token"'),
        (SECRET, bearer(SECRET[:-1]), 'Bearer error="invalid_token"'),
        (SECRET, {"Authorization": SECRET}, 'Bearer error="invalid_token"'),
        (SECRET, {"Authorization": f"Basic {SECRET}"}, 'Bearer error="invalid_token"'),
        (SECRET, {"Authorization": "Bearer"}, 'Bearer error="invalid_token"'),
        (SECRET, {"Authentication": f"Bearer {SECRET}"}, "Bearer"),
        (SECRET, bearer(SECRET), None),
        (SECRET, {"Authorization": f"bearer   {SECRET} "}, None),
        (["first", SECRET], bearer(SECRET), None),
        (["first", SECRET], bearer("first"), None),
        (["first", SECRET], bearer("second"), 'Bearer error="invalid_token"'),
    ],
)
async def test_token(
    token: Any, fields: dict[str, str], challenge: str | None, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(lab_server(), token=token) as place:
        if challenge is None:
            await (await Bare.connect(place.port, **fields)).close()
        else:
            answer = await exchange(place.port, upgrade(**fields))
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == challenge
            assert SECRET not in answer.line
    assert SECRET not in caplog.text


async def test_path_host_and_origin_are_checked_before_the_token() -> None:
    """Nobody may try tokens from where no connection is taken."""
    async with serving(lab_server(), token=SECRET) as place:
        for fields, status in (
            ({"path": "/x"}, 404),
            ({"Host": "evil.example"}, 403),
            ({"Origin": "http://evil.example"}, 403),
        ):
            assert (await exchange(place.port, upgrade(**fields))).status == status
        answer = await exchange(place.port, upgrade(Sec_WebSocket_Protocol="soap"))
        assert answer.status == 401


def teapot(request: HttpRequest) -> Refusal:
    return Refusal(418, "short and stout", {"X-Tea": "yes"})


async def slowly(request: HttpRequest) -> bool:
    await asyncio.sleep(0)
    return request.token == SECRET and request.query == "a=b" and request.headers["x-y"] == "z"


def broken(request: HttpRequest) -> bool:
    raise RuntimeError(f"database at 10.0.0.1 is down for {request.path}")


def forgetful(request: HttpRequest) -> Any:
    return None


def truthy(request: HttpRequest) -> Any:
    return 1


@pytest.mark.parametrize(
    ("authenticate", "fields", "status", "line"),
    [
        (lambda request: True, {}, 101, ""),
        (lambda request: False, {}, 401, "not authorized"),
        (teapot, {}, 418, "short and stout"),
        (lambda request: Refusal(401, "who are you?"), {}, 401, "who are you?"),
        (lambda request: Refusal(403, "not you"), bearer(SECRET), 403, "not you"),
        (slowly, {"path": "/mcp?a=b", "X-Y": "z", **bearer(SECRET)}, 101, ""),
        (slowly, {"path": "/mcp?a=b", "X-Y": "z", **bearer("other")}, 401, "not authorized"),
        (broken, {}, 500, "internal error"),
        (forgetful, {}, 500, "internal error"),
        (truthy, {}, 500, "internal error"),
        (lambda request: "ann", {}, 101, ""),
        (lambda request: "", {}, 500, "internal error"),
    ],
)
async def test_callback(
    authenticate: Any, fields: dict[str, str], status: int, line: str, caplog: Any
) -> None:
    async with serving(lab_server(), authenticate=authenticate) as place:
        if status == 101:
            await (await Bare.connect(place.port, **fields)).close()
        else:
            answer = await exchange(place.port, upgrade(**fields))
            assert (answer.status, answer.line) == (status, line)
            if status == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer")
            if authenticate is teapot:
                assert answer.headers["x-tea"] == "yes"
    assert ("authenticate failed" in caplog.text) == (status == 500)
    assert SECRET not in caplog.text


@every(
    ("options", "first", "second", "same"),
    [
        ({}, {}, {}, True),
        ({"token": [SECRET, "other"]}, bearer(SECRET), bearer(SECRET), True),
        ({"token": [SECRET, "other"]}, bearer(SECRET), bearer("other"), False),
        ({"authenticate": lambda request: True}, bearer(SECRET), bearer("other"), False),
        ({"authenticate": lambda request: "ann"}, bearer(SECRET), bearer("other"), True),
        ({"authenticate": lambda request: request.token}, bearer("ann"), bearer("bob"), False),
        ({"authenticate": lambda request: True}, {}, {}, True),
    ],
)
async def test_who_is_connected(
    options: Any, first: dict[str, str], second: dict[str, str], same: bool
) -> None:
    """A connection knows who came by a digest, which is that of the user or of the token."""
    server = lab_server()
    async with serving(server, **options) as place:
        found = []
        for fields in (first, second):
            peer = await Bare.connect(place.port, **fields)
            (connection,) = server.service.connections
            found.append(connection.principal)
            await peer.close()
            await place.empty()
        assert (found[0] == found[1]) is same
        nobody = not first
        for principal in found:
            assert (principal is None) is nobody
            assert SECRET.encode() not in (principal or b"")


@pytest.mark.parametrize("url", [LOOPBACK, "http://127.0.0.1:0/mcp"])
async def test_a_callback_that_takes_too_long(url: str, caplog: Any) -> None:
    async def never(request: HttpRequest) -> bool:
        await asyncio.Event().wait()
        return True

    async with serving(lab_server(), url, authenticate=never, open_timeout=0.3) as place:
        answer = await exchange(place.port, upgrade())
        assert (answer.status, answer.line) == (503, "the request could not be authorized in time")
        await place.empty()
    assert "authenticate took more than" in caplog.text


# -- too slow, too many ----------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"G", upgrade()[:-1]])
async def test_a_request_that_does_not_come_to_its_end(sent: bytes) -> None:
    async with serving(lab_server(), open_timeout=0.05) as place:
        answer = await exchange(place.port, sent)
        assert (answer.status, answer.line) == (408, "the head of the request took too long")


async def test_a_client_that_sends_nothing_is_closed_in_time(caplog: Any) -> None:
    async with serving(lab_server(), open_timeout=0.05) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        assert await reader.read() == b""
        writer.close()
        await place.empty()
    assert "refused" not in caplog.text


async def test_a_byte_at_a_time_is_bounded_by_the_same_time() -> None:
    async with serving(lab_server(), open_timeout=0.1) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.005)

        task = asyncio.create_task(drip())
        answer = await reader.read()
        task.cancel()
        await asyncio.wait([task])
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()
        await place.empty()


async def test_a_byte_at_a_time_is_let_in_if_it_comes_in_time() -> None:
    async with serving(lab_server()) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        for byte in upgrade(port=place.port):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.close()


async def test_too_many() -> None:
    async with serving(lab_server(), max_connections=2) as place:
        one = await Bare.connect(place.port)
        # half an opening handshake counts, too
        _, half = await asyncio.open_connection("127.0.0.1", place.port)
        half.write(b"GET")
        await place.until(lambda: place.listener.n_connections == 2)
        for _ in range(3):
            answer = await exchange(place.port, upgrade())
            assert (answer.status, answer.line) == (503, "too many connections")
            assert answer.headers["retry-after"] == "5"
        half.close()
        await place.until(lambda: place.listener.n_connections == 1)
        two = await Bare.connect(place.port)
        await two.handshake()
        await one.close()
        await two.close()


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_callback_that_ignores_its_cancellation_holds_up_nobody(
    how: str, caplog: Any
) -> None:
    asked, verdict = asyncio.Event(), asyncio.Event()

    async def authenticate(request: Any) -> bool:
        asked.set()
        while not verdict.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await verdict.wait()
        return True

    async with serving(lab_server(), authenticate=authenticate) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(upgrade(port=place.port))
        await asked.wait()
        if how == "abort":
            place.listener.abort()
        else:
            place.task.cancel()
        await asyncio.wait([place.task])
        verdict.set()  # too late: nobody is served any more
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        await place.empty()
    assert "authenticate ignores its cancellation" in caplog.text


async def test_nobody_is_counted_twice_on_the_way_in() -> None:
    counts = []
    verdict = asyncio.Event()

    async def authenticate(request: Any) -> bool:
        await verdict.wait()
        return True

    server = lab_server()
    connect = server.service.connect

    def counted(*args: Any, **more: Any) -> Any:
        counts.append(place.listener.n_connections)
        return connect(*args, **more)

    server.service.connect = counted  # type: ignore[method-assign]
    async with serving(server, max_connections=3, authenticate=authenticate) as place:
        peers = [asyncio.ensure_future(Bare.connect(place.port)) for _ in range(3)]
        await place.until(lambda: place.listener.n_connections == 3)
        verdict.set()
        for peer in await asyncio.gather(*peers):
            await peer.close()
        await place.empty()
    assert counts == [3, 3, 3]


async def test_a_flood_above_the_limit_is_closed_without_a_word(monkeypatch: Any) -> None:
    monkeypatch.setattr("wirespeed.transport.net.listener.MAX_REFUSALS", 2)
    async with serving(lab_server(), max_connections=1) as place:
        one = await Bare.connect(place.port)
        before = descriptors()
        silent = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(5)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        await place.until(lambda: sum(end.done() for end in ends) == 3)
        await one.handshake()  # who is in is not disturbed
        await one.close()
        for end in ends:
            end.cancel()
        await asyncio.wait(ends)
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        await place.empty()
        assert descriptors() < before


async def test_refusals_do_not_fill_the_log(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "wirespeed.server")
    async with serving(lab_server(), token=SECRET) as place:
        for _ in range(40):
            assert (await exchange(place.port, upgrade(path="/mcp?secret=1"))).status == 401
    lines = [r.message for r in caplog.records if r.message.startswith("refused")]
    assert len(lines) == 20
    assert all("127.0.0.1:" in line and "401 a bearer token is needed" in line for line in lines)
    assert "secret=1" not in caplog.text


async def test_lines_below_the_level_of_the_log_do_not_count(
    server_ssl: Any, client_ssl: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("wirespeed.transport.net.listener.MAX_REFUSALS", 0)
    caplog.set_level(logging.WARNING, "wirespeed.server")
    url = "wss://127.0.0.1:0/mcp"
    async with serving(lab_server(), url, ssl=server_ssl, max_connections=1) as place:
        for _ in range(25):  # each is one line at INFO
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(upgrade())
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            await place.empty()
        assert caplog.records == []
        _, held = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        assert await reader.read() == b""
        held.close()
        writer.close()
    assert "too many connections" in caplog.text


async def test_a_drain_does_not_wait_for_the_verdict_on_a_websocket() -> None:
    asked = asyncio.Event()

    async def never(request: HttpRequest) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    for url in (LOOPBACK, "http://127.0.0.1:0/mcp"):
        async with serving(lab_server(), url, authenticate=never) as place:
            asked.clear()
            answer = asyncio.ensure_future(exchange(place.port, upgrade(port=place.port)))
            await asked.wait()
            place.listener.drain()
            assert (await answer).status == 503
            assert (await answer).line == "the server is shutting down"
            await place.task


async def test_a_look_at_the_port_leaves_no_trace(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "wirespeed.server")
    async with serving(lab_server()) as place:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", place.port)):
                pass
        await (await Bare.connect(place.port)).close()
        await place.empty()
    assert "refused" not in caplog.text
