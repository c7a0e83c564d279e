"""The sessions of clients of legacy eras ("Session Management" of 2025-11-25 basic/transports)."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

ID_BYTES = 24  # random bytes of an id


class Session(Protocol):
    """What the table knows of a session."""

    @property
    def id(self) -> str:
        """The id that `Sessions.open` passed to ``make``."""

    @property
    def busy(self) -> bool:
        """Whether a request of the session is worked on, or a stream of it is open."""

    def drain(self) -> None:
        """Answer the requests that are worked on, and take no more."""

    def close(self) -> None:
        """End the session: it is out of the table already. A second call does nothing."""


S = TypeVar("S", bound=Session)


class SessionLimit(Exception):
    """There are as many sessions as there may be.

    Attributes:
        retry_after: Seconds until the next session may expire, for ``Retry-After``.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class _Entry(Generic[S]):
    __slots__ = ("principal", "session", "used")

    def __init__(self, session: S, principal: bytes | None, used: float) -> None:
        self.session = session
        self.principal = principal
        self.used = used


class Sessions(Generic[S]):
    """The sessions of one server in one process, the one that was used least recently first.

    Args:
        ttl: Seconds without a request after which a session ends, unless it is busy.
        max_sessions: The most sessions.
        max_per_principal: The most sessions of one principal. Clients without credentials have no
            principal, so that ``max_sessions`` alone limits them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        ttl: float,
        max_sessions: int,
        max_per_principal: int,
    ) -> None:
        self._loop = loop
        self._ttl = ttl
        self._max_sessions = max_sessions
        self._max_per_principal = max_per_principal
        self._prefix = ""
        self._worker = 0
        self._n_workers = 1
        self._entries: OrderedDict[str, _Entry[S]] = OrderedDict()
        self._owned: dict[bytes, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def share(self, worker: int, n: int) -> None:
        """Name this process in ids, number `worker` of n, so that the others find its sessions."""
        self._worker = worker
        self._n_workers = n
        self._prefix = f"{worker}."

    def owner(self, id: str) -> int | None:
        """The number of the other process that made an id; None: it is no such id."""
        worker, dot, _ = id.partition(".")
        if not dot or not (worker.isascii() and worker.isdecimal()) or len(worker) > 4:
            return None
        found = int(worker)
        return found if found < self._n_workers and found != self._worker else None

    def open(self, principal: bytes | None, make: Callable[[str], S]) -> S:
        """A new session, made by ``make`` of its id. SessionLimit: there are too many."""
        if len(self._entries) >= self._max_sessions:
            raise self._full(f"the server has {self._max_sessions} sessions")
        if principal is not None and self._owned.get(principal, 0) >= self._max_per_principal:
            raise self._full(f"this client has {self._max_per_principal} sessions")
        # an id is unguessable and has visible ASCII characters only
        session = make(self._prefix + secrets.token_urlsafe(ID_BYTES))
        self._entries[session.id] = _Entry(session, principal, self._loop.time())
        if principal is not None:
            self._owned[principal] = self._owned.get(principal, 0) + 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._ttl, self._expire)
        return session

    def find(self, id: str, principal: bytes | None) -> S | None:
        """The session with this id, which is used now. None: there is none, or it belongs to
        another principal."""
        entry = self._entries.get(id)
        if entry is None or entry.principal != principal:
            return None
        self._use(entry)
        return entry.session

    def end(self, session: S) -> None:
        """Close a session. Without effect for a session that has ended."""
        entry = self._entries.pop(session.id, None)
        if entry is not None:
            self._disown(entry.principal)
            session.close()

    def drain(self) -> None:
        """Drain all sessions."""
        for entry in list(self._entries.values()):
            entry.session.drain()

    def close(self) -> None:
        """Close all sessions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for entry in list(self._entries.values()):
            self.end(entry.session)

    def _use(self, entry: _Entry[S]) -> None:
        entry.used = self._loop.time()
        self._entries.move_to_end(entry.session.id)

    def _left(self) -> float:
        """Seconds until the session that was used least recently may expire."""
        entry = next(iter(self._entries.values()), None)
        return self._ttl if entry is None else entry.used + self._ttl - self._loop.time()

    def _disown(self, principal: bytes | None) -> None:
        if principal is not None:
            self._owned[principal] -= 1
            if not self._owned[principal]:
                del self._owned[principal]

    def _full(self, message: str) -> SessionLimit:
        return SessionLimit(message, max(1, math.ceil(self._left())))

    def _expire(self) -> None:
        """End the sessions that were not used for long. One timer serves all sessions: it wakes
        when the session that was used least recently may expire."""
        self._timer = None
        while self._entries and self._left() <= 0:
            entry = next(iter(self._entries.values()))
            if entry.session.busy:
                self._use(entry)
            else:
                self.end(entry.session)
        if self._entries and self._timer is None:
            self._timer = self._loop.call_later(max(0.001, self._left()), self._expire)
