"""Which protocol a server of HTTP speaks: the probe, the fallbacks, and HTTP+SSE of 2024-11-05."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.rows import every
from lab.web import MODERN_HTTP, Exchange, legacy, modern, serving
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import (
    ConnectionLost,
    HttpStatusError,
    RemoteError,
    TransportError,
    VersionMismatch,
)


def replying(status: int, body: str = "", kind: str = "text/html") -> Any:
    """A rule that answers with a status."""

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(status, body, content_type=kind)

    return answer


def failing(code: int, status: int, data: Any = None, id: Any = ...) -> Any:
    """A rule that answers with a status and a JSON-RPC error."""

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        error: dict[str, Any] = {"code": code, "message": "no"}
        if data is not None:
            error["data"] = data
        own = message["id"] if id is ... else id
        exchange.json({"jsonrpc": "2.0", "id": own, "error": error}, status)

    return answer


# -- the probe ------------------------------------------------------------------------------------


@every(
    "probed",
    [
        replying(400),
        replying(400, "<h1>Bad Request</h1>"),
        replying(400, "{", "application/json"),
        replying(404),
        replying(405),
        replying(406),
        replying(500),
        replying(200, "<h1>Hello</h1>"),
        failing(-32000, 400),
        failing(-32000, 400, id=None),
        failing(-32600, 400),
        failing(-32601, 404),
        failing(-32601, 200),
        failing(-32602, 400),
        failing(-32022, 400, {"supported": ["2025-11-25"]}),
    ],
)
async def test_http_probes_that_find_a_legacy_server(probed: Any) -> None:
    rules = {"server/discover": probed}
    async with legacy(None, **rules) as peer, peer.client() as client:
        assert client.protocol_version == "2025-11-25"
        assert (await client.call_tool("echo")).content[0].text == "ok"
    assert len(peer.sent("server/discover")) == 1


@every(
    ("probed", "error"),
    [
        (failing(-32020, 400), RemoteError),
        (failing(-32021, 400), RemoteError),
        (failing(-32022, 400, {"supported": ["2099-01-01"]}), VersionMismatch),
        (failing(-32022, 400, {"supported": ["2099-01-01"]}, id=None), VersionMismatch),
        (replying(401), HttpStatusError),
        (failing(-32001, 401, id=None), HttpStatusError),
        (failing(-32001, 401), HttpStatusError),
        (failing(-32600, 403, id=None), HttpStatusError),
        (failing(-32000, 503, id=None), HttpStatusError),
        (replying(403), HttpStatusError),
        (replying(407), HttpStatusError),
        (replying(429), HttpStatusError),
        (replying(502), HttpStatusError),
        (replying(503), HttpStatusError),
        (replying(504), HttpStatusError),
    ],
)
async def test_http_probes_without_fallback(probed: Any, error: type[Exception]) -> None:
    async with legacy(None, **{"server/discover": probed}) as peer:
        with pytest.raises(error):
            await peer.client().open()
    assert not peer.sent("initialize") and not peer.sent("GET")


async def test_a_probe_that_is_not_answered() -> None:
    async def never(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.gone

    rules = {"server/discover": never}
    async with legacy(None, **rules) as peer, peer.client(probe_timeout=1.0) as client:
        assert client.protocol_version == "2025-11-25"
        # the probe does not keep its connection
        await asyncio.wait_for(asyncio.shield(peer.sent("server/discover")[0].gone), 5)


async def test_a_slow_answer_to_the_probe_is_waited_for_whatever_the_case_of_the_url() -> None:
    async def slow(exchange: Exchange, message: dict[str, Any]) -> None:
        await asyncio.sleep(1.2)  # longer than other transports wait before they send initialize
        exchange.result(MODERN_HTTP["server/discover"])

    rules = {"server/discover": slow}
    async with modern(**rules) as peer, Client(f"HTTP{peer.url[4:]}") as client:
        assert client.protocol_version == "2026-07-28"
    assert not peer.sent("initialize"), "a server of HTTP answers each request"


async def test_a_server_that_vanishes_during_the_probe_has_no_era() -> None:
    async def vanish(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.vanish()

    async with legacy(None, **{"server/discover": vanish}) as peer:
        with raises(ConnectionLost):
            await peer.client().open()
    assert not peer.sent("initialize")


async def test_initialize_may_name_modern_versions() -> None:
    rules = {
        "server/discover": replying(500),
        "initialize": failing(-32022, 400, {"supported": ["2026-07-28"]}),
    }
    async with modern(**rules) as peer:
        with raises(HttpStatusError):
            await peer.client().open()
    assert [e.message["method"] for e in peer.exchanges] == [
        "server/discover",
        "initialize",
        "server/discover",
    ]


async def test_one_era_only() -> None:
    async with legacy(None) as peer:
        with pytest.raises(VersionMismatch):
            await peer.client(era="modern").open()
        assert not peer.sent("initialize")
    async with modern() as peer, peer.client(era="modern") as client:
        assert client.protocol_version == "2026-07-28"


# -- HTTP+SSE -------------------------------------------------------------------------------------


class Old:
    """A server of HTTP+SSE."""

    def __init__(self, endpoint: str = "/messages?session=1", status: int = 405) -> None:
        self.endpoint = endpoint
        self.status = status
        self.stream: Exchange | None = None

    def __call__(self, **rules: Any) -> Any:
        served = legacy(None, **rules)
        self.rules = rules
        return served

    async def get(self, exchange: Exchange) -> None:
        """The stream."""
        self.stream = exchange
        exchange.open()
        exchange.event(self.endpoint, event="endpoint")

    def wrap(self, peer: Any, refusal: Any = None) -> None:
        """Let the peer answer POSTs with 202, and events on the stream."""
        peer.get = self.get
        answer = peer._answer

        async def post(exchange: Exchange) -> None:
            if exchange.method == "GET":
                await answer(exchange)
            elif exchange.target == "/mcp" and refusal is not None:
                await refusal(exchange, exchange.message)
            elif exchange.target == "/mcp":
                exchange.reply(self.status)
            else:
                assert self.stream is not None
                rule = peer.rules.get(exchange.message.get("method"))
                exchange.reply(202, "Accepted")
                if "id" in exchange.message and rule is not None:
                    self.stream.event({"id": exchange.message["id"], "result": rule})

        peer._answer = post


@pytest.mark.parametrize(
    "refusal", [replying(400), replying(404), failing(-32600, 400), failing(-32000, 400, id=None)]
)
async def test_refusals_that_lead_to_http_and_sse(refusal: Any) -> None:
    old = Old()
    async with old() as peer:
        old.wrap(peer, refusal)
        async with peer.client(era="legacy") as client:
            assert (await client.call_tool("echo")).content[0].text == "ok"


async def test_a_json_rpc_error_counts_where_there_is_no_http_and_sse() -> None:
    rules = {"initialize": failing(-32600, 400)}
    async with legacy(None, **rules) as peer:
        with pytest.raises(RemoteError) as caught:
            await peer.client(era="legacy").open()
        assert caught.value.code == -32600 and len(peer.sent("GET")) == 1
        peer.exchanges.clear()
        peer.rules["initialize"] = failing(-32022, 400, {"supported": ["2099-01-01"]})
        with pytest.raises(VersionMismatch):
            await peer.client(era="legacy").open()
        assert not peer.sent("GET")


@every("era", ["auto", "legacy"])
@every(
    ("endpoint", "target"),
    [
        ("/messages?session=1", "/messages?session=1"),
        ("messages", "/messages"),
        ("?session=2", "/mcp?session=2"),
        ("http://127.0.0.1:{port}/m", "/m"),
    ],
)
async def test_the_endpoint_of_http_and_sse_may_be_relative(
    era: Any, endpoint: str, target: str
) -> None:
    old = Old()
    async with old() as peer:
        old.endpoint = endpoint.format(port=peer.port)
        old.wrap(peer)
        async with peer.client(era=era, token="t0ken") as client:
            assert client.protocol_version == "2025-11-25"
            results = await asyncio.gather(*(client.call_tool("echo") for _ in range(5)))
            assert [result.content[0].text for result in results] == ["ok"] * 5
    posts = [one for one in peer.exchanges if one.method == "POST" and one.target != "/mcp"]
    assert {one.target for one in posts} == {target}
    for one in peer.exchanges:
        assert one.headers["authorization"] == "Bearer t0ken"
        assert "mcp-session-id" not in one.headers
    (get,) = peer.sent("GET")
    assert get.headers["accept"] == "text/event-stream"
    assert not peer.sent("DELETE")


@pytest.mark.parametrize(
    "endpoint", ["http://other.example/m", "http://127.0.0.1:1/m", "https://127.0.0.1/m", "ws://h/"]
)
async def test_an_endpoint_elsewhere_is_refused(endpoint: str) -> None:
    old = Old(endpoint)
    async with old() as peer:
        old.wrap(peer)
        with raises(TransportError):
            await peer.client(era="legacy").open()
        assert old.stream is not None
        await asyncio.wait_for(asyncio.shield(old.stream.gone), 5)


async def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    old = Old()
    async with old() as peer:
        old.wrap(peer)
        async with peer.client(era="legacy") as client:
            peer.rules["tools/call"] = None
            calling = asyncio.ensure_future(client.call_tool("echo"))
            await peer.got("tools/call")
            assert old.stream is not None
            old.stream.end()
            with raises(ConnectionLost):
                await calling
            peer.rules["tools/call"] = {"content": [{"type": "text", "text": "again"}]}
            assert (await client.call_tool("echo")).content[0].text == "again"
    assert len(peer.sent("GET")) == 2


@pytest.mark.parametrize(
    ("status", "sse", "text"),
    [
        (
            404,
            True,
            "answered initialize with 404 Not Found, and GET with 405 Method Not Allowed; "
            "correct the URL",
        ),
        (405, True, "answered initialize with 405 Method Not Allowed; correct the path of the URL"),
        (404, False, "answered initialize with 404 Not Found; correct the path of the URL"),
        (
            501,
            False,
            "answered initialize with 501 Not Implemented; no MCP server is at this URL",
        ),
    ],
)
async def test_a_server_of_neither(status: int, sse: bool, text: str) -> None:
    rules = {"initialize": replying(status)}
    async with legacy(None, **rules) as peer:
        with pytest.raises(HttpStatusError) as caught:
            await peer.client(era="legacy", sse=sse).open()
        assert str(caught.value) == f"{peer.url} {text}"
        assert caught.value.status == status
    assert len(peer.sent("GET")) == sse


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_statuses_that_are_no_sign_of_http_and_sse(status: int) -> None:
    async with serving({"initialize": replying(status)}) as peer:
        with pytest.raises(HttpStatusError):
            await peer.client(era="legacy").open()
    assert not peer.sent("GET")
