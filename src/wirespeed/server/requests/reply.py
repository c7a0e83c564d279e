"""Results as they are sent: JSON text, and what an era adds to it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wirespeed.protocol.revisions import META_SERVER_INFO

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
    """What every modern result ends with, behind its members (2026-07-28 basic, "Responses")."""
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
