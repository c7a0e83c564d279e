"""Records of sessions in the store, so that another host can go on with a session whose host is
gone.

A record says which process has the session (its *owner*), how often it has changed hands (its
*epoch*), and what a new connection is told so that it has the state of the old one. Only the owner
changes a record, and a process becomes the owner only in the epoch in which it has read the record:
so there is one owner at most. The id of a session and the principal of its client are in the store
as digests with a key.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

import msgspec

from wirespeed.cluster.clients import Script

if TYPE_CHECKING:
    from wirespeed.cluster.store import Cluster

VERSION = 1
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
