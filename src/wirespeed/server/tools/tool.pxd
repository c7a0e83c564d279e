from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport Lease
from wirespeed.server.requests.call cimport Call, Operation


cdef enum:
    MAX_TEXTS = 16            # fields of one struct that are looked for


cdef class LongTexts:
    cdef list keys                       # names of the fields in JSON, as they are usually spelled
    cdef list attributes                 # the attribute of each

    cdef int find_c(self, const uint8_t *key, size_t n) noexcept
    cdef object decode_c(self, object decode, const uint8_t *p, size_t n)


cdef enum How:
    INLINE = 1            # called on the loop's thread; its value is the result
    COROUTINE = 2         # the call returns a coroutine
    LAUNCHED = 3          # `launch` makes a coroutine of the call (threads, generators)


cdef enum:
    MAX_STACK = 16        # arguments and context that are passed without a list
    LONG_ARGUMENTS = 4096  # bytes


cdef class Tool(Operation):
    cdef bytes name_json               # as requests without unusual escapes have it
    cdef readonly object spec          # ToolSpec; None for a raw tool
    cdef readonly object entry         # ToolEntry: what tools/list shows
    cdef readonly bint raw             # gets the undecoded arguments
    cdef public tuple header_params    # arguments that HTTP clients mirror (ParamField), or None
    cdef public tuple scopes           # what a client's token must permit; or None
    cdef public object tasks           # how calls become tasks (server.tasks.TaskTool), or None
    cdef How how
    cdef bint plain_text               # a str result is one text block and nothing else
    cdef readonly object function      # what a call calls
    cdef object decode                 # bytes-like -> struct of the arguments
    cdef LongTexts texts               # where long ones are decoded apart; or None
    cdef tuple kwnames                 # None when there are none
    cdef Py_ssize_t context_index
    cdef object launch
    cdef object encode                 # (value, revision) -> Encoded

    cdef object decode_c(self, Lease arguments)
    cdef object invoke_c(self, object decoded, object context)
    cdef int refuse_arguments_c(self, Call call, object exc, bint as_error) except -1
    cdef int send_text_c(self, Call call, str text) except -1
    cdef int send_raw_c(self, Call call, object data) except -1
    cdef int send_content_c(
        self, Call call, bytes content, bytes structured, bint is_error, bytes meta
    ) except -1
