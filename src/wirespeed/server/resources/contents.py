"""The ``contents`` of a resources/read result.

================================  =============================================================
value                             contents (server/resources, "Resource Contents")
================================  =============================================================
``str``                           one text, media type ``text/plain`` unless another is given
``bytes`` and the like            one blob, ``application/octet-stream``
`ResourceContents`                as it is; an empty ``uri`` stands for the one that was asked
                                  for, a missing media type for the resource's own
a list or tuple that holds        one for each item, by these rules; so is any list where the
`ResourceContents` or ``bytes``   annotation of the result says so
`ResourceResult`                  its ``contents`` by these rules, with hints and ``_meta``
`ReadResourceResult`              the same, as a client got it
``None``                          no such resource: an error
anything else                     one text: its JSON, ``application/json``
================================  =============================================================

Members that a revision does not have are left out (`wirespeed.protocol.revisions`). JSON has no NaN
and no Infinity: they are an error.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ResourceNotFound
from wirespeed.protocol.blocks import BYTES, ResourceContents
from wirespeed.protocol.meta import passed_on
from wirespeed.protocol.results import WHOLE, ReadResourceResult
from wirespeed.protocol.revisions import LATEST_MODERN, Revision, fit_struct
from wirespeed.server.requests.reply import Body
from wirespeed.server.tools.results import ResultError, to_json

_READ = "resources/read"
_LONGEST_MS = 2**53 - 1  # the largest integer that every reader of JSON has


class ResourceResult(msgspec.Struct, kw_only=True):
    """The whole result of reading a resource, for full control.

    *contents* is anything that a resource may return. *ttl_ms* and *cache_scope* are how long a
    client may keep the result, and for whom (2026-07-28 server/utilities/caching); by default those
    of the resource. *meta* is the result's ``_meta``.
    """

    contents: Any
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        cache_hints({}, self.ttl_ms, self.cache_scope)


def cache_hints(
    hints: Mapping[str, Any], ttl_ms: int | None, cache_scope: str | None
) -> dict[str, Any]:
    """Caching hints, some of them replaced. ValueError: a hint is not valid."""
    changed = dict(hints)
    if ttl_ms is not None:
        if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int) or ttl_ms < 0:
            raise ValueError(f"ttl_ms is a number of milliseconds, not {ttl_ms!r}")
        changed["ttlMs"] = ttl_ms
    if cache_scope is not None:
        if cache_scope not in ("public", "private"):
            raise ValueError(f'cache_scope must be "public" or "private", not {cache_scope!r}')
        changed["cacheScope"] = cache_scope
    return changed


def _hints_of(result: ReadResourceResult) -> dict[str, Any]:
    """The caching hints of another server's result; without valid hints it must not be cached."""
    scope = result.cache_scope if result.cache_scope in ("public", "private") else "private"
    return {"ttlMs": min(max(0, result.ttl_ms), _LONGEST_MS), "cacheScope": scope}


class _Result(msgspec.Struct):
    contents: list[ResourceContents]
    ttlMs: int | msgspec.UnsetType = msgspec.UNSET  # noqa: N815
    cacheScope: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815


class ContentsPlan:
    """The encoding of one resource's values.

    Args:
        mime_type: The resource's media type, if it was given one.
        hints: ``ttlMs`` and ``cacheScope`` of its results.
        returns: The annotation of the function's result; `msgspec.UNSET` for none.
    """

    __slots__ = ("_hints", "_many", "_mime_type")

    def __init__(
        self, mime_type: str | None, hints: Mapping[str, Any], returns: Any = msgspec.UNSET
    ) -> None:
        self._mime_type = mime_type
        self._hints = hints
        self._many = _says_many(returns)

    def encode(self, uri: str, value: Any, revision: Revision, *, retried: bool = False) -> Body:
        """The result object. `ResourceNotFound` for None, `ResultError` for what is not JSON.

        *retried*: the client's answers went in, so that the result must not be cached.
        """
        contents, hints, meta = self._parts(uri, value, revision.version)
        if retried:
            hints = {"ttlMs": 0, "cacheScope": "private"}
        result = _Result(contents)
        if _READ in revision.cached_methods:
            result.ttlMs, result.cacheScope = hints["ttlMs"], hints["cacheScope"]
        body = to_json(result)
        return body if meta is None else (body, to_json(meta))

    def result(self, uri: str, value: Any) -> ReadResourceResult:
        """The same for a handler of the server, in the newest revision and not encoded."""
        contents, hints, meta = self._parts(uri, value, LATEST_MODERN)
        return ReadResourceResult(contents, hints["ttlMs"], hints["cacheScope"], meta)

    def _parts(
        self, uri: str, value: Any, version: str
    ) -> tuple[list[ResourceContents], Mapping[str, Any], dict[str, Any] | None]:
        """The contents, the caching hints and the ``_meta`` of a result."""
        hints: Mapping[str, Any] = self._hints
        meta = None
        many = False
        if isinstance(value, ReadResourceResult):
            hints = _hints_of(value)
            meta = passed_on(value.meta)
            value, many = value.contents, True
        elif isinstance(value, ResourceResult):
            hints = cache_hints(hints, value.ttl_ms, value.cache_scope)
            meta = value.meta
            value = value.contents
        if value is None:
            raise ResourceNotFound(uri)
        items = value if many or self._is_many(value) else (value,)
        return [self._one(item, uri, version) for item in items], hints, meta

    def _is_many(self, value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            return False
        return self._many or any(isinstance(v, (ResourceContents, *BYTES)) for v in value)

    def _one(self, value: Any, uri: str, version: str) -> ResourceContents:
        if isinstance(value, ResourceContents):
            found = msgspec.structs.replace(
                value, uri=value.uri or uri, mime_type=value.mime_type or self._mime_type
            )
            return fit_struct(found, version)
        if isinstance(value, str):
            return ResourceContents(uri, self._mime_type or "text/plain", text=value)
        if isinstance(value, BYTES):
            mime_type = self._mime_type or "application/octet-stream"
            return ResourceContents(uri, mime_type, blob=value)  # type: ignore[arg-type]
        if value is None:
            raise ResultError("one of the contents is None")
        if isinstance(value, WHOLE):
            raise ResultError(f"{type(value).__name__} is not what a resource returns")
        text = to_json(value).decode()
        return ResourceContents(uri, self._mime_type or "application/json", text=text)


def _says_many(annotation: Any) -> bool:
    """Whether an annotation is of a list of contents."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_says_many(member) for member in typing.get_args(annotation))
    if not (isinstance(origin, type) and issubclass(origin, Sequence)):
        return False
    items = {item for item in typing.get_args(annotation) if item is not ...}
    return ResourceContents in items


set_public_home(globals())
