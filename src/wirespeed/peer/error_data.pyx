"""The data of error answers, which the core writes as msgspec encodes it: each end of a connection
needs this."""

import msgspec

from wirespeed._core._simd cimport WIRESPEED_ABI
from wirespeed._core.json_text cimport json_text

from wirespeed._core import _simd, responder

cdef object encode = msgspec.json.Encoder().encode
cdef object to_builtins = msgspec.to_builtins

if _simd.ABI != <int> WIRESPEED_ABI:
    raise ImportError(
        "wirespeed and wirespeed-core are of different versions: install the same version of both"
    )


def encode_data(data):
    """Return the JSON text of an error's data, which is what msgspec encodes. Lone surrogates,
    which a peer's text may hold, are written as escapes."""
    try:
        return encode(data)
    except UnicodeEncodeError:
        return json_text(to_builtins(data))


responder.encode_data_by(encode_data)
