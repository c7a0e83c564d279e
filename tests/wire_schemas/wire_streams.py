"""Messages out of the bytes of one direction: lines, or the frames of WebSocket."""

from __future__ import annotations

import zlib
from collections.abc import Callable

TEXT, CONTINUATION = 1, 0


class Lines:
    """A message a line. ``rest``: What has come of the next one."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that end in these bytes."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line for line in lines if line.strip()]


class Frames:
    """A message a text message of WebSocket (RFC 6455, section 5), deflated or not (RFC 7692)."""

    def __init__(self) -> None:
        self._rest = b""
        self._message = b""
        self._deflated = False
        # blocks of one stream, whether or not the sender begins anew with each message
        self._inflate = zlib.decompressobj(-15)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that end in these bytes."""
        stream, at, found = self._rest + data, 0, []
        while True:
            frame = _frame(stream, at)
            if frame is None:
                break
            first, payload, at = frame
            opcode = first & 15
            if opcode > 2:
                continue
            if opcode != CONTINUATION:
                self._message, self._deflated = b"", bool(first & 0x40)
            self._message += payload
            if first & 0x80:
                message = self._message
                if self._deflated:
                    message = self._inflate.decompress(message + b"\0\0\xff\xff")
                found.append(message)
        self._rest = stream[at:]
        return found


def _frame(stream: bytes, at: int) -> tuple[int, bytes, int] | None:
    """The frame that begins there: its first byte, its payload, and where the next begins."""
    if len(stream) < at + 2:
        return None
    first, second = stream[at], stream[at + 1]
    length, start = second & 127, at + 2
    wide = {126: 2, 127: 8}.get(length, 0)
    if wide:
        length = int.from_bytes(stream[start : start + wide], "big")
        start += wide
    key = stream[start : start + 4] if second & 0x80 else b""
    start += len(key)
    if len(stream) < start + length or (second & 0x80 and len(key) < 4):
        return None
    payload = stream[start : start + length]
    if key:
        mask = (key * (length // 4 + 1))[:length]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(length)
    return first, payload, start + length


def for_framing(name: str) -> Callable[[], Lines | Frames] | None:
    """What reads the streams of a framing of the package; None when they hold no MCP."""
    return {"LineFramer": Lines, "WebSocketFramer": Frames}.get(name)
