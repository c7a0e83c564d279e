from libc.stdint cimport int16_t, uint16_t, uint32_t, uint64_t, uint8_t

from wirespeed._core.framing.http.rfc9112 cimport Fault, KnownField, Method, N_KNOWN
from wirespeed._core.span cimport Span


cdef enum HeadResult:
    HEAD_MORE = 0             # more input needed
    HEAD_READY = 1
    HEAD_BAD = 2              # `fault` says why

cdef struct HttpField:
    uint32_t name             # where it begins, counted from the first byte of the head
    uint32_t value            # the same; white space around the value is left out
    uint32_t n_value
    uint16_t n_name
    int16_t known             # a KnownField


# The head of a request or a response. Its bytes stay where they were read, and the owner of that
# memory says where: as an argument of `scan_c`, and afterwards by `p`. All spans are valid as long
# as these bytes are. All fields but `p` are read only.
cdef class HttpHead:
    cdef readonly size_t max_head, max_target, max_fields
    cdef readonly bint response    # a status line is expected; else a request line
    cdef const uint8_t *p          # first byte; NULL while it does not lie in memory
    cdef bytes source              # what `scan` was given
    cdef size_t at                 # bytes that were looked at; of a whole head: its length
    cdef size_t mark               # where the element begins that `at` is in
    cdef int state
    cdef Fault fault

    # the first line
    cdef Method method_c           # of a request
    cdef size_t method_at, n_method
    cdef size_t target_at, n_target
    cdef size_t authority_at, n_authority    # of a target that is a URL
    cdef size_t path_at            # of the target, behind the authority
    cdef size_t query_at           # of the "?"; 0 where there is none
    cdef readonly int status       # of a response; 0 of a request
    cdef readonly int minor        # of the version: 0 or 1

    # the fields
    cdef HttpField *fields_c
    cdef size_t n_fields, room
    cdef int16_t first[N_KNOWN]    # the first field of each KnownField, or -1
    cdef uint64_t duplicates       # bits of the KnownFields that occur twice

    # what they say of the body and of the connection
    cdef readonly bint chunked
    cdef readonly bint has_length
    cdef readonly uint64_t length    # of the body; 0 without Content-Length
    cdef readonly bint keeps_alive   # another message may follow on the connection
    cdef readonly bint upgrades      # Connection has the member "upgrade" (HTTP/1.1)
    cdef readonly bint expects_continue
    cdef bint says_close, says_keep_alive

    cdef int begin_c(self) noexcept
    # HEAD_READY, HEAD_MORE or HEAD_BAD, of the n bytes at p, the head's first. The bytes that
    # earlier calls saw are not looked at again.
    cdef int scan_c(self, const uint8_t *p, size_t n) except -1
    cdef int scan_lines_c(self, const uint8_t *p, size_t n) except -1
    cdef size_t limit_c(self) noexcept
    cdef Fault request_line_c(self, size_t version, size_t n) noexcept
    cdef Fault target_form_c(self) noexcept
    cdef Fault status_line_c(self, size_t at, size_t n) noexcept
    cdef int grow_c(self) except -1
    cdef Fault field_c(self, HttpField *field) noexcept
    cdef Fault end_c(self) noexcept

    # False: there is no such field. Of a field that occurs several times it is the first; go
    # through `fields_c` for others.
    cdef bint value_c(self, KnownField known, Span *value) noexcept
    # The same for any name, in lower case.
    cdef bint find_c(self, bytes name, Span *value) noexcept
    cdef int check_c(self) except -1
    cdef str text_c(self, size_t at, size_t n)
    cdef bint twice_c(self, KnownField known) noexcept
    # The host and port that the request is for: of the target where it is a URL, else of Host.
    cdef Span authority_c(self) noexcept
    # "*" for the target "*".
    cdef Span path_c(self) noexcept
    # Behind the "?"; `p` is NULL where there is none.
    cdef Span query_c(self) noexcept
