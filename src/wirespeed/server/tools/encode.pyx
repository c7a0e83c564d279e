"""Results of tools/call, written straight into the outgoing bytes.

``tail`` is how each ends behind its content, with the closing brace: what a modern result must have
(2026-07-28 basic, "Responses"), or the brace alone.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from wirespeed._core._simd cimport WS_OK, WS_ROOT_OBJECT, kernels, ws_scan
from wirespeed._core.inflight cimport InFlightSlot
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session

cdef enum:
    ESCAPE_IN_PLACE = 1024     # bytes; of longer texts the runs without escapes are found first
    WORTH_REFERENCE = 16384    # bytes in one run without escapes
    ESCAPE_STEP = 4096
    MAX_DEPTH = 1024           # of results that tools and middleware encode
    TEXT_HEAD_LEN = 44

cdef const char *TEXT_HEAD = b'"result":{"content":[{"type":"text","text":"'
cdef object dumps = None       # of orjson; False where it is not installed
cdef object options = None     # leave to msgspec the types that orjson writes in another way


cdef int answer_text_c(
    Session session, uint64_t ref, str text, const uint8_t *utf8, size_t n, bytes tail
) except -1:
    """The commonest result: one text, whose n bytes of UTF-8 lie at `utf8`, escaped in place."""
    cdef InFlightSlot *slot = session.inflight.slot_c(ref)
    cdef size_t n_tail = <size_t> PyBytes_GET_SIZE(tail), used
    cdef bint in_place = n <= ESCAPE_IN_PLACE
    cdef Outbox out
    cdef uint8_t *p
    if slot is NULL:
        return 0
    out = session.begin_reply_c(
        slot, TEXT_HEAD, TEXT_HEAD_LEN, 6 * n + 3 + n_tail if in_place else 0
    )
    if in_place:
        p = out.block.base + out.block.used
        used = kernels.json_escape(p, utf8, n)
        memcpy(p + used, b'"}]', 3)
        memcpy(p + used + 3, PyBytes_AS_STRING(tail), n_tail)
        out.commit_c(used + 3 + n_tail)
    else:
        long_text_c(out, text, utf8, n)
        out.write_c(b'"}]', 3)
        out.text_c(tail)
    return session.end_reply_c(slot)


cdef int long_text_c(Outbox out, str text, const uint8_t *utf8, size_t n) except -1:
    """A long text is sent from where it lies where it needs no escapes for long. Room for escapes
    is reserved only where there are some."""
    cdef size_t done = 0, plain
    cdef int ascii = 0
    while done < n:
        plain = kernels.json_plain(utf8 + done, n - done, &ascii)
        if plain >= WORTH_REFERENCE:
            out.write_part_c(text, utf8 + done, plain)
        elif plain >= ESCAPE_STEP or plain == n - done:
            out.write_c(utf8 + done, plain)
        else:
            # escapes are near: what holds the next of them is written in one go
            plain = min(n - done, <size_t> ESCAPE_STEP)
            while done + plain < n and utf8[done + plain] & 0xC0 == 0x80:
                plain += 1     # not within a character
            out.commit_c(kernels.json_escape(out.reserve_c(6 * plain), utf8 + done, plain))
        done += plain
    return 0


cdef int answer_content_c(
    Session session, uint64_t ref, bytes content, bytes structured, bint is_error, bytes tail
) except -1:
    """A result of encoded parts."""
    cdef Outbox out = session.open_reply_c(ref)
    if out is None:
        return 0
    out.text_c(b'"result":{"content":')
    out.write_object_c(content)
    if structured is not None:
        out.text_c(b',"structuredContent":')
        out.write_object_c(structured)
    if is_error:
        out.text_c(b',"isError":true')
    out.write_object_c(tail)
    return session.close_reply_c(ref)


cdef bytes text_result_c(const uint8_t *utf8, size_t n, bytes tail):
    """A short text as `answer_text_c` has it, as one text."""
    cdef size_t n_tail = <size_t> len(tail), used
    cdef uint8_t *p = <uint8_t *> PyMem_Malloc(44 + 6 * n + n_tail)
    if p is NULL:
        raise MemoryError
    memcpy(p, b'{"content":[{"type":"text","text":"', 35)
    used = 35 + kernels.json_escape(p + 35, utf8, n)
    memcpy(p + used, b'"}]', 3)
    memcpy(p + used + 3, <const char *> tail, n_tail)
    try:
        return (<const char *> p)[:used + 3 + n_tail]
    finally:
        PyMem_Free(p)


cdef bytes content_result_c(bytes content, bytes structured, bint is_error, bytes tail):
    """The same as one text, for a sink."""
    return b'{"content":%b%b%b%b' % (
        content,
        b"" if structured is None else b',"structuredContent":' + structured,
        b',"isError":true' if is_error else b"",
        tail,
    )


cdef bytes object_line_c(object data):
    """The JSON text of an object on one line. ValueError: the data is something else."""
    cdef bytes text = bytes(data).strip()
    cdef ws_scan scan
    if (
        kernels.json(<const uint8_t *> <const char *> text, len(text), MAX_DEPTH, &scan) != WS_OK
        or scan.root != WS_ROOT_OBJECT
    ):
        raise ValueError("a result must be the JSON text of an object")
    return one_line_c(text)


cdef bytes one_line_c(bytes text):
    # raw newlines are between tokens only
    return text.replace(b"\n", b" ") if b"\n" in text else text


def text_content(bytes data not None):
    """The ``content`` of a result that is one text: this JSON text, or the string that it is."""
    cdef size_t n = <size_t> len(data), used
    cdef const uint8_t *text = <const uint8_t *> <const char *> data
    cdef uint8_t *p
    if n and text[0] == b'"':
        return b'[{"type":"text","text":' + data + b"}]"
    p = <uint8_t *> PyMem_Malloc(24 + 6 * n + 3)
    if p is NULL:
        raise MemoryError
    memcpy(p, b'[{"type":"text","text":"', 24)
    used = 24 + kernels.json_escape(p + 24, text, n)
    memcpy(p + used, b'"}]', 3)
    try:
        return (<const char *> p)[:used + 3]
    finally:
        PyMem_Free(p)


cdef int load_orjson() except -1:
    """Called by the first result that needs it, for few servers do."""
    global dumps, options
    try:
        import orjson
    except ImportError:
        dumps = False
        return 0
    dumps = orjson.dumps
    options = (
        orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
        | orjson.OPT_PASSTHROUGH_SUBCLASS
    )
    return 0


def fast_json(object value):
    """A dictionary or list as JSON on one line, by orjson.

    None: msgspec has to write it. It has an integer beyond 64 bits, a key that is not a string, or
    a value of another type than JSON's; or orjson is not installed. Fragments (`orjson.Fragment`)
    are written as they are. ValueError: a fragment has several lines and is not JSON.
    """
    cdef bytes text
    cdef ws_scan scan
    if dumps is None:
        load_orjson()
    if dumps is False:
        return None
    try:
        text = dumps(value, None, options)
    except TypeError:
        return None
    if b"\n" not in text:              # orjson itself writes none
        return text
    if kernels.json(<const uint8_t *> <const char *> text, len(text), MAX_DEPTH, &scan) != WS_OK:
        raise ValueError("a fragment is not JSON")
    return one_line_c(text)
