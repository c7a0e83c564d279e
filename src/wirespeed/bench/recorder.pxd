from libc.stdint cimport int64_t


# What became of a call, and what else a server did. Each call that was sent is one of the first
# seven.
cdef enum Outcome:
    OK
    TOOL_ERROR
    PROTOCOL_ERROR
    WRONG
    MISSING
    REFUSED
    CANCELLED
    DUPLICATE
    LATE
    UNEXPECTED
    CONNECTION_LOSS
    N_OUTCOMES


# Nanoseconds of the monotonic clock, which loops have too.
cdef int64_t now_c() noexcept nogil


cdef class Counts:
    cdef int64_t *buckets
    cdef readonly int64_t total
    cdef readonly double sum           # of all values

    cdef int add_c(self, int64_t value) noexcept
    cdef list since_c(self, Counts before)
    cdef int copy_c(self, Counts other) noexcept


cdef class Recorder:
    cdef int64_t outcomes[N_OUTCOMES]
    cdef readonly Counts latency       # of right answers, from the intended time
    cdef readonly Counts service       # of the same, from the time at which they were sent
    cdef Counts before                 # latencies when the last window was taken
    cdef int64_t errors_before
    cdef readonly int64_t last         # when the last answer came; 0: none did
    cdef public int64_t late_starts    # calls that the tool itself sent more than 1 ms late
    cdef public int64_t held_starts    # calls that waited longer than that for a place in flight
    cdef public int64_t progress       # notifications of progress of calls that asked for them

    cdef int count_c(self, Outcome outcome) noexcept
    cdef int ok_c(self, int64_t latency, int64_t service) noexcept
