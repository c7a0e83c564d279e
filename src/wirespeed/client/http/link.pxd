from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session, WrittenCall
from wirespeed.client.http.exchanges cimport ClientExchange, ExchangeLink, Post
from wirespeed.transport.http.pool cimport HttpPool


cdef class HttpLink(ExchangeLink):
    cdef readonly object connection, mirrored
    cdef readonly HttpPool pool
    cdef readonly object failure
    cdef readonly bint lost
    cdef Session messages              # `wire` by its type
    cdef readonly object reads_for     # int, or None
    cdef readonly bytes unsent         # the text of the request that fails now, or None
    cdef object make_pool, target
    cdef str place                     # where messages go: path and query
    cdef dict requests                 # Post by id
    cdef set notes                     # Post: notifications and responses under way
    cdef set streams                   # ClientExchange
    cdef Post gate                     # notifications/initialized, which others must not overtake
    cdef str session                   # Mcp-Session-Id
    cdef str gone                      # why the link ends with its last request
    cdef list unread                   # (Post, exc): over, but what arrived may hold the answer
    cdef list paused                   # HttpCall whose events the session has no room for
    cdef HttpPool side                 # pool for notes while all connections have calls
    cdef object notes_over             # future: no notes are under way
    cdef uint32_t max_depth
    cdef object quiet
    cdef bytes own, base               # header fields of each request, and of each POST
    cdef dict heads                    # header fields, by (version, method, name)
    cdef dict tools                    # `mirrored.fields`
    cdef dict calls                    # the tool's name and `heads` of calls, by `WrittenCall.key`

    cdef int over_c(self, exc) except -1
    cdef int send_c(self, bytes line) except -1
    cdef WrittenCall call_c(self)
    cdef Post note_c(self, bytes line, bytes fields, str what)
    cdef int begin_c(self) except -1
    cdef bint cancel_c(self, Message message) except -1
    cdef bint modern_c(self) except -1
    cdef HttpPool notes_pool_c(self)
    cdef bytes head_c(self, str method, Message message, WrittenCall call)
    cdef bytes call_head_c(self, WrittenCall call)
    cdef bytes session_fields_c(self, bytes fields)
    cdef bint waits_c(self, Post post) except -1
    cdef int end_if_gone_c(self) except -1
    cdef int settle_c(self, Post post, exc, bint sent) except -1
    cdef bint demands_c(self, ClientExchange exchange) except -1
    cdef bint again_c(self, Post post) except -1
    cdef bint has_unread_c(self) except -1
    cdef int unanswered_c(self, Post post, exc) except -1
    cdef int refused_c(self, Post post) except -1
    cdef object refusal_c(self, Post post, Message message, bint own)
    cdef bint session_is_gone_c(self, int status, Message message=*, Post post=*) except -1
    cdef int noted_c(self, Post note, exc) except -1
    cdef object broken_c(self, Post post, exc)
    cdef int fail_c(self, Post post, exc) except -1
    cdef int drop_stream_c(self, Post post) except -1
