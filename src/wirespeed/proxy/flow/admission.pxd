from wirespeed._core.envelope cimport Message
from wirespeed.proxy.side cimport AdmissionControl, Route, Side


# A client of a server, while it has requests there.
cdef class Share:
    cdef object key
    cdef size_t n                # its requests in flight
    cdef size_t n_queued, n_queued_bytes
    cdef dict queues             # its `Queue`s, by kind


# Requests of one client that wait for the same limit.
cdef class Queue:
    cdef Share share
    cdef int kind
    cdef object waiting          # an OrderedDict of `Permit`s


# What a request has at the server: a place, or a place in a queue.
cdef class Permit:
    cdef Share share
    cdef int kind                # 0, or the number of the limit of its tool
    cdef Queue queue             # None: it is in flight
    cdef Route route             # while it waits: what its client's session knows of it
    cdef Side asker, to
    cdef Message message
    cdef bytes name
    cdef object after            # `Route.after` of the request
    cdef bint once               # whether it is never sent again


# The limits of one server.
cdef class RequestLimits(AdmissionControl):
    cdef str server
    cdef size_t max_in_flight, max_in_flight_per_client, max_queued, max_queued_bytes
    cdef list globs              # of the tools with a limit
    cdef list max_of             # by kind: requests at once
    cdef list n_of               # by kind: requests in flight
    cdef list rings              # by kind: an OrderedDict of the queues that wait for room
    cdef dict kinds              # of the tools that were called, by the JSON text of their names
    cdef dict shares             # by client
    cdef int next_kind           # whose turn it is
    cdef bint passing            # a request that waited is passed on now
    cdef bint looking            # what waits for servers that have ended is looked at
    cdef object timer            # of the next such look; None: none waits for such a server
    cdef bint soon               # whether it is in this turn of the loop
    cdef readonly size_t n_in_flight
    cdef readonly size_t n_queued
    cdef readonly size_t n_queued_bytes
    cdef readonly long long n_refused

    cdef int kind_c(self, Message m) except -1
    cdef Share share_c(self, Side asker)
    cdef bint has_room_c(self, Share share, int kind) except -1
    cdef bint make_room_c(self, Share share, size_t n) except -1
    cdef int refuse_c(self, Side asker, Message m) except -1
    cdef int hold_c(self, Permit permit, Route route) except -1
    cdef int leave_c(self, Permit permit) except -1
    cdef Queue next_c(self)
    cdef int go_on_c(self) except -1
    cdef int pass_on_c(self, Permit permit, Route held) except -1
    cdef int look_c(self, object loop, double delay) except -1
    cdef int forget_c(self, Share share) except -1


# A request that stays open at a server.
cdef class OpenRequest:
    cdef OpenShare share
    cdef Route route
    cdef Message message         # as it came, a copy; None: the server has taken it
    cdef bytes name
    cdef object after            # `Route.after` of the request
    cdef size_t weight           # 1, and 1 for each 16 KiB
    cdef bint again              # it was refused before


# Those of one client.
cdef class OpenShare:
    cdef object key
    cdef dict requests           # as keys, in their order
    cdef size_t weight           # of all


# Those at one connection to a server.
cdef class OpenRequests(AdmissionControl):
    cdef dict shares             # by client
    cdef bint again              # one that was refused is sent once more now

    cdef int add_c(self, Route route, Message m, bytes name, object after) except -1
    cdef bint reopen_c(self, Route route, object error) except -1
    cdef int end_c(self, OpenRequest one) except -1
