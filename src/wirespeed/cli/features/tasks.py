"""``wirespeed tasks``: the tasks of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.cli.features.calls import Choices, finish
from wirespeed.cli.session import Options, connected, run

if TYPE_CHECKING:
    from wirespeed.types import TaskState


def tasks(
    options: Options,
    task_id: str | None,
    choices: Choices,
    *,
    wait: bool,
    cancel: bool,
) -> int:
    """Print the tasks of a server, or the state of one; or wait for its result, or cancel it.
    Failure (2): the options do not go together."""
    if task_id is None and (wait or cancel):
        raise usage(f"{'--wait' if wait else '--cancel'} needs the ID of a task")
    if wait and cancel:
        raise usage("give --wait or --cancel, not both")
    if task_id is None:
        return run(_list(options, choices))
    return run(_one(options, task_id, choices, wait, cancel))


async def _list(options: Options, choices: Choices) -> int:
    async with connected(options) as client:
        found = await client.list_tasks()
    if choices.as_json:
        print_json({"tasks": [show.wire(state) for state in found]})
    elif not found:
        complain("the server has no tasks of this client", level="note")
    else:
        show.put(show.console(), _table(found))
    return Exit.OK


async def _one(options: Options, task_id: str, choices: Choices, wait: bool, cancel: bool) -> int:
    asked = choices.asked()
    async with connected(options, asked) as client:
        task = await client.get_task(task_id)
        if wait:
            result = await task.result()
            asked.check()
            return finish(task.tool, result, asked, choices)
        state = await task.cancel() if cancel else task.state
    if choices.as_json:
        print_json(show.wire(state))
    else:
        show.put(show.console(), _table([state]))
    return Exit.OK


def _table(states: list[TaskState]) -> object:
    return show.table(
        ("task", "status", "message"),
        (
            (
                state.id or "",
                [state.status],
                [printable(state.message or ""), *([state.updated_at] if state.updated_at else [])],
            )
            for state in states
        ),
    )
