from wirespeed._core.session cimport Session


cdef class Endpoint:
    cdef readonly Session session
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
    cdef public bint closing           # no more input is taken
    cdef object flush_callback

    cdef int wrote_c(self) except -1
    cdef int deliver_c(self) except -1
    cdef int check_drained_c(self) except -1
    cpdef object flush(self)
    cpdef object update_reading(self)
