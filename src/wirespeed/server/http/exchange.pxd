from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed.server.connection cimport ServerConnection
from wirespeed.transport.http.exchange cimport Exchange


cdef enum Response:
    AUTO                               # JSON until the handler says something before its result
    JSON
    EVENTS


# The messages about a request: they make the response a stream.
cdef class NoticeWriter(FrameWriter):
    cdef McpExchange exchange


cdef class McpExchange(Exchange):
    cdef ServerConnection client       # what serves the body; None before that is known
    cdef NoticeWriter notices
    cdef Response response
    cdef bint modern                   # of the era without sessions
    cdef bint is_lane                  # `client` serves one request after another, of all clients

    cdef int open_events_c(self) except -1
