from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session
from wirespeed.server.requests.observer cimport Observer
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.served cimport Served
from wirespeed.transport.taskpool cimport Completion, TaskPool


cdef class Questions:
    cdef Endpoint connection
    cdef Session session
    cdef object loop
    cdef object middleware             # what every question passes first, or None

    cdef int answered_c(self, Message m) except -1
    cdef int fail_all_c(self) except -1


cdef class Serving(Served):
    cdef readonly Questions questions
    cdef readonly object service
    cdef readonly TaskPool pool
    cdef bytes modern_end              # what every modern result ends with, behind its own members
    cdef readonly set running          # calls whose handlers are suspended
    cdef list waiters                  # futures of handlers that wait for the client to read
    cdef bint dropping                 # notifications are being dropped
    cdef readonly unsigned long thread
    cdef readonly long long serial     # unique among the connections of this process
    cdef readonly Observer observer    # counts and traces requests, or None
    cdef readonly long long n_dropped  # notifications
    cdef public bint kept              # a task works on for a client whose request has ended
    cdef public object state           # the handshake's: client_info, capabilities, log_level

    cdef int notify_c(self, str method, bytes params, uint64_t about) except -1
    cdef int check_drained_c(self) except -1
    cdef int cancelled_ended_c(self, Completion call) except -1
