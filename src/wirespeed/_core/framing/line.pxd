from wirespeed._core.framing.base cimport FrameWriter, Framer


cdef class LineWriter(FrameWriter):
    pass


cdef class LineFramer(Framer):
    cdef size_t scanned             # no newline in [start, scanned)
    cdef bint discarding            # inside an oversize frame
    cdef bint at_start              # no message was framed yet: a byte order mark may follow
    cdef list chunks                # chunks that were fed and are not framed, oldest first
    cdef Py_ssize_t n_taken         # chunks at the head of the list that are framed
    cdef size_t chunk_at            # bytes of the oldest chunk left that are framed

    cdef int take_chunk_c(self) except -1


cdef class BlankLineWriter(FrameWriter):
    pass


cdef class BlankLineFramer(Framer):
    cdef readonly bint lenient      # a whole JSON value and one newline are a frame, too
    cdef bint at_start              # no byte was framed yet: a byte order mark may follow
    cdef bint discarding            # inside an oversize frame
    cdef bint in_frame              # `start` is the first byte of a frame, not white space
    cdef size_t scanned             # bytes before it were searched
    cdef size_t run_at              # where the newlines before `scanned` begin
    cdef int run                    # how many they are: 0, 1 or 2
    # lenient: where in a JSON text `scanned` is
    cdef size_t depth               # arrays and objects that are open
    cdef bint in_string
    cdef bint escaped               # behind a backslash

    cdef bint skip_blanks_c(self) except -1
    cdef bint find_end_c(self) noexcept
    cdef bint find_end_lenient_c(self) noexcept
    cdef int begin_c(self) noexcept
