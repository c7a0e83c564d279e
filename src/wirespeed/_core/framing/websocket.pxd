from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport Framer
from wirespeed._core.outbox cimport Mark
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef class WebSocketFramer(Framer):
    cdef bint server                     # our role
    cdef bint raw                        # messages are not JSON: binary ones too, nothing trimmed
    cdef bint checks_utf8                # of text messages; else who reads them does
    cdef object deflate                  # of the extension object: messages to bytes and back
    cdef object random                   # gives bytes for masking keys

    # the message that comes in: [start, message_end) is there, unmasked and in one piece
    cdef size_t message_end
    cdef size_t at                       # first byte of the stream not looked at
    cdef int opcode                      # of the message; 0 between messages
    cdef bint compressed
    cdef size_t n_fragments, max_fragments
    # the data frame that it goes on in
    cdef bint in_frame, fin
    cdef size_t left                     # bytes of it to come
    cdef uint8_t key[4]
    cdef size_t rotation                 # of the key
    cdef Slab home                       # ours, while `slab` is the last message, decompressed

    # control
    cdef size_t n_control, max_control   # control frames since the allowance was filled up
    cdef bytes held_pong                 # latest one that waits for the outbox to empty
    cdef readonly long long n_pings_in, n_pongs_in
    cdef readonly bint is_binary
    cdef bint said_goodbye               # our close frame is queued: nothing may follow it
    cdef int peer_code                   # 0 until the peer's close frame came
    cdef str peer_reason
    cdef readonly object failure

    # the message that goes out
    cdef Mark mark
    cdef uint8_t new_key[4]
    cdef const uint8_t *masking          # that key; NULL where we do not mask
    cdef bytes keys
    cdef Py_ssize_t keys_at

    cdef int come_home_c(self) except -1
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
    cdef const uint8_t *next_key_c(self, uint8_t *key) except? NULL
    cdef int write_frame_c(self, int first, object owner, const uint8_t *p, size_t n) except -1
    cdef int write_control_c(self, int opcode, const uint8_t *p, size_t n) except -1
    cdef int write_close_c(self, int code, bytes reason) except -1
    cdef int send_c(self, int opcode, object data) except -1
