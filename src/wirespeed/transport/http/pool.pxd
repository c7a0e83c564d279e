from wirespeed.transport.http.client_connection cimport CallOwner, HttpCall, ResponseReceiver


cdef class HttpPool(CallOwner):
    cdef object ssl, proxy, limits, may_reach
    cdef Py_ssize_t max_connections
    cdef size_t max_head
    cdef double connect_timeout, idle_timeout
    cdef int max_redirects
    cdef bytes fields                  # of every request
    cdef list idle                     # HttpClientConnection; the last one is used next
    cdef set connections
    cdef object waiting                # deque of HttpCall
    cdef set opening                   # tasks
    cdef object timer
    cdef bint closed

    # As `request`, for fields that begin with those of every request.
    cdef HttpCall request_c(
        self, str method, str target, bytes fields, object body, ResponseReceiver receiver
    )
    cdef int start_c(self, HttpCall call, bint fresh=*) except -1
    cdef int connect_c(self) except -1
