from libc.stdint cimport uint8_t

from wirespeed._core.framing.http.framer cimport HttpFramer
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.slab cimport Slab
from wirespeed.transport.link cimport Endpoint

# The header fields. The authority of a target in absolute form stands for Host (RFC 9112 section
# 3.2.2).
cdef object headers_c(HttpHead head)


# Who a client is whose request the gate has let in already: what another process says that passes
# the request on, or where the client has a stream at this one.
cdef class PassedClient:
    cdef readonly str address
    cdef readonly object user          # of another process without `data`: OF_SESSION stands for it
    cdef readonly bytes principal
    cdef readonly double expires
    # That has the session, as far as that process knows; -1: the client is at this process.
    cdef readonly int worker
    cdef readonly bint far             # it is of another host
    # It sends messages on a stream: the header fields of the request say nothing.
    cdef readonly bint streams


# A connection that carries exchanges, one at a time.
cdef class Carrier(Endpoint):
    cdef readonly HttpFramer framer
    cdef HttpWriter output
    cdef readonly str address          # of the client, as text for people
    cdef readonly Exchange exchange    # the request that is being answered, or None
    cdef readonly PassedClient passed  # of the request of another process; None: the client is here
    cdef readonly bint draining        # the request in progress is the last one

    # The response of the exchange is complete.
    cdef int over_c(self, Exchange exchange) except -1


# One request and its response.
cdef class Exchange(ReplyRoute):
    cdef readonly Carrier carrier      # None when the response is complete or the client is gone
    cdef readonly HttpTarget target
    cdef readonly str address          # of the client, as text for people
    cdef public object user            # that `authenticate` returned, or None
    cdef public bytes principal        # a digest of the client's credential, or None
    cdef public double expires         # when the credential ends, in Unix seconds
    cdef public bytes more_fields      # lines of every response besides its own (CORS)
    cdef readonly int status           # of the response; 0 before its head is written
    cdef readonly bint gone            # the client left before the response was complete
    cdef bytes raw                     # the head of the request, where it was kept
    cdef object known_headers
    cdef public object on_gone         # called without arguments when the client is gone; or None
    cdef public object on_drained      # and when the client has read what was queued for it
    cdef public object on_drain        # and when the server shuts down

    # The head of the request, before the first await; None afterwards. `keep_head_c` makes the
    # properties work afterwards, too.
    cdef HttpHead head_c(self)
    cdef int keep_head_c(self) except -1
    cdef HttpHead read_head_c(self)
    cdef int join_c(self, Carrier carrier, HttpTarget target) except -1
    cdef int set_head_c(self, int status, bytes fields) except -1
    cdef int open_stream_c(self, bytes fields) except -1
    cdef int done_c(self) except -1
    cdef int check_open_c(self) except -1
    cdef int finish_response_c(self) except -1
    # Override: the client is gone; a message was written that nobody reads; there is room again;
    # the server shuts down.
    cdef int gone_c(self) except -1
    cdef int lost_c(self) except -1
    cdef int drained_c(self) except -1
    cdef int drain_c(self) except -1
    # Override: the status of the response that begins with a JSON-RPC message.
    cdef int status_c(self) noexcept


# What answers the requests at a path.
cdef class HttpTarget:
    cdef public object site            # that serves it last (`HttpSite`); or None
    cdef public object authority       # decides who may come in (`gate.Authority`); or None
    cdef public bint for_pages         # every web page may read it
    cdef public HttpTarget websocket   # answers those that ask for a WebSocket; or None
    cdef public bint opens             # its responses open other connections on the same stream
    # Override: the exchange of a request.
    cdef Exchange exchange_c(self)
    # Override: all that the request asked for is done.
    cdef int over_c(self, Exchange exchange) except -1
    # Override: answer a request. Its body is the n bytes at p, which lie in the slab. The head and
    # the body are there until the next await.
    cdef int take_c(self, Exchange exchange, Slab slab, const uint8_t *p, size_t n) except -1
