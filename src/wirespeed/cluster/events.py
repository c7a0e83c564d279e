"""Events of streams in the store that hosts share.

The keys of one store, all in one hash slot:

* ``e:DIGEST``: the events of a stream, as a Redis stream: number ``n`` has the id ``n-0``, and the
  fields ``t`` (milliseconds since 1970) and ``d`` (the text). DIGEST stands for the stream's name.
* ``order``: all events in the order of their arrival, as a sorted set of
  ``t:size:n:DIGEST``.
* ``sizes``: bytes by DIGEST, and of all streams (the field ``*``); ``serial``: a number for
  ``order``.

Each key lives for ``max_age`` after its last event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Unpack

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster
from wirespeed.peer.http.event_store import OVERHEAD, EventLimits, LimitedEventStore

VERSION = "1"
AT_ONCE = 1000  # events that one command adds or drops, so that nobody waits long behind it

_DROP = """
local P = KEYS[1]
local function drop(member)
  local size, n, name = string.match(member, '^%d+:(%d+):(%d+):(.*)$')
  redis.call('ZREM', P .. 'order', member)
  if not size then return end
  redis.call('XDEL', P .. 'e:' .. name, n .. '-0')
  if redis.call('XLEN', P .. 'e:' .. name) == 0 then redis.call('DEL', P .. 'e:' .. name) end
  if redis.call('HINCRBY', P .. 'sizes', name, -size) <= 0 then
    redis.call('HDEL', P .. 'sizes', name)
  end
  redis.call('HINCRBY', P .. 'sizes', '*', -size)
end
local function member(name, event)
  local t, data = event[2][2], event[2][4]
  local n = string.match(event[1], '^(%d+)')
  return t .. ':' .. (#data + OVERHEAD) .. ':' .. n .. ':' .. name
end
local function now(given)
  if given ~= '' then return tonumber(given) end
  local at = redis.call('TIME')
  return at[1] * 1000 + math.floor(at[2] / 1000)
end
""".replace("OVERHEAD", str(OVERHEAD))

_APPEND = Script(
    _DROP
    + """
local name, first, age = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])
local most, most_of_stream, most_events = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local at = now(ARGV[7])
local since = string.format('%.0f', at)
local events = P .. 'e:' .. name
local size, serial = 0, redis.call('INCRBY', P .. 'serial', #ARGV - 7)
for i = 8, #ARGV do
  local data, n = ARGV[i], string.format('%.0f', first + i - 8)
  redis.call('XADD', events, n .. '-0', 't', since, 'd', data)
  local text = since .. ':' .. (#data + OVERHEAD) .. ':' .. n .. ':' .. name
  redis.call('ZADD', P .. 'order', serial + i - #ARGV, text)
  size = size + #data + OVERHEAD
end
local held = redis.call('HINCRBY', P .. 'sizes', name, size)
redis.call('HINCRBY', P .. 'sizes', '*', size)
while held > most_of_stream or redis.call('XLEN', events) > most_events do
  local first = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
  if not first then break end
  drop(member(name, first))
  held = tonumber(redis.call('HGET', P .. 'sizes', name) or '0')
end
while true do
  local oldest = redis.call('ZRANGE', P .. 'order', 0, 0)[1]
  if not oldest then break end
  local since = tonumber(string.match(oldest, '^(%d+)') or '0')
  local all = tonumber(redis.call('HGET', P .. 'sizes', '*') or '0')
  if since > at - age and all <= most then break end
  drop(oldest)
end
for _, key in ipairs({events, P .. 'order', P .. 'sizes', P .. 'serial'}) do
  redis.call('PEXPIRE', key, age + 1000)
end
return 1
""".replace("OVERHEAD", str(OVERHEAD))
)

_AFTER = Script(
    _DROP
    + """
return {
  string.format('%.0f', now(ARGV[3])),
  redis.call('XRANGE', P .. 'e:' .. ARGV[1], ARGV[2] .. '-0', '+')
}
"""
)

_FORGET = Script(
    _DROP
    + """
for _, event in ipairs(redis.call('XRANGE', P .. 'e:' .. ARGV[1], '-', '+', 'COUNT', ARGV[2])) do
  drop(member(ARGV[1], event))
end
return redis.call('EXISTS', P .. 'e:' .. ARGV[1])
"""
)


class RedisEventStore(LimitedEventStore):
    """Keeps events in the store that hosts share.

    Args:
        cluster: The store.
        name: The name of the server: servers of one name share their events.
        max_bytes, max_stream_bytes, max_stream_events, max_age: See `MemoryEventStore`.
        clock: Returns seconds since 1970; None for the clock of the store.

    Texts of events are in the store as they are; names of streams are digests. An exception of the
    store ends the resumption of a stream, as of any `EventStore`.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        clock: Callable[[], float] | None = None,
        **limits: Unpack[EventLimits],
    ) -> None:
        super().__init__(**limits)
        self.cluster = cluster
        self.store_timeout = cluster.store_timeout
        self._base = cluster.base(f"events{VERSION}", name)
        self._clock = clock

    async def append(self, stream: str, n: int, data: bytes) -> None:
        """See `EventStore`. Events that are appended in one turn of the loop, of all streams, take
        one round trip."""
        await self.append_all(stream, n, (data,))

    async def append_all(self, stream: str, n: int, events: Sequence[bytes]) -> None:
        """Keep the events number ``n``, ``n + 1`` and so on: as many `append`, but one command of
        the store for up to 1,000 events."""
        over = [i for i, data in enumerate(events) if len(data) + OVERHEAD > self.max_stream_bytes]
        if over:
            await self.forget(stream)  # as if the event pushed all others out, and then itself
        self.cluster.hold(self)
        for i in range(over[-1] + 1 if over else 0, len(events), AT_ONCE):
            await self.cluster.run(
                _APPEND,
                self._base,
                _digest(stream),
                n + i,
                self.max_bytes,
                self.max_stream_bytes,
                self.max_stream_events,
                round(self.max_age * 1000),
                self._now(),
                *events[i : i + AT_ONCE],
            )

    async def after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        """See `EventStore`."""
        self.cluster.hold(self)
        now, events = await self.cluster.run(_AFTER, self._base, _digest(stream), n, self._now())
        oldest = int(now) - self.max_age * 1000
        found: list[tuple[int, bytes]] = []
        try:
            for event_id, (_, at, _, data) in events:
                if int(at) > oldest:
                    found.append((int(event_id.partition(b"-")[0]), data))
        except ValueError:
            self.cluster.log_refused("an event", "another program wrote it")
            return None
        if not found or found[0][0] > n + 1 or found[-1][0] - found[0][0] >= len(found):
            return None  # one was dropped, or lost while the store was away
        return [event for event in found if event[0] > n]

    async def forget(self, stream: str) -> None:
        """See `EventStore`."""
        self.cluster.hold(self)
        while await self.cluster.run(_FORGET, self._base, _digest(stream), AT_ONCE):
            pass

    async def close(self) -> None:
        """Let the connection go. The events stay in the store."""
        await self.cluster.release(self)

    def _now(self) -> str:
        return "" if self._clock is None else f"{self._clock() * 1000:.0f}"


def _digest(stream: str) -> str:
    """The digest of a stream's name, which the keys of the store have in its place."""
    return hashlib.sha256(stream.encode()).hexdigest()[:32]


set_public_home(globals())
