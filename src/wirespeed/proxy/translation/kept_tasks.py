"""What the proxy keeps of the tasks of one server, for all of its translated clients.

The id of a server's task goes to a client behind a seal. Tasks that the proxy itself holds are in a
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wirespeed.protocol import codes
from wirespeed.proxy.seals import Seals
from wirespeed.tasks.memory import MemoryTaskStore
from wirespeed.tasks.model import Task, TaskLimit, TaskStatus
from wirespeed.tasks.store import now_ms

if TYPE_CHECKING:
    import asyncio

# Tasks that the proxy holds for the clients of one server, and for one client; bytes of their
# results; milliseconds for which it holds them, unless the client asks for less.
MAX_HELD = 1000
MAX_HELD_BY_CLIENT = 100
MAX_HELD_BYTES = 16 * 1024 * 1024
MAX_TTL = 3_600_000
# Seconds between two looks for tasks whose time is over.
SWEEP_EVERY = 10.0
# Names of tools that only run as tasks.
MAX_NAMES = 1000

_TOO_LARGE = "The result is too large to keep"


class KeptTasks(Seals):
    """The tasks of one server, and the seals of their ids.

    Args:
        server: The server's name.

    Attributes:
        required: The tools of a legacy server that only run as tasks, as far as the proxy knows.
    """

    def __init__(self, server: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server)
        self.required: set[str] = set()
        self._loop = loop
        self._last = 0  # when the last held task is over, in milliseconds since 1970
        self._sweeps = False
        self._store = MemoryTaskStore(
            max_tasks=MAX_HELD, max_tasks_per_owner=MAX_HELD_BY_CLIENT, max_bytes=MAX_HELD_BYTES
        )

    def require(self, name: str) -> None:
        """Note that a tool only runs as a task."""
        if len(self.required) < MAX_NAMES:
            self.required.add(name)

    # -- tasks that the proxy holds --------------------------------------------------------------

    async def hold(self, task: Task) -> Task:
        """Hold a task that has ended and has a time to live. The oldest one makes room if there are
        too many. Returns the task as it is held: it has failed if its result is too large."""
        try:
            await self._store.create(task)
        except TaskLimit:
            error = msgspec.json.encode({"code": codes.INTERNAL_ERROR, "message": _TOO_LARGE})
            task = msgspec.structs.replace(
                task,
                status=TaskStatus.FAILED,
                message=_TOO_LARGE,
                result=None,
                is_error=False,
                error=error,
            )
            await self._store.create(task)
        assert task.expires is not None
        self._last = max(self._last, task.expires)
        if not self._sweeps:
            self._sweeps = True
            self._loop.call_later(SWEEP_EVERY, self._sweep)
        return task

    def _sweep(self) -> None:
        """Forget tasks whose time is over, from time to time while there are any."""
        self._loop.create_task(self._store.expire(now_ms()))  # it never waits
        self._sweeps = now_ms() < self._last
        if self._sweeps:
            self._loop.call_later(SWEEP_EVERY, self._sweep)

    async def held(self, id: str, owner: bytes, principal: bool) -> Task | None:
        """Return a held task that a client may see, or None."""
        task = await self._store.get(id)
        if task is None or task.expired(now_ms()) or not task.visible_to(owner, principal):
            return None
        return task
