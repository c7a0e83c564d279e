from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.outbox cimport Mark
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.http.exchange cimport Exchange


cdef class Streams:
    cdef readonly object store         # the `event_store` of the options
    cdef readonly object shared        # the same as a `SharedEventStore`; None: it is none
    cdef readonly object retry         # seconds, or None
    cdef readonly object quiet         # logs that the store fails, once for many streams
    cdef object _loop
    cdef set _tasks
    cdef double _keepalive             # seconds of silence before a comment; 0: none are sent
    # the ones that are open, and the output of their connections when they were looked at
    cdef list _parts
    cdef Py_ssize_t _next
    cdef object _timer
    cdef dict _ends                    # timers of the streams that credentials limit

    cpdef int opened(self, Exchange exchange) except -1
    cpdef int closed(self, Exchange exchange) except -1
    cdef int _arm(self) except -1


cdef enum Response:
    AUTO                               # JSON until the handler says something before its result
    JSON
    EVENTS


# The messages about a request: they make the response a stream.
cdef class EventNoticeWriter(FrameWriter):
    cdef McpExchange exchange


cdef class McpExchange(Exchange):
    cdef SessionConnection client       # what serves the body; None before that is known
    cdef EventNoticeWriter notices
    cdef Response response
    cdef bint modern                   # of the era without sessions
    cdef bint is_lane                  # `client` serves one request after another, of all clients
    cdef public object session         # the HttpSession, if a client may resume streams; or None
    cdef Streams streams               # of the endpoint
    cdef bint watched                  # they look whether it is silent
    cdef bint limited                  # the client asks too much: not the server has too much to do
    cdef bint stays                    # no other process gets it, whatever it names
    cdef bint is_down                  # nothing is there that could serve the request
    cdef object opened                 # HttpSession that `initialize` has opened; or None
    cdef str challenged                # the field WWW-Authenticate of a refusal; or None
    cdef object log                    # EventLog of the stream of events; None: it is not kept
    cdef Mark mark                     # where the JSON text begins that is being written
    cdef size_t begun                  # size of `out` there
    cdef size_t event_at               # and where the event begins

    cdef int watch_c(self) except -1
    cdef int unwatch_c(self) except -1
    cdef int open_events_c(self) except -1
    cdef int open_now_c(self) except -1
    cdef int settle_opened_c(self) except -1
    cdef bytes line_of_opened_c(self)
    cdef int begin_event_c(self) except -1
    cdef int finish_event_c(self, char last) except -1
