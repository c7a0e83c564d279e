"""JSON texts of messages as Python objects, and back, as the official SDK reads and writes them.

msgspec and orjson do it. What they refuse, pydantic's own functions may take, which the SDK uses.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.math cimport isfinite

import msgspec

try:
    import orjson
except ImportError:
    orjson = None                      # pydantic writes everything, more slowly

from wirespeed._core.span cimport Span

cdef enum:
    MAX_METHODS = 256
    MAX_DEPTH = 64             # of values that `plain_copy` copies

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


# -- results ---------------------------------------------------------------------------------------


def text_blocks(list content not None, kind):
    """The wire form of content blocks that are all texts without annotations, of this type. None:
    one of them is something else."""
    cdef list blocks = []
    cdef dict fields
    cdef object text
    for block in content:
        if type(block) is not kind:
            return None
        fields = block.__dict__
        text = fields.get("text")
        if (
            type(text) is not str or fields.get("type") != "text"
            or fields.get("annotations") is not None or fields.get("meta") is not None
        ):
            return None
        blocks.append({"text": text, "type": "text"})
    return blocks


def plain_copy(value):
    """A copy of a value that JSON has as it is: pydantic makes the same of it. TypeError: it is
    another one, or too deep."""
    return plain_copy_c(value, MAX_DEPTH)


cdef object plain_copy_c(object value, int depth):
    cdef object kind = type(value)
    cdef dict members
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is float and isfinite(value):
        return value
    if depth > 0 and kind is list:
        return [plain_copy_c(item, depth - 1) for item in <list> value]
    if depth > 0 and kind is dict:
        members = {}
        for key, item in (<dict> value).items():
            if type(key) is not str:
                raise TypeError(f"a key is {type(key).__name__}")
            members[key] = plain_copy_c(item, depth - 1)
        return members
    raise TypeError(f"a value is {kind.__name__}")
