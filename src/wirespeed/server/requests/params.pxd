from wirespeed._core.envelope cimport Message


# ProtocolError -32602: `_meta` of a request of 2026-07-28 is not as the specification says.
cdef int check_envelope_c(Message m) except -1
cdef bint has_other_params_c(Message m) noexcept
cdef str name_of(Message m)
