"""The access log: one line a request, without query, header fields and tokens."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

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
