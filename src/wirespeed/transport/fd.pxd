from wirespeed.transport.link cimport Link


# The sockets of a loop that are peeked at next.
cdef class _Peeks:
    cdef object __weakref__
    cdef object loop
    cdef dict links


cdef class FdLink(Link):
    cdef readonly int read_fd          # both belong to the owner, who closes them
    cdef readonly int write_fd
    cdef bint is_socket
    cdef bint reading                  # add_reader is in force
    cdef bint writing                  # add_writer is in force
    cdef bint lost
    cdef bint saw_eof
    cdef bint long_read                # the last read was long: the next may be, too
    cdef object broken                 # why writing failed, while the last input is read
    cdef bint peeks                    # the loop may miss a reset; see `peek_later_c`
    cdef _Peeks due                    # which peeks at the socket next, or None

    cdef int read_c(self) except -1
    cdef int peek_later_c(self) except -1
    cdef int peek_c(self) except -1
    cdef int lose_c(self, object exc) except -1
