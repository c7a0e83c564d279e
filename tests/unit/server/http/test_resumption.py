"""Streams that a legacy client resumes over HTTP, and polling: with stores of both kinds."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from lab import raw
from lab.session import Event, HttpClient, Lab, Reply, served

from wirespeed import EventStore, MemoryEventStore, SQLiteEventStore
from wirespeed.cluster import RedisEventStore
from wirespeed.peer.http.event_store import EventLog
from wirespeed.peer.http.http_session import HttpSession
from wirespeed.peer.http.sse import SseSession
from wirespeed.server.connection import ServerConnection
from wirespeed.transport.http.connection import HttpConnection
from wirespeed.transport.http.exchange import Exchange

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> EventStore:
    if request.param == "memory":
        return MemoryEventStore()
    if request.param == "redis":
        return RedisEventStore(request.getfixturevalue("store_server").cluster(), "lab")
    return SQLiteEventStore(tmp_path / "events.db")


def summary(messages: list[Any]) -> list[Any]:
    """Numbers of progress, texts of results, methods of the rest."""
    found: list[Any] = []
    for message in messages:
        if "result" in message:
            found.append(message["result"]["content"][0]["text"])
        elif message["method"] == "notifications/progress":
            found.append(message["params"]["progress"])
        else:
            found.append(message["method"])
    return found


async def next_event(reply: Reply) -> Event:
    """The next event that has a message."""
    while True:
        event = await reply.event()
        assert event is not None
        if event.data:
            return event


async def started(lab: Lab, client: HttpClient, n: int, id: int = 1) -> Reply:
    """A call that has said something n times, and waits."""
    call = asyncio.create_task(client.call("talk", id=id, name="a", n=n, meta={"progressToken": 1}))
    await lab.started.get()
    return await call


async def test_a_stream_is_resumed_where_it_broke(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        reply = await started(lab, client, 3)
        events = [await next_event(reply) for _ in range(2)]
        assert summary([event.message for event in events]) == [0, 1]
        reply.leave()
        rest = await client.get(events[1].id)
        assert rest.status == 200 and rest.is_stream
        assert summary(await rest.next_messages(1)) == [2]
        lab.gate("a").set()  # and it goes on
        assert summary(await rest.messages()) == [3, 4, 5, "a"]
        # any part of it can be had once more
        again = await client.get(events[0].id)
        assert summary(await again.messages()) == [1, 2, 3, 4, 5, "a"]
        await client.request("DELETE")


async def test_what_is_said_while_the_client_is_away_waits(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        reply = await started(lab, client, 1)
        event = await next_event(reply)
        reply.leave()
        lab.gate("a").set()
        while (await client.call("echo", id=2, text="x")).status != 200:
            pass
        rest = await client.get(event.id)
        assert summary(await rest.messages()) == [1, "a"]
        await client.request("DELETE")


async def test_a_client_resumes_before_the_server_noticed_the_loss(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        reply = await started(lab, client, 2)
        event = await next_event(reply)
        rest = await client.get(event.id)
        assert summary(await rest.next_messages(1)) == [1]
        lab.gate("a").set()
        assert summary(await rest.messages()) == [2, 3, "a"]
        assert summary(await reply.messages()) == [1]  # the old one has ended
        await client.request("DELETE")


async def test_a_stream_is_resumed_again_and_again(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        reply = await started(lab, client, 1)
        event = await next_event(reply)
        for _ in range(5):
            reply.leave()
            reply = await client.get(event.id)
            assert reply.is_stream
        lab.gate("a").set()
        assert summary(await reply.messages()) == [1, "a"]
        await client.request("DELETE")


async def test_event_ids_are_unique_and_each_stream_has_its_own(store: EventStore) -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=store) as client:
        await client.open()
        streams = []
        for i in range(3):
            reply = await client.call("talk", id=i, name="a", n=2, meta={"progressToken": 1})
            streams.append(await reply.events())
        own = await client.get()
        lab.change()
        streams.append([await next_event(own)])
        ids = [event.id for events in streams for event in events]
        assert None not in ids and len(set(ids)) == len(ids)
        # the rest of one stream has nothing of the others
        rest = await client.get(streams[1][0].id)
        assert [event.id for event in await rest.events()] == [e.id for e in streams[1][1:]]
        await client.request("DELETE")


async def test_the_stream_of_a_get_is_resumed(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        stream = await client.get()
        lab.change()
        first = await next_event(stream)
        lab.change()
        second = await next_event(stream)
        stream.leave()
        lab.change()  # perhaps before the server has noticed
        await client.post(raw.request(5, "ping"))
        lab.change()
        stream = await client.get(first.id)
        assert (await next_event(stream)).id == second.id
        assert await stream.next_messages(2) == [CHANGED, CHANGED]
        lab.change()
        assert await stream.next_messages(1) == [CHANGED]
        # a new stream has nothing of it
        other = await client.get()
        lab.change()
        assert await other.next_messages(1) == [CHANGED]
        await client.request("DELETE")
        assert await stream.messages() == [] and await other.messages() == []


async def test_an_unknown_event_is_refused(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        lab.gate("a").set()
        reply = await client.call("talk", name="a", n=1, meta={"progressToken": 1})
        events = await reply.events()
        last = events[-1].id
        assert last is not None
        stream, _, n = last.rpartition("-")
        for id in ("x", "-", f"{stream}-", f"{stream}-{int(n) + 1}", f"{stream}--1", f"x{last}"):
            reply = await client.get(id)
            assert reply.status == 400, id
            assert "Last-Event-ID" in (await reply.message())["error"]["message"]
        # nor is there an event of another session
        client.fields.clear()
        await client.open()
        assert (await client.get(last)).status == 400
        await client.request("DELETE")


async def test_events_that_are_no_longer_kept_are_refused() -> None:
    lab = Lab()
    async with served(lab, event_store=MemoryEventStore(max_stream_events=2)) as client:
        await client.open()
        lab.gate("a").set()
        reply = await client.call("talk", name="a", n=2, meta={"progressToken": 1})
        events = [event for event in await reply.events() if event.data]
        assert (await client.get(events[1].id)).status == 400
        rest = await client.get(events[2].id)
        assert summary(await rest.messages()) == [3, "a"]


async def test_the_end_of_a_session_drops_its_events(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store) as client:
        await client.open()
        lab.gate("a").set()
        reply = await client.call("talk", name="a", n=1, meta={"progressToken": 1})
        events = [event for event in await reply.events() if event.data]
        stream = (events[0].id or "").rpartition("-")[0]
        assert await value(store.after(stream, 0)) is not None
        await client.request("DELETE")
        while await value(store.after(stream, 0)) is not None:
            await asyncio.sleep(0.005)


async def value(result: Any) -> Any:
    """The value of a method that may be a coroutine function."""
    return await result if asyncio.iscoroutine(result) else result


async def test_streams_that_are_over_are_kept_for_a_while() -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=MemoryEventStore()) as client:
        await client.open()
        ids = []
        for i in range(70):
            reply = await client.call("talk", id=i, name="a", n=1, meta={"progressToken": 1})
            ids.append(next(event.id for event in await reply.events() if event.data))
        assert (await client.get(ids[0])).status == 400
        assert (await client.get(ids[-60])).status == 200


@pytest.mark.parametrize("resumes", [True, False])
async def test_the_stream_of_a_lost_get_is_kept_for_longer(resumes: bool) -> None:
    """Messages that come while no GET is open belong to it."""
    lab = Lab()
    async with served(lab, event_store=MemoryEventStore(), response="sse") as client:
        await client.open()
        get = await client.get()
        begun = await get.event()
        assert begun is not None
        get.leave()
        await client.call("echo", text="x")
        lab.change()
        for n in range(130):
            await (await client.call("echo", id=n, text="x")).messages()
        back = await client.get(begun.id if resumes else None)
        assert await back.next_messages(1) == [CHANGED]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_stream_begins_with_an_id_where_the_revision_says_so(version: str) -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=MemoryEventStore(), retry=0.5) as client:
        await client.open(version)
        reply = await client.call("talk", name="a", n=1, meta={"progressToken": 1})
        for stream in (reply, await client.get()):
            lab.change()
            first = await stream.event()
            assert first is not None and first.id is not None
            if version < "2025-11-25":
                assert first.data
                continue
            assert first.data == ""
            second = await stream.event()
            assert second is not None
            assert second.retry == "500" and second.data is None


async def test_without_a_store_events_have_no_ids() -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab) as client:
        await client.open()
        reply = await client.call("talk", name="a", n=1, meta={"progressToken": 1})
        assert [event.id for event in await reply.events()] == [None] * 3
        # a client that resumes what cannot be resumed gets a new stream
        assert (await client.get("abc-1")).is_stream


async def test_polling(store: EventStore) -> None:
    lab = Lab()
    async with served(lab, event_store=store, retry=0.25) as client:
        await client.open()
        reply = await client.call("poll", name="a")
        events = await reply.events()  # the connection is closed while the handler goes on
        assert [event.data for event in events if event.id] == [""]
        assert [event.retry for event in events if event.retry][-1] == "250"
        assert await lab.started.get() == "a"
        rest = await client.get(events[0].id)
        assert rest.is_stream
        lab.gate("a").set()
        assert summary(await rest.messages()) == ["notifications/message", "closed: True"]
        reply = await client.call("poll", id=2, name="a", retry=2)
        events = await reply.events()
        assert [event.retry for event in events if event.retry] == ["250", "2000"]
        await client.request("DELETE")


async def test_polling_where_it_is_not_possible() -> None:
    lab = Lab()
    lab.gate("a").set()
    for version, options in (
        ("2025-06-18", {"event_store": MemoryEventStore()}),  # the revision does not have it
        ("2025-11-25", {}),
        ("2025-11-25", {"event_store": MemoryEventStore(), "response": "json"}),
        ("2025-11-25", {"event_store": MemoryEventStore(), "stateless": True}),
    ):
        async with served(lab, **options) as client:
            await client.open(version)
            reply = await client.call("poll", name="a")
            found = await reply.messages() if reply.is_stream else [await reply.message()]
            assert summary(found)[-1] == "closed: False", (version, options)


async def test_a_response_in_events_can_be_resumed_before_it_says_anything() -> None:
    lab = Lab()
    async with served(lab, event_store=MemoryEventStore(), response="sse") as client:
        await client.open()
        reply = await client.call("wait", name="a")
        first = await reply.event()
        assert first is not None and first.id and first.data == ""
        reply.leave()
        rest = await client.get(first.id)
        lab.gate("a").set()
        assert summary(await rest.messages()) == ["a"]


class Broken(MemoryEventStore):
    """A store that fails at an event, or waits."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    async def append(self, stream: str, n: int, data: bytes) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        if n == self.at:
            raise OSError("no space")
        super().append(stream, n, data)


async def test_a_store_that_fails_ends_no_request(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=Broken(2)) as client:
        await client.open()
        reply = await client.call("talk", name="a", n=2, meta={"progressToken": 1})
        events = [event for event in await reply.events() if event.data]
        assert summary([event.message for event in events]) == [0, 1, 2, 3, "a"]
        assert (await client.get(events[0].id)).status == 400
        assert caplog.text.count("cannot be resumed: the event store failed: no space") == 1


async def test_a_store_that_fails_for_many_streams_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=Broken(2)) as client:
        await client.open()
        for n in range(20):
            reply = await client.call("talk", name="a", n=2, meta={"progressToken": n})
            assert summary([one.message for one in await reply.events() if one.data])[-1] == "a"
    lines = [one for one in caplog.records if "event store failed" in one.getMessage()]
    assert len(lines) <= 3  # one for ten seconds, and one that counts those that were left out
    assert not any(one.exc_info for one in lines)


async def test_a_slow_store_has_all_events_in_order() -> None:
    lab = Lab()
    lab.gate("a").set()
    async with served(lab, event_store=Broken(0)) as client:
        await client.open()
        reply = await client.call("talk", name="a", n=20, meta={"progressToken": 1})
        events = [event for event in await reply.events() if event.data]
        rest = await client.get(events[0].id)
        assert summary(await rest.messages()) == [*range(1, 40), "a"]


def alive() -> list[str]:
    """The objects of HTTP and of connections that are alive, by their types."""
    gc.collect()
    kinds = (ServerConnection, HttpConnection, Exchange, HttpSession, SseSession, EventLog)
    return sorted(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


async def test_sessions_that_come_and_go_leave_nothing() -> None:
    lab = Lab()
    lab.gate("a").set()
    store = MemoryEventStore()
    before = alive()
    async with served(lab, event_store=store, sse_path="/sse", session_ttl=0.2) as client:
        for i in range(24):
            client.fields.clear()
            await client.open()
            streams = [await client.get(), await client.get(path="/sse")]
            reply = await client.call("talk", name="a", n=2, meta={"progressToken": 1})
            events = [event for event in await reply.events() if event.data]
            if i % 2:
                rest = await client.get(events[1].id)
                assert summary(await rest.messages()) == [2, 3, "a"]
            if i % 3:
                reply = await client.call("poll", name="a")
                (first, *_) = await reply.events()
                await (await client.get(first.id)).messages()
            if i % 4:
                streams[i % 2].leave()
            if i % 5:
                await client.request("DELETE")
        client.leave()
        while alive() != before:
            await asyncio.sleep(0.05)
