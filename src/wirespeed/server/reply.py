"""Results as they leave: JSON text, and what an era adds to it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wirespeed.protocol.revisions import META_SERVER_INFO

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Whole:
    """The JSON text of a result that has all that its era asks for: sent as it is."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


# What a method's handler gives: the JSON text of the result object without what the era adds
# (``resultType``, the server's identity); the same and the members of its ``_meta``; or a whole.
Body: TypeAlias = bytes | tuple[bytes, bytes] | Whole


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
    text, meta = body
    if end is None:
        tail = b',"_meta":%b}' % meta
    else:
        tail = b',"resultType":"complete","_meta":%b}' % merged_meta(end, meta)
    return b"{" + tail[1:] if text == b"{}" else text[:-1] + tail


def merged_meta(end: bytes, meta: bytes) -> bytes:
    """A result's ``_meta`` with the server's identity added, unless it is there."""
    own = _members(b"{" + end[1:])["_meta"]
    return _encode(_members(bytes(own)) | _members(meta))
