"""Requests of extensions that stay open: a toy of events, built on the places of `Extension`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from lab.serve import serving
from lab.wording import raises

from wirespeed import Client, Context, Extension, Limits, Server, Stdio
from wirespeed.errors import RemoteError
from wirespeed.server.subscriptions import MAX_OPEN

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

NAME = "com.example/events"
PREFIX = "notifications/events/"
BEAT = 0.05


class Stream(msgspec.Struct):
    name: str
    cursor: int | None = None


class Events:
    """A toy of the draft of events (SEP-3415), as a third party would build it: the events of a
    server, all of them. A cursor is the number of those before."""

    def __init__(self, *names: str) -> None:
        self.kept: dict[str, list[Any]] = {name: [] for name in names}
        self.grown = asyncio.Condition()
        self.n_open = 0
        self.extension = Extension(
            NAME,
            requests={"events/list": self.list, "events/stream": self.stream},
            stays_open=["events/stream"],
            codes=[-31950],
        )

    async def emit(self, name: str, data: Any) -> None:
        async with self.grown:
            self.kept[name].append(data)
            self.grown.notify_all()

    async def list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"events": [{"name": name, "delivery": ["push"]} for name in self.kept]}

    async def stream(self, params: Stream, ctx: Context) -> dict[str, Any]:
        kept = self.kept[params.name]
        at = len(kept) if params.cursor is None else params.cursor

        def say(kind: str, **members: Any) -> None:
            self.extension.notify(ctx, PREFIX + kind, {**members, "cursor": at})

        say("active")
        self.n_open += 1
        try:
            while True:
                try:
                    async with asyncio.timeout(BEAT), self.grown:
                        while len(kept) == at:
                            await self.grown.wait()
                except TimeoutError:
                    say("heartbeat")
                while at < len(kept):
                    at += 1
                    say("event", data=kept[at - 1])
        except asyncio.CancelledError:
            if ctx.cancelled:
                raise
            return {"cursor": at}  # the server shuts down
        finally:
            self.n_open -= 1


def event_server(events: Events) -> Server:
    """A server that works on one request at a time."""
    server = Server("shop", limits=Limits(max_in_flight=1))
    server.add_extension(events.extension)

    @server.tool
    async def order(what: str) -> int:
        await events.emit("orders", what)
        return events.n_open

    return server


class Heard:
    """One stream of a client, until `close`."""

    def __init__(self, client: Client, name: str, cursor: int | None = None) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._more = asyncio.Event()
        params = {"name": name, "cursor": cursor}
        self.answer = asyncio.create_task(
            client.request("events/stream", params, timeout=None, on_notice=self._notice)
        )

    def _notice(self, method: str, params: dict[str, Any]) -> None:
        self.seen.append((method.removeprefix(PREFIX), params))
        self._more.set()

    async def until(self, kind: str, n: int = 1) -> list[dict[str, Any]]:
        """The params of the first n notifications of a kind."""
        while len(found := [params for one, params in self.seen if one == kind]) < n:
            self._more.clear()
            await self._more.wait()
        return found[:n]

    async def close(self) -> None:
        self.answer.cancel()
        await asyncio.gather(self.answer, return_exceptions=True)


@contextlib.asynccontextmanager
async def shop(way: str) -> AsyncIterator[Client]:
    """A client of the shop."""
    options: dict[str, Any] = {"extensions": [NAME], "era": "modern", "timeout": 10}
    if way == "stdio":
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        program = Stdio(sys.executable, [__file__], inherit_env=True, env=path)
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


if __name__ == "__main__":
    event_server(Events("orders", "returns")).run()
