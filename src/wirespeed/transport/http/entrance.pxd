from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.transport.http.cors cimport PageOrigin
from wirespeed.transport.http.exchange cimport Carrier, Exchange, HttpTarget
from wirespeed.transport.http.targets cimport Admitted, HttpSite


cdef class Entrance(Carrier):
    cdef readonly HttpSite site
    cdef public bytes certificate      # of the client's TLS, DER; None: it has none
    cdef PageOrigin page               # the last one whose requests were let in; or None
    cdef HttpTarget target             # that was found last, and its path
    cdef bytes path
    cdef dict known               # the targets of which `target` is one
    cdef Admitted admitted             # the last request that the gate let in
    cdef bytes fields                  # that the gate adds to the response, or None

    cdef HttpTarget target_c(self)
    cdef bint is_admitted_c(self, HttpTarget target, HttpHead head) except -1
    cdef object read_request_c(self)
    cdef bint is_unasked_c(self, HttpTarget target, HttpHead head) except -1
    cdef object judge_c(self, HttpTarget target, HttpHead head)
    cdef int admit_c(self, HttpTarget target, HttpHead head, object verdict) except -1
    cdef PageOrigin page_c(self, HttpHead head)
    cdef bint options_c(self, Exchange exchange, HttpHead head) except -1
    cdef tuple shown_c(self)
    cdef int level_c(self, int status, HttpHead head) except -1
