"""Which server of a pool gets a request, where each of them can take it."""

cimport cython

from wirespeed._core._simd cimport WS_META_PROTOCOL_VERSION, WS_PARAMS
from wirespeed._core.envelope cimport Message, span_of
from wirespeed.proxy.given cimport may_be_given, names_tasks_c
from wirespeed.proxy.party cimport Party


@cython.final
cdef class Choice:
    """Chooses the server with the fewest requests, the first of these.

    It chooses nothing while a server of the pool is not there or has failed, for a request that may
    belong to one server (`wirespeed.proxy.tags`) or to all, and for the first request of a client
    to a server.
    """

    def __cinit__(self):
        self.servers, self.clients = [], []

    def take(self, list servers not None, list clients not None):
        """Choose between these servers from now on; none: choose nothing. ``clients``: of each
        server, the set of the clients that it has had a request of."""
        if len(servers) != len(clients):
            raise ValueError("each server needs its clients")
        for one in servers:
            if not isinstance(one, Party):
                raise TypeError(f"{one!r} is not a server")
        self.servers, self.clients = servers, clients

    cdef Party choose_c(self, Party asker, Message m):
        cdef Party one, best = None
        cdef Py_ssize_t i, at = 0
        if not self.servers or m.scan.poi[WS_META_PROTOCOL_VERSION].len == 0:
            return None
        if names_tasks_c(m) or may_be_given(span_of(m, WS_PARAMS)):
            return None
        for i in range(len(self.servers)):
            one = <Party> self.servers[i]
            if best is None or one.session.pending.live < best.session.pending.live:
                best, at = one, i
        return best if asker in <set?> self.clients[at] else None
