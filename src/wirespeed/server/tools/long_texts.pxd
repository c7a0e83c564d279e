from libc.stdint cimport uint8_t


cdef enum:
    MAX_TEXTS = 16            # fields of one struct that are looked for


cdef class LongTexts:
    cdef list keys                       # names of the fields in JSON, as they are usually spelled
    cdef Py_ssize_t offsets[MAX_TEXTS]   # where an instance keeps them

    cdef int find_c(self, const uint8_t *key, size_t n) noexcept
    cdef object decode_c(self, object decode, const uint8_t *p, size_t n)
