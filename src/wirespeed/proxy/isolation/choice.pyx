"""The choice between the servers of a pool, and the requests that it leaves to `Pool.route`: those
that may name tasks.
"""

cimport cython
from libc.math cimport INFINITY, fmod
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp

from zlib import crc32 as _crc32

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_PARAMS
from wirespeed._core.envelope cimport Message, method_is, poi_is, span_of
from wirespeed._core.span cimport Span, span_holds
from wirespeed._core.splice cimport Edit
from wirespeed.peer.http.sessions cimport names_process_c
from wirespeed.proxy.side cimport Choice, Route, Side, Translation, may_be_given

cdef object crc32 = _crc32
# Percent by which the place of each next request without a principal moves: the golden section, by
# which any number of requests in a row is spread evenly.
cdef double SPREAD = 61.8033988749895


cdef inline bint names_task_c(Message m) noexcept:
    """Whether the params of a call may have a member `task`. The arguments are not searched: the
    cost does not grow with them."""
    cdef Span found = span_of(m, WS_PARAMS)
    cdef size_t end = m.scan.poi[WS_PARAMS].off + found.n
    if m.scan.poi[WS_ARGUMENTS].len:
        found.n = m.scan.poi[WS_ARGUMENTS].off - m.scan.poi[WS_PARAMS].off
        if span_holds(found, b'"task"', 6):
            return True
        found = span_of(m, WS_ARGUMENTS)
        found.p += found.n
        found.n = end - m.scan.poi[WS_ARGUMENTS].off - found.n
    return span_holds(found, b'"task"', 6)


cdef inline bint names_tasks_c(Message m) noexcept:
    """Whether a request of 2026-07-28 may name tasks: by its method, which may have escapes."""
    cdef Span method = span_of(m, WS_METHOD)
    if poi_is(m, WS_METHOD, b'"tools/call"'):
        return False
    return (
        (method.n > 6 and memcmp(method.p, b'"tasks/', 7) == 0)
        or poi_is(m, WS_METHOD, b'"subscriptions/listen"')
        or memchr(method.p, c'\\', method.n) is not NULL
    )


@cython.final
cdef class Share:
    """How many requests one of several servers gets.

    Attributes:
        weight: Against those of the other servers. One that has just come has less.
        low, high: The part of the range 0 to 100 that belongs to this server, if it is a canary:
            requests and principals in it go here, and the others do not. Below 0: it is none.
    """

    def __init__(self, double weight):
        self.weight, self.low, self.high = weight, -1.0, -1.0

    def scale(self, double weight):
        """Set the weight from now on."""
        self.weight = weight

    def reserve(self, double low, double high):
        """Set what belongs to a canary from now on. Below 0: it is none any more."""
        self.low, self.high = low, high

    def rank(self, double place):
        """Return whether the server is the first choice (0), the second or the last one (2) for
        what has a place in the range of canaries (`LeastLoaded.place_of`)."""
        if not self.is_canary_c():
            return 1
        return 0 if self.low <= place < self.high else 2

    cdef bint is_canary_c(self) noexcept:
        return self.low >= 0


@cython.final
cdef class LeastLoaded(Choice):
    """Chooses the server with the fewest requests for its weight. Without weights that is the first
    of these, with weights they take turns.

    It chooses nothing while none can be used, for a request that may belong to one server
    (`wirespeed.proxy.affinity`) or to all, and for the first request of a client to a server.

    Args:
        salt: Places principals in the range of canary shares: with another one, others are chosen.
    """

    def __init__(self, uint32_t salt=0):
        self.servers, self.clients, self.shares = [], [], []
        self.salt = salt

    def take(self, list servers not None, list clients not None, list shares=None):
        """Choose between these servers from now on; none: choose nothing. ``clients``: of each
        server, the set of the clients that it has had a request of. ``shares``: of each server its
        `Share`; None: they have no weights."""
        if len(servers) != len(clients) or (shares and len(shares) != len(servers)):
            raise ValueError("each server needs its clients, and a share if there are any")
        for one in servers:
            if not isinstance(one, Side):
                raise TypeError(f"{one!r} is not a server")
        for one in shares or ():
            if not isinstance(one, Share):
                raise TypeError(f"{one!r} is not a share")
        self.servers, self.clients, self.shares = servers, clients, shares or []
        self.left_for = NULL
        self.has_canaries = False
        for one in self.shares:
            self.has_canaries |= (<Share> one).is_canary_c()

    cdef Side choose_c(self, Side asker, Message m):
        cdef Py_ssize_t at
        if not self.servers or m.scan.poi[WS_META_PROTOCOL_VERSION].len == 0:
            return None
        if names_tasks_c(m) or may_be_given(span_of(m, WS_PARAMS)):
            return None
        at = self.pick_c(asker, None)
        if asker in <set?> self.clients[at]:
            return <Side> self.servers[at]
        self.left_for, self.left_at = <void *> asker, at
        return None

    def pick(self, Side asker not None, Side without=None):
        """Return the server for a request; None: there is none but ``without``. For a request that
        was left to `Pool.route`, it is the one that was chosen already: its turn has passed."""
        cdef Py_ssize_t at = self.left_at
        if without is not None or self.left_for != <void *> asker:
            at = self.pick_c(asker, without)
        self.left_for = NULL
        return None if at < 0 else self.servers[at]

    def place_of(self, Side asker not None):
        """Return where a request is in the range of canary shares: from 0 to 100, without 100. That
        is the place of its principal, which does not change; without one, requests are spread
        evenly."""
        return self.place_c(asker)

    cdef double place_c(self, Side asker) except? -1:
        while asker.outer is not None:
            asker = asker.outer
        if asker.principal is not None:
            return <uint32_t> crc32(asker.principal, self.salt) * (100.0 / 4294967296.0)
        self.n_placed += 1
        return fmod(self.n_placed * SPREAD, 100.0)

    cdef Py_ssize_t pick_c(self, Side asker, Side without) except? -2:
        """Return the index of the server for a request; -1: there is none but ``without``."""
        cdef Py_ssize_t i, best
        cdef double place
        if not self.shares:
            return self.fewest_c(without, False)
        if self.has_canaries:
            place = self.place_c(asker)
            for i in range(len(self.servers)):
                share = <Share> self.shares[i]
                if share.low <= place < share.high and self.servers[i] is not without:
                    return i
            best = self.fewest_c(without, True)
            if best >= 0:
                return best
        return self.fewest_c(without, False)

    cdef Py_ssize_t fewest_c(self, Side without, bint spares_canaries) except? -2:
        """Return the index of the server with the fewest requests for its weight; -1: none."""
        cdef Py_ssize_t i, best = -1, n = len(self.servers)
        cdef double load, least = INFINITY, total = 0.0
        cdef Side one
        cdef Share share, other = None
        for i in range(n):
            one = <Side> self.servers[i]
            if one is without:
                continue
            load = one.session.pending.live
            if self.shares:
                share = <Share> self.shares[i]
                if spares_canaries and share.is_canary_c():
                    continue
                load /= share.weight
            if load < least:
                least, best = load, i
        if best < 0 or not self.shares:
            return best
        # Those with as few take turns: smooth weighted round robin.
        for i in range(best, n):
            one, share = <Side> self.servers[i], <Share> self.shares[i]
            if (
                one is without
                or (spares_canaries and share.is_canary_c())
                or one.session.pending.live / share.weight != least
            ):
                continue
            share.turn += share.weight
            total += share.weight
            if other is None or share.turn > other.turn:
                other, best = share, i
        other.turn -= total
        return best


@cython.final
cdef class MarkedRequests(Translation):
    """Has requests of 2026-07-28 looked at that may name tasks, by `route`: the ids have seals.

    Args:
        placed: Whether all that the server gives names its process.
    """

    def __init__(self, bint placed):
        self.placed = placed

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        return 0

    cdef bint answer_c(self, Route route, Message m) except -1:
        return False

    cdef bint diverts_c(self, Message m) noexcept:
        return names_tasks_c(m) or (self.placed and names_process_c(span_of(m, WS_PARAMS)))


@cython.final
cdef class TaskRequests(Translation):
    """Has the answers to calls that ask for a task looked at, and those to ``tasks/list``, each
    time that such a request is sent. Nothing is edited.

    Args:
        after: A function of the client and the request that returns `Route.after`.
    """

    def __init__(self, after):
        self.after = after

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        if method_is(m, b'"tools/call"', "tools/call"):
            if names_task_c(m):
                route.after = self.after(route.asker, m)
        elif method_is(m, b'"tasks/list"', "tasks/list"):
            route.after = self.after(route.asker, m)
        return 0

    cdef bint answer_c(self, Route route, Message m) except -1:
        return False
