"""The JSON check of LiteMCP: every message is one JSON object. Over streams it is an envelope, with
an integer id (LiteMCP, data-structure, IOBasic)."""

from libc.stdint cimport uint8_t, uint32_t

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
from wirespeed._core.streams cimport FrameStream
from wirespeed._core.outbox cimport locate_c, payload_of
from wirespeed._core.slab cimport Lease


class BadMessage(ValueError):
    """Bytes are not a message. The text is the reason."""


cdef str fault_of(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *scan):
    """Why bytes are not one JSON object; None: they are."""
    cdef ws_status status
    if n == 0:
        return "an empty message"
    status = kernels.json(p, n, max_depth, scan)
    if status == WS_DEPTH:
        return f"nested deeper than {max_depth} levels"
    if status == WS_UTF8:
        return f"not UTF-8 (byte {scan.error_at})"
    if status != WS_OK:
        return f"not one JSON value (byte {scan.error_at})"
    return None if scan.root == WS_ROOT_OBJECT else "not a JSON object"


def check_json(data not None, uint32_t max_depth, /):
    """Check the body of an HTTP message: one JSON value (RFC 8259) in UTF-8, an object, at most
    `max_depth` levels deep. BadMessage: a check failed."""
    cdef const uint8_t *p = NULL
    cdef size_t n = 0
    cdef ws_scan scan
    cdef str fault
    data = payload_of(data)
    locate_c(data, &p, &n)
    fault = fault_of(p, n, max_depth, &scan)
    if fault is not None:
        raise BadMessage(fault)


def id_of(FrameStream stream not None, Lease frame not None, uint32_t max_depth, /):
    """Return the JSON text of the id of the message in a frame.

    One pass checks the whole frame. It must be one JSON value (RFC 8259) in UTF-8: an object, at
    most `max_depth` levels deep, with one ``id``, an integer of any length. BadMessage: a check
    failed. A frame that is not JSON is reported to the framer, because a WebSocket connection
    closes after text that is not UTF-8.
    """
    cdef ws_scan scan
    cdef size_t n = <size_t> frame.n
    cdef str fault = fault_of(frame.p, n, max_depth, &scan)
    if fault is not None:
        if n:
            stream.framer.refuse_c(frame.p, n)
        raise BadMessage(fault)
    if scan.id_kind != WS_ID_INTEGER:
        if scan.id_kind == WS_ID_ABSENT:
            raise BadMessage("without an id")
        raise BadMessage("its id is not an integer")
    if scan.duplicates & (1 << WS_ID):
        raise BadMessage("it has two ids")
    return (<const char *> frame.p + scan.poi[WS_ID].off)[:scan.poi[WS_ID].len]
