"""Tasks in a file: after a restart, after SIGKILL, and with several processes at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.task import ANNE, Run, a_task
from lab.wording import raises

from wirespeed import TASKS, Client, Stdio
from wirespeed.errors import ChildExited, RemoteError
from wirespeed.protocol import codes
from wirespeed.tasks import SQLiteTaskStore, TaskStateError, TaskStatus
from wirespeed.tasks.store import INTERRUPTED

CHILD = Path(__file__).parents[2] / "children" / "works_on_a_task.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def worker(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, with three tasks in the file: one works, one asks, one is over."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().split() == ["working", "input_required", "completed"]
        yield child
        child.kill()


def runner_files(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-runner-*"))


def test_tasks_are_there_after_a_restart(run: Run, path: Path) -> None:
    done = a_task()

    async def before() -> None:
        store = SQLiteTaskStore(path)
        await store.open()
        await store.create(done)
        await store.put_result(done.id, b'{"content":[]}')
        await store.close()
        await store.close()

    async def after() -> None:
        store = SQLiteTaskStore(path)
        await store.open()
        found = await store.get(done.id)
        assert found is not None
        assert found.status is TaskStatus.COMPLETED and found.result == b'{"content":[]}'
        assert len((await store.page(ANNE)).tasks) == 1
        await store.close()

    run(before())
    assert runner_files(path) == []
    run(after())


async def test_a_store_that_closes_leaves_nothing_working(path: Path) -> None:
    task = a_task()
    store = SQLiteTaskStore(path)
    await store.open()
    await store.create(task)
    await store.close()
    await store.open()
    found = await store.get(task.id)
    assert found is not None
    assert found.status is TaskStatus.FAILED and found.message == INTERRUPTED
    await store.close()


async def test_after_sigkill_what_was_under_way_has_failed(
    path: Path, worker: subprocess.Popen[str]
) -> None:
    worker.send_signal(signal.SIGKILL)
    assert worker.wait(20) == -signal.SIGKILL
    assert len(runner_files(path)) == 1
    store = SQLiteTaskStore(path)
    await store.open()
    for name in ("working", "input_required"):
        task = await store.get(name)
        assert task is not None
        assert task.status is TaskStatus.FAILED
        assert task.message == INTERRUPTED
        assert task.error is not None and not task.requests
        assert msgspec.json.decode(task.error) == {"code": codes.CUT_OFF, "message": INTERRUPTED}
        with pytest.raises(TaskStateError):
            await store.put_result(name, b"{}")
    completed = await store.get("completed")
    assert completed is not None and completed.status is TaskStatus.COMPLETED
    assert len(runner_files(path)) == 1  # ours; theirs was cleaned up
    await store.close()
    assert runner_files(path) == []


async def test_a_process_that_lives_keeps_its_tasks(
    path: Path, worker: subprocess.Popen[str]
) -> None:
    store = SQLiteTaskStore(path)
    await store.open()
    assert await store.expire(0) == []
    working = await store.get("working")
    assert working is not None and working.status is TaskStatus.WORKING
    # it may be changed from here, and its process finds out
    await store.cancel("working", "from elsewhere")
    # and when the process dies, the survivors notice
    worker.kill()
    worker.wait(20)
    await store.expire(0)
    asked = await store.get("input_required")
    assert asked is not None and asked.status is TaskStatus.FAILED
    working = await store.get("working")
    assert working is not None and working.status is TaskStatus.CANCELLED
    await store.close()


async def test_two_stores_of_one_process_do_not_take_each_other_for_dead(path: Path) -> None:
    task = a_task()
    one, two = SQLiteTaskStore(path), SQLiteTaskStore(path)
    await one.open()
    await one.create(task)
    await two.open()
    await two.expire(0)
    found = await two.get(task.id)
    assert found is not None and found.status is TaskStatus.WORKING
    await one.put_result(task.id, b"{}")
    found = await two.get(task.id)
    assert found is not None and found.status is TaskStatus.COMPLETED
    await two.close()
    await one.close()


async def test_many_open_a_new_file_at_once(path: Path) -> None:
    stores = [SQLiteTaskStore(path, durable=False) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.create(a_task()) for store in stores for _ in range(5)))
    assert len((await stores[0].page(ANNE)).tasks) == 30
    for store in stores:
        await store.close()


async def test_nobody_else_may_read_the_files(path: Path) -> None:
    store = SQLiteTaskStore(path)
    await store.open()
    await store.create(a_task())
    files = list(path.parent.iterdir())
    assert len(files) >= 3  # with what SQLite has beside it, and the lock
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    await store.close()


async def test_the_disk_has_what_was_promised(path: Path) -> None:
    """What is created is committed, not only in this connection's cache."""
    store = SQLiteTaskStore(path)
    await store.open()
    task = a_task()
    await store.create(task)
    with contextlib.closing(sqlite3.connect(path)) as other:
        rows = other.execute("SELECT id FROM tasks").fetchall()
    assert rows == [(task.id,)]
    await store.close()


async def test_a_closed_store_stays_closed(path: Path) -> None:
    store = SQLiteTaskStore(path)
    with raises(RuntimeError):
        await store.get("x")
    assert not path.exists()
    await store.open()
    await store.close()
    for use in (store.get("x"), store.create(a_task()), store.expire(0), store.page(ANNE)):
        with raises(RuntimeError):
            await use
    assert runner_files(path) == []


async def test_the_file_does_not_name_principals(path: Path) -> None:
    """The same client has another owner in each file, and the same owner after a restart."""

    async def owner_in(path: Path) -> bytes:
        store = SQLiteTaskStore(path)
        await store.open()
        task = a_task(owner=store.owner_of(ANNE), principal=True)
        await store.create(task)
        assert [one.id for one in (await store.page(task.owner)).tasks][-1] == task.id
        await store.close()
        assert ANNE not in path.read_bytes() and task.owner in path.read_bytes()
        return task.owner

    owner = await owner_in(path)
    assert await owner_in(path) == owner != await owner_in(path.with_name("other.db"))


@pytest.mark.parametrize("name", ["", ":memory:", "file:x?mode=memory"])
def test_it_must_be_a_file(name: str) -> None:
    with raises(ValueError):
        SQLiteTaskStore(name)


async def test_files_that_cannot_be_used(path: Path) -> None:
    with pytest.raises(OSError):
        await SQLiteTaskStore(path / "no" / "such").open()
    path.write_bytes(b"something else altogether, of some length" * 50)
    with pytest.raises(sqlite3.DatabaseError):
        await SQLiteTaskStore(path).open()
    assert runner_files(path) == []
    os.unlink(path)
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with raises(ValueError):
        await SQLiteTaskStore(path).open()
    assert runner_files(path) == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_is_killed_and_started_again(path: Path, era: Any) -> None:
    """What was done is there, what was under way has failed, and its client is told so."""
    program = CHILD.with_name("task_server.py")
    # of the environment, a child gets little: under a sanitizer it needs these
    env = {n: v for n, v in os.environ.items() if n == "LD_PRELOAD" or n.endswith("SAN_OPTIONS")}
    target = Stdio(sys.executable, [str(program), str(path)], env=env, stderr="discard")
    async with Client(target, era=era, extensions=[TASKS]) as client:
        done = await client.start_tool("quick")
        pid = (await done.result()).structured_content["result"]
        under_way = await client.start_tool("endless")
        waiting = asyncio.create_task(under_way.result())
        assert (await under_way.status()).status == "working"
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ChildExited):
            await waiting
    async with Client(target, era=era, extensions=[TASKS]) as client:
        again = await client.get_task(done.id)
        assert (await again.result()).structured_content == {"result": pid}
        lost = await client.get_task(under_way.id)
        assert lost.state.status == "failed" and lost.state.message == INTERRUPTED
        with pytest.raises(RemoteError, match=INTERRUPTED):
            await lost.result()


FORKED = """
import asyncio, os, sys
from wirespeed.tasks import SQLiteTaskStore

store = SQLiteTaskStore(sys.argv[1])
opened, say_opened = os.pipe()
leave, say_leave = os.pipe()
child = os.fork()

async def main():
    async with asyncio.timeout(15):
        if child:
            await asyncio.to_thread(os.read, opened, 1)
        await store.open()
        if not child:
            os.write(say_opened, b"x")
            await asyncio.to_thread(os.read, leave, 1)
        await store.close()

asyncio.run(main())
if child:
    os.write(say_leave, b"x")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_store_made_before_workers_are_forked(path: Path) -> None:
    """Each process that opens it is a runner of its own, with a lock of its own."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
