from wirespeed.transport.served cimport Served


# What the table knows of a session.
cdef class Session:
    cdef readonly str id
    cdef readonly Served connection    # what serves its requests
    cdef bytes principal               # of the client that opened it, or None
    cdef double used                   # when its last request came, on the monotonic clock
    cdef double rested                 # when its last answer was complete

    cdef int rest_c(self) except -1


cdef class Sessions:
    cdef object loop
    cdef double ttl
    cdef Py_ssize_t max_sessions, max_per_principal
    cdef str name, prefix              # of ids
    cdef int worker, n_workers
    cdef object by_id                  # OrderedDict
    cdef dict owned                    # sessions of each principal
    cdef object timer

    cpdef Session find(self, str id, bytes principal)
    cdef int use_c(self, Session session) except -1
    cdef double left_c(self)
    cdef int disown_c(self, bytes principal) except -1
    cdef object full_c(self, str message, int status)
