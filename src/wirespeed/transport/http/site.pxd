from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from wirespeed._core.framing.http.rfc9112 cimport KnownField
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport InputBudget
from wirespeed._core.span cimport Span
from wirespeed.transport.http.exchange cimport HttpTarget


cdef inline bint is_known(HttpHead head, KnownField field, bytes known) noexcept:
    """Whether the value of a field is the one that is known; None: the field is absent."""
    cdef Span value
    if not head.value_c(field, &value):
        return known is None
    return (
        known is not None and value.n == <size_t> PyBytes_GET_SIZE(known)
        and memcmp(value.p, PyBytes_AS_STRING(known), value.n) == 0
    )


cdef inline bytes value_of(HttpHead head, KnownField field):
    """The value of a field; None: the field is absent."""
    cdef Span value
    if not head.value_c(field, &value):
        return None
    return PyBytes_FromStringAndSize(<const char *> value.p, <Py_ssize_t> value.n)


# The origin of a web page that the gate let in.
cdef class PageOrigin:
    cdef bytes origin, host            # header fields of its requests
    cdef tuple fields                  # of responses to it: names and values
    cdef bytes lines                   # the same

    # Whether a request with this head comes from it.
    cdef bint sends_c(self, HttpHead head) noexcept


# What the gate decided about a request: who its client is.
cdef class Admitted:
    cdef HttpTarget target             # what the request asked for
    cdef bytes host, origin, authorization, authentication    # the fields that the gate looked at
    cdef object user                   # that `authenticate` returned, or None
    cdef bytes principal               # a digest of the client's credential, or None
    cdef double until                  # in Unix seconds: then the gate is asked again
    cdef double expires                # of the credential

    # Whether this holds for a request with that head.
    cdef bint covers_c(self, HttpTarget target, HttpHead head, double now) noexcept
    # Whether what was decided when the head of this request arrived holds when all has arrived.
    cdef bint lasts_c(self, HttpTarget target, HttpHead head, double now) noexcept


# What the connections of one listener share.
cdef class HttpSite:
    # What answers the paths below its own, of which this is one; None: nothing does.
    cdef HttpTarget below_c(self, bytes path)
    cdef readonly dict targets         # path as a request has it, bytes: HttpTarget
    cdef readonly object gate          # who may come in
    cdef readonly InputBudget budget   # of all connections
    cdef readonly object options       # HttpOptions
    cdef long max_requests             # of a connection; 0: no limit
    cdef readonly object limits        # of a connection: the largest of the services
    cdef readonly object loop
    cdef readonly object workers       # the other processes at the port (`HostLinks`), or None
    cdef object quiet                  # logs refusals, not too many
    cdef object forwarded              # finds clients behind trusted proxies; None without these
    cdef object log                    # of requests, or None
    cdef bint closes                   # each response is the last one of its connection
    cdef set replaced              # targets that answer their last requests
    cdef set admitting                 # tasks that await verdicts of the gate
    cdef dict admitted                 # Admitted by the values of the two fields with tokens
    cdef double admitted_until         # in Unix seconds: then these are forgotten
    cdef bytes date                    # the Date field with its line end
    cdef double date_until, now        # in Unix seconds; `date_c` reads the clock

    cdef int serve_c(self, object targets) except -1
    cdef object admit_c(self, object admission)
    cdef int withdraw_c(self, object task) except -1
    # What the gate decided about an earlier request of any connection; None: it must be asked.
    cdef Admitted find_c(self, HttpTarget target, HttpHead head)
    # Note what the gate decided now. `share`: it holds for other connections, too.
    cdef Admitted keep_c(self, HttpTarget target, HttpHead head, object admission, bint share)
    cdef bytes date_c(self)
