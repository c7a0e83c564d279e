from wirespeed._core.envelope cimport Message
from wirespeed.bench.driver cimport BenchCall, Driver
from wirespeed.bench.recorder cimport Outcome
from wirespeed.client.connection.connection cimport ClientConnection


cdef class SessionCall(BenchCall):
    cdef int progressed_c(self, Message m) except -1


cdef class SessionDriver(Driver):
    cdef ClientConnection client       # the connection
    cdef bint garbled                  # what came last is not a message

    cdef Outcome failure_c(self, object exc) except *
