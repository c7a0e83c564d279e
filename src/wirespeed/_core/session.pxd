from libc.stdint cimport uint8_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.requester cimport Requester
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef class Session(Requester):
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
