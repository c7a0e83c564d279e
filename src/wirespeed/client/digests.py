"""The lists that a client keeps by their digests, and what it tells its server of them.

Experimental; see `wirespeed.protocol.digests`. When the first page of a list has the digest of the
one that is kept, that one is used. A result that names a list as stale has the client ask for it
again, also where its pages are fresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wirespeed.protocol.digests import META_KNOWN_DIGESTS, META_STALE_DIGESTS

if TYPE_CHECKING:
    from wirespeed.client.cache import ResponseCache
    from wirespeed.client.requests.middleware import OutboundNext, OutboundRequest

_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})


class KnownLists:
    """The lists of one client's server, each as it was last.

    Args:
        cache: The pages that are fresh, if any are kept.
    """

    def __init__(self, cache: ResponseCache | None) -> None:
        self._cache = cache
        self._held: dict[str, tuple[str, list[Any]]] = {}

    def get(self, method: str, digest: str | None) -> list[Any] | None:
        """The items of the list with this digest, in a new list; None if it is not kept."""
        held = self._held.get(method)
        return [*held[1]] if held is not None and held[0] == digest else None

    def keep(self, method: str, digest: str | None, items: list[Any]) -> None:
        """Keep a list in place of the one before; none without a digest."""
        self._held.pop(method, None)
        if digest is not None:
            self._held[method] = digest, [*items]

    async def tell(self, request: OutboundRequest, call_next: OutboundNext) -> Any:
        """A middleware: tell the server which lists are known."""
        if request.method not in _METHODS or not self._held:
            return await call_next(request)
        request.meta[META_KNOWN_DIGESTS] = {name: held[0] for name, held in self._held.items()}
        result = await call_next(request)
        meta = getattr(result, "meta", None)
        stale = meta.get(META_STALE_DIGESTS) if isinstance(meta, dict) else None
        for method in stale if isinstance(stale, list) else ():
            if method in self._held and self._cache is not None:
                self._cache.drop(method)
        return result
