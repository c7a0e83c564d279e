"""How frames are written: what the framings share."""

cimport cython

from wirespeed._core.outbox cimport Outbox


@cython.no_gc
cdef class FrameWriter:
    """Writes frames to an outbox, each between `open_c` and `close_c`. Abstract."""

    @cython.final
    cdef int open_c(self) except -1:
        """Begin a frame: all that is written to `out` until `close_c` is its payload."""
        self.begin_c()
        self.is_open = True
        return 0

    @cython.final
    cdef int close_c(self, char last) except -1:
        """End the frame with this byte. When that fails, nothing of the frame is left."""
        try:
            self.finish_c(last)
            self.is_open = False
        finally:
            self.abort_c()
        return 0

    @cython.final
    cdef int abort_c(self) except -1:
        """Remove the open frame, if there is one."""
        if self.is_open:
            self.is_open = False
            self.out.rewind_c(&self.mark)
        return 0

    cdef int begin_c(self) except -1:
        return self.out.mark_c(&self.mark, 0)

    cdef int finish_c(self, char last) except -1:
        raise TypeError("a FrameWriter must implement finish_c()")
