from wirespeed._core.envelope cimport Message


cdef enum Outcome:
    ANSWERED = 0                       # with a result; others are the codes of errors
    CANCELLED = 1                      # by the client: no answer
    MAX_BUCKETS = 32


cdef class Series:
    cdef readonly str method
    cdef readonly str name
    cdef double bounds[MAX_BUCKETS]
    cdef long long counts[MAX_BUCKETS + 1]
    cdef int n_bounds
    cdef readonly double seconds       # of all requests together
    cdef readonly long long failures   # results of tools that say isError
    cdef readonly dict codes           # of errors -> how many

    cdef int add_c(self, double seconds, int code, bint failed) except -1


cdef class Observer:
    cdef readonly tuple bounds
    cdef readonly dict series          # (method, name) -> Series
    cdef dict by_method                # of series without a name
    cdef dict by_tool
    cdef readonly long long n_connections
    cdef readonly dict gone            # counters of connections that have ended, summed
    cdef public object tracer          # makes spans; or None

    cdef Series of_c(self, str method, str name)
    cdef Series of_method_c(self, str method)
    cdef Series of_tool_c(self, str name)
    cdef Series of_request_c(self, Message m, object service)


cdef class RequestSpan:
    cdef public str note               # the error's message

    cpdef object entered(self, object base)
    cpdef object end_call(self, int code, bint failed)


cdef double now_c() noexcept
