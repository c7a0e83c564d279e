"""The envelope check of LiteMCP: every message is one JSON object with an integer id (LiteMCP,
data-structure, IOBasic)."""

from libc.stdint cimport uint32_t

from wirespeed._core._simd cimport (
    WS_DEPTH,
    WS_ID,
    WS_ID_ABSENT,
    WS_ID_INTEGER,
    WS_OK,
    WS_ROOT_OBJECT,
    WS_UTF8,
    kernels,
    ws_scan,
    ws_status,
)
from wirespeed._core.frames cimport FrameStream
from wirespeed._core.slab cimport Lease


class BadMessage(ValueError):
    """A frame is not a message and cannot be answered. The text is the reason."""


def id_of(FrameStream stream not None, Lease frame not None, uint32_t max_depth, /):
    """Return the JSON text of the id of the message in a frame.

    One pass checks the whole frame. It must be one JSON value (RFC 8259) in UTF-8: an object, at
    most `max_depth` levels deep, with one ``id``, an integer of any length. BadMessage: a check
    failed. A frame that is not JSON is reported to the framer, because a WebSocket connection
    closes after text that is not UTF-8.
    """
    cdef ws_scan scan
    cdef ws_status status
    cdef size_t n = <size_t> frame.n
    if n == 0:
        raise BadMessage("an empty message")
    status = kernels.json(frame.p, n, max_depth, &scan)
    if status == WS_DEPTH:
        raise BadMessage(f"nested deeper than {max_depth} levels")
    if status != WS_OK:
        stream.framer.refuse_c(frame.p, n)
        if status == WS_UTF8:
            raise BadMessage(f"not UTF-8 (byte {scan.error_at})")
        raise BadMessage(f"not one JSON value (byte {scan.error_at})")
    if scan.root != WS_ROOT_OBJECT:
        raise BadMessage("not a JSON object")
    if scan.id_kind != WS_ID_INTEGER:
        if scan.id_kind == WS_ID_ABSENT:
            raise BadMessage("without an id")
        raise BadMessage("its id is not an integer")
    if scan.duplicates & (1 << WS_ID):
        raise BadMessage("it has two ids")
    return (<const char *> frame.p + scan.poi[WS_ID].off)[:scan.poi[WS_ID].len]
