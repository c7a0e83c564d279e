from libc.stdint cimport uint8_t
from libc.string cimport memchr

from wirespeed._core.span cimport Span
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.link cimport Link


cdef inline bint names_process_c(Span text) noexcept:
    """Whether a JSON text may name a process (`HttpService.place_of`): it has a tilde behind a
    digit."""
    cdef const uint8_t *p = text.p
    cdef const uint8_t *end = text.p + text.n
    while p < end:
        p = <const uint8_t *> memchr(p, c'~', <size_t> end - <size_t> p)
        if p is NULL:
            return False
        if p > text.p and c'0' <= (p - 1)[0] <= c'9':
            return True
        p += 1
    return False


cdef class SessionEntry:
    cdef readonly str id
    cdef readonly SessionConnection connection    # what serves its requests
    cdef readonly bytes principal      # of the client that opened it, or None
    cdef double used                   # when its last request came, on the monotonic clock
    cdef double rested                 # when its last answer was complete

    cdef int rest_c(self) except -1


cdef class Lease:
    cdef double end                    # on the monotonic clock

    cdef bint lasts_c(self) noexcept


cdef class Sessions:
    cdef object loop
    cdef double ttl
    cdef Py_ssize_t max_sessions, max_per_principal
    cdef readonly str name             # in ids
    cdef str prefix                    # of ids
    cdef int worker, n_workers
    cdef object by_id                  # OrderedDict
    cdef dict owned                    # sessions of each principal
    cdef object timer
    cdef object on_ended               # called with the id of a session that has ended; or None

    cpdef SessionEntry find(self, str id, bytes principal)
    cdef int use_c(self, SessionEntry session) except -1
    cdef double left_c(self)
    cdef int disown_c(self, bytes principal) except -1
    cdef object full_c(self, str message, int status)


cdef class SessionLink(Link):
    cdef public SessionEntry session        # whose connection it is; None: a lane
    cdef public object carry           # gets the messages of the own stream; None drops them
    cdef public object on_room         # called while the session reads on; or None
    cdef public bint full              # what carries them has no room
    cdef Link via                      # the link that the answers leave by, where it is one
    cdef bint lost

    cdef int wrote_own_c(self) except -1
    cdef int lose_c(self, object exc) except -1
