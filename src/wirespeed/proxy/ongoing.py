"""Requests that the proxy itself answers or makes, and about which something is said meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message


class Ongoing:
    """The token of such a request."""

    def notified(self, message: Message) -> None:
        """Take a notification about it, or its cancellation by who asked."""

    def answered(self, message: Message | None) -> None:
        """Take the answer to a request of the proxy; None: there will be none."""
