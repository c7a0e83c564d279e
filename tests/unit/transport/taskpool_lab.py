"""What the tests of the task pool share: its fixtures, and the same coroutine in a plain task."""

import asyncio
import contextvars
import gc
import sys

import pytest
import uvloop

from wirespeed.transport.pooled_tasks import PooledTasks
from wirespeed.transport.taskpool import TaskPool

VAR = contextvars.ContextVar("VAR", default="unset")
EAGER = sys.version_info >= (3, 12)  # plain tasks start at once
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Lab:
    """A pool, and requests started the way a transport does: from a callback of the loop."""

    def __init__(self, loop, kind=PooledTasks, **options):
        self.loop = loop
        self.pool = kind(loop, **options)
        self.reuses = kind is PooledTasks
        self.starts_at_once = self.reuses or EAGER
        self.faults = []
        loop.set_exception_handler(lambda loop, context: self.faults.append(context))

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


@pytest.fixture(params=LOOPS, name="new_loop")
def new_loop_fixture(request):
    return LOOPS[request.param]


@pytest.fixture(params=[PooledTasks, TaskPool], name="kind")
def kind_fixture(request):
    return request.param


@pytest.fixture(params=["fresh", "parked", "plain"], name="run")
def run_fixture(request, new_loop):
    """Run `main(lab)`; no fault may have reached the loop's exception handler, no task be left.

    "fresh" requests meet a pool whose tasks have not had their first step, "parked" ones a pool
    with tasks that are waiting, "plain" ones a pool that makes a task for each.
    """

    def run(main, **options):
        async def scene():
            loop = asyncio.get_running_loop()
            lab = Lab(loop, TaskPool if request.param == "plain" else PooledTasks, **options)
            if request.param == "parked":
                await turns()
                done = [lab.begin(asyncio.sleep(0))[1] for _ in range(3)]
                await asyncio.gather(*done)
                assert lab.pool.idle == min(3, lab.pool.max_idle)
            result = await main(lab)
            await lab.pool.aclose()
            assert (lab.pool.tasks, lab.pool.idle) == (0, 0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            gc.collect()
            await turns()
            assert lab.faults == [], [str(fault) for fault in lab.faults]
            return result

        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(scene())

    return run


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
