from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.inflight cimport InFlight, InFlightSlot
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport Edit
from wirespeed._core.wire cimport Wire


cdef class Responder(Wire):
    cdef readonly InFlight inflight      # requests of the peer
    cdef size_t n_batch_bytes            # of answers that wait for the rest of their batches
    cdef public bint null_ids            # errors without a readable id carry "id": null
    cdef readonly Py_ssize_t n_cancelled  # cancelled requests whose handlers still run
    cdef size_t n_cancelled_bytes        # of the messages of these
    cdef size_t max_in_flight_bytes
    cdef readonly long long messages_out

    cdef bint is_full_c(self, ReplyRoute route) noexcept
    cdef int settle_c(self, ReplyRoute route, Py_ssize_t n_done) except -1
    # The writer of messages about a request: that of its route, if the route carries them, else the
    # wire's own. It is the wire's own, too, for 0 and for a request that is not in flight.
    cdef FrameWriter writer_about_c(self, uint64_t ref)
    # The route that a request in flight came with, outside of its batch; None: the wire's stream.
    cdef ReplyRoute route_of_c(self, uint64_t ref)
    # Write an answer: `"result":…` or `"error":…` between open and close; `abort_reply_c` if
    # anything fails between. None: the request was cancelled or answered.
    cdef Outbox open_reply_c(self, uint64_t ref)
    cdef Outbox begin_reply_c(
        self, InFlightSlot *slot, const char *member, size_t n_member, size_t room
    )
    cdef int close_reply_c(self, uint64_t ref) except -1
    cdef int end_reply_c(self, InFlightSlot *slot) except -1
    cdef int abort_reply_c(self, uint64_t ref) except -1
    cdef int reply_c(
        self, uint64_t ref, const char *member, size_t n_member, object payload
    ) except -1
    # For proxies: send the response of another peer as the answer, with one further edit unless
    # that is NULL, 0: the request is gone; send a notification of another peer about a request,
    # with this text at a point of interest.
    cdef int splice_reply_c(self, uint64_t ref, Message m, int code, Edit *more) except -1
    cdef int splice_about_c(self, uint64_t ref, Message m, int which, Span text) except -1
    # Answer with the JSON text of a result or of an error object, or with an error. 0: the request
    # was cancelled or answered.
    cdef int result_c(self, uint64_t ref, object body) except -1
    cdef int error_object_c(self, uint64_t ref, object body) except -1
    cdef int error_c(self, uint64_t ref, int code, str message, object data) except -1
    # Answer each request in flight with an error, for a reason. Those that have waited are refused.
    cdef int cut_off_c(self, str why) except -1
    cdef int write_error_c(
        self, ReplyRoute route, Span id, int code, str message, object data
    ) except -1
    # Note for the route of a request that it is refused before it is known how to serve it.
    cdef int refused_c(self, uint64_t ref) except -1
    cdef int drop_inbound_c(self, uint64_t ref) except -1
    cdef int drop_slot_c(self, InFlightSlot *slot) except -1
    cdef int set_token_c(self, uint64_t ref, object token) except -1
    cdef int cancelled_done_c(self) except -1
    cdef int write_c(self, FrameWriter writer, bytes head, object payload) except -1


cdef uint64_t ref_of(object request) except? 0
