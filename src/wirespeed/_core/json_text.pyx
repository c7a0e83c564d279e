"""JSON text of Python's strings and plain values, and strings of JSON text.

Envelopes are not read by this: it is for what the core itself says (methods, reasons, errors) and
shows (ids, methods with escapes).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.math cimport isfinite
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcpy

from wirespeed._core._simd cimport kernels

cdef enum:
    MAX_LEVELS = 1024          # of values inside each other


cdef bytes quoted(object text):
    cdef Py_ssize_t n = 0
    cdef const char *p = PyUnicode_AsUTF8AndSize(text, &n)
    cdef int ascii = 0
    cdef size_t written
    cdef bytes made
    cdef char *room
    cdef bint plain = kernels.json_plain(<const uint8_t *> p, n, &ascii) == <size_t> n
    made = PyBytes_FromStringAndSize(NULL, n + 2 if plain else 6 * n + 2)
    room = PyBytes_AS_STRING(made)
    room[0] = c'"'
    if plain:
        memcpy(room + 1, p, n)
        room[n + 1] = c'"'
        return made
    written = kernels.json_escape(<uint8_t *> room + 1, <const uint8_t *> p, n)
    room[written + 1] = c'"'
    return made[:written + 2]


cdef str unquoted(bytes text):
    cdef const char *p = text
    cdef Py_ssize_t n = len(text)
    cdef bytes room
    if memchr(p, c'\\', n) is NULL:
        return PyUnicode_DecodeUTF8(p + 1, n - 2, NULL)
    room = PyBytes_FromStringAndSize(NULL, n)
    n = unescape(<uint8_t *> PyBytes_AS_STRING(room), <const uint8_t *> p + 1, n - 2)
    return PyUnicode_DecodeUTF8(room, n, b"surrogatepass")


cdef uint32_t hex_at(const uint8_t *p) noexcept:
    cdef uint32_t value = 0
    cdef int i, digit
    for i in range(4):
        digit = p[i]
        value = value << 4 | <uint32_t> (digit - 48 if digit < 58 else (digit | 32) - 87)
    return value


cdef Py_ssize_t unescape(uint8_t *out, const uint8_t *p, Py_ssize_t n) noexcept:
    """Write the inside of a valid JSON string as UTF-8, which is not longer. A lone surrogate gets
    the three bytes that its number would have."""
    cdef Py_ssize_t i = 0, k = 0
    cdef uint32_t code, low
    while i < n:
        code = p[i]
        i += 1
        if code != b'\\':
            out[k] = <uint8_t> code
            k += 1
            continue
        code = p[i]
        i += 1
        if code == b'u':
            code = hex_at(p + i)
            i += 4
            if 0xD800 <= code < 0xDC00 and i + 6 <= n and p[i] == b'\\' and p[i + 1] == b'u':
                low = hex_at(p + i + 2)
                if 0xDC00 <= low < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    i += 6
        elif code == b'n':
            code = 10
        elif code == b't':
            code = 9
        elif code == b'r':
            code = 13
        elif code == b'b':
            code = 8
        elif code == b'f':
            code = 12
        if code < 0x80:
            out[k] = <uint8_t> code
            k += 1
            continue
        if code < 0x800:
            out[k] = <uint8_t> (0xC0 | code >> 6)
            k += 1
        else:
            if code < 0x10000:
                out[k] = <uint8_t> (0xE0 | code >> 12)
                k += 1
            else:
                out[k] = <uint8_t> (0xF0 | code >> 18)
                out[k + 1] = <uint8_t> (0x80 | (code >> 12 & 0x3F))
                k += 2
            out[k] = <uint8_t> (0x80 | (code >> 6 & 0x3F))
            k += 1
        out[k] = <uint8_t> (0x80 | (code & 0x3F))
        k += 1
    return k


cdef bytes json_text(object value):
    cdef list parts = []
    write(value, parts, MAX_LEVELS)
    return b"".join(parts)


cdef bytes quoted_always(object text):
    try:
        return quoted(text)
    except UnicodeEncodeError:
        return quoted(text.encode("utf-8", "backslashreplace").decode())


cdef int write(object value, list parts, int levels) except -1:
    if value is None:
        parts.append(b"null")
    elif value is True:
        parts.append(b"true")
    elif value is False:
        parts.append(b"false")
    elif isinstance(value, str):
        parts.append(quoted_always(value))
    elif isinstance(value, int):
        parts.append(b"%d" % value)
    elif isinstance(value, float):
        parts.append(float.__repr__(value).encode() if isfinite(value) else b"null")
    elif levels == 0:
        raise ValueError(f"values lie in each other more than {<int> MAX_LEVELS} levels deep")
    elif isinstance(value, (list, tuple)):
        write_array(value, parts, levels - 1)
    elif isinstance(value, dict):
        write_object(value, parts, levels - 1)
    else:
        raise TypeError(f"a value of type {type(value).__name__} has no JSON text")
    return 0


cdef int write_array(object values, list parts, int levels) except -1:
    cdef bytes before = b"["
    for value in values:
        parts.append(before)
        write(value, parts, levels)
        before = b","
    parts.append(b"]" if before == b"," else b"[]")
    return 0


cdef int write_object(object members, list parts, int levels) except -1:
    cdef bytes before = b"{"
    for name, value in members.items():
        if not isinstance(name, str):
            raise TypeError(f"a key of type {type(name).__name__} is no name of a JSON member")
        parts.append(before)
        parts.append(quoted_always(name))
        parts.append(b":")
        write(value, parts, levels)
        before = b","
    parts.append(b"}" if before == b"," else b"{}")
    return 0
