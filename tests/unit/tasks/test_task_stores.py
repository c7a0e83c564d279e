"""What every store of tasks does: creating, comparing and setting, pages, limits, expiry."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from task_lab import ANNE, BOB, MakeStore, Run, a_task, bounded, make_store

from wirespeed.tasks import OwnerTaskLimit, Task, TaskLimit, TaskStateError, TaskStatus, TaskStore
from wirespeed.tasks.store import SMALL


@contextlib.asynccontextmanager
async def opened(store: TaskStore) -> Any:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def test_what_was_created_is_there(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store()) as store:
            task = a_task(ttl=60_000, poll=500, name="crawl", message="at it")
            assert await store.get(task.id) is None
            await store.create(task)
            assert await store.get(task.id) == task
            with pytest.raises(ValueError, match="already"):
                await store.create(task)
            assert await store.get("\ud800") is None

    run(main())


def test_only_one_of_two_changes_wins(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store()) as store:
            task = a_task()
            assert not await store.replace(task, task.noted("x", 1))  # there is none
            await store.create(task)
            assert await store.replace(task, task.completed(b'{"a":1}', 2000))
            assert not await store.replace(task, task.cancelled("late", 2000))
            found = await store.get(task.id)
            assert found.status is TaskStatus.COMPLETED and found.result == b'{"a":1}'
            with pytest.raises(TaskStateError, match="completed already"):
                await store.cancel(task.id, "late")

    run(main())


def test_updates_at_once_all_happen(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
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

    run(main())


def test_ends(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
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

    run(main())


def test_pages_are_of_one_owner_and_survive_deletions(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
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

    run(main())


def test_limits(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store(max_tasks=3, max_tasks_per_owner=2)) as store:
            one = a_task(ttl=10)
            await store.create(one)
            await store.create(a_task())
            with pytest.raises(TaskLimit, match="this requestor has 2 tasks"):
                await store.create(a_task())
            await store.create(a_task(owner=BOB))
            with pytest.raises(TaskLimit, match="there are 3 tasks"):
                await store.create(a_task(owner=BOB))
            # one that is over still counts, one whose time is over does not
            await store.put_result(one.id, b"{}")
            with pytest.raises(TaskLimit):
                await store.create(a_task())
            assert await store.expire(1010) == [one.id]
            await store.create(a_task())

    run(main())


def test_bytes_are_bounded_but_an_end_always_fits(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store(max_bytes=10_000)) as store:
            one, two = a_task(), a_task()
            await store.create(one)
            await store.create(two)
            await store.put_result(one.id, b'"%b"' % (b"x" * 9_000))
            with pytest.raises(TaskLimit, match="10000 bytes, and hold 9002"):
                await store.put_result(two.id, b'"%b"' % (b"x" * 9_000))
            assert (await store.get(two.id)).status is TaskStatus.WORKING
            await store.put_error(two.id, b"{%b}" % (b" " * (SMALL - 2)), "too large")
            await store.delete(one.id)
            three = a_task()
            await store.create(three)
            await store.put_result(three.id, b'"%b"' % (b"x" * 5_500))

    run(main())


CAROL, DAVE = b"carol's connection", b"dave's connection"


async def over(store: TaskStore, owner: bytes, size: int = 0, **fields: Any) -> str:
    """A task that is over; its id."""
    task = a_task(owner=owner, **fields)
    await store.create(task)
    await store.put_result(task.id, b"{%b}" % (b" " * size))
    return task.id


async def there(store: TaskStore, *ids: str) -> list[bool]:
    return [await store.get(task_id) is not None for task_id in ids]


def test_what_others_left_makes_room(run: Run, new_store: MakeStore) -> None:
    """Of who left most, the oldest that is over; never what an owner that is there has."""

    async def main() -> None:
        async with opened(new_store(max_tasks=6)) as store:
            kept = [await over(store, ANNE, principal=True), await over(store, BOB)]
            one = await over(store, CAROL)
            working = a_task(owner=DAVE)
            await store.create(working)
            many = [await over(store, DAVE) for _ in range(2)]
            with pytest.raises(TaskLimit, match="there are 6 tasks"):
                await store.create(a_task(owner=BOB))
            await store.leave(CAROL)
            await store.leave(DAVE)
            await store.leave(b"nobody")
            await store.create(a_task(owner=BOB))
            assert await there(store, one, *many) == [True, False, True]
            # one each is left; what works stays until it is over
            await store.create(a_task(owner=BOB))
            await store.create(a_task(owner=BOB))
            assert await there(store, one, *many, *kept) == [False] * 3 + [True] * 2
            with pytest.raises(TaskLimit, match="there are 6 tasks"):
                await store.create(a_task(owner=BOB))
            await store.cancel(working.id, "by request")
            await store.create(a_task(owner=BOB))
            assert await there(store, working.id, *kept) == [False, True, True]

    run(main())


def test_who_has_too_many_gets_no_room_of_others(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store(max_tasks=3, max_tasks_per_owner=2)) as store:
            left = await over(store, CAROL)
            await store.leave(CAROL)
            for _ in range(2):
                await store.create(a_task())
            with pytest.raises(OwnerTaskLimit, match="this requestor has 2 tasks"):
                await store.create(a_task())
            assert await there(store, left) == [True]

    run(main())


def test_what_others_left_makes_room_for_bytes(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store(max_bytes=20_000)) as store:
            left = [await over(store, CAROL, 4_998) for _ in range(3)]
            await store.leave(CAROL)
            # in vain nothing is forgotten
            with pytest.raises(TaskLimit):
                await over(store, BOB, 20_000)
            assert await there(store, *left) == [True] * 3
            mine = await over(store, BOB, 11_998)
            assert await there(store, mine, *left) == [True, False, False, True]
            with pytest.raises(TaskLimit):
                await over(store, BOB, 8_000)
            assert await there(store, mine, left[2]) == [True, True]

    run(main())


def test_owners_are_gone_with_the_store(run: Run, new_store: MakeStore) -> None:
    """Connections do not outlive it; principals do."""

    async def main() -> None:
        store = new_store(max_tasks=2)
        async with opened(store):
            kept = await over(store, ANNE, principal=True)
            left = await over(store, CAROL)
        async with opened(store):
            await store.create(a_task(owner=BOB))
            assert await there(store, kept, left) == [True, False]

    run(main())


@pytest.mark.parametrize("limit", ["max_tasks", "max_tasks_per_owner", "max_bytes"])
def test_limits_are_positive(new_store: MakeStore, limit: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        new_store(**{limit: 0})


def test_expiry(run: Run, new_store: MakeStore) -> None:
    async def main() -> None:
        async with opened(new_store()) as store:
            forever, early, late = a_task(), a_task(ttl=100), a_task(ttl=200)
            for task in (late, forever, early):
                await store.create(task)
            assert await store.expire(1099) == []
            assert await store.expire(1100) == [early.id]
            assert await store.get(early.id) is None
            assert await store.expire(1 << 60) == [late.id]
            assert await store.get(forever.id) == forever

    run(main())


class Machine(RuleBasedStateMachine):
    """A store against a dictionary of what must be in it."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.model: dict[str, Task] = {}  # in the order of creation
        self.stale: list[Task] = []
        self.owners = [b"0", b"1", b"2"]
        self.n_owners = 3

    @initialize()
    def open(self) -> None:
        self.store = make_store(self.kind, self.folder, max_tasks=6, max_tasks_per_owner=4)
        self.do(self.store.open())

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
        owner = self.owners[which]
        task = a_task(owner=owner, ttl=ttl)
        owned = sum(other.owner == owner for other in self.model.values())
        spare = self.spare()
        if (len(self.model) >= 6 and not spare) or owned >= 4:
            with pytest.raises(TaskLimit):
                self.do(self.store.create(task))
            return
        self.do(self.store.create(task))
        if len(self.model) >= 6:
            (gone,) = (task_id for task_id in self.model if not self.do(self.store.get(task_id)))
            most = max(map(len, spare.values()))
            assert gone in [ids[0] for ids in spare.values() if len(ids) == most]
            del self.model[gone]
        self.model[task.id] = task

    def spare(self) -> dict[bytes, list[str]]:
        """What may be forgotten, by owner, the oldest first."""
        spare: dict[bytes, list[str]] = {}
        for task in self.model.values():
            if task.status.terminal and task.owner not in self.owners:
                spare.setdefault(task.owner, []).append(task.id)
        return spare

    @rule(which=st.integers(0, 2))
    def leave(self, which: int) -> None:
        self.do(self.store.leave(self.owners[which]))
        self.owners[which] = b"%d" % self.n_owners  # nobody comes again by the other name
        self.n_owners += 1

    @some
    @rule(data=st.data(), how=st.integers(0, 3))
    def replace(self, data: st.DataObject, how: int) -> None:
        old = self.pick(data)
        if old.status.terminal:
            return
        new = [
            old.noted("note", 2),
            old.asking(b"{}", 2)[0],
            old.completed(b"{}", 2),
            old.cancelled("x", 2),
        ][how]
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
        owner = self.owners[which]
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
TestMemory.settings = settings(deadline=None, max_examples=60)
TestSQLite.settings = settings(deadline=None, max_examples=15, stateful_step_count=25)
