"""WebSocket frames (RFC 6455, section 5): what a whole stream of bytes holds."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@dataclass
class Rules:
    """What the receiving side is."""

    server: bool
    max_message: int
    max_fragments: int
    max_control: int
    json: bool  # only text is taken, and whitespace around it is no part of it
    deflate: bool  # each message on its own


@dataclass
class Reading:
    """What came of a stream."""

    messages: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)  # pongs, and a close frame
    failed: int | None = None  # the code that we ended it with
    closed: tuple[int, str] | None = None  # what the peer ended it with


class Fault(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


def read(stream: bytes, rules: Rules) -> Reading:
    """Everything that can be said of the stream so far."""
    found = Reading()
    try:
        _read(stream, rules, found)
    except Fault as fault:
        found.failed = fault.code
        found.sent.append((CLOSE, fault.code.to_bytes(2, "big")))
    return found


def _read(stream: bytes, rules: Rules, found: Reading) -> None:
    opcode = 0  # of the message that goes on
    parts: list[bytes] = []
    compressed = False
    control = 0
    while len(stream) >= 2:
        final, reserved, kind = stream[0] >> 7, stream[0] >> 4 & 7, stream[0] & 15
        has_mask, length = stream[1] >> 7, stream[1] & 127
        if has_mask != rules.server:
            raise Fault(1002)
        if reserved and not (reserved == 4 and rules.deflate and kind in (TEXT, BINARY)):
            raise Fault(1002)
        if kind not in (0, TEXT, BINARY, CLOSE, PING, PONG):
            raise Fault(1002)
        if kind >= CLOSE and (not final or length > 125):
            raise Fault(1002)
        if kind == 0 and not opcode:
            raise Fault(1002)
        if kind in (TEXT, BINARY) and opcode:
            raise Fault(1002)
        if kind == BINARY and rules.json:
            raise Fault(1003)
        wide = {126: 2, 127: 8}.get(length, 0)
        head = 2 + wide + 4 * has_mask
        if len(stream) < head:
            return
        if wide:
            length = int.from_bytes(stream[2 : 2 + wide], "big")
            if length >= 1 << 63 or length < (126 if wide == 2 else 65536):
                raise Fault(1002)
        if kind < CLOSE and sum(map(len, parts)) + length > rules.max_message:
            raise Fault(1009)
        if kind == 0 and len(parts) >= rules.max_fragments + sum(map(len, parts)) // 64:
            raise Fault(1008)
        if len(stream) < head + length:
            return
        payload = stream[head : head + length]
        if has_mask:
            key = stream[head - 4 : head]
            payload = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
        stream = stream[head + length :]
        if kind == CLOSE:
            found.closed = _close(payload, found)
            return
        if kind in (PING, PONG):
            if control == rules.max_control:
                raise Fault(1008)
            control += 1
            if kind == PING:
                found.sent.append((PONG, payload))
            continue
        if kind:
            opcode, compressed = kind, reserved == 4
        parts.append(payload)
        if final:
            found.messages.append((opcode, _message(b"".join(parts), opcode, compressed, rules)))
            opcode, parts, control = 0, [], 0


def _message(data: bytes, opcode: int, compressed: bool, rules: Rules) -> bytes:
    if compressed:
        coder = zlib.decompressobj(wbits=-15)
        try:
            data = coder.decompress(data + b"\x00\x00\xff\xff")
        except zlib.error:
            raise Fault(1002) from None
        if len(data) > rules.max_message:
            raise Fault(1009)
    if opcode == TEXT and not rules.json:
        try:
            data.decode()
        except UnicodeDecodeError:
            raise Fault(1007) from None
    return data.strip(b" \t\r\n") if rules.json else data


def _close(payload: bytes, found: Reading) -> tuple[int, str]:
    if not payload:
        found.sent.append((CLOSE, b""))
        return 1005, ""
    if len(payload) == 1:
        raise Fault(1002)
    code = int.from_bytes(payload[:2], "big")
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise Fault(1002)
    try:
        reason = payload[2:].decode()
    except UnicodeDecodeError:
        raise Fault(1007) from None
    found.sent.append((CLOSE, payload[:2]))
    return code, reason
