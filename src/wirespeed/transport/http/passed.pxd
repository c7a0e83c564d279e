from libc.stdint cimport uint32_t, uint8_t

from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.slab cimport Slab
from wirespeed.transport.http.connection cimport HttpConnection
from wirespeed.transport.http.exchange cimport PassedClient
from wirespeed.transport.http.passing cimport PassingEnd
from wirespeed.transport.http.site cimport HttpSite
from wirespeed.transport.link cimport Link


cdef class AnsweringEnd(PassingEnd):
    cdef HttpSite site
    # Links whose output waits for room, by the numbers of their requests, in the order in which
    # they send.
    cdef dict waiting
    cdef list free                     # PassedLinks for further requests
    cdef dict clients                  # PassedClients by their texts
    cdef set telling                   # tasks that ask a worker for its state
    cdef object is_proof
    cdef object state
    cdef object timer                  # of the proof, and of the end
    cdef readonly object closed        # future: why the connection was lost; None: it was closed
    cdef readonly bint draining
    cdef object ending                 # the task that ends it, after the sessions; or None
    cdef public object principal, peer

    cdef int prove_c(self, const uint8_t *p, size_t n) except -1
    cdef int refuse_c(self, uint32_t number, uint32_t status) except -1
    cdef int take_c(self, uint32_t number, const uint8_t *p, size_t n) except -1
    cdef PassedClient client_c(self, const uint8_t *p, size_t n)
    cdef int check_over_c(self) except -1
    cdef int drain_open_c(self) except -1


cdef class PassedLink(Link):
    cdef AnsweringEnd end
    cdef HttpConnection connection
    cdef HttpWriter writer
    cdef uint32_t number
    cdef bint taken                    # a request was taken, and its end was not sent
    cdef bint paused                   # the client does not read
    cdef bint lost

    cdef int take_c(
        self, uint32_t number, PassedClient client, Slab slab, const uint8_t *p, size_t n
    ) except -1
    cdef int begin_answer_c(self) except -1
    cdef int complete_c(self) except -1
    cdef int lose_c(self, object exc) except -1
