from wirespeed.transport.http.client_connection cimport HttpCall


cdef class ClientExchange:
    cdef readonly object link
    cdef readonly str what
    cdef readonly HttpCall call        # while it is under way
    cdef object timer
    cdef public int status
    cdef readonly object headers
    cdef readonly str last_id
    cdef readonly object retry
    cdef readonly bint over
    cdef public int n_tokens, n_challenges


cdef class Post(ClientExchange):
    cdef readonly bytes text, fields
    cdef readonly object id            # int, or None
    cdef readonly bytes body
    cdef readonly int tries
    cdef readonly double waited


cdef class EventStream(ClientExchange):
    cdef readonly Post post
    cdef readonly int failures
    cdef readonly bint streaming


cdef class OldStream(ClientExchange):
    cdef readonly Post post
    cdef readonly object refusal


cdef class EndWaiter:
    cdef object ended                  # future
