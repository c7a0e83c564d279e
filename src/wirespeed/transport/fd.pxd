from wirespeed.transport.link cimport Link


cdef class FdLink(Link):
    cdef readonly int read_fd          # -1 once closed
    cdef readonly int write_fd
    cdef bint reading                  # add_reader is in force
    cdef bint writing                  # add_writer is in force
    cdef bint lost
    cdef bint saw_eof
    cdef object broken                 # why nothing can be written, while the rest is read
    cdef bint doubts                   # the loop may miss an end; see `doubt_c`
    cdef object doubt                  # timer: look behind what was read

    cdef int read_c(self) except -1
    cdef int doubt_c(self) except -1
    cdef int lose_c(self, object exc) except -1
