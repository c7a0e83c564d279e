from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session
from wirespeed.server.tool cimport Tool
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.tasks cimport Completion, Running, TaskPool


cdef class Call(Completion):
    cdef readonly ServerConnection connection
    cdef readonly Tool tool
    cdef readonly object revision      # protocol.revisions.Revision that the request is served by
    cdef uint64_t ref
    cdef Running running               # None until the handler suspended
    cdef object timer                  # of the tool's timeout
    cdef object context                # the handler's Context, if it takes one
    cdef bint modern                   # revision.modern
    cdef bint cancelled                # the peer wants no answer, or is gone
    cdef bint timed_out
    cdef bint given_up                 # by a shutdown whose grace time is over
    cdef readonly bint ended           # nothing more may be said about this request

    cpdef object cancel(self)


cdef class ServerConnection(Endpoint):
    cdef readonly Session session
    cdef readonly object server
    cdef readonly object loop
    cdef TaskPool pool
    cdef dict tools                    # the server's: name -> Tool
    cdef Call spare_call               # used again when its handler ended at once
    cdef list hot_tools                # found lately, by a hash of the name; or None
    cdef object modern                 # the newest modern Revision, or None
    cdef bytes modern_version          # its version as JSON text
    cdef bytes modern_end              # what every modern result ends with, behind its content
    cdef public object revision        # what `initialize` negotiated, or None
    cdef public bint pinned_modern     # a modern request succeeded: no handshake any more
    cdef readonly set running          # calls whose handlers are suspended
    cdef public dict listens           # subscriptions/listen: request's ref -> Subscription
    cdef public object state           # the handshake's: client_info, capabilities, log_level
    cdef list waiters                  # futures of those who wait for the client to read
    cdef bint tools_changed            # the client is to be told
    cdef bint dropping                 # notifications are being dropped
    cdef readonly bint draining
    cdef object grace_timer
    cdef readonly object closed        # future: the connection is over
    cdef readonly unsigned long thread

    cdef int log_fault_c(self, Message m) except -1
    cdef int request_c(self, Message m) except -1
    cdef bint is_modern_c(self, Message m) noexcept
    cdef object revision_for_c(self, Message m)
    cdef object modern_revision_c(self, Message m)
    cdef int call_tool_c(self, Message m, object revision) except -1
    cdef int finish_c(self, Call call, object value, object exc) except -1
    cdef int fail_c(self, Call call, object exc) except -1
    cdef int send_text_c(self, Call call, str text) except -1
    cdef object call_inline_c(self, Tool tool, object decoded, object context)
    cdef int send_raw_c(self, Call call, object data) except -1
    cdef int send_content_c(
        self, Call call, bytes content, bytes structured, bint is_error, bytes meta
    ) except -1
    cdef int pin_modern_c(self) except -1
    cdef Tool find_tool_c(self, Message m)
    cdef int check_drained_c(self) except -1
