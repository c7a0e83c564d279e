"""LiteMCP over HTTP: with clients and servers that know the pages alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.asgi import Request
from lab.http import Peer, Response
from lab.lite import FOREVER, Run, calculator, listening, until
from lab.serve import serving as listener_of
from lab.web import Exchange, HttpPeer, serving
from lab.wording import raises

import wirespeed
from wirespeed import Client, Http, HttpOptions, Limits, Server
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    HttpStatusError,
    InvalidResponse,
    TransportError,
)
from wirespeed.litemcp import LiteClient, LiteServer, SyncLiteClient
from wirespeed.litemcp.bridge import as_lite_server, as_mcp_tool
from wirespeed.transport.net.listener import serve_at
from wirespeed.transport.net.serve import plan
from wirespeed.transport.net.sockets import resolve
from wirespeed.transport.taskpool_choice import LAST_WAIT

pytestmark = pytest.mark.compiled

TOKEN = "sesame"
URL = "http://127.0.0.1:0/calc"


def bearer(token: str = TOKEN) -> str:
    return f"Bearer {token}"


def body(tool: str, arguments: Any = None, **more: Any) -> bytes:
    """A ToolCall, without an envelope."""
    return json.dumps({"version": [1, 0, 0], "tool": tool, "arguments": arguments, **more}).encode()


SUM = body("Calculator", ["2", "3"])


@contextlib.asynccontextmanager
async def talking(url: str) -> AsyncIterator[Peer]:
    """A connection of a client that reads HTTP by h11."""
    port = int(url.split(":")[2].partition("/")[0])
    peer = Peer(port, *await asyncio.open_connection("127.0.0.1", port))
    try:
        yield peer
    finally:
        peer.close()


@contextlib.asynccontextmanager
async def served(service: Any, url: str = URL, **options: Any) -> AsyncIterator[Peer]:
    """A server, and a connection of a client."""
    async with listening(service, url, **options) as found, talking(found) as peer:
        yield peer


def result(response: Response) -> Any:
    """The contents of a CallResult without an error."""
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    found = response.json
    assert set(found) == {"version", "params", "response"}  # no envelope
    assert found["response"]["error"] is False, found
    return [(c["type"], c["data"]) for c in found["response"]["content"]]


def failure(response: Response) -> str:
    """The one text of a CallResult with an error."""
    assert response.status == 200
    assert set(response.json) == {"version", "params", "response"}
    assert response.json["response"]["error"] is True
    (piece,) = response.json["response"]["content"]
    text: str = piece["data"]
    return text


def refusal(response: Response) -> tuple[int, str]:
    assert response.headers["content-type"].startswith("text/plain")
    return response.status, response.body.decode().rstrip("\n")


class Waiting:
    """A server whose tool waits until it is let go, or cancelled."""

    def __init__(self, **options: Any) -> None:
        self.server = LiteServer("wait", **options)
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = 0
        self.stubborn = False

        @self.server.tool
        async def wait() -> str:
            self.started.set()
            while True:
                try:
                    await self.go.wait()
                    return "went"
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if not self.stubborn:
                        raise


# -- our server, a client written from the pages ---------------------------------------------------


async def test_get_and_post_share_the_path_and_bodies_have_no_envelope() -> None:
    async with served(calculator()) as peer:
        info = await peer.ask("GET", "/calc")
        assert info.status == 200
        assert info.headers["content-type"] == "application/json"
        assert info.json["version"] == [1, 0, 0]
        assert info.json["name"] == "Calculator"
        assert [p["name"] for p in info.json["parameters"]] == ["a", "b"]
        assert "id" not in info.json
        answer = await peer.ask("POST", "/calc", SUM)
        assert result(answer) == [("number", "5")]
        assert answer.json["params"] == {"a": "2", "b": "3"}
        assert answer.json["version"] == [1, 0, 0]
        head = await peer.ask("HEAD", "/calc?any=1")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == info.headers["content-length"]


async def test_the_bytes_of_a_request_by_hand(once: Run) -> None:
    async with listening(calculator(), URL) as url:
        port = int(url.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pretty = json.dumps(json.loads(SUM), indent=4).encode()
        writer.write(
            b"POST /calc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(pretty), pretty)
        )
        data = await asyncio.wait_for(reader.read(), FOREVER)
        head, _, found = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"keep-alive" not in head.lower()  # the connection is closed
        assert json.loads(found)["response"]["content"] == [{"type": "number", "data": "5"}]
        writer.close()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"{", "the body is not a ToolCall: not one JSON value"),
        (b"{}{}", "the body is not a ToolCall: not one JSON value"),
        (b'{"tool":"\xff"}', "the body is not a ToolCall: not UTF-8"),
        (b"[]", "the body is not a ToolCall: not a JSON object"),
        (b" ", "the body is not a ToolCall: not one JSON value"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "the body is not a ToolCall: nested deeper"),
        (b"{}", "the body is not a ToolCall: Object missing required field `tool`"),
        (b'{"version":[1,0,0],"tool":5}', "the body is not a ToolCall: Expected `str`"),
        (b'{"version":[1,0,0],"tool":"\\ud800"}', "the body is not a ToolCall"),
        (body("Calculator", version=[2, 0, 0]), "the body: LiteMCP 2.0.0 is not supported"),
        (body("Calculator", version=[1, 0]), "the body: a version is [major, minor, patch]"),
        (b'{"tool":"Calculator"}', "the body: the version is missing"),
        (  # an envelope, as over WebSocket
            b'{"version":[1,0,0],"id":1,"type":"call","data":{}}',
            "the body is not a ToolCall: Object missing required field `tool`",
        ),
    ],
)
async def test_a_body_that_is_not_a_call_is_a_400(once: Run, sent: bytes, said: str) -> None:
    async with served(calculator()) as peer:
        status, text = refusal(await peer.ask("POST", "/calc", sent))
        assert status == 400
        assert text.startswith(said)
        assert result(await peer.ask("POST", "/calc", SUM))  # on the same connection


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (body("other", ["1", "2"]), "unknown tool 'other': the tool is 'Calculator'"),
        (body("Calculator", ["x", "3"]), "argument 'a': expected number, got 'x'"),
        (body("Calculator", ["1"]), "missing argument: b"),
        (body("Calculator", ["1", "2", "3"]), "too many arguments"),
        (body("Calculator", [1, 2]), "arguments[0] is not a string"),
        (body("Calculator"), "missing arguments: a, b"),
    ],
)
async def test_a_call_that_fails_is_a_200_with_an_error(once: Run, sent: bytes, said: str) -> None:
    async with served(calculator()) as peer:
        assert failure(await peer.ask("POST", "/calc", sent)).startswith(said)


async def test_a_server_that_is_not_strict_takes_other_values(once: Run) -> None:
    async with served(calculator(strict=False)) as peer:
        sent = b'{"tool":"Calculator","arguments":[2,3]}'
        assert result(await peer.ask("POST", "/calc", sent)) == [("number", "5")]
        assert (
            await peer.ask("POST", "/calc", body("Calculator", version=[2, 0, 0]))
        ).status == 400


async def test_an_exception_keeps_the_shape_and_is_logged(caplog: Any) -> None:
    server = LiteServer("fails")

    @server.tool
    async def fails(how: str) -> str:
        raise ValueError(how)

    async with served(server) as peer:
        answer = await peer.ask("POST", "/calc", body("fails", ["these words"]))
        assert failure(answer) == "these words"
        assert answer.json["params"] == {"how": "these words"}
    assert "Traceback" in caplog.text


async def test_other_methods_types_and_codings_are_refused(once: Run) -> None:
    async with served(calculator()) as peer:
        for method in ("PUT", "DELETE", "PATCH"):
            response = await peer.ask(method, "/calc")
            assert refusal(response) == (405, "this endpoint takes GET, HEAD, POST, OPTIONS")
            assert response.headers["allow"] == "GET, HEAD, POST, OPTIONS"
        options = await peer.ask("OPTIONS", "/calc")
        assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, POST, OPTIONS")
        for kind in ("text/plain", "application/x-www-form-urlencoded", None):
            response = await peer.ask("POST", "/calc", SUM, content_type=kind)
            assert refusal(response) == (415, "the body must be application/json")
        response = await peer.ask("POST", "/calc", SUM, content_encoding="gzip")
        assert refusal(response) == (415, "coded bodies are not taken")
        assert response.headers["accept-encoding"] == "identity"
        fields = {"content_type": "Application/JSON; charset=utf-8", "content_encoding": "identity"}
        assert result(await peer.ask("POST", "/calc", SUM, **fields))
        assert (await peer.ask("POST", "/other", SUM)).status == 404


async def test_each_server_has_its_own_limit_of_a_body(once: Run) -> None:
    small = calculator(limits=Limits(max_message=100))
    services = {"/small": small, "/calc": calculator(limits=Limits(max_message=1000))}
    async with listening(services, "http://127.0.0.1:0") as url:
        async with talking(url) as peer:
            padded = SUM + b" " * 100
            assert refusal(await peer.ask("POST", "/small", padded)) == (
                413,
                "the body has more than 100 bytes",
            )
            assert result(await peer.ask("POST", "/small", SUM))
            assert result(await peer.ask("POST", "/calc", padded))
        async with talking(url) as peer:
            assert (await peer.ask("POST", "/calc", SUM + b" " * 1000)).status == 413
            await peer.eof()


async def test_several_servers_of_both_protocols_share_a_port() -> None:
    shout, mcp = LiteServer(), wirespeed.Server("mcp")

    @shout.tool
    async def upper(text: str) -> str:
        return text.upper()

    @mcp.tool
    async def lower(text: str) -> str:
        return text.lower()

    ready: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        wirespeed.serve(
            "http://127.0.0.1:0",
            {"/mcp": mcp, "/calc": calculator(), "/upper": shout},
            on_listening=ready.set_result,
        )
    )
    url, *_ = await ready
    async with talking(url) as peer:
        assert result(await peer.ask("POST", "/upper", body("upper", ["a"]))) == [("text", "A")]
        assert result(await peer.ask("POST", "/calc", SUM)) == [("number", "5")]
        answer = await peer.modern("tools/call", {"name": "lower", "arguments": {"text": "B"}})
        assert answer.json["result"]["content"] == [{"type": "text", "text": "b"}]
        assert failure(await peer.ask("POST", "/calc", body("upper", ["a"])))
    task.cancel()
    await asyncio.wait((task,))


@pytest.mark.parametrize(
    ("fields", "good"),
    [
        ({"authorization": bearer()}, True),
        ({"authentication": bearer()}, True),
        ({"authentication": f"bEaReR {TOKEN}"}, True),
        ({"authorization": bearer(), "authentication": bearer()}, True),
        ({}, False),
        ({"authorization": bearer("other")}, False),
        ({"authentication": bearer("other")}, False),
        ({"authorization": bearer(), "authentication": bearer("other")}, False),
        ({"authorization": bearer("other"), "authentication": bearer()}, False),
        ({"authorization": TOKEN}, False),
        ({"x_token": bearer()}, False),
    ],
)
async def test_either_header_brings_the_token_on_every_request(
    once: Run, fields: dict[str, str], good: bool
) -> None:
    for status in (403, 401):
        async with served(calculator(refusal_status=status), token=TOKEN) as peer:
            for _ in range(2):
                assert (await peer.ask("GET", "/calc", authorization=bearer())).status == 200
                found = await peer.ask("POST", "/calc", SUM, **fields)
                assert found.status == (200 if good else status)
                assert ("www-authenticate" in found.headers) is (not good and status == 401)
                assert (await peer.ask("GET", "/calc", **fields)).status == found.status


async def test_any_header_reaches_the_server(once: Run) -> None:
    seen = []

    async def authenticate(request: wirespeed.HttpRequest) -> bool:
        await asyncio.sleep(0)
        seen.append((request.method, request.path, request.query, request.headers["x-custom"]))
        return True

    async with served(calculator(), authenticate=authenticate) as peer:
        assert result(await peer.ask("POST", "/calc?user=1", SUM, x_custom="a b"))
    assert seen == [("POST", "/calc", "user=1", "a b")]


async def test_a_long_call_says_how_long_the_connection_is_kept() -> None:
    waiting = Waiting()
    options = HttpOptions(idle_timeout=200)
    async with served(waiting.server, http=options) as peer:
        peer.send("POST", "/calc", body("wait"))
        await waiting.started.wait()
        waiting.go.set()
        response = await peer.response()
        assert result(response) == [("text", "went")]
        assert response.headers["connection"] == "Keep-Alive"
        assert response.headers["keep-alive"] == "timeout=180, max=100"
        waiting.go.clear()
        waiting.started.clear()
        peer.send("POST", "/calc", body("wait"), connection="close")
        await waiting.started.wait()
        waiting.go.set()
        response = await peer.response()
        assert response.headers["connection"] == "close"
        assert "keep-alive" not in response.headers


async def test_what_a_connection_does_not_keep_is_not_promised(once: Run) -> None:
    for options, said in (
        (HttpOptions(), "timeout=75, max=100"),
        (HttpOptions(max_requests=10), None),
    ):
        waiting = Waiting()
        async with served(waiting.server, http=options) as peer:
            peer.send("POST", "/calc", body("wait"))
            await waiting.started.wait()
            waiting.go.set()
            assert (await peer.response()).headers.get("keep-alive") == said
    async with served(calculator()) as peer:  # no long call
        for response in (await peer.ask("GET", "/calc"), await peer.ask("POST", "/calc", SUM)):
            assert response.status == 200
            assert "keep-alive" not in response.headers


async def test_leaving_cancels_the_call(caplog: Any) -> None:
    waiting = Waiting()
    async with listening(waiting.server, URL) as url:
        async with talking(url) as peer:
            peer.send("POST", "/calc", body("wait"))
            await waiting.started.wait()
        async with asyncio.timeout(FOREVER):
            await until(lambda: waiting.cancelled == 1)
        waiting.go.set()
        async with talking(url) as peer:
            assert result(await peer.ask("POST", "/calc", body("wait"))) == [("text", "went")]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_a_failure_after_the_client_left_is_logged(caplog: Any) -> None:
    server, started, ended = LiteServer("fails"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def fails() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
            raise ValueError("late")

    async with listening(server, URL) as url:
        async with talking(url) as peer:
            peer.send("POST", "/calc", body("fails"))
            await started.wait()
        async with asyncio.timeout(FOREVER):
            await ended.wait()
            await until(lambda: "tool fails failed after its client left" in caplog.text)


async def test_the_time_limit_of_the_tool(once: Run) -> None:
    server = LiteServer("slow")

    @server.tool(timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with served(server) as peer:
        answer = await peer.ask("POST", "/calc", body("slow"))
        assert failure(answer) == "tool slow timed out after 0.05 s"


async def test_plain_functions_run_in_threads_and_inline(once: Run) -> None:
    for inline in (False, True):
        server = LiteServer("shout")

        @server.tool(inline=inline)
        def upper(text: str) -> str:
            return text.upper()

        async with served(server) as peer:
            assert result(await peer.ask("POST", "/calc", body("shout", ["a"]))) == [("text", "A")]


@pytest.mark.parametrize("end", ["answers", "is cancelled", "ignores it"])
async def test_running_calls_have_the_grace_time_of_a_shutdown(end: str, caplog: Any) -> None:
    waiting = Waiting(shutdown_grace=5.0 if end == "answers" else 0.05)
    waiting.stubborn = end == "ignores it"
    drains: list[Any] = []

    @contextlib.contextmanager
    def obey(loop: Any, listener: Any) -> Any:
        drains.append(listener.drain)
        yield

    address, by_path, options = plan(URL, waiting.server, None, {})
    ready: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        serve_at(address, resolve(address), by_path, options, ready.set_result, obey=obey)
    )
    async with talking((await ready)[0]) as peer:
        peer.send("POST", "/calc", body("wait"))
        await waiting.started.wait()
        drains[0]()
        if end == "answers":
            waiting.go.set()
        response = await peer.response()
        assert response.headers["connection"] == "close"
        if end == "answers":
            assert result(response) == [("text", "went")]
        else:
            assert failure(response) == "the server is shutting down"
            waiting.go.set()  # what the tool returns now is dropped
        await peer.eof()
    async with asyncio.timeout(FOREVER):
        await task
    assert not [r for r in caplog.records if r.levelno > logging.WARNING]


async def test_a_call_that_is_let_in_after_the_grace_time_has_an_end() -> None:
    waiting = Waiting(shutdown_grace=0.0)
    asked, decided = asyncio.Event(), asyncio.Event()

    async def authenticate(request: wirespeed.HttpRequest) -> bool:
        asked.set()
        await decided.wait()
        return True

    async with (
        listener_of(waiting.server, URL, authenticate=authenticate) as place,
        talking(place.url) as peer,
    ):
        peer.send("POST", "/calc", body("wait"))
        await asked.wait()
        place.listener.drain()
        await asyncio.sleep(2 * LAST_WAIT)  # the calls that were there have ended
        decided.set()
        assert failure(await peer.response()) == "the server is shutting down"


async def test_an_asgi_application() -> None:
    waiting = Waiting()
    app = calculator().asgi("/calc", token=TOKEN)
    async with app.lifespan():
        fields = {"authentication": bearer()}
        info = await Request(app, "GET", "/calc", **fields).whole()
        assert (info.status, info.json["name"]) == (200, "Calculator")
        answer = await Request(app, "POST", "/calc", SUM, **fields).whole()
        assert answer.json["response"]["content"] == [{"type": "number", "data": "5"}]
        assert (await Request(app, "POST", "/calc", b"{", **fields).whole()).status == 400
        assert (await Request(app, "POST", "/calc", SUM).whole()).status == 403
    app = waiting.server.asgi()
    async with app.lifespan():
        request = Request(app, "POST", "/", body("wait"))
        await waiting.started.wait()
        waiting.go.set()
        answer = await request.whole()
        assert answer.json["response"]["content"] == [{"type": "text", "data": "went"}]
        assert "keep-alive" not in answer.headers  # the connection is the other server's
        waiting.go.clear()
        waiting.started.clear()
        leaving = Request(app, "POST", "/", body("wait"))
        await waiting.started.wait()
        await leaving.leave()
        async with asyncio.timeout(FOREVER):
            await until(lambda: waiting.cancelled == 1)
    with raises(ValueError):
        LiteServer().asgi()


# -- our client, a server written from the pages ---------------------------------------------------

INFO = {
    "version": [1, 0, 0],
    "name": "Calculator",
    "parameters": [{"name": "a", "type": "number"}, {"name": "b", "type": "number"}],
}


async def tell(exchange: Exchange) -> None:
    exchange.json(INFO)


async def add(exchange: Exchange, sent: Any) -> None:
    texts = [{"type": "number", "data": str(sum(map(int, sent["arguments"])))}]
    params = dict(zip("ab", sent["arguments"], strict=True))
    response = {"content": texts, "error": False}
    exchange.json({"version": [1, 0, 0], "params": params, "response": response})


@contextlib.asynccontextmanager
async def other(call: Any = add, get: Any = tell) -> AsyncIterator[HttpPeer]:
    async with serving({"": call}) as peer:
        peer.get = get
        yield peer


async def test_a_client_says_what_the_pages_say() -> None:
    async with other() as there:
        async with LiteClient(there.url + "?user=1", token=TOKEN) as client:
            assert not there.exchanges  # opening sends nothing
            assert (await client.info()).name == "Calculator"
            answer = await client.call(2, b=3)
            assert (answer.text, answer.params) == ("5", {"a": "2", "b": "3"})
        async with LiteClient(Http(there.url, token=TOKEN), both_headers=True) as client:
            await client.info()
        async with LiteClient(
            there.url, headers={"Authentication": "x", "X-Any": "y"}, strict=True
        ) as client:
            assert (await client.call(1, 1)).text == "2"
    get, post, both, _, own = there.exchanges
    assert (get.method, get.target, get.body) == ("GET", "/mcp?user=1", b"")
    assert get.headers["authorization"] == post.headers["authorization"] == bearer()
    assert "authentication" not in post.headers
    assert (post.method, post.target) == ("POST", "/mcp?user=1")
    assert post.headers["content-type"] == "application/json"
    assert post.message == {"version": [1, 0, 0], "tool": "Calculator", "arguments": ["2", "3"]}
    assert both.headers["authorization"] == both.headers["authentication"] == bearer()
    assert (own.headers["authentication"], own.headers["x-any"]) == ("x", "y")
    assert "authorization" not in own.headers


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        (None, 401, "; Http(token=…) takes the server's token"),
        (None, 403, "; Http(token=…) takes the server's token"),
        (TOKEN, 403, ""),
        (None, 404, "; correct the path of the URL"),
        (None, 500, ""),
        (None, 204, ""),
    ],
)
async def test_a_status_is_told(once: Run, token: str | None, status: int, said: str) -> None:
    async def refuse(exchange: Exchange, sent: Any = None) -> None:
        words = "" if status == 204 else f"no, {TOKEN}"
        exchange.reply(status, words, content_type="text/plain", retry_after="7")

    async with (
        other(refuse, refuse) as there,
        LiteClient(there.url + "?secret=1", token=token) as client,
    ):
        with pytest.raises(HttpStatusError) as caught:
            await client.info()
        assert (caught.value.status, caught.value.retry_after) == (status, 7.0)
        text = str(caught.value)
        assert text.startswith(f"{there.url} answered get with {status} ")
        assert text.endswith(said)
        assert "secret" not in text
        if token is not None:
            assert "(no, …)" in text
        there.get = tell
        with raises(HttpStatusError):
            await client.call(1, 2)
        there.rules[""] = add
        assert (await client.call(1, 2)).text == "3"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"<html>", "answered get with a body that is not one JSON value (byte 0)"),
        (b"[]", "answered get with a body that is not a JSON object"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "answered get with a body that is nested"),
        (b"", "answered get with a body that is an empty message"),
        (b"{}", "the data of 'info' is not valid"),
    ],
)
async def test_a_body_that_is_not_an_answer_is_told(once: Run, sent: bytes, said: str) -> None:
    async def get(exchange: Exchange) -> None:
        exchange.reply(200, sent)

    async with other(get=get) as there, LiteClient(there.url) as client:
        with pytest.raises(InvalidResponse) as caught:
            await client.info()
        assert said in str(caught.value)


async def test_a_stream_of_events_is_not_an_answer(once: Run, caplog: Any) -> None:
    left = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        exchange.open()
        exchange.event({"a": 1})
        await exchange.gone
        left.set()

    async with other(get=stream) as there, LiteClient(there.url) as client:
        with raises(InvalidResponse):
            await client.info()
        await asyncio.wait_for(left.wait(), FOREVER)
    assert not caplog.records


async def test_a_body_above_the_limit_is_told(once: Run) -> None:
    async with other() as there, LiteClient(there.url, limits=Limits(max_message=50)) as client:
        with raises(TransportError):
            await client.info()


async def test_time_limits_and_cancellations_leave_the_server() -> None:
    came = asyncio.Event()
    gone = 0

    async def wait(exchange: Exchange, sent: Any) -> None:
        nonlocal gone
        came.set()
        await exchange.gone
        gone += 1

    async with other(wait) as there, LiteClient(there.url, timeout=FOREVER) as client:
        await client.info()
        with raises(CallTimeout):
            await client.invoke(["1", "2"], timeout=0.05)
        async with asyncio.timeout(FOREVER):
            await until(lambda: gone == 1)
        came.clear()
        calling = asyncio.ensure_future(client.call(1, 2))
        await came.wait()
        assert client.n_outstanding == 1
        calling.cancel()
        async with asyncio.timeout(FOREVER):
            await until(lambda: gone == 2)
        assert client.n_outstanding == 0
        there.rules[""] = add
        assert (await client.call(1, 2)).text == "3"


async def test_closing_ends_the_calls_and_opening_begins_anew() -> None:
    came = asyncio.Event()

    async def wait(exchange: Exchange, sent: Any) -> None:
        came.set()
        await exchange.gone

    async with other(wait) as there:
        client = LiteClient(there.url)
        with raises(ConnectionClosed):
            await client.info()
        await client.open()
        calling = asyncio.ensure_future(client.call(1, 2))
        await came.wait()
        await client.close()
        with raises(ConnectionClosed):
            await calling
        with raises(ConnectionClosed):
            await client.info()
        there.rules[""] = add
        async with client:
            assert (await client.call(1, 2)).text == "3"


async def test_a_server_that_leaves_is_told_and_reached_again() -> None:
    async def vanish(exchange: Exchange, sent: Any) -> None:
        exchange.vanish()

    async with other(vanish) as there, LiteClient(there.url) as client:
        with raises(TransportError):
            await client.call(1, 2)
        assert len(there.sent("POST")) == 1  # a call is not sent twice
        there.rules[""] = add
        assert (await client.call(1, 2)).text == "3"
    client = LiteClient(there.url)
    async with client:
        with raises(TransportError):
            await client.info()


async def test_further_calls_wait_at_the_limits(once: Run) -> None:
    running = most = 0

    async def slow(exchange: Exchange, sent: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        await add(exchange, sent)

    async with other(slow) as there:
        for target, limits in (
            (Http(there.url, max_connections=3), Limits()),
            (Http(there.url), Limits(max_outstanding=3)),
        ):
            most = 0
            async with LiteClient(target, limits=limits) as client:
                await client.info()
                found = await asyncio.gather(*(client.call(i, b=1) for i in range(12)))
                assert [one.text for one in found] == [str(i + 1) for i in range(12)]
            assert most == 3


def test_a_client_is_used_on_one_loop_after_another() -> None:
    async def ask(url: str, client: LiteClient | None = None) -> tuple[str, LiteClient]:
        async with listening(calculator(), url) as found:
            client = client or LiteClient(found)
            await client.open()
            assert (await client.call(1, 2)).text == "3"
            return found, client

    url, client = asyncio.run(ask(URL))
    asyncio.run(ask(url, client))


# -- both are ours ---------------------------------------------------------------------------------


async def test_many_calls_over_kept_connections() -> None:
    async with (
        listening(calculator(), URL, token=TOKEN) as url,
        LiteClient(url, token=TOKEN, both_headers=True) as client,
    ):
        results = await asyncio.gather(*(client.call(i, b=1) for i in range(1000)))
        assert [one.text for one in results] == [str(i + 1) for i in range(1000)]
        big = await client.call("1", "x" * 200_000)
        assert big.error


async def test_the_blocking_client() -> None:
    def ask(url: str) -> None:
        with SyncLiteClient(url, token=TOKEN) as client:
            assert client.info().name == "Calculator"
            assert client.call(2, b=3).text == "5"

    async with listening(calculator(), URL, token=TOKEN) as url:
        await asyncio.to_thread(ask, url)


async def test_bridges_both_ways() -> None:
    mcp = Server("mcp")

    @mcp.tool
    async def area(width: float, height: float) -> float:
        return width * height

    async with (
        listening(calculator(), URL) as lite_url,
        LiteClient(lite_url) as lite,
        Client(mcp) as client,
    ):
        await as_mcp_tool(mcp, lite)
        found = await client.call_tool("Calculator", {"a": "2", "b": "3"})
        assert found.text == "5"
        bridge = await as_lite_server(client, "area")
        async with listening(bridge, "http://127.0.0.1:0/area") as url, LiteClient(url) as asking:
            assert (await asking.call(2, 3)).text == "6.0"
    # a bridge whose server has left
    found_error = None
    async with LiteClient(lite_url) as lite, Client(mcp) as client:
        other_server = Server("other")
        await as_mcp_tool(other_server, lite, info=calculator().info)
        async with Client(other_server) as asking_mcp:
            found_error = await asking_mcp.call_tool("Calculator", {"a": "2", "b": "3"})
    assert found_error is not None and found_error.is_error
    assert found_error.text == "tool Calculator cannot be reached"
