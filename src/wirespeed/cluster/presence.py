"""The living hosts of a deployment, and those that may go on with what they own.

Each living host has an entry in the store, which each of its workers renews every second. A host
is a *member* by its name and its URL. The hosts whose entries live at a renewal are its *view*: the
store numbers the views, and each entry says which views its workers can have.

A host owns what it owns for `LEASE` after a renewal, and its entry lives longer: `LIFETIME`. While
the store is gone, the lease goes on as long as a strict majority of the view says that it does not
reach the store, neither by itself nor through others, for ``without_store`` seconds at most. Only a
host with a lease asks for that consent. A host that reaches the store takes another one for gone
when, in each possible view, the hosts whose consent may hold yet are not a majority.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster
from wirespeed.errors import StoreUnavailable
from wirespeed.peer.http.sessions import Lease
from wirespeed.transport.http.options import check_host_url
from wirespeed.transport.net.host_links import HostLink, HostLinks
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.cluster")

RENEWAL = 1.0  # seconds between two renewals of an entry
HURRY = 0.2  # seconds, where the store is reached again, and between two counts of hosts
LIFETIME = 4.0  # seconds of an entry
LEASE = 3.5  # seconds after a renewal in which no other host takes this one for gone
ANSWERED_IN = 0.4  # seconds for the answers of hosts that are counted
MAX_GONE = 1024  # hosts that are known to be gone
# seconds in which it is decided whether a host that was killed is gone
DECIDED_IN = LIFETIME + RENEWAL + HURRY + ANSWERED_IN
GO_ON, LOOK = b"go on", b"look"  # questions of hosts to each other
_ANSWER = re.compile(rb"(up|told|down) ([0-9]{1,15})")

# ARGV: member, worker, number of workers, instance, URL, data and number of the worker's view,
# milliseconds of life (0: the host leaves), of ``without_store`` and of an entry at its end. An
# entry is "end without_store oldest newest seen instance URL": the numbers of views that its
# workers can have, and those that they had, by worker (0: not known; LEFT: it has left). Returns
# whether this host has its name, what changes when the store loses its data, for how many
# milliseconds it has not changed, the number of the view, in how many milliseconds the first entry
# of another host ends, and the members and URLs of all other hosts that live. A process with the
# same name and URL takes the place of an earlier one.
_RENEW = Script(
    """
local key, views = KEYS[1] .. 'hosts', KEYS[1] .. 'views'
local member, worker, instance, life = ARGV[1], ARGV[2] + 1, ARGV[4], tonumber(ARGV[8])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function number(n) return string.format('%.0f', n) end
redis.call('HSETNX', key, '', number(now) .. ' ' .. instance)
local data = redis.call('HGET', key, '')
local name, own, oldest, living = string.match(member, '^[^@]*'), '', math.huge, {}
local found = {1, data, now - (tonumber(string.match(data, '^%d+')) or now), 0, 9000000}
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local other = all[i]
  if other ~= '' then
    local ends, kept, first, url =
      string.match(all[i + 1], '^(%d+) (%d+) (%d+) %d+ %S+ %S+ (%S+)$')
    if not ends or ends + kept + ARGV[10] <= now then
      redis.call('HDEL', key, other)
    else
      oldest = math.min(oldest, tonumber(first))
      if other == member then
        own = all[i + 1]
      elseif tonumber(ends) > now then
        living[#living + 1] = other
        found[#found + 1] = other
        found[#found + 1] = url
        found[5] = math.min(found[5], ends - now)
        if string.match(other, '^[^@]*') == name then found[1] = 0 end
      end
    end
  end
end
local seen, ends, had, by = {}, string.match(own, '^(%d+) %d+ %d+ %d+ (%S+) (%S+) ')
if by == instance then
  for one in string.gmatch(had, '%d+') do seen[#seen + 1] = tonumber(one) end
end
while #seen < tonumber(ARGV[3]) do seen[#seen + 1] = 0 end
if life == 0 then seen[worker] = LEFT end
local stays = math.min(unpack(seen)) < LEFT
if found[1] == 1 and stays then
  living[#living + 1] = member
elseif found[1] == 1 then
  redis.call('HDEL', key, member)
end
table.sort(living)
local view = table.concat(living, ' ')
local newest = tonumber(redis.call('HGET', views, 'newest') or 0)
if newest == 0 or redis.call('HGET', views, number(newest)) ~= view then
  newest = newest + 1
  redis.call('HSET', views, 'newest', newest, number(newest), view)
  local first = tonumber(redis.call('HGET', views, 'oldest') or 1)
  while first < math.min(oldest, newest) do
    redis.call('HDEL', views, number(first))
    first = first + 1
  end
  redis.call('HSET', views, 'oldest', number(first))
end
found[4] = newest
if found[1] == 1 and stays then
  if life > 0 then
    ends = number(now + life)
    seen[worker] = (ARGV[6] == '' and newest) or (ARGV[6] == data and tonumber(ARGV[7])) or 0
  end
  local least = number(math.min(unpack(seen)))
  for i = 1, #seen do seen[i] = number(seen[i]) end
  redis.call('HSET', key, member, table.concat({ends or number(now), ARGV[9], least,
    number(newest), table.concat(seen, ','), instance, ARGV[5]}, ' '))
end
local kept = ARGV[9] + ARGV[10] + life
for _, one in ipairs({key, views}) do
  if redis.call('PTTL', one) < kept then redis.call('PEXPIRE', one, number(kept)) end
end
return found
""".replace("LEFT", "9000000000000000")
)
# ARGV: member. Returns the time, for how many milliseconds the store has not lost its data, all
# members and their entries, and the views that the member can have.
_LOOK = Script(
    """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local data = redis.call('HGET', KEYS[1] .. 'hosts', '') or ''
local entry = redis.call('HGET', KEYS[1] .. 'hosts', ARGV[1]) or ''
local age = now - (tonumber(string.match(data, '^%d+')) or now)
local found = {now, age, redis.call('HGETALL', KEYS[1] .. 'hosts')}
local oldest, newest = string.match(entry, '^%d+ %d+ (%d+) (%d+) ')
for n = tonumber(oldest or 0), tonumber(newest or -1) do
  found[#found + 1] = redis.call('HGET', KEYS[1] .. 'views', string.format('%.0f', n)) or ''
end
return found
"""
)


class _Count(NamedTuple):
    """The state of a host, as the store and the other hosts say it."""

    is_gone: bool
    left: float  # seconds until the end of its entry; below 0 after it


class _View(NamedTuple):
    """The hosts that lived at a renewal of this one."""

    data: bytes  # names the data of the store
    number: int
    others: dict[str, str]  # their URLs, by member


@lru_cache(4096)
def member_of(name: str, url: str) -> str:
    """Return what stands for a host in the store: its name, and a digest of its URL."""
    return f"{name}@{hashlib.sha256(url.encode()).hexdigest()[:8]}"


class Presence:
    """The living hosts, and the lease of this one.

    Args:
        cluster: The store.
        base: Of the keys.
        url: Of this host.
        links: To the others.
        without_store: The most seconds for which the lease goes on without the store.
        on_over: Called after the end of a lease, before the next one begins: others may own now
            what this host owned.
        on_data_lost: Called when the store has lost its data.

    Attributes:
        url: As above.
        name: Of this host.
        member: This host in the store.
        worker, n_workers: The number of this process among those of the host.
        hosts: The URLs of the others, by their names.
        lease: Lasts while no other host can have what this one owns.
        is_cut_off: This host and a majority of the others do not reach the store, and none that
            answers does.
    """

    def __init__(
        self,
        cluster: Cluster,
        base: str,
        url: str,
        links: HostLinks,
        *,
        without_store: float,
        on_over: Callable[[], None],
        on_data_lost: Callable[[], None],
    ) -> None:
        self.url = url
        self.name = self.member = ""
        self.worker = 0
        self.n_workers = 1
        self.hosts: dict[str, str] = {}
        self._cluster = cluster
        self._base = base
        self._links = links
        self._without_store = without_store
        self._on_over = on_over
        self._on_data_lost = on_data_lost
        self._instance = secrets.token_urlsafe(12)  # the same in all workers of a host
        self._quiet = RateLimitedLog(logger, lines=1, seconds=60.0)
        self._view = _View(b"", 0, {})
        self._renewed = -math.inf
        self.lease = Lease()
        self._lease = -math.inf  # since when: a renewal, or an answer of the others
        self._unsure_until = -math.inf  # whether hosts that have no entry are gone
        self._lost_until = -math.inf  # until then, records may be written again
        self._consented = time.monotonic()  # when this host last let one go on
        self.is_cut_off = False
        self._lacks_shard = False  # of a Redis Cluster, the one with the hosts, others answer
        self._is_told = False  # without the store: another host said last that it reaches it
        self._renewing: asyncio.Task[None] | None = None  # which has not begun
        self._counts: dict[str, asyncio.Task[_Count]] = {}  # by member
        self._decisions: dict[str, asyncio.Task[bool]] = {}  # by member
        self._counted: dict[str, float] = {}  # URLs of hosts that were asked for it, and when
        self._gone: dict[str, bytes] = {}  # the last entries of members that are gone

    def begin(self, name: str) -> None:
        """Be a host with this name."""
        self.name = name
        self.member = member_of(name, self.url)
        self._consented = time.monotonic()  # a process before this one may have

    def share(self, worker: int, n: int) -> None:
        """This process is the worker with this number, of n."""
        self.worker, self.n_workers = worker, n

    def _begin_lease(self, since: float) -> None:
        self._lease = since
        self.lease.last_until(min(since + LEASE, self._renewed + self._without_store))

    @property
    def process(self) -> str:
        """This process, as records name the owner of a session."""
        return f"{self.member}.{self.worker}"

    @property
    def is_unsure(self) -> bool:
        """Whether a host may live though it has no entry: the store has lost its data."""
        return time.monotonic() < self._unsure_until

    @property
    def lacks_records(self) -> bool:
        """Whether the store has lost its data, and other hosts may still have to write their
        records again."""
        return time.monotonic() < self._lost_until

    def url_of(self, member: str) -> str | None:
        """Return the URL of another host that lives; None: it does not."""
        url = self.hosts.get(member.partition("@")[0], "")
        return url if member == member_of(member.partition("@")[0], url) else None

    async def leave(self) -> None:
        """Take this process out of the store. StoreUnavailable, ProtocolError as of
        `Cluster.run`."""
        self.hosts = {}
        for task in self._decisions.values():
            task.cancel()
        if tasks := [*self._decisions.values(), *self._counts.values()]:
            await asyncio.wait(tasks)
        await self._run_renewal(0.0)

    async def renew(self) -> float:
        """Renew the entry of this host, and read those of the others. Return in how many seconds
        that is due again: a host whose entry ends is noticed then. StoreUnavailable, ProtocolError
        as of `Cluster.run`."""
        since = time.monotonic()
        try:
            is_own, data, age, number, end, *answer = await self._run_renewal(LIFETIME)
        except StoreUnavailable:
            self._lacks_shard = self._cluster.state == "up"
            raise
        self._lacks_shard = self._is_told = self.is_cut_off = False
        others = self._valid(zip(answer[::2], answer[1::2], strict=True))
        if not self.lease.lasts and self._renewed > 0:
            logger.warning(
                "no other host was sure of this one for %.1f s: its sessions end here, and can be "
                "adopted",
                since - self._lease,
            )
            self._on_over()
        if self._view.data not in (b"", data):
            logger.warning("the store has lost what it knew of hosts and sessions")
            self._lost_until = since + LIFETIME
            self._on_data_lost()
        if is_own:
            self._renewed = max(self._renewed, since)
            self._begin_lease(max(self._lease, since))
            if data != self._view.data or number >= self._view.number:
                self._view = _View(data, number, others)
        else:
            self._quiet.log(
                logging.WARNING,
                "another host has the name %s, or had it until now: set HttpOptions.name",
                self.name,
            )
        self._unsure_until = max(self._unsure_until, since + LIFETIME - age / 1000)
        hosts = {member.partition("@")[0]: url for member, url in others.items()}
        if self.is_unsure:
            hosts = self.hosts | hosts  # those that live come back
        for name in sorted(self.hosts.keys() ^ hosts.keys()):
            logger.info("host %s %s", name, "lives" if name in hosts else "has left, or is lost")
        for name, url in hosts.items():
            if name in self.hosts:  # it listens by now; when it drains, it does no more
                self._links.to(url, name).open()
        self.hosts = hosts
        for url in [url for url, when in self._counted.items() if since - when > LIFETIME]:
            del self._counted[url]
        await self._links.close(but={self.url, *hosts.values(), *self._counted})
        return min(RENEWAL, int(end) / 1000)

    async def renew_together(self) -> None:
        """As `renew`, once for all that ask in one turn of the loop."""
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew_for_all())
        await asyncio.shield(self._renewing)

    async def _renew_for_all(self) -> None:
        self._renewing = None  # who asks from now on may have read something later
        await self.renew()

    async def _run_renewal(self, life: float) -> list[Any]:
        found: list[Any] = await self._cluster.run(
            _RENEW,
            self._base,
            self.member,
            self.worker,
            self.n_workers,
            self._instance,
            self.url,
            self._view.data,
            self._view.number,
            _ms(life),
            _ms(self._without_store),
            _ms(2 * LIFETIME),
        )
        return found

    def _valid(self, entries: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
        others = {}
        for member, url in entries:
            try:
                name, where = member.decode().partition("@")[0], url.decode()
                check_host_url(where)
                if member_of(name, where).encode() != member:
                    raise ValueError("its name is not that of its URL")
                others[member.decode()] = where
            except ValueError as exc:
                self._cluster.log_refused("the entry of a host", str(exc))
        return others

    # -- without the store -------------------------------------------------------------------------

    async def go_on(self) -> bool:
        """Go on without the store, if a majority of the hosts does not reach it either, nor any
        that is asked. Return whether another host reaches it."""
        asked = time.monotonic()
        question = GO_ON if self.lease.lasts else LOOK
        others = await self._ask(question, self._view.others, RENEWAL)
        self._is_told = any(word == b"up" for word, _ in others.values())
        own = await self._ask(question, {self.member: self.url}, RENEWAL)
        words = [word for word, _ in (others | own).values()]
        self._is_told = b"up" in words  # the first worker may reach it
        is_majority = 2 * words.count(b"down") > 1 + len(self._view.others)
        self.is_cut_off = is_majority and not self._is_told
        if self.is_cut_off and question == GO_ON and self.lease.lasts:
            self._begin_lease(asked)
        return self._is_told

    async def _ask(
        self, question: bytes, urls: Mapping[str, str], seconds: float
    ) -> dict[str, tuple[bytes, float]]:
        """Return the words of hosts that answer in time, and for how many seconds they have let no
        host go on, by member. The first worker answers for this host."""
        asked = {
            member: self._link_to(member, url).ask(question, seconds)
            for member, url in urls.items()
            if self.worker or member != self.member
        }
        said = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        if len(asked) < len(urls):
            said[self.member] = self.state(question)
        answers = {member: _ANSWER.fullmatch(answer or b"") for member, answer in said.items()}
        return {member: (one[1], int(one[2]) / 1000) for member, one in answers.items() if one}

    def _link_to(self, member: str, url: str) -> HostLink:
        return self._links.to(url, member.partition("@")[0])

    def state(self, question: bytes) -> bytes:
        """Return the answer to a host: ``up``, if this one reaches the store; ``told``, if another
        one does that it reaches; else ``down``, which lets a host that asks `GO_ON` go on for
        `LEASE`. Milliseconds follow in which this one has let no host go on."""
        is_up = self._cluster.state == "up" and not self._lacks_shard
        word = b"up" if is_up else b"told" if self._is_told else b"down"
        now = time.monotonic()
        if word == b"down" and question == GO_ON:
            self._consented = now
        return b"%b %d" % (word, _ms(now - self._consented))

    # -- hosts without a living entry --------------------------------------------------------------

    async def decided(self, member: str) -> bool:
        """Wait until a host that does not answer is gone, or answers again, or has no entry any
        more. Return False: none of this is so a second after the time at which its entry was to
        end. StoreUnavailable, ProtocolError as of `Cluster.run`."""
        task = self._decisions.get(member)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._decide(member))
            self._decisions[member] = task
            task.add_done_callback(lambda _: self._decisions.pop(member, None))
        return await asyncio.shield(task)

    async def _decide(self, member: str) -> bool:
        until: float | None = None
        lived = self.url_of(member) is not None
        while not (count := await self._counted_of(member)).is_gone:
            if until is None:
                until = time.monotonic() + count.left + RENEWAL
            url = self.url_of(member)
            if url is None:
                if lived:
                    return True
            elif await self._link_to(member, url).ask(LOOK, ANSWERED_IN) is not None:
                return True
            if time.monotonic() > until:
                return False
            await asyncio.sleep(HURRY)
        return True

    async def not_gone(self, name: str) -> str | None:
        """Return another host with a name that may own something; None: there is none.
        StoreUnavailable, ProtocolError as of `Cluster.run`."""
        _, _, words = await self._cluster.run(_LOOK, self._base, "")
        urls = self._urls_of(dict(zip(words[::2], words[1::2], strict=True)))
        known = [one for one in urls if one.partition("@")[0] == name and one != self.member]
        are_gone = zip(known, await asyncio.gather(*map(self.is_gone, known)), strict=True)
        return next((member for member, is_gone in are_gone if not is_gone), None)

    async def is_gone(self, member: str) -> bool:
        """Return whether a host without a living entry owns nothing more. StoreUnavailable,
        ProtocolError as of `Cluster.run`."""
        return (await self._counted_of(member)).is_gone

    async def _counted_of(self, member: str) -> _Count:
        task = self._counts.get(member)
        if task is None:
            loop = asyncio.get_running_loop()
            task = self._counts[member] = loop.create_task(self._count(member))
            task.add_done_callback(lambda _: loop.call_later(HURRY, self._counts.pop, member, None))
        return await asyncio.shield(task)

    async def _count(self, member: str) -> _Count:
        now, age, words, *views = await self._cluster.run(_LOOK, self._base, member)
        entries = dict(zip(words[::2], words[1::2], strict=True))
        entry = entries.get(member.encode())
        if not entry:  # nobody knows which hosts it knew
            return _Count(age > _ms(self._without_store + LIFETIME), -math.inf)
        ends, without_store, *_ = entry.decode().split(" ")
        left = (int(ends) - now) / 1000
        if self._gone.get(member) == entry:
            return _Count(True, left)
        if left > 0:
            return _Count(False, left)
        if now < int(ends) + int(without_store):
            possible = [set(view.decode().split()) for view in views]
            urls = self._urls_of(entries) | {self.member: self.url}
            sure = await self._sure(set().union(*possible), member, urls)
            counts = [bool(view) and 2 * len(view - sure) <= len(view) for view in possible]
            if not counts or not all(counts):
                return _Count(False, left)
        if len(self._gone) > MAX_GONE:
            self._gone.clear()
        self._gone[member] = entry  # it owns nothing more before it has another entry
        return _Count(True, left)

    def _urls_of(self, entries: dict[bytes, bytes]) -> dict[str, str]:
        return self._valid((one, text.split(b" ")[-1]) for one, text in entries.items() if one)

    async def _sure(self, members: set[str], gone: str, urls: dict[str, str]) -> set[str]:
        """Return those of some members whose consent lets nobody go on; none, if the one that seems
        to be gone reaches the store."""
        asked = time.monotonic()
        some = {member: urls[member] for member in members & urls.keys()}
        self._counted |= dict.fromkeys(some.values(), asked)
        answers = await self._ask(LOOK, some, ANSWERED_IN)
        if gone in answers and answers[gone][0] == b"up":
            return set()
        over = LEASE + time.monotonic() - asked  # the answers are of any time since then
        return {member for member, (_, since) in answers.items() if since > over}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
