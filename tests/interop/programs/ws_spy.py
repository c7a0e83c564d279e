"""Stands between clients and a server over WebSocket, and writes down what each says.

    python ws_spy.py FOLDER [NAME=VALUE…] -- command args…

The variables are for the server, whose first line on stdout must be the URL that it listens at;
the spy's own first line is the URL for clients. Bytes go through unchanged: the handshake, the
frames and their extensions are the business of the two. SIGTERM goes on to the server, and the
spy ends when the server has.

Makes FOLDER/<time>-<pid>/ with what `spy.py` makes: ``wire`` (a line a text message), ``stderr``,
``exit``; also ``heads`` (JSON, a line each: the request and the response of an opening handshake)
and ``frames`` (a line a frame: "> " or "< ", final or not, opcode, payload's length or, for a
closing frame, its code).
"""

import json
import zlib

from between import Note, stand_between

NAMES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}


class Reader:
    """Reads one direction of a connection: a head of HTTP, then frames."""

    def __init__(self, mark: bytes, note: Note) -> None:
        self.mark = mark
        self.note = note
        self.rest = b""
        self.head = False
        self.parts: list[bytes] = []
        self.opcode = 0
        self.deflated = False
        self.inflate = zlib.decompressobj(-15)

    def feed(self, chunk: bytes) -> None:
        self.rest += chunk
        if not self.head:
            head, end, self.rest = self.rest.partition(b"\r\n\r\n")
            if not end:
                self.rest = head
                return
            self.head = True
            lines = head.decode("latin-1").split("\r\n")
            self.note("heads", self.mark + json.dumps(lines).encode())
        while (size := self.frame()) > 0:
            self.rest = self.rest[size:]

    def frame(self) -> int:
        """Note the frame at the start of ``rest``; its length, or 0 when it is not yet whole."""
        data = self.rest
        if len(data) < 2:
            return 0
        length, at = data[1] & 127, 2
        if length >= 126:
            at = 4 if length == 126 else 10
            length = int.from_bytes(data[2:at], "big")
        masked = bool(data[1] & 128)
        start = at + 4 * masked
        if len(data) < start + length:
            return 0
        payload = data[start : start + length]
        if masked and length:
            key = (data[at:start] * (length // 4 + 1))[:length]
            both = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
            payload = both.to_bytes(length, "big")
        self.take(data[0] & 15, bool(data[0] & 128), bool(data[0] & 64), payload)
        return start + length

    def take(self, opcode: int, final: bool, deflated: bool, payload: bytes) -> None:
        said: object = len(payload)
        if opcode == 8:
            said = int.from_bytes(payload[:2], "big") if payload else None
        words = [NAMES[opcode], "final" if final else "more", "deflated" if deflated else "plain"]
        self.note("frames", self.mark + " ".join([*words, str(said)]).encode())
        if opcode >= 8:
            return
        if opcode:
            self.opcode, self.deflated = opcode, deflated
        self.parts.append(payload)
        if not final:
            return
        message, self.parts = b"".join(self.parts), []
        if self.deflated:
            message = self.inflate.decompress(message + b"\0\0\xff\xff")
        if self.opcode == 1:
            # JSON: a line break is only white space
            self.note("wire", self.mark + message.replace(b"\n", b" "))


def readers(note: Note) -> tuple[Reader, Reader]:
    return Reader(b"> ", note), Reader(b"< ", note)


if __name__ == "__main__":
    stand_between(("wire", "heads", "frames"), readers)
