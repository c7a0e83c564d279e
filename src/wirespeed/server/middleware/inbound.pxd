from wirespeed._core.envelope cimport Message
from wirespeed.server.requests.call cimport Serving


cdef class Reply:
    cdef readonly bytes data
    cdef bint whole                    # it has all members of its era


cdef class InboundRequest:
    cdef Serving connection
    cdef Message message
    cdef object client                 # what the transport knows of the client (Peer), or None
    cdef dict shared                   # what the request's middleware and handler share, or None
    cdef InboundRequest replaced       # the client's request, which this one replaces; or None

    cdef object _told(self, int which, object legacy)


cdef Reply whole_reply(bytes data)
cdef tuple body_of(Reply reply)
