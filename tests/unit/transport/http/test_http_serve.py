"""HTTP at a listener: what stands beside the endpoint, who may come in, how long they may take."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from typing import Any

import pytest
from lab.raw import call, encode, initialize
from lab.rows import every
from lab.serve import (
    FOREVER,
    Answer,
    Bare,
    descriptors,
    exchange,
    frame,
    lab_server,
    serving,
    upgrade,
)
from lab.wording import raises

from wirespeed import Http, HttpOptions, HttpRequest, HttpResponse, Refusal, Server
from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.litemcp import LiteClient, LiteServer

HTTP = "http://127.0.0.1:0/mcp"
PAGE = "https://app.example"


def request(
    line: str = "GET /healthz", body: bytes = b"", *, close: bool = True, **fields: str
) -> bytes:
    """A request. Keyword arguments are header fields (``_`` for ``-``)."""
    named = {"Host": "127.0.0.1", **{k.replace("_", "-"): v for k, v in fields.items()}}
    if body:
        named["Content-Length"] = str(len(body))
    if close:
        named["Connection"] = "close"
    lines = [f"{line} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def rpc(**fields: str) -> bytes:
    """A call of the tool `echo` by a modern client."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    more = {
        "Content_Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP_Protocol_Version": "2026-07-28",
        "Mcp_Method": "tools/call",
        "Mcp_Name": "echo",
    }
    return request("POST /mcp", json.dumps(message).encode(), **more, **fields)


def length_of(head: bytes) -> str:
    return Answer(head).headers["content-length"]


async def peer_of(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body=request.peer)


async def mirror(request: HttpRequest) -> HttpResponse:
    shown = [request.method, request.path, request.query, request.token, request.body.decode()]
    return HttpResponse(201, json.dumps(shown), {"X-Own": "1"}, "application/json")


async def broken(request: HttpRequest) -> HttpResponse:
    raise ValueError("s3cret")


async def forgetful(request: HttpRequest) -> Any:
    return None


def at(**options: Any) -> Any:
    """A listener with options of HTTP."""
    http = {
        name: options.pop(name) for name in list(options) if name in HttpOptions.__annotations__
    }
    server = options.pop("server", None) or lab_server()
    return serving(server, HTTP, http=HttpOptions(**http), **options)


# -- beside the endpoint ---------------------------------------------------------------------------


async def test_a_probe_is_answered_whoever_asks() -> None:
    async with at(token="s3cret", hosts=["tools.example"]) as place:
        answer = await exchange(place.port, request(Host="10.1.2.3:8000"))
        assert (answer.status, answer.body) == (200, b"ok\n")
        answer = await exchange(place.port, request("HEAD /healthz"))
        assert (answer.status, answer.body) == (200, b"")
        answer = await exchange(place.port, request("POST /healthz", b"x"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    async with at(healthz=None) as place:
        assert (await exchange(place.port, request())).status == 404


async def test_a_route_gets_the_request_and_answers() -> None:
    async with at(routes={"POST /hook": mirror}, token="s3cret") as place:
        line = "POST /hook?a=b"
        answer = await exchange(place.port, request(line, b"body", Authorization="Bearer other"))
        assert (answer.status, answer.headers["x-own"]) == (201, "1")
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.body) == ["POST", "/hook", "a=b", "other", "body"]
        answer = await exchange(place.port, request("GET /hook"))
        assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")
        assert answer.line == "this path takes POST"
        answer = await exchange(place.port, request("POST /hook", Host="evil.example"))
        assert answer.status == 403
        answer = await exchange(place.port, request("POST /hook", Origin="https://evil.example"))
        assert answer.status == 403


@pytest.mark.parametrize("handler", [broken, forgetful])
async def test_a_route_that_fails_is_logged(handler: Any, caplog: Any) -> None:
    async with at(routes={"/x": handler}) as place:
        answer = await exchange(place.port, request("GET /x"))
    assert (answer.status, answer.body) == (500, b"internal error\n")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == "the route GET /x failed"


class Slow:
    """A route that answers when it is told to."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("answered")
        return HttpResponse(body="at last")


async def test_a_route_whose_client_leaves_is_cancelled() -> None:
    slow = Slow()
    async with at(routes={"/slow": slow}) as place:
        _, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(request("GET /slow"))
        await slow.began.wait()
        writer.transport.abort()
        await place.until(lambda: slow.ended == ["cancelled"])
        await place.empty()


async def test_a_drain_waits_for_a_route() -> None:
    slow = Slow()
    async with at(routes={"/slow": slow}) as place:
        asked = asyncio.create_task(exchange(place.port, request("GET /slow", close=False)))
        await slow.began.wait()
        place.listener.drain()
        slow.go.set()
        answer = await asked
        assert (answer.status, answer.body) == (200, b"at last")
        assert answer.headers["connection"] == "close"
        await asyncio.wait_for(place.task, FOREVER)


async def test_a_drain_with_a_request_behind_another() -> None:
    """The first one is answered, whatever comes behind it."""
    slow = Slow()
    async with at(routes={"/slow": slow}) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(request("GET /slow", close=False))
        await slow.began.wait()
        place.listener.drain()
        writer.write(request("GET /slow", close=False))
        await asyncio.sleep(0.1)  # until it has come
        slow.go.set()
        assert (await reader.read()).endswith(b"at last")
        writer.close()
        await asyncio.wait_for(place.task, FOREVER)


async def test_an_abort_ends_a_route() -> None:
    slow = Slow()
    async with at(routes={"/slow": slow}) as place:
        asked = asyncio.create_task(exchange(place.port, request("GET /slow")))
        await slow.began.wait()
        place.listener.abort()
        await asyncio.wait([asked], timeout=FOREVER)
        assert slow.ended == ["cancelled"]


# -- web pages -------------------------------------------------------------------------------------


async def test_a_page_that_may_connect_may_read_the_answer() -> None:
    async with at(origins=[PAGE], token="s3cret") as place:
        asked = {
            "Origin": PAGE,
            "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "authorization,mcp-param-region",
        }
        answer = await exchange(place.port, request("OPTIONS /mcp", **asked))
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"].endswith(", mcp-param-region")
        for token, status in (("s3cret", 200), ("wrong", 401), ("s3cret", 200)):
            fields = {"Origin": PAGE, "Authorization": f"Bearer {token}"}
            answer = await exchange(place.port, rpc(**fields))
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert answer.headers["vary"] == "Origin"
            assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]


async def test_several_requests_of_a_page_on_one_connection() -> None:
    async with at(origins=[PAGE, "https://other.example"]) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        for origin in (PAGE, PAGE, "https://other.example", None, PAGE):
            fields = {} if origin is None else {"Origin": origin}
            writer.write(request("GET /healthz", close=False, **fields))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(3)
            expected = [] if origin is None else [f"Access-Control-Allow-Origin: {origin}"]
            assert [line for line in head.decode().split("\r\n") if "Allow-O" in line] == expected
        writer.close()


@every("line", ["OPTIONS /mcp", "POST /mcp", "GET /healthz"])
async def test_a_page_that_may_not_connect_gets_no_permission(line: str) -> None:
    async with at() as place:
        fields = {"Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}
        answer = await exchange(place.port, request(line, **fields))
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


def reads(answer: Answer) -> str | None:
    """The origin whose pages may read an answer."""
    assert ("vary" in answer.headers) == ("access-control-allow-origin" in answer.headers)
    return answer.headers.get("access-control-allow-origin")


CHUNKED = request("POST /mcp", close=False, Origin=PAGE, Transfer_Encoding="chunked")

# options, a request, the status of its early refusal
REFUSALS: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "no such path": ({}, request("POST /nothing", b"{}", Origin=PAGE), 404),
    "no such path, early": ({}, request("POST /nothing", b"{}", Origin=PAGE)[:-1], 404),
    "late": ({"body_timeout": 0.05}, request("POST /mcp", b"{}", Origin=PAGE)[:-1], 408),
    "long": ({}, request("POST /mcp", Origin=PAGE, Content_Length="99999999999"), 413),
    "long chunks": ({}, CHUNKED + b"3e9\r\n" + b"x" * 1001, 413),
    "bad chunk": ({}, CHUNKED + b"x", 400),
    "no token": ({"token": "s3cret"}, request("POST /mcp", b"{}", Origin=PAGE)[:-1], 401),
}


@every("name", REFUSALS)
async def test_a_page_that_may_connect_reads_an_early_refusal(name: str) -> None:
    options, data, status = REFUSALS[name]
    options = {"origins": [PAGE], **options}
    async with at(server=lab_server(limits=Limits(max_message=1000)), **options) as place:
        answer = await exchange(place.port, data)
        assert (answer.status, reads(answer)) == (status, PAGE)
        assert answer.headers["connection"] == "close"
        answer = await exchange(place.port, data.replace(b"app.example", b"evil.example"))
        assert answer.status in (status, 403)
        assert reads(answer) is None
        await place.empty()


async def test_a_page_reads_that_there_are_too_many_connections() -> None:
    async with at(origins=[PAGE], max_connections=1) as place:
        _, writer = await asyncio.open_connection("127.0.0.1", place.port)
        await place.until(lambda: place.listener.n_connections == 1)
        answer = await exchange(place.port, request(Origin=PAGE))
        assert (answer.status, reads(answer)) == (503, PAGE)
        writer.close()


# options, a request whose fault lies in its head, its status
FAULTS: list[tuple[dict[str, Any], bytes, int]] = [
    ({"max_head": 500}, request(Origin="https://evil.example", X="x" * 500), 431),
    ({"head_timeout": 0.05}, request(Origin="https://evil.example")[:-2], 408),
    ({}, request(Origin="https://evil.example").replace(b"Origin:", b"Origin :"), 400),
]


@every(("options", "data", "status"), FAULTS)
async def test_after_a_fault_of_a_head_the_last_page_reads_the_refusal(
    options: dict[str, Any], data: bytes, status: int
) -> None:
    first = request(close=False, Origin=PAGE)
    for more, last in (({}, PAGE), ({"trusted_proxies": ["192.0.2.1"]}, None)):
        async with at(origins=[PAGE], **options, **more) as place:
            assert reads(await exchange(place.port, data)) is None  # of no page yet
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(first)
            await reader.readuntil(b"ok\n")
            writer.write(data)
            answer = Answer(await reader.read())
            # behind a proxy the last page may be another client's
            assert (answer.status, reads(answer)) == (status, last)
            writer.close()


async def test_a_preflight_for_an_unknown_path_succeeds() -> None:
    async with at(origins=[PAGE]) as place:
        asked = {"Access_Control_Request_Method": "DELETE"}
        answer = await exchange(place.port, request("OPTIONS /nothing", Origin=PAGE, **asked))
        assert (answer.status, reads(answer)) == (204, PAGE)
        assert "DELETE" in answer.headers["access-control-allow-methods"]
        evil = request("OPTIONS /nothing", Origin="https://evil.example", **asked)
        for other in (evil, request("OPTIONS /nothing"), request("OPTIONS /nothing", Origin=PAGE)):
            answer = await exchange(place.port, other)
            assert answer.status == 404
            assert reads(answer) == (PAGE if PAGE.encode() in other else None)


async def test_options_names_the_methods_of_a_path() -> None:
    async with at(routes={"PUT /x": mirror}, token="s3cret") as place:
        answer = await exchange(place.port, request("OPTIONS /x"))
        assert (answer.status, answer.headers["allow"]) == (204, "PUT, OPTIONS")
        answer = await exchange(place.port, request("OPTIONS /mcp"))
        assert (answer.status, answer.headers["allow"]) == (204, "POST, GET, DELETE, OPTIONS")


# -- behind proxies --------------------------------------------------------------------------------


async def test_the_client_behind_a_trusted_proxy() -> None:
    fields = {"X_Forwarded_For": "203.0.113.9"}
    async with at(routes={"/peer": peer_of}, trusted_proxies=["127.0.0.0/8"]) as place:
        answer = await exchange(place.port, request("GET /peer", **fields))
        assert answer.body == b"203.0.113.9"
    async with at(routes={"/peer": peer_of}) as place:
        answer = await exchange(place.port, request("GET /peer", **fields))
        assert answer.body.startswith(b"127.0.0.1:")


async def test_authenticate_sees_the_client_behind_a_proxy() -> None:
    seen = []

    def authenticate(request: HttpRequest) -> Refusal:
        seen.append((request.peer, request.method, request.path))
        return Refusal(403, "no")

    async with at(authenticate=authenticate, trusted_proxies=["127.0.0.1"]) as place:
        answer = await exchange(place.port, rpc(X_Forwarded_For="203.0.113.9"))
        assert answer.status == 403
    assert seen == [("203.0.113.9", "POST", "/mcp")]


# -- the access log --------------------------------------------------------------------------------


async def test_requests_are_logged_without_secrets(caplog: Any) -> None:
    caplog.set_level(logging.INFO, logger="wirespeed.access")
    slow = Slow()
    async with at(routes={"/slow": slow}, access_log="text", token="s3cret") as place:
        await exchange(place.port, request("GET /healthz?token=s3cret"))
        answer = await exchange(place.port, rpc(Authorization="Bearer s3cret"))
        assert answer.status == 200
        await exchange(place.port, rpc(Authorization="Bearer s3cret2"))
        _, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(request("GET /slow"))
        await slow.began.wait()
        writer.transport.abort()
        await place.empty()
    lines = [r.getMessage() for r in caplog.records if r.name == "wirespeed.access"]
    assert not any("s3cret" in line for line in lines)
    parts = [line.split() for line in lines]
    assert [[*part[1:4], *part[7:]] for part in parts] == [
        ["GET", "/healthz", "200"],
        ["POST", "/mcp", "200", "tools/call"],
        ["POST", "/mcp", "401", "tools/call"],
        ["GET", "/slow", "499"],
    ]
    assert all(part[0].startswith("127.0.0.1:") for part in parts)
    assert int(parts[1][4]) > len(answer.body)
    assert int(parts[3][4]) == 0


# -- TLS -------------------------------------------------------------------------------------------


async def test_https(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), "https://127.0.0.1:0/mcp", ssl=server_ssl) as place:
        assert place.url == f"https://127.0.0.1:{place.port}/mcp"
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        for _ in range(3):  # one connection is kept
            writer.write(rpc().replace(b"Connection: close\r\n", b""))
            head = await reader.readuntil(b"\r\n\r\n")
            answer = Answer(head + await reader.readexactly(int(length_of(head))))
            assert json.loads(answer.body)["result"]["content"][0]["text"] == "hi"
        writer.write(request())
        assert (await reader.read()).endswith(b"ok\n")
        writer.close()


async def test_plain_text_at_https_is_closed(server_ssl: Any) -> None:
    async with serving(lab_server(), "https://127.0.0.1:0/mcp", ssl=server_ssl) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(request())
        assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        await place.empty()


async def test_a_drain_closes_https(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), "https://127.0.0.1:0/mcp", ssl=server_ssl) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        writer.write(request(close=False))
        await reader.readuntil(b"ok\n")
        place.listener.drain()
        assert await reader.read() == b""
        writer.close()
        await asyncio.wait_for(place.task, FOREVER)


# -- WebSocket at the same port --------------------------------------------------------------------


async def test_a_websocket_at_a_port_of_http() -> None:
    async with at(token="s3cret", max_connections=2) as place:
        right = {"Authorization": "Bearer s3cret"}
        assert (await exchange(place.port, rpc(**right))).status == 200
        await place.empty()
        before = descriptors()
        for _ in range(3):
            peer = await Bare.connect(place.port, **right)
            await peer.handshake()
            assert place.listener.n_connections == 1
            assert (await exchange(place.port, rpc(**right))).status == 200
            await peer.close()
            await place.empty()
        answer = await exchange(place.port, upgrade(port=place.port))
        assert answer.status == 401
        answer = await exchange(place.port, upgrade("/other", port=place.port))
        assert answer.status == 404
        answer = await exchange(
            place.port, upgrade(port=place.port, Sec_WebSocket_Key="x", **right)
        )
        assert answer.status == 400
        await place.empty()
        assert descriptors() <= before


async def test_an_upgrade_behind_other_requests() -> None:
    async with at() as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        first = encode(initialize("init")).rstrip(b"\n")
        asked = upgrade(port=place.port, Sec_WebSocket_Protocol="mcp")
        writer.write(request(close=False))
        await reader.readuntil(b"ok\n")
        writer.write(asked + frame(1, first))  # a frame that does not wait for the answer
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        peer = Bare(reader, writer)
        assert (await peer.message())["id"] == "init"
        place.listener.drain()
        assert (await peer.close_code())[0] == 1001
        peer.frame(8, b"\x03\xe9")
        await asyncio.wait_for(place.task, FOREVER)
        await peer.close()


async def test_a_websocket_at_a_port_of_https(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), "https://127.0.0.1:0/mcp", ssl=server_ssl) as place:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
            writer.write(request(close=False))
            await reader.readuntil(b"ok\n")
            writer.write(upgrade(port=place.port, Sec_WebSocket_Protocol="mcp"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            peer = Bare(reader, writer)
            await peer.handshake()
            peer.send(call(2, "fill", {"size": 100_000}))
            assert (await peer.message())["id"] == 2
            await peer.close()
            await place.empty()


async def test_other_upgrades_are_ignored() -> None:
    async with at() as place:
        fields = {"Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAARAAAAAAAIAAAAA"}
        asked = request(close=False, **fields).replace(
            b"\r\n\r\n", b"\r\nConnection: upgrade\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(asked)
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


# -- limits ----------------------------------------------------------------------------------------


async def test_a_connection_has_a_number_of_requests() -> None:
    async with at(max_requests=2) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(request(close=False) * 3)
        data = await reader.read()
        assert data.count(b"HTTP/1.1 200 OK") == 2
        assert data.count(b"Connection: close") == 1
        writer.close()


async def test_too_many_connections_get_an_answer() -> None:
    async with at(max_connections=1) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        await place.until(lambda: place.listener.n_connections == 1)
        for what in (request(), rpc(), request("GET /nothing")):
            answer = await exchange(place.port, what)
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            assert answer.line == "too many connections"
        writer.write(request())
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await place.empty()
        assert (await exchange(place.port, request())).status == 200


TOO_LATE: list[tuple[str, bytes, str]] = [
    ("head_timeout", b"GET /healthz HTTP/1.1\r\n", "the head of the request took too long"),
    (
        "body_timeout",
        request("POST /mcp", b"xxx", close=False)[:-1],
        "the body of the request took too long",
    ),
]


@pytest.mark.parametrize(("name", "data", "text"), TOO_LATE)
async def test_a_slow_client_is_refused(name: str, data: bytes, text: str) -> None:
    async with at(**{name: 0.05}) as place:
        answer = await exchange(place.port, data)
        assert (answer.status, answer.line) == (408, text)
        assert answer.headers["connection"] == "close"
        await place.empty()


async def test_the_seconds_of_a_head_are_those_of_the_whole_head() -> None:
    async with at(head_timeout=0.1) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        answer = asyncio.create_task(reader.read())
        for byte in b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * 10_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
            if answer.done():
                break
        assert Answer(await answer).status == 408
        writer.close()


async def test_a_quiet_connection_is_closed_without_a_word() -> None:
    async with at(idle_timeout=0.05) as place:
        for first in (b"", request(close=False)):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(first)
            data = await reader.read()
            assert data.count(b"HTTP/1.1") == bool(first)
            writer.close()
        await place.empty()


async def test_who_is_answered_is_not_late() -> None:
    slow = Slow()
    options = {"idle_timeout": 0.05, "head_timeout": 0.05, "body_timeout": 0.05}
    async with at(routes={"/slow": slow}, **options) as place:
        asked = asyncio.create_task(exchange(place.port, request("GET /slow")))
        await slow.began.wait()
        await asyncio.sleep(0.3)
        slow.go.set()
        assert (await asked).status == 200


async def test_nothing_is_left_of_clients_that_do_not_ask() -> None:
    async with at(head_timeout=0.1) as place:
        assert (await exchange(place.port, request())).status == 200
        await place.empty()
        before = descriptors()
        writers = []
        for _ in range(50):
            _, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: ")
            writers.append(writer)
        await place.until(lambda: place.listener.n_connections == 50)
        assert (await exchange(place.port, request())).status == 200
        await place.empty()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        assert descriptors() <= before


# -- arguments -------------------------------------------------------------------------------------


async def never(request: HttpRequest) -> HttpResponse:
    raise AssertionError


@every(
    ("url", "options", "match"),
    [
        ("ws://127.0.0.1:0", {"http": HttpOptions(stateless=True)}, "http is for http://"),
        ("tcp://127.0.0.1:0", {"http": HttpOptions(healthz=None)}, "http is for http://"),
        ("http://127.0.0.1:0/healthz", {}, "/healthz is the path of a server"),
        ("http://h:0/x", {"http": HttpOptions(routes={"/x": never})}, "/x is the path of a server"),
        ("https://127.0.0.1:0", {}, "https:// needs ssl"),
    ],
)
async def test_arguments_that_do_not_fit(url: str, options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        await Server("s").serve(url, **options)


async def test_litemcp_over_tls(server_ssl: ssl.SSLContext, client_ssl: ssl.SSLContext) -> None:
    lite = LiteServer()

    @lite.tool
    async def upper(text: str) -> str:
        return text.upper()

    async with serving(lite, "https://127.0.0.1:0/upper", ssl=server_ssl) as place:
        async with LiteClient(Http(place.url, ssl=client_ssl)) as client:
            assert (await client.call("a")).text == "A"
        async with LiteClient(place.url) as client:
            with raises(TransportError):
                await client.info()
