"""What a client learns of an exception that a handler raised, and what the log has of it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Call

logger = logging.getLogger("wirespeed.server")


def describe(exc: BaseException) -> str:
    """The text of an exception; its class stands before a text that is a bare value, or instead of
    a text that is empty or raises."""
    name = type(exc).__name__
    try:
        text = str(exc)
        if isinstance(exc, AssertionError) and not text:
            return f"{name}: a check failed; the log of the server says where"
        return f"{name}: {text}" if isinstance(exc, KeyError) and text else text or name
    except Exception:
        return name


def masks_errors(call: Call) -> bool | None:
    """The ``mask_errors`` for a call. Of a mounted server and the server that it is mounted on, the
    stricter setting counts."""
    served = call.connection.service
    owner = None if call.operation is None else call.operation.owner
    settings = {served.mask_errors, served.mask_errors if owner is None else owner.mask_errors}
    return next((setting for setting in (True, False) if setting in settings), None)


def report(
    what: str,
    exc: BaseException,
    *,
    mask: bool | None,
    default: str | None = None,
    log: logging.Logger = logger,
) -> str:
    """Log that a handler failed, and return the text that its client gets.

    Args:
        what: What failed, such as ``"tool add"``.
        exc: The exception.
        mask: Whether the client gets only the class of the exception, and a reference that the log
            line has, too. None for ``default``.
        default: The client's text where ``mask`` is None; None for that of the exception.
        log: Where to log.
    """
    if mask:
        reference = os.urandom(4).hex()
        log.error("%s failed (reference %s)", what, reference, exc_info=exc)
        kind = type(exc).__name__
        return f"{what} failed with {kind}; reference {reference} in the server's log"
    log.error("%s failed", what, exc_info=exc)
    return describe(exc) if mask is False or default is None else default


def report_end(tool: str, exc: BaseException, *, log: logging.Logger = logger) -> None:
    """Log that a tool ended its server, by `SystemExit` or `KeyboardInterrupt`."""
    hint = "; to fail the call alone, raise ToolError" if isinstance(exc, SystemExit) else ""
    log.error("tool %s ended the server: %r%s", tool, exc, hint, exc_info=exc)
