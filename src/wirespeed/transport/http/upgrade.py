"""Streams that change from HTTP to another protocol (RFC 9110 section 7.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.transport.gate import Admission
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.service import Peer


class Opening(NamedTuple):
    """A stream that another protocol has as soon as the answer has left.

    Attributes:
        target: Where it was opened.
        service: Has the ``connect`` of a `Service`.
        peer, admitted: The client.
        framer: Of a WebSocket; None: the service has its own.
    """

    target: HttpTarget
    service: Any
    peer: Peer
    admitted: Admission
    framer: WebSocketFramer | None = None
