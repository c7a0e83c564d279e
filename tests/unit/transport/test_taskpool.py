"""The task pool against real asyncio tasks: whatever a handler can see must be the same."""

import asyncio
import contextvars
import traceback
import types

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from lab.taskpool import VAR, Lab, plain_outcome, turns
from lab.wording import raises

from wirespeed.transport.taskpool import Completion, Running

# --- starting and finishing ---


async def test_a_handler_that_does_not_wait_has_finished_when_start_returns(lab):
    async def echo(x):
        return x

    for x in (1, None, (1, 2), StopIteration(3), ValueError("a value")):
        handle, outcome = lab.begin(echo(x))
        if lab.starts_at_once:
            assert handle is None and outcome.done()
        assert await outcome == (x, None)


async def test_the_worker_is_used_again(lab):
    async def who():
        return asyncio.current_task().get_name()

    async def wait_and_who():
        await asyncio.sleep(0)
        return asyncio.current_task().get_name()

    await turns()
    n_tasks = 1 if lab.reuses else 20
    assert len({await lab.result(who()) for _ in range(20)}) == n_tasks
    assert len({await lab.result(wait_and_who()) for _ in range(20)}) == n_tasks
    assert lab.pool.tasks == lab.pool.idle


async def test_results_after_waiting(lab):
    async def handler(x):
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.sleep(0), 1)
        return x

    for x in (1, None, (1, 2), StopIteration(3), ValueError("a value")):
        handle, outcome = lab.begin(handler(x))
        assert isinstance(handle, Running) and not handle.done()
        assert await outcome == (x, None)
        assert handle.done() and handle.task is None and handle.cancel() is False


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_exceptions_and_their_traceback(steps, lab):
    async def inner():
        raise ValueError("no")

    async def handler():
        for _ in range(steps):
            await asyncio.sleep(0)
        await inner()

    result, exc = await lab.outcome(handler())
    assert result is None and type(exc) is ValueError
    assert exc.__context__ is None
    assert [f.name for f in traceback.extract_tb(exc.__traceback__)] == ["handler", "inner"]


async def test_an_awaited_exception_is_thrown_in(lab):
    async def handler(future):
        try:
            await future
        except LookupError as exc:
            return exc.args

    future = lab.loop.create_future()
    _, outcome = lab.begin(handler(future))
    await turns()
    future.set_exception(LookupError("gone"))
    assert await outcome == (("gone",), None)


async def test_no_coroutine_and_other_kinds_of_coroutine(lab):
    class Handmade:
        """A collections.abc.Coroutine without the C slots."""

        def __init__(self):
            self.steps = 0

        def send(self, value):
            self.steps += 1
            if self.steps < 3:
                return None
            raise StopIteration(8)

        def throw(self, *exc):
            raise exc[0]

        def close(self):
            pass

        def __await__(self):
            return self

    with raises(TypeError):
        lab.begin(1)
    assert await lab.result(Handmade()) == 8
    used = asyncio.sleep(0)
    used.close()
    assert str((await lab.outcome(used))[1]) == "cannot reuse already awaited coroutine"


async def test_start_in_a_task_is_put_off(lab):
    async def who(waits):
        me = asyncio.current_task()
        for _ in range(waits):
            await asyncio.sleep(0)
        return me is asyncio.current_task(), VAR.get()

    VAR.set("of the caller")
    outer = asyncio.current_task()
    for waits in (0, 1, 2):
        outcome = lab.loop.create_future()
        handle = lab.pool.start(who(waits), lambda *args, f=outcome: f.set_result(args))
        assert isinstance(handle, Running) and not handle.done() and handle.task is None
        assert asyncio.current_task() is outer and not outcome.done()
        assert await outcome == ((True, "unset"), None)
        assert handle.done()


async def test_a_handler_and_a_hook_start_more(lab):
    async def leaf():
        return asyncio.current_task()

    done = lab.loop.create_future()
    seen = []

    async def parent():
        lab.pool.start(leaf(), lambda *args: seen.append(args))
        assert seen == []  # a task is current: put off
        await asyncio.sleep(0)
        return asyncio.current_task()

    def chain(result, exc):
        seen.append((result, exc))
        assert asyncio.current_task() is None
        handle = lab.pool.start(leaf(), lambda *args: done.set_result(args))
        assert (handle is None) is lab.starts_at_once

    lab.loop.call_soon(lab.pool.start, parent(), chain)
    task, exc = await done
    assert exc is None and isinstance(task, asyncio.Task)
    assert len(seen) == 2 and seen[0][0] is not seen[1][0]


async def test_a_deferred_start_can_be_cancelled(lab):
    async def handler():
        raise AssertionError("must not run")

    outcome = lab.loop.create_future()
    handle = lab.pool.start(handler(), lambda *args: outcome.set_result(args))
    assert handle.cancel("why") is True
    _, exc = await outcome
    assert type(exc) is asyncio.CancelledError and exc.args == ("why",)
    assert handle.cancel() is False


def test_start_before_the_loop_runs(loop_factory, kind):
    async def handler():
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    loop = loop_factory()
    pool = kind(loop)
    seen = []
    pool.start(handler(), lambda *args: (seen.append(args), loop.stop()))
    loop.run_forever()
    assert seen == [(loop, None)]

    async def elsewhere():
        with raises(RuntimeError):
            pool.start(handler(), print)
        with raises(RuntimeError):
            await pool.aclose()

    asyncio.run(elsewhere())
    loop.run_until_complete(pool.aclose())
    with raises(RuntimeError):
        pool.start(handler(), print)
    loop.close()

    closed = kind(open_loop := loop_factory())
    open_loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        closed.start(handler(), print)


def test_arguments(kind):
    loop = asyncio.new_event_loop()
    with raises(ValueError):
        kind(loop, max_idle=-1)
    pool = kind(loop, max_idle=3)
    assert (pool.loop, pool.max_idle, pool.idle, pool.closed) == (loop, 3, 0, False)
    with pytest.raises(TypeError):
        Running()
    assert isinstance(Completion(), Completion)
    loop.close()


# --- what a task is to its handler ---


async def test_current_task_is_stable(lab):
    async def handler():
        names = [asyncio.current_task()]
        for wait in (0, 0, 0.001):
            await asyncio.sleep(wait)
            names.append(asyncio.current_task())
        return len(set(names)) == 1 and isinstance(names[0], asyncio.Task)

    results = await asyncio.gather(*(lab.result(handler()) for _ in range(5)))
    assert results == [True] * 5


async def test_contexts_are_isolated(lab):
    async def handler(x):
        before = VAR.get()
        token = VAR.set(x)
        await asyncio.sleep(0)
        middle = VAR.get()
        await asyncio.sleep(0.001)
        VAR.reset(token)  # the same context still
        VAR.set((x, x))
        inner = await asyncio.create_task(asyncio.to_thread(VAR.get))
        return before, middle, inner

    async def leave_one(x):
        VAR.set(x)

    async def read():
        return VAR.get()

    VAR.set("main")
    outcomes = [lab.begin(handler(i))[1] for i in range(10)]
    for i, outcome in enumerate(outcomes):
        assert await outcome == (("unset", i, (i, i)), None)
    await lab.result(leave_one(3))
    assert await lab.result(read()) == "unset"
    assert VAR.get() == "main"


async def test_the_base_context_is_the_one_of_creation(kind):
    async def read():
        return VAR.get()

    VAR.set("at creation")
    lab = Lab(kind).open()
    VAR.set("later")
    assert await lab.result(read()) == "at creation"
    await lab.pool.aclose()


async def test_a_context_of_the_caller(lab):
    async def change():
        before = VAR.get()
        VAR.set("by the handler")
        return before

    context = contextvars.copy_context()
    context.run(VAR.set, "mine")
    for put_off in (False, True):
        outcome = lab.loop.create_future()
        if put_off:
            lab.pool.start(change(), lambda *args, f=outcome: f.set_result(args), context)
        else:
            lab.begin(change(), context)[1].add_done_callback(
                lambda done, f=outcome: f.set_result(done.result())
            )
        assert await outcome == ("mine", None)
    assert context[VAR] == "mine"  # handlers run in copies


async def test_a_context_that_cannot_be_copied_leaves_no_task_current(lab):
    coro = asyncio.sleep(0)
    with pytest.raises(TypeError):
        lab.begin(coro, context="no context")
    assert coro.cr_frame is None  # closed
    assert await lab.result(asyncio.sleep(0, 5)) == 5


async def test_asyncio_tools(lab):
    async def timeout():
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        except TimeoutError:
            assert asyncio.current_task().cancelling() == 0
            return "timed out"

    async def fail():
        raise ValueError("child")

    async def group():
        try:
            async with asyncio.TaskGroup() as tg:
                slow = tg.create_task(asyncio.sleep(10))
                tg.create_task(fail())
        except* ValueError:
            pass
        # Before Python 3.13 a group may leave a cancellation request behind.
        return slow.cancelled(), asyncio.current_task().cancelling()

    async def thread():
        return await asyncio.to_thread(sum, [1, 2])

    async def queue():
        q = asyncio.Queue()
        asyncio.get_running_loop().call_later(0.001, q.put_nowait, 5)
        return await q.get()

    async def late_timeout():
        await asyncio.sleep(0)
        return await timeout()

    plain = await asyncio.create_task(group())
    for _ in range(3):
        coros = timeout(), group(), thread(), queue(), late_timeout(), asyncio.sleep(0, "x")
        outcomes = await asyncio.gather(*(lab.result(coro) for coro in coros))
        assert outcomes == ["timed out", plain, 3, 5, "timed out", "x"]


async def test_anyio_tools(lab):
    async def deadline():
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep(10)
        return scope.cancelled_caught, asyncio.current_task().cancelling()

    async def own_scope():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        return scope.cancelled_caught

    async def group():
        async with anyio.create_task_group() as tg:
            tg.start_soon(anyio.sleep, 10)
            await anyio.sleep(0)
            tg.cancel_scope.cancel()
        return tg.cancel_scope.cancelled_caught

    async def thread():
        return await anyio.to_thread.run_sync(VAR.get)

    async def done_waiter():
        # anyio does not cancel a task whose waiter is done: the item must not be lost.
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            item = loop.create_future()
            loop.call_soon(item.set_result, "item")
            loop.call_soon(scope.cancel)
            return await item

    async def failing():
        async with anyio.create_task_group() as tg:
            tg.start_soon(anyio.sleep, 10)
            raise LookupError

    assert await lab.result(done_waiter()) == "item"
    coros = deadline(), own_scope(), group(), thread()
    results = await asyncio.gather(*(lab.result(coro) for coro in coros))
    assert results == [(True, 0), True, True, "unset"]
    _, exc = await lab.outcome(failing())
    assert isinstance(exc, ExceptionGroup) and exc.subgroup(LookupError)


async def test_one_future_awaited_by_many(lab):
    async def handler(future):
        return await future

    future = lab.loop.create_future()
    outcomes = [lab.begin(handler(future))[1] for _ in range(3)]
    plain = asyncio.create_task(handler(future))
    outcomes += [lab.begin(handler(future))[1] for _ in range(3)]
    await turns()
    future.set_result(4)
    assert [await outcome for outcome in outcomes] == [(4, None)] * 6
    assert await plain == 4


async def test_bad_yields_are_rejected_as_by_a_task(lab):
    @types.coroutine
    def give(value):
        return (yield value)

    class Broken:
        """A future that cannot be waited for."""

        _asyncio_future_blocking = True

        def get_loop(self):
            raise ZeroDivisionError("broken")

    async def handler(value, steps):
        for _ in range(steps):
            await asyncio.sleep(0)
        await give(value() if callable(value) else value)

    foreign_loop = asyncio.new_event_loop()
    foreign = foreign_loop.create_future()
    foreign._asyncio_future_blocking = True
    unflagged = lab.loop.create_future()
    for value in (5, foreign, unflagged, (x for x in ()), asyncio.current_task):
        for steps in (0, 1):
            (_, exc), (_, plain) = (
                await lab.outcome(handler(value, steps)),
                await plain_outcome(handler(value, steps)),
            )
            assert type(exc) is type(plain) is RuntimeError
            # The words before the task's own repr.
            assert str(exc).split("<")[0] == str(plain).split("<")[0]
    if lab.reuses:  # a plain task never ends
        _, exc = await lab.outcome(handler(Broken(), 0))
        assert type(exc) is ZeroDivisionError

    handle, outcome = lab.begin(handler(5, 0))
    assert handle.cancel() and type((await outcome)[1]) is asyncio.CancelledError
    foreign_loop.close()
