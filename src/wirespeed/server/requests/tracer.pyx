"""Spans of requests, made late: a span is ids and times until a handler or an exporter reads it.

Most spans are never read, because their trace is not kept. The first access to a `LateSpan` makes
the span of the tracing package (`wirespeed.ext._late_spans`).
"""

from cpython.contextvars cimport PyContext_Copy, PyContext_Enter, PyContext_Exit
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

import logging
import random

from wirespeed._core._simd cimport WS_META
from wirespeed._core.envelope cimport Message
from wirespeed.server.requests.observer cimport RequestSpan
from wirespeed.server.requests.params cimport described_c, has_other_meta_c


logger = logging.getLogger("wirespeed.server")

cdef enum:
    SAMPLED = 1
    RANDOM = 2                 # the trace's id is random (W3C Trace Context level 2)

cdef object LOW = 0xFFFFFFFFFFFFFFFF
cdef object getrandbits = random.getrandbits       # seeded anew in a forked process


cdef long long wall_c() noexcept:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <long long> t.tv_sec * 1000000000 + t.tv_nsec


cdef class Tracer:
    """Makes the spans of one server's requests.

    Args:
        sdk: The tracing package; see `wirespeed.ext._late_spans.Sdk`.
        bounds: A trace is kept if the low 64 bits of its id are below a bound. Three of them: for
            traces that begin here, below parents that were sampled, below parents that were not.
    """

    def __init__(self, sdk, tuple bounds not None):
        self.sdk = sdk
        self.on_start = sdk.processor.on_start
        self.on_end = sdk.processor.on_end
        self.attach = sdk.attach
        self.context_type = sdk.context_type
        self.key = sdk.key
        self.span_type = sdk.span_type
        self.root, self.below_sampled, self.below_unsampled = bounds

    cpdef RequestSpan begin(self, Message m, object negotiated):
        """The span of a request that came in. ``negotiated`` is the connection's revision."""
        cdef LateSpan span
        cdef object trace_id, above = None, parent = None, bound = self.root
        cdef int flags = RANDOM
        if has_other_meta_c(m):
            above, parent = self.sdk.extract(m.lease_c(WS_META))
        if parent is None:
            trace_id = getrandbits(128) or 1
        else:
            trace_id = parent.trace_id
            flags = parent.trace_flags
            bound = self.below_sampled if flags & SAMPLED else self.below_unsampled
            flags &= RANDOM
        if trace_id & LOW < bound:
            span = self.span_type()
            span.request = described_c(m, negotiated)
            span.started = wall_c()
            flags |= SAMPLED
        else:
            span = LateSpan.__new__(LateSpan)
        span.tracer = self
        span.trace_id = trace_id
        span.span_id = getrandbits(64) or 1
        span.above = above
        span.parent_ids = parent
        span.flags = flags
        if flags & SAMPLED:
            try:
                self.on_start(span, above)
            except Exception:
                logger.exception("a span processor failed")
        return span


cdef class LateSpan(RequestSpan):
    """The span of one request.

    The attributes and methods that are not here are those of the tracing package's span, made at
    the first access.
    """

    def __init__(self):
        """Called by the tracer alone."""

    cpdef object entered(self, object base):
        cdef object variables = PyContext_Copy(base)
        cdef dict members = {} if self.above is None else dict(self.above)
        cdef object context
        members[self.tracer.key] = self
        context = self.tracer.context_type(members)
        PyContext_Enter(variables)
        try:
            self.tracer.attach(context)
        finally:
            PyContext_Exit(variables)
        return variables

    cpdef object end_call(self, int code, bint failed):
        if self.request is None:
            return None
        self.code = code
        self.failed = failed
        self.finished = wall_c()
        try:
            if self.made is not None:
                self.tracer.sdk.close(self, self.made)
            self.tracer.on_end(self)
        except Exception:
            logger.exception("a span processor failed")

    @property
    def context(self):
        """The ids, in the type of the tracing package."""
        if self.ids is None:
            self.ids = self.tracer.sdk.ids(self)
        return self.ids

    def get_span_context(self):
        """The ids, in the type of the tracing package."""
        return self.context

    def is_recording(self):
        """Whether the span keeps what is written to it."""
        return self.request is not None and self.finished == 0

    def end(self, end_time=None):
        """Do nothing: the span ends with its request."""

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        if exc is not None:
            self.record_exception(exc)

    def __getattr__(self, str name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.made is None:
            self.made = self.tracer.sdk.made(self)
        return getattr(self.made, name)
