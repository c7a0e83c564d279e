"""Answers as they are sent: results with the members of their era, and texts of exceptions.

A client learns of an exception that a handler raised what `report` returns; the log has the rest.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from wirespeed.protocol.revisions import META_SERVER_INFO

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Call

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Whole:
    """The JSON text of a result with all members of its era, sent as it is."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


# What a method's handler returns: the JSON text of the result object without what the era adds
# (``resultType``, the server's identity); the same and its ``_meta``; these and its ``resultType``
# where that is an extension's; or a whole.
Body: TypeAlias = bytes | tuple[bytes, bytes] | tuple[bytes, bytes, bytes] | Whole

COMPLETE = b'"complete"'


def modern_end(info: bytes) -> bytes:
    """The end of every modern result, behind its members (2026-07-28 basic, "Responses")."""
    return b',"resultType":"complete","_meta":{"%b":%b}}' % (META_SERVER_INFO.encode(), info)


def finished(body: Body, end: bytes | None) -> bytes:
    """The result to send. ``end`` is `modern_end`, None for a legacy peer."""
    if isinstance(body, bytes):
        if end is None:
            return body
        return b"{" + end[1:] if body == b"{}" else body[:-1] + end
    if isinstance(body, Whole):
        return body.data
    text, meta = body[:2]
    if end is None:
        tail = b',"_meta":%b}' % meta
    else:
        kind = body[2] if len(body) == 3 else COMPLETE
        tail = b',"resultType":%b,"_meta":%b}' % (kind, merged_meta(end, meta))
    return b"{" + tail[1:] if text == b"{}" else text[:-1] + tail


def merged_meta(end: bytes, meta: bytes) -> bytes:
    """A result's ``_meta`` with the server's identity added, unless it is there."""
    own = _members(b"{" + end[1:])["_meta"]
    return _encode(_members(bytes(own)) | _members(meta))


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
