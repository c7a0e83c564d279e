"""Places over hosts: how many clients at a time have something, of all processes together.

A key ``PREFIX:{places1:SERVER:NAME}:`` is a hash: of each process the number of its clients, and
until when the number counts (milliseconds since 1970, by the store's clock). A process renews that;
the places of one that is gone are free when it does not. The field without a name says that a
process has a claim: it has less than its part, and was refused a place.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from typing import Any, TypeVar

from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster, end_tasks
from wirespeed.errors import ProtocolError

_T = TypeVar("_T")

LIFETIME = 10.0  # seconds for which a number or a claim counts
RENEWAL = 3.0  # seconds between two renewals

_READ = """
local at = redis.call('TIME')
local now = at[1] * 1000 + math.floor(at[2] / 1000)
local function read(text)
  local n, upto = string.match(text or '', '^(%d+) (%d+)$')
  if n and tonumber(upto) > now then return tonumber(n) end
end
local function keep(process, n)
  if n > 0 then
    redis.call('HSET', KEYS[1], process, string.format('%d %d', n, now + ARGV[2]))
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  else
    redis.call('HDEL', KEYS[1], process)
  end
end
local function count()
  local all, own, sum, claim = redis.call('HGETALL', KEYS[1]), 0, 0, 0
  for i = 1, #all, 2 do
    local n = read(all[i + 1])
    if not n then redis.call('HDEL', KEYS[1], all[i])
    elseif all[i] == '' then claim = 1
    else
      if all[i] == ARGV[1] then own = n end
      sum = sum + n
    end
  end
  return own, sum, claim
end
"""
# ARGV: process, milliseconds, limit, part. Returns how many clients have to leave before one more
# comes.
_TAKE = Script(
    _READ
    + """
local own, sum, claim = count()
local limit, is_short = tonumber(ARGV[3]), own < tonumber(ARGV[4])
if sum < limit and (is_short or sum + claim < limit) then
  keep(ARGV[1], own + 1)
  if is_short then keep('', 0) end
  return 0
end
if is_short then keep('', 1) end
return math.max(1, sum + 1 - limit)
"""
)
# ARGV: process, milliseconds.
_GIVE_BACK = Script(
    _READ
    + """
keep(ARGV[1], (read(redis.call('HGET', KEYS[1], ARGV[1])) or 1) - 1)
return 1
"""
)
# ARGV: process, milliseconds, number, or empty where that changes just now, limit, part. Returns
# whether a client of the process has to leave.
_RENEW = Script(
    _READ
    + """
keep(ARGV[1], tonumber(ARGV[3]) or read(redis.call('HGET', KEYS[1], ARGV[1])) or 0)
local own, sum, claim = count()
return (claim > 0 and own > tonumber(ARGV[5]) and sum >= tonumber(ARGV[4])) and 1 or 0
"""
)
_MS = round(LIFETIME * 1000)


class RedisPlaces:
    """The places of one server.

    Args:
        cluster: The store. It is held from the first client on, until `close`.
        name: The name of what has the server.
        server: The name of the server.
        is_local: Whether this process has its part while the store is away. If not, no more
            clients come then.
    """

    def __init__(self, cluster: Cluster, name: str, server: str, *, is_local: bool) -> None:
        self._cluster = cluster
        self._base = cluster.base("places1", name, server)
        self._is_local = is_local
        self._process = ""
        self._n = self._limit = self._part = 0
        self._is_claimed = False
        self._n_asked = 0  # commands that have no answer yet
        self._work: set[asyncio.Task[Any]] = set()
        self._renewing: asyncio.Task[None] | None = None

    def take(self, limit: int, part: int) -> asyncio.Future[int]:
        """Count one more client, if there are fewer than ``limit``. The result is how many have to
        leave before it is counted; 0: it is. ``part``: A process that has fewer clients, and is
        refused, has a claim to the next place."""
        self._limit, self._part = limit, part
        if self._renewing is None:
            self._process = secrets.token_hex(8)
            self._cluster.hold(self)
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return self._run(self._take(limit, part))

    def _run(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _take(self, limit: int, part: int) -> int:
        try:
            over = int(await self._ask(_TAKE, limit, part))
        except ProtocolError:  # it is away, or does not let us
            over = max(0, self._n + 1 - (part if self._is_local else 0))
        if not over:
            self._n += 1
        return over

    def give_back(self) -> None:
        """Count one client less."""
        self._n -= 1
        self._run(self._give_back())

    async def _give_back(self) -> None:
        with contextlib.suppress(ProtocolError):  # the next renewal says how many there are
            await self._ask(_GIVE_BACK)

    def is_claimed(self) -> bool:
        """Return whether a client has to leave, as the last renewal said: it says so once."""
        found, self._is_claimed = self._is_claimed, False
        return found

    async def _renew(self) -> None:
        """Tell how many clients there are, unless that changes just now."""
        while True:
            await asyncio.sleep(RENEWAL)
            n = "" if self._n_asked else self._n
            with contextlib.suppress(ProtocolError):
                self._is_claimed = bool(await self._ask(_RENEW, n, self._limit, self._part))

    async def _ask(self, script: Script, *args: str | int) -> Any:
        self._n_asked += 1
        try:
            return await self._cluster.run(script, self._base, self._process, _MS, *args)
        finally:
            self._n_asked -= 1

    async def close(self) -> None:
        """Let the connection go."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            await end_tasks([renewing])
        while self._work:  # a client that has left meanwhile gives back what it has taken
            await asyncio.wait(self._work)
        await self._cluster.release(self)
