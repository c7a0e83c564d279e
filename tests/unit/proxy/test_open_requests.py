"""Requests of extensions that stay open, through the proxy: the toy of events."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest
from lab.events import NAME, Events, Heard, event_server
from lab.gateway import gateway, inside
from lab.principals import principal
from lab.wording import raises

from wirespeed import Server
from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.proxy import BackendConfig, FlowConfig
from wirespeed.server.subscriptions import MAX_OPEN, MAX_URIS

PRINCIPALS = (principal("anne"), principal("bob"))
pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@pytest.mark.parametrize("listen", ["http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"])
@pytest.mark.parametrize("path", ["/mcp", "/servers/shop"])
async def test_events_pass_beside_the_limits_of_requests(listen: str, path: str) -> None:
    events = Events("orders", "returns")
    known: dict[str, Any] = {"extensions": (events.extension,)}
    backends = (
        # one request at once, and less time than a few heartbeats take
        BackendConfig(
            target=event_server(events),
            name="shop",
            request_timeout=0.5,
            flow=FlowConfig(max_in_flight=1),
        ),
        BackendConfig(target=Server("other"), name="other"),
    )
    async with (
        gateway(*backends, listen=listen, ready_within=60, **known) as lab,
        lab.client(path=path, extensions=[NAME]) as client,
    ):
        streams = [Heard(client, name) for name in ("orders", "orders", "returns")]
        for stream in streams:
            await stream.until("active")
        tool = "order" if path == "/servers/shop" else "shop_order"
        assert (await client.call_tool(tool, {"what": "tea"})).data == 3
        for stream in streams[:2]:
            assert await stream.until("event") == [{"data": "tea", "cursor": 1}]
        await streams[2].until("heartbeat", 15)
        for stream in streams:
            assert not stream.answer.done()
            await stream.close()
        assert (await client.call_tool(tool, {"what": "milk"})).data == 0


async def test_a_reload_tells_the_connections_that_are_there() -> None:
    events = Events("orders")
    backend = BackendConfig(target=event_server(events), name="shop", request_timeout=0.5)
    async with (
        gateway(backend, listen="ws://127.0.0.1:0/mcp", ready_within=60) as lab,
        lab.client(path="/servers/shop", extensions=[NAME]) as client,
    ):
        await client.list_tools()
        await lab.proxy.reload(replace(lab.proxy.config, extensions=(events.extension,)))
        stream = Heard(client, "orders")
        await stream.until("heartbeat", 15)
        assert not stream.answer.done()
        await stream.close()


async def opened(streams: list[Heard]) -> list[Heard]:
    """Those of some streams that the server has opened. The others were refused."""
    for stream in streams:
        active = asyncio.ensure_future(stream.until("active"))
        await asyncio.wait((active, stream.answer), return_when=asyncio.FIRST_COMPLETED)
        active.cancel()
    return [stream for stream in streams if not stream.answer.done()]


@pytest.mark.parametrize("listen", ["http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"])
@pytest.mark.parametrize("path", ["/mcp", "/servers/shop"])
async def test_a_full_server_has_room_for_the_client_with_the_fewest(
    listen: str, path: str
) -> None:
    events = Events("orders")
    known: dict[str, Any] = {"extensions": (events.extension,), "principals": PRINCIPALS}
    backends = (
        inside("shop", event_server(events)),
        inside("other", Server("other")),
    )
    async with (
        gateway(*backends, listen=listen, ready_within=60, **known) as lab,
        lab.client("anne", path=path, extensions=[NAME]) as greedy,
        lab.client("bob", path=path, extensions=[NAME]) as modest,
    ):
        many = [Heard(greedy, "orders") for _ in range(MAX_OPEN)]
        assert await opened(many) == many
        with raises(RemoteError, code=-31000):  # it has the most itself
            await greedy.request("events/stream", {"name": "orders"})
        few = [Heard(modest, "orders") for _ in range(3)]
        assert await opened(few) == few
        assert await opened(many) == many[:-3]  # the newest had to go
        for stream in many[-3:]:
            with raises(RemoteError, code=-31000):
                await stream.answer
        await events.emit("orders", "tea")
        for stream in (*many[:-3], *few):
            assert await stream.until("event") == [{"data": "tea", "cursor": 1}]
            await stream.close()


async def test_subscriptions_have_the_same_rule() -> None:
    """The limit that is reached here is that of the URIs of a connection."""
    shop = Server("shop")

    @shop.resource("a:{name}", name="a")
    def a(name: str) -> str:
        return name

    async with (
        gateway(inside("shop", shop), principals=PRINCIPALS) as lab,
        lab.client("anne") as greedy,
        lab.client("bob") as modest,
        greedy.subscribe(uris=[f"a:{n}" for n in range(MAX_URIS)]) as all_of_it,
        modest.subscribe(uris=["a:1"]) as one,
    ):
        shop.resource_updated("a:1")
        assert (await anext(one)).uri == "a:1"
        with raises(RemoteError, code=-31000):
            await anext(all_of_it)


async def test_a_server_that_refuses_whatever_is_ended_costs_one_request() -> None:
    events = Events("orders")
    server = event_server(events)
    full = False

    @server.add_middleware
    async def refuse(request: Any, call_next: Any) -> Any:
        if full and request.method == "events/stream":
            raise ProtocolError(-31000, "not now", {"open": 3})
        return await call_next(request)

    known: dict[str, Any] = {"extensions": (events.extension,), "principals": PRINCIPALS}
    async with (
        gateway(inside("shop", server), **known) as lab,
        lab.client("anne", extensions=[NAME]) as first,
        lab.client("bob", extensions=[NAME]) as second,
    ):
        here = [Heard(first, "orders") for _ in range(3)]
        assert await opened(here) == here
        full = True
        with raises(RemoteError, code=-31000):
            await second.request("events/stream", {"name": "orders"})
        assert await opened(here) == here[:2]
        with raises(RemoteError, code=-31000):
            await here[2].answer
        full = False
        there = [Heard(second, "orders") for _ in range(2)]
        assert await opened(there) == there
        full = True
        with raises(RemoteError, code=-31000):  # nobody has more
            await second.request("events/stream", {"name": "orders"})
        assert await opened([*here[:2], *there]) == [*here[:2], *there]
        for stream in (*here[:2], *there):
            await stream.close()


@pytest.mark.parametrize("path", ["/mcp", "/servers/shop"])
async def test_a_request_that_is_refused_for_itself_costs_nobody_else(path: str) -> None:
    """It is too large, or comes too early: no end of another request would help."""
    events = Events("orders")
    server = event_server(events)
    is_early = False

    @server.resource("a:{name}", name="a")
    def a(name: str) -> str:
        return name

    @server.add_middleware
    async def refuse(request: Any, call_next: Any) -> Any:
        if is_early and request.method == "events/stream":
            raise ProtocolError(-31000, "not so fast", {"retryAfterMs": 100})
        return await call_next(request)

    known: dict[str, Any] = {"extensions": (events.extension,), "principals": PRINCIPALS}
    async with (
        gateway(inside("shop", server), inside("other", Server("other")), **known) as lab,
        lab.client("anne", path=path, extensions=[NAME]) as first,
        lab.client("bob", path="/servers/shop", extensions=[NAME]) as second,
    ):
        here = [Heard(first, "orders") for _ in range(3)]
        assert await opened(here) == here
        with raises(RemoteError, code=-31000):
            async with second.subscribe(uris=[f"a:{n}" for n in range(MAX_URIS + 1)]):
                pass
        is_early = True
        with raises(RemoteError, code=-31000):
            await second.request("events/stream", {"name": "orders"})
        await events.emit("orders", "tea")
        for stream in here:
            assert await stream.until("event") == [{"data": "tea", "cursor": 1}]
            await stream.close()


async def test_a_large_request_ends_no_small_ones() -> None:
    """Their ends would make no room for it."""
    shop = Server("shop")

    @shop.resource("a:{name}", name="a")
    def a(name: str) -> str:
        return name

    async with (
        gateway(inside("shop", shop), principals=PRINCIPALS) as lab,
        lab.client("anne") as first,
        lab.client("bob") as second,
        contextlib.AsyncExitStack() as stack,
    ):
        here = [
            await stack.enter_async_context(first.subscribe(uris=[f"a:{n}"])) for n in range(20)
        ]
        with raises(RemoteError, code=-31000):
            async with second.subscribe(uris=[f"a:{n}" for n in range(MAX_URIS)]):
                pass
        for n, one in enumerate(here):
            shop.resource_updated(f"a:{n}")
            assert (await anext(one)).uri == f"a:{n}"
