"""Progress of handlers that answer requests of the server (basic/utilities/progress of the legacy
revisions; in 2026-07-28 only servers report progress)."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection

__all__ = ["Reporter", "report_progress", "reporter_of", "telling"]

logger = logging.getLogger("wirespeed.client")

_encode = msgspec.json.Encoder().encode


def report_progress(
    progress: float, total: float | None = None, message: str | None = None
) -> None:
    """Report progress to the server, in a handler (``on_sample``, ``on_elicit``,
    ``on_elicit_url``, ``roots``)::

        async def on_sample(request):
            for n in range(3):
                report_progress(n, 3)
                …

    The report is sent if the server requested progress, the handler still runs, and ``progress``
    has increased; never in 2026-07-28, where only servers report progress. ``message`` is left out
    for servers of 2024-11-05. May be called in the worker thread of a handler. ValueError: a number
    is not finite.
    """
    if not math.isfinite(progress) or not (total is None or math.isfinite(total)):
        raise ValueError("progress and total must be finite numbers")
    reporter = _current.get()
    if reporter is not None:
        reporter.report(progress, total, message)


class Reporter:
    """The sender of the progress of one request of the server."""

    __slots__ = ("_connection", "_last", "_thread", "_token", "over")

    def __init__(self, connection: ClientConnection, token: bytes) -> None:
        self._connection = connection
        self._token = token
        self._thread = threading.get_ident()
        self._last = -math.inf
        self.over = False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress. May be called from any thread."""
        if threading.get_ident() == self._thread:
            self._send(progress, total, message)
            return
        try:
            self._connection.loop.call_soon_threadsafe(self._send, progress, total, message)
        except RuntimeError:
            logger.debug("progress is not sent: the client's event loop is closed")

    def _send(self, progress: float, total: float | None, message: str | None) -> None:
        connection = self._connection
        if self.over or progress <= self._last or not connection.usable or connection.full:
            return  # a server that does not read gets no progress
        self._last = progress
        params = b'{"progressToken":%b,"progress":%b' % (self._token, _encode(progress))
        if total is not None:
            params += b',"total":%b' % _encode(total)
        revision = connection.revision
        if message is not None and revision is not None and revision.progress_message:
            params += b',"message":%b' % _encode(message)
        connection.notify("notifications/progress", params + b"}")


_current: ContextVar[Reporter | None] = ContextVar("wirespeed_progress", default=None)


def reporter_of(connection: ClientConnection, message: Message) -> Reporter | None:
    """The reporter of a request; None: the server did not request progress."""
    token = message.lease("params._meta.progressToken")
    if token is None:
        return None
    text = token.copy()
    if not text.startswith(b'"') and not text.removeprefix(b"-").isdigit():
        return None  # neither string nor integer
    return Reporter(connection, text)


@contextlib.contextmanager
def telling(reporter: Reporter | None) -> Iterator[None]:
    """Send the progress of the handler that runs within the block to this reporter."""
    before = _current.set(reporter)
    try:
        yield
    finally:
        _current.reset(before)
        if reporter is not None:
            reporter.over = True


set_public_home(globals())
