"""Digests of lists: what a client holds of a server's definitions, in one opaque word.

Experimental. Source: "Definition Digests", a draft of modelcontextprotocol/transports-wg
(proposals/XXXX-definition-digests.md): ``digest`` of results, ``knownDigests`` of requests and
``staleDigests`` of their results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from wirespeed.protocol.meta import META_PREFIX

META_KNOWN_DIGESTS = META_PREFIX + "knownDigests"
META_STALE_DIGESTS = META_PREFIX + "staleDigests"


def digest_of(texts: Iterable[bytes]) -> str:
    """The digest of a collection: of the JSON texts of its entries, in whatever order."""
    whole = hashlib.sha256()
    for one in sorted(hashlib.sha256(text).digest() for text in texts):
        whole.update(one)
    return f"sha256:{whole.hexdigest()}"
