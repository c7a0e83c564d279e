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
from itertools import count, pairwise
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import unquote

from wirespeed._core.session import Session
from wirespeed._core.wire import Wire, set_tap

SHOWN_CHARACTERS = 2000  # of a message
KEPT_BYTES = 1 << 18  # of a message or a head, until it ends; a longer one is not shown
INFLATED_BYTES = 1 << 28  # bytes that a compressed connection may become

# -- secrets ---------------------------------------------------------------------------------------

# Names of members, parameters and header fields, in lower case, without anything but letters.
_SECRET_PARTS = (
    "accesskey", "apikey", "assertion", "codeverifier", "cookie", "credential", "devicecode",
    "passcode", "passphrase", "passwd", "password", "privatekey", "requeststate", "secret",
    "signature", "token",
)  # fmt: skip
_SECRET_NAMES = frozenset(
    ("authorization", "key", "mcpsessionid", "proxyauthorization", "sessionid")
)
_SECRET_LAST_WORDS = frozenset(
    ("auth", "bearer", "dpop", "jwt", "otp", "pass", "pin", "pwd", "sid", "totp")
)
# They have such a part, and say only how, where or until when.
_NO_SECRETS = frozenset(
    (
        "progresstoken", "tokentype", "tokenendpoint", "tokenendpointauthmethod",
        "tokenendpointauthmethodssupported", "tokenendpointauthsigningalg",
        "tokenendpointauthsigningalgvaluessupported", "clientsecretexpiresat",
        "accesstokenexpiresin", "refreshtokenexpiresin", "clientsecretbasic", "clientsecretpost",
        "clientsecretjwt", "privatekeyjwt",
    )
)  # fmt: skip

_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
# Of a text that is not JSON. A search by the name alone has no state that a stray quotation mark
# could put out of step. `\n` in front of a name may be an escape.
_FIELD = re.compile(
    r"""(^[ \t>*-]*+|["'`])([\w.-]+)(:[ \t]*+)((?:(?:Bearer|Basic|DPoP)[ \t]+)?)[^\s].*""",
    re.IGNORECASE | re.MULTILINE,
)
_NAME = re.compile(
    r"""(?<![\w.%\[\]-])(?P<name>[\w.%\[\]-]++)(?P<quote>\\*["'`])?\s*+(?:=>|:=?|=++)\s*+"""
)
_VALUE = re.compile(
    r"""(?P<quote>\\*["'`]).*?(?:(?<!\\)(?P=quote)|\Z)
    |[\[{][^\n]*+
    |(?P<scheme>(?:(?:Bearer|Basic|DPoP)\s++)?)[^\s&;]++""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_CODE = re.compile(r"((?:\A|[?&#;])code=)[^\s&;]+")
_CREDENTIALS = re.compile(
    r"((?:\b|(?<=\\[bfnrt]))(?:Bearer|Basic|DPoP)\s+)[\w.~+/=-]{12,}", re.IGNORECASE
)
_USER = re.compile(r"(/\\*+/)(?:([^\s/?#:@\"]*+:)[^\s\"]{1,256}|[^\s/?#:@\"]{1,256})@")
_JWT = re.compile(r"(?:\b|(?<=\\[bfnrt]))eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*")
_JSON = re.compile(r"[\s\ufeff]*(?:\{|\[\s*[\[{\"])")


def is_secret(name: str) -> bool:
    """Whether the value of a member, a parameter or a header field of this name is masked."""
    words = [word.lower() for word in _WORD.findall(unquote(name))]
    whole = "".join(words)
    if whole in _SECRET_NAMES or not _SECRET_LAST_WORDS.isdisjoint((whole, *words[-1:])):
        return True
    return any(part in whole for part in _SECRET_PARTS) and whole not in _NO_SECRETS


def masked(text: str) -> str:
    """A text in which ``…`` stands for the values of secrets.

    JSON is decoded, and so are its strings that are JSON. If something is masked, it is encoded
    again, without white space.
    """
    json_text = _masked_json(text)
    return _masked_text(text) if json_text is None else json_text


def _masked_json(text: str) -> str | None:
    """The same for an object, an array or a string of JSON; None for any other text."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        tree = json.loads(text, object_pairs_hook=_members)
        hidden = _masked_value(tree)
        if hidden == tree:
            return text
        return json.dumps(hidden, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):  # the first would go unseen
        raise ValueError("a name twice")
    return members


def _masked_value(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        hidden = [_masked_value(one) for one in value]
        for i, (name, one) in enumerate(pairwise(value)):  # a pair, or an option of a command
            if isinstance(name, str) and (len(value) == 2 or name.startswith("-")):
                hidden[i + 1] = "…" if _hides(name, one) else hidden[i + 1]
        return hidden
    if not isinstance(value, dict):
        return value
    has_value = any(name.lower() == "value" for name in value)
    names = [one for name, one in value.items() if has_value and name.lower() in ("name", "key")]
    shown: dict[str, Any] = {}
    for name, one in value.items():
        if name.lower() == "value":
            secret = any(isinstance(n, str) and _hides(n, one) for n in names)
        else:
            secret = _hides(name, one) and not (has_value and name.lower() == "key")
        shown[masked(name)] = "…" if secret else _masked_value(one)
    return shown


def _hides(name: str, value: Any) -> bool:
    """Whether the value of this name is masked: a count of tokens and a yes or no are not."""
    if value is None or isinstance(value, bool):
        return False
    return is_secret(name) and not (isinstance(value, int) and name.lower().endswith("tokens"))


def _masked_text(text: str) -> str:
    text = _CREDENTIALS.sub(r"\1…", text)
    text = _JWT.sub("…", text)
    text = _USER.sub(r"\1\2…@", text)
    text = _CODE.sub(r"\1…", text)
    text = _FIELD.sub(lambda m: f"{m[1]}{m[2]}{m[3]}{m[4]}…" if is_secret(m[2]) else m[0], text)
    parts: list[str] = []
    done = 0
    for match in _NAME.finditer(text):
        name, end = match["name"], match.end()
        escaped = text.endswith("\\", 0, match.start())
        if match.start() < done or not (is_secret(name) or (escaped and is_secret(name[1:]))):
            continue
        if match["quote"] and text.startswith(("[", "{"), end):  # broken JSON
            return "".join((*parts, text[done:end], '"…"'))
        if value := _VALUE.match(text, end):
            quote = value["quote"] or ""
            parts += (text[done:end], value["scheme"] or quote, "…", quote)
            done = value.end()
    return "".join((*parts, text[done:]))


# -- messages out of the bytes of one direction ----------------------------------------------------


def _one_line(text: str, size: int) -> str:
    """The beginning of what is shown of a message, and the length of the message if it is cut."""
    shown = text[:SHOWN_CHARACTERS]
    if not shown.isprintable():
        shown = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown
        )
    return shown if len(text) <= SHOWN_CHARACTERS else f"{shown}… ({size} bytes)"


class Piece(NamedTuple):
    """A message, and its length in bytes. Of a message that is too long the end is missing."""

    data: bytes
    size: int

    def text(self) -> str:
        """The message without secrets."""
        if self.size > KEPT_BYTES:
            return f"({self.size} bytes, too many to be masked)"
        text = self.data.decode("utf-8", "backslashreplace")
        json_text = _masked_json(text)
        if json_text is not None:
            return json_text
        if _JSON.match(text):
            return f"({self.size} bytes that are not JSON)"
        return _masked_text(text)

    def shown(self) -> str:
        """The message on one line, without secrets."""
        return _one_line(self.text(), self.size)


class Direction(Protocol):
    """The reader of what one connection sends, or receives."""

    def feed(self, data: bytes, /) -> Iterator[str]:
        """Take in the next bytes. Yields the messages that end in them, as they are shown."""


class _Chunks:
    """A message of any length, of which so much is kept as can be shown."""

    _data = b""
    size = 0

    def add(self, data: bytes, size: int) -> None:
        if len(self._data) < KEPT_BYTES:
            self._data += data[: KEPT_BYTES - len(self._data)]
        self.size += size

    def take(self) -> Piece:
        piece = Piece(self._data, self.size)
        self._data, self.size = b"", 0
        return piece


class _Lines:
    """A message a line."""

    def __init__(self) -> None:
        self._line = _Chunks()

    def pieces(self, data: bytes) -> Iterator[Piece]:
        """The lines that end in these bytes, empty ones too."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._line.add(line, len(line))
            piece = self._line.take()
            yield Piece(piece.data.removesuffix(b"\r"), piece.size)
        self._line.add(rest, len(rest))

    def feed(self, data: bytes) -> Iterator[str]:
        return (piece.shown() for piece in self.pieces(data) if piece.data.strip())


class _Blocks:
    """A message a block of lines, with two empty lines behind it: LiteMCP."""

    EMPTY_LINES = 2

    def __init__(self) -> None:
        self._lines = _Lines()
        self._block = _Chunks()
        self._empty = 0

    def feed(self, data: bytes) -> Iterator[str]:
        for piece in self._lines.pieces(data):
            if piece.data:
                breaks = b"\n" * (self._empty + 1 if self._block.size else 0)
                self._block.add(breaks + piece.data, len(breaks) + piece.size)
                self._empty = 0
                continue
            self._empty += 1
            if self._empty == self.EMPTY_LINES and self._block.size:
                block = self._block.take()
                yield _one_line(self._text(block).replace("\n", " "), block.size)

    def _text(self, block: Piece) -> str:
        return block.text()


class _Events(_Blocks):
    """A message a server-sent event: its lines of data are one text."""

    EMPTY_LINES = 1
    LINE = re.compile(rb"(?:data|event|id|retry)?:")

    def _text(self, block: Piece) -> str:
        lines = block.data.split(b"\n")
        if block.size > KEPT_BYTES or not all(map(self.LINE.match, lines)):
            return block.text()
        fields = [Piece(line, len(line)).text() for line in lines if not line.startswith(b"data:")]
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        )
        return "\n".join((*fields, f"data: {Piece(data, len(data)).text()}") if data else fields)


def _alone(data: bytes) -> list[str]:
    """Show bytes that may be a part of a message: a part may begin or end inside a secret."""
    if _Events.LINE.match(data) and data.endswith((b"\n\n", b"\r\n\r\n")):
        return list(_Events().feed(data))
    piece = Piece(data.strip(), len(data))
    text = piece.text()
    if piece.data.startswith(b"{") and piece.data.endswith(b"}") and text[:1] == "{":
        return [_one_line(text, piece.size)]
    return [f"({piece.size} bytes, a part of a message)"] if piece.data else []


class _Pieces:
    """The bytes as they come, of a framing that is not of this package."""

    def feed(self, data: bytes) -> Iterator[str]:
        yield from _alone(data)


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
            reason = Piece(payload[2:], len(payload) - 2).shown()
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
            whole.add(data, len(data))
            rest = self._inflate.unconsumed_tail
        return whole.take()


class _Http:
    """A message a head, a body, or an event of a body (RFC 9112)."""

    _FIRST = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ /]|\Z)")  # a method, or HTTP/1.1
    _FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:(.*)", re.DOTALL)

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._step: Callable[[], Iterable[str] | None] = self._head
        self._left: float = 0  # bytes of the body, or of its chunk
        self._began = False  # whether the body has
        self._chunked = False
        self._encoding = ""
        self._events: _Events | None = None
        self._body = _Chunks()

    def feed(self, data: bytes) -> Iterator[str]:
        self._bytes += data
        while (shown := self._step()) is not None:
            yield from shown

    def _head(self) -> Iterable[str] | None:
        data = self._bytes
        del data[: len(data) - len(data.lstrip(b"\r\n"))]
        if not data:
            return None
        line, ended, _ = data.partition(b"\n")
        end = data.find(b"\r\n\r\n")
        version = b" HTTP/1." in line or line.startswith(b"HTTP/1.")
        is_head = self._FIRST.match(line) and (version or not ended)
        if not is_head or (end < 0 and len(data) > KEPT_BYTES):
            piece = bytes(data)  # below `asgi()` a response has no head here
            data.clear()
            return _alone(piece)
        if end < 0:
            return None
        # The framer refuses what is mended here; it is shown before.
        text = re.sub(r"[\r\n]+[ \t]+", " ", data[:end].decode("latin-1"))
        first, *lines = re.split(r"[\r\n]+", text)
        del data[: end + 4]
        fields = [(m[1], m[2].strip()) for m in map(self._FIELD.fullmatch, lines) if m]
        self._begin(first, {name.lower(): value for name, value in fields})
        parts = [f"{name}: {'…' if is_secret(name) else masked(value)}" for name, value in fields]
        parts += ["…"] * (len(lines) - len(fields))  # they are not fields
        return [_one_line(" | ".join((masked(first), *parts)), end)]

    def _begin(self, first: str, fields: dict[str, str]) -> None:
        """Find out how long the body is."""
        status = first.split(" ")[1:2] if first.startswith("HTTP/") else [""]
        length = fields.get("content-length", "")
        kind = fields.get("content-type", "").lower()
        self._encoding = fields.get("content-encoding", "").replace("identity", "")
        self._events = _Events() if kind.startswith("text/event-stream") else None
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
            self._body.add(data, len(data))
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
        if self._encoding:
            return [_one_line(f"({piece.size} bytes, {self._encoding})", piece.size)]
        return [piece.shown()]


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
            if type(wire).__name__ == "PassingWire":  # the process of the client shows the requests
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
            self._line(wire, connection, event, f"(not traced from here on: {type(exc).__name__})")

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


def start(write: Callable[[str], object] = _to_stderr) -> None:
    """Write what passes through the wires of this process from now on: to stderr, or line by line
    to a function."""
    set_tap(WireTrace(write))
