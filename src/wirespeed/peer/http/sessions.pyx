"""Sessions of clients of legacy eras ("Session Management" of 2025-11-25 basic/transports): the
table of an endpoint, and the link of a session's connection."""

cimport cython
from cpython.time cimport monotonic

import asyncio
import math
import os
import re
import secrets
from collections import OrderedDict

from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.link cimport Link

from wirespeed._core.wire import show_carried
from wirespeed.transport.http.options import default_name

cdef enum:
    ID_BYTES = 24         # random bytes of an id

# Whether a text has the form of an id; None: it has not.
is_id = re.compile(r"[A-Za-z0-9_-]{1,64}\.[0-9]{1,4}\.[A-Za-z0-9_-]{32}").fullmatch


cdef class SessionEntry:
    """A session as the table knows it. Abstract.

    Args:
        id: The id that `Sessions.open` passed to ``make``.
        connection: What serves the requests of the session.
    """

    def __init__(self, str id not None, SessionConnection connection=None):
        self.id = id
        self.connection = connection

    @property
    def busy(self):
        """Whether a request of the session is worked on, or a stream of it is open."""
        raise NotImplementedError

    @property
    def idle(self):
        """Seconds since its last request or stream was at an end; 0 while there is one."""
        return 0.0 if self.busy else max(0.0, monotonic() - max(self.used, self.rested))

    cdef int rest_c(self) except -1:
        self.rested = monotonic()
        return 0

    def rest(self):
        """A request or a stream of the session is at an end."""
        self.rest_c()

    def keep_state(self):
        """A handler keeps something for the session, which each request may change."""

    async def save(self):
        """The state of the session has changed: wait until other hosts know, or cannot know."""

    def drain(self):
        """Answer the requests that are worked on, and take no more."""
        raise NotImplementedError

    def close(self):
        """End the session: it is out of the table already. A second call does nothing."""
        raise NotImplementedError


class SessionLimit(Exception):
    """There are as many sessions as there may be.

    Attributes:
        retry_after: Seconds until the next session may expire, for ``Retry-After``.
        status: Of the response: 503 if the server is full, 429 if its client has too many.
    """

    def __init__(self, message, retry_after, status):
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status


class SessionElsewhere(Exception):
    """A request is of a session that this process does not have.

    Attributes:
        id: The session's id.
        host: The name of the host that has the session, or the number of the worker of this one;
            None: that is not known.
    """

    def __init__(self, str id not None, host):
        super().__init__(id)
        self.id = id
        self.host = host


@cython.final
cdef class Lease:
    """The time for which no other process can have the sessions of this one. Each request of a
    session looks at it."""

    def __cinit__(self):
        self.end = -math.inf

    cdef bint lasts_c(self) noexcept:
        return monotonic() < self.end

    @property
    def lasts(self):
        """Whether it is not over."""
        return self.lasts_c()

    def last_until(self, double end, /):
        """It ends at a time of the monotonic clock."""
        self.end = end


@cython.final
cdef class Sessions:
    """The sessions of one server in one process, the one that was used least recently first.

    An id is the name of the server, the number of the process, and what nobody can guess, with
    dots between them: a load balancer reads the name. Only the whole id finds a session.

    Args:
        name: The name of the server, without a dot; None makes one.
        ttl: Seconds without a request after which a session ends, unless it is busy.
        max_sessions: The most sessions.
        max_per_principal: The most sessions of one principal. Clients without credentials have no
            principal, so that ``max_sessions`` alone limits them.
        on_ended: Called with the id of each session that has ended; or None.
    """

    def __init__(
        self, loop, *, str name, double ttl, Py_ssize_t max_sessions, Py_ssize_t max_per_principal,
        on_ended=None,
    ):
        self.on_ended = on_ended
        self.loop = loop
        self.ttl = ttl
        self.max_sessions = max_sessions
        self.max_per_principal = max_per_principal
        self.name = default_name(str(os.getpid())) if name is None else name
        self.prefix = f"{self.name}.0."
        self.n_workers = 1
        self.by_id = OrderedDict()
        self.owned = {}

    def __len__(self):
        return len(self.by_id)

    def __contains__(self, id):
        return id in self.by_id

    @property
    def longest_idle(self):
        """Seconds since the last request of the session that was used least recently; 0 without
        sessions."""
        cdef SessionEntry session = next(iter(self.by_id.values()), None)
        return 0.0 if session is None else max(0.0, monotonic() - session.used)

    def share(self, int worker, int n):
        """Name this process in ids, number `worker` of n, so that the others find its sessions."""
        self.worker = worker
        self.n_workers = n
        self.prefix = f"{self.name}.{worker}."

    def owner(self, str id not None):
        """The number of the other process that made an id; None: it is no such id."""
        name, _, rest = id.partition(".")
        worker, dot, _ = rest.partition(".")
        if name != self.name or not dot:
            return None
        if not (worker.isascii() and worker.isdecimal()) or len(worker) > 4:
            return None
        found = int(worker)
        return found if found < self.n_workers and found != self.worker else None

    def open(self, bytes principal, make):
        """A new session, made by ``make`` of its id. SessionLimit: there are too many."""
        cdef SessionEntry session
        self.check_room(principal)
        # an id is unguessable and has visible ASCII characters only
        session = make(self.prefix + secrets.token_urlsafe(ID_BYTES))
        self.add(session, principal)
        return session

    def check_room(self, bytes principal):
        """SessionLimit: there are too many sessions for one more of a principal."""
        if len(self.by_id) >= self.max_sessions:
            raise self.full_c(f"the server has {self.max_sessions} sessions", 503)
        if principal is not None and self.owned.get(principal, 0) >= self.max_per_principal:
            raise self.full_c(f"this client has {self.max_per_principal} sessions", 429)

    def add(self, SessionEntry session not None, bytes principal):
        """Take in a session, which is used now."""
        session.principal = principal
        session.used = monotonic()
        self.by_id[session.id] = session
        if principal is not None:
            self.owned[principal] = self.owned.get(principal, 0) + 1
        if self.timer is None:
            self.timer = self.loop.call_later(self.ttl, self._expire)

    def used_since(self, double when):
        """The sessions that were used after a time of the monotonic clock."""
        cdef SessionEntry session
        cdef list found = []
        for session in reversed(self.by_id.values()):
            if session.used <= when:
                break
            found.append(session)
        return found

    cpdef SessionEntry find(self, str id, bytes principal):
        """The session with this id, which is used now. None: there is none, or it belongs to
        another principal."""
        cdef SessionEntry session = self.by_id.get(id)
        if session is None or session.principal != principal:
            return None
        self.use_c(session)
        return session

    def end(self, SessionEntry session not None):
        """Close a session. Without effect for a session that has ended."""
        if self.by_id.pop(session.id, None) is not None:
            self.disown_c(session.principal)
            session.close()
            if self.on_ended is not None:
                self.on_ended(session.id)

    def drain(self):
        """Drain all sessions."""
        for session in list(self.by_id.values()):
            session.drain()

    async def drained(self):
        """After `drain`: wait for the end of all sessions."""
        closed = [session.connection.closed for session in self.by_id.values()]
        if closed:
            await asyncio.wait(closed)

    def close(self):
        """Close all sessions."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for session in list(self.by_id.values()):
            self.end(session)

    cdef int use_c(self, SessionEntry session) except -1:
        session.used = monotonic()
        self.by_id.move_to_end(session.id)
        return 0

    cdef double left_c(self):
        """Seconds until the session that was used least recently may expire."""
        cdef SessionEntry session = next(iter(self.by_id.values()), None)
        return self.ttl if session is None else session.used + self.ttl - monotonic()

    cdef int disown_c(self, bytes principal) except -1:
        if principal is not None:
            self.owned[principal] -= 1
            if not self.owned[principal]:
                del self.owned[principal]
        return 0

    cdef object full_c(self, str message, int status):
        return SessionLimit(message, max(1, math.ceil(self.left_c())), status)

    def _expire(self):
        """End the sessions that were not used for long. One timer serves all sessions: it wakes
        when the session that was used least recently may expire."""
        self.timer = None
        while self.by_id and self.left_c() <= 0:
            session = next(iter(self.by_id.values()))
            if session.idle < self.ttl:        # a request took long
                self.use_c(session)
            else:
                self.end(session)
        if self.by_id and self.timer is None:
            self.timer = self.loop.call_later(max(0.001, self.left_c()), self._expire)


@cython.final
cdef class SessionLink(Link):
    """The link of a connection without a byte stream. Its requests come as bodies of HTTP requests,
    and are answered by their routes. What it says of its own accord is taken here, a message a
    line.

    Attributes:
        session: The session whose connection it is; None for a lane.
        carry: A function that gets a list of these messages, each as bytes of JSON text. Without it
            they are dropped: no stream carries them.
        on_room: Called without arguments while the session reads on; or None.
        full: Whether the messages stay queued, because what carries them has no room.
    """

    def __init__(self, loop, endpoint):
        Link.__init__(self, loop, endpoint)
        show_carried(self.wire)

    def start(self):
        """Nothing is read."""

    cdef int wrote_own_c(self) except -1:
        """Let the messages of the connection leave, and the requests start that waited."""
        if self.wire.outbox.size or self.wire.wants_turn_c():
            return Link.wrote_c(self)
        return 0

    cdef int wrote_c(self) except -1:
        self.wrote_own_c()
        return 0 if self.via is None else self.via.wrote_c()

    cpdef object flush(self):
        cdef SessionLink me = self         # `carry` may close the link
        cdef list lines = []
        if self.lost or self.full or self.wire.outbox.size == 0:
            return
        while me.wire.outbox.size:
            lines.append(me.wire.take_line_c())
        if me.carry is not None:
            me.carry(lines)
        me.check_drained_c()

    cpdef object update_reading(self):
        if self.on_room is not None and not self.lost and self.wire.want_read_c():
            self.on_room()

    cdef int lose_c(self, object exc) except -1:
        cdef SessionLink me = self         # the endpoint drops its reference
        if self.lost:
            return 0
        self.lost = True
        self.carry = self.on_room = self.via = self.session = None
        self.released_c()
        me.endpoint.on_lost(exc)
        return 0

    def lose(self, exc):
        """Close because of `exc`; `on_lost(exc)` follows at once."""
        self.lose_c(exc)

    def close(self):
        """Close; `on_lost(None)` follows at once."""
        self.lose_c(None)
