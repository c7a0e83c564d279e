"""JSON text of Python's strings and plain values, and strings of JSON text.

Envelopes are not read by this: it is for what the core itself says (methods, reasons, errors) and
shows (ids, methods with escapes).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.math cimport isfinite
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcpy

from wirespeed._core._simd cimport kernels

cdef enum:
    MAX_LEVELS = 1024          # of values inside each other

cdef object scan_string = None     # of the module json, which most processes do not need


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
    global scan_string
    cdef const char *p = text
    cdef Py_ssize_t n = len(text)
    if memchr(p, c'\\', n) is NULL:
        return PyUnicode_DecodeUTF8(p + 1, n - 2, NULL)
    if scan_string is None:
        from json.decoder import scanstring as scan_string
    return scan_string(text.decode(), 1)[0]


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
        parts.append(int.__repr__(value).encode())
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
