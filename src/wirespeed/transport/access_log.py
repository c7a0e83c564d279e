"""The access log: one line a request over HTTP; for a WebSocket or a stream socket a line when the
connection is opened, and one when it has ended. No line has a query, header fields or tokens."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from wirespeed.transport.service import Peer

logger = logging.getLogger("wirespeed.access")

MAX_TEXT = 200  # characters of a path or of a method of MCP


class AccessLog:
    """Writes the lines.

    Args:
        form: How a line looks.
        sample: The share of requests that is logged. Statuses from 500 on are always logged.
    """

    def __init__(self, form: Literal["text", "json"], sample: float = 1.0) -> None:
        self._json = form == "json"
        self._sample = sample
        self._due = 1.0 - sample  # the first one is logged

    def log(
        self,
        peer: str,
        method: str,
        path: str,
        status: int,
        sent: int,
        seconds: float,
        rpc: str | None = None,
    ) -> None:
        """Log a request that was answered.

        Args:
            peer: The address of the client.
            method: The method of HTTP.
            path: Without the query.
            status: The status of the answer.
            sent: The bytes of its body.
            seconds: From the head of the request to the end of the answer.
            rpc: The method of MCP, where it is known.
        """
        self._due += self._sample
        if self._due >= 1.0:
            self._due -= 1.0
        elif status < 500:
            return
        if not logger.isEnabledFor(logging.INFO):
            return
        ms = round(seconds * 1000, 3)
        path, rpc = _short(path), None if rpc is None else _short(rpc)
        if self._json:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line: dict[str, object] = {"time": now, "peer": peer, "method": method, "path": path}
            line |= {"status": status, "bytes": sent, "ms": ms}
            if rpc is not None:
                line["rpc"] = rpc
            logger.info("%s", json.dumps(line))
        else:
            more = "" if rpc is None else f" {rpc}"
            logger.info("%s %s %s %d %d %g ms%s", peer, method, path, status, sent, ms, more)


def _short(text: str) -> str:
    """A text of the client as one printable word of bounded length."""
    text = "".join(c if c.isprintable() and c != " " else "?" for c in text[: MAX_TEXT + 1])
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


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
