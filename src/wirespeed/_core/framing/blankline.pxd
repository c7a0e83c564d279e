from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.writer cimport FrameWriter


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
