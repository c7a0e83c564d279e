from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.http.chunks cimport Chunks
from wirespeed._core.framing.http.rfc9112 cimport Fault, Method
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef enum Part:
    BODY                  # the whole body
    HEAD_ALONE            # no bytes: the head has arrived, and the body is the next frame
    PIECE                 # some bytes of the body
    END                   # no bytes: the body has ended


cdef class HttpFramer(Framer):
    # The head of the last frame, until the next call of any method; of the message that is
    # arriving, once `has_head` is true.
    cdef readonly HttpHead head
    cdef HttpWriter output               # `writer` by its type
    cdef readonly object failure         # status and sentence of what the peer did wrong, or None
    cdef readonly bint ended             # no frame will come: what arrives is dropped
    cdef int phase
    # Of a server, which calls `stop_c` then: a request that fails behind its head keeps it.
    cdef bint shows_failed
    cdef bint keeps_head                 # a request failed so
    cdef bint may_skip                   # nothing of the next request was looked at
    cdef size_t body                     # where the body begins, behind `start`
    cdef Chunks chunks                   # of a body in chunks; counted from `start`
    cdef bint continued                  # the question of `awaits_continue_c` was answered
    cdef Part part_c                     # what the last frame is
    cdef readonly bint heads             # heads are frames of their own
    # After HEAD_ALONE: return the body as it arrives, whatever its length: PIECE, PIECE, …, END.
    cdef bint in_pieces
    cdef uint64_t left                   # bytes of a body in pieces that has a length
    # Of a client: the method of the request that the next response answers.
    cdef Method asked

    # The head has arrived and the body has not.
    cdef bint has_head_c(self) noexcept
    # The peer sends the body once it is told to: by `HttpWriter.send_continue_c`, or by the body's
    # refusal. True until a byte of the body arrives or `continued` is set.
    cdef bint awaits_continue_c(self) noexcept
    # The head of the request that arrives, or was returned last, or failed behind its head, until
    # the next call of any method; None while it is not whole, and when it is gone.
    cdef HttpHead known_head_c(self)
    # Take in n bytes at p, which lie in the slab and stay there until `drop_slab_c`.
    cdef int lie_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    # Take no further frame.
    cdef int stop_c(self) except -1
    # Close the connection once all is sent.
    cdef int finish_c(self) except -1
    # The bytes behind the last frame, which belong to another protocol. Ends this one.
    cdef bytes take_rest_c(self)

    cdef int take_head_c(self) except -1
    cdef int next_piece_c(self, Span *frame) except -1
    cdef int chunk_fault_c(self) except -1
    cdef int fail_c(self, Fault fault, size_t limit) except -1
    cdef int settle_c(self) except -1
    cdef int check_joined_c(self) except -1
