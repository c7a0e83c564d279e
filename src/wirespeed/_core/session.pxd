from libc.stdint cimport int64_t, uint8_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.pending cimport Pending
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.responder cimport Responder
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport Edit


# A tools/call that was written, as far as an HTTP request has header fields about it.
cdef class WrittenCall:
    cdef int64_t id
    cdef long long end                   # where its line ends: bytes of the stream
    cdef bytes key                       # the JSON texts of its version and of the tool's name


cdef class Session(Responder):
    cdef readonly Pending pending        # requests of ours
    cdef readonly long long late_responses
    cdef public bint shows_late_responses  # they are events without a token
    cdef MessageReader reader
    cdef object waiting                  # deque: requests held back by flow control; at first ()
    cdef readonly size_t n_waiting       # their number
    cdef size_t n_waiting_bytes
    cdef size_t n_gone                   # of these: no longer in flight, or faults
    cdef Message first_whole             # the oldest text that came whole and was not read yet
    cdef object more_whole               # deque: those behind it; at first ()
    cdef readonly size_t n_whole         # the number of both
    cdef size_t n_seen                   # the first of these: they wait for room like requests
    cdef ReplyRoute route                # of the body that is being read; None: of no body
    cdef bint is_paused                  # `paused`, which is to be set instead
    cdef bint held                       # `next_c` returned None because of a pause
    cdef long long paused_at             # bytes_in, when the pause began
    cdef readonly bint reads_always      # reading goes on whatever waits
    cdef readonly bint answers_faults    # a server answers bad input, a client only reports it
    cdef public object refusal           # (code, message) for all further requests, or None
    cdef public bint pauses_requests      # requests wait, except for ping
    cdef public bint answers_requests    # False: requests of the peer are events and never answered
    cdef size_t max_id, max_in_flight, max_waiting, max_waiting_bytes
    cdef object calls                    # deque of WrittenCall for the link; None: it needs none
    # counters
    cdef readonly long long messages_in
    cdef readonly long long faults, duplicate_ids, refused, cancelled_in

    # The next event, or None until more bytes arrive. A request is answered by its `ref`.
    cdef Message next_c(self)
    # Take in a message, or a batch, that came whole: n bytes at p, which lie in the slab and are
    # not copied. Answers to it go to the route; None: to the stream of the wire.
    cdef int receive_message_c(
        self, Slab slab, const uint8_t *p, size_t n, ReplyRoute route
    ) except -1
    # The same for a message that has its text, without blanks around it. It is read later, unless
    # it was read already; a batch was not.
    cdef int take_in_c(self, Message m, ReplyRoute route) except -1
    # For the owner of routes: drop the bodies of a route that were not read yet; the routes that
    # are not done, some of them more than once.
    cdef int drop_bodies_c(self, ReplyRoute route) except -1
    cdef list open_routes_c(self)
    cdef Message whole_c(self, size_t i)
    cdef int drop_whole_c(self, size_t i) except -1
    cdef Message take_whole_c(self)
    cdef Message take_passing_c(self)
    cdef bint withdraw_c(self, Span id) except -1
    cdef object cancel_inbound_c(self, uint64_t ref)
    cdef bint must_stop_c(self) noexcept
    cdef bint is_flooded_c(self) noexcept
    cdef int register_c(self, Message m) except -1
    cdef bint leave_queue_c(self, Message m) except -1
    cdef int wait_c(self, Message m) except -1
    cdef int notice_c(self, Message m) except -1
    cdef int fault_c(self, Message m) except -1
    cdef int refuse_request_c(self, uint64_t ref, ReplyRoute route) except -1
    cdef int hold_back_c(self, Message m) except -1

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
    # Note a tools/call that was written, for a link that has `calls`.
    cdef int called_c(self, int64_t id, Span version, Span name) except -1
    cdef int splice_cancel_c(self, int64_t id, Message m, uint64_t about) except -1
    cdef int respond_c(self, Message m) except -1
    cdef bint match_alike_c(self, Message m) except -1
    cdef int call_c(self, FrameWriter writer, bytes head, object params) except -1
