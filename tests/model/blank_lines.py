"""Framing by three newlines in a row: what a stream of bytes holds, however it was cut."""

from __future__ import annotations

import re

OVERSIZE = None
BLANKS = b" \t\r\n"
TERMINATOR = re.compile(rb"(?:\r?\n){3}")
# what may yet become a terminator
BEGINNING = re.compile(rb"(?:\r?\n){0,2}\r?\Z")
TOKEN = re.compile(rb'"(?:\\.|[^"\\])*"|["\[\]{}]', re.DOTALL)


def frames(stream: bytes, eof: bool, max_frame: int, lenient: bool = False) -> list[bytes | None]:
    """The frames without what surrounds them; OVERSIZE for one too long.

    One too long counts as soon as it is, and the last one counts at the end of the stream.
    """
    rest = stream.removeprefix(b"\xef\xbb\xbf")
    found: list[bytes | None] = []
    while rest := rest.lstrip(BLANKS):
        end = first_end(rest) if lenient else TERMINATOR.search(rest)
        last = BEGINNING.search(rest)
        assert last is not None
        text = rest[: last.start() if end is None else end.start()]
        if len(text) > max_frame:
            found.append(OVERSIZE)
        elif end is not None or eof:
            found.append(text.rstrip(BLANKS))
        if end is None:
            break
        rest = rest[end.end() :]
    return found


def first_end(text: bytes) -> re.Match[bytes] | None:
    """Where a lenient reader ends the frame that begins here."""
    for newline in re.finditer(rb"\r?\n", text):
        if text[:1] not in (b"{", b"[") or is_closed(text[: newline.start()]):
            return newline
        terminator = TERMINATOR.match(text, newline.start())
        if terminator is not None:
            return terminator
    return None


def is_closed(text: bytes) -> bool:
    """Whether as much as was opened first is closed again."""
    depth = 0
    for token in TOKEN.findall(text):
        if token == b'"':
            return False  # a string that does not end
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return True
    return False
