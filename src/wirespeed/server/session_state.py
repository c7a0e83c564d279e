"""The state of a connection of a client of a legacy era, and what of it moves with its session to
another host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.protocol.revisions import LOG_LEVELS
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.asking.asker import OnProgress
    from wirespeed.server.permissions import Shown

DEFAULT_LEVEL = LOG_LEVELS.index("info")
MAX_KEPT = 65_536  # bytes of the JSON text of `Context.session_state` that moves
STAYS = (
    "what a handler keeps in session_state does not move with the session: a value is not JSON, or "
    f"all are more than {MAX_KEPT} bytes"
)
_quiet = RateLimitedLog(logging.getLogger("wirespeed.server"), lines=1, seconds=60.0)
_encode = msgspec.json.Encoder().encode


class _Kept(msgspec.Struct, array_like=True):
    session: msgspec.Raw
    session_id: str | None
    rules: list[tuple[str, str, bool]]


_decode_kept = msgspec.json.Decoder(_Kept).decode


def _moves(value: Any) -> bool:
    """Return whether a value is the same after it was JSON."""
    try:
        return bool(msgspec.json.decode(_encode(value)) == value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return False


class State:
    """The state of a legacy connection: what its handshake settled, and what handlers keep."""

    __slots__ = (
        "capabilities",
        "client_info",
        "heard",
        "log_level",
        "progress",
        "session",
        "session_id",
        "shown",
    )

    def __init__(self) -> None:
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] | None = None
        self.log_level = DEFAULT_LEVEL
        # notifications that something waits for, by method
        self.heard: dict[str, Callable[[Message], object]] = {}
        self.progress: dict[int | str, OnProgress] = {}  # of our questions, by token
        self.session: dict[str, Any] | None = None  # made when a handler first wants it
        self.session_id: str | None = None  # the same
        self.shown: Shown | None = None  # what was enabled and disabled for the session

    def kept(self) -> bytes:
        """Return what handlers keep for the session, for another host. Values of `session` that
        JSON would change are left out; all are, if they are longer than `MAX_KEPT`."""
        if self.session is None and self.session_id is None and self.shown is None:
            return b""
        all_of = dict(self.session or ())  # at once, for other threads
        session = {key: value for key, value in all_of.items() if _moves([key, value])}
        stays = len(session) != len(all_of)
        text = _encode(session)
        if len(text) > MAX_KEPT:
            stays, text = True, b"{}"
        if stays:
            _quiet.log(logging.WARNING, STAYS)
        rules = [] if self.shown is None else self.shown.rules()
        return _encode(_Kept(msgspec.Raw(text), self.session_id, rules))

    def restore(self, kept: bytes) -> None:
        """Take what `kept` returned."""
        from wirespeed.server.permissions import Shown

        found = _decode_kept(kept)
        self.session = msgspec.json.decode(found.session) or None
        self.session_id = found.session_id
        if found.rules:
            self.shown = Shown()
            self.shown.restore(found.rules)
