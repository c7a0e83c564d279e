"""Which task pool an interpreter gets."""

import asyncio
import os
import subprocess
import sys

import pytest
from lab.wording import raises

from wirespeed.transport.pooled_tasks import PooledTasks
from wirespeed.transport.taskpool import TaskPool
from wirespeed.transport.taskpool_choice import open_pool, pool_kind, reuse_works

CHOICE = """
import asyncio, logging, sys
{before}
logging.basicConfig(level="INFO")
from wirespeed.transport.taskpool_choice import open_pool

async def main():
    pool = open_pool(asyncio.get_running_loop())
    ended = asyncio.get_running_loop().create_future()
    pool.start(asyncio.sleep(0, 5), lambda *outcome: ended.set_result(outcome))
    print(type(pool).__name__, await ended)
    await pool.aclose()

asyncio.run(main())
"""


def chosen(before="", **env):
    """(what the program prints, what it logs)"""
    done = subprocess.run(
        [sys.executable, "-c", CHOICE.format(before=before)],
        env={key: value for key, value in os.environ.items() if key != "WIRESPEED_TASKS"} | env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout, done.stderr


def test_this_interpreter_reuses_tasks():
    assert reuse_works()
    assert chosen() == ("PooledTasks (5, None)\n", "")


@pytest.mark.parametrize(("wanted", "kind"), [("pooled", PooledTasks), ("eager", TaskPool)])
def test_the_environment_chooses(monkeypatch, wanted, kind):
    monkeypatch.setenv("WIRESPEED_TASKS", wanted)
    loop = asyncio.new_event_loop()
    assert pool_kind() == wanted
    assert type(open_pool(loop, max_idle=2)) is kind
    loop.close()


def test_an_unknown_kind_is_refused(monkeypatch):
    monkeypatch.setenv("WIRESPEED_TASKS", "quick")
    with raises(ValueError):
        pool_kind()


UNKNOWN = "sys.version_info = (3, 99, 0, 'final', 0)"
# An interpreter whose tasks stay cancelled is not one that the pool was written for.
STICKY = """
import asyncio.tasks
class Sticky(asyncio.Task):
    def cancelling(self):
        return 1
asyncio.tasks.Task = asyncio.Task = Sticky
"""
# One whose tasks never wake.
DEAF = """
import asyncio.tasks
enter = asyncio.tasks._enter_task
def refuses(loop, task):
    if task.get_name().startswith("wirespeed-"):
        raise RuntimeError("not here")
    enter(loop, task)
asyncio.tasks._enter_task = refuses
from wirespeed.transport import taskpool_choice
taskpool_choice.TRIAL_TIME = 0.3
"""


def test_an_unknown_version_gets_a_task_a_request():
    out, log = chosen("import wirespeed.transport.taskpool\n" + UNKNOWN)
    assert out == "TaskPool (5, None)\n"
    assert "tasks are not reused: this Python is not a tested one" in log


@pytest.mark.parametrize("strange", [STICKY, DEAF], ids=["sticky", "deaf"])
def test_a_trial_that_fails_gets_a_task_a_request(strange):
    out, log = chosen(strange)
    assert out == "TaskPool (5, None)\n"
    assert "tasks are not reused: the trial failed on this Python" in log
