"""The arguments of the calls of a load: JSON in which some strings stand for values that differ.

==================  =============================================================
``"$n"``            the number of the call, from 0
``"$text:64"``      a text of 64 random letters
``"$choice:a|b"``   one of the strings, at random
``"$file:PATH"``    the text of a file, which is read once
``"$$…"``           the string ``"$…"`` itself
==================  =============================================================
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import json
import os

import msgspec

from wirespeed._core.span cimport Span
from wirespeed.contents import contents_of

cdef enum:
    NUMBER
    NUMBER_TEXT                        # the same as a string
    TEXT
    CHOICE

SEED = 0x9E3779B97F4A7C15              # small seeds differ in few bits

cdef enum:
    FRESH = 10                         # random letters of a text; the others are from the pool
    POOL = 65536

# 64 characters that JSON does not escape: six bits of a random number each.
cdef bytes LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

cdef object encode = msgspec.json.Encoder().encode

MAX_TEXT = 64 * 1024 * 1024
MAX_CHOICES = 10_000


@cython.final
cdef class _Slot:
    cdef int kind
    cdef Py_ssize_t size               # of a text, without its quotes
    cdef list choices                  # JSON texts
    # of the value that is being written
    cdef bytes value                   # JSON text; None of a text


@cython.final
cdef class Arguments:
    """A template of arguments.

    Args:
        value: The arguments, as decoded JSON: an object or an array.
        expect: The name of a member of the object, or the index of one of the array, whose text is
            expected back; None for none.
        seed: Of the random values; None for another one in each run.
        strings: Whether numbers of calls are strings, as all arguments of LiteMCP.

    ValueError: a placeholder is not one, or there is no such member. OSError: a file cannot be
    read.
    """

    def __init__(self, value, expect=None, seed=None, bint strings=False):
        cdef uint64_t state
        cdef _Slot slot
        cdef bytes pool
        cdef object part
        cdef Py_ssize_t longest = 0
        state = int.from_bytes(os.urandom(8), "little") if seed is None else <uint64_t> seed
        self.state = state ^ <uint64_t> SEED   # of an xorshift generator: hardly ever 0
        if self.state == 0:
            self.state = 1
        self.parts = []
        self.strings = strings
        texts = []
        self.write(value, expect, texts, True)
        self.flush(texts)
        for part in self.parts:
            if isinstance(part, _Slot):
                slot = part
                longest = max(longest, slot.size)
        if longest > FRESH:
            pool = PyBytes_FromStringAndSize(NULL, POOL)
            self.letters_c(PyBytes_AS_STRING(pool), POOL)
            self.pool = pool * (longest // POOL + 2)
        if expect is not None and self.expected_slot is None and self.expected_text is None:
            raise ValueError(f"there is no argument {expect!r} whose text could come back")

    # -- reading a template --------------------------------------------------------------------

    def write(self, value, expect, list texts, bint top):
        """Write a value, as JSON text and slots."""
        cdef bint first = True
        if isinstance(value, dict):
            texts.append("{")
            for key, item in value.items():
                texts.append(("" if first else ",") + json.dumps(key, ensure_ascii=False) + ":")
                first = False
                n = len(self.parts)
                self.write(item, None, texts, False)
                if top and key == expect:
                    self.expect(item, n)
            texts.append("}")
        elif isinstance(value, list):
            texts.append("[")
            for i, item in enumerate(value):
                if not first:
                    texts.append(",")
                first = False
                n = len(self.parts)
                self.write(item, None, texts, False)
                if top and i == expect:
                    self.expect(item, n)
            texts.append("]")
        elif isinstance(value, str) and value.startswith("$"):
            found = slot_of(value, self.strings)
            if isinstance(found, str):
                texts.append(json.dumps(found, ensure_ascii=False))
            else:
                self.flush(texts)
                self.parts.append(found)
        else:
            texts.append(json.dumps(value, ensure_ascii=False, allow_nan=False))

    def flush(self, list texts):
        """Make one part of the text that was written."""
        if texts:
            self.parts.append("".join(texts).encode())
            texts.clear()

    def expect(self, item, Py_ssize_t n):
        """A member is expected back: the slot that was written since there were n parts, or a
        text."""
        if isinstance(item, dict | list):
            raise ValueError("only a text, a number or a placeholder can be expected back")
        for part in self.parts[n:]:
            if isinstance(part, _Slot):
                self.expected_slot = part
                return
        if isinstance(item, str) and item.startswith("$"):
            item = slot_of(item, self.strings)
        text = encode(item if isinstance(item, str) else json.dumps(item))
        self.expected_text = text[1 : len(text) - 1]

    # -- values --------------------------------------------------------------------------------

    @cython.overflowcheck(False)           # it wraps
    cdef uint64_t random_c(self) noexcept:
        # xorshift64* (Vigna 2016)
        self.state ^= self.state >> 12
        self.state ^= self.state << 25
        self.state ^= self.state >> 27
        return (self.state * <uint64_t> 2685821657736338717) >> 4

    cdef int letters_c(self, char *p, Py_ssize_t n) noexcept:
        """Write n random letters. Of many only the first ones are new."""
        cdef const char *letters = PyBytes_AS_STRING(LETTERS)
        cdef Py_ssize_t i, fresh = n if self.pool is None else min(n, FRESH)
        cdef uint64_t bits = 0
        for i in range(fresh):
            if i % 10 == 0:
                bits = self.random_c()
            p[i] = letters[bits & 63]
            bits >>= 6
        if n > fresh:
            memcpy(
                p + fresh, PyBytes_AS_STRING(self.pool) + self.random_c() % POOL,
                <size_t> (n - fresh),
            )
        return 0

    cdef bytes render_c(self, int64_t n, Span *expected):
        cdef Py_ssize_t size = 0, length
        cdef object part
        cdef _Slot slot
        cdef bytes text
        cdef char *p
        for part in self.parts:
            if type(part) is bytes:
                size += PyBytes_GET_SIZE(part)
                continue
            slot = part
            if slot.kind == TEXT:
                size += slot.size + 2
                continue
            if slot.kind == NUMBER:
                slot.value = b"%d" % n
            elif slot.kind == NUMBER_TEXT:
                slot.value = b'"%d"' % n
            else:
                slot.value = slot.choices[self.random_c() % <uint64_t> len(slot.choices)]
            size += PyBytes_GET_SIZE(slot.value)
        text = PyBytes_FromStringAndSize(NULL, size)
        p = PyBytes_AS_STRING(text)
        expected.p = NULL
        expected.n = 0
        if self.expected_text is not None:
            expected.p = <const uint8_t *> PyBytes_AS_STRING(self.expected_text)
            expected.n = <size_t> PyBytes_GET_SIZE(self.expected_text)
        for part in self.parts:
            if type(part) is bytes:
                length = PyBytes_GET_SIZE(part)
                memcpy(p, PyBytes_AS_STRING(part), <size_t> length)
                p += length
                continue
            slot = part
            if slot.kind == TEXT:
                length = slot.size + 2
                p[0] = p[length - 1] = c'"'
                self.letters_c(p + 1, slot.size)
            else:
                length = PyBytes_GET_SIZE(slot.value)
                memcpy(p, PyBytes_AS_STRING(slot.value), <size_t> length)
            if slot is self.expected_slot:
                expected.p = <const uint8_t *> p
                expected.n = <size_t> length
                if slot.kind != NUMBER:    # without the quotes
                    expected.p += 1
                    expected.n -= 2
            p += length
        return text

    def render(self, int64_t n):
        """Return the JSON text of the nth arguments, and the string that is expected back, or
        None."""
        cdef Span expected
        cdef bytes text = self.render_c(n, &expected)
        if expected.p is NULL:
            return text, None
        return text, json.loads(b'"%b"' % (<const char *> expected.p)[:expected.n])


def slot_of(str word not None, bint strings):
    """Return the slot of a placeholder, or the string that it stands for. ValueError, OSError."""
    cdef _Slot slot
    if word.startswith("$$"):
        return word[1:]
    name, colon, rest = word[1:].partition(":")
    slot = _Slot.__new__(_Slot)
    if name == "n" and not colon:
        slot.kind = NUMBER_TEXT if strings else NUMBER
        return slot
    if name == "text":
        slot.kind = TEXT
        digits = rest.isascii() and rest.isdigit() and len(rest) < 16
        if not digits or not 0 < int(rest) <= MAX_TEXT:
            raise ValueError(f'"{word:.60}": $text:N takes a number of letters, {MAX_TEXT} at most')
        slot.size = int(rest)
        return slot
    if name == "choice":
        slot.kind = CHOICE
        words = rest.split("|")
        if not rest or len(words) > MAX_CHOICES:
            raise ValueError(f'"{word:.60}": $choice:a|b takes 1 to {MAX_CHOICES} strings')
        slot.choices = [encode(one) for one in words]
        return slot
    if name == "file" and rest:
        try:
            return contents_of(rest, most=MAX_TEXT).decode()
        except UnicodeDecodeError:
            raise ValueError(f"{rest} is not UTF-8") from None
        except OSError as exc:
            exc.filename = rest
            raise
    raise ValueError(
        f'"{word:.60}" is not a placeholder: there are $n, $text:N, $choice:a|b and $file:PATH;'
        ' a string that begins with "$" has "$$"'
    )
