"""A body in chunks (RFC 9112 section 7.1), moved together where it lies.

The body stays where its first chunk was read. Extensions of chunks and trailers are read strictly,
limited in their bytes, and not used.
"""

from libc.stdint cimport uint64_t, uint8_t
from libc.string cimport memmove

from wirespeed._core.framing.http.rfc9112 cimport (
    BAD_CHUNK_END, BAD_CHUNK_EXTENSION, BAD_CHUNK_SIZE, BAD_NAME, BAD_VALUE, BARE_CR, BARE_LF, CR,
    FOLDED_LINE, IN_QUOTES, IN_TOKEN, IN_VALUE, LF, LONG_BODY, LONG_CHUNK_LINES, NO_FAULT,
    SPACE_BEFORE_COLON, Fault, classes, is_blank, skip_value,
)

cdef enum:
    # where in a body `at` is
    SIZE
    BEFORE_SEMICOLON
    BEFORE_NAME           # of an extension
    NAME
    BEFORE_EQUALS
    BEFORE_VALUE
    VALUE
    QUOTED
    QUOTES_END
    ESCAPED               # behind a backslash
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    TRAILER
    TRAILER_NAME
    TRAILER_VALUE
    TRAILER_LF
    END_LF
    ENDED

    MAX_DIGITS = 16       # of the size of a chunk: these fit into 64 bits


cdef inline int hex_value(uint8_t c) noexcept:
    if c'0' <= c <= c'9':
        return c - c'0'
    c |= 0x20
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef int begin_chunks(Chunks *chunks, size_t at) noexcept:
    """A body begins at `at`."""
    chunks.body = chunks.at = at
    chunks.n_body = chunks.n_lines = 0
    chunks.moved = chunks.left = 0
    chunks.state = SIZE
    chunks.n_digits = 0
    chunks.in_pieces = False
    chunks.fault = NO_FAULT
    return 0


cdef int take_chunks(Chunks *chunks, uint8_t *p, size_t end) noexcept:
    cdef size_t n
    while chunks.at < end and chunks.state != ENDED and chunks.fault == NO_FAULT:
        if chunks.state == DATA:
            n = <size_t> min(<uint64_t> (end - chunks.at), chunks.left)
            if chunks.n_body == 0:
                chunks.body = chunks.at
            elif chunks.body + chunks.n_body != chunks.at:
                memmove(p + chunks.body + chunks.n_body, p + chunks.at, n)
                chunks.moved += n
            chunks.n_body += n
            chunks.at += n
            chunks.left -= n
            if chunks.left == 0:
                chunks.state = DATA_CR
            if chunks.in_pieces:
                break
        elif chunks.state == TRAILER_VALUE:
            n = skip_value(p, chunks.at, end) - chunks.at
            chunks.n_lines += n
            chunks.at += n
            if chunks.n_lines > chunks.max_lines:
                chunks.fault = LONG_CHUNK_LINES
            elif chunks.at < end:
                if p[chunks.at] == CR:
                    chunks.state = TRAILER_LF
                    chunks.at += 1
                else:
                    chunks.fault = BARE_LF if p[chunks.at] == LF else BAD_VALUE
        else:
            chunks.fault = take_byte(chunks, p[chunks.at])
            chunks.at += 1
    if chunks.fault != NO_FAULT:
        return CHUNKS_BAD
    return CHUNKS_DONE if chunks.state == ENDED else CHUNKS_MORE


cdef Fault end_of_size(Chunks *chunks, uint8_t c) noexcept:
    """The byte behind the size or behind an extension: what follows?"""
    if c == CR:
        if not chunks.in_pieces and chunks.left > chunks.max_body - chunks.n_body:
            return LONG_BODY
        chunks.state = SIZE_LF
    elif c == c';':
        chunks.state = BEFORE_NAME
    elif is_blank(c):
        chunks.state = BEFORE_SEMICOLON
    elif c == LF:
        return BARE_LF
    else:
        return BAD_CHUNK_EXTENSION
    return NO_FAULT


cdef Fault take_byte(Chunks *chunks, uint8_t c) noexcept:
    """One byte that is not of the body."""
    cdef int state = chunks.state
    cdef int digit
    cdef uint8_t kind = classes[c]
    if state == SIZE:
        digit = hex_value(c)
        if digit >= 0:
            if chunks.n_digits == MAX_DIGITS:
                return BAD_CHUNK_SIZE
            chunks.left = chunks.left << 4 | <uint64_t> digit
            chunks.n_digits += 1
            return NO_FAULT
        if chunks.n_digits == 0 or not (c == CR or c == LF or c == c';' or is_blank(c)):
            return BARE_LF if c == LF else BAD_CHUNK_SIZE
        return end_of_size(chunks, c)
    if state == SIZE_LF:
        if c != LF:
            return BARE_CR
        chunks.n_digits = 0
        if chunks.in_pieces:
            chunks.n_lines = 0
        chunks.state = DATA if chunks.left else TRAILER
        return NO_FAULT
    if state == DATA_CR:
        chunks.state = DATA_LF
        return NO_FAULT if c == CR else BAD_CHUNK_END
    if state == DATA_LF:
        chunks.state = SIZE
        return NO_FAULT if c == LF else BAD_CHUNK_END
    if state == END_LF:
        chunks.state = ENDED
        return NO_FAULT if c == LF else BARE_CR
    if state == TRAILER and c == CR:
        chunks.state = END_LF
        return NO_FAULT
    chunks.n_lines += 1
    if chunks.n_lines > chunks.max_lines:
        return LONG_CHUNK_LINES
    # trailers
    if state == TRAILER:
        if is_blank(c):
            return FOLDED_LINE
        if not kind & IN_TOKEN:
            return BARE_LF if c == LF else BAD_NAME
        chunks.state = TRAILER_NAME
    elif state == TRAILER_NAME:
        if c == c':':
            chunks.state = TRAILER_VALUE
        elif not kind & IN_TOKEN:
            return SPACE_BEFORE_COLON if is_blank(c) else BAD_NAME
    elif state == TRAILER_LF:
        chunks.state = TRAILER
        return NO_FAULT if c == LF else BARE_CR
    # extensions (section 7.1.1), with the white space that a recipient must take
    elif state == BEFORE_SEMICOLON:
        if c == c';':
            chunks.state = BEFORE_NAME
        elif not is_blank(c):
            return BAD_CHUNK_EXTENSION
    elif state == BEFORE_NAME:
        if kind & IN_TOKEN:
            chunks.state = NAME
        elif not is_blank(c):
            return BAD_CHUNK_EXTENSION
    elif state == NAME:
        if c == c'=':
            chunks.state = BEFORE_VALUE
        elif is_blank(c):
            chunks.state = BEFORE_EQUALS
        elif not kind & IN_TOKEN:
            return end_of_size(chunks, c)
    elif state == BEFORE_EQUALS:
        if c == c'=':
            chunks.state = BEFORE_VALUE
        elif c == c';':
            chunks.state = BEFORE_NAME
        elif not is_blank(c):
            return BAD_CHUNK_EXTENSION
    elif state == BEFORE_VALUE:
        if c == c'"':
            chunks.state = QUOTED
        elif kind & IN_TOKEN:
            chunks.state = VALUE
        elif not is_blank(c):
            return BAD_CHUNK_EXTENSION
    elif state == VALUE:
        if not kind & IN_TOKEN:
            return end_of_size(chunks, c)
    elif state == QUOTES_END:
        return end_of_size(chunks, c)
    elif state == ESCAPED:
        if not kind & IN_VALUE:
            return BAD_CHUNK_EXTENSION
        chunks.state = QUOTED
    elif c == c'"':               # QUOTED
        chunks.state = QUOTES_END
    elif c == c'\\':
        chunks.state = ESCAPED
    elif not kind & IN_QUOTES:
        return BAD_CHUNK_EXTENSION
    return NO_FAULT
