"""Re-use of pooled tasks must not show; shutdown, faults, leaks and stress."""

import asyncio
import gc
import random
import sys
import weakref

import pytest
from lab.taskpool import VAR, Lab, plain_outcome, turns
from lab.wording import raises

from wirespeed.transport.pooled_tasks import PooledTasks

KEPT = []
LEFTOVERS = {
    "reference": KEPT.append,
    "weak reference": lambda task: KEPT.append(weakref.ref(task, print)),
    "plain weak reference": lambda task: KEPT.append(weakref.ref(task)),
    "name": lambda task: task.set_name("mine"),
    "attribute": lambda task: setattr(task, "request_id", 5),
    "callback": lambda task: task.add_done_callback(lambda task: KEPT.append(task.result())),
    "cancel": lambda task: task.cancel(),
    "cancel and uncancel": lambda task: (task.cancel(), task.uncancel()),
}


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    KEPT.clear()


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("leftover", LEFTOVERS)
async def test_a_task_with_leftovers_is_not_used_again(leftover, steps, lab):
    async def handler():
        for _ in range(steps):
            await asyncio.sleep(0)
        LEFTOVERS[leftover](asyncio.current_task())
        return "result"

    async def look():
        task = asyncio.current_task()
        return (
            task.cancelling(),
            task.get_name() == "mine",
            hasattr(task, "request_id"),
            any(kept is task for kept in KEPT),
            any(isinstance(kept, weakref.ref) and kept() is task for kept in KEPT),
        )

    for _ in range(3):
        _, exc = await lab.outcome(handler())
        kinds = {"cancel": (asyncio.CancelledError,)}
        if leftover == "cancel and uncancel":  # as a task of this version of Python
            kinds[leftover] = (type((await plain_outcome(handler()))[1]),)
        assert isinstance(exc, kinds.get(leftover, type(None)))
        assert await lab.result(look()) == (0, False, False, False, False)
        await turns()
        assert lab.pool.tasks == lab.pool.idle
    if leftover == "callback":
        assert KEPT == ["result"] * 3


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_kept_task_gets_the_outcome(steps, lab):
    async def handler(exc):
        for _ in range(steps):
            await asyncio.sleep(0)
        KEPT.append(asyncio.current_task())
        if exc is not None:
            raise exc
        return "result"

    assert await lab.result(handler(None)) == "result"
    task = KEPT[-1]
    await turns(1)
    assert task.done() and task.result() == "result"

    error = ValueError("no")
    assert await lab.outcome(handler(error)) == (None, error)
    task = KEPT[-1]
    await turns(1)
    assert task.exception() is error

    _, exc = await lab.outcome(handler(asyncio.CancelledError()))
    assert type(exc) is asyncio.CancelledError
    task = KEPT[-1]
    await turns(1)
    assert task.cancelled()

    # Never retrieved by anyone but the hook: not logged (run() looks at the faults).
    await lab.outcome(handler(ValueError("seen by the hook")))
    await turns()
    KEPT.clear()
    del task


async def test_cancel_after_the_end_changes_nothing(lab):
    async def handler():
        KEPT.append(asyncio.current_task())
        return "result"

    await lab.started(handler())
    KEPT[-1].cancel()
    await turns(1)
    assert KEPT[-1].result() == "result"


async def test_all_tasks_held_by_a_monitor(lab):
    async def handler():
        return asyncio.current_task()

    await turns()
    held = asyncio.all_tasks()
    parked = [task for task in held if task.get_name().startswith("wirespeed-")]
    assert bool(parked) is lab.reuses
    assert await lab.result(handler()) not in held
    await turns()
    assert all(task.done() for task in held - {asyncio.current_task()})


async def test_someone_cancels_every_task(lab):
    """As asyncio.run() does at its end, and yet the pool goes on."""

    async def forever():
        await asyncio.sleep(100)

    _, outcome = lab.begin(forever())
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert others
    for task in others:
        task.cancel()
        assert "wirespeed" in repr(task)
    await asyncio.wait(others)
    assert type((await outcome)[1]) is asyncio.CancelledError
    assert lab.pool.tasks == 0
    assert await lab.result(asyncio.sleep(0, 5)) == 5


@pytest.mark.parametrize("max_idle", [0, 2])
async def test_no_more_than_max_idle_are_kept(max_idle, lab):
    outcomes = [lab.begin(asyncio.sleep(0))[1] for _ in range(8)]
    await asyncio.gather(*outcomes)
    assert await lab.result(asyncio.sleep(0, 1)) == 1
    await turns()
    assert lab.pool.idle == lab.pool.tasks <= max_idle


async def test_a_hook_that_fails_is_reported(kind):
    async def handler(steps):
        for _ in range(steps):
            await asyncio.sleep(0)

    def hook(result, exc):
        raise ZeroDivisionError("hook")

    lab = Lab(kind).open()
    for steps in (0, 2):
        lab.loop.call_soon(lab.pool.start, handler(steps), hook)
        await turns(5)
    assert [str(fault["exception"]) for fault in lab.faults] == ["hook", "hook"]
    assert lab.pool.idle == lab.pool.tasks and bool(lab.pool.idle) is lab.reuses
    await lab.pool.aclose()


async def test_a_handler_that_tampers_with_the_current_task():
    async def handler(steps):
        for _ in range(steps):
            await asyncio.sleep(0)
        asyncio.tasks._leave_task(asyncio.get_running_loop(), asyncio.current_task())
        return 1

    lab = Lab().open()
    for steps in (0, 1):
        outcome = lab.loop.create_future()
        lab.loop.call_soon(lab.pool.start, handler(steps), lambda *a, f=outcome: f.set_result(a))
        assert await outcome == (1, None)
    await turns()
    assert len(lab.faults) == 2
    assert await lab.result(asyncio.sleep(0, 2)) == 2


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("by_hook", [False, True])
def test_keyboard_interrupt_leaves_the_loop(loop_factory, exception, steps, by_hook, kind):
    async def handler():
        for _ in range(steps):
            await asyncio.sleep(0)
        if not by_hook:
            raise exception("now")

    def hook(result, exc):
        seen.append((result, exc))
        if by_hook:
            raise exception("now")

    loop = loop_factory()
    seen = []
    pool = kind(loop)
    loop.run_until_complete(turns())
    loop.call_soon(pool.start, handler(), hook)
    with pytest.raises(exception, match="now") as caught:
        loop.run_forever()
    if kind is PooledTasks:
        assert seen  # a plain task tells its hook one turn later
    loop.run_until_complete(turns())
    assert seen == [(None, None if by_hook else caught.value)]
    loop.run_until_complete(pool.aclose())
    assert pool.tasks == 0
    loop.close()


def test_the_loop_run_inside_a_first_step():
    """What a nested loop does, as debuggers and notebooks bring it about (plain asyncio only)."""

    async def handler(cancel, loop):
        task = asyncio.current_task()
        asyncio.tasks._leave_task(loop, task)
        if cancel:
            task.cancel()
        for _ in range(3):
            loop.call_soon(int)  # else it would wait
            loop._run_once()
        asyncio.tasks._enter_task(loop, task)
        await asyncio.sleep(0)
        return "end"

    async def main(fresh, cancel):
        lab = Lab().open()
        if not fresh:
            await asyncio.sleep(0)
        outcome = await lab.outcome(handler(cancel, lab.loop))
        await lab.pool.aclose()
        assert lab.faults == []
        return outcome

    for fresh in (False, True):
        assert asyncio.run(main(fresh, False)) == ("end", None)
        assert type(asyncio.run(main(fresh, True))[1]) is asyncio.CancelledError


# --- closing ---


async def test_aclose(lab):
    log = []

    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            log.append("cancelled")
            await asyncio.sleep(0.001)
        return "late"

    async def closes(pool):
        await pool.aclose()

    log.clear()
    assert str((await lab.outcome(closes(lab.pool)))[1]) == (
        "a handler cannot close the pool that runs it"
    )
    running = [(await lab.started(stubborn()))[1] for _ in range(3)]
    deferred = []
    lab.pool.start(stubborn(), lambda *args: deferred.append(args))
    second = asyncio.create_task(lab.pool.aclose())
    await lab.pool.aclose()
    await second
    assert [outcome.result() for outcome in running] == [("late", None)] * 3
    assert type(deferred[0][1]) is asyncio.CancelledError
    assert log == ["cancelled"] * 3 and lab.pool.closed
    coro = stubborn()
    with raises(RuntimeError):
        lab.pool.start(coro, print)
    assert coro.cr_frame is None  # closed


async def test_abandon_leaves_those_that_ignore_it(kind):
    lab = Lab(kind).open()
    release = asyncio.Event()

    async def ignores():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    await turns()
    outcomes = [(await lab.started(ignores()))[1] for _ in range(2)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await lab.pool.aclose()
    assert (lab.pool.abandon(), lab.pool.abandon()) == (2, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()} and lab.pool.tasks == 0
    await lab.pool.aclose()
    release.set()
    assert [await outcome for outcome in outcomes] == [("at last", None)] * 2
    assert lab.faults == []


@pytest.mark.parametrize("state", ["new", "idle", "running", "ending", "deferred"])
def test_a_loop_that_closes_without_aclose(loop_factory, state, caplog, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    loop = loop_factory()
    pool = PooledTasks(loop)
    ended = []

    async def wait():
        KEPT.append(asyncio.current_task())
        if state == "running":
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

    if state != "new":
        loop.run_until_complete(turns())
    if state in ("running", "ending"):
        loop.call_soon(pool.start, wait(), print)
        loop.call_soon(loop.stop)
        loop.run_forever()
    elif state == "deferred":
        pool.start(asyncio.sleep(0), print)
    loop.close()
    if state == "deferred":
        # It never began; the coroutine of a plain task would warn as well.
        with pytest.warns(RuntimeWarning, match="never awaited"):
            del pool
            gc.collect()
    KEPT.clear()
    pool = None
    gc.collect()
    assert caplog.records == [] and unraisable == []
    assert ended == ([True] if state == "running" else [])


def test_asyncio_run_without_aclose(loop_factory, caplog, kind):
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        lab = Lab(kind).open()
        loop.call_soon(lab.pool.start, asyncio.sleep(100), lambda *args: seen.append(args))
        await asyncio.gather(*(lab.result(asyncio.sleep(0)) for _ in range(3)))
        return lab

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        lab = runner.run(main())
    assert type(seen[0][1]) is asyncio.CancelledError
    assert lab.faults == [] and lab.pool.tasks == 0
    gc.collect()
    assert caplog.records == []


# --- kinds of loops ---


def test_debug_mode(loop_factory, caplog, kind):
    async def handler(x):
        await asyncio.sleep(0)
        async with asyncio.timeout(1):
            await asyncio.sleep(0.001)
        return x

    async def main():
        lab = Lab(kind).open()
        for _ in range(2):
            assert await lab.result(asyncio.sleep(0, 1)) == 1
            assert await asyncio.gather(*map(lab.result, map(handler, range(5)))) == [*range(5)]
        await lab.pool.aclose()
        assert lab.faults == []

    with asyncio.Runner(loop_factory=loop_factory, debug=True) as runner:
        runner.run(main())
    assert not [r for r in caplog.records if r.levelname != "WARNING"]


def wrapping_factory(loop, coro, **options):
    class Mine(asyncio.Task):
        pass

    return Mine(coro, loop=loop, **options)


def eager_factory(loop, coro, *, eager_start=None, **options):
    """asyncio.eager_task_factory, with the argument that loops pass since Python 3.13.3."""
    return asyncio.Task(coro, loop=loop, eager_start=True, **options)


FACTORIES = {"wrapping": wrapping_factory}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = eager_factory


@pytest.mark.parametrize("factory", FACTORIES)
async def test_task_factories(factory, lab):
    async def child(x):
        await asyncio.sleep(0)
        return x

    async def handler():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(i)) for i in range(3)]
        assert type(asyncio.current_task()) is asyncio.Task
        return [task.result() for task in tasks]

    async def spawn(lab):
        outcome = lab.loop.create_future()
        lab.pool.start(handler(), lambda *args: outcome.set_result(args))
        return await outcome

    lab.loop.set_task_factory(FACTORIES[factory])
    late = Lab().open()
    for each in (lab, late):
        assert await each.result(handler()) == [0, 1, 2]
        assert await asyncio.create_task(spawn(each)) == ([0, 1, 2], None)
    await late.pool.aclose()


def test_pure_python_tasks(monkeypatch, loop_factory, kind):
    """Some programs (nested event loops) put these in the place of the C ones."""
    tasks = asyncio.tasks
    for name in ("_enter_task", "_leave_task", "_register_task", "_unregister_task"):
        monkeypatch.setattr(tasks, name, getattr(tasks, f"_py{name}"))
    monkeypatch.setattr(tasks, "Task", tasks._PyTask)
    monkeypatch.setattr(asyncio, "Task", tasks._PyTask)
    pure_current = getattr(tasks, "_py_current_task", tasks.current_task)
    for module in (tasks, asyncio):
        monkeypatch.setattr(module, "current_task", pure_current)

    async def handler(steps, cancel):
        me = asyncio.current_task()
        for _ in range(steps):
            await asyncio.sleep(0)
        assert me is asyncio.current_task() and type(me) is tasks._PyTask
        if cancel:
            me.cancel()
            await asyncio.sleep(0)
        return steps

    loop = loop_factory()
    pool = kind(loop)
    seen = []
    for _ in range(2):
        for steps in (0, 1, 3):
            for cancel in (False, True):
                loop.call_soon(pool.start, handler(steps, cancel), lambda *args: seen.append(args))
    while len(seen) < 12:
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        loop.run_until_complete(turn)
    assert sorted(result for result, exc in seen if exc is None) == [0, 0, 1, 1, 3, 3]
    assert [type(exc) for _, exc in seen if exc is not None] == [asyncio.CancelledError] * 6
    stop = loop.create_future()
    closing = tasks._PyTask(pool.aclose(), loop=loop)
    closing.add_done_callback(stop.set_result)
    loop.run_until_complete(stop)
    assert closing.exception() is None and pool.tasks == 0
    loop.close()


# --- leaks and stress ---


async def test_nothing_of_a_request_stays(lab):
    class Thing:
        pass

    async def handler(thing, kind):
        VAR.set(thing)
        if kind > 1:
            await asyncio.sleep(0)
        if kind % 2:
            raise ValueError(thing)
        return thing

    gone = []
    for kind in range(4):
        thing = Thing()
        gone.append(weakref.ref(thing))
        await lab.outcome(handler(thing, kind))
        del thing
    await turns()
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


async def test_reference_counts_do_not_grow(lab):
    shared = object()

    async def handler(x, kind):
        VAR.set(x)
        if kind == 1:
            await asyncio.sleep(0)
        elif kind == 2:
            await asyncio.sleep(10)
        elif kind == 3:
            raise LookupError(x)
        return x

    async def round_of(lab):
        outcomes = []
        for i in range(40):
            handle, outcome = lab.begin(handler(shared, i % 4))
            outcomes.append(outcome)
            if i % 4 == 2:
                handle.cancel()
        await asyncio.gather(*outcomes)

    await round_of(lab)
    await turns()
    gc.collect()
    before = sys.getrefcount(shared), sys.getrefcount(None), lab.pool.tasks
    for _ in range(10):
        await round_of(lab)
    await turns()
    gc.collect()
    after = sys.getrefcount(shared), sys.getrefcount(None), lab.pool.tasks
    assert after[0] == before[0] and after[2] <= before[2]
    assert abs(after[1] - before[1]) < 200  # 400 requests; None is immortal from 3.12 on


@pytest.mark.parametrize("max_idle", [64])
@pytest.mark.parametrize("seed", [1, 2])
async def test_stress(seed, lab, max_idle):
    rng = random.Random(seed)

    async def handler(x, plan):
        me = asyncio.current_task()
        VAR.set(x)
        for step in plan:
            if step == "future":
                event = asyncio.Event()
                asyncio.get_running_loop().call_soon(event.set)
                await event.wait()
            elif step == "timeout":
                try:
                    async with asyncio.timeout(0.0005):
                        await asyncio.sleep(10)
                except TimeoutError:
                    pass
            elif step == "child":
                assert await asyncio.create_task(asyncio.sleep(0.0005, x)) == x
            elif step == "keep":
                KEPT.append(me)
            elif step == "raise":
                raise LookupError(x)
            else:
                await asyncio.sleep(step)
            assert asyncio.current_task() is me and VAR.get() == x
        return x

    steps = [0, 0, 0.0005, 0.001, "future", "timeout", "child", "keep"]
    started = []
    for i in range(1000):
        plan = rng.choices(steps, k=rng.randrange(4))
        if rng.random() < 0.1:
            plan.append("raise")
        handle, outcome = lab.begin(handler(i, plan))
        cancelled = handle is not None and rng.random() < 0.2
        if cancelled:
            lab.loop.call_later(rng.random() * 0.003, handle.cancel)
        started.append((i, plan, cancelled, outcome))
        if rng.random() < 0.05:
            await asyncio.sleep(0.001)
    for i, plan, cancelled, outcome in started:
        result, exc = await outcome
        if exc is None:
            assert result == i and "raise" not in plan
        elif isinstance(exc, LookupError):
            assert exc.args == (i,) and "raise" in plan
        else:
            assert cancelled and type(exc) is asyncio.CancelledError
    await turns()
    assert lab.pool.tasks == lab.pool.idle <= max_idle
    assert all(task.done() for task in KEPT)
    KEPT.clear()


async def test_two_pools_and_two_loops(lab):
    async def who():
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    other = Lab().open()
    assert await asyncio.gather(lab.result(who()), other.result(who())) == [lab.loop] * 2
    await other.pool.aclose()

    def elsewhere():
        async def inner():
            far = Lab().open()
            assert await far.result(who()) is far.loop is not lab.loop
            await far.pool.aclose()

        asyncio.run(inner())

    await asyncio.to_thread(elsewhere)
