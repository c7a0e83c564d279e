"""What every store of tasks does: creating, comparing and setting, pages, limits, expiry."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lab.examples import examples
from lab.store import StoreServer
from lab.task import ANNE, BOB, MakeStore, a_task, bounded, make_store
from lab.wording import raises

from wirespeed.tasks import Task, TaskLimit, TaskStateError, TaskStatus, TaskStore
from wirespeed.tasks.store import SMALL


@contextlib.asynccontextmanager
async def opened(store: TaskStore) -> Any:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_what_was_created_is_there(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        task = a_task(ttl=60_000, poll=500, name="crawl", message="at it")
        assert await store.get(task.id) is None
        await store.create(task)
        assert await store.get(task.id) == task
        with raises(ValueError):
            await store.create(task)
        assert await store.get("\ud800") is None


async def test_only_one_of_two_changes_wins(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        task = a_task()
        assert not await store.replace(task, task.noted("x", 1))  # there is none
        await store.create(task)
        assert await store.replace(task, task.completed(b'{"a":1}', 2000))
        assert not await store.replace(task, task.cancelled("late", 2000))
        found = await store.get(task.id)
        assert found.status is TaskStatus.COMPLETED and found.result == b'{"a":1}'
        with raises(TaskStateError):
            await store.cancel(task.id, "late")


async def test_updates_at_once_all_happen(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        task = a_task()
        await store.create(task)
        keys: list[str] = []

        def ask(old: Task) -> Task:
            new, key = old.asking(b"{}", 2000)
            keys.append(key)
            return new

        await asyncio.gather(*(store.update(task.id, ask) for _ in range(20)))
        found = await store.get(task.id)
        assert found.asked == 20 and len(found.requests) == 20
        assert found.revision == 20
        assert await store.update("nobody", ask) is None


async def test_ends(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        one, two, three = a_task(), a_task(), a_task()
        for task in (one, two, three):
            await store.create(task)
        done = await store.put_result(one.id, b'{"isError":true}', is_error=True)
        assert done.is_error and done == await store.get(one.id)
        failed = await store.put_error(two.id, b'{"code":-1,"message":"m"}', "m")
        assert failed.status is TaskStatus.FAILED and failed.message == "m"
        cancelled = await store.cancel(three.id, "by request")
        assert cancelled.status is TaskStatus.CANCELLED
        for task in (one, two, three):
            with pytest.raises(TaskStateError):
                await store.put_result(task.id, b"{}")
        assert await store.cancel("nobody", "x") is None


async def test_pages_are_of_one_owner_and_survive_deletions(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        tasks = [a_task(owner=(ANNE, BOB)[i % 2]) for i in range(12)]
        for task in tasks:
            await store.create(task)
        annes = [task.id for task in tasks if task.owner == ANNE]
        first = await store.page(ANNE, limit=2)
        assert [task.id for task in first.tasks] == annes[:2]
        # the task that the place came from, and the next, go away
        assert await store.delete(annes[1])
        assert await store.delete(annes[2])
        assert not await store.delete(annes[2])
        second = await store.page(ANNE, first.next, 2)
        assert [task.id for task in second.tasks] == annes[3:5]
        last = await store.page(ANNE, second.next, 2)
        assert [task.id for task in last.tasks] == annes[5:] and last.next is None
        # exactly full is the end
        assert (await store.page(BOB, limit=6)).next is None
        nothing = await store.page(b"nobody")
        assert nothing.tasks == [] and nothing.next is None


async def test_limits(new_store: MakeStore) -> None:
    async with opened(new_store(max_tasks=3, max_tasks_per_owner=2)) as store:
        one = a_task(ttl=10)
        await store.create(one)
        await store.create(a_task())
        with raises(TaskLimit):
            await store.create(a_task())
        await store.create(a_task(owner=BOB))
        with raises(TaskLimit):
            await store.create(a_task(owner=BOB))
        assert await store.expire(1010) == [one.id]
        await store.create(a_task())


async def ended(store: TaskStore, owner: bytes, size: int = 0) -> str:
    """The id of a task that has ended."""
    task = a_task(owner=owner)
    await store.create(task)
    await store.put_result(task.id, b"{%b}" % (b" " * size))
    return task.id


async def there(store: TaskStore, *ids: str) -> list[bool]:
    return [await store.get(task_id) is not None for task_id in ids]


async def test_the_task_that_ended_first_makes_room(new_store: MakeStore) -> None:
    async with opened(new_store(max_tasks=4)) as store:
        late = a_task(owner=BOB)
        await store.create(late)
        working = a_task(owner=BOB)
        await store.create(working)
        first, second = await ended(store, ANNE), await ended(store, BOB)
        await store.update(late.id, lambda task: task.cancelled("by request", 1 << 50))
        await store.create(a_task())
        assert await there(store, first, second, late.id, working.id) == [False, *[True] * 3]
        await store.create(a_task())
        assert await there(store, second, late.id, working.id) == [False, True, True]
        await store.create(a_task())
        assert await there(store, late.id, working.id) == [False, True]
        with raises(TaskLimit):
            await store.create(a_task())


async def test_an_owner_makes_room_among_its_own_tasks(new_store: MakeStore) -> None:
    async with opened(new_store(max_tasks_per_owner=2)) as store:
        other = await ended(store, BOB)
        first, second = await ended(store, ANNE), await ended(store, ANNE)
        await store.create(a_task())
        assert await there(store, other, first, second) == [True, False, True]
        await store.create(a_task())
        with raises(TaskLimit):
            await store.create(a_task())
        assert await there(store, other, second) == [True, False]


async def test_finished_tasks_make_room_for_bytes(new_store: MakeStore) -> None:
    async with opened(new_store(max_bytes=20_000)) as store:
        done = [await ended(store, ANNE, 4_998) for _ in range(3)]
        with raises(TaskLimit):
            await ended(store, BOB, 20_000)
        assert await there(store, *done) == [True] * 3  # none was forgotten in vain
        mine = await ended(store, BOB, 11_998)
        assert await there(store, mine, *done) == [True, False, False, True]


async def test_bytes_are_bounded_but_an_end_always_fits(new_store: MakeStore) -> None:
    async with opened(new_store(max_bytes=10_000)) as store:
        one, two = a_task(), a_task()
        await store.create(one)
        await store.create(two)
        await store.put_result(one.id, b'"%b"' % (b"x" * 9_000))
        with raises(TaskLimit):
            await store.put_result(two.id, b'"%b"' % (b"x" * 10_000))
        assert (await store.get(two.id)).status is TaskStatus.WORKING
        await store.put_error(two.id, b"{%b}" % (b" " * (SMALL - 2)), "too large")
        assert (await store.get(one.id)).result is not None


@pytest.mark.parametrize("limit", ["max_tasks", "max_tasks_per_owner", "max_bytes"])
def test_limits_are_positive(new_store: MakeStore, limit: str) -> None:
    with raises(ValueError):
        new_store(**{limit: 0})


async def test_expiry(new_store: MakeStore) -> None:
    async with opened(new_store()) as store:
        forever, early, late = a_task(), a_task(ttl=100), a_task(ttl=200)
        for task in (late, forever, early):
            await store.create(task)
        assert await store.expire(1099) == []
        assert await store.expire(1100) == [early.id]
        assert await store.get(early.id) is None
        assert await store.expire(1 << 60) == [late.id]
        assert await store.get(forever.id) == forever


class Machine(RuleBasedStateMachine):
    """A store against a dictionary of what must be in it."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.model: dict[str, Task] = {}  # in the order of creation
        self.stale: list[Task] = []
        self.ends: list[str] = []  # ids of finished tasks, in the order of their ends
        self.now = 2

    @initialize()
    def open(self) -> None:
        self.store = self.new_store(max_tasks=6, max_tasks_per_owner=4)
        self.do(self.store.open())

    def new_store(self, **limits: Any) -> TaskStore:
        return make_store(self.kind, self.folder, **limits)

    def do(self, work: Any) -> Any:
        return self.runner.run(bounded(work))

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    some = precondition(lambda self: self.model)

    def pick(self, data: st.DataObject) -> Task:
        return self.model[data.draw(st.sampled_from(list(self.model)))]

    @rule(which=st.integers(0, 2), ttl=st.none() | st.integers(0, 50))
    def create(self, which: int, ttl: int | None) -> None:
        owner = b"%d" % which
        task = a_task(owner=owner, ttl=ttl)
        owned = sum(other.owner == owner for other in self.model.values())
        full = owned >= 4 or len(self.model) >= 6
        spare = [
            other.id
            for other in self.model.values()
            if other.status.terminal and (owned < 4 or other.owner == owner)
        ]
        if full and not spare:
            with pytest.raises(TaskLimit):
                self.do(self.store.create(task))
            return
        self.do(self.store.create(task))
        if full:
            (gone,) = (task_id for task_id in self.model if not self.do(self.store.get(task_id)))
            assert gone in spare and self.ends.index(gone) == min(map(self.ends.index, spare))
            del self.model[gone]
        self.model[task.id] = task

    @some
    @rule(data=st.data(), how=st.integers(0, 3))
    def replace(self, data: st.DataObject, how: int) -> None:
        old = self.pick(data)
        if old.status.terminal:
            return
        new = [
            old.noted("note", self.now),
            old.asking(b"{}", self.now)[0],
            old.completed(b"{}", self.now + 1000),
            old.cancelled("x", self.now + 1000),
        ][how]
        self.now += 1
        if new.status.terminal:
            self.ends.append(old.id)
        assert self.do(self.store.replace(old, new))
        self.stale.append(old)
        self.model[old.id] = new

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def replace_late(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.stale))
        assert not self.do(self.store.replace(old, old.noted("late", 3)))

    @some
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        task = self.pick(data)
        assert self.do(self.store.delete(task.id))
        assert not self.do(self.store.delete(task.id))
        del self.model[task.id]

    @rule(after=st.integers(0, 60))
    def expire(self, after: int) -> None:
        due = {task.id for task in self.model.values() if task.expired(1000 + after)}
        gone = self.do(self.store.expire(1000 + after))
        assert len(gone) == len(due) and set(gone) == due
        for task_id in due:
            del self.model[task_id]

    @rule(which=st.integers(0, 2), size=st.integers(1, 3))
    def pages(self, which: int, size: int) -> None:
        owner = b"%d" % which
        found: list[Task] = []
        after: int | None = 0
        while after is not None:
            page = self.do(self.store.page(owner, after, size))
            assert len(page.tasks) <= size
            found += page.tasks
            after = page.next
        assert found == [task for task in self.model.values() if task.owner == owner]

    @invariant()
    def same(self) -> None:
        for task in self.model.values():
            assert self.do(self.store.get(task.id)) == task


class SQLiteMachine(Machine):
    kind = "sqlite"


TestMemory = Machine.TestCase
TestSQLite = SQLiteMachine.TestCase
TestMemory.settings = examples(30)
TestSQLite.settings = examples(15, stateful_step_count=25)


def test_redis(store_server: StoreServer) -> None:
    class RedisMachine(Machine):
        def new_store(self, **limits: Any) -> TaskStore:
            store_server.ask("FLUSHALL")
            return make_store("redis", self.folder, store_server.url, **limits)

    run_state_machine_as_test(RedisMachine, settings=examples(15, stateful_step_count=25))
