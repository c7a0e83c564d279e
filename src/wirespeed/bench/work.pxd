from wirespeed._core.envelope cimport Message
from wirespeed._core.span cimport Span
from wirespeed.bench.arguments cimport Arguments
from wirespeed.bench.recorder cimport Outcome


cdef class Work:
    cdef readonly str tool             # None of other methods than tools/call
    cdef readonly str method
    cdef bint is_call
    cdef bytes name                    # JSON text of the tool's name, or of the method
    cdef readonly Arguments arguments
    cdef readonly object check         # result, as decoded JSON -> bool; None: by text, or not
    cdef readonly bint progress
    cdef readonly double cancel_after  # seconds; infinity: it is not cancelled
    cdef object decode_page            # of a list
    cdef object cursor                 # of the page that follows the one that was judged last

    # An answer that was right has these parts around the text that was expected: another one that
    # has them around its own text is right, too.
    cdef list form
    cdef Py_ssize_t form_size
    cdef int learned                   # how often a form was learned

    cdef Outcome judge_c(self, Message m, Span expected) except *
    cdef bint allows_c(self, object result) except -1
    cdef bint has_form_c(self, Span result, Span expected) noexcept
    cdef int learn_c(self, Span result, Span expected) except -1
