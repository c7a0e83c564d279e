"""Spans of requests, made late: a span is ids and times until a handler or an exporter reads it.

Most spans are never read, because their trace is not kept. The first access to a `LateSpan` makes
the span of the tracing package (`wirespeed.ext._late_spans`).
"""

from cpython.contextvars cimport PyContext_Copy, PyContext_Enter, PyContext_Exit, PyContextVar_Set
from cpython.dict cimport PyDict_SetItem
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

import logging
import os

from wirespeed._core._simd cimport WS_META
from wirespeed._core.envelope cimport Message
from wirespeed.server.requests.observer cimport RequestSpan
from wirespeed.server.requests.params cimport described_c, has_other_meta_c


logger = logging.getLogger("wirespeed.server")

cdef enum:
    SAMPLED = 1
    RANDOM = 2                 # the trace's id is random (W3C Trace Context level 2)
    WORDS = 384                # of 64 random bits; a span's ids take three

cdef object ALL = 1 << 64      # the bound above every value of 64 bits
cdef object new_tuple = tuple.__new__
cdef object urandom = os.urandom
cdef bytes random_words = b""
cdef int n_words = 0           # of them that are left


cdef int take_words_c(unsigned long long* words) except -1:
    """Copy three random words."""
    global random_words, n_words
    if n_words == 0:
        random_words = urandom(8 * WORDS)
        n_words = WORDS
    n_words -= 3
    memcpy(words, <const char*> random_words + 8 * n_words, 24)
    return 0


def drop_words():
    """Forget the words that are left."""
    global n_words
    n_words = 0


# A forked process must not use the same words.
os.register_at_fork(after_in_child=drop_words)


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
        self.variable = sdk.variable
        self.context_type = sdk.context_type
        self.key = sdk.key
        self.flags = sdk.flags
        self.no_state = sdk.no_state
        self.ids_type = sdk.ids_type
        self.span_type = sdk.span_type
        cdef int i
        for i in range(3):
            self.bounds[i] = 0 if bounds[i] == ALL else bounds[i]
            self.keeps_all[i] = bounds[i] == ALL

    cpdef RequestSpan begin(self, Message m, object negotiated):
        """The span of a request that came in. ``negotiated`` is the connection's revision."""
        cdef LateSpan span
        cdef object above = None, parent = None
        cdef unsigned long long words[3]
        cdef unsigned long long low
        cdef int flags = RANDOM, which = 0
        take_words_c(words)
        low = words[0]
        if has_other_meta_c(m):
            above, parent = self.sdk.extract(m.lease_c(WS_META))
        if parent is not None:
            low = parent.trace_id & 0xFFFFFFFFFFFFFFFF
            flags = parent.trace_flags
            which = 1 if flags & SAMPLED else 2
            flags &= RANDOM
        if self.keeps_all[which] or low < self.bounds[which]:
            span = self.span_type()
            span.request = described_c(m, negotiated)
            span.started = wall_c()
            flags |= SAMPLED
        else:
            span = LateSpan.__new__(LateSpan)
        span.tracer = self
        memcpy(span.words, words, sizeof(words))
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
        cdef object new = self.tracer.context_type
        cdef object context = new() if self.above is None else new(self.above)
        PyDict_SetItem(context, self.tracer.key, self)
        PyContext_Enter(variables)
        try:
            PyContextVar_Set(self.tracer.variable, context)
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
        cdef Tracer tracer = self.tracer
        cdef object trace_id, state = tracer.no_state
        if self.ids is None:
            if self.parent_ids is None:
                trace_id = <object> self.words[1] << 64 | self.words[0] or 1
            else:
                trace_id = self.parent_ids.trace_id
                state = self.parent_ids.trace_state
            self.ids = new_tuple(
                tracer.ids_type,
                (trace_id, self.words[2] or 1, False, tracer.flags[self.flags], state, True),
            )
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
