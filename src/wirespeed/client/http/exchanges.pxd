from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport Slab
from wirespeed.transport.http.client_connection cimport HttpCall, ResponseReceiver
from wirespeed.transport.link cimport Link


# The owner of exchanges: the base of `HttpLink`.
cdef class ExchangeLink(Link):
    cdef readonly object auth          # AuthorizedExchanges; or None
    cdef readonly bint old             # the server speaks HTTP+SSE

    # Send a message. None: it is sent when its token is there.
    cdef HttpCall post_c(self, Post post)
    # A message of the server arrived: n bytes at p, which lie in the slab. `call` brings more, or
    # is None. `request`: the id of the request whose response it arrived in, or None.
    cdef int receive_c(
        self, Slab slab, const uint8_t *p, size_t n, HttpCall call, object request
    ) except -1
    # A POST is over: its answer is there, or will not come.
    cdef int posted_c(self, Post post, object exc, bint sent) except -1


cdef class ClientExchange(ResponseReceiver):
    cdef readonly ExchangeLink link
    cdef readonly str what
    cdef readonly HttpCall call        # while it is under way
    cdef object timer
    cdef public int status
    cdef bytes head                    # of the response
    cdef size_t max_head
    cdef object known_headers          # ResponseHeaders of it, once they are looked at
    cdef readonly str last_id
    cdef readonly object retry
    cdef readonly bint over
    cdef public int n_tokens, n_challenges

    # Send the request, the first time or again.
    cpdef object send(self)
    cdef int forget_head_c(self) except -1
    cdef object put_off_c(self)


cdef class Post(ClientExchange):
    cdef readonly bytes text, fields
    cdef readonly object id            # int, or None
    cdef readonly bytes body
    cdef readonly int tries
    cdef readonly double waited

    @staticmethod
    cdef Post of(ExchangeLink link, bytes text, bytes fields, str what, object id)


cdef class EventStream(ClientExchange):
    cdef readonly Post post
    cdef readonly int failures
    cdef readonly double waited
    cdef double pause                  # seconds before it is opened again
    cdef readonly bint streaming


cdef class OldStream(ClientExchange):
    cdef readonly Post post
    cdef readonly object refusal


cdef class EndWaiter(ResponseReceiver):
    cdef object ended                  # future
