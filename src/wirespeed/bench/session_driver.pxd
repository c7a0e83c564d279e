from wirespeed._core.envelope cimport Message
from wirespeed.bench.driver cimport BenchCall, Driver
from wirespeed.bench.recorder cimport Outcome
from wirespeed.client.connection.connection cimport ClientConnection


cdef class SessionCall(BenchCall):
    cdef int progressed_c(self, Message m) except -1


cdef class SessionDriver(Driver):
    cdef ClientConnection client       # the connection
    # What came last that answers no call: a response, or what is not a message. An answer ends it.
    cdef bint strayed
    cdef bint garbled

    cdef Outcome failure_c(self, object exc) except *
