"""Newline-delimited framing: what a stream of bytes holds, however it was cut into chunks."""

from __future__ import annotations


class Oversize(bytes):
    """The first bytes of a line that is too long."""


def frames(stream: bytes, eof: bool, max_frame: int) -> list[bytes]:
    """The lines that are not blank, without what surrounds them; an Oversize for one too long.

    A line too long counts as soon as it is, and the last line counts at the end of the stream.
    """
    *lines, rest = stream.split(b"\n")
    found: list[bytes] = []
    marked = False  # whether a byte order mark can no longer follow
    for i, line in enumerate([*lines, rest]):
        finished = i < len(lines)
        # a carriage return before the newline is not part of the message
        allowed = max_frame + 1 if line.endswith(b"\r") else max_frame
        if len(line) > allowed:
            found.append(Oversize(line[:max_frame]))
            marked = True
            continue
        if not finished and not eof:
            continue
        line = line.strip(b" \t\r")
        if not marked and line.startswith(b"\xef\xbb\xbf"):
            marked = True
            line = line[3:].lstrip(b" \t\r")
        marked = marked or line.startswith((b"{", b"["))
        if line:
            found.append(line)
    return found
