from libc.stdint cimport uint32_t, uint64_t

from wirespeed.proxy.side cimport Choice, Side, Translation


cdef class Share:
    cdef readonly double weight
    cdef readonly double low, high
    cdef double turn             # of smooth weighted round robin

    cdef bint is_canary_c(self) noexcept


cdef class LeastLoaded(Choice):
    cdef list servers
    cdef list clients            # of each server, a set: those that it has had a request of
    cdef list shares             # of each server; empty: they have no weights
    cdef bint has_canaries
    cdef void *left_for          # whose request was left to `Pool.route`; to be compared only
    cdef Py_ssize_t left_at      # and the index of the server that was chosen for it
    cdef uint32_t salt
    cdef uint64_t n_placed       # requests without a principal

    cdef double place_c(self, Side asker) except? -1
    cdef Py_ssize_t pick_c(self, Side asker, Side without) except? -2
    cdef Py_ssize_t fewest_c(self, Side without, bint spares_canaries) except? -2


cdef class MarkedRequests(Translation):
    cdef bint placed             # what the server gives names its process


cdef class TaskRequests(Translation):
    cdef object after            # a function of the client and its request: `Route.after`
