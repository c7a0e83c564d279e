"""The choice between the servers of a pool, and the requests that it leaves to `Pool.route`: those
that may name tasks.
"""

cimport cython
from libc.string cimport memchr, memcmp

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_PARAMS
from wirespeed._core.envelope cimport Message, method_is, poi_is, span_of
from wirespeed._core.span cimport Span, span_holds
from wirespeed._core.splice cimport Edit
from wirespeed.proxy.side cimport Choice, Route, Side, Translation, may_be_given


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
cdef class LeastLoaded(Choice):
    """Chooses the server with the fewest requests, the first of these.

    It chooses nothing while a server of the pool is not there or has failed, for a request that may
    belong to one server (`wirespeed.proxy.affinity`) or to all, and for the first request of a
    client to a server.
    """

    def __cinit__(self):
        self.servers, self.clients = [], []

    def take(self, list servers not None, list clients not None):
        """Choose between these servers from now on; none: choose nothing. ``clients``: of each
        server, the set of the clients that it has had a request of."""
        if len(servers) != len(clients):
            raise ValueError("each server needs its clients")
        for one in servers:
            if not isinstance(one, Side):
                raise TypeError(f"{one!r} is not a server")
        self.servers, self.clients = servers, clients

    cdef Side choose_c(self, Side asker, Message m):
        cdef Side one, best = None
        cdef Py_ssize_t i, at = 0
        if not self.servers or m.scan.poi[WS_META_PROTOCOL_VERSION].len == 0:
            return None
        if names_tasks_c(m) or may_be_given(span_of(m, WS_PARAMS)):
            return None
        for i in range(len(self.servers)):
            one = <Side> self.servers[i]
            if best is None or one.session.pending.live < best.session.pending.live:
                best, at = one, i
        return best if asker in <set?> self.clients[at] else None


@cython.final
cdef class TaskNames(Translation):
    """Has requests of 2026-07-28 looked at that may name tasks, by `route`: the ids have seals."""

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        return 0

    cdef bint answer_c(self, Route route, Message m) except -1:
        return False

    cdef bint diverts_c(self, Message m) noexcept:
        return names_tasks_c(m)


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
