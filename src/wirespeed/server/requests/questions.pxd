from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint


cdef class Questions:
    cdef Endpoint connection
    cdef Session session
    cdef object loop
    cdef object middleware             # what every question passes first, or None

    cdef int answered_c(self, Message m) except -1
    cdef int fail_all_c(self) except -1
