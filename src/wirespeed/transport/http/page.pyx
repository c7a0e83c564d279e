"""A web page whose requests come by a connection (Fetch, "CORS protocol")."""

cimport cython

from wirespeed._core.framing.http.fields cimport HOST, ORIGIN
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.transport.http.targets cimport is_known

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.transport.http import cors


@cython.final
cdef class Page:
    """A page that the gate let in.

    Args:
        origin: The header field of its requests.
        host: The same; None where the target of the request has the host.
    """

    def __init__(self, bytes origin not None, bytes host):
        self.origin = origin
        self.host = host
        self.fields = tuple(cors.response_fields(origin.decode("latin-1")))
        self.lines = field_lines(self.fields)

    cdef bint sends_c(self, HttpHead head) noexcept:
        return (
            head.n_authority == 0 and not head.twice_c(ORIGIN)
            and is_known(head, ORIGIN, self.origin)
            and is_known(head, HOST, self.host)
        )
