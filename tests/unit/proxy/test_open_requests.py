"""Requests of extensions that stay open, through the proxy: the toy of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lab.events import NAME, Events, Heard, event_server
from lab.gateway import gateway

from wirespeed import Server
from wirespeed.proxy import BackendConfig, FlowConfig

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
