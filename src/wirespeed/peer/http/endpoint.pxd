from libc.stdint cimport uint8_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.peer.http.exchange cimport McpExchange, Response, Streams
from wirespeed.peer.http.sessions cimport Lease, SessionEntry, Sessions
from wirespeed.transport.http.exchange cimport Exchange, HttpTarget
from wirespeed.transport.taskpool cimport TaskPool


cdef class StreamableHttp(HttpTarget):
    cdef readonly object service
    cdef readonly object options       # HttpOptions
    cdef readonly object loop
    cdef readonly TaskPool pool
    cdef readonly Streams streams
    cdef readonly Sessions sessions    # None in stateless mode
    cdef readonly object directory     # SessionDirectory: of the sessions of other hosts; or None
    cdef Lease lease                   # of the directory; None without one
    cdef object adoption               # `Adoption`: of these sessions; None without a directory
    cdef SessionConnection spare        # the lane that became free last, or None
    cdef list lanes                    # further free lanes
    cdef MessageReader reader          # of bodies that name no session
    cdef bytes modern_version          # the newest, as the header names it
    cdef bytes legacy_version          # the legacy one that a header named last
    cdef Response response
    cdef bytes accept                  # the last value that was taken apart
    cdef Response accepted             # which responses it allows
    cdef readonly bint draining

    cdef int serve_here_c(
        self, Exchange exchange, Slab slab, const uint8_t *p, size_t n
    ) except -1
    cdef int post_c(
        self, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p, size_t n
    ) except -1
    cdef bint is_legacy_c(self, Span version) except -1
    cdef Message read_c(self, Slab slab, const uint8_t *p, size_t n)
    cdef int legacy_c(
        self, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p, size_t n
    ) except -1
    cdef int resumable_c(
        self, SessionEntry session, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p,
        size_t n, Message m
    ) except -1
    cdef int serve_c(
        self, SessionConnection client, McpExchange ex, HttpHead head, Slab slab, const uint8_t *p,
        size_t n, Message m,
    ) except -1
    cdef SessionEntry known_c(self, Exchange ex, Span value)
    cdef bint is_passed_on_c(
        self, McpExchange ex, Message m, const uint8_t *p, size_t n
    ) except -1
    cdef bint is_one_c(self, Exchange ex, HttpHead head) except -1
    cdef bint is_acceptable_c(self, McpExchange ex, HttpHead head) except -1
    cdef SessionEntry session_c(self, Exchange ex, HttpHead head)
    cdef SessionConnection lane_c(self)
    cdef SessionConnection connect_c(self, bint lane)
    cdef int refuse_c(self, Exchange ex, int status, str sentence, object fields) except -1
