from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport Lease


# The head of a request, with bytes of its own: for requests that wait.
cpdef HttpHead copy_of(HttpHead head)
# The value of a field whose values have no commas, where equal ones were joined.
cdef str joined(str text)
# Whether the routing fields of a request of 2026-07-28 agree with its message. ProtocolError
# -32020: they do not.
cdef int check_headers_c(HttpHead head, Message m) except -1
# Whether the routing fields of a call are there once, and have the bytes that its message has. It
# may say no where they agree in another writing.
cdef bint call_is_same_c(HttpHead head, Message m) noexcept
# The same for the arguments of a tool that are mirrored: `fields` are its ParamFields. `arguments`
# is None where the call has none.
cdef int check_params_c(HttpHead head, tuple fields, Lease arguments) except -1
