"""JSON texts of messages as Python objects, and back, as the official SDK reads and writes them.

msgspec and orjson do it. What they refuse, pydantic's own functions may take, which the SDK uses.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory

import msgspec

try:
    import orjson
except ImportError:
    orjson = None                      # pydantic writes everything, more slowly

from wirespeed._core.span cimport Span

cdef enum:
    MAX_METHODS = 256

cdef dict known_methods = {}           # method -> its JSON text
cdef object decode = msgspec.json.Decoder().decode
cdef object encode = msgspec.json.Encoder().encode
cdef object dumps = None if orjson is None else orjson.dumps
# What pydantic writes in another way than orjson is left to pydantic.
cdef int PASSED = 0 if orjson is None else (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
cdef object decode_any = None
cdef object encode_any = None


def use_json(from_json, to_json):
    """Set what decodes and encodes the rest: pydantic's functions of these names."""
    global decode_any, encode_any
    decode_any, encode_any = from_json, to_json


cdef object loads_c(Span s):
    try:
        return decode(PyMemoryView_FromMemory(<char *> s.p, <Py_ssize_t> s.n, PyBUF_READ))
    except Exception:
        return decode_any(PyBytes_FromStringAndSize(<const char *> s.p, <Py_ssize_t> s.n))


cdef object loads_bytes_c(bytes text):
    return decode(text)


cdef bytes dumps_c(object value):
    if dumps is not None:
        try:
            return dumps(value, None, PASSED)
        except TypeError:
            pass
    return encode_any(value, by_alias=True, inf_nan_mode="null")


cdef bytes method_json_c(str method):
    cdef bytes text = known_methods.get(method)
    if text is None:
        text = encode(method)
        if len(known_methods) < MAX_METHODS:
            known_methods[method] = text
    return text
