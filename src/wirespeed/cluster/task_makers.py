"""The makers of the tasks of one server that several hosts of a proxy share.

The keys, all in one hash slot, begin with ``PREFIX:{makers1:SERVER:URL}:``. URL, TASK and OWNER are
keyed digests:

* ``t:TASK``: who has made a task, and with which tool.
* ``o:OWNER``, ``all``: the tasks of one owner, and those of all, by the time at which they are
  forgotten. ``owners``: the owners by the number of their tasks.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster

LONGEST = 7 * 86_400  # seconds that the maker of a task is known
MAX_TOOL = 200  # bytes of the name of a tool
AT_ONCE = 500  # tasks of one command
_DIGITS = 32  # of a digest

# ARGV: task, owner, tool, milliseconds, most tasks, most tasks of one owner.
_NOTE = Script(
    f"local P, DIGITS, LONGEST = KEYS[1], {_DIGITS}, {LONGEST * 1000}"
    """
local task, owner, tool, life = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local at = redis.call('TIME')
local now = at[1] * 1000 + math.floor(at[2] / 1000)
local function forget(whose, which)
  redis.call('ZREM', P .. 'o:' .. whose, which)
  if redis.call('ZREM', P .. 'all', whose .. which) == 0 then return end
  if tonumber(redis.call('ZINCRBY', P .. 'owners', -1, whose)) < 1 then
    redis.call('ZREM', P .. 'owners', whose)
  end
  local maker = redis.call('GET', P .. 't:' .. which)
  if maker and string.sub(maker, 1, DIGITS) == whose then redis.call('DEL', P .. 't:' .. which) end
end
local function forget_first(whose)
  local first = redis.call('ZRANGE', P .. 'o:' .. whose, 0, 0)[1]
  if first then forget(whose, first) end  -- else all of them are over
end
local before = redis.call('GET', P .. 't:' .. task)
if before then forget(string.sub(before, 1, DIGITS), task) end
local over = redis.call('ZRANGEBYSCORE', P .. 'all', '-inf', now, 'LIMIT', 0, 100)
for _, one in ipairs(over) do forget(string.sub(one, 1, DIGITS), string.sub(one, DIGITS + 1)) end
redis.call('SET', P .. 't:' .. task, owner .. tool, 'PX', life)
redis.call('ZADD', P .. 'o:' .. owner, now + life, task)
redis.call('ZADD', P .. 'all', now + life, owner .. task)
if tonumber(redis.call('ZINCRBY', P .. 'owners', 1, owner)) > tonumber(ARGV[6]) then
  forget_first(owner)
elseif redis.call('ZCARD', P .. 'all') > tonumber(ARGV[5]) then
  forget_first(redis.call('ZREVRANGE', P .. 'owners', 0, 0)[1])
end
for _, key in ipairs({'o:' .. owner, 'all', 'owners'}) do
  redis.call('PEXPIRE', P .. key, LONGEST)
end
return 0
"""
)
# ARGV: tasks. Returns owner and tool of each.
_MAKERS = Script(
    """
local found = {}
for i, task in ipairs(ARGV) do found[i] = redis.call('GET', KEYS[1] .. 't:' .. task) end
return found
"""
)


class RedisTaskMakers:
    """The makers of the tasks of one server.

    Args:
        cluster: The store. It is held by the owner of this object.
        server: The name of the server.
        url: Where the server is: another one may give the same ids.
        secret: The same bytes on all hosts. The digests have a key that is derived from it.
        max_tasks: Tasks that are known at a time. Beyond these, whoever has most loses the one
            that would be forgotten first.
        max_of_owner: Those of one owner.
    """

    def __init__(
        self,
        cluster: Cluster,
        server: str,
        url: str,
        secret: bytes,
        *,
        max_tasks: int,
        max_of_owner: int,
    ) -> None:
        self._cluster = cluster
        context = b"wirespeed makers of tasks 1\0" + _encoded(server)
        self._key = hmac.digest(secret, context, "sha256")
        self._base = cluster.base("makers1", server, self._digest(b"u", _encoded(url)))
        self._bounds = max_tasks, max_of_owner

    async def note(self, task_id: str, owner: bytes, tool: str, life: float | None) -> None:
        """Keep who has made a task. Who made an earlier one with this id is forgotten.

        ``life``: The seconds for which the task is known, `LONGEST` at most; None: `LONGEST`. A
        task of a tool with a name of more than `MAX_TOOL` bytes is not known. ProtocolError as of
        `Cluster.run`.
        """
        name = _encoded(tool)
        seconds = LONGEST if life is None else min(life, LONGEST)
        await self._cluster.run(
            _NOTE,
            self._base,
            self._digest(b"t", _encoded(task_id)),
            self._digest(b"o", owner),
            name[:MAX_TOOL],
            max(1, round(seconds * 1000)) if len(name) <= MAX_TOOL else 1,
            *self._bounds,
        )

    async def tools(self, owner: bytes, task_ids: Sequence[str]) -> dict[str, str | None]:
        """Return the tools that have made tasks of an owner; None for the task of another one.
        Tasks that are not known are left out. ProtocolError as of `Cluster.run`."""
        mine = self._digest(b"o", owner).encode()
        found = {}
        for at in range(0, len(task_ids), AT_ONCE):  # a round trip each: others do not wait for all
            part = task_ids[at : at + AT_ONCE]
            for task_id, maker in zip(part, await self._makers(part), strict=True):
                if maker is not None:
                    is_mine = maker[:_DIGITS] == mine
                    found[task_id] = _decoded(maker[_DIGITS:]) if is_mine else None
        return found

    async def _makers(self, task_ids: Sequence[str]) -> list[bytes | None]:
        digests = [self._digest(b"t", _encoded(task_id)) for task_id in task_ids]
        makers: list[bytes | None] = await self._cluster.run(_MAKERS, self._base, *digests)
        return makers

    def _digest(self, kind: bytes, text: bytes) -> str:
        return hmac.digest(self._key, kind + text, "sha256").hex()[:_DIGITS]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")
