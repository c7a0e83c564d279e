from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed.server.requests.call cimport Call, Pipeline, Serving
from wirespeed.server.tools.tool cimport Tool


cdef class ServerConnection(Serving):
    cdef dict tools                    # of the server: name -> Tool
    cdef Call spare_call               # used again if its handler ended at once
    cdef list hot_tools                # tools found lately, by a hash of the name
    cdef object modern                 # the newest modern Revision, or None
    cdef bytes modern_version          # its version as JSON text
    cdef public dict listens           # subscriptions/listen: request's id -> Subscription
    cdef readonly object changes       # what the client is told of: ChangeNotifier
    cdef public Pipeline through       # middleware around every request, or None
    cdef public object search          # in place of the list of tools (`ServerToolSearch`), or None
    cdef uint64_t expanded             # the last request that was called by a tool of the search

    cdef Call call_c(self, Message m)
    cdef Message called_c(self, Message m)
    cdef int observe_c(self, Call call, Message m) except -1
    cdef int fail_c(self, Call call, Message m, object exc) except -1
    cdef int cancel_c(self, object request) except -1
    cdef int serve_c(self, Call call, Message m) except -1
    cdef int dispatch_c(self, Call call, Message m) except -1
    cdef object revision_for_c(self, Message m, bint modern)
    cdef dict extension_handlers_c(self, bint modern)
    cdef object modern_revision_c(self, Message m)
    cdef int check_http_c(self, Call call, Message m, HttpHead head) except -1
    cdef int check_arguments_c(self, Call call, Message m, HttpHead head) except -1
    cdef int call_tool_c(self, Call call, Message m) except -1
    cdef object call_inline_c(self, Call call, Tool tool, object decoded)
    cdef int pin_modern_c(self) except -1
    cdef Tool find_tool_c(self, Call call, Message m)
