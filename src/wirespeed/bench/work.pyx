"""The requests of a load: the text of each, and the check of its answer."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

import logging
import os

import msgspec

from wirespeed._core._simd cimport WS_RESULT
from wirespeed._core.envelope cimport Message, span_of
from wirespeed._core.span cimport Span
from wirespeed.bench.arguments cimport Arguments
from wirespeed.bench.recorder cimport OK, TOOL_ERROR, WRONG, Outcome

logger = logging.getLogger("wirespeed.bench")

cdef enum:
    MAX_LEARNED = 16                   # then answers differ in more than their text
    MAX_PARTS = 8

# The member of the result of each list.
PAGES = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}

cdef object encode = msgspec.json.Encoder().encode


class _Text(msgspec.Struct):
    type: str
    text: str = ""


class _Echo(msgspec.Struct):
    content: list[_Text] = []
    isError: bool = False
    resultType: str = "complete"


class _Any(msgspec.Struct):
    isError: bool = False
    resultType: str = "complete"


cdef object decode_echo = msgspec.json.Decoder(_Echo).decode
cdef object decode_any = msgspec.json.Decoder(_Any).decode
cdef object decode_value = msgspec.json.Decoder().decode


cdef object page_decoder(str member):
    """Return the decoder of the result of a list: its nextCursor."""
    fields = [(member, list[msgspec.Raw]), ("nextCursor", str | None, None)]
    return msgspec.json.Decoder(msgspec.defstruct("_Page", fields)).decode


cdef dict page_decoders = {method: page_decoder(member) for method, member in PAGES.items()}


@cython.final
cdef class Work:
    """A request of a load, and the check of its answers.

    Args:
        tool: The name of the tool; None of other methods than tools/call.
        arguments: The arguments of the tool, or the params of another method; None for none. If a
            text is expected back, an answer is right if the first block of text is that text.
        check: Called with a result as decoded JSON; returns whether it is right. None: each result
            is right whose text is expected, or any. An answer to a list must be one in any case.
        method: The method.
        progress: Whether the request asks for progress notifications.
        cancel_after: Seconds after which the request is cancelled.
    """

    def __init__(
        self, str tool, Arguments arguments, check=None, *, str method not None="tools/call",
        bint progress=False, double cancel_after=INFINITY,
    ):
        self.tool = tool
        self.method = method
        self.is_call = tool is not None
        self.name = encode(tool if self.is_call else method)
        self.arguments = arguments
        self.check = check
        self.progress = progress
        self.cancel_after = cancel_after
        self.decode_page = page_decoders.get(method)

    cdef Outcome judge_c(self, Message m, Span expected) except *:
        cdef Span raw = span_of(m, WS_RESULT)
        try:
            if expected.p is not NULL:
                if self.form is not None and self.has_form_c(raw, expected):
                    return OK
                result = decode_echo(m.result)
                if result.isError:
                    return TOOL_ERROR
                if result.resultType != "complete":
                    return WRONG
                text = decode_value(b'"%b"' % (<const char *> expected.p)[:expected.n])
                for block in result.content:
                    if block.type == "text":
                        if block.text != text:
                            return WRONG
                        self.learn_c(raw, expected)
                        return OK
                return WRONG
            if self.decode_page is not None:
                self.cursor = self.decode_page(m.result).nextCursor
            result = decode_any(m.result)
            if result.isError:
                return TOOL_ERROR
            if result.resultType != "complete":
                return WRONG
            return OK if self.check is None or self.allows_c(m.result) else WRONG
        except msgspec.MsgspecError:
            return WRONG

    cdef bint allows_c(self, object result) except -1:
        """Whether the check, if there is one, takes the JSON text of a result."""
        if self.check is None:
            return True
        try:
            return bool(self.check(decode_value(result)))
        except msgspec.MsgspecError:
            return False
        except Exception:
            logger.exception("the check of an answer failed")
            return False

    cdef bint has_form_c(self, Span result, Span expected) noexcept:
        cdef const uint8_t *p = result.p
        cdef Py_ssize_t i, n = len(self.form)
        cdef object part
        cdef size_t size
        if result.n != <size_t> self.form_size + <size_t> (n - 1) * expected.n:
            return False
        for i in range(n):
            part = self.form[i]
            size = <size_t> PyBytes_GET_SIZE(part)
            if memcmp(p, PyBytes_AS_STRING(part), size) != 0:
                return False
            p += size
            if i < n - 1:
                if memcmp(p, expected.p, expected.n) != 0:
                    return False
                p += expected.n
        return True

    cdef int learn_c(self, Span result, Span expected) except -1:
        """Learn the form of a right answer, if each text in its place makes a right answer."""
        cdef bytes text = (<const char *> expected.p)[:expected.n]
        cdef bytes fresh = os.urandom(12).hex().encode()
        cdef Py_ssize_t i
        if not text or b"\\" in text or self.learned >= MAX_LEARNED:
            return 0
        self.learned += 1
        parts = (<const char *> result.p)[:result.n].split(text)
        if not 1 < len(parts) <= MAX_PARTS:
            return 0
        # each place is the whole value of a string: whatever stands there, the rest is the same
        for i in range(len(parts) - 1):
            behind = parts[i + 1]
            if not parts[i].endswith(b'"') or not behind.startswith(b'"'):
                return 0
            if behind[1:].lstrip(b" \t").startswith(b":"):
                return 0
        answer = decode_echo(fresh.join(parts))
        if answer.isError or answer.resultType != "complete":
            return 0
        for block in answer.content:
            if block.type == "text":
                if block.text.encode() == fresh:
                    self.form = parts
                    self.form_size = sum([len(part) for part in parts])
                return 0
        return 0
