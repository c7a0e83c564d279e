"""Tasks of a server that runs on several event loops of one process, each in its own thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from task_lab import FOREVER, MakeStore, bounded

from wirespeed import Server, SyncClient
from wirespeed.client import TASKS
from wirespeed.errors import TaskCancelled
from wirespeed.server.task_books import TaskBooks, TaskSettings
from wirespeed.tasks import MemoryTaskStore


class Mill:
    """A server with one tool, whose calls end when the test says so."""

    def __init__(self, store: Any = None) -> None:
        self.server = Server("mill")
        self.server.use_tasks(store, poll_interval=0.02)
        self.begun = threading.Semaphore(0)
        self.cancelled: list[int] = []  # in which thread
        self.places: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = []
        self.server.tool(task="required")(self.grind)

    async def grind(self) -> str:
        gate = asyncio.Event()
        thread = threading.get_ident()
        self.places.append((asyncio.get_running_loop(), gate, thread))
        self.begun.release()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(threading.get_ident())
            self.begun.release()
            raise
        return "flour"

    def client(self, era: Any) -> SyncClient:
        return SyncClient(self.server, era=era, extensions=[TASKS])

    def wait(self) -> None:
        assert self.begun.acquire(timeout=FOREVER)

    def open_gate(self, n: int = 0) -> None:
        loop, gate, _ = self.places[n]
        loop.call_soon_threadsafe(gate.set)


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_the_end_of_one_loop_ends_its_own_tasks_alone(era: Any, new_store: MakeStore) -> None:
    mill = Mill(new_store())
    with mill.client(era) as stays:
        task = stays.start_tool("grind")
        mill.wait()
        with mill.client(era) as goes:
            lost = goes.start_tool("grind")
            mill.wait()
            assert goes.get_task(task.id).state.status == "working"
        mill.wait()
        assert mill.cancelled == [mill.places[1][2]]
        assert stays.get_task(lost.id).state.status == "failed"
        mill.open_gate()
        assert task.result().text == "flour"
    assert len(mill.cancelled) == 1


def test_who_waits_on_another_loop_hears_of_the_end(era: Any, new_store: MakeStore) -> None:
    mill = Mill(new_store())
    with mill.client(era) as one, mill.client(era) as other:
        task = one.start_tool("grind")
        mill.wait()
        got: list[str] = []
        waiter = threading.Thread(
            target=lambda: got.append(other.get_task(task.id).result().text), daemon=True
        )
        waiter.start()
        mill.open_gate()
        waiter.join(FOREVER)
        assert got == ["flour"]


def test_a_task_cancelled_on_another_loop_ends_on_its_own(era: Any, new_store: MakeStore) -> None:
    mill = Mill(new_store())
    with mill.client(era) as one, mill.client(era) as other:
        task = one.start_tool("grind")
        mill.wait()
        other.get_task(task.id).cancel()
        mill.wait()
        assert mill.cancelled == [mill.places[0][2]]
        with pytest.raises(TaskCancelled):
            task.result()


class Told(MemoryTaskStore):
    """A store that notes when it is opened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.said.append("open")

    async def close(self) -> None:
        await super().close()
        self.said.append("close")


def test_the_store_is_opened_by_the_first_and_closed_with_the_last() -> None:
    store = Told()
    mill = Mill(store)
    with mill.client("modern") as one:
        one.start_tool("grind")
        mill.wait()
        with mill.client("modern") as other:
            other.start_tool("grind")
            mill.wait()
        assert store.said == ["open"]
    assert store.said == ["open", "close"]
    with mill.client("modern") as again:
        again.start_tool("grind")
    assert store.said == ["open", "close", "open", "close"]


def test_what_the_clients_of_a_loop_left_makes_room_on_another() -> None:
    mill = Mill(MemoryTaskStore(max_tasks=2))

    @mill.server.tool(task="required")
    async def quick() -> str:
        return "done"

    with mill.client("modern") as stays:
        stays.start_tool("quick")
        with mill.client("modern") as goes:
            goes.start_tool("quick").result()
        assert stays.start_tool("quick").result().text == "done"


def test_a_loop_that_was_closed_under_its_book_holds_nothing() -> None:
    store = Told()
    books = TaskBooks(store, TaskSettings(None, None, 1))

    async def left() -> None:
        await books.of(asyncio.get_running_loop()).ready()

    async def closed() -> None:
        loop = asyncio.get_running_loop()
        await books.of(loop).ready()
        await books.close(loop)

    asyncio.run(bounded(left()))
    asyncio.run(bounded(closed()))
    assert store.said[-1] == "close" and not books._books and not books._holders
