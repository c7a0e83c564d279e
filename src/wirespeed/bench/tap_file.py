"""The file of a recorded exchange: one JSON object a line.

The first line is a header: ``format``, ``version``, ``started`` (RFC 3339), ``target``,
``redacted``. Each other line is a message: ``t``, seconds since the start; ``from``, ``client`` or
``server``; ``connection``, a number; ``bytes``, the text of the message as it was. A message that
is not UTF-8 is in ``base64``.

Only messages are written, never header fields of HTTP. A tap that redacts puts the letter x in the
place of every letter of arguments, results and errors, and 1 in that of every digit: lengths stay,
and so do names of members.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec

FORMAT = "wirespeed-record"
VERSION = 1

From: TypeAlias = Literal["client", "server"]

_encode = msgspec.json.Encoder().encode
# Requests that wait for the answer whose redaction depends on their method.
_MOST_ASKED = 65536


class BadRecord(ValueError):
    """A file is not a record. The text names the line and the reason."""


class RecordHeader(msgspec.Struct, kw_only=True):
    """The first line of a record."""

    format: str
    version: int
    started: str
    target: str
    redacted: bool = False


class RecordedMessage(msgspec.Struct, kw_only=True, rename={"sender": "from", "text": "bytes"}):
    """A message of a record.

    Attributes:
        t: Seconds since the start of the record.
        sender: Its sender.
        connection: The number of its connection.
        text: The message; None where it is not UTF-8.
        base64: The bytes of such a message.
        line: Its line in the file.
    """

    t: float
    sender: From
    connection: int
    text: str | None = None
    base64: str | None = None
    line: int = 0

    @property
    def data(self) -> bytes:
        """The bytes of the message."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "")


class TapFile:
    """A record that is being written, for this user alone to read.

    Args:
        path: Its path. A file that is there is replaced.
        target: The server, without secrets.
        redact: Whether arguments, results and errors become letters.

    OSError: the file cannot be written. Later failures are in ``failure``, and end the record.
    """

    def __init__(self, path: str, target: str, *, redact: bool = False) -> None:
        self.path = path
        self.failure: OSError | None = None
        self._began = time.monotonic()
        self._redact = _Redaction() if redact else None
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = open(fd, "wb", buffering=0)  # noqa: SIM115
        if stat.S_ISREG(os.fstat(fd).st_mode):  # it may have been there
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
        header = RecordHeader(
            format=FORMAT,
            version=VERSION,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            target=target,
            redacted=redact,
        )
        self._write(_encode(header))

    def message(self, sender: From, connection: int, data: bytes) -> None:
        """Write a message that has just arrived."""
        t = round(time.monotonic() - self._began, 6)
        if self._redact is not None:
            data = self._redact.of(sender, connection, data)
        line: dict[str, Any] = {"t": t, "from": sender, "connection": connection}
        try:
            line["bytes"] = data.decode()
        except UnicodeDecodeError:
            line["base64"] = base64.b64encode(data).decode()
        self._write(_encode(line))

    def _write(self, line: bytes) -> None:
        if self.failure is not None:
            return
        view = memoryview(line + b"\n")
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as exc:
            self.failure = exc

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_record(path: str) -> tuple[RecordHeader, list[RecordedMessage]]:
    """Read a record. OSError: it cannot be read. BadRecord: it is not one."""
    messages: list[RecordedMessage] = []
    header: RecordHeader | None = None
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                if header is None:
                    header = _header(line)
                else:
                    messages.append(_message(line, number, messages))
            except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
                raise BadRecord(f"{path}, line {number}: {exc}") from None
    if header is None:
        raise BadRecord(f"{path}, line 1: the file is empty")
    return header, messages


def _header(line: bytes) -> RecordHeader:
    try:
        header = msgspec.json.decode(line, type=RecordHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ValueError("it is not the header of a record") from None
    if header.format != FORMAT:
        raise ValueError(f"the format is {header.format!r}, not {FORMAT!r}")
    if header.version != VERSION:
        raise ValueError(f"version {header.version} is not known, only {VERSION}")
    if datetime.fromisoformat(header.started).tzinfo is None:
        raise ValueError(f"started is {header.started!r}, without a time zone")
    return header


def _message(line: bytes, number: int, before: list[RecordedMessage]) -> RecordedMessage:
    if not line.endswith(b"\n"):
        raise ValueError("it is cut off")
    message = msgspec.json.decode(line, type=RecordedMessage)
    if (message.text is None) == (message.base64 is None):
        raise ValueError("a message has either bytes or base64")
    if message.base64 is not None:
        try:
            base64.b64decode(message.base64, validate=True)
        except binascii.Error:
            raise ValueError("base64 is not valid") from None
    if not message.t >= (before[-1].t if before else 0.0):
        raise ValueError("t is less than in the line before")
    message.line = number
    return message


# -- redaction -------------------------------------------------------------------------------------

# The tokens of JSON that are not white space.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.0-9eE]+|true|false|null|[\[\]{}:,]', re.DOTALL)
_COLON = re.compile(rb"\s*:")
_DIGIT = re.compile(rb"[0-9]")

# Members of ``params`` that say what is asked, and not with which values.
_STRUCTURAL = frozenset(
    (
        *("name", "cursor", "level", "mode", "requestId", "taskId"),
        *("progressToken", "progress", "total"),
    )
)
# Members of results and of the blocks in them that name a kind.
_KINDS = frozenset(("type", "mimeType", "role", "resultType"))
_LISTS = ("content", "contents", "messages")
# Of ``_meta``: members whose names begin so are those of the protocol.
_RESERVED = "io.modelcontextprotocol/"


def _is_open(method: str) -> bool:
    """Whether a request of this method, and its answer, say only what a server or a client is."""
    if method in ("initialize", "ping", "server/discover"):
        return True
    return method.endswith("/list") and method != "roots/list"


class _Redaction:
    """The redaction of the messages of all connections."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, str, str], str] = {}

    def of(self, sender: From, connection: int, data: bytes) -> bytes:
        """Return a message with letters in place of values."""
        try:
            msgspec.json.decode(data)  # which takes nothing that is not JSON
            value = json.loads(data.decode(), object_pairs_hook=_Members)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return b"x" * len(data)
        batch = value if isinstance(value, list) else [value]
        opens = [self._opens(sender, connection, one) for one in batch]
        found, last = [], 0
        for match, path in _values(data):
            if isinstance(value, list):
                number, *path = path
                keep = isinstance(number, int) and _keeps(path, match[0], opens[number])
            else:
                keep = _keeps(path, match[0], opens[0])
            if not keep:
                found += [data[last : match.start()], _hidden(match[0])]
                last = match.end()
        return b"".join([*found, data[last:]])

    def _opens(self, sender: From, connection: int, message: Any) -> bool:
        if not isinstance(message, _Members):
            return False
        method, id = message.get("method"), repr(message.get("id"))
        if isinstance(method, str):
            if "id" in message:
                if len(self._asked) >= _MOST_ASKED:
                    del self._asked[next(iter(self._asked))]
                self._asked[connection, sender, id] = "" if message.twice else method
            return _is_open(method) and not message.twice
        asker = "server" if sender == "client" else "client"
        return _is_open(self._asked.pop((connection, asker, id), "")) and not message.twice


class _Members(dict[str, Any]):
    """An object of JSON, and whether it has a name twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = len(self) < len(pairs)


def _keeps(path: list[str | int], token: bytes, opens: bool) -> bool:
    """Whether the value at a path of a message stays as it is."""
    match path:
        case ["jsonrpc" | "id" | "method"]:
            return True
        case ["error", "code"]:
            return token[:1] != b'"'
        case ["params" | "result", "_meta", str(name), *_]:
            return name == "progressToken" or name.startswith(_RESERVED)
        case ["params", "ref", name]:
            return name in ("type", "name")
        case ["params", name, *_]:
            return opens or name in _STRUCTURAL
        case ["result", *_, "statusMessage"]:
            return False
        case ["result", name]:
            return opens or name in _KINDS
        case ["result", list_, int(), *_, name]:
            return opens or (list_ in _LISTS and len(path) < 6 and name in _KINDS)
        case ["result", *_]:
            return opens
    return False


def _values(data: bytes) -> Iterator[tuple[re.Match[bytes], list[str | int]]]:
    """Each string that is not the name of a member, and each number, with its path."""
    path: list[str | int] = []
    for match in _TOKEN.finditer(data):
        token = match[0]
        first = token[:1]
        if first == b"{":
            path.append("")
        elif first == b"[":
            path.append(0)
        elif first in b"]}":
            path.pop()
        elif first == b",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else ""
        elif first == b'"':
            if path and path[-1] == "" and _COLON.match(data, match.end()):
                path[-1] = msgspec.json.decode(token)
            else:
                yield match, list(path)
        elif first in b"-0123456789":
            yield match, list(path)


def _hidden(text: bytes) -> bytes:
    """A JSON string or number of the same length without what it says."""
    if text[:1] == b'"':
        return b'"' + b"x" * (len(text) - 2) + b'"'
    return _DIGIT.sub(b"1", text)
