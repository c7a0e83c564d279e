from libc.stdint cimport uint8_t

from wirespeed._core.framing.http.rfc9112 cimport Method
from wirespeed._core.framing.http.framer cimport HttpFramer
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport Slab
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.sse cimport EventReader
from wirespeed.transport.link cimport Endpoint


cdef class ClientWire(Wire):
    cdef HttpFramer http
    cdef bint paused               # the receiver of the response has no room
    cdef bint held                 # bytes arrived that were not framed because of that
    cdef bint awaits               # a response is awaited


# The compiled receiver of a response; `wirespeed.transport.http.pool.Receiver` says when it gets
# what. Override these.
cdef class ResponseReceiver:
    # The head lies in memory during the call only.
    cdef int response_c(self, HttpHead head, bint streaming) except -1
    # The n bytes of the body at p, which lie in the slab.
    cdef int body_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    cdef int event_c(self, str event, object data, str id, object retry) except -1
    cdef int end_c(self, object exc, bint sent) except -1


# The first line of requests.
cdef class RequestLine:
    cdef Method method
    cdef str method_name, target
    cdef bytes text


# The owner of connections and of the calls on them: the base of `HttpPool`.
cdef class CallOwner:
    cdef readonly object address, loop
    cdef readonly str prefix           # before each target: a proxy is asked for a whole URL
    cdef RequestLine line              # of the last request

    cdef RequestLine line_c(self, str method, str target)
    # The connection takes another request.
    cdef int released_c(self, HttpClientConnection connection) except -1


# One request and its response. Its events are methods of `receiver`.
cdef class HttpCall:
    cdef readonly CallOwner pool
    cdef ResponseReceiver receiver     # None after the last event
    cdef RequestLine line
    cdef bytes fields
    cdef object body               # None for none
    cdef HttpClientConnection connection     # while the request is on one
    cdef readonly bint sent        # bytes of the request may have reached the server
    cdef readonly int n_redirects
    cdef readonly bint retried     # a kept connection failed it

    cdef int end_c(self, exc) except -1


cdef class HttpClientConnection(Endpoint):
    cdef readonly CallOwner pool
    cdef object connected          # closes the socket
    cdef HttpFramer http
    cdef ClientWire stream         # `wire` by its type
    cdef HttpCall call             # whose response is awaited
    cdef EventReader events        # of a response that is a stream of events
    cdef str location              # of a response that is a redirect
    cdef size_t max_event
    cdef long long sent_before, received_before    # the call began
    cdef readonly bint kept        # a response came by this connection before
    cdef bint beginning            # events wait until `begin` has returned
    cdef double idle_since

    cdef bint begin_c(self, HttpCall call) except -1
    cdef bint is_open_c(self) except -1
    cdef int head_c(self, HttpCall call) except -1
    cdef int events_c(self, HttpCall call) except -1
    cdef int complete_c(self, HttpCall call) except -1
    cdef int fail_c(self, object exc) except -1
    cdef HttpCall drop_call_c(self)
