from wirespeed.bench.recorder cimport Recorder
from wirespeed.bench.work cimport Work


cdef class Step:
    cdef readonly list works           # each time one of these, at random
    cdef readonly Py_ssize_t times


cdef class Script:
    cdef readonly str name
    cdef readonly double weight
    cdef readonly list steps
    cdef readonly bint own_connection
    cdef public Recorder recorder      # of the phase


cdef class Scripts:
    cdef readonly list scripts
    cdef list bounds                   # of the weights, added up
    cdef object random

    cdef Walk arrive_c(self)


# A user on the way through the steps of a script.
cdef class Walk:
    cdef readonly Script script
    cdef object random
    cdef Py_ssize_t at                 # the next step
    cdef Py_ssize_t left               # how often the step before it is still made
    cdef Work listing                  # a list of which one more page follows; or None
    cdef int n_pages
    cdef readonly str cursor           # of that page

    cdef bint goes_on_c(self) except -1
    cdef Work next_c(self)
    cdef int paged_c(self, Work work, str cursor) except -1
