"""Writing frames: the base of the writers of all framings."""

cimport cython
from libc.stdint cimport uint8_t


@cython.no_gc
cdef class FrameWriter:
    """Writes frames to an outbox, each between `open_c` and `close_c`. Abstract."""

    @cython.final
    cdef int open_c(self) except -1:
        """Begin a frame: all that is written to `out` until `close_c` is its payload."""
        self.abort_c()             # a frame that failed, and was not aborted by who wrote it
        self.size_before = self.out.size
        self.begin_c()
        self.is_open = True
        return 0

    @cython.final
    cdef int close_c(self, char last) except -1:
        """End the frame with this byte."""
        self.finish_c(last)
        self.is_open = False
        return 0

    @cython.final
    cdef int abort_c(self) except -1:
        """Remove the open frame, if there is one."""
        if self.is_open:
            self.is_open = False
            self.out.truncate_c(self.size_before)
        return 0

    cdef uint8_t *whole_c(self, size_t n) except? NULL:
        return NULL

    cdef int begin_c(self) except -1:
        return 0

    cdef int finish_c(self, char last) except -1:
        raise TypeError("a FrameWriter must implement finish_c()")
