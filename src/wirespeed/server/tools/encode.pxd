from libc.stdint cimport uint8_t, uint64_t

from wirespeed._core.session cimport Session


cdef int answer_text_c(
    Session session, uint64_t ref, str text, const uint8_t *utf8, size_t n, bytes tail
) except -1
cdef int answer_content_c(
    Session session, uint64_t ref, bytes content, bytes structured, bint is_error, bytes tail
) except -1
cdef bytes text_result_c(const uint8_t *utf8, size_t n, bytes tail)
cdef bytes content_result_c(bytes content, bytes structured, bint is_error, bytes tail)
cdef bytes object_line_c(object data)
