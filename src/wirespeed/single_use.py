"""What is accepted once, on all hosts that share a store: states of questions, proofs of keys."""

from __future__ import annotations

from typing import Protocol


class SingleUse(Protocol):
    """Remembers what was used (`wirespeed.cluster.nonces`)."""

    async def use(self, kind: str, nonce: bytes, seconds: float) -> bool:
        """Use something up. Returns False if any host used it before.

        Args:
            kind: A word for what it is.
            nonce: What no other thing of this kind has.
            seconds: How long it is remembered, at least.

        StoreUnavailable: It is not known whether it was used. It may have been used up by this.
        """
