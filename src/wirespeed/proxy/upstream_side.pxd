from wirespeed.proxy.breakdown cimport Breakdown
from wirespeed.proxy.flow.admission cimport OpenRequests
from wirespeed.proxy.side cimport Route, Side


# The side of a server: what it asks and says is about requests of clients.
cdef class UpstreamSide(Side):
    cdef readonly long n_loggers   # requests to it that ask for log messages
    cdef public Breakdown breakdown     # its requests by tool and principal; None: off
    cdef Route logger              # one of these, perhaps over; or None
    cdef OpenRequests open_requests
    cdef double gave_up_logs_at    # when such a request was given up; or -inf

    # The request whose response brings the message that is read just now; None: that is not known.
    cdef Route stream_c(self)
