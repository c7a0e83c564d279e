"""What the proxy compares with the header fields of a request, as a server of 2026-07-28 does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from lab.http import Peer, Response
from lab.proxy import ENVELOPE, MODERN
from lab.rows import every
from lab.store import StoreServer

from wirespeed import Client, HeaderParam, Server
from wirespeed.errors import ProtocolError
from wirespeed.proxy import BackendConfig, ClusterConfig, Proxy, ProxyConfig, RateConfig
from wirespeed.types import CallNext, InboundRequest, Reply

pytestmark = [pytest.mark.compiled, pytest.mark.both_loops]


class Behind:
    """A server, the methods that it was asked, and the calls that it ran."""

    def __init__(self) -> None:
        self.server = Server("behind")
        self.methods: list[str] = []
        self.calls: list[str] = []
        self.lists = asyncio.Event()
        self.lists.set()
        self.fault: ProtocolError | None = None

        @self.server.tool
        async def query(region: Annotated[str, HeaderParam("Region")], limit: int = 1) -> str:
            self.calls.append(region)
            return region

        @self.server.tool
        async def plain(text: str) -> str:
            return text

        @self.server.add_middleware
        async def watch(request: InboundRequest, call_next: CallNext) -> Reply | None:
            self.methods.append(request.method)
            if request.method == "tools/list":
                await self.lists.wait()
                if self.fault is not None:
                    raise self.fault
            return await call_next(request)

    @property
    def n_lists(self) -> int:
        return self.methods.count("tools/list")


class Place:
    """Where a proxy listens over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = "/mcp"
        self.port = int(url.split(":")[2].split("/")[0])
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        peer = Peer(self.port, *await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    async def ask(self, method: str, params: Any, **fields: str | None) -> Response:
        """What is answered to a request, on a connection of its own."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        known: dict[str, str | None] = {"mcp_protocol_version": MODERN, "mcp_method": method}
        known |= {"mcp_name": params["name"]} if "name" in params else {}
        peer = await self.connect()
        return await peer.ask("POST", self.path, json.dumps(body).encode(), **{**known, **fields})

    async def call(self, tool: str, field: str | None = None, **arguments: Any) -> Any:
        """Call a tool, ``field`` is Mcp-Param-Region: the text, or the status and the error."""
        params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
        fields = {} if field is None else {"mcp_param_region": field}
        response = await self.ask("tools/call", params, **fields)
        if "error" in response.json:
            error = response.json["error"]
            return response.status, error["code"], error["message"]
        return response.json["result"]["content"][0]["text"]


@contextlib.asynccontextmanager
async def serving(
    *servers: Server, isolation: str = "shared", **options: Any
) -> AsyncIterator[Place]:
    backends = tuple(
        BackendConfig(target=server, name=f"s{n}", isolation=isolation)
        for n, server in enumerate(servers)
    )
    proxy = Proxy(ProxyConfig(backends=backends, listen=("http://127.0.0.1:0/mcp",), **options))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    place = Place(listening.result())
    try:
        yield place
    finally:
        for peer in place.peers:
            peer.close()
        task.cancel()
        await asyncio.wait((task,))


MISSING = (400, -32020, "Header mismatch: the Mcp-Param-Region header is missing")


# -- the envelope ----------------------------------------------------------------------------------


@every(
    "meta",
    [
        None,
        {},
        {name: value for name, value in ENVELOPE.items() if "Version" not in name},
        {name: value for name, value in ENVELOPE.items() if "Version" in name},
        {**ENVELOPE, "io.modelcontextprotocol/clientInfo": 1},
        {**ENVELOPE, "io.modelcontextprotocol/logLevel": "loud"},
    ],
)
async def test_an_envelope_that_is_not_whole(meta: Any) -> None:
    """The status says so, whatever the fields say, and the server does not hear of it."""
    behind = Behind()
    async with serving(behind.server) as place:
        params = {"name": "plain", "arguments": {"text": "a"}, "_meta": meta}
        if meta is None:
            del params["_meta"]
        for name in ("plain", "other"):
            response = await place.ask("tools/call", params, mcp_name=name)
            assert (response.status, response.json["error"]["code"]) == (400, -32602)
        assert "tools/call" not in behind.methods
        assert await place.call("plain", text="b") == "b"


async def test_a_refusal_of_the_server_has_the_status_200() -> None:
    behind = Behind()
    async with serving(behind.server) as place:
        assert (await place.call("nothing"))[:2] == (200, -32602)


# -- arguments -------------------------------------------------------------------------------------


async def test_arguments_are_compared() -> None:
    behind = Behind()
    async with serving(behind.server) as place:
        for _ in range(2):
            assert await place.call("query", "eu", region="eu") == "eu"
            assert await place.call("query", "=?base64?ZXU=?=", region="eu") == "eu"
            assert await place.call("query", None, region="eu") == MISSING
            for field in ("us", "=?base64?ZXU?=", "=?base64?Z!!!U=?="):
                status, code, text = await place.call("query", field, region="eu")
                assert (status, code) == (400, -32020)
                assert text.startswith("Header mismatch: Mcp-Param-Region header value")
        assert behind.calls == ["eu"] * 4
        assert behind.n_lists == 1


async def test_tools_without_such_arguments() -> None:
    behind = Behind()
    async with serving(behind.server) as place:
        assert await place.call("plain", "eu", text="a") == "a"
        for n in range(20):  # unknown names do not make it ask again and again
            assert (await place.call(f"unknown-{n}"))[:2] == (200, -32602)
        assert behind.n_lists == 1


async def test_an_escaped_name() -> None:
    behind = Behind()
    async with serving(behind.server) as place:
        body = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "query", "arguments": {"region": "eu"}, "_meta": ENVELOPE},
            }
        ).replace('"query"', '"\\u0071uery"')
        for _ in range(2):
            peer = await place.connect()
            response = await peer.ask(
                body=body.encode(),
                mcp_protocol_version=MODERN,
                mcp_method="tools/call",
                mcp_name="query",
            )
            assert response.status == 400
        assert behind.calls == []


async def test_calls_at_once_wait_for_one_list() -> None:
    """Among them one whose client leaves."""
    behind = Behind()
    async with serving(behind.server) as place:
        behind.lists.clear()
        calls = [
            asyncio.ensure_future(place.call("query", one, region="eu"))
            for one in ("eu", "us", None)
        ]
        calls.append(asyncio.ensure_future(place.call("plain", text="a")))
        leaving = asyncio.ensure_future(place.call("query", "left", region="left"))
        while behind.n_lists < 1:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        leaving.cancel()
        place.peers[-1].writer.transport.abort()
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in calls)
        behind.lists.set()
        right, wrong, missing, plain = await asyncio.gather(*calls)
        assert (right, wrong[:2], missing, plain) == ("eu", (400, -32020), MISSING, "a")
        assert (behind.calls, behind.n_lists) == (["eu"], 1)


async def test_a_server_that_does_not_list_its_tools() -> None:
    """Its calls pass, and it is not asked before each of them."""
    behind = Behind()
    behind.fault = ProtocolError(-32000, "not now")
    async with serving(behind.server) as place:
        for _ in range(5):
            assert await place.call("query", None, region="eu") == "eu"
        assert behind.n_lists == 1


async def test_tools_that_change() -> None:
    """Who is subscribed to changes tells the proxy."""
    behind = Behind()

    async def plain(text: Annotated[str, HeaderParam("Region")]) -> str:
        return text

    async with (
        serving(behind.server) as place,
        Client(place.url) as client,
        client.subscribe(tools=True) as changes,
    ):
        assert await place.call("plain", "eu", text="a") == "a"
        behind.server.remove_tool("plain")
        behind.server.add_tool(plain)
        await anext(aiter(changes))
        await asyncio.sleep(0.05)
        assert await place.call("plain", text="a") == MISSING
        assert await place.call("plain", "a", text="a") == "a"
        assert behind.n_lists >= 2


# -- several servers -------------------------------------------------------------------------------


async def test_names_of_the_merged_endpoint() -> None:
    one, two = Behind(), Behind()
    two.server.remove_tool("query")
    async with serving(one.server, two.server) as place:
        found = {tool["name"] for tool in await listed(place)}
        assert found == {"s0_query", "s0_plain", "s1_plain"}
        for _ in range(2):
            assert await place.call("s1_plain", text="a") == "a"
            assert await place.call("s0_query", "eu", region="eu") == "eu"
            assert await place.call("s0_query", region="eu") == MISSING
            assert (await place.call("s0_query", "us", region="eu"))[:2] == (400, -32020)
        assert one.calls == ["eu"] * 2


async def test_calls_that_wait_for_their_quota(store_server: StoreServer) -> None:
    one, two = Behind(), Behind()
    cluster = ClusterConfig(url=store_server.url, secret="only for tests: 16 or more")
    rate = RateConfig(requests=1000)
    async with serving(
        one.server, two.server, cluster=cluster, quotas={"*": 100}, rate=rate
    ) as place:
        assert len(await listed(place)) == 4
        assert await place.call("s0_query", "eu", region="eu") == "eu"
        assert await place.call("s0_query", region="eu") == MISSING
        assert (await place.call("s0_query", "us", region="eu"))[:2] == (400, -32020)
        assert one.calls == ["eu"]
        (key,) = store_server.ask("KEYS", "*quota1*")
        while store_server.ask("GET", key) != "1":  # no server has the others
            await asyncio.sleep(0.01)


async def listed(place: Place) -> list[Any]:
    response = await place.ask("tools/list", {"_meta": ENVELOPE})
    tools: list[Any] = response.json["result"]["tools"]
    return tools


# -- requests that wait ----------------------------------------------------------------------------


async def test_requests_that_wait_unread_are_compared() -> None:
    """While it is not known of which era a server is, requests wait: their fields wait, too."""
    behind = Behind()
    until = asyncio.Event()

    @behind.server.add_middleware
    async def slow(request: InboundRequest, call_next: CallNext) -> Reply | None:
        if request.method == "server/discover":
            await until.wait()
        return await call_next(request)

    async with serving(behind.server, Behind().server, isolation="auto") as place:
        place.path = "/servers/s0"
        params = {"name": "plain", "arguments": {"text": "a"}, "_meta": ENVELOPE}
        calls = [
            asyncio.ensure_future(place.ask("tools/call", params, mcp_name=name))
            for name in ("plain", "query")
        ]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in calls)
        until.set()
        assert [one.status for one in await asyncio.gather(*calls)] == [200, 400]
