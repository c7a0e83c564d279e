"""Tasks in the store that hosts share.

The keys of one store, all in one hash slot (ID is a task's id, OWNER the keyed digest of an owner):

* ``t:ID``: the task, as a hash: ``body`` (msgpack), and what scripts compare: ``revision``,
  ``size``, ``number``, ``owner``, ``ended``, ``expires``, ``runner``.
* ``all``, ``o:OWNER``: ids by number, of all tasks and of one owner.
* ``ended``, ``e:OWNER``: finished tasks by the time of their end, as ``number:ID``.
* ``expires``: ids by the end of their time to live; ``forever``: those without one, by the end of
  `FOREVER`. ``w:RUNNER``: ids that a runner works on; ``runners``: runners by the time of their
  last sign of life. ``held``: bytes of all tasks; ``serial``: the last number.

`RedisTaskStore.expire` forgets tasks whose time is over. Where no server does that any more, the
store drops a task `KEEP` after its time, and all other keys with the last task.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
from typing import Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Script, Word
from wirespeed.cluster.store import MIN_SECRET, Cluster
from wirespeed.errors import ProtocolError
from wirespeed.tasks.model import Task, TaskLimit
from wirespeed.tasks.store import SMALL, Page, StoreLimits, TaskStore, interrupted, now_ms

VERSION = 1
KEEP = 30 * 86_400  # seconds
FOREVER = 365 * 86_400  # seconds after the last change of a task without a time to live
MAX_TASK = 4 * 1024 * 1024  # bytes of one task
DEAD_AFTER = 20.0  # seconds
BEATS = 4  # signs of life of a runner in this time
LEFT = 10**12  # milliseconds: only runners that have left are dead
MAX_ID = 256  # characters
AT_ONCE = 500  # tasks of one round trip

_COMMON = (
    f"local P, KEEP, FOREVER, SMALL = KEYS[1], {KEEP * 1000}, {FOREVER * 1000}, {SMALL}"
    """
local function now()
  local at = redis.call('TIME')
  return at[1] * 1000 + math.floor(at[2] / 1000)
end
local function fields(id)
  local f = redis.call('HMGET', P .. 't:' .. id, 'owner', 'number', 'size', 'runner', 'ended')
  if not f[1] then return nil end
  return {
    owner = f[1], number = tonumber(f[2]) or 0, size = tonumber(f[3]) or 0, runner = f[4] or '',
    ended = f[5] or '',
  }
end
local function place(number, id) return string.format('%016.0f', number) .. ':' .. id end
local function id_of(member) return string.match(member, '^%d+:(.*)$') or '' end
-- forget tasks, and return the ids of those that were there
local function forget(ids)
  local gone, ended, held = {}, {}, 0
  for _, id in ipairs(ids) do
    local f = fields(id)
    if f then
      gone[#gone + 1] = id
      held = held + f.size
      redis.call('DEL', P .. 't:' .. id)
      redis.call('ZREM', P .. 'o:' .. f.owner, id)
      if f.runner ~= '' then redis.call('SREM', P .. 'w:' .. f.runner, id) end
      if f.ended ~= '' then
        ended[#ended + 1] = place(f.number, id)
        redis.call('ZREM', P .. 'e:' .. f.owner, place(f.number, id))
      end
    end
  end
  for i = 1, #ids, 1000 do
    local last = math.min(i + 999, #ids)
    for _, key in ipairs({'all', 'expires', 'forever'}) do
      redis.call('ZREM', P .. key, unpack(ids, i, last))
    end
  end
  for i = 1, #ended, 1000 do
    redis.call('ZREM', P .. 'ended', unpack(ended, i, math.min(i + 999, #ended)))
  end
  if held > 0 then redis.call('DECRBY', P .. 'held', held) end
  return gone
end
-- the oldest finished task that is still there, of a sorted set
local function oldest(key)
  while true do
    local member = redis.call('ZRANGE', key, 0, 0)[1]
    if not member then return nil end
    local id = id_of(member)
    if redis.call('EXISTS', P .. 't:' .. id) == 1 then return id end
    redis.call('ZREM', key, member)
  end
end
-- make room for bytes: nil, or the bytes that are held
local function no_room(more, most)
  if more <= SMALL then return nil end
  local held = tonumber(redis.call('GET', P .. 'held') or '0')
  local excess = held + more - most
  if excess <= 0 then return nil end
  local chosen, from = {}, 0
  while excess > 0 do
    local members = redis.call('ZRANGE', P .. 'ended', from, from + 99)
    if #members == 0 then return held end
    for _, member in ipairs(members) do
      local f = fields(id_of(member))
      chosen[#chosen + 1] = id_of(member)
      excess = excess - (f and f.size or 0)
      if excess <= 0 then break end
    end
    from = from + 100
  end
  forget(chosen)
  return nil
end
-- write a task and all that finds it
local function put(id, owner, number, revision, size, ended, expires, ttl, runner, body)
  local keep = (ttl == '' and FOREVER or tonumber(ttl)) + KEEP
  redis.call('HSET', P .. 't:' .. id, 'owner', owner, 'number', number, 'revision', revision,
    'size', size, 'ended', ended, 'expires', expires, 'runner', runner, 'body', body)
  redis.call('PEXPIRE', P .. 't:' .. id, string.format('%.0f', keep))
  if ended ~= '' then
    redis.call('ZADD', P .. 'ended', ended, place(number, id))
    redis.call('ZADD', P .. 'e:' .. owner, ended, place(number, id))
  end
  if expires ~= '' then
    redis.call('ZADD', P .. 'expires', expires, id)
  else
    redis.call('ZADD', P .. 'forever', now() + FOREVER, id)
  end
  if runner ~= '' then redis.call('SADD', P .. 'w:' .. runner, id) end
  local names = {
    'all', 'o:' .. owner, 'ended', 'e:' .. owner, 'expires', 'forever', 'held', 'serial',
  }
  if runner ~= '' then names[#names + 1] = 'w:' .. runner end
  for _, name in ipairs(names) do
    local left = redis.call('PTTL', P .. name)
    if left < keep then redis.call('PEXPIRE', P .. name, string.format('%.0f', keep)) end
  end
end
"""
)

# id owner revision size ended expires ttl runner body, max_tasks max_tasks_per_owner max_bytes
_CREATE = Script(
    _COMMON
    + """
local id, owner, size = ARGV[1], ARGV[2], tonumber(ARGV[4])
if redis.call('EXISTS', P .. 't:' .. id) == 1 then return {'exists'} end
local victim = nil
if redis.call('ZCARD', P .. 'o:' .. owner) >= tonumber(ARGV[11]) then
  victim = oldest(P .. 'e:' .. owner)
  if not victim then return {'owner'} end
elseif redis.call('ZCARD', P .. 'all') >= tonumber(ARGV[10]) then
  victim = oldest(P .. 'ended')
  if not victim then return {'all'} end
end
local held = no_room(size, tonumber(ARGV[12]))
if held then return {'bytes', held} end
if victim then forget({victim}) end
local number = redis.call('INCR', P .. 'serial')
redis.call('ZADD', P .. 'all', number, id)
redis.call('ZADD', P .. 'o:' .. owner, number, id)
redis.call('INCRBY', P .. 'held', size)
put(id, owner, number, ARGV[3], size, ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9])
return {'ok'}
"""
)

# id old_revision revision size ended expires ttl body max_bytes
_REPLACE = Script(
    _COMMON
    + """
local id, size = ARGV[1], tonumber(ARGV[4])
if redis.call('HGET', P .. 't:' .. id, 'revision') ~= ARGV[2] then return {'changed'} end
local f = fields(id)
local held = no_room(size - f.size, tonumber(ARGV[9]))
if held then return {'bytes', held} end
redis.call('INCRBY', P .. 'held', size - f.size)
local runner = f.runner
if ARGV[5] ~= '' and runner ~= '' then
  redis.call('SREM', P .. 'w:' .. runner, id)
  runner = ''
end
put(id, f.owner, f.number, ARGV[3], size, ARGV[5], ARGV[6], ARGV[7], runner, ARGV[8])
return {'ok'}
"""
)

_GET = Script("return redis.call('HGET', KEYS[1] .. 't:' .. ARGV[1], 'body')")

# owner after limit
_PAGE = Script(
    _COMMON
    + """
local found, key = {}, P .. 'o:' .. ARGV[1]
local ids = redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0,
  tonumber(ARGV[3]) + 1)
for i = 1, #ids, 2 do
  found[#found + 1] = {ids[i + 1], redis.call('HGET', P .. 't:' .. ids[i], 'body')}
end
return found
"""
)

_DELETE = Script(_COMMON + "return #forget({ARGV[1]})")

# now limit
_EXPIRE = Script(
    _COMMON
    + """
local over, gone = 0, {}
for key, last in pairs({expires = ARGV[1], forever = now()}) do
  local ids = redis.call('ZRANGEBYSCORE', P .. key, '-inf', last, 'LIMIT', 0, ARGV[2])
  over = math.max(over, #ids)
  for _, id in ipairs(forget(ids)) do gone[#gone + 1] = id end
end
return {over, gone}
"""
)

# runner, milliseconds, limit: notes a sign of life of a runner, where one is named; returns tasks
# of runners that gave none for so long, each as runner, id and body
_BEAT = Script(
    _COMMON
    + """
local found = {}
if ARGV[1] ~= '' then
  redis.call('ZADD', P .. 'runners', now(), ARGV[1])
  redis.call('PEXPIRE', P .. 'runners', KEEP)
end
if ARGV[2] == '' then return found end
for _, one in ipairs(redis.call('ZRANGEBYSCORE', P .. 'runners', '-inf', now() - ARGV[2])) do
  local key = P .. 'w:' .. one
  for _, id in ipairs(redis.call('SRANDMEMBER', key, ARGV[3])) do
    local body = redis.call('HGET', P .. 't:' .. id, 'body')
    if body then found[#found + 1] = {id, body} else redis.call('SREM', key, id) end
  end
  if redis.call('EXISTS', key) == 0 then redis.call('ZREM', P .. 'runners', one) end
end
return found
"""
)

# runner: it gives no further sign of life, so its tasks may be failed by anyone
_LEAVE = Script("return redis.call('ZADD', KEYS[1] .. 'runners', 'XX', 0, ARGV[1])")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Task).decode


class RedisTaskStore(TaskStore):
    """Keeps tasks in the store that hosts share.

    Args:
        cluster: The store.
        name: The name of the server: servers of one name share their tasks.
        secret: The same bytes on all hosts, at least 16. The store does not name principals: the
            owner of a task is an HMAC-SHA256 of the principal's digest, with a key that is derived
            from the secret and the name.
        dead_after: Seconds without a sign of life after which the process of a task counts as dead.
        max_tasks, max_tasks_per_owner, max_bytes: See `TaskStore`. One task has at most 4 MiB.

    Each open store is a runner: its process works on the tasks that it created, and gives signs of
    life. When they stop for ``dead_after`` seconds, or the runner closes its store, its unfinished
    tasks are marked as failed, by any other runner. Nobody counts as dead until the store itself
    was there for ``dead_after`` seconds.

    Results, errors, questions and answers are in the store as they are.

    ValueError: an argument is out of its range.
    """

    shared = True

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        secret: bytes,
        dead_after: float = DEAD_AFTER,
        **limits: Unpack[StoreLimits],
    ) -> None:
        super().__init__(**limits)
        if not 0 < dead_after < math.inf:
            raise ValueError("dead_after must be seconds above 0")
        if len(secret) < MIN_SECRET:
            raise ValueError(f"the secret of a RedisTaskStore has at least {MIN_SECRET} bytes")
        self.cluster = cluster
        self._dead_after = dead_after
        self._base = cluster.base(f"tasks{VERSION}", name)
        context = b"wirespeed owners of tasks 1\0" + name.encode("utf-8", "surrogatepass")
        self._secret = hmac.digest(secret, context, "sha256")
        self._runner = ""  # from `open` to `close`
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """StoreUnavailable: the store is away."""
        if not self._runner:
            self.cluster.hold(self)
            runner = os.urandom(8).hex()
            try:
                await self._fail_abandoned(runner)
            except BaseException:
                await self.cluster.release(self)
                raise
            self._runner = runner
            self._beating = asyncio.create_task(self._beat())

    async def close(self) -> None:
        runner, self._runner = self._runner, ""
        if runner:
            assert self._beating is not None
            self._beating.cancel()
            await asyncio.wait([self._beating])
            try:
                await self.cluster.run(_LEAVE, self._base, runner)
                await self._fail_abandoned("")
            except ProtocolError:
                pass  # the others notice
            finally:
                await self.cluster.release(self)

    def owner_of(self, principal: bytes) -> bytes:
        return hmac.digest(self._secret, principal, "sha256")

    async def create(self, task: Task) -> None:
        body = self._body(task)
        await self._changed(
            _CREATE,
            task.id,
            task.owner.hex(),
            task.revision,
            task.size,
            *_times(task),
            "" if task.status.terminal else self._runner,
            body,
            self.max_tasks,
            self.max_tasks_per_owner,
            self.max_bytes,
        )

    async def get(self, task_id: str) -> Task | None:
        if len(task_id) > MAX_ID:
            return None
        try:
            body = await self.cluster.run(_GET, self._base, task_id)
        except UnicodeEncodeError:  # a lone surrogate
            return None
        return self._task(body)

    async def replace(self, old: Task, new: Task) -> bool:
        return await self._changed(
            _REPLACE,
            old.id,
            old.revision,
            new.revision,
            new.size,
            *_times(new),
            self._body(new),
            self.max_bytes,
        )

    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        rows = await self.cluster.run(_PAGE, self._base, owner.hex(), after, limit)
        tasks = [task for _, body in rows[:limit] if (task := self._task(body)) is not None]
        return Page(tasks, int(rows[limit - 1][0]) if len(rows) > limit else None)

    async def delete(self, task_id: str) -> bool:
        return bool(await self.cluster.run(_DELETE, self._base, task_id))

    async def expire(self, now: int) -> list[str]:
        """Forget expired tasks, and mark the unfinished tasks of dead runners as failed."""
        gone: list[str] = []
        over = AT_ONCE
        while over >= AT_ONCE:
            over, ids = await self.cluster.run(_EXPIRE, self._base, now, AT_ONCE)
            gone += (task_id.decode() for task_id in ids)
        await self._fail_abandoned(self._runner)
        return gone

    # -- values ----------------------------------------------------------------------------------

    def _body(self, task: Task) -> bytes:
        """TaskLimit: the task is too large."""
        body = _encode(task)
        if len(body) > MAX_TASK:
            raise TaskLimit(f"the task takes {len(body)} bytes, more than {MAX_TASK}")
        return body

    def _task(self, body: bytes | None) -> Task | None:
        """The task of a record; None for a record that this version cannot read."""
        if body is None:
            return None
        try:
            return _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.cluster.log_refused("a task", "it is not a task of this version")
            return None

    async def _changed(self, script: Script, *args: Word) -> bool:
        """Run a script that changes a task. TaskLimit, ValueError: as of `create`."""
        outcome, *held = await self.cluster.run(script, self._base, *args)
        if outcome == b"exists":
            raise ValueError("a task with this id exists already")
        if outcome == b"owner":
            raise TaskLimit(f"this requestor has {self.max_tasks_per_owner} working tasks")
        if outcome == b"all":
            raise TaskLimit(f"the store has {self.max_tasks} working tasks")
        if outcome == b"bytes":
            raise TaskLimit(f"tasks hold {held[0]} of at most {self.max_bytes} bytes")
        return bool(outcome == b"ok")

    # -- runners ---------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._dead_after / BEATS)
            try:
                await self._fail_abandoned(self._runner)
            except ProtocolError:
                pass  # the cluster logs it
            except Exception as exc:  # the next answer may be readable
                self.cluster.log_refused("what is said of runners", str(exc))

    async def _fail_abandoned(self, runner: str) -> None:
        """Give a sign of life, and fail the unfinished tasks of dead runners."""
        # while the store is away, no runner can give a sign
        known = self.cluster.up_for > self._dead_after
        dead = round(self._dead_after * 1000) if known else LEFT
        found = await self.cluster.run(_BEAT, self._base, runner, dead, AT_ONCE)
        now = now_ms()
        for task_id, body in found:
            task = self._task(body)
            if task is None or task.status.terminal:
                await self.cluster.run(_DELETE, self._base, task_id)
            else:
                await self.replace(task, interrupted(task, now))


def _times(task: Task) -> tuple[Word, Word, Word]:
    """When a task ended, when it expires, and how long it lives, all in milliseconds."""
    return (
        task.updated if task.status.terminal else "",
        "" if task.expires is None else task.expires,
        "" if task.ttl is None else task.ttl,
    )


set_public_home(globals())
