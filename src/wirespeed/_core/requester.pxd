from libc.stdint cimport int64_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.pending cimport Pending
from wirespeed._core.responder cimport Responder
from wirespeed._core.splice cimport Edit


cdef class Requester(Responder):
    cdef readonly Pending pending        # requests of ours
    cdef readonly long long late_responses
    cdef public bint shows_late_responses  # they are events without a token

    # A new id for a request of ours. `text`: what stands in the message in its place, or None.
    cdef int64_t reserve_c(self, object token, double deadline, object text) except -1
    # Write a request with such an id: `"method":…` and what follows, but for the closing brace,
    # between open and close; `abort_request_c` if anything fails.
    cdef Outbox open_request_c(self, int64_t id)
    cdef int close_request_c(self) except -1
    cdef int abort_request_c(self, int64_t id) except -1
    # For proxies: send a request that came from another peer, with an id that was reserved and the
    # session's own names (`Pending.texts`) unused; send the peer's cancellation of it. `more`: n
    # further edits of the request, MAX_MORE at most; `about`: the request in flight that it is
    # about (`writer_about_c`), or 0.
    cdef int splice_request_c(
        self, int64_t id, Message m, Edit *more, int n_more, uint64_t about
    ) except -1
    cdef int splice_cancel_c(self, int64_t id, Message m, uint64_t about) except -1
    cdef int respond_c(self, Message m) except -1
    cdef bint match_alike_c(self, Message m) except -1
    cdef int hold_back_c(self, Message m) except -1
    cdef int call_c(self, FrameWriter writer, bytes head, object params) except -1
