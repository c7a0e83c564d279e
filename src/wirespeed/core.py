"""The sans-I/O engine, for authors of SDKs and proxies.

`Session` is one JSON-RPC peer over one byte stream: bytes in, events out; calls in, bytes out.
`MessageReader` is its first half: messages out of a byte stream, for whoever multiplexes them
himself. Neither does I/O or knows a clock. The ``.pxd`` files of `wirespeed._core` ship with the
package, so that other Cython code can ``cimport`` it.
"""

from wirespeed._core._simd import level as simd_level
from wirespeed._core.envelope import POINTS, Message, parse
from wirespeed._core.reader import MessageReader
from wirespeed._core.session import Session
from wirespeed._core.slab import Lease
from wirespeed.limits import Limits

__all__ = [
    "POINTS",
    "Lease",
    "Limits",
    "Message",
    "MessageReader",
    "Session",
    "parse",
    "simd_level",
]
