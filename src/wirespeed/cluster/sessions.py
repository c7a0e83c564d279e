"""Sessions over HTTP that any host serves: a request of a session that another host has is passed
on to that host, and its response is passed back; a session whose host is gone is adopted.

Each living host has an entry in the store, which it renews every second: its name, with which the
ids of its sessions begin, and the URL at which the other hosts reach it. Each host reads all
entries with the same command. So no request waits for the store.

A session has one owner at most. An entry lives for `LIFETIME` after its renewal, and only then may
others adopt. A host serves sessions that have a record for `LEASE` after a renewal, which is less.
Where the store is gone for a majority of the hosts, nobody can adopt, and the lease goes on. A host
that comes back after the end of its lease drops its sessions, and adopts those that are asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import secrets
import ssl as ssl_
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Script
from wirespeed.cluster.passing import HOSTS_PATH, HostRequests
from wirespeed.cluster.records import VERSION, SessionRecord, SessionRecords, SessionState
from wirespeed.cluster.store import MIN_SECRET, Cluster
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.transport.gate import Admission
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.options import check_host_url
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.options import HttpRequest

logger = logging.getLogger("wirespeed.cluster")

RENEWAL = 1.0  # seconds between two renewals of an entry
HURRY = 0.2  # seconds, where the store is reached again
LIFETIME = 4.0  # seconds of an entry
LEASE = 3.5  # seconds after a renewal in which no other host takes this one for gone
MAX_ELSEWHERE = 65_536  # sessions that have moved to another host, and where they are
AT_ONCE = 256  # sessions in one round trip

# ARGV: name, instance, URL, milliseconds of life (0: the host leaves). Returns whether this host
# has the name, what changes when the store loses its data, for how many milliseconds it has not
# changed, and the names and URLs of all other hosts that live. A process with the same name and URL
# takes the place of an earlier one.
_RENEW = Script(
    """
local key = KEYS[1] .. 'hosts'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSETNX', key, '', string.format('%d %s', now, ARGV[2]))
local data = redis.call('HGET', key, '')
local found = {1, data, now - (tonumber(string.match(data, '^%d+')) or now)}
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local life, instance, url = string.match(all[i + 1], '^(%d+) (%S+) (%S+)$')
  if all[i] ~= '' then
    if not life or tonumber(life) <= now then
      redis.call('HDEL', key, all[i])
    elseif all[i] ~= ARGV[1] then
      found[#found + 1] = all[i]
      found[#found + 1] = url
    elseif instance ~= ARGV[2] and url ~= ARGV[3] then
      found[1] = 0
    end
  end
end
if found[1] == 1 and ARGV[4] == '0' then
  redis.call('HDEL', key, ARGV[1])
elseif found[1] == 1 then
  redis.call('HSET', key, ARGV[1], string.format('%d %s %s', now + ARGV[4], ARGV[2], ARGV[3]))
  redis.call('PEXPIRE', key, ARGV[4])
end
return found
"""
)


class SessionEndpoint(Protocol):
    """What has the sessions of one path: `wirespeed.peer.http.endpoint.StreamableHttp`."""

    @property
    def options(self) -> HttpOptions: ...

    def used_since(self, when: float) -> list[HttpSession]:
        """The sessions that were used after a time of the monotonic clock."""

    def state_of(self, session: HttpSession) -> tuple[bytes, ...] | None:
        """The messages that give a new connection the state of a session; None: it cannot move."""

    def drop_session(self, session: HttpSession) -> None:
        """End a session here, which another process has now."""

    def drop_sessions(self) -> None:
        """End the sessions here that others may have now."""


class SessionHosts:
    """The hosts of a deployment, for the sessions of one server: the ``directory`` of
    `HttpOptions`.

    A request of a session that another host has is passed on to that host. A session whose host is
    gone is adopted: made again from its record, with its revision, capabilities, principal, log
    level and subscriptions, and with the streams that the event store has.

    Args:
        cluster: The store that the hosts share.
        name: The name of the server, the same on all hosts, where it has the same paths.
        url: Where the other hosts reach this one: ``http://host:port`` or ``https://host:port`` of
            the listener, without a path.
        secret: The same bytes on all hosts, at least 16, that nobody else knows. What a host passes
            on is signed with a key that is derived from the secret; the store has neither ids of
            sessions nor principals, but digests with that key.
        ssl: The TLS context for the other hosts; by default it trusts the authorities of the
            system.
        limits: `Limits.max_message` bounds a response and an event.

    Attributes:
        path: The path at which a host answers the others.

    Raises:
        ValueError: An argument is wrong.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        url: str,
        *,
        secret: bytes,
        ssl: ssl_.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        check_host_url(url)
        if len(secret) < MIN_SECRET:
            raise ValueError(f"the secret of SessionHosts has at least {MIN_SECRET} bytes")
        self.cluster = cluster
        self.url = url
        self.path = HOSTS_PATH
        self._base = cluster.base(f"sessions{VERSION}", name)
        self._key = hmac.digest(secret, b"wirespeed session hosts 1\0" + name.encode(), "sha256")
        self._records = SessionRecords(cluster, name, self._key)
        self._instance = secrets.token_urlsafe(12)  # the same in all workers of a host
        self._requests = HostRequests(self._key, ssl, limits)
        self._quiet = RateLimitedLog(logger)
        self._name = ""
        self._worker = 0
        self._n_workers = 1
        self._endpoints: set[SessionEndpoint] = set()
        self._hosts: dict[str, str] = {}  # the URLs of the others, by their names
        self._elsewhere: OrderedDict[str, str] = OrderedDict()  # owners of sessions that moved
        self._saved: dict[str, tuple[SessionRecord, float]] = {}  # and when
        self._renewed = -math.inf
        self._data = b""  # names the data of the store
        self._unsure_until = -math.inf  # whether hosts that have no entry are gone
        self._looked = -math.inf  # at the sessions that were used
        self._announced = asyncio.Event()  # or it was tried
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._over: dict[str, SessionRecord] = {}  # sessions whose records go
        self._released: dict[str, SessionRecord] = {}  # sessions that others may adopt

    # -- hosts -------------------------------------------------------------------------------------

    def join(self, endpoint: SessionEndpoint, name: str) -> None:
        """Be a host with this name while an endpoint serves. Call it on the loop. ValueError:
        another endpoint of this process has another name."""
        if self._endpoints and name != self._name:
            raise ValueError("the listeners of one host have one name: set HttpOptions.name")
        self._endpoints.add(endpoint)
        self._name = name
        if self._task is None:
            self.cluster.hold(self)
            self._task = asyncio.get_running_loop().create_task(self._renew_always())

    def share(self, worker: int, n: int) -> None:
        """This process is the worker with this number, of n."""
        self._worker = worker
        self._n_workers = n

    async def announced(self) -> None:
        """Wait until the others can find this host, or the store does not answer."""
        await self._announced.wait()

    async def leave(self, endpoint: SessionEndpoint) -> None:
        """An endpoint has ended. With the last one the host leaves, and others may adopt its
        sessions at once."""
        self._endpoints.discard(endpoint)
        if self._endpoints or self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        self._hosts = {}
        await self._requests.close()
        if self._work:
            await asyncio.wait(self._work)
        with contextlib.suppress(StoreUnavailable, ProtocolError):
            await self._renew(0.0)
        await self.cluster.release(self)

    @property
    def has_lease(self) -> bool:
        """Whether no other host can have adopted the sessions of this one."""
        return time.monotonic() - self._renewed < LEASE

    async def _renew_always(self) -> None:
        due = 0.0
        while True:
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + RENEWAL
                    await self._renew(LIFETIME)
                await self._save_used()
            except StoreUnavailable:  # the cluster logs it
                if await self._others_reach_store():
                    self.cluster.hurry()
                    due = time.monotonic() + HURRY
            except ProtocolError as exc:
                self._quiet.log(logging.ERROR, "this host is not known to the others: %s", exc)
            self._announced.set()
            self._opened.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, due - time.monotonic())):
                    await self._opened.wait()

    async def _renew(self, life: float) -> None:
        """Renew or remove the entry of this host, and read those of the others."""
        since = time.monotonic()
        is_own, data, age, *answer = await self.cluster.run(
            _RENEW, self._base, self._name, self._instance, self.url, round(life * 1000)
        )
        hosts = self._valid(zip(answer[::2], answer[1::2], strict=True))
        if not self.has_lease and self._renewed > 0:
            logger.warning(
                "no other host was sure of this one for %.1f s: its sessions end here, and can be "
                "adopted",
                since - self._renewed,
            )
            for endpoint in self._endpoints:
                endpoint.drop_sessions()  # others may have adopted them
        if self._data not in (b"", data):
            logger.warning("the store has lost what it knew of hosts and sessions")
            self._looked = -math.inf
            self._saved = {id: (record, -math.inf) for id, (record, _) in self._saved.items()}
        self._data = data
        if is_own:
            self._renewed = since
        else:
            self._quiet.log(
                logging.WARNING,
                "another host has the name %s, or had it until now: set HttpOptions.name",
                self._name,
            )
        self._unsure_until = max(self._unsure_until, since + LIFETIME - age / 1000)
        if since < self._unsure_until:
            hosts = self._hosts | hosts  # those that live come back
        self._hosts = hosts
        await self._requests.close(but=hosts.values())

    def _valid(self, entries: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
        hosts = {}
        for name, url in entries:
            try:
                check_host_url(url.decode())
                hosts[name.decode()] = url.decode()
            except ValueError as exc:
                self.cluster.log_refused("the entry of a host", str(exc))
        return hosts

    async def _others_reach_store(self) -> bool:
        """Ask the other hosts whether they reach the store. If none does, and a majority of all
        hosts is reached, nobody adopts any session: those of this host go on."""
        asked = time.monotonic()
        answers = await asyncio.gather(*map(self._reaches_store, set(self._hosts.values())))
        n_lost = 1 + answers.count(False)
        if True not in answers and 2 * n_lost > 1 + len(answers) and self.has_lease:
            self._renewed = asked
        return True in answers

    async def _reaches_store(self, url: str) -> bool | None:
        """Return whether another host reaches the store; None: it does not answer."""
        said = await self._requests.ask(url, RENEWAL / 2)
        return None if said is None else {b"up": True, b"down": False}.get(said)

    def state(self) -> bytes:
        """Return what other hosts are told: ``up`` while the store answers, else ``down``. Their
        sessions may go on then, so this host does not take them for gone at the store's return."""
        if self.cluster.state == "up":
            return b"up"
        self._unsure_until = time.monotonic() + LIFETIME
        return b"down"

    # -- whose session it is -----------------------------------------------------------------------

    @property
    def _own(self) -> str:
        return f"{self._name}.{self._worker}"

    def _owner_of(self, session_id: str) -> str:
        """The process that has a session, as far as that is known without the store."""
        return self._elsewhere.get(session_id) or session_id.rpartition(".")[0]

    def host_of(self, session_id: str, headers: Headers) -> str | int | None:
        """Return the URL of the other living host that has a session, or the number of the other
        worker of this host, as far as that is known without the store; None: it is not.
        ``headers``: Of the request, in which another host may name the worker."""
        name, _, worker = self._owner_of(session_id).partition(".")
        number = self._requests.worker_of(headers)
        if number is None and name != self._name:
            return self._hosts.get(name)
        if number is None:
            number = int(worker)
        return number if number != self._worker and number < self._n_workers else None

    def _lives(self, owner: str) -> bool:
        name, _, worker = owner.partition(".")
        return name in self._hosts or (name == self._name and int(worker) < self._n_workers)

    def may_serve(self, session_id: str) -> bool:
        """Return whether this process may serve a session that it has: no other can have adopted
        it."""
        return self.has_lease or session_id not in self._saved

    async def find(
        self, session_id: str, principal: bytes | None, lost_by: str | None = None
    ) -> SessionRecord | bool:
        """Find a session that this process does not have. Return the record of a session that this
        process has adopted just now; True: another process has it, see `host_of`; False: nobody
        has. StoreUnavailable as of `Cluster.run`.

        ``lost_by``: A process that says that it does not have the session.
        """
        self._elsewhere.pop(session_id, None)
        while True:
            record = await self._records.find(session_id)
            # afterwards: a host that is not there now has lost all that it owned before
            await self._renew(LIFETIME)
            owner = session_id.rpartition(".")[0] if record is None else record.owner
            if record is not None and record.state.who != self._records.who(principal):
                return False
            if not self._lives(owner) and owner and time.monotonic() < self._unsure_until:
                raise StoreUnavailable
            if record is None:  # its host may be new, or write it later
                return owner.partition(".")[0] in self._hosts and owner != lost_by
            if owner not in (self._own, lost_by) and self._lives(owner):
                self._elsewhere[session_id] = owner
                if len(self._elsewhere) > MAX_ELSEWHERE:
                    self._elsewhere.popitem(last=False)
                return True
            taken = await self._records.take(session_id, record, self._own)
            if taken is not None:
                self._saved[session_id] = taken, time.monotonic()
                return taken

    # -- records -----------------------------------------------------------------------------------

    def opened(self) -> None:
        """A session was opened: its record is written soon."""
        self._opened.set()

    def ended(self, session_id: str, *, for_good: bool) -> None:
        """A session has ended here. ``for_good``: no other host may go on with it; else any may."""
        found = self._saved.pop(session_id, None)
        if found is None:
            return
        if for_good:
            self._over[session_id] = found[0]
            if len(self._over) > MAX_ELSEWHERE:
                del self._over[next(iter(self._over))]
            self._run(self._forget(session_id, found[0]))
        else:
            self._released[session_id] = found[0]
            if len(self._released) == 1:
                self._run(self._release())

    def dropped(self, session_id: str) -> None:
        """A session was given up here, which another process may have now."""
        self._saved.pop(session_id, None)

    def draining(self, endpoint: SessionEndpoint) -> None:
        """The sessions of an endpoint end soon. Each takes its state of now along."""
        now = time.monotonic()
        for session in endpoint.used_since(self._looked):
            record = self._due(endpoint, session, now)
            if record is not None and session.id in self._saved:
                self._saved[session.id] = record, -math.inf

    async def _release(self) -> None:
        """Let others adopt sessions, a number of them at a time."""
        while self._released:
            some = list(islice(self._released.items(), AT_ONCE))
            with contextlib.suppress(StoreUnavailable, ProtocolError):  # they may when it is gone
                await asyncio.gather(*(self._records.release(*one) for one in some))
            for id, _ in some:
                del self._released[id]

    def has_ended(self, session_id: str) -> bool:
        """Return whether a session has ended here for good, which the store may not know yet."""
        return session_id in self._over

    async def _forget(self, session_id: str, record: SessionRecord) -> None:
        try:
            await self._records.forget(session_id, record)
        except StoreUnavailable:
            return  # it is tried again
        except ProtocolError:
            pass  # the record ends by itself
        self._over.pop(session_id, None)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _save_used(self) -> None:
        """Save the sessions that were used since the last time, and have another state or a record
        that ends soon."""
        if self.cluster.state == "down":
            return  # nothing is written
        since, now = self._looked, time.monotonic()
        saves = [self._forget(*one) for one in self._over.items()]
        for endpoint in self._endpoints:
            for session in endpoint.used_since(since):
                record = self._due(endpoint, session, now)
                if record is not None:
                    # first: it may be written though the store does not say so
                    self._saved.setdefault(session.id, (record, -math.inf))
                    saves.append(self._save(endpoint, session, record, now))
        await asyncio.gather(*saves)
        if self._looked == since:
            self._looked = now

    def _due(
        self, endpoint: SessionEndpoint, session: HttpSession, now: float
    ) -> SessionRecord | None:
        """Return the record of a session, if it is to be written."""
        messages = endpoint.state_of(session)
        if messages is None:
            self.ended(session.id, for_good=True)  # it cannot move any more
            return None
        saved, at = self._saved.get(session.id, (None, -math.inf))
        if saved is None:
            who = self._records.who(session.principal)
            state = SessionState(VERSION, who, session.streams_name, messages)
            return SessionRecord(self._own, 0, state)
        if saved.state.messages != messages:
            return structs.replace(saved, state=structs.replace(saved.state, messages=messages))
        return saved if now - at > endpoint.options.session_ttl / 4 else None

    async def _save(
        self, endpoint: SessionEndpoint, session: HttpSession, record: SessionRecord, now: float
    ) -> None:
        seconds = 1.25 * endpoint.options.session_ttl  # it is renewed after a quarter
        is_ours = await self._records.save(session.id, record, seconds)
        if not is_ours:
            endpoint.drop_session(session)
        elif session.id in self._saved:  # else it has ended meanwhile
            self._saved[session.id] = record, now

    # -- what is passed on -------------------------------------------------------------------------

    def pass_on(
        self,
        exchange: Exchange,
        session_id: str,
        url: str,
        body: bytes,
        otherwise: Callable[[str | None], None],
    ) -> None:
        """As of `HostRequests`."""
        self._requests.pass_on(exchange, self._owner_of(session_id), url, body, otherwise)

    def is_passed_on(self, headers: Headers) -> bool:
        """As of `HostRequests`."""
        return self._requests.is_passed_on(headers)

    def admission(self, request: HttpRequest) -> Admission | None:
        """As of `HostRequests`."""
        return self._requests.admission(request)


set_public_home(globals())
