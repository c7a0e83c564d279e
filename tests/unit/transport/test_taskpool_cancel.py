"""Cancellation of handlers in the task pool, compared with plain tasks."""

import asyncio
import contextlib
import types

import pytest
from lab.taskpool import plain_outcome, same, turns


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_cancel_while_suspended(steps, lab):
    async def handler(log):
        try:
            for i in range(3):
                log.append(i)
                await asyncio.sleep(0)
            await asyncio.sleep(10)
        except asyncio.CancelledError as exc:
            log.append(exc.args)
            assert asyncio.current_task().cancelling() == 1
            raise

    log = []
    handle, outcome = await lab.started(handler(log))
    await turns(steps)
    assert handle.cancel("stop") is True
    _, exc = await outcome
    assert type(exc) is asyncio.CancelledError and exc.args == ("stop",)
    assert log == [*range(len(log) - 1), ("stop",)] and handle.done()
    # A new task is one turn behind at its first bare yield.
    assert min(steps, 2) <= len(log) - 1 <= min(steps, 2) + 1


async def test_cancel_reaches_the_awaited_task(lab):
    async def child(log):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            log.append("child")
            raise

    async def handler(log):
        inner = asyncio.create_task(child(log))
        try:
            await inner
        finally:
            log.append(inner.cancelled())

    for wait in (0, 1, 3):
        log = []
        handle, outcome = await lab.started(handler(log))
        await turns(wait)
        handle.task.cancel()
        assert type((await outcome)[1]) is asyncio.CancelledError
        # A child that has not begun is cancelled before its first line.
        assert log in (["child", True], [True]) and (wait < 2 or len(log) == 2)


async def test_cancel_of_what_is_done_or_does_not_obey(lab):
    class Stubborn(asyncio.Future):
        def cancel(self, msg=None):
            return False

    async def handler(future):
        try:
            return await future
        except asyncio.CancelledError:
            return "cancelled", future.done()

    async def swallow(future):
        try:
            await future
        except asyncio.CancelledError:
            return "swallowed"

    for waits in (0, 2):
        done = lab.loop.create_future()
        handle, outcome = await lab.started(handler(done))
        await turns(waits)
        done.set_result(1)
        handle.cancel()
        assert await outcome == (("cancelled", True), None)

        stubborn = Stubborn()
        handle, outcome = await lab.started(handler(stubborn))
        await turns(waits)
        handle.cancel()
        await turns(4)
        assert not outcome.done()
        stubborn.set_result(None)
        assert await outcome == (("cancelled", True), None)

        inner = asyncio.create_task(swallow(lab.loop.create_future()))
        await turns()
        handle, outcome = await lab.started(handler(inner))
        await turns(waits)
        handle.cancel()
        assert await outcome == ("swallowed", None)


SELF_CANCEL = {}


def self_cancel(func):
    SELF_CANCEL[func.__name__] = func
    return func


@self_cancel
async def and_return():
    asyncio.current_task().cancel("mine")
    return 1


@self_cancel
async def and_raise():
    asyncio.current_task().cancel("mine")
    raise ValueError("other")


@self_cancel
async def and_yield():
    asyncio.current_task().cancel("mine")
    await asyncio.sleep(0)
    return 1


@self_cancel
async def and_wait():
    asyncio.current_task().cancel("mine")
    await asyncio.sleep(10)


@self_cancel
async def and_swallow():
    asyncio.current_task().cancel("mine")
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10)
    await asyncio.sleep(0)
    return asyncio.current_task().cancelling()


@self_cancel
async def and_uncancel():
    task = asyncio.current_task()
    task.cancel("mine")
    count = task.uncancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return "cancelled", count
    return "spared", count


@self_cancel
async def and_uncancel_and_return():
    task = asyncio.current_task()
    task.cancel("mine")
    return task.uncancel()


@self_cancel
async def and_yield_what_is_no_future():
    @types.coroutine
    def bad():
        yield 5

    asyncio.current_task().cancel("mine")
    await bad()


async def _hard_to_cancel():
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        return "child's"


@self_cancel
async def and_wait_for_a_child_that_swallows_it():
    inner = asyncio.create_task(_hard_to_cancel())
    # Let it begin without a step of this task.
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future
    asyncio.current_task().cancel("mine")
    return await inner


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", SELF_CANCEL)
async def test_a_handler_that_cancels_itself(name, late, lab):
    async def handler():
        if late:
            await asyncio.sleep(0)
        return await SELF_CANCEL[name]()

    same(await lab.outcome(handler()), await plain_outcome(handler()))


async def _fail_at_cancel():
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        raise LookupError("at cancel") from None


@pytest.mark.parametrize("child", [_hard_to_cancel, _fail_at_cancel])
async def test_a_cancel_in_the_first_step_that_the_awaited_task_swallows(child, lab):
    async def handler(inner):
        asyncio.current_task().cancel()
        return await inner

    inner, plain_inner = asyncio.create_task(child()), asyncio.create_task(child())
    await turns()
    same(await lab.outcome(handler(inner)), await plain_outcome(handler(plain_inner)))


async def test_a_second_cancel_is_not_swallowed(lab):
    async def handler(inner):
        asyncio.current_task().cancel()
        return await inner

    inner = asyncio.create_task(_hard_to_cancel())
    await turns()
    handle, outcome = await lab.started(handler(inner))
    while not inner.done():
        await asyncio.sleep(0)
    # The child has swallowed the first one; its result is on the way.
    assert handle.task.cancel() is True
    assert type((await outcome)[1]) is asyncio.CancelledError


async def test_cancel_a_handler_that_swallows_it(lab):
    async def handler():
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
        return asyncio.current_task().cancelling()

    handle, outcome = await lab.started(handler())
    for _ in range(2):
        assert handle.cancel()
        await turns()
    assert await outcome == (2, None)
