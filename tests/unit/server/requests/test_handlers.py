"""Law 7: what Python promises inside a coroutine holds in every handler of a server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from lab.raw import call, cancel, request
from lab.server import text_of

from wirespeed import Context, Server

pytestmark = pytest.mark.compiled

variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default="unset")


def test_there_is_a_current_task_before_and_after_every_await(peer: Any, server: Server) -> None:
    seen: list[Any] = []

    @server.tool
    async def look() -> str:
        for _ in range(4):
            task = asyncio.current_task()
            assert isinstance(task, asyncio.Task)
            assert task in asyncio.all_tasks()
            assert not task.done()
            assert task.cancelling() == 0
            seen.append(id(task))
            await asyncio.sleep(0)
        return "ok"

    assert text_of(peer.result(call(1, "look"))) == "ok"
    assert len(set(seen)) == 1


def test_requests_under_way_have_tasks_of_their_own(peer: Any, server: Server) -> None:
    barrier = asyncio.Barrier(50)
    tasks: list[Any] = []

    @server.tool
    async def meet() -> str:
        tasks.append(asyncio.current_task())
        await barrier.wait()
        assert asyncio.current_task() in tasks
        return "met"

    peer.send(*(call(i, "meet") for i in range(50)))
    peer.answers(*range(50))
    assert len(set(tasks)) == 50


def test_asyncio_timeout_works_before_and_after_suspension(connect: Any, server: Server) -> None:
    @server.tool
    async def first() -> str:
        try:
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            task = asyncio.current_task()
            assert task is not None
            return f"timed out, cancelling {task.cancelling()}"
        return "never"

    @server.tool
    async def later() -> str:
        await asyncio.sleep(0)
        return await first()

    @server.tool
    async def wait_for() -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.005)
        except TimeoutError:
            return "timed out, cancelling 0"
        return "never"

    @server.tool
    async def not_reached() -> str:
        async with asyncio.timeout(1000):
            await asyncio.sleep(0)
        return "timed out, cancelling 0"

    peer = connect("2025-06-18")
    for id, name in enumerate(("first", "later", "wait_for", "not_reached")):
        assert text_of(peer.result(call(id, name))) == "timed out, cancelling 0"


def test_context_variables_do_not_leak_between_requests(connect: Any, server: Server) -> None:
    @server.tool
    async def coroutine(value: str) -> str:
        before = variable.get()
        variable.set(value)
        await asyncio.sleep(0)
        child = await asyncio.create_task(inherited())
        return f"{before} {variable.get()} {child}"

    async def inherited() -> str:
        return str(variable.get())

    @server.tool
    def thread(value: str) -> str:
        before = variable.get()
        variable.set(value)
        return f"{before} {variable.get()} {value}"

    @server.tool
    async def generator(value: str) -> AsyncIterator[str]:
        yield str(variable.get())
        variable.set(value)
        await asyncio.sleep(0)
        yield str(variable.get())

    peer = connect("2025-06-18")
    for name in ("coroutine", "thread"):
        peer.send(*(call(i, name, {"value": f"v{i}"}) for i in range(20)))
        for i, answer in peer.answers(*range(20)).items():
            assert text_of(answer["result"]) == f"unset v{i} v{i}"
    result = peer.result(call(1, "generator", {"value": "v"}))
    assert result["structuredContent"] == {"result": ["unset", "v"]}
    assert variable.get() == "unset"


def test_an_inline_tool_shares_no_variables_with_the_next(peer: Any, server: Server) -> None:
    @server.tool(inline=True)
    def inline(value: str) -> str:
        before = variable.get()
        variable.set(value)
        return str(before)

    peer.send(*(call(i, "inline", {"value": "leaked"}) for i in range(3)))
    for answer in peer.answers(0, 1, 2).values():
        assert text_of(answer["result"]) == "unset"
    assert text_of(peer.result(call(3, "inline", {"value": "x"}))) == "unset"


def test_anyio_scopes_and_groups(connect: Any, server: Server) -> None:
    @server.tool
    async def move_on() -> str:
        with anyio.move_on_after(0.005) as scope:
            await anyio.sleep_forever()
        return f"moved on {scope.cancelled_caught}"

    @server.tool
    async def fail_after() -> str:
        try:
            with anyio.fail_after(0.005):
                await asyncio.sleep(0)
                await anyio.sleep_forever()
        except TimeoutError:
            return "moved on True"
        return "never"

    @server.tool
    async def group() -> str:
        got: list[int] = []

        async def one(i: int) -> None:
            await anyio.sleep(0)
            got.append(i)

        async with anyio.create_task_group() as tasks:
            for i in range(5):
                tasks.start_soon(one, i)
        return f"moved on {sorted(got) == [0, 1, 2, 3, 4]}"

    @server.tool
    async def group_cancelled() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            tasks.cancel_scope.cancel()
        return "moved on True"

    @server.tool
    async def shielded() -> str:
        with anyio.move_on_after(0.005) as outer, anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
        return f"moved on {outer.cancel_called}"

    @server.tool
    async def in_thread() -> str:
        ident = await anyio.to_thread.run_sync(threading.get_ident)
        return f"moved on {ident != threading.get_ident()}"

    peer = connect("2025-06-18")
    names = ("move_on", "fail_after", "group", "group_cancelled", "shielded", "in_thread")
    for _ in range(3):  # the tasks are used again
        for id, name in enumerate(names):
            assert text_of(peer.result(call(id, name))) == "moved on True", name


def test_a_task_group_fails_as_a_group(connect: Any, server: Server) -> None:
    @server.tool
    async def group() -> str:
        async def bad() -> None:
            await asyncio.sleep(0)
            raise ValueError("in a child")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(bad())
                await asyncio.Event().wait()
        except ExceptionGroup as failed:
            task = asyncio.current_task()
            assert task is not None
            return f"{failed.exceptions[0]} {task.cancelling()}"
        return "never"

    assert text_of(connect("2025-06-18").result(call(1, "group"))) == "in a child 0"


def test_children_of_a_handler_may_outlive_it(peer: Any, server: Server) -> None:
    gate = asyncio.Event()
    children: list[asyncio.Task[str]] = []

    async def child() -> str:
        await gate.wait()
        return "done"

    @server.tool
    async def spawn() -> str:
        children.append(asyncio.create_task(child()))
        return "spawned"

    peer.result(call(1, "spawn"))
    peer.result(call(2, "spawn"))
    gate.set()
    for task in children:
        peer.run(asyncio.wait_for(task, 20))
        assert task.result() == "done"


def test_to_thread_and_subprocess_of_asyncio(connect: Any, server: Server) -> None:
    @server.tool
    async def work() -> str:
        ident = await asyncio.to_thread(threading.get_ident)
        assert ident != threading.get_ident()
        process = await asyncio.create_subprocess_exec(
            "echo", "child", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out.decode().strip()

    assert text_of(connect("2025-06-18").result(call(1, "work"))) == "child"


def test_cancel_of_the_current_task_is_an_error_of_the_call(peer: Any, server: Server) -> None:
    @server.tool
    async def suicide() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("enough")
        await asyncio.sleep(0)
        return "never"

    result = peer.result(call(1, "suicide"))
    assert result["isError"] is True
    assert "cancelled" in text_of(result)
    assert peer.fence() == []


def test_the_coroutine_of_the_task_is_a_running_one(connect: Any, server: Server) -> None:
    @server.tool
    async def look() -> str:
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return str(inspect.getcoroutinestate(task.get_coro()))  # type: ignore[arg-type]

    assert text_of(connect("2025-06-18").result(call(1, "look"))) == inspect.CORO_RUNNING


# -- cancelled by the peer ------------------------------------------------------------------------


async def wait_event() -> None:
    await asyncio.Event().wait()


async def wait_sleep() -> None:
    await asyncio.sleep(3600)


async def wait_future() -> None:
    await asyncio.get_running_loop().create_future()


async def wait_task() -> None:
    await asyncio.create_task(asyncio.Event().wait())


async def wait_gather() -> None:
    await asyncio.gather(asyncio.Event().wait(), asyncio.sleep(3600))


async def wait_queue() -> None:
    await asyncio.Queue[int]().get()


async def wait_lock() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def wait_condition() -> None:
    condition = asyncio.Condition()
    async with condition:
        await condition.wait()


async def wait_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.Event().wait())


async def wait_timeout() -> None:
    async with asyncio.timeout(3600):
        await asyncio.Event().wait()


async def wait_anyio() -> None:
    with anyio.move_on_after(3600):
        await anyio.sleep_forever()


async def wait_anyio_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)


async def wait_shield() -> None:
    await asyncio.shield(asyncio.sleep(0.02))
    await asyncio.Event().wait()


async def wait_later() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    await asyncio.Event().wait()


async def wait_busily() -> None:
    while True:
        await asyncio.sleep(0)


WAITS = [
    wait_event, wait_sleep, wait_future, wait_task, wait_gather, wait_queue, wait_lock,
    wait_condition, wait_group, wait_timeout, wait_anyio, wait_anyio_group, wait_shield,
    wait_later, wait_busily,
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("together", [True, False])
def test_a_cancelled_request_is_cancelled_wherever_it_waits(
    wait: Any, together: bool, peer: Any, server: Server
) -> None:
    ended: list[BaseException] = []

    @server.tool
    async def tool() -> str:
        try:
            await wait()
        except BaseException as exc:
            ended.append(exc)
            raise
        return "never"

    peer.send(call(1, "tool"))
    if not together:
        peer.fence()
        peer.run(asyncio.sleep(0.002))
    peer.send(cancel(1))
    assert peer.fence() == []
    peer.wait_for(lambda: ended)
    assert peer.fence() == []
    assert isinstance(ended[0], asyncio.CancelledError)
    peer.wait_for(lambda: peer.connection.session.n_cancelled == 0)
    assert peer.connection.session.counters["requests_in_flight"] == 0
    assert len(peer.connection.running) == 0
    # the id is free at once, and the next request is a new one
    peer.send(call(1, "tool"), cancel(1))
    peer.wait_for(lambda: len(ended) == 2)
    assert peer.fence() == []


def test_what_a_cancelled_handler_still_does_is_not_sent(
    peer: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    @server.tool
    async def answer(ctx: Context) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await ctx.error("late")
        await asyncio.sleep(0.001)
        done.append("answer")
        return "an answer"

    @server.tool
    async def fail() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append("fail")
            raise ValueError("while cleaning up") from None
        return "never"

    peer.send(call(1, "answer"), call(2, "fail"), cancel(2), cancel(1))
    peer.wait_for(lambda: len(done) == 2)
    assert peer.fence() == []
    peer.wait_for(lambda: peer.connection.session.n_cancelled == 0)
    assert peer.fence() == []
    assert "while cleaning up" in caplog.text  # not lost either


def test_a_cancelled_request_that_waits_for_a_thread_frees_the_thread(
    peer: Any, server: Server
) -> None:
    ran: list[int] = []
    gate = threading.Event()

    @server.tool
    def work(n: int) -> str:
        gate.wait()
        ran.append(n)
        return "done"

    peer.send(*(call(i, "work", {"n": i}) for i in range(200)))
    peer.fence()
    peer.send(*(cancel(i) for i in range(1, 200)))
    assert peer.fence() == []
    gate.set()
    assert peer.recv()["id"] == 0
    assert text_of(peer.result(call("last", "work", {"n": 200}))) == "done"
    assert 0 in ran
    assert len(ran) < 60  # those that had no thread yet never ran


# -- races ----------------------------------------------------------------------------------------


def test_a_cancel_that_comes_after_the_answer_changes_nothing(peer: Any, server: Server) -> None:
    @server.tool
    async def quick() -> str:
        return "quick"

    peer.send(call(1, "quick"), cancel(1), call(1, "quick"), cancel(1))
    assert [peer.recv()["id"], peer.recv()["id"]] == [1, 1]
    assert peer.fence() == []
    assert peer.connection.session.counters["cancelled"] == 0


def test_a_cancel_in_the_same_turn_as_the_completion(connect: Any, server: Server) -> None:
    """The future is done, its handler not resumed yet: one answer or none, never two."""
    futures: dict[int, asyncio.Future[str]] = {}

    @server.tool
    async def wait(n: int) -> str:
        futures[n] = asyncio.get_running_loop().create_future()
        return await futures[n]

    peer = connect("2025-06-18")
    for n in range(50):
        peer.send(call(n, "wait", {"n": n}))
        peer.fence()
        futures[n].set_result("done")
        peer.send(cancel(n))
        assert len(peer.fence()) <= 1
    assert peer.connection.session.counters["requests_in_flight"] == 0
    peer.wait_for(lambda: peer.connection.session.n_cancelled == 0)


def test_a_flood_of_cancels_is_harmless(peer: Any, server: Server) -> None:
    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    peer.send(*(call(i, "hang") for i in range(100)))
    peer.send(*(cancel(i % 150) for i in range(20_000)))
    assert peer.fence() == []
    counters = peer.connection.session.counters
    assert counters["cancelled"] == 100
    assert counters["requests_in_flight"] == 0


def test_a_cancel_of_another_type_does_not_hit(peer: Any, server: Server) -> None:
    gate = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    peer.send(call(1, "wait"), cancel("1"), cancel(1.0), cancel(True), cancel([1]))
    assert peer.fence() == []
    gate.set()
    peer.send(request(2, "ping"))
    peer.answers(1, 2)


def test_the_link_goes_and_every_handler_is_cancelled(peer: Any, server: Server) -> None:
    ended: list[int] = []

    @server.tool
    async def hang(n: int) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(n)
        return "never"

    peer.send(*(call(i, "hang", {"n": i}) for i in range(10)))
    peer.fence()
    peer.connection.abort()
    peer.wait_for(lambda: len(ended) == 10)
    assert peer.connection.closed.done()
    assert peer.connection not in server.service.connections
