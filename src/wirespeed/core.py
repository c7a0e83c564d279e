"""The sans-I/O engine, for authors of SDKs and proxies.

`Session` is one JSON-RPC peer over one byte stream: bytes in, events out; calls in, bytes out. It
does no I/O and knows no clock. The ``.pxd`` files of `wirespeed._core` ship with the package, so
that other Cython code can ``cimport`` it.
"""

from wirespeed._core._simd import level as simd_level
from wirespeed._core.envelope import POINTS, Message, parse
from wirespeed._core.session import Session
from wirespeed._core.slab import Lease
from wirespeed.limits import Limits

__all__ = ["POINTS", "Lease", "Limits", "Message", "Session", "parse", "simd_level"]
