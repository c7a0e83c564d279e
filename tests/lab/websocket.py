"""Helpers of the WebSocket tests: frames made by hand, and what a stream sent taken apart."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from websockets.extensions.permessage_deflate import PerMessageDeflate

from wirespeed.core import FrameStream, Lease, Limits, WebSocketFramer
from wirespeed.transport.websocket.upgrade import MessageDeflate

Role = Literal["server", "client"]

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"\x37\xfa\x21\x3d"
NAMES: dict[Role, Role] = {"server": "client", "client": "server"}  # each one's peer


def masked(payload: bytes, key: bytes = KEY) -> bytes:
    return bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    to: Role = "server",
    fin: bool = True,
    rsv: int = 0,
    key: bytes = KEY,
    size: int | None = None,
    length: int | None = None,
    mask: bool | None = None,
) -> bytes:
    """A frame as the peer of `to` sends it. `size`: bytes that the length is written in (1, 2 or 8)
    where it is not the shortest; `length`: what is written instead of it."""
    n = len(payload) if length is None else length
    if size is None:
        size = 1 if n < 126 else 2 if n < 65536 else 8
    mask = to == "server" if mask is None else mask
    head = bytes([fin << 7 | rsv << 4 | opcode])
    top = mask << 7
    if size == 1:
        head += bytes([top | n])
    else:
        head += bytes([top | (126 if size == 2 else 127)]) + n.to_bytes(size, "big")
    if mask:
        return head + key + masked(payload, key)
    return head + payload


def closing(code: int, reason: bytes = b"") -> bytes:
    return code.to_bytes(2, "big") + reason


class Sent(NamedTuple):
    """A frame that we sent."""

    opcode: int
    payload: bytes
    rsv: int = 0


def unframe(data: bytes, sender: Role) -> list[Sent]:
    """The frames in the data; they must be whole, final, shortly written and rightly masked."""
    found = []
    while data:
        first, second, n = data[0], data[1] >> 7, data[1] & 127
        assert first & 0x80
        assert second == (sender == "client")
        at = 2
        if n == 126:
            n, at = int.from_bytes(data[2:4], "big"), 4
            assert n > 125
        elif n == 127:
            n, at = int.from_bytes(data[2:10], "big"), 10
            assert n > 65535
        payload = data[at + 4 * second : at + 4 * second + n]
        assert len(payload) == n
        if second:
            payload = masked(payload, data[at : at + 4])
        found.append(Sent(first & 15, payload, first >> 4 & 7))
        data = data[at + 4 * second + n :]
    return found


class Peer:
    """A frame stream with this framing, by either door."""

    def __init__(
        self,
        role: Role = "server",
        *,
        door: str = "data",
        max_message: int = 1 << 20,
        binary: bool = True,
        output_high: int = 1 << 24,
        **options: Any,
    ) -> None:
        self.role: Role = role
        self.framer = WebSocketFramer(role, max_message=max_message, binary=binary, **options)
        self.stream = FrameStream(self.framer, limits=Limits(output_high=output_high))
        self.door = door

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Messages that came whole: opcode and payload."""
        if self.door == "data":
            self.stream.receive_data(data)
            return self.take()
        found = []
        while data:
            data = data[self.read(data) :]
            found += self.take()
        return found

    def keep(self, data: bytes) -> list[Lease]:
        """As `feed`, and the messages where they lie."""
        found = []
        while data:
            if self.door == "data":
                self.stream.receive_data(data)
                data = b""
            else:
                data = data[self.read(data) :]
            found += [message for message in self.stream if message is not None]
        return found

    def read(self, data: bytes) -> int:
        """As a transport reads into our memory; gives how much there was room for."""
        view = self.stream.get_buffer()
        n = min(len(view), len(data))
        view[:n] = data[:n]
        view.release()
        self.stream.buffer_updated(n)
        return n

    def take(self) -> list[tuple[int, bytes]]:
        found = []
        for message in self.stream:
            assert message is not None
            found.append((BINARY if self.framer.is_binary else TEXT, bytes(message)))
        return found

    def raw(self) -> bytes:
        return b"".join(map(bytes, self.stream.data_to_send()))

    def sent(self) -> list[Sent]:
        return unframe(self.raw(), self.role)


def deflate(*, takeover: bool = True, bits: int = 15) -> PerMessageDeflate:
    return PerMessageDeflate(not takeover, not takeover, bits, bits, {"memLevel": 5})


def deflater(**options: Any) -> MessageDeflate:
    return MessageDeflate(deflate(**options))
