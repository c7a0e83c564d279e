"""A registered tool: its arguments are decoded, its function is called, its result is written.

What depends on the tool's signature alone is computed once, when the tool is registered.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

import asyncio
import logging

import msgspec

from wirespeed._core._simd cimport WS_OK, kernels, ws_scan
from wirespeed._core.slab cimport Lease
from wirespeed.server.requests.call cimport TIMED_OUT, Call, Operation, Serving
from wirespeed.server.tools.encode cimport (
    answer_content_c, answer_text_c, content_result_c, object_line_c, text_result_c,
)

from wirespeed.errors import MissingCapability, ProtocolError, ToolError
from wirespeed.protocol import codes
from wirespeed.schema.json_schema import describe_validation_error
from wirespeed.server.requests import launchers
from wirespeed.server.requests.reply import (
    Whole, describe, masks_errors, merged_meta, report, report_end,
)
from wirespeed.server.tools.results import RawResult, ResultKind, error_content
from wirespeed.transport.loop import is_coroutine_function

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void *PyUnicode_DATA(object text)

cdef enum:
    LONG = 2048               # bytes from which on a text is worth it


cdef inline size_t skip_blank(const uint8_t *p, size_t i) noexcept:
    while p[i] == 0x20 or p[i] == 0x0A or p[i] == 0x0D or p[i] == 0x09:
        i += 1
    return i


cdef object text_of(const uint8_t *p, size_t n, bint ascii):
    cdef object text
    if not ascii:
        return PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, NULL)
    text = PyUnicode_New(<Py_ssize_t> n, 127)
    memcpy(PyUnicode_DATA(text), p, n)
    return text


@cython.final
cdef class LongTexts:
    """The fields of a struct that are plain strings, decoded at the speed of memory where they are
    long.

    msgspec looks at a string byte by byte. What was scanned already is known to be valid JSON and
    UTF-8: a long text without escapes is copied as it lies, and msgspec decodes the rest, with an
    empty string in its place. Anything unusual is left to msgspec as a whole.

    Args:
        attributes: The attribute of each: JSON name -> attribute.
    """

    def __cinit__(self, attributes):
        cdef list found = list(attributes.items())[:MAX_TEXTS]
        self.keys = [name.encode() for name, _ in found]
        self.attributes = [attribute for _, attribute in found]

    cdef int find_c(self, const uint8_t *key, size_t n) noexcept:
        cdef int i
        cdef bytes name
        for i in range(len(self.keys)):
            name = <bytes> self.keys[i]
            if (
                <size_t> PyBytes_GET_SIZE(name) == n
                and memcmp(PyBytes_AS_STRING(name), key, n) == 0
            ):
                return i
        return -1

    def decode(self, decode, bytes data not None, /):
        """Return what `decode` makes of data, the valid JSON text of an object; None when there is
        no long text in it, or something unusual."""
        return self.decode_c(
            decode, <const uint8_t *> PyBytes_AS_STRING(data), <size_t> PyBytes_GET_SIZE(data)
        )

    cdef object decode_c(self, object decode, const uint8_t *p, size_t n):
        # The text is valid JSON: brackets, quotes and colons stand where they must.
        cdef const uint8_t *starts[MAX_TEXTS]
        cdef size_t lengths[MAX_TEXTS]
        cdef int ascii[MAX_TEXTS]
        cdef bint seen[MAX_TEXTS]
        cdef int plain_ascii = 0
        cdef list parts = []
        cdef size_t i, at, length, kept = 0
        cdef int field
        cdef ws_scan scan
        cdef object decoded
        for field in range(len(self.keys)):
            lengths[field] = 0
            seen[field] = False
        i = skip_blank(p, 1)
        while p[i] == c'"':
            at = i + 1
            length = kernels.json_plain(p + at, n - at, &plain_ascii)
            if p[at + length] != c'"':
                return None           # an escape in a name
            field = self.find_c(p + at, length)
            i = skip_blank(p, skip_blank(p, at + length + 1) + 1)
            if field >= 0:
                if seen[field]:
                    return None       # twice: msgspec knows which counts
                seen[field] = True
            if p[i] == c'"':
                at = i + 1
                length = kernels.json_plain(p + at, n - at, &plain_ascii)
                if p[at + length] != c'"':
                    return None       # a text with escapes
                if field >= 0 and length >= LONG:
                    starts[field] = p + at
                    lengths[field] = length
                    ascii[field] = plain_ascii
                    parts.append((<const char *> p)[kept:at])
                    kept = at + length
                i = at + length + 1
            elif kernels.json_prefix(p + i, n - i, 1024, &scan) == WS_OK:
                i += scan.end
            else:
                return None           # deeper than we look
            i = skip_blank(p, i)
            if p[i] == c',':
                i = skip_blank(p, i + 1)
        if not parts:
            return None
        parts.append((<const char *> p)[kept:n])
        decoded = decode(b"".join(parts))
        for field in range(len(self.keys)):
            if lengths[field]:
                setattr(
                    decoded, self.attributes[field],
                    text_of(starts[field], lengths[field], ascii[field]),
                )
        return decoded


logger = logging.getLogger("wirespeed.server")

cdef object ValidationError = msgspec.ValidationError
cdef object CancelledError = asyncio.CancelledError
cdef object astuple = msgspec.structs.astuple


cdef extern from "Python.h":
    object PyObject_Vectorcall(object f, PyObject **args, size_t nargsf, PyObject *kwnames)
    PyObject *PyTuple_GET_ITEM(tuple values, Py_ssize_t i) noexcept
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET


@cython.final
cdef class Tool(Operation):
    """A tool of a server. `wirespeed.Server` makes them.

    Args:
        entry: What tools/list shows of it.
        spec: The `ToolSpec` of its function; None for a raw tool.
        function: What to call.
        inline: Whether a plain function runs on the loop's thread, where it blocks all other work.
        timeout: Seconds after which a call is given up; None for no limit.
        wants_context: Of a raw tool: it takes the context as its second argument.
        encode: Of a raw tool: how its results are encoded.
        launch: Of a raw tool: how a plain function becomes a coroutine.
    """

    def __init__(self, entry, spec, function, *, bint inline, timeout, bint wants_context=False,
                 encode=None, launch=None):
        self.name = entry.name
        self.kind = "tool"
        self.name_json = msgspec.json.encode(entry.name)
        self.entry = entry
        self.spec = spec
        self.function = function
        self.timeout = timeout
        self.launch = None
        self.how = COROUTINE
        if spec is None:
            self.raw = True
            self.wants_context = wants_context
            self.encode = encode
            if not is_coroutine_function(function):
                self.how = INLINE if inline else LAUNCHED
                self.launch = launch
            return
        self.header_params = spec.header_params
        self.decode = spec.decoder.decode
        self.kwnames = spec.kwnames or None
        self.context_index = spec.context_index
        self.wants_context = spec.context_index >= 0
        self.encode = spec.result.encode
        texts = {
            field.encode_name: field.name
            for field in msgspec.structs.fields(spec.struct)
            if field.type in (str, str | None)
        }
        self.texts = LongTexts(texts) if texts else None
        self.plain_text = spec.result.kind == ResultKind.TEXT
        if spec.is_async:
            pass
        elif inline:
            self.how = INLINE
        else:
            self.how, self.launch = LAUNCHED, launchers.launcher_of(spec)

    def __repr__(self):
        return f"<Tool {self.name!r}>"

    def shown_as(self, entry):
        """The same tool under another entry, whose name is its own."""
        cdef Tool other = Tool.__new__(Tool)
        other.name = entry.name
        other.name_json = msgspec.json.encode(entry.name)
        other.entry = entry
        other.kind = self.kind
        other.owner = self.owner
        other.timeout = self.timeout
        other.wants_context = self.wants_context
        other.spec = self.spec
        other.raw = self.raw
        other.tasks = self.tasks
        other.scopes = self.scopes
        other.header_params = self.header_params
        other.how = self.how
        other.plain_text = self.plain_text
        other.function = self.function
        other.decode = self.decode
        other.texts = self.texts
        other.kwnames = self.kwnames
        other.context_index = self.context_index
        other.launch = self.launch
        other.encode = self.encode
        return other

    cdef object decode_c(self, Lease arguments):
        """The decoded arguments; for a raw tool the lease itself. Raises what msgspec raises for
        arguments that do not fit. `arguments` is None where the call had none."""
        if self.raw:
            return b"{}" if arguments is None else arguments
        try:
            if self.texts is not None and arguments is not None and arguments.n >= LONG_ARGUMENTS:
                decoded = self.texts.decode_c(self.decode, arguments.p, <size_t> arguments.n)
                if decoded is not None:
                    return decoded
            return self.decode(b"{}" if arguments is None else arguments)
        except ValidationError as exc:
            return self.spec.decode_again(b"{}" if arguments is None else arguments, exc)

    cdef object invoke_c(self, object decoded, object context):
        """Call with decoded arguments: the value, or a coroutine to run."""
        cdef PyObject *places[MAX_STACK + 1]
        cdef PyObject **stack = &places[1]     # a bound method puts its object before them
        cdef tuple given
        cdef list values
        cdef Py_ssize_t n = 0, i
        if self.raw:
            values = [decoded, context] if self.wants_context else [decoded]
            if self.how == LAUNCHED:
                return self.launch(self.function, values, None)
            return self.function(*values)
        given = astuple(decoded)       # in the order of the parameters
        if self.how == LAUNCHED or len(given) >= MAX_STACK:
            values = list(given)
            if self.context_index >= 0:
                values.insert(self.context_index, context)
            if self.how == LAUNCHED:
                return self.launch(self.function, values, self.kwnames)
            return launchers.call(self.function, values, self.kwnames)
        # the fast path: no list, no dict
        for i in range(len(given)):
            if i == self.context_index:
                stack[n] = <PyObject *> context
                n += 1
            stack[n] = PyTuple_GET_ITEM(given, i)   # borrowed
            n += 1
        if self.context_index == len(given):
            stack[n] = <PyObject *> context
            n += 1
        return PyObject_Vectorcall(
            self.function, stack,
            <size_t> (n - (0 if self.kwnames is None else len(self.kwnames)))
            | PY_VECTORCALL_ARGUMENTS_OFFSET,
            NULL if self.kwnames is None else <PyObject *> self.kwnames,
        )

    # -- results -------------------------------------------------------------------------------

    cdef int respond_c(self, Call call, object value) except -1:
        cdef object encoded
        if self.plain_text and type(value) is str:
            return self.send_text_c(call, <str> value)
        if type(value) is RawResult:
            return self.send_raw_c(call, value.data)
        try:
            encoded = self.encode(value, call.revision.version)
        except Exception as failure:
            return self.fail_c(call, failure)
        return self.send_content_c(call, encoded[0], encoded[1], encoded[2], encoded[3])

    cdef int fail_c(self, Call call, object exc) except -1:
        """A tool's failure is a result with ``isError``, so that the model sees it; the
        traceback is for the log only."""
        cdef str text
        if isinstance(exc, ProtocolError) and (
            call.modern or not isinstance(exc, MissingCapability)
        ):
            return call.refuse_c(exc)
        if call.reason == TIMED_OUT:
            text = f"Tool {self.name} timed out after {self.timeout:g} s"
            logger.warning("%s", text)
        elif isinstance(exc, CancelledError):
            text = f"Tool {self.name} was cancelled"
        elif isinstance(exc, (KeyboardInterrupt, SystemExit)):
            text = f"Tool {self.name} ended the server"
            report_end(self.name, exc)
        elif isinstance(exc, (MissingCapability, ToolError)):
            text = describe(exc)
            logger.info("tool %s: %s", self.name, text)
        else:
            text = report(f"tool {self.name}", exc, mask=masks_errors(call))
        return self.send_content_c(call, error_content(text), None, True, None)

    cdef int refuse_arguments_c(self, Call call, object exc, bint as_error) except -1:
        """Arguments that break the tool's schema (SEP-1303: a result, since 2025-11-25).
        `as_error`: the client asked for a task, so it does not expect a result."""
        cdef str reason = describe_validation_error(exc, schema=self.spec.input_schema)
        cdef str text = f"Invalid arguments for tool {self.name}: {reason}"
        if call.revision.argument_errors_in_results and not as_error:
            self.send_content_c(call, error_content(text), None, True, None)
        else:
            call.error_c(codes.INVALID_PARAMS, text, None)
        call.end_c(None)
        call.connection.wrote()
        return 0

    cdef int send_text_c(self, Call call, str text) except -1:
        """The most common result: one text block and nothing else."""
        cdef Py_ssize_t n = 0
        cdef const char *utf8
        cdef object encoded
        cdef Serving connection = call.connection
        try:
            utf8 = PyUnicode_AsUTF8AndSize(text, &n)
        except UnicodeEncodeError as exc:
            return self.fail_c(call, ValueError(f"the result is not valid text: {exc.reason}"))
        if call.sink is not None:
            if n <= 1024:
                call.sink.result(text_result_c(
                    <const uint8_t *> utf8, <size_t> n,
                    connection.modern_end if call.modern else b"}",
                ))
                return 0
            encoded = self.encode(text, call.revision.version)
            return self.send_content_c(call, encoded[0], encoded[1], encoded[2], encoded[3])
        return answer_text_c(
            connection.session, call.ref, text, <const uint8_t *> utf8, <size_t> n,
            connection.modern_end if call.modern else b"}",
        )

    cdef int send_raw_c(self, Call call, object data) except -1:
        """A result that the tool has encoded. It is checked: what is sent must be valid."""
        cdef bytes text
        try:
            text = object_line_c(data)
        except Exception as exc:
            return self.fail_c(call, exc)
        if (call.began != 0 or call.sink is not None) and b'"isError"' in text:
            call.failed = msgspec.json.decode(text).get("isError") is True
        return call.reply_c(Whole(text))

    cdef int send_content_c(
        self, Call call, bytes content, bytes structured, bint is_error, bytes meta
    ) except -1:
        """A result of encoded parts."""
        cdef Serving connection = call.connection
        cdef bytes tail = connection.modern_end if call.modern else b"}"
        call.failed = is_error
        if meta is not None:
            if call.modern:
                tail = b',"resultType":"complete","_meta":%b}' % merged_meta(tail, meta)
            else:
                tail = b',"_meta":%b}' % meta
        if call.sink is not None:
            call.sink.result(content_result_c(content, structured, is_error, tail))
            return 0
        return answer_content_c(
            connection.session, call.ref, content, structured, is_error, tail
        )
