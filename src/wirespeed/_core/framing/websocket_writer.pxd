from libc.stdint cimport uint8_t

from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Mark


cdef class WebSocketWriter(FrameWriter):
    cdef bint masks                      # we are the client
    cdef bint raw                        # messages are binary; else texts
    cdef object deflate                  # permessage-deflate, or None; see `websocket`
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
