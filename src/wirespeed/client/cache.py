"""The cache of a client: results that are fresh (server/utilities/caching of 2026-07-28).

It keeps complete results of ``server/discover``, the four lists and ``resources/read``. It keeps
their JSON text, so that each caller gets objects of its own. The key of a result is its method and
its parameters without ``_meta``.

A cache belongs to one client, and so to one set of credentials: clients share neither private nor
public results. It is cleared for each connection, because changes between two connections are not
reported. Stale results are never used, not even when the server fails.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from wirespeed.client.results.decode import Unfinished, legacy_form

# The most that one cache keeps; the least recently used results are removed first.
MAX_ENTRIES = 1000
MAX_BYTES = 16 * 1024 * 1024

# The longest time to live: JSON has integers that no clock can express.
_FOREVER_MS = 1 << 53

Key = tuple[str, bytes]

READ = "resources/read"

# The lists that a notification makes stale.
STALE: dict[str, tuple[str, ...]] = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}


def belongs(uri: str, parent: str) -> bool:
    """Whether a URI is that of a resource or, by its path, of a sub-resource."""
    if not uri.startswith(parent):
        return False
    return len(uri) == len(parent) or parent.endswith("/") or uri[len(parent)] in "/?#"


class _Entry:
    __slots__ = ("text", "until", "uri")

    def __init__(self, text: bytes, until: float, uri: str | None) -> None:
        self.text = text
        self.until = until
        self.uri = uri


class CachingDecoder:
    """A decoder that keeps the JSON text of a result that may be cached: the first result of a
    request, if it is complete and fresh for some time. The result of a request that was sent again
    with input may not be cached (2026-07-28 server/utilities/caching, "Cache Key")."""

    __slots__ = ("_answers", "_clock", "_decode", "text", "until")

    def __init__(self, decode: Callable[[Any], Any], clock: Callable[[], float]) -> None:
        self._decode = decode
        self._clock = clock
        self._answers = 0
        self.text: bytes | None = None
        self.until = 0.0

    def legacy(self, data: Any) -> Any:
        """Decode a result of a server before 2026-07-28, which is not cached."""
        return legacy_form(self._decode)(data)

    def __call__(self, data: Any) -> Any:
        result = self._decode(data)
        self._answers += 1
        if self._answers > 1 or isinstance(result, Unfinished):
            self.text = None
        elif result.ttl_ms > 0:
            self.until = self._clock() + min(result.ttl_ms, _FOREVER_MS) / 1000
            self.text = bytes(data)
        return result


class ResponseCache:
    """The results of one client's server.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._bytes = 0
        self._cleared = 0
        self._changes: dict[str, int] = {}  # by method: how often its answers became stale

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> bytes | None:
        """The JSON text of a fresh result, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self.clock() >= entry.until:
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.text

    def mark(self, method: str) -> object:
        """A mark for `put`, to be taken before the request is sent."""
        return (self._cleared, self._changes.get(method, 0))

    def put(self, key: Key, decoded: CachingDecoder, mark: object, uri: str | None = None) -> None:
        """Keep a result, unless results of its method became stale after the mark was taken: the
        order of the change and the result on the server is unknown. ``uri``: the resource that was
        read."""
        text = decoded.text
        if text is None or mark != self.mark(key[0]) or len(text) > MAX_BYTES:
            return
        self._remove(key)
        self._entries[key] = _Entry(text, decoded.until, uri)
        self._bytes += len(text)
        while self._bytes > MAX_BYTES or len(self._entries) > MAX_ENTRIES:
            self._remove(next(iter(self._entries)))

    def drop(self, method: str) -> None:
        """All results of a method are stale, such as all pages of a list."""
        self._changes[method] = self._changes.get(method, 0) + 1
        for key in [key for key in self._entries if key[0] == method]:
            self._remove(key)

    def changed(self, kind: str) -> None:
        """A list changed: "tools", "prompts" or "resources"."""
        for method in STALE[kind]:
            self.drop(method)

    def updated(self, uris: Iterable[str]) -> None:
        """Resources changed. The resources that they are parts of, and their own parts, are stale
        too."""
        self._changes[READ] = self._changes.get(READ, 0) + 1
        stale = list(uris)
        for key, entry in list(self._entries.items()):
            read = entry.uri
            if read is not None and any(belongs(u, read) or belongs(read, u) for u in stale):
                self._remove(key)

    def clear(self) -> None:
        """Drop all results, and do not keep those of requests that are under way."""
        self._cleared += 1
        self._entries.clear()
        self._bytes = 0

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry.text)
