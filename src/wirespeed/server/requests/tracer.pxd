from wirespeed._core.envelope cimport Message
from wirespeed.server.requests.observer cimport RequestSpan


cdef class Tracer:
    cdef readonly object sdk           # makes the parts of a span: see `Sdk` in wirespeed.ext
    cdef object on_start, on_end       # of the SDK's span processor
    cdef object variable               # the context variable of the current context
    cdef object context_type, key      # of a context, and of the current span in it
    cdef tuple flags                   # of a trace, by their bits
    cdef object no_state               # the state of a trace that has none
    cdef object ids_type               # subclass of SpanContext, a tuple
    cdef object span_type              # subclass of LateSpan, for the spans that are kept
    cdef unsigned long long bounds[3]  # of the trace's id
    cdef bint keeps_all[3]             # whatever the id is

    cpdef RequestSpan begin(self, Message m, object negotiated)


cdef class LateSpan(RequestSpan):
    cdef object __weakref__
    cdef Tracer tracer
    cdef unsigned long long words[3]   # random: of the trace's id, and the span's
    cdef readonly object above         # the context that came with the request; or None
    cdef readonly object parent_ids    # SpanContext of the remote parent; or None
    cdef readonly int flags
    cdef readonly tuple request        # what `described` returns; None: the trace is not kept
    cdef readonly long long started, finished    # nanoseconds since 1970; 0: not yet
    cdef readonly int code             # of the error that the request ended with
    cdef readonly bint failed          # the result says isError
    cdef object ids                    # SpanContext, once that was asked for
    cdef object made                   # the tracing package's span, once that was needed
