from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport FrameWriter, Framer
from wirespeed._core.outbox cimport Mark
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef class WebSocketWriter(FrameWriter):
    cdef bint masks                      # we are the client
    cdef bint raw                        # messages are binary; else texts
    cdef object deflate                  # permessage-deflate, or None
    cdef bint said_goodbye               # our close frame is queued: nothing may follow it

    cdef Mark mark                       # where the open message begins
    cdef object random                   # returns the bytes of masking keys
    cdef bytes keys
    cdef Py_ssize_t keys_at
    cdef uint8_t key[4]                  # of the open message
    cdef const uint8_t *masking          # this key; NULL where we do not mask

    cdef const uint8_t *next_key_c(self, uint8_t *key) except? NULL
    cdef int write_frame_c(self, int first, object owner, const uint8_t *p, size_t n) except -1
    cdef int write_control_c(self, int opcode, const uint8_t *p, size_t n) except -1
    cdef int write_close_c(self, int code, bytes reason) except -1
    cdef int send_c(self, int opcode, object data) except -1


cdef class WebSocketFramer(Framer):
    cdef bint server                     # our role
    cdef bint raw                        # messages are opaque: binary ones too, nothing trimmed
    cdef bint checks_utf8                # of text messages; else their reader does
    cdef object deflate                  # permessage-deflate, or None
    cdef WebSocketWriter output          # `writer` by its type

    # the incoming message: [start, message_end) has arrived, unmasked and in one piece
    cdef size_t message_end
    cdef size_t at                       # first byte of the stream that is not framed
    cdef int opcode                      # of the message; 0 between messages
    cdef bint compressed
    cdef size_t n_fragments, max_fragments
    # its current data frame
    cdef bint in_frame, fin
    cdef size_t left                     # bytes that have not arrived
    cdef uint8_t key[4]
    cdef size_t rotation                 # of the key
    cdef Slab input_slab                 # while `slab` holds the last message, decompressed

    # control
    cdef size_t n_control, max_control   # control frames since the last message
    cdef bytes held_pong                 # latest one, which waits until the outbox has room
    cdef readonly long long n_pings_in, n_pongs_in
    cdef readonly bint is_binary
    cdef int peer_code                   # 0 until the peer's close frame arrived
    cdef str peer_reason
    cdef readonly object failure

    cdef int drop_inflated_c(self) except -1
    cdef int settle_c(self) except -1
    cdef int take_payload_c(self) except -1
    cdef int take_header_c(self) except -1
    cdef int begin_frame_c(self, int first, size_t length, const uint8_t *key) except -1
    cdef int control_c(self, int opcode, size_t n) except -1
    cdef int allow_pong_c(self) except -1
    cdef int close_frame_c(self, const uint8_t *p, size_t n) except -1
    cdef int message_c(self, Span *frame) except -1
    cdef int fail_c(self, int code, str reason) except -1
    cdef int finish_c(self) except -1
    cdef int check_joined_c(self) except -1
