"""Names of the core for the compiled code of other projects. Everything is defined elsewhere.

    from wirespeed.core cimport Session, import_wirespeed
    import_wirespeed()

The files of `wirespeed._core` say what each member means and which may be written; a member without
such a comment is read only. Layouts of classes and orders of methods are an ABI: an extension is
compiled for one WIRESPEED_ABI. The ABI is provisional: it may change with every version before 1.0.

Lifetimes: an object may be called through a field (``self.session.next_c()``), even if the call
drops that field. This does not hold for the parts of a wire (its framer, writer and tables) when
they are used without the wire: hold those in a local variable during a call.
"""

from wirespeed._core._simd cimport (
    WIRESPEED_ABI,
    WS_ARGUMENTS,
    WS_DEPTH,
    WS_EMPTY,
    WS_ERROR,
    WS_ID,
    WS_ID_ABSENT,
    WS_ID_INTEGER,
    WS_ID_INVALID,
    WS_ID_NULL,
    WS_ID_STRING,
    WS_JSONRPC,
    WS_META,
    WS_META_CLIENT_CAPABILITIES,
    WS_META_CLIENT_INFO,
    WS_META_LOG_LEVEL,
    WS_META_PROGRESS_TOKEN,
    WS_META_PROTOCOL_VERSION,
    WS_META_SUBSCRIPTION_ID,
    WS_METHOD,
    WS_NAME,
    WS_OK,
    WS_PARAMS,
    WS_POI_COUNT,
    WS_PROGRESS_TOKEN,
    WS_REQUEST_ID,
    WS_RESULT,
    WS_ROOT_ARRAY,
    WS_ROOT_OBJECT,
    WS_ROOT_OTHER,
    WS_SYNTAX,
    WS_URI,
    WS_UTF8,
    kernels,
    ws_kernels,
    ws_scan,
    ws_span,
    ws_status,
)
from wirespeed._core.envelope cimport (
    BATCH,
    ERROR,
    FAULT_NONE,
    FAULT_NOTIFICATION,
    FAULT_PARSE,
    FAULT_REQUEST,
    FAULT_RESPONSE,
    INVALID,
    NOTIFICATION,
    REQUEST,
    RESULT,
    Fault,
    Kind,
    Message,
    is_modern,
    method_is,
    poi_is,
    span_of,
    valid_id,
)
from wirespeed._core.streams cimport FrameStream, MessageStream
from wirespeed._core.framing.base cimport (
    FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, FrameWriter, Framer, Inlet,
)
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.framing.websocket cimport WebSocketFramer
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.reply_route cimport MemoryReply, ReplyRoute
from wirespeed._core.outbox cimport (
    Mark,
    Outbox,
    Parts,
    Payload,
    json_line,
    locate_c,
    parts_of,
    payload_of,
)
from wirespeed._core.pending cimport Pending
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.session cimport Session
from wirespeed._core.slab cimport Lease, Slab
from wirespeed._core.span cimport Span, span_byte, span_equals
from wirespeed._core.wire cimport Wire


cdef inline int import_wirespeed() except -1:
    """Call this once, when the extension is loaded. ImportError: the extension was compiled for
    another ABI than that of the wirespeed that is installed."""
    from wirespeed.core import ABI

    if ABI != <int> WIRESPEED_ABI:
        raise ImportError(
            f"this extension was compiled for ABI {<int> WIRESPEED_ABI} of wirespeed, and the"
            f" installed wirespeed has ABI {ABI}: compile the extension again"
        )
    return 0
