from wirespeed.server.requests.call cimport Call, Operation


cdef class Feature(Operation):
    cdef object function
    cdef object launch                 # makes a coroutine of a call; None: calling returns one
    cdef object encode                 # (value, Revision) -> Body
