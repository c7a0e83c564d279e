"""An event of a session that other hosts may adopt is sent when the store has it. In this process;
hosts that are killed are in test_killed_hosts.py."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import raw
from lab.http import BOTH, call
from lab.session import Event, HttpClient, Lab, Reply, served
from lab.store import StoreServer

from wirespeed import Context, EventStore, Limits, MemoryEventStore, SQLiteEventStore
from wirespeed.cluster import RedisEventStore, SessionHosts
from wirespeed.errors import StoreUnavailable

pytestmark = pytest.mark.compiled

SECRET = b"s" * 16
TOKEN = {"progressToken": 1}
AT_ONCE = 0.001  # seconds


class Late(RedisEventStore):
    """A store that a test lets answer.

    Attributes:
        asked: How many events each request had.
        fault: Raised in place of the next answers.
        keeps: Whether it keeps events.
        reads: Set while it says what it has.
        n_reads: How often it was asked for that.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[int] = []
        self.fault: Exception | None = None
        self.keeps = True
        self.reads = asyncio.Event()
        self.reads.set()
        self.n_reads = 0
        self._answers = asyncio.Semaphore(0)

    def answer(self, n: int = 1) -> None:
        """Let n requests be answered."""
        for _ in range(n):
            self._answers.release()

    async def append_all(self, stream: str, n: int, events: Sequence[bytes]) -> None:
        self.asked.append(len(events))
        await self._answers.acquire()
        if self.fault is not None:
            raise self.fault
        if self.keeps:
            await super().append_all(stream, n, events)

    async def after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        self.n_reads += 1
        await self.reads.wait()
        if self.fault is not None:
            raise self.fault
        return await super().after(stream, n)


@pytest.fixture
def store(store_server: StoreServer) -> Late:
    return Late(store_server.cluster(), "lab")


@contextlib.asynccontextmanager
async def at_a_host(
    lab: Lab, server: StoreServer, store: EventStore, **options: Any
) -> AsyncIterator[HttpClient]:
    """A client with a session that other hosts may adopt."""
    hosts = SessionHosts(server.cluster(), "lab", "http://127.0.0.1:1", secret=SECRET)
    async with served(lab, event_store=store, directory=hosts, **options) as client:
        await client.open()
        yield client


async def talking(lab: Lab, client: HttpClient, n: int, **more: Any) -> Reply:
    """The response to a call that says something n times, then waits at the gate "a"."""
    call = asyncio.create_task(client.call("talk", name="a", n=n, meta=TOKEN, **more))
    await lab.started.get()
    return await call


async def until_asked(store: Late, n: int) -> None:
    while len(store.asked) < n:
        await asyncio.sleep(0.001)


async def first_event(reply: Reply) -> Event:
    """The event before the first message: where to come back."""
    event = await reply.event()
    assert event is not None and event.id is not None and not event.data
    return event


async def half_said(lab: Lab, client: HttpClient, store: Late) -> tuple[Reply, Event]:
    """The response to a call that has said two of four things, which the store is asked to keep,
    and where it begins."""
    reply = await talking(lab, client, 2)
    begun = await first_event(reply)
    await until_asked(store, 1)
    return reply, begun


async def nothing_more(client: HttpClient, reply: Reply) -> None:
    """What was sent before has arrived, and it is no event."""
    for n in range(3):
        await client.call("echo", id=f"e{n}", text="x")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await reply.event()


def steps(messages: list[Any]) -> list[Any]:
    """Numbers of progress, and "end" for the answer."""
    return [m["params"]["progress"] if "method" in m else "end" for m in messages]


async def test_no_event_is_sent_before_the_store_has_it(
    store_server: StoreServer, store: Late
) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, begun = await half_said(lab, client, store)
        await nothing_more(client, reply)
        store.answer()
        assert steps(await reply.next_messages(2)) == [0, 1]
        lab.gate("a").set()
        await until_asked(store, 2)
        await nothing_more(client, reply)
        store.answer()
        assert steps(await reply.messages()) == [2, 3, "end"]
        again = await client.get(begun.id)
        assert steps(await again.messages()) == [0, 1, 2, 3, "end"]


async def test_a_store_that_cannot_say_now_what_it_has(
    store_server: StoreServer, store: Late
) -> None:
    """The client comes back, and has lost nothing."""
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, begun = await half_said(lab, client, store)
        store.answer(10)
        assert steps(await reply.next_messages(2)) == [0, 1]
        store.fault = StoreUnavailable()
        refused = await client.get(begun.id)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        store.fault = None
        again = await client.get(begun.id)
        assert steps(await again.next_messages(2)) == [0, 1]
        lab.gate("a").set()
        assert steps(await again.messages()) == [2, 3, "end"]


async def test_what_is_said_in_one_turn_is_one_request(
    store_server: StoreServer, store: Late
) -> None:
    lab = Lab()
    lab.gate("a").set()
    async with at_a_host(lab, store_server, store) as client:
        store.answer(10)
        reply = await client.call("talk", name="a", n=30, meta=TOKEN)
        assert steps(await reply.messages()) == [*range(60), "end"]
        assert store.asked == [61]


async def test_stored_events_do_not_wait_for_later_ones(
    store_server: StoreServer, store: Late
) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, _ = await half_said(lab, client, store)
        lab.gate("a").set()  # more is said while the store is asked
        await client.call("echo", id=2, text="x")
        store.answer()
        assert steps(await reply.next_messages(2)) == [0, 1]
        await until_asked(store, 2)
        await nothing_more(client, reply)
        store.answer()
        assert steps(await reply.messages()) == [2, 3, "end"]


async def test_streams_do_not_wait_for_each_other(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        first = await talking(lab, client, 1, id=1)
        await until_asked(store, 1)
        second = await talking(lab, client, 1, id=2)
        await until_asked(store, 2)
        store.answer(2)
        assert steps(await second.next_messages(1)) == steps(await first.next_messages(1)) == [0]
        lab.gate("a").set()
        store.answer(2)
        assert steps(await second.messages()) == steps(await first.messages()) == [1, "end"]


async def test_the_stream_of_a_get(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        get = await client.get()
        await first_event(get)
        lab.change()
        await until_asked(store, 1)
        await nothing_more(client, get)
        store.answer()
        (changed,) = await get.next_messages(1)
        assert changed["method"] == "notifications/tools/list_changed"


async def hears_of(lab: Lab, client: HttpClient, n: int, size: int = 8000) -> list[str]:
    """Subscribe to n resources. Returns their URIs, of a size."""

    @lab.server.resource("x://{name}")
    def x(name: str) -> str:
        return name

    uris = [f"x://{letter * size}" for letter in "abcdefgh"[:n]]
    for uri in uris:
        await client.post(raw.request(1, "resources/subscribe", {"uri": uri}))
    return uris


async def test_a_get_whose_client_reads_what_the_store_has(
    store_server: StoreServer, store: Late
) -> None:
    """Events that wait for the store, or waited long for it, do not close the GET."""
    lab = Lab(limits=Limits(output_high=10_000, output_low=5_000))
    async with at_a_host(lab, store_server, store) as client:
        uri, last = await hears_of(lab, client, 2)
        get = await client.get()
        await first_event(get)
        get.narrow()
        for n in range(2):
            for _ in range(500):  # just less than may wait for the store
                lab.server.resource_updated(uri)
                await asyncio.sleep(0)
            if n == 0:
                store.answer()
                await until_asked(store, 2)
        store.keeps = False
        store.answer(1000)  # now more is sent than the system takes
        for _ in range(20):
            lab.server.resource_updated(uri)
            await asyncio.sleep(0.001)
        lab.server.resource_updated(last)
        heard = await get.read_until(last.encode() + b'"}}\n\n')
        assert heard.count(b"notifications/resources/updated") == 1021


async def test_a_get_whose_client_does_not_read(
    store_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab()
    store = RedisEventStore(store_server.cluster(), "lab")
    async with at_a_host(lab, store_server, store) as client:
        uris = await hears_of(lab, client, 8)
        await client.get()
        while "does not read its GET" not in caplog.text:
            for uri in uris:
                lab.server.resource_updated(uri)
            await asyncio.sleep(0.001)


async def test_a_store_that_answers_too_late(store_server: StoreServer, store: Late) -> None:
    """Events are sent after its `store_timeout`, and the store has them all the same."""
    lab = Lab()
    lab.gate("a").set()
    store.store_timeout = AT_ONCE
    async with at_a_host(lab, store_server, store) as client:
        reply = await client.call("talk", name="a", n=5, meta=TOKEN)
        begun = await first_event(reply)
        assert steps(await reply.messages()) == [*range(10), "end"]
        store.answer(10)
        again = await client.get(begun.id)
        assert steps(await again.messages()) == [*range(10), "end"]


async def test_a_store_that_fails(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    store.fault = StoreUnavailable()
    async with at_a_host(lab, store_server, store) as client:
        reply, begun = await half_said(lab, client, store)
        store.answer()
        assert steps(await reply.next_messages(2)) == [0, 1]
        lab.gate("a").set()
        assert steps(await reply.messages()) == [2, 3, "end"]
        assert store.asked == [2]  # it is not asked again
        assert (await client.get(begun.id)).status == 400


async def test_a_client_that_leaves_meanwhile(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, begun = await half_said(lab, client, store)
        reply.leave()
        back = asyncio.create_task(client.get(begun.id))
        await client.call("echo", id=2, text="x")
        assert not back.done()
        store.answer()
        rest = await back
        assert steps(await rest.next_messages(2)) == [0, 1]
        lab.gate("a").set()
        await until_asked(store, 2)
        await nothing_more(client, rest)
        store.answer()
        assert steps(await rest.messages()) == [2, 3, "end"]


@pytest.mark.parametrize("kind", ["get", "call"])
@pytest.mark.parametrize("store_kind", ["redis", "sqlite"])
async def test_a_client_that_comes_back_to_a_stream_that_never_rests(
    tmp_path: Path, store_server: StoreServer, kind: str, store_kind: str
) -> None:
    lab = Lab()

    @lab.server.tool
    async def count(ctx: Context) -> None:
        for n in itertools.count():
            await ctx.progress(n)
            await asyncio.sleep(0)

    async def change() -> None:
        while True:
            lab.server.resource_updated(uri)
            await asyncio.sleep(0)

    store: EventStore = SQLiteEventStore(tmp_path / "events.db")
    if store_kind == "redis":
        store = RedisEventStore(store_server.cluster(), "lab")
    async with at_a_host(lab, store_server, store) as client:
        (uri,) = await hears_of(lab, client, 1, 10)
        reply = await (client.get() if kind == "get" else client.call("count", meta=TOKEN))
        changes = asyncio.create_task(change())
        ids = [(await first_event(reply)).id]
        for _ in range(3):
            events = [await reply.event() for _ in range(20)]
            ids += [one.id for one in events if one is not None]
            reply.leave()
            reply = await client.get(ids[-1])
        changes.cancel()
        await asyncio.wait([changes])
        name, _, _ = str(ids[0]).rpartition("-")
        assert ids == [f"{name}-{n}" for n in range(61)]


async def test_a_client_that_comes_back_while_events_are_held(
    store_server: StoreServer, store: Late
) -> None:
    """What is held at the old connection goes there, and no event comes twice at the new one."""
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, begun = await half_said(lab, client, store)
        back = asyncio.create_task(client.get(begun.id))
        await client.call("echo", id=2, text="x")
        store.answer(10)
        rest = await back
        assert steps(await reply.messages()) == [0, 1]
        lab.gate("a").set()
        assert steps(await rest.messages()) == [0, 1, 2, 3, "end"]


async def test_a_client_that_comes_back_twice_at_once(
    store_server: StoreServer, store: Late
) -> None:
    """One of its connections has the rest, and the other one ends."""
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        store.answer(10)
        reply, begun = await half_said(lab, client, store)
        assert steps(await reply.next_messages(2)) == [0, 1]
        store.reads.clear()
        backs = []
        for n in (1, 2):
            backs.append(asyncio.create_task(client.get(begun.id)))
            while store.n_reads < n:
                await asyncio.sleep(0.001)
        store.reads.set()
        first, second = [await back for back in backs]
        assert steps(await first.messages()) == [0, 1]
        lab.gate("a").set()
        assert steps(await second.messages()) == [0, 1, 2, 3, "end"]


@pytest.mark.parametrize(("fault", "status"), [(StoreUnavailable(), 503), (OSError("x"), 400)])
async def test_a_get_that_cannot_be_resumed(
    store_server: StoreServer, store: Late, fault: Exception, status: int
) -> None:
    """Later messages go to the next GET."""
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        store.answer(10)
        get = await client.get()
        begun = await first_event(get)
        lab.change()
        await get.next_messages(1)
        store.fault = fault
        assert (await client.get(begun.id)).status == status
        lab.change()
        await client.call("echo", id=2, text="x")
        (changed,) = await (await client.get()).next_messages(1)
        assert changed["method"] == "notifications/tools/list_changed"


async def test_a_session_that_ends_meanwhile(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply = await talking(lab, client, 2)
        get = await client.get()
        await until_asked(store, 1)
        assert (await client.request("DELETE")).status == 204
        store.answer(10)
        ended = await reply.messages()
        assert steps(ended[:2]) == [0, 1]
        assert not await get.messages()
        while lab.cancelled != ["a"]:
            await asyncio.sleep(0.001)


async def test_a_session_that_ends_while_its_older_stream_is_read(
    store_server: StoreServer, store: Late
) -> None:
    """Its session was adopted. The stream does not outlive it."""
    async with at_a_host(
        Lab(), store_server, RedisEventStore(store_server.cluster(), "lab")
    ) as one:
        begun = await first_event(await one.get())
        await asyncio.sleep(1)  # until the session has a record
    async with at_a_host(Lab(), store_server, store) as other:
        other.fields |= one.fields
        assert (await other.call("echo", text="x")).status == 200
        store.reads.clear()
        get = asyncio.create_task(other.get(begun.id))
        while not store.n_reads:
            await asyncio.sleep(0.001)
        assert (await other.request("DELETE")).status == 204
        store.reads.set()
        assert not await (await get).messages()


async def test_a_host_that_drains_meanwhile(store_server: StoreServer, store: Late) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        reply, _ = await half_said(lab, client, store)
        client.drain()
        lab.gate("a").set()
        await asyncio.sleep(0.05)
        store.answer(10)
        assert steps(await reply.messages()) == [0, 1, 2, 3, "end"]


async def test_the_next_request_of_a_connection(store_server: StoreServer, store: Late) -> None:
    """Its answer does not pass the end of a stream that is held."""
    lab = Lab()
    lab.gate("a").set()
    async with at_a_host(lab, store_server, store) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {BOTH}\r\n"
            f"Mcp-Session-Id: {client.fields['mcp_session_id']}\r\n"
            "Content-Type: application/json\r\n"
        )
        for more, body in (
            ("", call("talk", {"name": "a", "n": 1}, 1, _meta=TOKEN)),
            ("Connection: close\r\n", call("echo", {"text": "x"}, 2)),
        ):
            writer.write(f"{head}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await until_asked(store, 1)
        sent = await reader.readuntil(b"-0\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.readuntil(b"progress")
        store.answer(10)
        sent += await reader.read()
        writer.close()
        found = [
            sent.index(one) for one in (b'"progress":0', b'"progress":1', b'"id":1', b'"id":2')
        ]
        assert found == sorted(found) and sent.count(b"HTTP/1.1 200") == 2


async def test_what_is_held_counts_as_queued(store_server: StoreServer, store: Late) -> None:
    lab = Lab(limits=Limits(output_high=100_000, output_low=50_000))
    async with at_a_host(lab, store_server, store) as client:
        call = asyncio.create_task(client.call("flood", n=40, meta=TOKEN))
        await lab.stuck()
        assert 4 <= lab.n_said <= 12
        reply = await call
        store.answer(1000)
        assert steps(await reply.messages()) == [*range(40), "end"]


async def test_who_waits_for_the_store_is_no_slow_reader(
    store_server: StoreServer, store: Late, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(limits=Limits(output_high=100_000, output_low=50_000))
    async with at_a_host(lab, store_server, store, slow_reader_timeout=0.1) as client:
        call = asyncio.create_task(client.call("flood", n=40, meta=TOKEN))
        await lab.stuck()
        await asyncio.sleep(1)
        reply = await call
        store.answer(1000)
        assert steps(await reply.messages()) == [*range(40), "end"]
    assert "unread" not in caplog.text


async def test_a_large_event(store_server: StoreServer) -> None:
    """It waits for the store though it has more than 4 MiB, and can be had again."""
    lab = Lab(limits=Limits(max_message=2**24))
    name = 5 * 2**20 * "x"
    store = Late(store_server.cluster(), "lab", max_stream_bytes=2**24)
    async with at_a_host(lab, store_server, store, response="sse") as client:
        store.answer()  # the answer to initialize is an event, too
        reply = await client.call("wait", name=name)
        begun = await first_event(reply)
        await lab.started.get()
        lab.gate(name).set()
        await until_asked(store, 2)
        store.answer()
        again = await client.get(begun.id)
        for one in (reply, again):
            (answer,) = await one.messages()
            assert answer["result"]["content"][0]["text"] == name


async def test_more_than_may_wait_for_the_store(
    store_server: StoreServer, store: Late, caplog: pytest.LogCaptureFixture
) -> None:
    """What is said behind 4 MiB that wait is sent at once, and the stream cannot be resumed."""
    lab = Lab(limits=Limits(output_high=2**24))
    async with at_a_host(lab, store_server, store) as client:
        reply = await client.call("flood", n=300, meta=TOKEN)
        while "the store is too slow" not in caplog.text:
            await asyncio.sleep(0.01)
        store.answer(10)
        begun = await first_event(reply)
        assert steps(await reply.messages()) == [*range(300), "end"]
        assert (await client.get(begun.id)).status == 400


async def test_the_end_of_a_host_waits_for_the_store(
    store_server: StoreServer, store: Late
) -> None:
    lab = Lab()
    async with at_a_host(lab, store_server, store) as client:
        _, begun = await half_said(lab, client, store)
        asyncio.get_running_loop().call_later(0.05, store.answer, 10)
    assert begun.id is not None
    stream, _, _ = begun.id.rpartition("-")
    kept = RedisEventStore(store_server.cluster(), "lab")
    events = await kept.after(stream, 0)
    await kept.close()
    assert events is not None and [n for n, _ in events][:2] == [1, 2]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "json", "without other hosts"])
async def test_what_needs_no_hold(
    tmp_path: Path, store_server: StoreServer, store: Late, kind: str
) -> None:
    lab = Lab()
    lab.gate("a").set()
    if kind == "without other hosts":
        async with served(lab, event_store=store) as client:
            await client.open()
            reply = await client.call("talk", name="a", n=2, meta=TOKEN)
            assert steps(await reply.messages()) == [0, 1, 2, 3, "end"]
            store.answer(10)
        return
    stores: dict[str, Any] = {
        "memory": MemoryEventStore, "sqlite": lambda: SQLiteEventStore(tmp_path / "e.db"),
        "json": lambda: store,
    }  # fmt: skip
    response = "json" if kind == "json" else "auto"
    async with at_a_host(lab, store_server, stores[kind](), response=response) as client:
        reply = await client.call("talk", name="a", n=2, meta=TOKEN)
        if kind == "json":
            assert (await reply.message())["result"]
            assert not store.asked
        else:
            assert steps(await reply.messages()) == [0, 1, 2, 3, "end"]
