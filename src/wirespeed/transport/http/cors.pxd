from wirespeed._core.framing.http.head cimport HttpHead


# The origin of a web page that the gate let in.
cdef class PageOrigin:
    cdef bytes origin, host            # header fields of its requests
    cdef tuple fields                  # of responses to it: names and values
    cdef bytes lines                   # the same

    # Whether a request with this head comes from it.
    cdef bint sends_c(self, HttpHead head) noexcept
