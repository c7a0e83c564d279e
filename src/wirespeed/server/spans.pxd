from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed.server.call cimport Serving
from wirespeed.server.observer cimport RequestSpan


cdef enum Sampling:
    KEEP
    DROP
    RATIO                              # by the trace's id, below `bound`
    ASK                                # a sampler of another kind, called


cdef class Subject:
    cdef bytes name_json               # as requests spell it, if it is kept; or None
    cdef str method
    cdef str target                    # params.name or params.uri


cdef class Tracer:
    cdef readonly object server
    cdef object support                # of the package that knows what to do with spans
    cdef object processor              # whose parts must not want to see spans begin
    cdef object parts                  # those that were looked at
    cdef object batch                  # the only part, if it is the SDK's for batches; or None
    cdef object queue                  # its deque
    cdef object append                 # of which this is the way in
    cdef Py_ssize_t room, batch_size
    cdef object attach                 # (context) -> token
    cdef object variable               # the context variable that `attach` sets, or None
    cdef object context_type
    cdef object key                    # of the current span in a context
    cdef list hot                      # subjects of tools/call that came before
    cdef Sampling root, below_sampled, below_unsampled
    cdef uint64_t bound
    cdef bint generic                  # propagators of another kind are asked
    cdef bint own_ids
    cdef uint64_t s0, s1               # of the generator

    cdef uint64_t random_c(self) noexcept
    cdef int look_c(self) except -1
    cdef RequestSpan begin_c(self, Serving connection, Message m)
    cdef Subject subject_c(self, Message m)
    cdef int deliver_c(self, CallSpan span) except -1


cdef class CallSpan(RequestSpan):
    cdef object __weakref__
    cdef Tracer tracer
    cdef uint64_t trace_hi, trace_lo, span_id
    cdef readonly object remote_parent           # of the API's SpanContext type; or None
    cdef uint64_t parent_id
    cdef readonly int flags
    cdef bint recording
    cdef readonly long long started, finished    # nanoseconds since 1970; 0: not yet
    cdef Subject subject               # None: it was not recorded
    cdef long long number              # the request's id, if that is a small number
    cdef bytes long_id                 # its JSON text if it is not; or None
    cdef readonly str version
    cdef readonly int code
    cdef readonly bint failed
    cdef readonly object state         # tracestate; or None
    cdef readonly object carried       # the context that came with the request; or None
    cdef readonly object own           # attributes that the handler has set, bounded; or None
    cdef readonly object own_events, own_links
    cdef readonly object own_status
    cdef readonly str renamed
    cdef object span_context
    cdef object told                   # all that exporters read, once it has ended and one does

    cdef object readable_c(self)
