"""Numbers that all workers of one host share, in memory that is mapped before they are forked.

A number belongs to the digest of a key, and is kept until a time of the monotonic clock, which all
processes of a host share. The digest leads to a set of slots. A worker locks a set while it looks
at it, and the lock ends with its process. A worker that is stopped with a lock does not stop the
others: after `TRIES` they go on without it, and a number may be too small by what they have
counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
import weakref
from collections.abc import Iterator

SLOTS = 8  # of a set: the number that is kept for the shortest time makes room
SETS = 16_384  # 4 MiB, of which only those are in memory that were used
TRIES = 50  # to get a lock

_SLOT = struct.Struct("16sdd")  # digest, number, until when


class Entry:
    """A number, while its set is locked.

    Attributes:
        value: The number; 0 where none is kept.
    """

    def __init__(self, memory: mmap.mmap, place: int, digest: bytes, value: float) -> None:
        self._memory = memory
        self._place = place
        self._digest = digest
        self.value = value

    def keep(self, value: float, until: float) -> None:
        """Keep another number."""
        _SLOT.pack_into(self._memory, self._place, self._digest, value, until)


class HostTable:
    """The numbers of a host. Make it before workers are forked."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SETS * SLOTS * _SLOT.size)
        with tempfile.TemporaryFile() as file:  # empty: the lock of each set is of one byte
            self._locks = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._locks)
        self._key = os.urandom(32)  # clients do not choose their set

    @contextlib.contextmanager
    def entry(self, key: bytes, now: float) -> Iterator[Entry]:
        """The number of a key."""
        digest = hashlib.blake2b(key, digest_size=16, key=self._key).digest()
        begin = int.from_bytes(digest[:4]) % SETS * SLOTS * _SLOT.size
        with self._locked(begin):
            place, least = begin, float("inf")
            for at in range(begin, begin + SLOTS * _SLOT.size, _SLOT.size):
                found, value, until = _SLOT.unpack_from(self._memory, at)
                if found == digest:
                    yield Entry(self._memory, at, digest, value if until > now else 0.0)
                    return
                if until < least:
                    place, least = at, until
            yield Entry(self._memory, place, digest, 0.0)

    @contextlib.contextmanager
    def _locked(self, place: int) -> Iterator[None]:
        for _ in range(TRIES):
            try:
                fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                break
            except OSError:  # another worker has it
                os.sched_yield()
        try:
            yield
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, place)
