"""The ASGI door, as an ASGI server sees it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.asgi import FOREVER, Request, call, message
from lab.rows import every
from lab.wording import raises

from wirespeed import Context, HttpOptions, HttpRequest, HttpResponse, Limits, Server
from wirespeed.litemcp import LiteServer
from wirespeed.transport.http.connection import HttpConnection


def lab(**options: Any) -> Server:
    server = Server("lab", **options)
    server.seen = []  # type: ignore[attr-defined]

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i)
            await asyncio.sleep(0)
        return f"{n} counted"

    @server.tool
    async def wait(ctx: Context) -> str:
        server.seen.append(ctx.peer)  # type: ignore[attr-defined]
        try:
            await ctx.progress(1)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            server.seen.append("cancelled")  # type: ignore[attr-defined]
            raise
        return "never"

    return server


async def another() -> str:
    return ""


def text(request: Request) -> str:
    found: str = request.json["result"]["content"][0]["text"]
    return found


@contextlib.asynccontextmanager
async def alive(app: Any) -> AsyncIterator[Any]:
    """An application whose server is started, and ended in order: nothing is left of it."""
    before = asyncio.all_tasks()
    async with app.lifespan():
        yield app
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


# -- requests --------------------------------------------------------------------------------------


async def test_a_call_is_answered_with_one_body() -> None:
    async with alive(lab().asgi()) as app:
        request = await call(app, "add", {"a": 1, "b": 2}).whole()
        assert (request.status, request.ended, text(request)) == (200, True, "3")
        assert request.headers["content-type"] == "application/json"
        assert int(request.headers["content-length"]) == len(request.body)
        assert not {"connection", "date", "transfer-encoding"} & set(request.headers)


@pytest.mark.parametrize("length", [True, False])
async def test_a_body_in_pieces(length: bool) -> None:
    async with alive(lab().asgi()) as app:
        request = call(app, "add", {"a": 1, "b": 2}, piece=7)
        if length:
            n = sum(map(len, request.unread))
            request.scope["headers"].append((b"content-length", str(n).encode()))
        else:
            request.scope["headers"].append((b"transfer-encoding", b"chunked"))
        assert text(await request.whole()) == "3"


async def test_events_leave_as_they_come() -> None:
    async with alive(lab().asgi()) as app:
        request = call(app, "wait", {}, token="t")
        await request.until(b"notifications/progress")
        assert (request.status, request.ended) == (200, False)
        assert request.headers["content-type"] == "text/event-stream"
        await request.leave()


async def test_a_stream_ends_with_the_answer() -> None:
    async with alive(lab().asgi()) as app:
        request = await call(app, "count", {"n": 5}, token="t").whole()
        assert request.ended
        assert request.body.count(b"notifications/progress") == 5
        assert b"5 counted" in request.body


async def test_the_client_that_leaves_cancels_its_call() -> None:
    server = lab()
    async with alive(server.asgi()) as app:
        request = call(app, "wait", {}, token="t")
        await request.until(b"progress")
        await request.leave()
        async with asyncio.timeout(FOREVER):
            while "cancelled" not in server.seen:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        assert not request.ended
        assert server.seen[0] == "203.0.113.9:4711"  # type: ignore[attr-defined]


async def test_the_client_that_leaves_a_silent_call_cancels_it() -> None:
    server = lab()

    @server.tool
    async def silent() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            server.seen.append("cancelled")  # type: ignore[attr-defined]
        return "never"

    async with alive(server.asgi(http=HttpOptions(sse_keepalive=0.1))) as app:
        request = call(app, "silent", {})
        await request.until(b":\n\n")
        assert (request.status, request.ended) == (200, False)
        assert request.headers["content-type"] == "text/event-stream"
        await request.leave()
        async with asyncio.timeout(FOREVER):
            while "cancelled" not in server.seen:  # type: ignore[attr-defined]
                await asyncio.sleep(0)


async def test_a_client_that_leaves_within_its_body() -> None:
    async with alive(lab().asgi()) as app:
        request = Request(app, "POST", "/mcp", b"{", content_length="100")
        request.left.set()
        await request.whole()
        assert request.status == 0


async def test_a_slow_client_is_waited_for() -> None:
    async with alive(lab(limits=Limits(output_high=2000, output_low=1000)).asgi()) as app:
        request = call(app, "count", {"n": 500}, token="t")
        await request.until(b"progress")
        request.may_send.clear()
        for _ in range(2000):
            await asyncio.sleep(0)
        assert len(request.body) < 10_000
        request.may_send.set()
        await request.whole()
        assert request.body.count(b"notifications/progress") == 500


async def test_a_body_that_is_too_long_is_refused() -> None:
    async with alive(lab(limits=Limits(max_message=1000)).asgi()) as app:
        request = await Request(app, "POST", "/mcp", b"x" * 600, b"x" * 600, b"x" * 600).whole()
        assert request.status == 413
        assert len(request.unread) == 1
        request = await Request(app, "POST", "/mcp", b"x", b"y", content_length="2000").whole()
        assert request.status == 413
        assert len(request.unread) == 1


SMUGGLED = b"DELETE /mcp HTTP/1.0\r\nx: "


def lite() -> Any:
    server = LiteServer()

    @server.tool
    def echo(text: str) -> str:
        return text

    return server.asgi("/mcp")


async def poison(app: Any, *pieces: bytes, **fields: str | None) -> Request:
    """A request whose body goes on behind the length that it names."""
    request = Request(app, "POST", "/mcp", *pieces, **fields)
    return await request.whole()


LENGTHS: list[dict[str, str | None]] = [
    {"transfer_encoding": "chunked"},  # beside Content-Length
    {"transfer_encoding": "gzip, chunked"},
    {},
]


@every("fields", LENGTHS, ids=str)
@every("n_pieces", [1, 2, 3])
async def test_what_lies_behind_a_body_reaches_no_other_client(
    n_pieces: int, fields: dict[str, str | None]
) -> None:
    async with alive(lab().asgi()) as app:
        for _ in range(3):
            request = call(app, "add", {"a": 1, "b": 2})
            (body,) = request.unread
            whole = body + SMUGGLED
            cut = {1: [], 2: [len(body)], 3: [10, len(body) + 5]}[n_pieces]
            ends = [0, *cut, len(whole)]
            request.unread = [whole[a:b] for a, b in itertools.pairwise(ends)]
            request.scope["headers"] += [
                (name.replace("_", "-").encode(), value.encode())
                for name, value in fields.items()
                if value is not None
            ]
            await request.whole()
            if fields:  # the pieces are the body: it is no JSON
                assert (request.status, request.json["error"]["code"]) == (400, -32700)
            elif n_pieces == 1:
                assert request.status == 400
            else:
                assert request.status in (200, 400)
            assert text(await call(app, "add", {"a": 2, "b": 2}).whole()) == "4"


@every("fields", LENGTHS, ids=str)
@every("is_cut", [False, True])
async def test_what_lies_behind_the_body_of_a_stranger(
    is_cut: bool, fields: dict[str, str | None]
) -> None:
    """It is not read, and a client with the token is served as before."""
    async with alive(lab().asgi(token="sesame")) as app:
        for _ in range(3):
            body = message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            pieces = (body, SMUGGLED) if is_cut else (body + SMUGGLED,)
            stranger = await poison(app, *pieces, **{"content_length": str(len(body)), **fields})
            assert stranger.status == (401 if fields or is_cut else 400)
            assert stranger.unread == [*pieces[1:]]
            owner = call(app, "add", {"a": 2, "b": 2})
            owner.scope["headers"].append((b"authorization", b"Bearer sesame"))
            assert text(await owner.whole()) == "4"


@every("fields", LENGTHS, ids=str)
async def test_what_lies_behind_a_body_reaches_no_other_client_of_litemcp(
    fields: dict[str, str | None],
) -> None:
    async with alive(lite()) as app:
        body = b'{"version":[1,0,0],"tool":"echo","arguments":["a"]}'
        good = Request(app, "POST", "/mcp", body)
        expected = (await good.whole()).body
        for _ in range(3):
            bad = {"content_length": str(len(body)), **fields}
            assert (await poison(app, body + SMUGGLED, **bad)).status == 400
            assert (await poison(app, body, SMUGGLED, **bad)).status in (200, 400)
            after = await Request(app, "POST", "/mcp", body).whole()
            assert (after.status, after.body) == (200, expected)


@every("pieces", [(b"{}",), (b"{", b"}"), (b"",), (b"", b"")], ids=str)
async def test_a_body_shorter_than_its_length(pieces: tuple[bytes, ...]) -> None:
    async with alive(lab().asgi()) as app:
        request = await Request(app, "POST", "/mcp", *pieces, content_length="100").whole()
        assert (request.status, request.ended) == (400, True)
        assert request.body == b"the body has another length than Content-Length\n"
        assert text(await call(app, "add", {"a": 2, "b": 2}).whole()) == "4"


@every("length", ["", "-1", "+5", "5, 5", "0x5", "1" * 5000, "\xb2"])
async def test_a_length_that_is_no_number(length: str) -> None:
    async with alive(lab().asgi()) as app:
        request = Request(app, "POST", "/mcp", b"{}", b"", content_length=None)
        request.scope["headers"].append((b"content-length", length.encode("latin-1")))
        assert (await request.whole()).status == 400
        # and two that differ
        request = Request(app, "POST", "/mcp", b"{}", content_length="2")
        request.scope["headers"].append((b"content-length", b"3"))
        assert (await request.whole()).status == 400
        assert text(await call(app, "add", {"a": 2, "b": 2}).whole()) == "4"


async def test_a_line_end_within_a_field_begins_no_request() -> None:
    """Servers of HTTP/2 may let one pass."""
    async with alive(lab().asgi()) as app:
        for value in (b"a\r\n\r\n" + SMUGGLED, b"a\r\nx-user: root", b"a\nb: c"):
            request = call(app, "add", {"a": 1, "b": 2})
            request.scope["headers"].append((b"x-more", value))
            assert (await request.whole()).status == 400
            query = {"query_string": b"a HTTP/1.0" + value}
            request = call(app, "add", {"a": 1, "b": 2}, scope=query)
            assert (await request.whole()).status in (400, 404)
        assert text(await call(app, "add", {"a": 2, "b": 2}).whole()) == "4"


async def test_legacy_clients_have_sessions() -> None:
    server = lab()
    async with alive(server.asgi()) as app:
        client = {"name": "c", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        body = message("initialize", params, modern=False)
        request = await Request(app, "POST", "/mcp", body).whole()
        session = request.headers["mcp-session-id"]
        assert request.json["result"]["protocolVersion"] == "2025-11-25"
        body = message("notifications/initialized", modern=False, id=None)
        request = await Request(app, "POST", "/mcp", body, Mcp_Session_Id=session).whole()
        assert (request.status, request.ended, request.body) == (202, True, b"")
        body = message("tools/list", modern=False)
        request = await Request(app, "POST", "/mcp", body, Mcp_Session_Id=session).whole()
        assert len(request.json["result"]["tools"]) == 3
        stream = Request(app, "GET", "/mcp", Mcp_Session_Id=session)
        async with asyncio.timeout(FOREVER):
            while not stream.status:
                await asyncio.sleep(0)
        server.tool(another)
        await stream.until(b"tools/list_changed")
        await stream.leave()
        request = await Request(app, "DELETE", "/mcp", Mcp_Session_Id=session).whole()
        assert request.status in (200, 204)
        request = await Request(app, "POST", "/mcp", body, Mcp_Session_Id=session).whole()
        assert request.status == 404


# -- places ----------------------------------------------------------------------------------------


@every(
    ("own", "path", "root", "status"),
    [
        ("/mcp", "/mcp", "", 200),
        ("/mcp", "/tools/mcp", "/tools", 200),  # ASGI since 2023: the path has the mount
        ("/mcp", "/mcp", "/tools", 200),  # servers that remove it
        ("/", "/tools", "/tools", 200),
        ("/", "/tools/", "/tools", 200),
        ("/", "/", "", 200),
        ("/a b", "/a b", "", 200),
        ("/é", "/é", "", 200),
        ("/mcp", "/mcp/", "", 200),
        ("/mcp", "/tools/mcp", "", 404),
    ],
)
async def test_where_it_is_mounted(own: str, path: str, root: str, status: int) -> None:
    async with alive(lab().asgi(own.replace(" ", "%20"))) as app:
        request = call(app, "add", {"a": 1, "b": 2}, path=path, scope={"root_path": root})
        assert (await request.whole()).status == status


async def version(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body=f"{request.path} {request.query}")


async def test_routes_and_health_are_there_too() -> None:
    app = lab().asgi(http=HttpOptions(routes={"/version": version}))
    async with alive(app):
        request = await Request(app, "GET", "/version?x=%20").whole()
        assert (request.status, request.body) == (200, b"/version x=%20")
        request = await Request(app, "HEAD", "/healthz").whole()
        assert (request.status, request.ended, request.body) == (200, True, b"")
    with raises(ValueError):
        lab().asgi("/healthz")


def test_sessions_stay_in_the_process() -> None:
    with raises(ValueError):
        lab().asgi(http=HttpOptions(host_url="http://10.0.0.5:8000"))


async def peer_of(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body=request.peer)


async def test_many_clients_one_after_another() -> None:
    """What is kept for a client is neither another one's nor kept for all of them."""
    async with alive(lab().asgi(http=HttpOptions(routes={"/peer": peer_of}))) as app:
        live = connections()
        for i in (*range(600), 599, 0):
            request = Request(app, "GET", "/peer", scope={"client": ("203.0.113.9", 5000 + i)})
            assert (await request.whole()).body == b"203.0.113.9:%d" % (5000 + i)
        assert connections() - live < 400
    assert connections() <= live


def connections() -> int:
    """Connections that are alive in this process."""
    gc.collect()
    return sum(isinstance(found, HttpConnection) for found in gc.get_objects())


async def test_who_may_come_in() -> None:
    async with alive(lab().asgi(token="s3cret", origins=["https://app.example"])) as app:
        request = await call(app, "add", {"a": 1, "b": 2}).whole()
        assert (request.status, request.headers["www-authenticate"]) == (401, "Bearer")
        right = {"Authorization": "Bearer s3cret"}
        request = await call(app, "add", {"a": 1, "b": 2}, **right).whole()
        assert request.status == 200
        request = await call(app, "add", {}, Origin="https://evil.example", **right).whole()
        assert request.status == 403
        request = await call(app, "add", {}, Origin="https://app.example", **right).whole()
        assert request.headers["access-control-allow-origin"] == "https://app.example"


@pytest.mark.parametrize("origin", ["http://tools.example", "http://localhost:3000"])
async def test_by_default_no_name_is_trusted(origin: str) -> None:
    """A page may have any name point to this machine."""
    async with alive(lab().asgi()) as app:
        request = await call(app, "add", {"a": 1, "b": 2}, Origin=origin).whole()
        assert request.status == 403


async def test_too_many_requests_at_once() -> None:
    async with alive(lab().asgi(max_connections=1)) as app:
        first = call(app, "wait", {}, token="t")
        await first.until(b"progress")
        request = await call(app, "add", {"a": 1, "b": 2}).whole()
        assert (request.status, request.headers["retry-after"]) == (503, "5")
        await first.leave()
        assert (await call(app, "add", {"a": 1, "b": 2}).whole()).status == 200


async def test_a_websocket_is_refused() -> None:
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await lab().asgi()({"type": "websocket"}, receive, send)
    assert said == ["websocket.close"]


# -- life ------------------------------------------------------------------------------------------


class Lives:
    """The lifespan of a server, counted."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.events: list[str] = []

    @contextlib.asynccontextmanager
    async def __call__(self, server: Server) -> AsyncIterator[None]:
        if self.fails:
            raise RuntimeError("no database")
        self.events.append("start")
        await asyncio.sleep(0)
        yield
        self.events.append("end")


async def lifespan(app: Any, between: Any = None) -> list[Any]:
    """What an application says to the lifespan protocol."""
    said: list[Any] = []
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Any:
        kind = next(asked)
        if kind.endswith("shutdown") and between is not None:
            await between()
        return {"type": kind}

    async def send(message: Any) -> None:
        said.append(message)

    await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    return said


async def test_a_server_lives_as_long_as_the_lifespan() -> None:
    lives = Lives()
    app = lab(lifespan=lives).asgi()

    async def between() -> None:
        for _ in range(2):
            assert (await call(app, "add", {"a": 1, "b": 2}).whole()).status == 200
        assert lives.events == ["start"]

    said = [message["type"] for message in await lifespan(app, between)]
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert lives.events == ["start", "end"]


async def test_a_start_that_fails_is_told(caplog: Any) -> None:
    (said,) = await lifespan(lab(lifespan=Lives(fails=True)).asgi())
    assert said["type"] == "lifespan.startup.failed"
    assert "no database" in said["message"]


async def test_without_a_lifespan_the_first_request_starts_the_server() -> None:
    lives = Lives()
    app = lab(lifespan=lives).asgi()
    requests = [call(app, "add", {"a": 1, "b": 2}) for _ in range(5)]
    for request in requests:
        assert (await request.whole()).status == 200
    assert lives.events == ["start"]
    async with app.lifespan():
        assert lives.events == ["start"]
    assert lives.events == ["start", "end"]


async def test_the_end_ends_what_is_at_work() -> None:
    server = lab()
    app = server.asgi()
    async with alive(app):
        request = call(app, "wait", {}, token="t")
        await request.until(b"progress")
    await request.whole()
    assert server.seen[1] == "cancelled"  # type: ignore[attr-defined]


# -- bodies of strangers, and of many at once ------------------------------------------------------


async def later(request: HttpRequest) -> bool:
    await asyncio.sleep(0.01)
    return request.token == "good"


@every("length", ["9999999", None])
@every("waits", [False, True])
async def test_a_stranger_is_refused_before_the_body(waits: bool, length: str | None) -> None:
    options: Any = {"authenticate": later} if waits else {"token": "good"}
    async with alive(lab().asgi(**options)) as app:
        request = Request(app, "POST", "/mcp", *[b"x" * 1000] * 500, content_length=length)
        await request.whole()
        assert request.status == 401
        assert len(request.unread) >= 498
        fields: dict[str, Any] = {"authorization": "Bearer good"}
        one = await call(app, "add", {"a": 1, "b": 2}, piece=10, **fields).whole()
        assert (one.status, text(one)) == (200, "3")


@pytest.mark.parametrize("length", ["9999999", None])
async def test_bodies_of_many_requests_have_a_limit(length: str | None) -> None:
    async with alive(lab().asgi(max_input_bytes=500_000)) as app:
        gate = asyncio.Event()

        class Stuck(Request):
            async def _receive(self) -> dict[str, Any]:
                if len(self.unread) == 1:
                    await gate.wait()
                return await super()._receive()

        pieces = [b" " * 200_000, b"x"]
        stuck = [Stuck(app, "POST", "/mcp", *pieces, content_length=length) for _ in range(2)]
        while any(len(one.unread) > 1 for one in stuck):
            await asyncio.sleep(0)
        late = await Request(app, "POST", "/mcp", *pieces, content_length=length).whole()
        assert (late.status, late.headers["retry-after"]) == (503, "5")
        assert text(await call(app, "add", {"a": 1, "b": 2}).whole()) == "3"
        for one in stuck:
            one.unread.clear()
            one.left.set()
        gate.set()
        for one in stuck:
            await one.whole()
        again = await Request(app, "POST", "/mcp", *pieces, content_length="200001").whole()
        assert again.status == 400  # it is not JSON
