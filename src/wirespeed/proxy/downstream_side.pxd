from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.proxy.side cimport Side


# The side of a client: its requests are checked before they are passed on.
cdef class DownstreamSide(Side):
    cdef public object meta_tools      # the tools of a search in place of a list (`MetaTools`)
    cdef public object hooks           # the hooks of the server's tools (`HookedTools`); or None
    cdef public object skills          # decides about the server's skills (`SkillGate`); or None
    cdef public str drained            # why its requests are refused; None: they are not
    cdef public object identities      # finds the connections of a principal (`PerPrincipal`)
    cdef public bytes bound_to         # the principal whose connections it uses; or None
    cdef public object quotas          # calls of tools in a day (`EndpointQuotas`); None: any
    cdef readonly list parked          # requests in their rate that came while it was paused
    cdef public object state           # what its client has told the proxy (`ClientState`); or None
    cdef public object elsewhere       # passes on what names another process (`OverHttp`); or None
    cdef public dict takers            # takers of results, by the `ref` of the request; or None
    cdef size_t most_takers            # those whose requests are over are dropped at this number
    cdef uint64_t expanded             # the last request that was called by a tool of the search

    cdef bint is_in_rate_c(self, Message m, HttpHead head) except -1
    cdef bint is_restored_c(self, Message m) except -1
    cdef int lend_c(self, Message m, HttpHead head) except -1
    cdef int over_limit_c(self, Message m, str text, double delay) except -1
    cdef int check_c(self, Message m, HttpHead head, bint modern) except -1
    cdef bint agrees_c(self, Message m, HttpHead head, bint modern) except -1
    cdef bint is_own_c(self, Message m) except -1
    cdef int go_on_c(self, Message m, bint modern) except -1
    cdef bint is_in_quota_c(self, Message m, object spending, double delay) except -1
    cdef int hook_c(self, Message m, bint modern) except -1
    cdef list listens_c(self)
