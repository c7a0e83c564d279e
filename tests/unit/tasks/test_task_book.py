"""Tasks of a server beyond one client: other processes, shutdown, broken stores, middleware."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.raw import call, request
from lab.rows import every
from lab.server import Peer
from lab.task import MakeStore, Workshop, a_task, book_of, make_store
from lab.wording import raises

from wirespeed import Client, Context, Server, SyncClient
from wirespeed.client.tasks.calls import TASKS
from wirespeed.errors import ProtocolError, RemoteError, TaskCancelled
from wirespeed.protocol import codes
from wirespeed.server.tasks.book import SHUT_DOWN, TaskRuntime, TaskSettings
from wirespeed.server.tools.results import RawResult
from wirespeed.tasks import MemoryTaskStore, Task, TaskStore

ERAS = ["legacy", "modern"]


# -- several processes ----------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "redis"])
def new_shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """``new_shared_store()``: a store that sees the tasks of the others."""
    url = request.getfixturevalue("store_server").url if request.param == "redis" else ""
    return lambda: make_store(request.param, tmp_path, url)


@pytest.mark.parametrize("era", ERAS)
async def test_another_server_gives_the_result(new_shared_store: MakeStore, era: Any) -> None:
    """Two servers with one file, as with ``workers``, or one store, as on two hosts: who is asked
    need not be who works."""
    shops = [Workshop(new_shared_store(), poll_interval=0.02) for _ in "ab"]
    async with (
        Client(shops[0].server, era=era, extensions=[TASKS]) as here,
        Client(shops[1].server, era=era, extensions=[TASKS], roots=["file:///r"]) as there,
    ):
        task = await here.start_tool("double", {"n": 3})
        seen = await there.get_task(task.id)
        waiting = asyncio.create_task(seen.result())
        shops[0].gate.set()
        assert (await waiting).structured_content == {"result": 6}
        # what it asks is answered there, too
        task = await here.start_tool("double", {"n": 3})
        await (await there.get_task(task.id)).result()
        # and it may be cancelled from there
        shops[0].gate.clear()
        task = await here.start_tool("double", {"n": 3})
        while len(shops[0].started) < 3:
            await asyncio.sleep(0.001)
        await (await there.get_task(task.id)).cancel()
        with pytest.raises(TaskCancelled):
            await task.result()
        while shops[0].cancelled != ["double"]:
            await asyncio.sleep(0.01)
        assert not shops[1].started


async def test_another_server_brings_the_answers(new_shared_store: MakeStore) -> None:
    shops = [Workshop(new_shared_store(), poll_interval=0.02) for _ in "ab"]
    async with (
        Client(shops[0].server, era="modern", extensions=[TASKS]) as here,
        Client(shops[1].server, era="modern", extensions=[TASKS], roots=["file:///r"]) as there,
    ):
        task = await here.start_tool("ask_roots", {"times": 1})
        seen = await there.get_task(task.id)
        result = await seen.result()
        assert result.structured_content == {"result": [{"roots": [{"uri": "file:///r"}]}]}


async def test_tasks_are_there_after_a_restart(new_shared_store: MakeStore) -> None:
    shop = Workshop(new_shared_store())
    shop.gate.set()
    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        done = await client.start_tool("double", {"n": 3})
        await done.result()
        shop.gate.clear()
        under_way = await client.start_tool("double", {"n": 3})
    shop = Workshop(new_shared_store())
    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        again = await client.get_task(done.id)
        assert (await again.result()).structured_content == {"result": 6}
        lost = await client.get_task(under_way.id)
        with pytest.raises(RemoteError, match=SHUT_DOWN) as caught:
            await lost.result()
        assert caught.value.code == codes.CUT_OFF


class Shared(MemoryTaskStore):
    """As if another process changed the tasks."""

    shared = True


class Somebody:
    """As much of a connection as a book asks for."""

    def __init__(self, principal: bytes | None = None) -> None:
        self.principal = principal
        self.shared = False
        self.closed = asyncio.get_running_loop().create_future()


def a_book(store: TaskStore, **times: float) -> TaskRuntime:
    """The book of a server's tasks on the running loop."""
    settings = TaskSettings(ttl=None, max_ttl=None, poll=1)
    return TaskRuntime(store, settings, asyncio.get_running_loop(), **times)


async def test_what_changes_elsewhere_is_told() -> None:
    """From the state on that the listener knows: also what changes before the first look."""
    store = Shared()
    book = a_book(store)
    await book.ready()
    told: asyncio.Queue[Task] = asyncio.Queue()
    task = a_task()
    await store.create(task)
    book.listen(Somebody(), task, told.put_nowait)
    asked = await store.update(task.id, lambda task: task.asking(b"{}", 2000)[0])
    assert await told.get() == asked
    # what cannot be seen from outside is not told, and hides nothing
    answered = await store.update(task.id, lambda task: task.answered({"input-1": b"1"}, 2))
    await book.change(task.id, lambda task: task.withdrawing("input-1", 2))
    assert answered is not None and (await told.get()).status == answered.status == "working"
    await store.put_result(task.id, b"{}")
    assert (await told.get()).status == "completed"
    assert told.empty() and not book.listeners.listened
    await book.close()


async def test_many_who_wait_for_one_task_look_once() -> None:
    class Counted(Shared):
        watched = asked = 0

        async def get(self, task_id: str) -> Task | None:
            if asyncio.current_task() in waiting:
                self.asked += 1
            else:
                self.watched += 1
            return await super().get(task_id)

    waiting: list[asyncio.Task[Task]] = []

    async def wait(book: TaskRuntime, task_id: str) -> Task:
        async with contextlib.aclosing(book.changes(Somebody(), task_id)) as changes:
            async for task in changes:
                last = task
        return last

    store = Counted()
    book = a_book(store, look_every=0.001)
    await book.ready()
    task = a_task()
    await store.create(task)
    waiting.extend(asyncio.create_task(wait(book, task.id)) for _ in range(50))
    while store.watched < 20:
        await asyncio.sleep(0)
    assert store.asked <= 100  # each at its start, and after the first look
    asked = await store.update(task.id, lambda task: task.asking(b"{}", 2000)[0])
    assert asked is not None
    await store.put_result(task.id, b"{}")
    assert {(await one).status for one in waiting} == {"completed"}
    await book.close()


# -- shutting down --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_end_of_a_server_ends_its_handlers(new_store: MakeStore, era: Any) -> None:
    """A server in this process ends with its last client."""
    shop = Workshop(new_store())
    async with Client(shop.server, era=era, extensions=[TASKS]) as client:
        task = await client.start_tool("double", {"n": 3})
        while not shop.started:
            await asyncio.sleep(0)
    assert shop.cancelled == ["double"]
    async with Client(shop.server, era=era, extensions=[TASKS]) as client:
        again = await client.get_task(task.id)
        assert again.state.status == "failed" and again.state.message == SHUT_DOWN
        with pytest.raises(RemoteError) as caught:
            await again.result()
        assert caught.value.code == codes.CUT_OFF


def test_one_event_loop_after_another(new_store: MakeStore) -> None:
    shop = Workshop(new_store())
    with SyncClient(shop.server, extensions=[TASKS]) as client:
        done = client.start_tool("blocking", {"n": 1})
        assert done.result().structured_content == {"result": 2}
    with SyncClient(shop.server, extensions=[TASKS]) as client:
        assert client.get_task(str(done.id)).result().structured_content == {"result": 2}
        assert client.start_tool("blocking", {"n": 2}).result().structured_content == {"result": 3}


# -- asking through the context -------------------------------------------------------------------


class Choice(msgspec.Struct):
    colour: str


@pytest.mark.parametrize("era", ERAS)
async def test_the_context_asks_by_way_of_the_task(era: Any) -> None:
    server = Server("inn")
    server.use_tasks(poll_interval=0.02)
    calls = 0

    @server.tool(task="required")
    async def paint(ctx: Context) -> str:
        nonlocal calls
        calls += 1
        answer = await ctx.elicit("Which colour?", Choice)
        assert answer.content is not None
        more = await ctx.elicit("And the other?", Choice)
        assert more.content is not None
        return f"{answer.content.colour}, {more.content.colour}"

    asked: list[str] = []

    async def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return {"colour": "red" if len(asked) == 1 else "blue"}

    async with Client(server, era=era, extensions=[TASKS], on_elicit=on_elicit) as client:
        task = await client.start_tool("paint")
        assert (await task.result()).text == "red, blue"
    assert calls == 1  # in neither era it is called again
    assert asked == ["Which colour?", "And the other?"]


async def test_a_call_that_asks_is_no_task_yet() -> None:
    """2026-07-28: what is asked before there is a task goes by rounds of the request."""
    server = Server("inn")
    server.use_tasks(poll_interval=0.02)

    @server.tool(task="optional", task_after=1000)
    async def paint(ctx: Context) -> str:
        answer = await ctx.elicit("Which colour?", Choice)
        assert answer.content is not None
        return answer.content.colour

    async def on_elicit(request: Any) -> Any:
        return {"colour": "red"}

    async with Client(server, era="modern", extensions=[TASKS], on_elicit=on_elicit) as client:
        task = await client.start_tool("paint")
        assert task.id is None and (await task.result()).text == "red"


# -- broken stores --------------------------------------------------------------------------------


class Broken(MemoryTaskStore):
    """A store whose disk is full."""

    fails: tuple[str, ...] = ()

    async def create(self, task: Task) -> None:
        if "create" in self.fails:
            raise OSError("/secret/path: no space left")
        await super().create(task)

    async def get(self, task_id: str) -> Task | None:
        if "get" in self.fails:
            raise OSError("/secret/path: unreadable")
        return await super().get(task_id)


@pytest.mark.parametrize("version", ["2025-11-25", None])
def test_a_store_that_fails_says_nothing_of_itself(
    connect: Any, version: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken()
    shop = Workshop(store)
    peer: Peer = connect(shop, version)
    if version is None:
        from lab.extension_tasks import call as start
        from lab.extension_tasks import get
    else:
        from lab.legacy_tasks import as_task as start
        from lab.legacy_tasks import get
    store.fails = ("create",)
    assert peer.error(start(1, "double", {"n": 1})) == (-32603, "Internal error")
    assert not shop.started
    store.fails = ("get",)
    assert peer.error(get(2, "x")) == (-32603, "Internal error")
    assert "no space left" in caplog.text and "unreadable" in caplog.text
    store.fails = ()


async def test_the_end_of_a_task_is_stored_when_the_store_can(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.server.tasks.book.END_PAUSES", (0.0, 0.0))
    failing = 2

    class Busy(MemoryTaskStore):
        async def replace(self, old: Task, new: Task) -> bool:
            nonlocal failing
            if failing:
                failing -= 1
                raise OSError("busy")
            return await super().replace(old, new)

    shop = Workshop(Busy(), poll_interval=0.02)
    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        task = await client.start_tool("blocking", {"n": 1})
        assert (await task.result()).structured_content == {"result": 2}
    assert caplog.text.count("cannot be stored yet") == 2


async def test_a_store_that_fails_for_a_while_is_watched_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Locked(Shared):
        fails = 0

        async def get(self, task_id: str) -> Task | None:
            if self.fails:
                self.fails -= 1
                raise OSError("database is locked")
            return await super().get(task_id)

    caplog.clear()
    store = Locked()
    book = a_book(store, look_every=0.001)
    await book.ready()
    task = a_task()
    await store.create(task)
    stopped = asyncio.Event()
    told: asyncio.Queue[Task] = asyncio.Queue()
    somebody = Somebody()
    book.begin(task, stopped.set)
    book.listen(somebody, task, told.put_nowait)
    changes = book.changes(somebody, task.id)
    assert await anext(changes) == task

    async def last() -> Task:
        # the first look of the watcher, which may come now, brings the same state again
        return [seen async for seen in changes][-1]

    waiting = asyncio.ensure_future(last())
    await asyncio.sleep(0)
    store.fails = 20
    while store.fails:
        await asyncio.sleep(0)
    after = await store.update(task.id, lambda task: task.cancelled("elsewhere", 2000))
    await stopped.wait()
    assert await told.get() == after and await waiting == after
    assert caplog.text.count("database is locked") == 1
    await book.close()


class Slow(MemoryTaskStore):
    """A store that takes its time to open, and may fail at it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.opened = 0
        self.ready = False
        self.fails = False

    async def open(self) -> None:
        self.opened += 1
        await self.gate.wait()
        if self.fails:
            raise OSError("/secret/path: no such disk")
        self.ready = True

    async def get(self, task_id: str) -> Task | None:
        assert self.ready
        return await super().get(task_id)

    async def expire(self, now: int) -> list[str]:
        assert self.ready
        return await super().expire(now)


async def refused(work: Any) -> tuple[int, str]:
    with pytest.raises(ProtocolError) as caught:
        await work
    return caught.value.code, caught.value.message


async def test_nothing_is_asked_of_a_store_before_it_is_open() -> None:
    store = Slow()
    book = a_book(store)
    somebody = Somebody()
    requests = [asyncio.ensure_future(book.find(somebody, "x")) for _ in range(3)]
    while not store.opened:
        await asyncio.sleep(0)
    requests[0].cancel()  # who came first may go; the others still get it opened
    with pytest.raises(asyncio.CancelledError):
        await requests[0]
    store.gate.set()
    for later in requests[1:]:
        assert await refused(later) == (-32602, "Failed to retrieve task: Task not found")
    assert store.opened == 1
    await book.close()


async def test_a_store_that_could_not_be_opened_is_opened_by_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    store = Slow()
    store.gate.set()
    store.fails = True
    book = a_book(store)
    somebody = Somebody()
    both = asyncio.gather(*(refused(book.find(somebody, "x")) for _ in range(2)))
    assert await both == [(-32603, "Internal error")] * 2
    assert await refused(book.create(somebody, "tool")) == (-32603, "Internal error")
    assert store.opened == 2 and caplog.text.count("OSError: /secret") == 2
    store.fails = False
    assert (await book.create(somebody, "tool")).name == "tool"
    assert store.opened == 3
    await book.close()


async def test_a_store_that_does_not_close_does_not_hold_its_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(MemoryTaskStore):
        async def close(self) -> None:
            await asyncio.Event().wait()

    book = a_book(Stuck(), close_timeout=0.05)
    await book.ready()
    await book.close()
    assert "the task store needs more than 0.05 s to close" in caplog.text


async def test_an_end_that_no_store_takes_becomes_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wirespeed.server.tasks.book.END_PAUSES", (0.0,))

    class Narrow(MemoryTaskStore):
        async def replace(self, old: Task, new: Task) -> bool:
            if new.result is not None:
                raise OverflowError("string longer than 2147483647 bytes")
            return await super().replace(old, new)

    shop = Workshop(Narrow(), poll_interval=0.02)
    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        task = await client.start_tool("blocking", {"n": 1})
        with raises(RemoteError, code=-32603):
            await task.result()


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_cannot_be_kept_says_nothing_of_the_store(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(MemoryTaskStore):
        async def replace(self, old: Task, new: Task) -> bool:
            if new.requests:
                raise OSError("/secret/path: no space left")
            return await super().replace(old, new)

    shop = Workshop(Full(), poll_interval=0.02)
    async with Client(shop.server, era=era, extensions=[TASKS], roots=[]) as client:
        task = await client.start_tool("ask_roots", {"times": 1})
        with raises(RemoteError, code=-32603):
            await task.result()
    assert "no space left" in caplog.text


# -- what handlers give ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2025-11-25", None])
@pytest.mark.parametrize(
    "odd",
    [b'{"content":"oops"}', b'{"content":[],"isError":"no"}', b'{"content":[1]}',
     b'{"content":[],"_meta":1}', b'{"content":null}'],
)  # fmt: skip
def test_a_result_with_odd_members_fails_its_task(
    connect: Any, version: str | None, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Workshop()

    @shop.server.tool(task="required")
    async def raw() -> Any:
        return RawResult(odd)

    peer: Peer = connect(shop, version)
    if version is None:
        from lab.extension_tasks import finished, start

        shown = finished(peer, start(peer, "raw"))
        assert shown["status"] == "failed"
        assert shown["error"] == {"code": -32603, "message": "Internal error"}
    else:
        from lab.legacy_tasks import answer, get
        from lab.legacy_tasks import start as start_legacy

        error = answer(peer, get(1, start_legacy(peer, "raw"), "tasks/result"))["error"]
        assert error == {"code": -32603, "message": "Internal error"}
    assert "its result is not valid" in caplog.text
    assert not list(book_of(shop.server, peer.loop).workers.task_ids)


# -- registration ---------------------------------------------------------------------------------


def test_options_that_do_not_go_together() -> None:
    server = Server("x")

    async def work() -> None: ...

    def plain() -> None: ...

    for options, text in (
        ({"task": "sometimes"}, 'task is "forbidden"'),
        ({"task_after": 1.0}, "task_after needs"),
        ({"task": "required", "task_after": 1.0}, "task_after must be seconds"),
        ({"task": "optional", "task_after": -1.0}, "task_after must be seconds"),
    ):
        with pytest.raises(ValueError, match=text):
            server.add_tool(work, **options)  # type: ignore[arg-type]
    with raises(ValueError):
        server.add_tool(plain, inline=True, task="optional")
    assert not server.tools and server.service.tasks.service is None


def test_tasks_are_set_up_once() -> None:
    server = Server("x")
    with raises(ValueError):
        server.use_tasks(ttl=0)
    server.use_tasks(MemoryTaskStore())
    with raises(RuntimeError):
        server.use_tasks()


def test_raw_tools_may_be_tasks(connect: Any) -> None:
    server = Server("x")

    async def work(arguments: Any) -> Any:
        return bytes(arguments).decode()

    server.tool_raw("raw", {"type": "object"}, work, task="required")
    peer = connect(server, "2025-11-25")
    message = call(1, "raw", {"a": 1})
    message["params"]["task"] = {}
    peer.send(message)
    task = peer.until(1)[-1]["result"]["task"]
    peer.send(request(2, "tasks/result", {"taskId": task["taskId"]}))
    assert peer.until(2)[-1]["result"]["content"][0]["text"].replace(" ", "") == '{"a":1}'


@every(
    ("settings", "wished", "granted"),
    [
        ((None, None), None, None),
        ((None, None), 5.5, 5),
        ((1000, None), None, 1000),
        ((1000, 5000), 9000, 5000),
        ((None, 5000), None, 5000),
        ((1000, 5000), 0, 1),
        ((1000, 500), None, 500),
    ],
)
def test_times_to_live(settings: Any, wished: Any, granted: Any) -> None:
    assert TaskSettings(*settings, 1).lifetime(wished) == granted


# -- middleware -----------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_middleware_around_calls_that_become_tasks(era: Any) -> None:
    """Middleware sees one reply, the task, and is not in the way of what follows."""
    shop = Workshop(poll_interval=0.02)
    seen: list[Any] = []

    @shop.server.add_middleware
    async def watch(request: Any, call_next: Any) -> Any:
        reply = await call_next(request)
        if request.method == "tools/call":
            seen.append(reply.decode())
        return reply

    async with Client(shop.server, era=era, extensions=[TASKS], roots=["file:///r"]) as client:
        task = await client.start_tool("double", {"n": 2})
        shop.gate.set()
        assert (await task.result()).structured_content == {"result": 4}
        (reply,) = seen
        assert reply.get("task", reply)["taskId"] == task.id
        task = await client.start_tool("ask_roots", {"times": 1})
        assert not (await task.result()).is_error
        shop.gate.clear()
        task = await client.start_tool("double", {"n": 2})
        while shop.started != ["double", "double"]:
            await asyncio.sleep(0)
        await task.cancel()
        while not shop.cancelled:
            await asyncio.sleep(0)
        with pytest.raises(TaskCancelled):
            await task.result()
        task = await client.start_tool("double", {"n": 2})
        while len(shop.started) < 3:
            await asyncio.sleep(0)
    assert shop.cancelled == ["double", "double"]  # with its server


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_call_that_becomes_a_task_while_it_runs(middleware: bool) -> None:
    shop = Workshop(poll_interval=0.02)

    @shop.server.tool(task="optional", task_after=0.01, timeout=20)
    async def slow(n: int, ctx: Context) -> int:
        await shop.wait("slow")
        await ctx.progress(1)
        return n

    if middleware:

        @shop.server.add_middleware
        async def through(request: Any, call_next: Any) -> Any:
            return await call_next(request)

    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        task = await client.start_tool("slow", {"n": 2})
        assert task.id is not None
        shop.gate.set()
        assert (await task.result()).structured_content == {"result": 2}
        assert (await client.call_tool("slow", {"n": 3})).structured_content == {"result": 3}
