from wirespeed._core.framing.http.fields cimport Method
from wirespeed._core.framing.http.framer cimport HttpFramer
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.sse cimport EventReader
from wirespeed.transport.link cimport Endpoint


cdef class ClientWire(Wire):
    cdef HttpFramer http
    cdef bint paused               # the receiver of the response has no room
    cdef bint held                 # bytes arrived that were not framed because of that
    cdef bint awaits               # a response is awaited


# One request and its response. Its events are methods of `receiver`.
cdef class HttpCall:
    cdef readonly object pool
    cdef object receiver           # None after the last event
    cdef Method method
    cdef readonly str method_name
    cdef readonly str target
    cdef bytes line, fields        # the first line of the request, and its header fields
    cdef object body               # None for none
    cdef HttpClientConnection connection     # while the request is on one
    cdef readonly bint sent        # bytes of the request may have reached the server
    cdef readonly int n_redirects
    cdef readonly bint retried     # a kept connection failed it

    cdef int aim_c(self, str target) except -1


cdef class HttpClientConnection(Endpoint):
    cdef readonly object pool
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
    cdef public double idle_since

    cdef bint is_open_c(self) except -1
    cdef int head_c(self, HttpCall call) except -1
    cdef int events_c(self, HttpCall call) except -1
    cdef int complete_c(self, HttpCall call) except -1
    cdef int fail_c(self, object exc) except -1
    cdef HttpCall drop_call_c(self)
