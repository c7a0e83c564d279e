from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.proxy.side cimport Side


# The side of a client: its requests are checked before they are passed on.
cdef class DownstreamSide(Side):
    cdef public object meta_tools      # the tools of a search in place of a list (`MetaTools`)
    cdef public object hooks           # what calls of some tools pass (`HookedTools`); or None
    cdef public object skills          # what it sees of skills (`SkillGate`); None: all
    cdef public str drained            # why its requests are refused; None: they are not
    cdef public object identities      # its servers as its principal sees them (`PerPrincipal`)
    cdef public bytes bound_to         # the principal whose servers it has; None: none, or all
    cdef public dict takers            # who takes the results of some requests, by `ref`; or None
    cdef size_t most_takers            # those whose requests are over are dropped at this number
    cdef uint64_t expanded             # the last request that was called by a tool of the search

    cdef bint is_in_rate_c(self, Message m) except -1
    cdef bint agrees_c(self, Message m, HttpHead head, bint modern) except -1
    cdef bint is_own_c(self, Message m) except -1
    cdef int go_on_c(self, Message m, bint modern) except -1
