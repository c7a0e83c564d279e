"""Long texts among the arguments of a tool, decoded at the speed of memory.

msgspec looks at a string byte by byte. What was scanned already is known to be valid JSON and
UTF-8: a long text without escapes is copied as it lies, and msgspec decodes the rest, with an empty
string in its place. Anything unusual is left to msgspec as a whole.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

from wirespeed._core._simd cimport WS_OK, kernels, ws_scan


cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void *PyUnicode_DATA(object text)

cdef enum:
    LONG = 2048               # bytes from which on a text is worth it


cdef inline size_t skip_blank(const uint8_t *p, size_t i) noexcept:
    while p[i] == 0x20 or p[i] == 0x0A or p[i] == 0x0D or p[i] == 0x09:
        i += 1
    return i


cdef object text_of(const uint8_t *p, size_t n, bint ascii):
    cdef object text
    if not ascii:
        return PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, NULL)
    text = PyUnicode_New(<Py_ssize_t> n, 127)
    memcpy(PyUnicode_DATA(text), p, n)
    return text


@cython.final
cdef class LongTexts:
    """The fields of a struct that are plain strings.

    Args:
        offsets: Where an instance keeps each: JSON name -> offset of its slot in bytes.
    """

    def __cinit__(self, offsets):
        self.keys = []
        for name, offset in list(offsets.items())[:MAX_TEXTS]:
            self.offsets[len(self.keys)] = offset
            self.keys.append(name.encode())

    cdef int find_c(self, const uint8_t *key, size_t n) noexcept:
        cdef int i
        cdef bytes name
        for i in range(len(self.keys)):
            name = <bytes> self.keys[i]
            if (
                <size_t> PyBytes_GET_SIZE(name) == n
                and memcmp(PyBytes_AS_STRING(name), key, n) == 0
            ):
                return i
        return -1

    def decode(self, decode, bytes data not None, /):
        """What `decode` makes of data, the valid JSON text of an object; None when there is no
        long text in it, or something unusual."""
        return self.decode_c(
            decode, <const uint8_t *> PyBytes_AS_STRING(data), <size_t> PyBytes_GET_SIZE(data)
        )

    cdef object decode_c(self, object decode, const uint8_t *p, size_t n):
        # The text is valid JSON: brackets, quotes and colons stand where they must.
        cdef const uint8_t *starts[MAX_TEXTS]
        cdef size_t lengths[MAX_TEXTS]
        cdef int ascii[MAX_TEXTS]
        cdef bint seen[MAX_TEXTS]
        cdef int plain_ascii = 0
        cdef list parts = []
        cdef size_t i, at, length, kept = 0
        cdef int field
        cdef ws_scan scan
        cdef object decoded, text
        cdef PyObject **slot
        cdef PyObject *old
        for field in range(len(self.keys)):
            lengths[field] = 0
            seen[field] = False
        i = skip_blank(p, 1)
        while p[i] == c'"':
            at = i + 1
            length = kernels.json_plain(p + at, n - at, &plain_ascii)
            if p[at + length] != c'"':
                return None           # an escape in a name
            field = self.find_c(p + at, length)
            i = skip_blank(p, skip_blank(p, at + length + 1) + 1)
            if field >= 0:
                if seen[field]:
                    return None       # twice: msgspec knows which counts
                seen[field] = True
            if p[i] == c'"':
                at = i + 1
                length = kernels.json_plain(p + at, n - at, &plain_ascii)
                if p[at + length] != c'"':
                    return None       # a text with escapes
                if field >= 0 and length >= LONG:
                    starts[field] = p + at
                    lengths[field] = length
                    ascii[field] = plain_ascii
                    parts.append((<const char *> p)[kept:at])
                    kept = at + length
                i = at + length + 1
            elif kernels.json_prefix(p + i, n - i, 1024, &scan) == WS_OK:
                i += scan.end
            else:
                return None           # deeper than we look
            i = skip_blank(p, i)
            if p[i] == c',':
                i = skip_blank(p, i + 1)
        if not parts:
            return None
        parts.append((<const char *> p)[kept:n])
        decoded = decode(b"".join(parts))
        for field in range(len(self.keys)):
            if lengths[field]:
                text = text_of(starts[field], lengths[field], ascii[field])
                slot = <PyObject **> (<char *> <PyObject *> decoded + self.offsets[field])
                old = slot[0]
                Py_INCREF(text)
                slot[0] = <PyObject *> text
                Py_XDECREF(old)
        return decoded
