"""Digests of lists: what a client holds of a server's definitions, in one opaque word.

Experimental. Source: "Definition Digests", a draft of modelcontextprotocol/transports-wg
(proposals/XXXX-definition-digests.md): ``digest`` of results, ``knownDigests`` of requests and
``staleDigests`` of their results.
"""

from __future__ import annotations

from collections.abc import Iterable

from wirespeed.protocol.meta import META_PREFIX

META_KNOWN_DIGESTS = META_PREFIX + "knownDigests"
META_STALE_DIGESTS = META_PREFIX + "staleDigests"


def are_of_two(first: object, later: object) -> bool:
    """Whether two pages are of different lists by their digests. A page without one fits each."""
    return first is not None and later is not None and first != later


def digest_of(texts: Iterable[bytes]) -> str:
    """The digest of a collection: of the JSON texts of its entries, in whatever order."""
    import hashlib  # OpenSSL, which the start of a client does not load

    whole = hashlib.sha256()
    for one in sorted(hashlib.sha256(text).digest() for text in texts):
        whole.update(one)
    return f"sha256:{whole.hexdigest()}"
