from wirespeed._core.envelope cimport Message
from wirespeed._core.splice cimport Edit
from wirespeed.proxy.side cimport Route, Translation


# `Route.after` of a request that is needed until it is answered.
cdef class Asked:
    cdef object function
    cdef Message request
    cdef bint is_call


cdef class Lowering(Translation):
    cdef public bint tracks      # whether requests are kept, because the server may ask the client
    cdef bytes ending            # what is added to the result of a tool
    cdef object called           # `Route.after` of a tool's call where nothing is kept
    cdef object answered


cdef class Raising(Translation):
    cdef bytes params, meta, members     # that are added to a request
    cdef public bint decodes     # whether each result of a tool is decoded
    cdef object answered

    cdef Edit envelope_c(self, Message m) noexcept


cdef class Suspended:
    cdef Route route
    cdef object function         # of its `after`
    cdef readonly Message answer
