from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint


# A client of a service. Override the methods, which say nothing here.
cdef class Served(Endpoint):
    cdef readonly Session session
    cdef readonly object loop
    cdef public bint draining
    cdef public object closed          # future: why the connection was lost; None: it was closed
    cdef Outbox outlet                 # where what it sends without a reason waits for the client
    cdef public HttpHead head          # of the HTTP request that is being read; None without one
    cdef public bint shared            # its requests come from different clients
    cdef public object revision        # what `initialize` negotiated, or None
    cdef public object principal       # digest of the client's credential, or None
    cdef public object peer            # what the transport knows of the client (Peer), or None

    # Serve the next request by a revision without a handshake.
    cdef int assume_c(self, object revision) except -1
    # Answer the requests in flight with an error, for a reason: they are not waited for any more.
    # Those that were not read yet are refused.
    cdef int cut_off_c(self, str why) except -1
    # Get ready for the next client. False: the last one is still worked for.
    cdef bint renew_c(self) except -1
