"""Requests of extensions that stay open: a toy of events, built on the places of `Extension`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lab.events import NAME, Events, Heard, event_server
from lab.serve import serving
from lab.wording import raises

from wirespeed import Client, Context, Extension, Server, Stdio
from wirespeed.errors import RemoteError
from wirespeed.server.subscriptions import MAX_OPEN

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@contextlib.asynccontextmanager
async def shop(way: str) -> AsyncIterator[Client]:
    """A client of the shop."""
    options: dict[str, Any] = {"extensions": [NAME], "era": "modern", "timeout": 10}
    if way == "stdio":
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        program = Stdio(sys.executable, ["-m", "lab.events"], inherit_env=True, env=path)
        async with Client(program, **options) as client:
            yield client
        return
    server = event_server(Events("orders", "returns"))
    async with serving(server) as place, Client(place.url, **options) as client:
        yield client


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_events_of_a_third_party(way: str) -> None:
    async with shop(way) as client:
        listed = await client.request("events/list")
        assert [event["name"] for event in listed["events"]] == ["orders", "returns"]
        streams = [Heard(client, name) for name in ("orders", "orders", "returns")]
        for stream in streams:
            await stream.until("active")
        # all are open beside the one request that may run
        assert (await client.call_tool("order", {"what": "tea"})).data == 3
        assert await streams[0].until("event") == [{"data": "tea", "cursor": 1}]
        assert await streams[1].until("event") == [{"data": "tea", "cursor": 1}]
        await streams[2].until("heartbeat", 3)
        assert not any(kind == "event" for kind, _ in streams[2].seen)
        for stream in streams[1:]:
            await stream.close()
        assert (await client.call_tool("order", {"what": "milk"})).data == 1
        again = Heard(client, "orders", cursor=0)
        assert [params["data"] for params in await again.until("event", 2)] == ["tea", "milk"]
        await again.close()
        assert not streams[0].answer.done()
        await streams[0].close()


async def test_a_server_that_shuts_down_ends_streams_in_order() -> None:
    server = event_server(Events("orders"))
    async with serving(server) as place, Client(place.url, extensions=[NAME]) as client:
        stream = Heard(client, "orders", cursor=0)
        await stream.until("active")
        place.listener.drain()
        assert (await stream.answer)["cursor"] == 0


async def test_as_many_stay_open_as_may() -> None:
    server = event_server(Events("orders"))
    async with Client(server, extensions=[NAME]) as client:
        streams = [Heard(client, "orders") for _ in range(MAX_OPEN)]
        await asyncio.gather(*(stream.until("active") for stream in streams))
        with raises(RemoteError, code=-31000):
            await client.request("events/stream", {"name": "orders"})
        await streams[0].close()
        last = Heard(client, "orders")
        await last.until("active")
        for stream in (*streams, last):
            await stream.close()


async def test_with_middleware() -> None:
    server = event_server(Events("orders"))

    @server.add_middleware
    async def through(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async with Client(server, extensions=[NAME]) as client:
        stream = Heard(client, "orders")
        await stream.until("active")
        assert (await client.call_tool("order", {"what": "tea"})).data == 1
        await stream.until("event")
        await stream.close()
        assert (await client.call_tool("order", {"what": "tea"})).data == 0


def test_what_a_request_that_stays_open_is() -> None:
    async def stream(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {}

    async def without(params: dict[str, Any]) -> dict[str, Any]:
        return {}

    def blocking(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {}

    Extension(NAME, requests={"x/y": stream}, stays_open=["x/y"])
    with raises(ValueError):
        Extension(NAME, requests={"x/y": stream}, stays_open=["x/z"])
    for function in (without, blocking):
        with raises(TypeError):
            Extension(NAME, requests={"x/y": function}, stays_open=["x/y"])
    Server("any").add_extension(Extension(NAME))
