"""permessage-deflate (RFC 7692) of `websockets` as our framer takes it: whole messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame, Opcode

if TYPE_CHECKING:
    from typing_extensions import Buffer
    from websockets.extensions.permessage_deflate import PerMessageDeflate


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
