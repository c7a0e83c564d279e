"""Progress of a client with a request of the server (basic/utilities/progress of the legacy
revisions; in 2026-07-28 only servers report progress)."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.requests.serving import Serving

__all__ = ["OnProgress", "checked", "heard"]

logger = logging.getLogger("wirespeed.server")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with the progress, the total or None, and a message or None."""

METHOD = "notifications/progress"

_tokens = itertools.count(1)


class _Progress(msgspec.Struct):
    progressToken: int | str  # noqa: N815
    progress: float
    total: float | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Progress).decode


def checked(on_progress: OnProgress) -> None:
    """TypeError: *on_progress* is not a plain function."""
    if not callable(on_progress) or inspect.iscoroutinefunction(on_progress):
        raise TypeError("on_progress must be a plain function")


@contextlib.contextmanager
def heard(connection: Serving, params: bytes, on_progress: OnProgress) -> Iterator[bytes]:
    """*params*, the JSON text of an object without ``_meta``, with a progress token. Within the
    block ``on_progress`` is called with the client's notifications whose progress rises."""
    last = -math.inf

    def risen(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if progress > last:
            last = progress
            on_progress(progress, total, message)

    token = next(_tokens)
    state = connection.state
    if METHOD not in state.heard:
        state.heard[METHOD] = functools.partial(_told, state.progress)
    state.progress[token] = risen
    try:
        more = b"" if params == b"{}" else b"," + params[1:-1]
        yield b'{"_meta":{"progressToken":%d}%b}' % (token, more)
    finally:
        del state.progress[token]


def _told(waiting: dict[int | str, OnProgress], message: Message) -> None:
    """notifications/progress. Malformed notifications and unknown tokens are ignored."""
    raw = message.params
    try:
        told = _decode(b"{}" if raw is None else raw)
    except (msgspec.DecodeError, RecursionError):
        return
    on_progress = waiting.get(told.progressToken)
    if on_progress is None:
        return
    try:
        on_progress(told.progress, told.total, told.message)
    except Exception:
        logger.exception("on_progress failed")
