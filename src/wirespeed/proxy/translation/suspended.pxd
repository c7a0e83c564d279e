from wirespeed._core.envelope cimport Message
from wirespeed.proxy.side cimport Route


cdef class Suspended:
    cdef Route route
    cdef object function         # of its `after`
    cdef readonly Message answer
