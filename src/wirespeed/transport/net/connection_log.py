"""The access log of WebSockets and stream sockets: a line when a connection is opened, and one when
it has ended. `wirespeed.transport.http.access_log` has the requests over HTTP."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from wirespeed.transport.service import Peer

logger = logging.getLogger("wirespeed.access")


class ConnectionLog:
    """Writes the lines.

    Args:
        form: How a line looks.
        scheme: That of the listener.
    """

    def __init__(self, form: Literal["text", "json"], scheme: str) -> None:
        self._json = form == "json"
        self._scheme = scheme

    def opened(self, peer: Peer) -> None:
        """A connection was opened."""
        self._log(peer, "opened", {})

    def closed(self, peer: Peer, wire: Any, seconds: float) -> None:
        """A connection has ended.

        ``wire``: What has moved its bytes. ``seconds``: How long it was open.
        """
        numbers = {
            "messages": wire.messages_in,
            "bytes_in": wire.bytes_in,
            "bytes_out": wire.bytes_out,
            "ms": round(seconds * 1000, 3),
        }
        self._log(peer, "closed", numbers)

    def _log(self, peer: Peer, event: str, numbers: dict[str, Any]) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        user = None if peer.user is None else str(peer.user)
        if self._json:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"time": now, "peer": peer.address, "scheme": self._scheme, "event": event}
            if user is not None:
                line["user"] = user
            logger.info("%s", json.dumps({**line, **numbers}))
        else:
            who = "" if user is None else " ".join(("", "user", json.dumps(user)))
            more = "".join(f" {name} {value}" for name, value in numbers.items())
            logger.info("%s %s %s%s%s", peer.address, self._scheme, event, who, more)
