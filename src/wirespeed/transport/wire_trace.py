"""The wire on stderr: a line for each message of each connection, in both directions.

With ``WIRESPEED_TRACE=1`` in the environment `wirespeed.transport.link` loads this module and calls
`start`. A line has the time, the process, the connection, the direction (``<-`` received, ``->``
sent) and the message. The values of secrets are masked, a long message is cut, and nothing is ever
written to stdout. Without the variable this module is not loaded.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Literal, NamedTuple, Protocol

from wirespeed._core.session import Session
from wirespeed._core.wire import Wire, set_tap

SHOWN_BYTES = 2000  # bytes of a message
HEAD_BYTES = 1 << 18  # bytes of a request head that are kept until it ends
INFLATED_BYTES = 1 << 28  # bytes that a compressed connection may become

# -- secrets ---------------------------------------------------------------------------------------

# Names of members, parameters and header fields, in lower case, without anything but letters.
_SECRET_PARTS = (
    "accesskey", "apikey", "assertion", "codeverifier", "cookie", "credential", "passphrase",
    "passwd", "password", "privatekey", "requeststate", "secret", "token",
)  # fmt: skip
_SECRET_NAMES = frozenset(
    ("authorization", "dpop", "jwt", "mcpsessionid", "proxyauthorization", "pwd", "sessionid")
)
# What has such a part in its name and says only how, where or until when.
_NO_SECRET = re.compile(r"progresstoken|tokentype|.*(?:endpoint|supported|expiresat|expiresin)")

_TEXT = r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)'
_STRING = re.compile(_TEXT + r"(\s*+:\s*+)?", re.DOTALL)
_PART = re.compile(_TEXT + r"|[\[\]{},]", re.DOTALL)
_PARAMETER = re.compile(r"(?<![\w.%-])([\w.%-]+)=([^&;\s\"'\\]+)")
_CREDENTIALS = re.compile(r"\b(Bearer|Basic|DPoP)(\s+)[\w.~+/=-]{12,}", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^/\s:@\"]*:)[^/\s@\"]+@")
_JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*")
_PLAIN = ("null", "true", "false")


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether the value of a member, a parameter or a header field of this name is masked."""
    name = re.sub(r"[^a-z]", "", name.lower())
    if name in _SECRET_NAMES:
        return True
    return any(part in name for part in _SECRET_PARTS) and not _NO_SECRET.fullmatch(name)


def masked(text: str) -> str:
    """A text in which ``…`` stands for the values of secrets.

    These are members of JSON, also of JSON inside a string and of JSON that is cut, parameters of
    URLs and forms, passwords of URLs, and what looks like the value of ``Authorization`` or a JWT.
    """
    if '"' in text:
        text = _masked_members(text)
    text = _CREDENTIALS.sub(r"\1\2…", text)
    text = _JWT.sub("…", text)
    text = _PASSWORD.sub(r"\1…@", text)
    return _PARAMETER.sub(lambda m: f"{m[1]}=…" if is_secret(m[1]) else m[0], text)


def _masked_members(text: str) -> str:
    parts: list[str] = []
    done = at = 0
    while match := _STRING.search(text, at):
        at = match.end()
        if match[2] is not None:
            name, end = _unescaped(match[1]), _end_of_value(text, at)
            value = text[at:end].strip()
            counts = name.lower().endswith("tokens") and value.isdigit()
            if is_secret(name) and value not in _PLAIN and not counts:
                parts += (text[done:at], '"…"')
                done = at = end
        elif '"' in match[1]:  # there may be JSON inside
            inner = _unescaped(match[1])
            hidden = masked(inner)
            if hidden != inner:
                parts += (text[done : match.start()], json.dumps(hidden, ensure_ascii=False))
                done = at
    return "".join((*parts, text[done:]))


def _end_of_value(text: str, at: int) -> int:
    """Where the JSON value that begins there ends; the end of the text if the value is cut."""
    depth = 0
    for match in _PART.finditer(text, at):
        part = match[0]
        if part in ("{", "["):
            depth += 1
        elif part in ("}", "]"):
            if depth <= 1:
                return match.end() if depth else match.start()
            depth -= 1
        elif depth == 0:
            return match.start() if part == "," else match.end()
    return len(text)


def _unescaped(raw: str) -> str:
    """The string of a JSON text without its quotation marks. It may be cut in an escape."""
    if "\\" not in raw:
        return raw
    for text in (raw, raw[: raw.rfind("\\")]):
        try:
            return str(json.loads(f'"{text}"', strict=False))
        except ValueError:
            pass
    return raw


# -- messages out of the bytes of one direction ----------------------------------------------------


class Piece(NamedTuple):
    """The beginning of a message, and the length of all of it in bytes."""

    data: bytes
    size: int

    def shown(self) -> str:
        """The text of the message on one line, without secrets."""
        text = masked(self.data[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))
        if not text.isprintable():
            text = "".join(
                c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
            )
        return text if self.size <= SHOWN_BYTES else f"{text}… ({self.size} bytes)"


class Direction(Protocol):
    """The reader of what one connection sends, or receives."""

    def feed(self, data: bytes, /) -> Iterator[str]:
        """Take in the next bytes. Yields the messages that end in them, as they are shown."""


class _Chunks:
    """A message of any length, of which the beginning is kept."""

    _data = b""
    _size = 0

    def add(self, data: bytes) -> None:
        if len(self._data) < SHOWN_BYTES:
            self._data += data[: SHOWN_BYTES - len(self._data)]
        self._size += len(data)

    def take(self) -> Piece:
        piece = Piece(self._data, self._size)
        self._data, self._size = b"", 0
        return piece


class _Lines:
    """A message a line."""

    def __init__(self) -> None:
        self._line = _Chunks()

    def pieces(self, data: bytes) -> Iterator[Piece]:
        """The lines that end in these bytes, empty ones too."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._line.add(line)
            piece = self._line.take()
            yield Piece(piece.data.removesuffix(b"\r"), piece.size)
        self._line.add(rest)

    def feed(self, data: bytes) -> Iterator[str]:
        return (piece.shown() for piece in self.pieces(data) if piece.data.strip())


class _Blocks:
    """A message a block of lines, with an empty line behind it: LiteMCP, and server-sent events."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._block = _Chunks()

    def feed(self, data: bytes) -> Iterator[str]:
        for piece in self._lines.pieces(data):
            if piece.data:
                self._block.add(piece.data)
                self._block.add(b" ")
            elif (block := self._block.take()).size:
                yield Piece(block.data.rstrip(), block.size).shown()


class _Pieces:
    """The bytes as they come, of a framing that is not of this package."""

    def feed(self, data: bytes) -> Iterator[str]:
        if data:
            yield Piece(data, len(data)).shown()


class _WebSocket:
    """A message a text or binary message, compressed or not (RFC 6455, RFC 7692), or a control
    frame."""

    CONTROL = {8: "close", 9: "ping", 10: "pong"}  # noqa: RUF012

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._message = bytearray()
        self._compressed = False
        self._inflate = zlib.decompressobj(-15)
        self._inflated = 0

    def feed(self, data: bytes) -> Iterator[str]:
        self._bytes += data
        while (frame := self._frame()) is not None:
            first, payload = frame
            opcode = first & 15
            if opcode >= 8:
                yield self._control(opcode, payload)
                continue
            if opcode:
                self._message.clear()
                self._compressed = bool(first & 0x40)
            self._message += payload
            if first & 0x80:
                message = bytes(self._message)
                self._message.clear()
                if self._compressed:
                    yield self._inflated_piece(message).shown()
                else:
                    yield Piece(message, len(message)).shown()

    def _frame(self) -> tuple[int, bytes] | None:
        """The next frame: its first byte and its payload; None while it is not complete."""
        data = self._bytes
        if len(data) < 2:
            return None
        length, start = data[1] & 127, 2
        if length > 125:
            start += 2 if length == 126 else 8
            length = int.from_bytes(data[2:start], "big")
        key = bytes(data[start : start + 4]) if data[1] & 0x80 else b""
        start += 4 * (data[1] >> 7)
        if len(data) < start + length:
            return None
        first, payload = data[0], bytes(data[start : start + length])
        del data[: start + length]
        if any(key):
            pad = (key * (length // 4 + 1))[:length]
            number = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
            payload = number.to_bytes(length, "big")
        return first, payload

    def _control(self, opcode: int, payload: bytes) -> str:
        name = self.CONTROL.get(opcode, f"control frame {opcode}")
        if opcode == 8 and len(payload) >= 2:
            reason = Piece(payload[2:], 0).shown()
            return f"{name} {int.from_bytes(payload[:2], 'big')} {reason}".rstrip()
        return name

    def _inflated_piece(self, message: bytes) -> Piece:
        whole = _Chunks()
        rest = message + b"\0\0\xff\xff"
        while rest:
            data = self._inflate.decompress(rest, 1 << 16)
            self._inflated += len(data)
            if self._inflated > INFLATED_BYTES:
                raise ValueError("the compressed messages are too long")
            whole.add(data)
            rest = self._inflate.unconsumed_tail
        return whole.take()


class _Http:
    """A message a head, a body, or an event of a body (RFC 9112)."""

    _FIRST = re.compile(rb"HTTP/|[A-Z]{1,20}(?: |/|\Z)")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._step: Callable[[], Iterable[str] | None] = self._head
        self._left: float = 0  # bytes of the body, or of its chunk
        self._began = False  # whether the body has
        self._chunked = False
        self._encoding = ""
        self._events: _Blocks | None = None
        self._body = _Chunks()

    def feed(self, data: bytes) -> Iterator[str]:
        self._bytes += data
        while (shown := self._step()) is not None:
            yield from shown

    def _head(self) -> Iterable[str] | None:
        data = self._bytes
        if not data:
            return None
        end = data.find(b"\r\n\r\n")
        if not self._FIRST.match(data) or (end < 0 and len(data) > HEAD_BYTES):
            piece = Piece(bytes(data), len(data))  # below `asgi()` a response has no head here
            data.clear()
            return [piece.shown()] if piece.data.strip() else []
        if end < 0:
            return None
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        del data[: end + 4]
        fields = [(name, value.strip()) for name, _, value in (li.partition(":") for li in lines)]
        self._begin(first, {name.lower(): value for name, value in fields})
        parts = [first, *(f"{n}: {'…' if is_secret(n) else v}" for n, v in fields)]
        head = " | ".join(parts).encode()
        return [Piece(head, len(head)).shown()]

    def _begin(self, first: str, fields: dict[str, str]) -> None:
        """Find out how long the body is."""
        status = first.split(" ")[1:2] if first.startswith("HTTP/") else [""]
        length = fields.get("content-length", "")
        kind = fields.get("content-type", "").lower()
        self._encoding = fields.get("content-encoding", "").replace("identity", "")
        self._events = _Blocks() if kind.startswith("text/event-stream") else None
        self._chunked = "chunked" in fields.get("transfer-encoding", "").lower()
        self._began = False
        if self._chunked:
            self._step = self._chunk_size
        elif length.isdecimal():
            self._left = int(length)
            self._step = self._bare if self._left else self._head
        elif status[0][:1] in ("2", "3", "4", "5") and status[0] not in ("204", "304"):
            self._left = float("inf")  # until the end of the connection
            self._step = self._bare

    def _bare(self) -> Iterable[str] | None:
        data = self._bytes
        if not self._began:  # the answer to HEAD has no body: it may be the next head
            if len(data) < min(7, self._left) and b"HTTP/1.".startswith(data):
                return None
            if data.startswith(b"HTTP/1."):
                self._step = self._head
                return []
        return self._some() if data else None

    def _some(self) -> Iterable[str]:
        """Take what there is of the body, or of its chunk."""
        n = int(min(len(self._bytes), self._left))
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        self._left -= n
        self._began = True
        shown: list[str] = []
        if self._events is not None and not self._encoding:
            shown += self._events.feed(data)
        else:
            self._body.add(data)
        if self._left:
            return shown
        if self._chunked:
            self._step = self._chunk_size
            return shown
        return [*shown, *self._ended()]

    def _chunk_size(self) -> Iterable[str] | None:
        end = self._bytes.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._bytes[:end]).strip()
        del self._bytes[: end + 1]
        if not line:  # behind a chunk
            return []
        self._left = int(line.partition(b";")[0], 16)
        if self._left:
            self._step = self._chunk
            return []
        self._step = self._trailer
        return self._ended()

    def _chunk(self) -> Iterable[str] | None:
        return self._some() if self._bytes else None

    def _trailer(self) -> Iterable[str] | None:
        end = self._bytes.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._bytes[:end]).strip()
        del self._bytes[: end + 1]
        if not line:
            self._step = self._head
        return []

    def _ended(self) -> list[str]:
        """The body is complete."""
        if not self._chunked:
            self._step = self._head
        piece = self._body.take()
        if not piece.size:
            return []
        return [f"({piece.size} bytes, {self._encoding})" if self._encoding else piece.shown()]


_READERS: dict[str, Callable[[], Direction]] = {
    "LineFramer": _Lines,
    "BlankLineFramer": _Blocks,
    "WebSocketFramer": _WebSocket,
    "HttpFramer": _Http,
}
_SIDES = {"ClientWire": "client", "HttpWire": "server"}


# -- connections -----------------------------------------------------------------------------------


class TracedConnection:
    """The trace of one connection."""

    def __init__(self, wire: Wire, number: int) -> None:
        make = _READERS.get(type(wire.framer).__name__, _Pieces)
        self.number = number
        self.directions: dict[str, Direction] = {"received": make(), "sent": make()}

    def name(self, wire: Wire) -> str:
        """The side of the package, and the number of the connection in this process."""
        if isinstance(wire, Session):
            side = "server" if wire.answers_faults else "client"
        else:
            side = _SIDES.get(type(wire).__name__, "peer")
        return f"{side}#{self.number}"


class WireTrace:
    """The trace of all connections of this process. It is a tap of `wirespeed._core.wire`."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._numbers = count(1)
        self._connections: dict[int, TracedConnection] = {}  # by the addresses of their wires

    def __call__(
        self, wire: Wire, event: Literal["made", "carried", "sent", "received"], data: bytes
    ) -> None:
        """Write the messages that end in these bytes."""
        if event == "made":  # maybe at the address of a wire that is gone
            if type(wire).__name__ == "RelayWire":  # another worker shows what these bytes are
                self._connections.pop(id(wire), None)
            else:
                self._connections[id(wire)] = TracedConnection(wire, next(self._numbers))
            return
        if event == "carried":
            self._connections.pop(id(wire), None)
            return
        connection = self._connections.get(id(wire))
        if connection is None:
            return
        try:
            for text in connection.directions[event].feed(data):
                self._line(wire, connection, event, text)
        except Exception as exc:  # a fault of the trace must not become one of the connection
            self._connections.pop(id(wire), None)
            self._line(wire, connection, event, f"(not traced from here on: {exc!r})")

    def _line(self, wire: Wire, connection: TracedConnection, event: str, text: str) -> None:
        time = datetime.now().strftime("%H:%M:%S.%f")
        arrow = "->" if event == "sent" else "<-"
        self._write(f"trace {time} {os.getpid()} {connection.name(wire)} {arrow} {text}\n")


def _to_stderr(line: str) -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.write(line)
            sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads stderr, or it is closed
        pass


def start() -> None:
    """Write what passes through the wires of this process to stderr from now on."""
    set_tap(WireTrace(_to_stderr))
