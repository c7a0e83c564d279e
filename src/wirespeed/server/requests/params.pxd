from wirespeed._core.envelope cimport Message


cdef bint has_other_params_c(Message m) noexcept
cdef bint has_other_meta_c(Message m) noexcept
cdef tuple described_c(Message m, object negotiated)
cdef str name_of(Message m)
