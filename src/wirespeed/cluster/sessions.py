"""Sessions over HTTP that any host serves: a request of a session that another host has is passed
on to that host, and its response is passed back; a session whose host is gone is adopted.

The ids of its sessions begin with the name of a host. Each host knows where the others are
(`wirespeed.cluster.presence`), so no request waits for the store.

A session has one owner at most: a worker of a host, ``NAME@DIGEST.WORKER`` (the digest is that of
the URL). It serves sessions that have a record while it has a lease, and only then may others
adopt. A host that comes back after the end of its lease drops its sessions, and adopts those that
are asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import ssl as ssl_
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from wirespeed._exports import set_public_home
from wirespeed.cluster.presence import DECIDED_IN, HURRY, LIFETIME, RENEWAL, Presence, member_of
from wirespeed.cluster.records import (
    VERSION,
    OwnRecords,
    SessionEndpoint,
    SessionRecord,
    SessionRecords,
)
from wirespeed.cluster.store import MIN_SECRET, Cluster
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.transport.http.members import MemberProofs
from wirespeed.transport.http.options import check_host_url
from wirespeed.transport.net.host_links import HostLinks
from wirespeed.transport.options import NotPassed
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.peer.http.sessions import Lease
    from wirespeed.transport.http.exchange import Exchange

logger = logging.getLogger("wirespeed.cluster")

WITHOUT_STORE = 600.0  # seconds
MAX_ELSEWHERE = 65_536  # sessions that have moved to another host, and where they are


class SessionHosts:
    """The hosts of a deployment, for the sessions of one server: the ``directory`` of
    `HttpOptions`.

    A request of a session that another host has is passed on to that host. A session whose host is
    gone is adopted: made again from its record, with its revision, capabilities, principal, log
    level and subscriptions, and with the streams that the event store has.

    Args:
        cluster: The store that the hosts share.
        name: The name of the server, the same on all hosts, where it has the same paths.
        url: Where the other hosts and the workers of this host reach it: ``http://host:port`` or
            ``https://host:port`` of the listener, without a path.
        secret: The same bytes on all hosts, at least 16, that nobody else knows. A host proves with
            a key that is derived from the secret that it is a member; the requests that it passes
            on are not signed. The store has keyed digests of session ids and principals.
        ssl: The TLS context for the other hosts; by default it trusts the authorities of the
            system.
        limits: `Limits.output_high` and `Limits.output_low` hold for the connections to the others.
        without_store: Seconds for which sessions go on at their hosts while no host reaches the
            store, and for which the sessions of a majority of the hosts that is gone at once are
            not adopted.

    Attributes:
        members: Makes and checks the proofs of members.
        own: The records of the sessions of this process.
        patience: Seconds for which a request is held whose host does not answer.

    Raises:
        ValueError: An argument is wrong.
    """

    patience = DECIDED_IN

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        url: str,
        *,
        secret: bytes,
        ssl: ssl_.SSLContext | None = None,
        limits: Limits | None = None,
        without_store: float = WITHOUT_STORE,
    ) -> None:
        check_host_url(url)
        if not LIFETIME <= without_store < math.inf:
            raise ValueError(f"without_store must be seconds, at least {LIFETIME:.0f}")
        if len(secret) < MIN_SECRET:
            raise ValueError(f"the secret of SessionHosts has at least {MIN_SECRET} bytes")
        self.cluster = cluster
        self._key = hmac.digest(secret, b"wirespeed session hosts 1\0" + name.encode(), "sha256")
        self._records = SessionRecords(cluster, name, self._key)
        self.members = MemberProofs(self._key)
        self._links = HostLinks(self.members, far=True, ssl=ssl, limits=limits)
        self._presence = Presence(
            cluster,
            cluster.base(f"sessions{VERSION}", name),
            url,
            self._links,
            without_store=without_store,
            on_over=self._drop_sessions,
            on_data_lost=self._write_again,
        )
        self.own = OwnRecords(self._records, self._presence)
        self._quiet = RateLimitedLog(logger, lines=1, seconds=60.0)
        self._endpoints: set[SessionEndpoint] = set()
        # owners of sessions that moved, and their epochs
        self._elsewhere: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._taking: set[str] = set()  # sessions that this process may own in a moment
        self._n_over = 0  # leases that were over
        self._announced = asyncio.Event()  # or it was tried
        self._task: asyncio.Task[None] | None = None

    # -- hosts -------------------------------------------------------------------------------------

    def join(self, endpoint: SessionEndpoint, name: str) -> None:
        """Be a host with this name while an endpoint serves. Call it on the loop. ValueError:
        another endpoint of this process has another name."""
        if self._endpoints and name != self._presence.name:
            raise ValueError("the listeners of one host have one name: set HttpOptions.name")
        self._endpoints.add(endpoint)
        if self._task is None:
            self._announced = asyncio.Event()
            self._presence.begin(name)
            self.own.begin()
            self.cluster.hold(self)
            self._task = asyncio.get_running_loop().create_task(self._renew_always())

    @property
    def name(self) -> str:
        """The name of this host."""
        return self._presence.name

    @property
    def lease(self) -> Lease:
        """Lasts while no other process can have the sessions of this one."""
        return self._presence.lease

    def share(self, worker: int, n: int) -> None:
        """This process is the worker with this number, of n."""
        self._presence.share(worker, n)

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
        await self.own.written()
        with contextlib.suppress(StoreUnavailable, ProtocolError):
            await self._presence.leave()
        await self._links.close()
        await self.cluster.release(self)

    async def _renew_always(self) -> None:
        due = 0.0
        while True:
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + RENEWAL
                    # the clock is read afterwards: no entry is looked at before its end
                    due = min(due, await self._presence.renew() + time.monotonic())
                if self.cluster.state != "down" and self._presence.lease.lasts:
                    await self.own.write(self._endpoints)
            except StoreUnavailable:  # the cluster logs it
                if await self._presence.go_on():
                    self.cluster.hurry()
                    due = time.monotonic() + HURRY
            except Exception as exc:  # the next renewal may succeed
                self._quiet.log(logging.ERROR, "this host is not known to the others: %s", exc)
            self._announced.set()
            await self.own.due(due - time.monotonic())

    def _drop_sessions(self) -> None:
        self._n_over += 1
        for endpoint in self._endpoints:
            endpoint.drop_sessions()  # others may have adopted them
        self.own.lost()  # also those that are being adopted here

    def _write_again(self) -> None:
        self.own.write_again()

    def state(self, question: bytes) -> bytes | int:
        """Return what a host that asks is told, as of `Presence.state`, or the number of the worker
        that says it."""
        return self._presence.state(question) if self._presence.worker == 0 else 0

    # -- whose session it is -----------------------------------------------------------------------

    def _owner_of(self, session_id: str) -> str:
        """The process that has a session, as far as that is known without the store."""
        known = self._elsewhere.get(session_id)
        if known is not None:
            return known[0]
        name, _, rest = session_id.partition(".")
        url = self._presence.hosts.get(name, self._presence.url)
        return f"{member_of(name, url)}.{rest.partition('.')[0]}"

    def host_of(self, session_id: str, named: int | None) -> str | int | None:
        """Return the URL of the other living host that has a session, or the number of the other
        worker of this host, as far as that is known without the store; None: it is not.
        ``named``: The worker that another host names, which passes the request on."""
        member, _, worker = self._owner_of(session_id).partition(".")
        if named is None and member != self._presence.member:
            return self._presence.url_of(member)
        number = int(worker) if named is None else named
        is_other = number != self._presence.worker and number < self._presence.n_workers
        return number if is_other else None

    def owner_of(self, session_id: str, host: str | int) -> tuple[str, int]:
        """Return the process that a request of a session is passed on to, with ``host`` as of
        `host_of`, and the epoch of the record that names it; -1: none was read."""
        is_worker = isinstance(host, int)
        owner = f"{self._presence.member}.{host}" if is_worker else self._owner_of(session_id)
        known = self._elsewhere.get(session_id)
        return (owner, -1) if known is None or known[0] != owner else known

    def _lives(self, owner: str) -> bool:
        member, _, worker = owner.partition(".")
        if member == self._presence.member:
            return int(worker) < self._presence.n_workers
        return self._presence.url_of(member) is not None

    def may_serve(self, session_id: str) -> bool:
        """Return whether this process may serve a session that it has: no other can have adopted
        it."""
        return self._presence.lease.lasts or session_id not in self.own

    def has(self, session_id: str) -> bool:
        """Return whether this process owns a session with a record, or may own it in a moment: it
        may not say that it does not have the session."""
        return session_id in self.own or session_id in self._taking

    async def find(
        self,
        session_id: str,
        principal: bytes | None,
        lost_by: tuple[str, int] | None = None,
        unreached: str | None = None,
    ) -> SessionRecord | bool | str:
        """Find a session that this process does not have. Return the record of a session that this
        process has adopted just now; True: another process has it, see `host_of`; False: nobody
        has; a text: a host that may have it and does not answer, see `decided`. StoreUnavailable
        as of `Cluster.run`.

        ``lost_by``: A process that says that it does not have the session, and the epoch of the
        record that was read before it was asked, as of `owner_of`. What it says is about that epoch
        and earlier ones: it may have adopted the session since. ``unreached``: A process that did
        not answer.
        """
        self._elsewhere.pop(session_id, None)
        while True:
            record = await self._records.find(session_id)
            # afterwards: a host that is not there now has lost all that it owned before
            await self._presence.renew_together()
            owner = self._owner_of(session_id) if record is None else record.owner
            if record is not None and record.state.who != self._records.who(principal):
                return False
            member = owner.partition(".")[0]
            is_own = member == self._presence.member
            lives = self._lives(owner)
            if record is None:
                if lives and not is_own and (lost_by is None or owner != lost_by[0]):
                    return member if owner == unreached else True
                if self._presence.lacks_records or (self._presence.is_unsure and not lives):
                    raise StoreUnavailable
                if lives:
                    return False
                return await self._presence.not_gone(session_id.partition(".")[0]) or False
            is_lost = (owner, record.epoch) == lost_by
            if lives and owner != self._presence.process and not is_lost:
                if owner == unreached and not is_own:
                    return member
                self._elsewhere[session_id] = owner, record.epoch
                if len(self._elsewhere) > MAX_ELSEWHERE:
                    self._elsewhere.popitem(last=False)
                return True
            is_over = is_own or is_lost or not owner
            if not is_over and not await self._presence.is_gone(member):
                return member
            if not self._presence.lease.lasts:
                raise StoreUnavailable  # another host has this one's name
            if owner == self._presence.process and session_id in self.own:
                return True  # another request of the session was earlier
            taken = await self._take(session_id, record)
            if taken is not None:
                return taken

    async def renewed(self) -> bool:
        """Renew the lease. Return whether it lasts."""
        with contextlib.suppress(StoreUnavailable, ProtocolError):
            await self._presence.renew_together()
        return self._presence.lease.lasts

    async def decided(self, host: str) -> bool:
        """Wait until it may be known whether a host that `find` has named is gone. Return False: it
        is not, for longer than a host that is killed is waited for. StoreUnavailable, ProtocolError
        as of `Cluster.run`."""
        return await self._presence.decided(host)

    async def _take(self, session_id: str, record: SessionRecord) -> SessionRecord | None:
        """Become the owner of a session. Return its new record; None: another process was earlier,
        or may be the owner by now, because the lease was over meanwhile."""
        n_over = self._n_over
        self._taking.add(session_id)
        try:
            taken = await self._records.take(session_id, record, self._presence.process)
        finally:
            self._taking.discard(session_id)
        if taken is None or n_over != self._n_over:
            return None
        self.own.adopted(session_id, taken)
        return taken

    # -- what is passed on -------------------------------------------------------------------------

    def pass_on(
        self,
        exchange: Exchange,
        session_id: str,
        url: str,
        body: bytes,
        otherwise: Callable[[NotPassed], object],
    ) -> None:
        """Answer a request with the response of another host. ``otherwise``: As of
        `HostLink.pass_on`."""
        member, _, worker = self._owner_of(session_id).partition(".")
        link = self._links.to(url, member.partition("@")[0])
        link.pass_on(exchange, int(worker), body, otherwise)


set_public_home(globals())
