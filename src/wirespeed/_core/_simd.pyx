"""Choice of the C kernels, and Python functions by which tests and tools call them.

``WIRESPEED_SIMD`` (``scalar``, ``sse2``, ``avx2``, ``avx512``, ``neon``) caps the level for the
whole process; it is read when this module is imported. An unknown name does not cap.
"""

import os
from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport SIZE_MAX, UINT32_MAX
from libc.stdlib cimport free, malloc

ABI = <int> WIRESPEED_ABI      # that this wirespeed was compiled with
cdef uint32_t MAX_DEPTH = 1024

_LEVELS = ("scalar", "sse2", "avx2", "avx512", "neon")
_STATUS = ("ok", "empty", "syntax", "utf8", "depth")
_ROOT = ("other", "object", "array")
_ID_KIND = ("absent", "integer", "string", "null", "invalid")
# The points of interest by their paths, in the order of the constants WS_...
POINTS = tuple([ws_point_paths[i].decode() for i in range(<int> WS_POI_COUNT)])


class Scan(NamedTuple):
    """The result of one scan of a JSON text; offsets count bytes from the start of the text.

    Attributes:
        status: ``ok``, ``empty``, ``syntax``, ``utf8`` or ``depth``.
        value: Offset and length of the value without surrounding whitespace.
        end: Offset of the first byte behind the value.
        root: ``object``, ``array`` or ``other``.
        id_kind: ``absent``, ``integer``, ``string``, ``null`` or ``invalid``.
        duplicates: Points of interest that occur twice in their object.
        error_at: Offset of the fault; 0 when there is none.
        poi: Points of interest that are there: path to offset and length.
    """

    status: str
    value: tuple[int, int]
    end: int
    root: str
    id_kind: str
    duplicates: tuple[str, ...]
    error_at: int
    poi: dict[str, tuple[int, int]]


cdef const ws_kernels *capped(str cap) except NULL:
    cdef bytes name
    if cap is None:
        return ws_kernels_for(NULL)
    name = cap.lower().encode("utf-8", "surrogateescape")
    return ws_kernels_for(name)


kernels = capped(os.environ.get("WIRESPEED_SIMD"))


cdef const ws_kernels *table(object level) except NULL:
    """The table of exactly this level; None: the one in use."""
    cdef bytes name
    cdef const ws_kernels *found
    if level is None:
        return kernels
    name = level.encode()
    found = ws_kernels_for(name)
    if found.name != name:
        raise ValueError(f"no kernels of level {level!r} on this machine; there are {levels()}")
    return found


cdef class _View:
    """A bytes-like object, held while a kernel reads it."""

    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef size_t n

    def __cinit__(self, object data):
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        self.p = <const uint8_t *> self.buffer.buf
        self.n = <size_t> self.buffer.len

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


def level():
    """Name of the level in use: ``scalar``, ``sse2``, ``avx2``, ``avx512`` or ``neon``."""
    return kernels.name.decode()


def levels():
    """Names of the levels that this machine runs, slowest first; a cap does not shorten it."""
    cdef bytes name
    found = []
    for level in _LEVELS:
        name = level.encode()
        if ws_kernels_for(name).name == name:
            found.append(level)
    return found


def find_newline(data, *, level=None):
    """Offset of the first newline in ``data``, or its length."""
    cdef _View view = _View(data)
    return table(level).find_newline(view.p, view.n)


def utf8_valid(data, *, level=None):
    """Whether ``data`` is well-formed UTF-8 (RFC 3629)."""
    cdef _View view = _View(data)
    return table(level).utf8_valid(view.p, view.n) != 0


def json_escape(data, *, level=None):
    """``data``, which must be UTF-8, as the inside of a JSON string, without the quotes."""
    cdef _View view = _View(data)
    cdef const ws_kernels *use = table(level)
    cdef uint8_t *room
    cdef size_t written
    if view.n > SIZE_MAX // 8:
        raise MemoryError
    room = <uint8_t *> malloc(6 * view.n + 1)
    if room == NULL:
        raise MemoryError
    try:
        written = use.json_escape(room, view.p, view.n)
        return PyBytes_FromStringAndSize(<char *> room, <Py_ssize_t> written)
    finally:
        free(room)


def json_plain(data, *, level=None):
    """(how many bytes of ``data`` stand inside a JSON string as they are, whether these are all
    ASCII)."""
    cdef _View view = _View(data)
    cdef int ascii = 0
    cdef size_t n = table(level).json_plain(view.p, view.n, &ascii)
    return n, ascii != 0


def mask(data, key, at=0, *, to=None, level=None):
    """XOR ``data`` with the 4 bytes of ``key``, beginning with its byte ``at`` (0 to 3).

    Writes to the start of ``to``, which may overlap ``data`` where it does not begin behind its
    first byte; in place without it. ValueError for a key of other than 4 bytes, an ``at`` out of
    range, and a ``to`` that is too short or lies wrong.
    """
    cdef _View view = _View(data)
    cdef _View word = _View(key)
    cdef const ws_kernels *use = table(level)
    cdef Py_buffer target
    cdef uint8_t *dst
    if word.n != 4:
        raise ValueError("a key is 4 bytes")
    if not 0 <= at <= 3:
        raise ValueError("at is 0 to 3")
    PyObject_GetBuffer(data if to is None else to, &target, PyBUF_WRITABLE)
    try:
        dst = <uint8_t *> target.buf
        if <size_t> target.len < view.n:
            raise ValueError("there is no room for the masked bytes")
        if view.p < dst < view.p + view.n:
            raise ValueError("the masked bytes would overwrite others before these are read")
        use.mask(dst, view.p, view.n, word.p, at)
    finally:
        PyBuffer_Release(&target)


def scan(data, *, max_depth=128, prefix=False, level=None):
    """Validate the JSON text ``data`` (RFC 8259) and note the points of interest.

    ``max_depth`` (1 to 1024): how many arrays and objects may be open at once. ``prefix``: read
    one value and look at nothing behind it. Raises ValueError for a ``max_depth`` out of range, a
    text above 4 GiB and a level that this machine lacks; a faulty text has a status instead.
    """
    cdef _View view = _View(data)
    cdef const ws_kernels *use = table(level)
    cdef ws_scan out
    cdef ws_status status
    cdef uint32_t depth
    if not 1 <= max_depth <= MAX_DEPTH:
        raise ValueError(f"max_depth is {max_depth}, not 1 to {MAX_DEPTH}")
    if view.n > UINT32_MAX:
        raise ValueError("the text is longer than 4 GiB")
    depth = max_depth
    if prefix:
        status = use.json_prefix(view.p, view.n, depth, &out)
    else:
        status = use.json(view.p, view.n, depth, &out)
    return result(status, &out)


cdef object result(ws_status status, const ws_scan *out):
    # Behind a fault only error_at has a meaning, save that a depth fault keeps what came before.
    name = _STATUS[<int> status]
    if status != WS_OK and status != WS_DEPTH:
        return Scan(name, (0, 0), 0, "other", "absent", (), out.error_at, {})
    return Scan(
        name,
        (out.value.off, out.value.len),
        out.end,
        _ROOT[out.root],
        _ID_KIND[out.id_kind],
        tuple([POINTS[i] for i in range(<int> WS_POI_COUNT) if out.duplicates >> i & 1]),
        out.error_at,
        {
            POINTS[i]: (out.poi[i].off, out.poi[i].len)
            for i in range(<int> WS_POI_COUNT)
            if out.poi[i].len
        },
    )
