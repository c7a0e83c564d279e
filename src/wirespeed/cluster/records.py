"""Records of sessions in the store, so that another host can go on with a session whose host is
gone.

A record says which process has the session (its *owner*), how often it has changed hands (its
*epoch*), and what a new connection is told so that it has the state of the old one. Only the owner
changes a record, and a process becomes the owner only in the epoch in which it has read the record:
so there is one owner at most. The id of a session and the principal of its client are in the store
as digests with a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import re
import time
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import structs

from wirespeed.cluster.clients import Script
from wirespeed.cluster.presence import Presence
from wirespeed.errors import ProtocolError, StoreUnavailable

if TYPE_CHECKING:
    from wirespeed.cluster.store import Cluster
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.transport.http.options import HttpOptions

VERSION = 1
MAX_OVER = 65_536  # sessions that have ended, which the store does not know yet
AT_ONCE = 256  # sessions in one round trip
_OWNER = re.compile(r"([A-Za-z0-9_-]{1,64}@[0-9a-f]{8}\.[0-9]{1,4})?")

# ARGV: owner, epoch, record, milliseconds. Returns 1; 0: another process owns it.
_SAVE = Script(
    """
local key = KEYS[1] .. 'record'
local now = redis.call('HMGET', key, 'owner', 'epoch')
if now[1] and (now[1] ~= ARGV[1] or now[2] ~= ARGV[2]) then return 0 end
redis.call('HSET', key, 'owner', ARGV[1], 'epoch', ARGV[2], 'record', ARGV[3])
redis.call('PEXPIRE', key, ARGV[4])
return 1
"""
)
_FIND = Script("return redis.call('HMGET', KEYS[1] .. 'record', 'owner', 'epoch', 'record')")
# ARGV: owner, epoch, new owner. Returns the new epoch; 0: the owner or the epoch is another one.
_TAKE = Script(
    """
local key = KEYS[1] .. 'record'
local now = redis.call('HMGET', key, 'owner', 'epoch')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then return 0 end
redis.call('HSET', key, 'owner', ARGV[3])
return redis.call('HINCRBY', key, 'epoch', 1)
"""
)
# ARGV: owner, epoch, record.
_RELEASE = Script(
    """
local key = KEYS[1] .. 'record'
local now = redis.call('HMGET', key, 'owner', 'epoch')
if now[1] == ARGV[1] and now[2] == ARGV[2] then
  redis.call('HSET', key, 'owner', '', 'record', ARGV[3])
end
return 1
"""
)
# ARGV: owner, epoch.
_FORGET = Script(
    """
local key = KEYS[1] .. 'record'
local now = redis.call('HMGET', key, 'owner', 'epoch')
if now[1] == ARGV[1] and now[2] == ARGV[2] then redis.call('DEL', key) end
return 1
"""
)


class SessionState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a session that goes along with it.

    Attributes:
        version: `VERSION`.
        who: The keyed digest of its principal; empty without one.
        streams: The beginning of the names of its streams in the event store.
        messages: The messages for its new connection, as JSON text: ``initialize`` first.
        kept: What handlers keep for the session, as `HttpService.session_kept` returns it.
    """

    version: int
    who: bytes
    streams: str
    messages: tuple[bytes, ...]
    kept: bytes = b""


class SessionRecord(msgspec.Struct, frozen=True):
    """A record.

    Attributes:
        owner: The member that is the host (`wirespeed.cluster.presence`) and the number of the
            worker that has the session, with a dot between them; empty where nobody has it, and
            anybody may adopt it.
        epoch: How often the session has changed hands.
        state: What goes along with it.
    """

    owner: str
    epoch: int
    state: SessionState


_decode = msgspec.msgpack.Decoder(SessionState).decode
_encode = msgspec.msgpack.Encoder().encode


class SessionRecords:
    """The records of the sessions of one server.

    Args:
        cluster: The store.
        name: The name of the server.
        key: The key of the digests.
    """

    def __init__(self, cluster: Cluster, name: str, key: bytes) -> None:
        self._cluster = cluster
        self._name = name
        self._key = key

    def who(self, principal: bytes | None) -> bytes:
        """Return the digest of a principal that a record has."""
        return b"" if principal is None else hmac.digest(self._key, b"who" + principal, "sha256")

    async def save(self, id: str, record: SessionRecord, seconds: float) -> bool:
        """Write the record of a session, which lives so long. Return whether its owner still has
        the session. StoreUnavailable as of `Cluster.run`."""
        return bool(
            await self._cluster.run(
                _SAVE,
                self._base(id),
                record.owner,
                record.epoch,
                _encode(record.state),
                round(seconds * 1000),
            )
        )

    async def find(self, id: str) -> SessionRecord | None:
        """Return the record of a session; None: there is none, or one that is not valid."""
        owner, epoch, text = await self._cluster.run(_FIND, self._base(id))
        if text is None:
            return None
        try:
            state = _decode(text)
            if state.version != VERSION:
                raise ValueError(f"it has version {state.version}")
            record = SessionRecord(owner.decode(), int(epoch), state)
            if not _OWNER.fullmatch(record.owner) or not state.messages:
                raise ValueError("it is not whole")
            return record
        except (ValueError, AttributeError, TypeError) as exc:  # DecodeError is a ValueError
            self._cluster.log_refused("the record of a session", str(exc))
            return None

    async def take(self, id: str, record: SessionRecord, owner: str) -> SessionRecord | None:
        """Become the owner of a session. Return its new record; None: another process was
        earlier."""
        epoch = await self._cluster.run(_TAKE, self._base(id), record.owner, record.epoch, owner)
        return SessionRecord(owner, epoch, record.state) if epoch else None

    async def release(self, id: str, record: SessionRecord) -> None:
        """Let any process adopt a session that has left its owner. It has the state of the
        record."""
        state = _encode(record.state)
        await self._cluster.run(_RELEASE, self._base(id), record.owner, record.epoch, state)

    async def forget(self, id: str, record: SessionRecord) -> None:
        """Remove the record of a session that has ended, unless another process has it now."""
        await self._cluster.run(_FORGET, self._base(id), record.owner, record.epoch)

    def _base(self, id: str) -> str:
        digest = hmac.digest(self._key, b"id" + id.encode(), "sha256").hex()
        return self._cluster.base(f"session{VERSION}", f"{self._name}:{digest}")


class SessionEndpoint(Protocol):
    """The sessions of one path: `wirespeed.peer.http.endpoint.StreamableHttp`."""

    @property
    def options(self) -> HttpOptions: ...

    def used_since(self, when: float) -> list[HttpSession]:
        """The sessions that were used after a time of the monotonic clock."""

    def state_of(self, session: HttpSession) -> tuple[bytes, ...] | None:
        """The messages that give a new connection the state of a session; None: it cannot move."""

    def kept_of(self, session: HttpSession) -> bytes:
        """The values of handlers that move with a session to another host."""

    def drop_session(self, session: HttpSession) -> None:
        """End a session here, which another process has now."""

    def drop_sessions(self) -> None:
        """End the sessions here that others may have now."""


class OwnRecords:
    """The records of the sessions that this process has. They are written soon after a session was
    opened or has changed, and before they end.

    Args:
        records: Those of all sessions.
        presence: This process among the hosts.
    """

    def __init__(self, records: SessionRecords, presence: Presence) -> None:
        self._is_due = asyncio.Event()
        self._records = records
        self._presence = presence
        self._saved: dict[str, tuple[SessionRecord, float]] = {}  # and when
        self._looked = -math.inf  # at the sessions that were used
        self._changed: dict[str, tuple[SessionEndpoint, HttpSession]] = {}  # by id
        self._work: set[asyncio.Task[None]] = set()
        self._over: dict[str, SessionRecord] = {}  # sessions whose records go
        self._released: dict[str, SessionRecord] = {}  # sessions that others may adopt

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._saved

    def begin(self) -> None:
        """Records are written from now on, on the loop that runs."""
        self._is_due = asyncio.Event()  # the earlier one waits on an earlier loop

    def adopted(self, session_id: str, record: SessionRecord) -> None:
        """This process has become the owner of a session."""
        self._saved[session_id] = record, -math.inf  # its record may end soon

    def lost(self) -> None:
        """Others may have all sessions now."""
        self._saved.clear()

    def write_again(self) -> None:
        """The store has lost its data: all records are due."""
        self._looked = -math.inf
        self._saved = {id: (record, -math.inf) for id, (record, _) in self._saved.items()}

    def opened(self) -> None:
        """A session was opened: its record is written soon."""
        self._is_due.set()

    def changed(self, endpoint: SessionEndpoint, session: HttpSession) -> None:
        """The state of a session may have changed: its record is written soon."""
        self._changed[session.id] = endpoint, session
        self._is_due.set()

    async def save(self, endpoint: SessionEndpoint, session: HttpSession) -> None:
        """Write the record of a session whose state has changed; later, if the store is away.

        StoreUnavailable: Another host may reach the store, and adopt the session with the state
        that it had.
        """
        record = self._due(endpoint, session, time.monotonic())
        if record is None:
            return
        try:
            if not self._presence.lease.lasts:
                raise StoreUnavailable
            self._saved.setdefault(session.id, (record, -math.inf))
            await self._save(endpoint, session, record, time.monotonic())
        except ProtocolError as exc:
            self.changed(endpoint, session)
            if isinstance(exc, StoreUnavailable) and not self._presence.is_cut_off:
                raise

    def ended(self, session_id: str, *, for_good: bool) -> None:
        """A session has ended here. ``for_good``: no other host may go on with it; else any may."""
        found = self._saved.pop(session_id, None)
        self._changed.pop(session_id, None)
        if found is None:
            return
        if for_good:
            self._over[session_id] = found[0]
            if len(self._over) > MAX_OVER:
                del self._over[next(iter(self._over))]
            self._run(self._forget(session_id, found[0]))
        else:
            self._released[session_id] = found[0]
            if len(self._released) == 1:
                self._run(self._release())

    def dropped(self, session_id: str) -> None:
        """A session was given up here, which another process may have now."""
        self._saved.pop(session_id, None)
        self._changed.pop(session_id, None)

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

    async def due(self, seconds: float) -> None:
        """Wait until there is something to write, for some seconds at most."""
        try:
            async with asyncio.timeout(max(0.001, seconds)):
                await self._is_due.wait()
        except TimeoutError:
            pass
        finally:
            self._is_due.clear()  # not later: what comes while records are written is due again

    async def write(self, endpoints: Iterable[SessionEndpoint]) -> None:
        """Write the records of the sessions that were used since the last time, and have another
        state or a record that ends soon. StoreUnavailable, ProtocolError as of `Cluster.run`."""
        since, now = self._looked, time.monotonic()
        saves = [self._forget(*one) for one in self._over.items()]
        changed, self._changed = self._changed, {}
        used = {
            session.id: (endpoint, session)
            for endpoint in endpoints
            for session in endpoint.used_since(since)
        }
        for endpoint, session in (used | changed).values():
            record = self._due(endpoint, session, now)
            if record is not None:
                # first: it may be written though the store does not say so
                self._saved.setdefault(session.id, (record, -math.inf))
                saves.append(self._save(endpoint, session, record, now))
        try:
            await asyncio.gather(*saves)
        except ProtocolError:
            self._changed = changed | self._changed
            raise
        if self._looked == since:
            self._looked = now

    def _due(
        self, endpoint: SessionEndpoint, session: HttpSession, now: float
    ) -> SessionRecord | None:
        """Return the record of a session, if it is to be written."""
        if session.connection.link is None:
            return None  # it has ended since its state changed
        messages = endpoint.state_of(session)
        if messages is None:
            self.ended(session.id, for_good=True)  # it cannot move any more
            return None
        kept = endpoint.kept_of(session)
        saved, at = self._saved.get(session.id, (None, -math.inf))
        if saved is None:
            who = self._records.who(session.principal)
            state = SessionState(VERSION, who, session.streams_name, messages, kept)
            return SessionRecord(self._presence.process, 0, state)
        if (saved.state.messages, saved.state.kept) != (messages, kept):
            state = structs.replace(saved.state, messages=messages, kept=kept)
            return structs.replace(saved, state=state)
        return saved if now - at > endpoint.options.session_ttl / 4 else None

    async def _save(
        self, endpoint: SessionEndpoint, session: HttpSession, record: SessionRecord, now: float
    ) -> None:
        # It is renewed after a quarter of that; no use is noted while the store is away.
        seconds = 2.0 * endpoint.options.session_ttl
        is_ours = await self._records.save(session.id, record, seconds)
        if not is_ours:
            endpoint.drop_session(session)
        elif session.id in self._saved:  # else it has ended meanwhile
            self._saved[session.id] = record, now

    async def written(self) -> None:
        """Wait until the store knows which sessions have ended, or does not answer."""
        if self._work:
            await asyncio.wait(self._work)
