from libc.stdint cimport int64_t, uint64_t

from wirespeed._core.span cimport Span


cdef class Arguments:
    cdef list parts                    # bytes, and slots
    cdef object expected_slot          # the slot whose value is expected back, or None
    cdef bytes expected_text           # where none is: the inside of a JSON string, or None
    cdef bint strings
    cdef bytes pool                    # random letters
    cdef uint64_t state                # of the generator

    # The JSON text of the nth arguments. `expected`: the inside of the JSON string that is expected
    # back; it lies in that text or in these arguments, and is NULL where nothing is expected.
    cdef bytes render_c(self, int64_t n, Span *expected)
    cdef uint64_t random_c(self) noexcept
    cdef int letters_c(self, char *p, Py_ssize_t n) noexcept
