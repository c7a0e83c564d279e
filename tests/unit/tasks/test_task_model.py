"""The state machine of a task, without any store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lab.task import ANNE, BOB, a_task

from wirespeed.tasks import Task, TaskStateError, TaskStatus
from wirespeed.tasks.model import MAX_STATUS_MESSAGE, TRANSITIONS, new_task_id, timestamp

pytestmark = pytest.mark.smoke

REQUEST = b'{"method":"roots/list"}'


def ends(task: Task) -> list[Task]:
    return [
        task.completed(b"{}", 2000),
        task.completed(b'{"isError":true}', 2000, is_error=True),
        task.failed(b'{"code":1,"message":"no"}', "no", 2000),
        task.cancelled("enough", 2000),
    ]


def test_states_are_those_of_the_specification() -> None:
    working, asking = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED
    final = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}
    assert {str(s) for s in TaskStatus} == {
        "working", "input_required", "completed", "failed", "cancelled"
    }  # fmt: skip
    assert TRANSITIONS[working] == final | {asking}
    assert TRANSITIONS[asking] == final | {working}
    assert all(not TRANSITIONS[status] and status.terminal for status in final)
    assert not working.terminal and not asking.terminal


@pytest.mark.parametrize("index", range(4))
def test_what_is_over_stays_so(index: int) -> None:
    over = ends(a_task())[index]
    changes = [
        lambda: over.noted("x", 3000),
        lambda: over.asking(REQUEST, 3000),
        lambda: over.completed(b"{}", 3000),
        lambda: over.failed(b"{}", "x", 3000),
        lambda: over.cancelled("x", 3000),
    ]
    for change in changes:
        with pytest.raises(TaskStateError, match=f"the task is {over.status} already"):
            change()
    assert over.answered({"input-1": b"{}"}, 3000) is over


def test_questions_and_answers() -> None:
    task, first = a_task().asking(REQUEST, 1001)
    task, second = task.asking(REQUEST, 1002)
    assert task.status is TaskStatus.INPUT_REQUIRED and first != second
    assert set(task.requests) == {first, second}
    # unknown keys do nothing, and neither does a second answer
    assert task.answered({"nobody": b"1"}, 1003) is task
    part = task.answered({first: b"1", "nobody": b"2"}, 1003)
    assert part.status is TaskStatus.INPUT_REQUIRED and part.answers == {first: b"1"}
    assert part.answered({first: b"other"}, 1004) is part
    whole = part.answered({second: b"2"}, 1004)
    assert whole.status is TaskStatus.WORKING and not whole.requests
    assert whole.answers == {first: b"1", second: b"2"}
    taken = whole.withdrawing(first, 1005)
    assert taken.answers == {second: b"2"} and taken.status is TaskStatus.WORKING
    assert taken.withdrawing(first, 1006) is taken
    # a key never comes again
    assert taken.asking(REQUEST, 1007)[1] not in (first, second)


def test_a_question_that_is_withdrawn_is_not_waited_for() -> None:
    task, first = a_task().asking(REQUEST, 1001)
    task, second = task.asking(REQUEST, 1001)
    task = task.withdrawing(first, 1002)
    assert task.status is TaskStatus.INPUT_REQUIRED and set(task.requests) == {second}
    task = task.withdrawing(second, 1002)
    assert task.status is TaskStatus.WORKING and not task.requests


def test_an_end_lets_go_of_questions() -> None:
    task, _ = a_task().asking(REQUEST, 1001)
    for over in ends(task):
        assert not over.requests and not over.answers and over.status.terminal


def test_times() -> None:
    task = a_task(ttl=500)
    assert task.expires == 1500
    assert not task.expired(1499) and task.expired(1500)
    assert not a_task().expired(1 << 62) and a_task().expires is None
    # a wall clock that is set back does not make a task younger
    assert task.noted("x", 10).updated == 1000
    assert timestamp(1_764_066_600_042) == "2025-11-25T10:30:00.042Z"


def test_long_messages_are_cut() -> None:
    message = a_task().noted("x" * 5000, 1).message
    assert message is not None
    assert len(message) == MAX_STATUS_MESSAGE and message.endswith("…")


def test_who_may_see_a_task() -> None:
    anne = a_task(owner=ANNE, principal=True)
    assert anne.visible_to(ANNE, True)
    assert not anne.visible_to(BOB, True)
    assert not anne.visible_to(ANNE, False)  # a connection's name that looks like a credential's
    anybody = a_task(owner=b"connection 1", principal=False)
    assert anybody.visible_to(b"connection 2", False)
    assert not anybody.visible_to(b"connection 1", True)


def test_ids_cannot_be_guessed() -> None:
    ids = {new_task_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 48 and len(bytes.fromhex(one)) == 24 for one in ids)


@given(st.lists(st.integers(0, 6), max_size=30))
def test_revisions_count_changes(steps: list[int]) -> None:
    task = a_task()
    for step in steps:
        before = task
        try:
            task = change(task, step)
        except TaskStateError:
            assert before.status.terminal
        assert task is before or task.revision == before.revision + 1


def change(task: Task, step: int) -> Task:
    if step < 4:
        outcome: list[Any] = [
            task.noted("note", 1),
            task.asking(REQUEST, 1)[0],
            task.answered(dict.fromkeys(list(task.requests)[:1], b"1"), 1),
            task.withdrawing(next(iter(task.answers), ""), 1),
        ]
        return outcome[step]  # type: ignore[no-any-return]
    return ends(task)[step - 4]


class Life(RuleBasedStateMachine):
    """A task's life against what is known of it: questions open, answers there, how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.task = a_task()
        self.open: set[str] = set()
        self.there: dict[str, bytes] = {}
        self.given: set[str] = set()
        self.end: TaskStatus | None = None

    def tick(self) -> int:
        self.now += 1
        return self.now

    alive = precondition(lambda self: self.end is None)

    @alive
    @rule()
    def ask(self) -> None:
        self.task, key = self.task.asking(REQUEST, self.tick())
        assert key not in self.given
        self.given.add(key)
        self.open.add(key)

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        candidates = sorted(self.given | {"stranger"})
        keys = data.draw(st.lists(st.sampled_from(candidates), unique=True))
        self.task = self.task.answered({key: key.encode() for key in keys}, self.tick())
        for key in keys:
            if key in self.open:
                self.open.discard(key)
                self.there[key] = key.encode()

    @alive
    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.given)))
        self.task = self.task.withdrawing(key, self.tick())
        self.open.discard(key)
        self.there.pop(key, None)

    @alive
    @rule()
    def note(self) -> None:
        self.task = self.task.noted("note", self.tick())

    @rule(how=st.integers(0, 3))
    def finish(self, how: int) -> None:
        if self.end is not None:
            with pytest.raises(TaskStateError):
                ends(self.task)
            return
        self.task = ends(self.task)[how]
        self.end = self.task.status
        self.open.clear()
        self.there.clear()

    @invariant()
    def agrees(self) -> None:
        task = self.task
        assert set(task.requests) == self.open
        assert task.answers == self.there
        if self.end is not None:
            assert task.status is self.end
        elif self.open:
            assert task.status is TaskStatus.INPUT_REQUIRED
        else:
            assert task.status is TaskStatus.WORKING
        assert task.updated <= max(self.now, 2000)


TestLife = Life.TestCase
