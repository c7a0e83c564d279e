"""Counts of calls by their outcome, and their latencies in the buckets of an HDR histogram.

A bucket is 0.1 % wide: a count costs a few instructions and no memory, however long a run is.
`hdrh`, which reads the counts, has the percentiles.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libc.time cimport timespec

cdef extern from "<time.h>" nogil:
    enum: CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *at)

cdef extern from * nogil:
    int leading_zeros "__builtin_clzll"(unsigned long long value)

OUTCOMES = (
    "ok", "tool_errors", "protocol_errors", "wrong", "missing", "refused", "cancelled",
    "duplicate", "late", "unexpected", "connection_losses",
)
# Outcomes of calls; the others are what a server does besides.
OF_CALLS = OUTCOMES[:DUPLICATE]

HIGHEST = 3_600_000_000_000            # an hour in nanoseconds: longer ones count as this


cdef int64_t now_c() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t> at.tv_sec * 1_000_000_000 + at.tv_nsec


cdef enum:
    HALF_BITS = 10                     # 1,024 buckets for each power of two
    N_BUCKETS = 34816                  # 34 powers of two: up to an hour of nanoseconds


@cython.final
cdef class Counts:
    """Counts of values from 0 to `HIGHEST`.

    Attributes:
        total: The number of values.
        sum: Their sum.
    """

    def __cinit__(self):
        self.buckets = <int64_t *> PyMem_RawCalloc(N_BUCKETS, sizeof(int64_t))
        if self.buckets is NULL:
            raise MemoryError("no memory for the counts of a histogram")

    def __dealloc__(self):
        PyMem_RawFree(self.buckets)

    cdef int add_c(self, int64_t value) noexcept:
        cdef int shift
        value = min(max(value, 0), HIGHEST)
        # each value below 2 ** (HALF_BITS + 1) has a bucket of its own
        shift = max(63 - leading_zeros(<unsigned long long> value | 1) - HALF_BITS, 0)
        self.buckets[(shift << HALF_BITS) + (value >> shift)] += 1
        self.total += 1
        self.sum += <double> value
        return 0

    cdef list since_c(self, Counts before):
        """(value, count) of each bucket that has got more than it had; the value is the highest of
        its bucket."""
        cdef list found = []
        cdef int at, shift
        cdef int64_t value, count
        for at in range(N_BUCKETS):
            count = self.buckets[at] - (0 if before is None else before.buckets[at])
            if count:
                shift = max((at >> HALF_BITS) - 1, 0)
                value = at - (<int64_t> shift << HALF_BITS)
                found.append((((value + 1) << shift) - 1, count))
        return found

    cdef int copy_c(self, Counts other) noexcept:
        memcpy(self.buckets, other.buckets, N_BUCKETS * sizeof(int64_t))
        self.total, self.sum = other.total, other.sum
        return 0

    def add(self, int64_t value):
        """Count a value."""
        self.add_c(value)

    def items(self):
        """Return (value, count) of each bucket that has a count; the value is the highest of its
        bucket."""
        return self.since_c(None)


@cython.final
cdef class Recorder:
    """The outcomes of one phase of a run, of all connections of this process.

    Args:
        paced: Whether calls have times of their own; otherwise they are sent when they are
            intended.

    Attributes:
        latency: Nanoseconds from the intended time of a call to its right answer.
        service: The same from the time at which it was sent.
        last: When the last answer came, in nanoseconds of the monotonic clock; 0: none did.
        late_starts: The calls that left over a millisecond after their time although nothing but
            this process held them up.
        held_starts: Those that did because no connection had room for them.
        progress: The progress notifications of calls that asked for them.
    """

    def __init__(self, bint paced=False):
        self.latency = Counts()
        self.service = Counts() if paced else self.latency
        self.before = Counts()

    cdef int count_c(self, Outcome outcome) noexcept:
        self.outcomes[<int> outcome] += 1
        return 0

    cdef int ok_c(self, int64_t latency, int64_t service) noexcept:
        self.outcomes[<int> OK] += 1
        self.latency.add_c(latency)
        if self.service is not self.latency:
            self.service.add_c(service)
        return 0

    def count(self, str outcome):
        """Count what is not the answer to a call, by its name in `OUTCOMES`."""
        self.count_c(<Outcome> <int> OUTCOMES.index(outcome))

    def counts(self):
        """Return the number of each outcome, by its name."""
        cdef int i
        cdef dict found = {}
        for i in range(N_OUTCOMES):
            found[OUTCOMES[i]] = self.outcomes[i]
        return found

    def take_window(self):
        """Return what was counted since the last call: right answers, other outcomes of calls, and
        the buckets of the latencies (`Counts.items`)."""
        cdef int64_t ok = self.latency.total - self.before.total
        cdef int64_t errors = 0
        cdef list buckets = self.latency.since_c(self.before)
        cdef int i
        for i in range(TOOL_ERROR, DUPLICATE):
            errors += self.outcomes[i]
        self.before.copy_c(self.latency)
        errors, self.errors_before = errors - self.errors_before, errors
        return ok, errors, buckets
