from libc.stdint cimport int64_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed.proxy.flow.turns cimport Turn, Turns
from wirespeed.transport.served cimport Served


# The requests of a side that the audit log notes.
cpdef enum Audits:
    CALLS = 1
    READS = 2
    PROMPTS = 4


cdef class Party(Served):
    cdef Turns turns                     # of sides that wait for room here; None: nobody waits
    cdef Turn turn                       # its own, at another side; None: it never waited
    cdef public object rates             # how many requests it may send (`Rates`); None: any
    cdef public Party outer              # the client's own, where this one is a part of it
    cdef readonly long long n_turns      # turns that were given
    cdef readonly long long n_over_rate  # its requests that came too early for `rates`
    cdef public object audit             # what notes its requests; None: nothing does
    cdef public int audits               # which of them (`Audits`)
    cdef public long long n_given_up   # requests to it that were cancelled, or expired
    cdef readonly long long n_late       # answers and progress that nobody waits for
    cdef readonly long long n_dropped    # notifications that this side did not read in time
    cdef uint64_t newest                 # the last request of this side; perhaps over
    cdef void *asked_by                  # who sent it the last request; to be compared only
    cdef bint joins                      # the next request may wait for those of other connections

    cdef bint is_audited_c(self, Message m) except -1
    cdef int asked_c(self, Party asker) except -1
    cdef bint is_in_rate_c(self, Message m) except -1
    cdef bint agrees_c(self, Message m, bint modern) except -1
    cdef int hold_c(self, Party asker, size_t n) except -1
    cdef int give_turn_c(self) except -1
    cdef int end_turn_c(self) except -1
    cdef int unknown_c(self, Message m) except -1
    # `about`: what the request was about (`Route.about`)
    cdef int pass_cancel_c(self, int64_t id, Message m, uint64_t about) except -1
    # Whether the response to a request of this side takes messages before the answer. Such a
    # request, the newest if it is one; 0: none is.
    cdef bint carries_c(self, uint64_t ref) except -1
    cdef uint64_t open_c(self) except? 0
    cdef int refused_c(self, Message m, int code) except -1
    cdef int refuse_unsent_c(self, uint64_t ref, Message m, str why) except -1
    cdef int hand_over_c(self, uint64_t about) except -1
    cdef int keep_record_c(self, uint64_t ref, object record, int code) except -1
