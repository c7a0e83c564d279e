from wirespeed.transport.http.exchange cimport Exchange


cdef class Streams:
    cdef readonly object store         # the `event_store` of the options
    cdef readonly object retry         # seconds, or None
    cdef readonly object quiet         # logs that the store fails, once for many streams
    cdef object _loop
    cdef set _tasks
    cdef double _keepalive             # seconds of silence before a comment; 0: none are sent
    # the ones that are open, and the output of their connections when they were looked at
    cdef list _parts
    cdef Py_ssize_t _next
    cdef object _timer
    cdef dict _ends                    # timers of the streams that credentials limit

    cpdef int opened(self, Exchange exchange) except -1
    cpdef int closed(self, Exchange exchange) except -1
    cdef int _arm(self) except -1
