from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.exchange cimport Carrier, Exchange, HttpTarget, PassedClient
from wirespeed.transport.http.site cimport Admitted, HttpSite, PageOrigin


cdef class HttpWire(Wire):
    cdef bint busy                     # a request is being answered
    cdef bint still                    # nothing is read: the head of the request must stay
    cdef bint pending                  # input was left because of a request before


cdef class HttpConnection(Carrier):
    cdef readonly HttpSite site
    cdef public bytes certificate      # of the client's TLS, DER; None: it has none
    cdef PageOrigin page               # the last one whose requests were let in; or None
    cdef HttpTarget target             # that was found last, and its path
    cdef bytes path
    cdef dict known               # the targets of which `target` is one
    cdef Admitted admitted             # the last request that the gate let in
    cdef bytes fields                  # that the gate adds to the response, or None
    cdef HttpWire http
    cdef readonly object closed        # future: why the connection was lost; None: it was closed
    cdef public object principal       # of the connection; each request has its own
    cdef public object peer
    cdef readonly long n_requests
    cdef public object on_upgrade      # takes the stream for another protocol; or None
    cdef object opening                # what `on_upgrade` is called with, once all is sent; or None
    cdef object admission              # the task that awaits the verdict of the gate; or None
    cdef bint refused                  # a request broke a rule, and its answer is the last
    cdef bint last                     # close when the response in progress is sent
    cdef bint looked                   # the head was checked before its body has arrived
    cdef bint full                     # there are too many connections: every request is refused
    cdef double began                  # when the request arrived that is being answered
    cdef long long sent_before         # bytes sent and queued before its response
    cdef Admitted known_early          # one whose body has not arrived yet, or None

    cdef int continue_c(self) except -1
    cdef int turn_away_c(self, object refusal) except -1
    cdef int nothing_c(self, HttpHead head) except -1
    cdef int note_c(self, Exchange exchange) except -1
    cdef int log_c(self, Exchange exchange) except -1
    cdef long long sent_c(self) noexcept
    cdef int waits_for_c(self) noexcept
    cdef int request_c(self, Span body) except -1
    # The next request is one that another process passes on.
    cdef int serve_c(self, PassedClient client) except -1
    cdef int introduce_c(self, Exchange exchange) except -1
    cdef int unfinished_c(self) except -1
    cdef int rest_c(self, Exchange exchange) except -1
    cdef int ended_c(self) except -1
    cdef int close_c(self) except -1
    cdef int hand_over_c(self) except -1
    cdef int give_up_c(self, object refusal) except -1
    cdef int refuse_c(self, int status, str sentence, object fields) except -1

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
