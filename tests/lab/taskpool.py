"""What the tests of the task pool share: pools, and the same coroutine in a plain task."""

import asyncio
import contextvars
import gc
import sys

from wirespeed.transport.pooled_tasks import PooledTasks

VAR = contextvars.ContextVar("VAR", default="unset")
EAGER = sys.version_info >= (3, 12)  # plain tasks start at once


class Lab:
    """A pool, and requests started the way a transport does: from a callback of the loop."""

    def __init__(self, kind=PooledTasks, parked=False):
        self.kind = kind
        self.parked = parked
        self.reuses = kind is PooledTasks
        self.starts_at_once = self.reuses or EAGER
        self.faults = []

    def open(self, **options):
        """Make the pool, for the loop that runs."""
        self.loop = asyncio.get_running_loop()
        self.pool = self.kind(self.loop, **options)
        self.loop.set_exception_handler(lambda loop, context: self.faults.append(context))
        return self

    def begin(self, coro, context=None):
        """Start at once, outside the current task: (Running or None, future of (result, exc))."""
        outcome = self.loop.create_future()
        task = asyncio.current_task()
        asyncio.tasks._leave_task(self.loop, task)
        try:
            handle = self.pool.start(coro, lambda *args: outcome.set_result(args), context)
        finally:
            asyncio.tasks._enter_task(self.loop, task)
        return handle, outcome

    async def scene(self, test, max_idle):
        """Run a test; no fault may reach the loop's exception handler, no task be left."""
        self.open(max_idle=max_idle)
        if self.parked:
            await turns()
            await asyncio.gather(*(self.begin(asyncio.sleep(0))[1] for _ in range(3)))
            assert self.pool.idle == min(3, self.pool.max_idle)
        await test
        await self.pool.aclose()
        assert (self.pool.tasks, self.pool.idle) == (0, 0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()
        await turns()
        assert self.faults == [], [str(fault) for fault in self.faults]

    async def started(self, coro):
        """As `begin`; the first step has run."""
        begun = self.begin(coro)
        if not self.starts_at_once:
            await asyncio.sleep(0)
        return begun

    async def outcome(self, coro):
        return await self.begin(coro)[1]

    async def result(self, coro):
        result, exc = await self.outcome(coro)
        if exc is not None:
            raise exc
        return result


async def turns(n=3):
    for _ in range(n):
        await asyncio.sleep(0)


async def plain_outcome(coro, meddle=lambda task: None):
    """(result, exc) of the coroutine in a task of its own."""
    task = asyncio.create_task(coro)
    await asyncio.sleep(0)
    meddle(task)
    try:
        return await task, None
    except BaseException as exc:
        return None, exc


def same(ours, plain):
    assert ours[0] == plain[0]
    assert type(ours[1]) is type(plain[1])
    assert str(ours[1]) == str(plain[1])
