"""Changes of which every host tells its subscribers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from lab.http import Place, serving
from lab.store import Cable, MakeServer, StoreServer
from lab.task import SECRET

from wirespeed import Client, Server
from wirespeed.cluster import Cluster
from wirespeed.cluster.changes import MAX_KEPT, MAX_WAITING, SharedChanges
from wirespeed.transport.backoff import Backoff
from wirespeed.types import ResourceUpdated, ToolsChanged

TEA = "stock://tea"
MISSED = ToolsChanged(), ResourceUpdated(TEA)


def shop(url: str) -> Server:
    server = Server("shop", cluster=Cluster(url, returns=Backoff(0.01, 0.05)), state_secret=SECRET)

    @server.resource(TEA, name="tea")
    def tea() -> str:
        return "7"

    @server.tool
    def sell() -> str:
        server.resource_updated(TEA)
        return "sold"

    return server


def more() -> None: ...


class Events:
    """What a client hears of a subscription."""

    def __init__(self, subscription: Any) -> None:
        self._heard: list[Any] = []
        self._task = asyncio.get_running_loop().create_task(self._listen(subscription))

    async def _listen(self, subscription: Any) -> None:
        async for event in subscription:
            self._heard.append(event)

    async def just(self, *expected: Any) -> None:
        """Wait for events, after which there is none."""
        while len(self._heard) < len(expected):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert sorted(map(str, self._heard)) == sorted(map(str, expected))
        self._heard.clear()

    def forget(self) -> None:
        self._heard.clear()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def subscribed(stack: contextlib.AsyncExitStack, place: Place, era: Any) -> Any:
    """A client of a host, and its events."""
    client = await stack.enter_async_context(Client(place.url, era=era))
    events = Events(await stack.enter_async_context(client.subscribe(tools=True, uris=[TEA])))
    stack.push_async_callback(events.end)
    await asyncio.sleep(0.1)  # its host reads what the others tell
    return client, events


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_subscribers_of_every_host_hear_of_a_change(
    store_server: StoreServer, era: Any
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        places = [
            await stack.enter_async_context(serving(shop(store_server.url))) for _ in range(3)
        ]
        found = [await subscribed(stack, place, era) for place in places]
        for client, _ in found:
            await client.call_tool("sell")
            for _, events in found:
                await events.just(ResourceUpdated(TEA))
        await asyncio.to_thread(places[0].server.add_tool, more)
        for _, events in found:
            await events.just(ToolsChanged())
    assert all(store_server.ask("PTTL", key) > 0 for key in store_server.ask("KEYS", "*"))


async def test_a_host_that_was_away_says_once_that_it_may_have_missed_changes(
    store_server: StoreServer,
) -> None:
    """Where the store still has them, it tells of each."""
    async with Cable(store_server) as cable, contextlib.AsyncExitStack() as stack:
        here = await stack.enter_async_context(serving(shop(store_server.url)))
        away = await stack.enter_async_context(serving(shop(cable.url)))
        client, events = await subscribed(stack, away, "modern")
        seller, heard = await subscribed(stack, here, "modern")
        for dropped in (0, MAX_KEPT):
            cable.cut()
            await asyncio.sleep(0.1)
            store_server.ask("INCRBY", "wirespeed:{changes1:shop}:serial", dropped)
            await seller.call_tool("sell")
            cable.is_cut = False
            await events.just(*(MISSED if dropped else [ResourceUpdated(TEA)]))
        heard.forget()
        # what a host that is away changes is told when it is back
        cable.cut()
        await client.call_tool("sell")
        await events.just(ResourceUpdated(TEA))
        await heard.just()
        cable.is_cut = False
        await heard.just(ResourceUpdated(TEA))
        await events.just()


async def test_a_uri_that_is_not_unicode(store_server: StoreServer) -> None:
    """It is told as it is, and in the way of no other change."""
    heard: list[str] = []
    async with Cluster(store_server.url) as one, Cluster(store_server.url) as two:
        here = SharedChanges(one, "shop", lambda _, what: heard.append(what), lambda: None)
        there = SharedChanges(two, "shop", lambda _, what: None, lambda: None)
        for changes in (here, there):
            changes.begin()
        here.follow()
        await asyncio.sleep(0.1)
        for what in ("stock://\ud800", TEA):
            there.tell("resource", what)
            await asyncio.sleep(0.05)
        while TEA not in heard:
            await asyncio.sleep(0.01)
        assert heard == ["stock://\ud800", TEA]
        for changes in (here, there):
            await changes.close()


async def test_a_host_that_changes_too_much_while_the_store_is_away(
    store_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The others may have missed any change. The log has one line."""
    async with Cable(store_server) as cable, contextlib.AsyncExitStack() as stack:
        here = await stack.enter_async_context(serving(shop(store_server.url)))
        away = await stack.enter_async_context(serving(shop(cable.url)))
        _, heard = await subscribed(stack, here, "modern")
        cable.cut()
        for n in range(MAX_WAITING + 10):
            away.server.resource_updated(f"stock://{n}")
        cable.is_cut = False
        await heard.just(*MISSED)
        away.server.resource_updated(TEA)
        await heard.just(ResourceUpdated(TEA))
    assert caplog.text.count("too many changes wait") == 1


async def test_a_store_that_lost_its_changes(new_store_server: MakeServer) -> None:
    store = new_store_server()
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(serving(shop(store.url))) for _ in range(2)]
        _, events = await subscribed(stack, places[0], "modern")
        seller = await stack.enter_async_context(Client(places[1].url, era="modern"))
        await seller.call_tool("sell")
        await events.just(ResourceUpdated(TEA))
        store.kill()
        store.start()
        await events.just(*MISSED)
        await seller.call_tool("sell")
        await events.just(ResourceUpdated(TEA))


async def test_junk_among_the_changes(store_server: StoreServer) -> None:
    async with serving(shop(store_server.url)) as place, contextlib.AsyncExitStack() as stack:
        _, events = await subscribed(stack, place, "modern")
        key = "wirespeed:{changes1:shop}:changes"
        store_server.ask("XADD", key, "*", "n", "x")
        for n, kind, what in ((1, "list", "junk"), (2, "?", TEA), (3, "resource", TEA)):
            store_server.ask("XADD", key, "*", "n", n, "by", "x", "kind", kind, "what", what)
        await events.just(ResourceUpdated(TEA))


async def test_a_connection_that_is_broken_unnoticed(store_server: StoreServer) -> None:
    async with Cable(store_server) as cable, contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(cable.url, returns=Backoff(0.01, 0.05)))
        other = await stack.enter_async_context(Cluster(store_server.url))
        heard: list[str] = []
        here = SharedChanges(
            cluster, "shop", lambda _, what: heard.append(what), lambda: None, wait=0.2
        )
        there = SharedChanges(other, "shop", lambda _, what: None, lambda: None)
        for one in (here, there):
            one.begin()
            stack.push_async_callback(one.close)
        here.follow()
        await asyncio.sleep(0.1)
        cable.is_mute = True
        there.tell("resource", TEA)
        await asyncio.sleep(0.3)  # the connection has lost an answer, and stays open
        cable.is_mute = False
        while not heard:
            await asyncio.sleep(0.01)
        assert heard == [TEA]
