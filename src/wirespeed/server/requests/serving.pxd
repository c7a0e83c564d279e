from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.server.requests.observer cimport Observer
from wirespeed.transport.taskpool cimport Completion, TaskPool


# What a client has said of itself so far. docs/architecture.md, "Closing", has the table.
cpdef enum Handshake:
    NEW = 0
    GREETED = 1                        # `initialize` is answered
    INITIALIZED = 2                    # the client has confirmed that
    MODERN = 3                         # a modern request was served: no handshake can follow


cdef class Serving(SessionConnection):
    cdef readonly TaskPool pool
    cdef bytes modern_end              # what every modern result ends with, behind its own members
    cdef readonly set running          # calls whose handlers are suspended
    cdef bint dropping                 # notifications are being dropped
    cdef object asks                   # what every question passes first (middleware), or None
    cdef readonly unsigned long thread
    cdef readonly long long serial     # unique among the connections of this process
    cdef readonly Observer observer    # counts and traces requests, or None
    cdef public bint kept              # a task works on for a client whose request has ended
    cdef public object state           # the handshake's: client_info, capabilities, log_level
    cdef public Handshake handshake

    cdef int answered_c(self, Message m) except -1
    cdef int fail_questions_c(self) except -1
    cdef int cancelled_ended_c(self, Completion call) except -1
