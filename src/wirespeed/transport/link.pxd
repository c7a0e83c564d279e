from wirespeed._core.wire cimport Wire


cdef class Endpoint:
    cdef public Wire wire               # set before the link is made
    cdef readonly Link link            # None before `attach`, and after the link is lost

    cpdef object on_data(self)
    cpdef object on_eof(self)
    cpdef object on_lost(self, exc)
    cpdef object on_drained(self)


cdef class Link:
    cdef readonly object loop
    cdef readonly Endpoint endpoint
    cdef bint flush_scheduled
    cdef bint corked                   # input is being worked through: it flushes at its end
    cdef bint was_full                 # the outbox passed its high mark: `on_drained` is owed
    cdef public bint closing           # no more requests are taken
    cdef readonly bint ending          # goodbye was said: the peer's is waited for
    cdef bint half_closed              # all is said and sent: the peer's end is waited for
    cdef object patience               # the timer of that
    cdef public double close_timeout   # seconds for it
    cdef object flush_callback

    cdef int wrote_c(self) except -1
    cdef int deliver_c(self) except -1
    cdef int check_drained_c(self) except -1
    cdef int ended_c(self) except -1
    cdef int check_over_c(self) except -1
    cdef int released_c(self) except -1
    cdef int arm_c(self, double seconds) except -1
    cpdef object flush(self)
    cpdef object update_reading(self)
