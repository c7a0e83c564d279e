from libc.stdint cimport int64_t, uint64_t

from wirespeed._core.batch cimport BatchReply
from wirespeed._core.envelope cimport Message
from wirespeed._core.inflight cimport InFlight, InFlightSlot
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.pending cimport Pending
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire


cdef class Session(Wire):
    cdef MessageReader reader
    cdef readonly Pending pending        # requests of ours
    cdef readonly InFlight inflight      # requests of the peer
    cdef object waiting                  # deque: requests held back by flow control
    cdef size_t n_waiting                # their number
    cdef size_t n_waiting_bytes
    cdef size_t n_gone                   # of the waiting: in flight no more, or faults
    cdef BatchReply batch                # that they belong to
    cdef size_t n_batch_bytes            # of answers that wait for the rest of their batches
    cdef readonly bint answers_faults    # a server answers bad input, a client only reports it
    cdef public bint null_ids            # errors without a readable id carry "id": null
    cdef public object refusal           # (code, message) for requests that still come, or None
    cdef public bint answers_requests    # False: those of the peer are shown, and never answered
    cdef readonly Py_ssize_t n_cancelled  # cancelled requests whose handlers still run
    cdef size_t n_cancelled_bytes        # of the messages of these
    cdef size_t max_id, max_in_flight, max_in_flight_bytes, max_waiting, max_waiting_bytes
    # counters
    cdef readonly long long messages_in, messages_out
    cdef readonly long long faults, late_responses, duplicate_ids, refused, cancelled_in

    cdef Message next_c(self)
    cdef bint must_stop_c(self) noexcept
    cdef bint is_flooded_c(self) noexcept
    cdef int register_c(self, Message m) except -1
    cdef bint leave_queue_c(self, Message m) except -1
    cdef int wait_c(self, Message m) except -1
    cdef int respond_c(self, Message m) except -1
    cdef int notice_c(self, Message m) except -1
    cdef int fault_c(self, Message m) except -1
    cdef bint batch_is_full_c(self, BatchReply batch) noexcept
    cdef int refuse_request_c(self, uint64_t ref, BatchReply batch) except -1
    cdef int settle_batch_c(self, BatchReply batch, Py_ssize_t n_done) except -1
    cdef Outbox open_reply_c(self, uint64_t ref)
    cdef int close_reply_c(self, uint64_t ref) except -1
    cdef int abort_reply_c(self, uint64_t ref) except -1
    cdef Outbox begin_reply_c(self, InFlightSlot *slot, const char *member, size_t n_member)
    cdef int end_reply_c(self, InFlightSlot *slot) except -1
    cdef int drop_slot_c(self, InFlightSlot *slot) except -1
    cdef int reply_c(
        self, uint64_t ref, const char *member, size_t n_member, object payload
    ) except -1
    cdef int result_c(self, uint64_t ref, object body) except -1
    cdef int error_c(self, uint64_t ref, int code, str message, object data) except -1
    cdef int write_error_c(
        self, BatchReply batch, Span id, int code, str message, object data
    ) except -1
    cdef int drop_inbound_c(self, uint64_t ref) except -1
    cdef int cancelled_done_c(self) except -1
    cdef Outbox open_request_c(self, int64_t id)
    cdef int close_request_c(self) except -1
    cdef int abort_request_c(self, int64_t id) except -1
    cdef int call_c(self, bytes head, object params) except -1
    cdef int write_c(self, bytes head, object payload) except -1
    cdef int set_token_c(self, uint64_t ref, object token) except -1
