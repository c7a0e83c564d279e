from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed.server.call cimport Serving


cdef enum Sampling:
    KEEP
    DROP
    RATIO                              # by the trace's id, below `bound`
    ASK                                # a sampler of another kind, called


cdef class CallSpan


cdef class Tracer:
    cdef readonly object server
    cdef object support                # of the package that knows what to do with spans
    cdef object finished               # the class of spans that have ended
    cdef object processor              # whose parts must not want to see spans begin
    cdef object parts                  # those that were looked at
    cdef object deliver                # (list of finished spans), called soon; None: each at once
    cdef list ready                    # finished spans that wait for that
    cdef object loop                   # where that was asked for
    cdef object attach                 # (context) -> token
    cdef object variable               # the context variable that `attach` sets, or None
    cdef object context_type
    cdef object key                    # of the current span in a context
    cdef Sampling root, below_sampled, below_unsampled
    cdef uint64_t bound
    cdef bint generic                  # propagators of another kind are asked
    cdef bint own_ids
    cdef uint64_t s0, s1               # of the generator

    cdef uint64_t random_c(self) noexcept
    cdef object begin_c(self, Serving connection, Message m)
    cdef int deliver_c(self, CallSpan span, object finished) except -1


cdef class CallSpan:
    cdef Tracer tracer
    cdef object loop
    cdef uint64_t trace_hi, trace_lo, span_id
    cdef readonly object parent        # of the API's SpanContext type; or None
    cdef uint64_t parent_id
    cdef readonly int flags
    cdef bint recording
    cdef readonly long long started, finished    # nanoseconds since 1970
    cdef readonly str method
    cdef readonly str target           # params.name or params.uri
    cdef readonly bytes raw_id
    cdef readonly str version
    cdef public str note               # the error's message
    cdef readonly int code
    cdef readonly bint failed
    cdef readonly object state         # tracestate; or None
    cdef readonly object carried       # the context that came with the request; or None
    cdef readonly dict own             # attributes that the handler has set
    cdef readonly list events, links
    cdef readonly object status        # that the handler has set; or None
    cdef readonly str renamed
    cdef object span_context
