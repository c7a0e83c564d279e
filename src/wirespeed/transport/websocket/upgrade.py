"""The opening handshake of WebSocket (RFC 6455 section 4), both sides, without input or output.

`websockets` checks what is asked and answered, and negotiates permessage-deflate. A server's
requests are read by `wirespeed._core.framing.http`; a client's answers are parsed by `websockets`.
wirespeed's own framing reads the bytes behind a head.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from websockets.client import ClientProtocol
from websockets.datastructures import Headers as HandshakeHeaders
from websockets.exceptions import (
    InvalidHandshake,
    InvalidHeader,
    InvalidUpgrade,
    PayloadTooBig,
    ProtocolError,
)
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

import wirespeed
from wirespeed.transport.address import Address
from wirespeed.transport.gate import Refused
from wirespeed.transport.headers import Headers
from wirespeed.transport.options import Refusal

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_HEAD = 16384  # bytes of a response up to the empty line
MAX_BODY = 65536  # bytes of a refusal's body that a client takes in
SECRET = 6  # characters of the shortest secret in a header field
END = b"\r\n\r\n"

# A window of 4 KiB instead of 32: one connection needs at most 16 KiB + 16 KiB to compress.
WINDOW_BITS = 12
DEFLATE = {"memLevel": 5}

# websockets logs every handshake, with all header fields at DEBUG.
_silent = logging.Logger("wirespeed.handshake")  # noqa: LOG001 (it cannot be switched on)
_silent.disabled = True


# -- server ----------------------------------------------------------------------------------------


class ServerHandshake:
    """A client's request for a WebSocket, judged. Refused: it is not a valid one.

    Args:
        headers: The header fields of the request.
        compression: Whether permessage-deflate may be agreed on.
    """

    def __init__(self, headers: Headers, *, compression: bool = False) -> None:
        self.offered: list[str] = []
        """The subprotocols that the client offers, the best first."""

        def note(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> None:
            self.offered = [str(one) for one in offered]

        factory = ServerPerMessageDeflateFactory(
            server_max_window_bits=WINDOW_BITS,
            client_max_window_bits=WINDOW_BITS,
            compress_settings=DEFLATE,
        )
        self._protocol = ServerProtocol(
            extensions=[factory] if compression else None, select_subprotocol=note, logger=_silent
        )
        self._response = self._protocol.accept(Request("/", HandshakeHeaders(headers)))
        if self._response.status_code != 101:
            raise Refused(_no_upgrade(self._protocol.handshake_exc))

    @property
    def extension(self) -> MessageDeflate | None:
        """permessage-deflate as agreed, with the states of both directions; or None."""
        return _deflate(self._protocol)

    def accept(self, subprotocol: str | None, headers: Mapping[str, str]) -> bytes:
        """The answer that opens the WebSocket."""
        if subprotocol is not None:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        for name, value in headers.items():
            self._response.headers[name] = value
        self._protocol.send_response(self._response)
        return b"".join(self._protocol.data_to_send())


def _no_upgrade(exc: Exception | None) -> Refusal:
    if isinstance(exc, InvalidUpgrade):
        return Refusal(
            426,
            "this is a WebSocket endpoint: connect with a WebSocket client",
            {"Upgrade": "websocket", "Connection": "Upgrade"},
        )
    if isinstance(exc, InvalidHandshake):
        if "Sec-WebSocket-Version" in str(exc):
            spoken = {"Sec-WebSocket-Version": "13"}  # RFC 6455 section 4.4
            return Refusal(426, "the supported WebSocket version is 13", spoken)
        what = "the opening handshake is wrong"
        if isinstance(exc, InvalidHeader):  # its text holds the value
            what += f": {'invalid' if exc.value else 'missing'} {exc.name} header"
        return Refusal(400, what)
    return Refusal(500, "internal error")


# -- client ----------------------------------------------------------------------------------------


class BadAnswer(Exception):
    """The answer is not that of an opening handshake. The text is the reason."""


class Answer:
    """The answer of a server.

    Attributes:
        status: 101, or the status of a refusal.
        reason: The first line of a refusal's text.
        headers: The header fields.
        subprotocol: The subprotocol that the server chose, or None.
        extension: permessage-deflate, if it was agreed on: for the framer of this connection.
    """

    __slots__ = ("extension", "headers", "reason", "status", "subprotocol")

    def __init__(
        self, response: Response, protocol: ClientProtocol, secrets: Sequence[str]
    ) -> None:
        self.status = response.status_code
        self.headers = Headers(list(response.headers.raw_items()))
        self.reason = ""
        if self.status != 101:
            text = bytes(response.body or b"")[:MAX_BODY].decode(errors="replace").strip()
            if "html" not in self.headers.get("content-type", ""):
                self.reason = _one_line(text.partition("\n")[0], secrets)
            self.reason = self.reason or _one_line(response.reason_phrase, secrets)
        self.subprotocol = None if protocol.subprotocol is None else str(protocol.subprotocol)
        self.extension = _deflate(protocol)


class ClientHandshake:
    """A request for a WebSocket, and the judgement of its answer.

    ``headers`` are further header fields. Their values are not shown in errors, even if the server
    repeats them.
    """

    def __init__(
        self,
        address: Address,
        *,
        subprotocols: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        compression: bool = False,
    ) -> None:
        uri = WebSocketURI(address.secure, address.host, address.port, address.path, address.query)
        # no server_max_window_bits: some servers answer such an offer wrongly
        factory = ClientPerMessageDeflateFactory(
            client_max_window_bits=True, compress_settings=DEFLATE
        )
        self._protocol = ClientProtocol(
            uri,
            extensions=[factory] if compression else None,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            logger=_silent,
        )
        request = self._protocol.connect()
        request.headers["User-Agent"] = f"wirespeed/{wirespeed.__version__}"
        for name, value in (headers or {}).items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self._secrets = _secrets_of((headers or {}).values())
        self._protocol.send_request(request)
        self.request = b"".join(self._protocol.data_to_send())
        """Return the bytes to send."""

    def receive(self, data: bytes) -> Answer | None:
        """Parse bytes of the answer: its head, and the body of a refusal. Returns None when more
        bytes are needed. BadAnswer: the answer is wrong."""
        self._protocol.receive_data(data)
        return self._answer()

    def receive_eof(self) -> Answer | None:
        """The server has closed its side."""
        self._protocol.receive_eof()
        return self._answer()

    def _answer(self) -> Answer | None:
        events = self._protocol.events_received()
        exc = self._protocol.handshake_exc
        if not events:
            if exc is not None:
                raise BadAnswer("the answer is not HTTP/1.1")
            return None
        response = events[0]
        assert isinstance(response, Response)
        if response.status_code == 101 and exc is not None:
            raise BadAnswer(_one_line(str(exc), self._secrets))
        return Answer(response, self._protocol, self._secrets)

    def refusal_of(self, head: bytes) -> tuple[int, str] | None:
        """Return the status and the reason in the head of a refusal; None if the head is not
        valid."""
        line = head.partition(b"\r\n")[0].decode(errors="replace")
        version, _, rest = line.partition(" ")
        status, _, reason = rest.partition(" ")
        if version != "HTTP/1.1" or not (status.isdecimal() and 200 <= int(status) < 600):
            return None
        return int(status), _one_line(reason, self._secrets)


def opens(head: bytes) -> bool:
    """Whether the head of an answer opens the WebSocket, so that no further HTTP follows."""
    return head.split(b" ", 2)[1:2] == [b"101"]


# -- both ------------------------------------------------------------------------------------------


class MessageDeflate:
    """The `deflate` of a `wirespeed.core.WebSocketFramer`.

    Args:
        extension: The extension that a handshake agreed on. Each connection has its own, with the
            context of earlier messages.
    """

    def __init__(self, extension: PerMessageDeflate) -> None:
        self._extension = extension

    def encode(self, data: Buffer) -> Buffer:
        """The message compressed."""
        return self._extension.encode(Frame(Opcode.TEXT, memoryview(data))).data

    def decode(self, data: bytes, max_size: int) -> Buffer | None:
        """Return the inflated message; None when it is longer than max_size bytes.

        ValueError: the message is not deflated data.
        """
        decoder = getattr(self._extension, "decoder", None)
        if decoder is not None and decoder.eof:
            # data after a final block would be dropped silently
            raise ValueError("deflated data behind its end")
        try:
            # one byte more: at its limit zlib does not tell whether data are left
            frame = Frame(Opcode.TEXT, data, fin=True, rsv1=True)
            found = self._extension.decode(frame, max_size=max_size + 1).data
        except PayloadTooBig:
            return None
        except ProtocolError as exc:
            raise ValueError("not deflated data") from exc
        return found if len(found) <= max_size else None


def _deflate(protocol: ServerProtocol | ClientProtocol) -> MessageDeflate | None:
    for extension in protocol.extensions:
        if isinstance(extension, PerMessageDeflate):
            return MessageDeflate(extension)
    return None


def _secrets_of(values: Iterable[str]) -> list[str]:
    """Return the texts in values of header fields that nothing may show: also a token without its
    scheme."""
    parts = {part for value in values for part in (value, value.partition(" ")[2])}
    return sorted((part for part in parts if len(part) >= SECRET), key=len, reverse=True)


def _one_line(text: str, secrets: Iterable[str]) -> str:
    """Return a text of the peer as one printable line of at most 200 characters."""
    for secret in secrets:
        text = text.replace(secret, "…")
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 200 else text[:199] + "…"
