from libc.stdint cimport uint32_t, uint8_t

from wirespeed._core.framing.base cimport Framer
from wirespeed._core.slab cimport Slab
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.exchange cimport Exchange
from wirespeed.transport.link cimport Endpoint


cdef enum:                # kinds of frames. Of the end that asks:
    PROOF = 1             # it is a member
    REQUEST               # u32: length of what is said of the client; that, head and body
    GONE                  # the client left
    PAUSE                 # the client does not read
    RESUME
    STATE                 # a question; the answer has the same number
    # Of the end that answers:
    ANSWER                # u32: status; i64: length of the body, -1 without one; header lines
    PART                  # of the body
    END                   # the response is complete
    CUT                   # nothing more comes of the response
    LAST                  # no request after that number is taken
    # Of the end that asks, too:
    DRAIN                 # the server of the client shuts down

cdef enum:
    HEAD_OF_ANSWER = 12


cdef inline uint32_t number_at(const uint8_t *p) noexcept:
    return (
        <uint32_t> p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24
    )


cdef inline void put_number(uint8_t *p, uint32_t number) noexcept:
    p[0] = <uint8_t> (number & 0xFF)
    p[1] = <uint8_t> (number >> 8 & 0xFF)
    p[2] = <uint8_t> (number >> 16 & 0xFF)
    p[3] = <uint8_t> (number >> 24)


cdef class PassingFramer(Framer):
    cdef uint8_t kind                  # of the last frame
    cdef uint32_t number               # of its request
    cdef size_t left                   # bytes of a part that have not arrived
    cdef size_t unread                 # the same of a frame that is too long

    # Set the most bytes of a frame.
    cdef int widen_c(self, size_t max_frame) except -1
    cdef int settle_c(self) except -1


cdef class PassingWire(Wire):
    cdef PassingFramer frames
    cdef bint asks

    cdef int begin_c(self, uint8_t kind, uint32_t number, size_t n) except -1


# One end of the connection.
cdef class PassingEnd(Endpoint):
    cdef PassingWire passing
    cdef dict open                     # what is not complete yet, by the number of its request
    cdef uint32_t last                 # number of the last request

    cdef int send_c(self, uint8_t kind, uint32_t number, bytes data) except -1
    cdef int frame_c(self, uint8_t kind, uint32_t number, const uint8_t *p, size_t n) except -1
    # A frame is too long. Its bytes are dropped.
    cdef int oversize_c(self, uint8_t kind, uint32_t number) except -1
    cdef int break_c(self, str why) except -1


cdef class AskingEnd(PassingEnd):
    cdef dict asking                   # futures of those who ask for the state of the other end
    cdef uint32_t n_asked
    cdef bint leaving                  # no further request is passed on
    cdef bint far
    cdef object on_closed


# A request that is passed on.
cdef class PassedRequest:
    cdef AskingEnd end
    cdef Exchange exchange             # None once it is over
    cdef object otherwise
    cdef uint32_t number
    cdef long long at                  # bytes that were sent before it
    cdef bint paused
    cdef Py_ssize_t left               # bytes of the body that have not come; -1: of a stream
    cdef object grace_timer            # once the server of the client shuts down; or None

    cdef Exchange leave_c(self)
    cdef int give_c(self, object outcome) except -1
    cdef int answer_c(self, const uint8_t *p, size_t n) except -1
    cdef int part_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    cdef int end_c(self, bint whole) except -1
