"""Spans of requests, at the cost of a few numbers each.

The span that a handler sees as the current one, and exporters get in the end, is a `CallSpan`: ids,
times, and what the request says of itself. What tracing packages make of it (names, attributes, a
parent's context) is built when it is asked for, by `wirespeed.ext.otel`, which is not needed here.
A span that waits for its export is one piece of memory, which the garbage collector never visits.
"""

cimport cython
from cpython.contextvars cimport (
    PyContext_Copy,
    PyContext_Enter,
    PyContext_Exit,
    PyContextVar_Set,
)
from cpython.dict cimport PyDict_SetItem
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcmp
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

import logging
import os

import msgspec

from wirespeed._core._simd cimport (
    WS_ID,
    WS_META,
    WS_META_CLIENT_CAPABILITIES,
    WS_META_CLIENT_INFO,
    WS_META_PROTOCOL_VERSION,
    WS_NAME,
)
from wirespeed._core.envelope cimport Message, method_is, poi_is, span_of
from wirespeed._core.span cimport Span, span_equals
from wirespeed.server.call cimport Serving, name_of
from wirespeed.server.observer cimport RequestSpan

from wirespeed.protocol.revisions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
    MODERN_VERSIONS,
)

logger = logging.getLogger("wirespeed.server")

MODES = ("keep", "drop", "ratio", "ask")

cdef enum:
    SAMPLED = 1
    MAX_CARRIED = 8192         # characters (W3C Baggage, section 3.3.2)
    MAX_TEXT = 1024            # characters that a client may put into a span, in one place
    BETWEEN = 16               # spans between two words to the thread that exports them
    N_HOT = 16
    MAX_HOT = 256              # bytes of a tool's name that is kept
    RANDOM = 2                 # the trace's id is random (W3C Trace Context level 2)


class Carrier(msgspec.Struct):
    """Trace context in ``_meta`` (2026-07-28 basic, "OpenTelemetry trace context")."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


cdef tuple NO_ARGS = ()
cdef str TOOLS_CALL = "tools/call"
cdef str LATEST = max(MODERN_VERSIONS)
cdef bytes LATEST_JSON = msgspec.json.encode(LATEST)
cdef object decode_carrier = msgspec.json.Decoder(Carrier).decode
# What a member of `_meta` takes beside its value: its name, two quotes, a colon and a comma.
cdef size_t AROUND_VERSION = len(META_PROTOCOL_VERSION) + 4
cdef size_t AROUND_CAPABILITIES = len(META_CLIENT_CAPABILITIES) + 4
cdef size_t AROUND_INFO = len(META_CLIENT_INFO) + 4


cdef long long wall_c() noexcept:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <long long> t.tv_sec * 1000000000 + t.tv_nsec


cdef bint has_context(Message m) noexcept:
    """Whether `_meta` has one of the strings that name trace context: a first look."""
    cdef Span s = span_of(m, WS_META)
    cdef const uint8_t *p = s.p
    cdef const uint8_t *end = s.p + s.n
    cdef size_t known = 1, n           # braces, less the comma that the last member has not
    n = span_of(m, WS_META_PROTOCOL_VERSION).n
    if n:
        known += n + AROUND_VERSION
    n = span_of(m, WS_META_CLIENT_CAPABILITIES).n
    if n:
        known += n + AROUND_CAPABILITIES
    n = span_of(m, WS_META_CLIENT_INFO).n
    if n:
        known += n + AROUND_INFO
    if s.n < known + 11:               # no room for "baggage":""
        return False
    while p + 9 <= end:
        p = <const uint8_t *> memchr(p, c'"', <size_t> end - <size_t> p)
        if p is NULL or p + 9 > end:
            return False
        if p[1] == c't' and p + 13 <= end and memcmp(p, b'"traceparent"', 13) == 0:
            return True
        if p[1] == c'b' and memcmp(p, b'"baggage"', 9) == 0:
            return True
        p += 1
    return False


@cython.overflowcheck(False)           # bits, at most 64 of them
cdef int hex_c(const uint8_t *p, int n, uint64_t *value) noexcept:
    """n hexadecimal digits, in lower case. 0: they are none."""
    cdef uint64_t v = 0
    cdef int i
    for i in range(n):
        v <<= 4
        if c'0' <= p[i] <= c'9':
            v |= p[i] - c'0'
        elif c'a' <= p[i] <= c'f':
            v |= p[i] - c'a' + 10
        else:
            return 0
    value[0] = v
    return 1


cdef str cut_c(str text):
    return text if text is None or len(text) <= MAX_TEXT else text[:MAX_TEXT]


cdef long long number_c(Span s) noexcept:
    """The number that the text is; -1: it is none, or more than 18 digits, or negative."""
    cdef long long value = 0
    cdef size_t i
    if not 0 < s.n <= 18:
        return -1
    for i in range(s.n):
        if not c'0' <= s.p[i] <= c'9':
            return -1
        value = 10 * value + (s.p[i] - c'0')
    return value


@cython.final
@cython.no_gc
cdef class Subject:
    """What a request is about: its method, and the tool, prompt or resource."""


@cython.final
cdef class Tracer:
    """Makes the spans of one server's requests.

    Args:
        server: Whose.
        support: What knows the tracing package; see `wirespeed.ext.otel`.
        root, below_sampled, below_unsampled: What is recorded, one of `MODES`: of traces that begin
            here, of those whose remote parent was sampled, and of others.
        bound: Of "ratio": traces are kept whose id modulo 2**64 is below.
        generic: Whether ``support.extract`` is to read every request's ``_meta``.
        own_ids: Whether ids are made here; otherwise by ``support.new_ids``.
    """

    def __init__(self, server, support, *, str root, str below_sampled, str below_unsampled,
                 uint64_t bound=0, bint generic=False, bint own_ids=True):
        self.server = server
        self.support = support
        self.processor = support.processor
        self.parts = None
        self.attach = support.attach
        self.variable = support.variable
        self.context_type = support.context_type
        self.key = support.key
        self.hot = [None] * N_HOT
        self.root = MODES.index(root)
        self.below_sampled = MODES.index(below_sampled)
        self.below_unsampled = MODES.index(below_unsampled)
        self.bound = bound
        self.generic = generic
        self.own_ids = own_ids
        self.seed()

    def seed(self):
        """Make the ids of this process others than those of its parent."""
        cdef bytes noise = os.urandom(16)
        self.s0 = int.from_bytes(noise[:8], "little") | 1
        self.s1 = int.from_bytes(noise[8:], "little")

    @cython.overflowcheck(False)       # modulo 2**64 is what is meant
    cdef uint64_t random_c(self) noexcept:
        """xorshift128+; never 0."""
        cdef uint64_t x = self.s0, y = self.s1
        self.s0 = y
        x ^= x << 23
        self.s1 = x ^ y ^ (x >> 17) ^ (y >> 26)
        return self.s1 + y if self.s1 + y else 1

    def begin(self, Serving connection not None, Message m not None):
        """The span of a request that came in."""
        return self.begin_c(connection, m)

    cdef int deliver_c(self, CallSpan span) except -1:
        """A span has ended. What the SDK's processor of batches does with each is done here, while
        there is room: it is a good part of what a span costs."""
        cdef Py_ssize_t n
        if self.batch is not None and span.flags & SAMPLED:
            n = len(self.queue)
            if n < self.room and self.batch._shutdown is False:
                self.append(span)
                n += 1
                if n == self.batch_size or (n > self.batch_size and n % BETWEEN == 0):
                    self.batch._worker_awaken.set()
                return 0
        for processor in self.processor._span_processors:
            try:
                processor.on_end(span)
            except Exception:
                logger.exception("a span processor failed")
        return 0

    cdef int look_c(self) except -1:
        """Processors were added."""
        self.parts = self.processor._span_processors
        self.batch = self.support.batch()
        if self.batch is not None:
            self.queue = self.batch._queue
            self.append = self.queue.appendleft
            self.room = self.queue.maxlen
            self.batch_size = self.batch._max_export_batch_size
        return 0

    cdef Subject subject_c(self, Message m):
        """What a request is about."""
        cdef Subject subject
        cdef Span s = span_of(m, WS_NAME)
        cdef size_t slot = 0
        cdef bint is_tool = method_is(m, b'"tools/call"', TOOLS_CALL)
        cdef bint keep = is_tool and 2 <= s.n <= MAX_HOT
        if keep:
            slot = (s.n + s.p[s.n - 2]) % N_HOT
            subject = <Subject> self.hot[slot]
            if subject is not None and span_equals(
                s, subject.name_json, len(subject.name_json)
            ):
                return subject
        subject = Subject.__new__(Subject)
        subject.method = TOOLS_CALL if is_tool else cut_c(m.method)
        subject.target = cut_c(name_of(m))
        if keep:
            subject.name_json = (<const char *> s.p)[:s.n]
            self.hot[slot] = subject
        return subject

    cdef RequestSpan begin_c(self, Serving connection, Message m):
        cdef CallSpan span
        cdef Span s
        cdef Sampling sampling = self.root
        if self.processor._span_processors is not self.parts:
            if not self.support.silent():
                return self.support.plain.begin(connection, m)
            self.look_c()
        span = CallSpan.__new__(CallSpan)
        span.tracer = self
        if self.generic or (span_of(m, WS_META).n and has_context(m)):
            self._extract(span, m)
        if span.parent_id:
            sampling = self.below_sampled if span.flags & SAMPLED else self.below_unsampled
        elif self.own_ids:
            span.trace_hi = self.random_c()
            span.trace_lo = self.random_c()
            span.flags = RANDOM
        if self.own_ids:
            span.span_id = self.random_c()
        else:
            trace_id, own_id, flags = self.support.new_ids()
            span.span_id = own_id
            if not span.parent_id:
                span.trace_hi = trace_id >> 64
                span.trace_lo = trace_id & 0xFFFFFFFFFFFFFFFF
                span.flags = flags
        span.recording = sampling == KEEP or (sampling == RATIO and span.trace_lo < self.bound)
        if sampling != ASK and not span.recording:
            span.flags &= RANDOM
            return span
        span.subject = self.subject_c(m)
        if poi_is(m, WS_META_PROTOCOL_VERSION, LATEST_JSON):
            span.version = LATEST
        elif m.scan.poi[WS_META_PROTOCOL_VERSION].len:
            span.version = cut_c(m.text_c(WS_META_PROTOCOL_VERSION))
        elif connection.revision is not None:
            span.version = connection.revision.version
        kept = True
        if sampling == ASK:
            kept, span.recording, own, span.state = self.support.sample(span)
            if own is not None:
                span.own = own
        span.flags = (span.flags & RANDOM) | (SAMPLED if kept else 0)
        if not span.recording:
            span.subject = None
            return span
        s = span_of(m, WS_ID)
        span.number = number_c(s)
        if span.number < 0:
            span.long_id = m.raw_id if s.n <= MAX_TEXT else b'""'
        span.started = wall_c()
        return span

    def _extract(self, CallSpan span not None, Message m not None):
        """Take the trace context that a request brought, as far as it is valid."""
        cdef object carrier, lease = m.lease_c(WS_META)
        cdef bytes text
        cdef const uint8_t *p
        cdef uint64_t version = 0, flags = 0
        if self.generic:
            span.carried, parent = self.support.extract(lease)
            if parent is not None:
                span.remote_parent = parent
                span.trace_hi = parent.trace_id >> 64
                span.trace_lo = parent.trace_id & 0xFFFFFFFFFFFFFFFF
                span.parent_id = parent.span_id
                span.flags = parent.trace_flags
                span.state = parent.trace_state
            return
        try:
            carrier = decode_carrier(lease)
        except msgspec.DecodeError:
            return                     # of other types: none of ours
        if carrier.baggage is not None and len(carrier.baggage) <= MAX_CARRIED:
            span.carried = self.support.baggage(carrier.baggage)
        if carrier.traceparent is None:
            return
        text = carrier.traceparent.encode("utf-8", "replace")
        p = text
        # W3C Trace Context, section 3.2: version-trace-parent-flags
        if (
            len(text) < 55 or p[2] != c'-' or p[35] != c'-' or p[52] != c'-'
            or not hex_c(p, 2, &version) or version == 0xFF
            or (len(text) > 55 and (version == 0 or p[55] != c'-'))
            or not hex_c(p + 3, 16, &span.trace_hi) or not hex_c(p + 19, 16, &span.trace_lo)
            or not hex_c(p + 36, 16, &span.parent_id) or not hex_c(p + 53, 2, &flags)
            or (span.trace_hi | span.trace_lo) == 0 or span.parent_id == 0
        ):
            span.trace_hi = span.trace_lo = span.parent_id = 0
            return
        span.flags = flags & (SAMPLED | RANDOM)
        if carrier.tracestate is not None and len(carrier.tracestate) <= MAX_CARRIED:
            span.state = self.support.tracestate(carrier.tracestate)


@cython.final
@cython.no_gc                          # what it holds never refers to it, for values are cleaned
cdef class CallSpan(RequestSpan):
    """The span of one request: what a tracing package's API calls a Span.

    To those who read it it is what they expect (of the SDK, a ``ReadableSpan``): what is not here
    is asked of one, which is made then. A span that is not recorded has none.
    """

    def __init__(self):
        raise TypeError("spans are made by a tracer")

    def __repr__(self):
        return f"<CallSpan {self.trace_id:032x}-{self.span_id:016x}>"

    cpdef object entered(self, object base):
        cdef object variables = PyContext_Copy(base)
        cdef object context
        if self.carried is None:
            context = (<PyTypeObject *> self.tracer.context_type).tp_new(
                <type> self.tracer.context_type, <PyObject *> NO_ARGS, NULL
            )
        else:
            context = self.tracer.context_type(self.carried)
        PyDict_SetItem(context, self.tracer.key, self)      # as dict does: it is frozen to others
        PyContext_Enter(variables)
        try:
            if self.tracer.variable is not None:
                PyContextVar_Set(self.tracer.variable, context)
            else:
                self.tracer.attach(context)
        finally:
            PyContext_Exit(variables)
        return variables

    cpdef object end_call(self, int code, bint failed):
        if self.recording:
            self.code = code
            self.failed = failed
            self.finished = wall_c()
            self.note = cut_c(self.note)
            self.recording = False
            self.tracer.deliver_c(self)

    @property
    def trace_id(self):
        """128 bits."""
        return (<object> self.trace_hi << 64) | self.trace_lo

    @property
    def id(self):
        """64 bits."""
        return self.span_id

    @property
    def parent_span_id(self):
        """64 bits; 0 for the root of a trace."""
        return self.parent_id

    @property
    def server(self):
        """Whose request it is."""
        return self.tracer.server

    @property
    def method(self):
        """The request's; None of a span that is not recorded."""
        return None if self.subject is None else self.subject.method

    @property
    def target(self):
        """What the request is for: ``params.name`` or ``params.uri``."""
        return None if self.subject is None else self.subject.target

    @property
    def raw_id(self):
        """The JSON text of the request's id."""
        return b"%d" % self.number if self.long_id is None else self.long_id

    # -- the API of spans ----------------------------------------------------------------------

    def get_span_context(self):
        """The ids, in the type of the tracing package."""
        return self.context

    @property
    def context(self):
        """The same."""
        if self.span_context is None:
            self.span_context = self.tracer.support.span_context(self)
        return self.span_context

    def is_recording(self):
        """Whether what is set on it will be seen."""
        return self.recording

    def set_attribute(self, key, value):
        """Set one attribute."""
        if self.recording:
            if self.own is None:
                self.own = self.tracer.support.new_attributes()
            self.own[key] = value

    def set_attributes(self, attributes):
        """Set several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(self, name, attributes=None, timestamp=None):
        """Add an event."""
        if self.recording:
            if self.own_events is None:
                self.own_events = self.tracer.support.new_events()
            self.own_events.append(
                self.tracer.support.event(
                    name, attributes, wall_c() if timestamp is None else timestamp
                )
            )

    def add_link(self, context, attributes=None):
        """Add a link to another span."""
        if self.recording:
            link = self.tracer.support.link(context, attributes)
            if link is not None:
                if self.own_links is None:
                    self.own_links = self.tracer.support.new_links()
                self.own_links.append(link)

    def update_name(self, str name not None):
        """Give it another name."""
        if self.recording:
            self.renamed = name

    def set_status(self, status, description=None):
        """Set the status; an error of the request has the last word."""
        if self.recording:
            self.own_status = self.tracer.support.status(self.own_status, status, description)

    def record_exception(self, exception, attributes=None, timestamp=None, bint escaped=False):
        """Add an event about an exception."""
        if self.recording:
            told = self.tracer.support.exception_attributes(exception, escaped)
            self.add_event("exception", {**told, **(attributes or {})}, timestamp)

    def end(self, end_time=None):
        """Nothing: it ends with its request."""

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        if exc is not None:
            self.record_exception(exc)

    # -- for those who read it -----------------------------------------------------------------

    cdef object readable_c(self):
        cdef bint ended = not self.recording       # before it is read: it may end meanwhile
        if self.told is not None:
            return self.told
        told = self.tracer.support.readable(self)
        if ended:
            self.told = told
        return told

    @property
    def __class__(self):
        return CallSpan if self.subject is None else self.tracer.support.readable_type

    def __getattr__(self, str name):
        if self.subject is None or name.startswith("__"):
            raise AttributeError(f"a span that is not recorded has no {name}")
        return getattr(self.readable_c(), name)

    def __setattr__(self, str name, value):
        if self.subject is None or self.recording:
            raise AttributeError(f"{name} of a span that has not ended cannot be set")
        setattr(self.readable_c(), name, value)

    def __reduce_ex__(self, protocol):
        if self.subject is None:
            raise TypeError("a span that is not recorded cannot be copied")
        return self.readable_c().__reduce_ex__(protocol)
